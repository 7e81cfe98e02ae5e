"""Cutting line files into byte ranges and reading the lines of one, without missing any.

A line belongs to the split in which it starts. Compressed files cannot be entered in the middle:
they are one split each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from omnigraph.errors import InputError
from omnigraph.model.limits import LOAD_LINE_BYTES_MAX, SPLIT_BYTES, SPLIT_CHUNK_BYTES
from omnigraph.storage.objects.files import FileAccess, InputFile, packing_of

_SEEK_BYTES: Final = 1 << 16
BOM: Final = b"\xef\xbb\xbf"
_WIDE_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


class Split(msgspec.Struct, frozen=True, kw_only=True):
    """A byte range of a line file; `end=None` means to the end (compressed files)."""

    address: str
    start: int
    end: int | None


class LineChunk(msgspec.Struct, frozen=True, kw_only=True):
    """Whole lines of a split, without their ends; `first` counts from 0 within the split.

    `text` is the same lines with their ends, for whoever can use them all at once.
    """

    first: int
    lines: Sequence[bytes]
    text: bytes


class BrokenInputError(Exception):
    """The bytes end early or cannot be unpacked; carries how many whole lines came before."""

    def __init__(self, message: str, lines_before: int) -> None:
        super().__init__(message)
        self.lines_before = lines_before


def plan_splits(files: Sequence[InputFile], *, split_bytes: int = SPLIT_BYTES) -> list[Split]:
    """Splits in file order; empty files have none."""
    splits: list[Split] = []
    for file in files:
        if file.packing is not None:
            splits.append(Split(address=file.address, start=0, end=None))
            continue
        for start in range(0, file.size, split_bytes):
            end = min(start + split_bytes, file.size)
            splits.append(Split(address=file.address, start=start, end=end))
    return splits


def read_chunks(split: Split, access: FileAccess) -> Iterator[LineChunk]:
    """The lines that start in the split, in chunks of bounded size."""
    packing = packing_of(split.address)
    with access.unpacked(split.address) as file:
        whole = iter(partial(file.read, SPLIT_CHUNK_BYTES), b"")
        blocks = _range_blocks(file, split) if packing is None else whole
        if split.start == 0:
            blocks = _narrow(blocks, split.address)
        lines = 0
        try:
            for chunk in line_chunks(blocks):
                yield chunk
                lines = chunk.first + len(chunk.lines)
        except OSError as cause:
            if packing is None:
                raise  # the store's failure, not the file's
            raise BrokenInputError(f"broken {packing} data: {cause}", lines) from cause


def line_chunks(blocks: Iterator[bytes]) -> Iterator[LineChunk]:
    """The lines of text that comes in blocks, as many of each block as are whole."""
    first = 0
    carried = b""
    for block in blocks:
        text = carried + block
        cut = text.rfind(b"\n") + 1
        if not cut:
            carried = text
            if len(carried) > LOAD_LINE_BYTES_MAX + _SEEK_BYTES:
                # Longer than any line may be: hand it over to be refused, skip the rest.
                carried = carried[: LOAD_LINE_BYTES_MAX + 1]
            continue
        carried = text[cut:]
        whole = text[:cut] if carried else text
        lines = whole.split(b"\n")
        lines.pop()
        yield LineChunk(first=first, lines=lines, text=whole)
        first += len(lines)
    if carried:
        yield LineChunk(first=first, lines=[carried], text=carried + b"\n")


def _range_blocks(file: Any, split: Split) -> Iterator[bytes]:
    assert split.end is not None, "only compressed files have open ends"
    position = split.start
    if position > 0:  # the line that starts before us is not ours
        position -= 1
        position += sum(map(len, _rest_of_line(file, position)))
    while position < split.end:
        file.seek(position)
        block = file.read(min(SPLIT_CHUNK_BYTES, split.end - position))
        if not block:
            return
        position += len(block)
        yield block
        if position >= split.end and not block.endswith(b"\n"):
            # The last line runs over the end of the split: it is ours to the end of the line.
            yield from _rest_of_line(file, position)


def _rest_of_line(file: Any, position: int) -> Iterator[bytes]:
    file.seek(position)
    while block := file.read(_SEEK_BYTES):
        cut = block.find(b"\n")
        if cut >= 0:
            yield block[: cut + 1]
            return
        yield block


def _narrow(blocks: Iterator[bytes], address: str) -> Iterator[bytes]:
    """The blocks of a file from its start, without its mark, unless its characters are wide."""
    for number, block in enumerate(blocks):
        if number == 0 and block.startswith(_WIDE_MARKS):
            raise InputError(
                f"{address}: UTF-16 or UTF-32 text, but lines of JSON are UTF-8",
                hint=f"convert it first: iconv -f UTF-16 -t UTF-8 {address}",
                uri=address,
            )
        yield block.removeprefix(BOM) if number == 0 else block
