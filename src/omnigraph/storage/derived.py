"""Derived files: what searches need of a table's data files, made once and kept beside the table.

A derived file is made from one column of one data file, and never changes: `_derived/<location of
the table>/<data file>.<column number>.<kind>`, and `.<first>-<last>` behind it if it is of some of
the rows. Names of data files are never used again, so a derived file serves every version and
branch that has the data file, and goes with it. Nothing depends on these files but time: whoever
needs one and does not find it, or finds it damaged, reads the rows. They are written after the
commit, whole or not at all.

A file is a row of *sections*, in pages that each have a checksum, which is looked at when the page
is read for the first time. Local files are mapped; of files on object stores only the pages asked
for are fetched.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.model.ports import ObjectStore, World
from omnigraph.model.steps import Step
from omnigraph.storage.objects.root import DERIVED, Root, is_location

PAGE_BYTES: Final = 16_384  # have one checksum
ALIGNED: Final = 64  # a section begins at a multiple of this
END_BYTES: Final = 1 << 16  # are read of a file on an object store before anything else
GAP_BYTES_MAX: Final = 1 << 16  # between two wanted pages that are fetched with one request
_MAGIC: Final = b"OGDERIV1"
_TAIL: Final = struct.Struct("<QII8s")  # bytes of the footer, its checksum, format, magic
_FORMAT: Final = 1
_NAME: Final = re.compile(
    r"(?P<data>[0-9A-Za-z_-]+)\.(?P<column>\d+)\.(?P<kind>[0-9a-z-]+)"
    r"(\.(?P<first>\d+)-(?P<last>\d+))?"
)

Bytes = bytes | memoryview
Sections = Mapping[str, Sequence[Bytes]]  # each in pieces, in the order of the file
_T = TypeVar("_T")


class DerivedName(msgspec.Struct, frozen=True, kw_only=True):
    """Of which data file (its name without `.lance`) and column a file is made, and what it is.

    The kind says everything that its content depends on besides the data, e.g. `words1-german`. Of
    a data file with very many bytes several files are made, each of some rows.
    """

    data: str
    column: int  # Lance's number
    kind: str
    rows: tuple[int, int] | None = None  # from the first to before the last; None = all of them

    def __str__(self) -> str:
        some = "" if self.rows is None else ".{}-{}".format(*self.rows)
        return f"{self.data}.{self.column}.{self.kind}{some}"

    @classmethod
    def parse(cls, text: str) -> DerivedName | None:
        """None if it is no name of ours."""
        found = _NAME.fullmatch(text)
        if found is None:
            return None
        rows = None if found["first"] is None else (int(found["first"]), int(found["last"]))
        return cls(data=found["data"], column=int(found["column"]), kind=found["kind"], rows=rows)


class DamagedError(ValueError):
    """A derived file is not what was written. Whoever meets it reads the rows instead; no user ever
    sees it."""


class Readings(msgspec.Struct):
    """What was fetched of derived files on object stores. Costs are tested by it."""

    requests: int = 0
    bytes: int = 0


class Span(msgspec.Struct, frozen=True):
    """Some bytes of a section."""

    section: str
    start: int
    stop: int


class _Section(msgspec.Struct, frozen=True, array_like=True):
    name: str
    start: int
    bytes: int


class _Footer(msgspec.Struct, frozen=True):
    page_bytes: int
    sections: list[_Section]
    facts: msgspec.Raw
    checksums: bytes  # of every page before the footer


# --- one file ----------------------------------------------------------------------------------


def encoded(sections: Sections, facts: object) -> Iterator[bytes]:
    """The bytes of a file: sections, each given in pieces, and facts that JSON can tell."""
    pages = _Pages()
    placed: list[_Section] = []
    for name, pieces in sections.items():
        yield from pages.add(b"\0" * (-pages.size % ALIGNED))
        start = pages.size
        for piece in pieces:
            yield from pages.add(piece)
        placed.append(_Section(name, start, pages.size - start))
    yield from pages.end()
    footer = msgspec.msgpack.encode(
        _Footer(
            page_bytes=PAGE_BYTES,
            sections=placed,
            facts=msgspec.Raw(msgspec.msgpack.encode(facts)),
            checksums=np.array(pages.checksums, dtype="<u4").tobytes(),
        )
    )
    yield footer + _TAIL.pack(len(footer), zlib.crc32(footer), _FORMAT, _MAGIC)


class _Pages:
    """Cuts what is written into pages and sums each up."""

    def __init__(self) -> None:
        self.size = 0
        self.checksums: list[int] = []
        self._sum = 0

    def add(self, piece: Bytes) -> Iterator[bytes]:
        view = memoryview(piece).cast("B")
        at = 0
        while at < len(view):
            room = PAGE_BYTES - self.size % PAGE_BYTES
            some = view[at : at + room]
            self._sum = zlib.crc32(some, self._sum)
            self.size, at = self.size + len(some), at + len(some)
            if len(some) == room:
                self.checksums.append(self._sum)
                self._sum = 0
        if len(view):
            yield bytes(view)

    def end(self) -> Iterator[bytes]:
        if self.size % PAGE_BYTES:
            yield from self.add(b"\0" * (-self.size % PAGE_BYTES))


class DerivedFile:
    """One derived file, open for reading from any thread."""

    def __init__(self, source: _Mapped | _Fetched, condemn: Callable[[], None]) -> None:
        """`condemn` is called when the file turns out to be damaged."""
        self._source, self._condemn = source, condemn
        footer, footer_at = _footer(source)
        self._page_bytes = footer.page_bytes
        self._sections = {one.name: one for one in footer.sections}
        self._sums: npt.NDArray[np.uint32] = np.frombuffer(footer.checksums, dtype="<u4")
        if footer_at != len(self._sums) * footer.page_bytes:
            raise DamagedError("the file has another length than its footer says")
        self._seen = np.zeros(len(self._sums), dtype=np.bool_)
        self._facts = footer.facts
        self.is_local = isinstance(source, _Mapped)

    def facts(self, kind: type[_T]) -> _T:
        """What the writer told of the file."""
        try:
            return msgspec.msgpack.decode(self._facts, type=kind)
        except msgspec.DecodeError as cause:
            raise DamagedError(f"its facts make no sense: {cause}") from cause

    def size(self, section: str) -> int:
        """How many bytes the section has."""
        return self._section(section).bytes

    def read(self, section: str) -> memoryview:
        """The whole section."""
        return self.read_all([Span(section, 0, self.size(section))])[0]

    def read_all(self, wanted: Sequence[Span]) -> list[memoryview]:
        """Some bytes each, fetched together. They stay valid as long as somebody holds them."""
        try:
            places = [self._place(span) for span in wanted]
            held = self._source.pieces(self._page_ranges(places))
            return [self._cut(held, start, stop) for start, stop in places]
        except DamagedError:
            self._condemn()
            raise

    def check(self) -> None:
        """Look at every page; `DamagedError` if one is not as it was written."""
        size = self._page_bytes
        for page in range(len(self._sums)):
            start, stop = page * size, (page + 1) * size
            self._cut(self._source.pieces([(start, stop)]), start, stop)

    def _section(self, name: str) -> _Section:
        found = self._sections.get(name)
        if found is None:
            raise DamagedError(f"it has no section '{name}'")
        return found

    def _place(self, span: Span) -> tuple[int, int]:
        section = self._section(span.section)
        if not 0 <= span.start <= span.stop <= section.bytes:
            raise DamagedError(f"'{span.section}' has no bytes {span.start} to {span.stop}")
        return section.start + span.start, section.start + span.stop

    def _page_ranges(self, places: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """The pages that hold these bytes, as few ranges as fit."""
        size = self._page_bytes
        needed = sorted((a // size * size, -(-b // size) * size) for a, b in places if b > a)
        found: list[tuple[int, int]] = []
        for start, stop in needed:
            if found and start <= found[-1][1] + self._source.gap_bytes_max:
                found[-1] = (found[-1][0], max(found[-1][1], stop))
            else:
                found.append((start, stop))
        return found

    def _cut(self, held: Sequence[tuple[int, memoryview]], start: int, stop: int) -> memoryview:
        if stop <= start:
            return memoryview(b"")
        for at, piece in held:
            if at <= start and stop <= at + len(piece):
                self._check(at, piece, start, stop)
                return piece[start - at : stop - at]
        raise DamagedError("the file is shorter than its footer says")

    def _check(self, at: int, piece: memoryview, start: int, stop: int) -> None:
        """Compare the pages with their checksums; those of a mapped file once."""
        size = self._page_bytes
        for page in range(start // size, -(-stop // size)):
            if self.is_local and self._seen[page]:
                continue
            if zlib.crc32(piece[page * size - at : (page + 1) * size - at]) != self._sums[page]:
                raise DamagedError(f"page {page} does not have its checksum")
            self._seen[page] = True


def _footer(source: _Mapped | _Fetched) -> tuple[_Footer, int]:
    """The footer, and where it begins."""
    size = source.size
    begin = max(0, size - END_BYTES)
    end = source.pieces([(begin, size)])[0][1] if size >= _TAIL.size else memoryview(b"")
    if len(end) < _TAIL.size:
        raise DamagedError("the file is too short")
    length, checksum, form, magic = _TAIL.unpack(end[-_TAIL.size :])
    at = size - _TAIL.size - length
    if magic != _MAGIC or form != _FORMAT or at < 0:
        raise DamagedError("it is no derived file")
    if at < begin:
        begin, end = source.pieces([(at, size)])[0]
    body = end[at - begin : at - begin + length]
    if zlib.crc32(body) != checksum:
        raise DamagedError("the footer does not have its checksum")
    try:
        return msgspec.msgpack.decode(body, type=_Footer), at
    except msgspec.DecodeError as cause:
        raise DamagedError(f"the footer makes no sense: {cause}") from cause


class _Mapped:
    """A local file: nothing is read before it is looked at."""

    gap_bytes_max: Final = 0

    def __init__(self, path: str) -> None:
        with open(path, "rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            if not self.size:
                raise DamagedError("the file is empty")
            self._view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))

    def pieces(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, memoryview]]:
        return [(start, self._view[start:stop]) for start, stop in ranges]


class _Fetched:
    """An object of a store: each look is a request."""

    gap_bytes_max: Final = GAP_BYTES_MAX

    def __init__(self, store: ObjectStore, key: str, size: int, readings: Readings) -> None:
        self.size = size
        self._store, self._key, self._readings = store, key, readings

    def pieces(self, ranges: Sequence[tuple[int, int]]) -> list[tuple[int, memoryview]]:
        if not ranges:
            return []
        found = self._store.read_ranges(self._key, ranges)
        if found is None:
            raise DamagedError("the file is gone")
        self._readings.requests += len(ranges)
        self._readings.bytes += sum(map(len, found))
        return [(start, memoryview(body)) for (start, _), body in zip(ranges, found, strict=True)]


# --- all files ---------------------------------------------------------------------------------


class DerivedFiles:
    """The derived files of a graph."""

    def __init__(self, root: Root, world: World, objects: ObjectStore) -> None:
        self._root, self._world, self._objects = root, world, objects
        self._damaged: set[str] = set()  # keys; each counts as missing from then on
        self.readings = Readings()

    def stored(self, location: str) -> dict[DerivedName, int]:
        """The files of a table, with their sizes; names that are not ours are left out."""
        prefix = f"{_folder(location)}/"
        found: dict[DerivedName, int] = {}
        for key, listed in self._objects.listed(_folder(location)).items():
            name = DerivedName.parse(key.removeprefix(prefix))
            if name is not None and key not in self._damaged:
                found[name] = listed.bytes
        return found

    def put(
        self,
        location: str,
        name: DerivedName,
        sections: Sections,
        facts: object,
    ) -> None:
        """Write a file; one that is there (a damaged one, or that of another writer, which holds
        the same) is replaced as a whole."""
        key = _key(location, name)
        self._objects.put_chunks(key, encoded(sections, facts))
        self._damaged.discard(key)
        self._world.steps.reach(Step.DERIVED_WRITTEN)

    def open(self, location: str, name: DerivedName, size: int) -> DerivedFile | None:
        """The file, of which `stored` has told the size; None if it is gone or damaged."""
        key = _key(location, name)
        condemn = partial(self._damaged.add, key)
        try:
            if self._root.local_path is not None:
                path = os.path.join(self._root.local_path, key)
                return DerivedFile(_Mapped(path), condemn)
            return DerivedFile(_Fetched(self._objects, key, size, self.readings), condemn)
        except (DamagedError, FileNotFoundError):
            return None

    def is_sound(self, location: str, name: DerivedName, size: int) -> bool:
        """Whether every page is as it was written."""
        file = self.open(location, name, size)
        if file is None:
            return False
        try:
            file.check()
        except DamagedError:
            return False
        return True

    def collect(self, location: str, *, preview: bool) -> int:
        """Remove the files whose data file is gone; how many bytes they have."""
        found = self.stored(location)
        if not found:
            return 0
        keys = (*self._objects.list_keys(f"{location}/data"), *self._lines(location))
        there = {key.rpartition("/")[2].removesuffix(".lance") for key in keys}
        gone = {name: size for name, size in found.items() if name.data not in there}
        for name in () if preview else gone:
            self._objects.delete(_key(location, name))
        return sum(gone.values())

    def _lines(self, location: str) -> Iterator[str]:
        """The data files of the table's branches."""
        listed = self._objects.list_keys(f"{location}/tree")
        return (key for key in listed if "/data/" in key)

    def drop(self, location: str) -> None:
        """Remove all files of a table."""
        self._objects.delete_prefix(_folder(location))


def _folder(location: str) -> str:
    assert is_location(location), f"not the place of a table: {location!r}"
    return f"{DERIVED}/{location}"


def _key(location: str, name: DerivedName) -> str:
    assert DerivedName.parse(str(name)) == name, f"not a name of a derived file: {name}"
    return f"{_folder(location)}/{name}"
