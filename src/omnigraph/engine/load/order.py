"""What a load was asked for, checked: the mode, the sources, and what to do with bad records."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from omnigraph.engine.arguments import (
    DATA,
    FLAG,
    PATH,
    TEXT,
    TEXT_OR_NONE,
    require,
    require_message,
)
from omnigraph.engine.embed import EmbedConfig
from omnigraph.engine.load.inputs.lines import GraphLines, HeldRecords, held_lines
from omnigraph.engine.load.inputs.objects import ObjectRecords, text_of
from omnigraph.engine.load.inputs.sources import (
    BOM,
    Inputs,
    Split,
    declared,
    held,
    plan_splits,
    read_chunks,
)
from omnigraph.engine.load.reading import Input
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.graph import LOAD_MODES, MAIN
from omnigraph.model.limits import PATH_CHARACTERS_MAX, PIECE_ROWS, SPLIT_CHUNK_BYTES
from omnigraph.model.ports import TextEmbedder
from omnigraph.model.requests import KeyedRequest, digest_of_lines
from omnigraph.storage.objects.files import FileAccess, InputFile

_FILES: Final = FileAccess()  # of this machine
OnError = Literal["fail", "quarantine"]

# Rows of one type: dictionaries, a data frame of any library, an Arrow table or reader, a `Source`,
# a path, or a list of those; Python has no name for "has `__arrow_c_stream__`" that is worth it.
LoadData = (
    str
    | bytes
    | os.PathLike[str]
    | Iterable[str | bytes | Mapping[str, Any]]
    | Sequence[os.PathLike[str]]
    | Mapping[str, Any]
)
_LINE_SUFFIXES: Final = (".jsonl", ".ndjson", ".json")
_TABLE_SUFFIXES: Final = (".parquet", ".csv", ".tsv", ".orc")


class LoadOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for, checked."""

    uri: str
    sources: Any
    mode: str
    branch: str = MAIN
    from_branch: str | None = None
    actor: str | None = None
    quarantine: str | None = None  # None: fail on the first kind of badness
    request: KeyedRequest | None = None  # None: it may be repeated freely
    message: str | None = None
    properties: Mapping[str, str] | None = None
    embed: EmbedConfig | TextEmbedder | None = None  # None: vectors that the input lacks stay null
    keys_once: bool = False  # also a merge refuses a keyed node that comes twice

    def of_batch(
        self, sources: Any, request: KeyedRequest, properties: Mapping[str, str]
    ) -> LoadOrder:
        """The same order for one micro-batch of a stream."""
        return replace(self, sources=sources, request=request, properties=properties)


def require_mode(mode: str) -> None:
    require(TEXT, mode=mode)
    if mode not in LOAD_MODES:
        raise InputError(f"unknown load mode '{mode}'", hint=f"use {', '.join(LOAD_MODES)}")


def checked_order(
    *, on_error: str = "fail", quarantine: Any = None, idempotency_key: str | None, **facts: Any
) -> LoadOrder:
    """The order that the caller's words mean, or `InputError`."""
    require_mode(facts["mode"])
    require(TEXT_OR_NONE, from_branch=facts.get("from_branch"), actor=facts.get("actor"))
    require_message(facts.get("message"))
    if idempotency_key is not None and "request" not in facts:
        facts["request"] = KeyedRequest.of(
            idempotency_key, "bulk load", mode=facts["mode"], sources=declared(facts["sources"])
        )
    if on_error not in ("fail", "quarantine"):
        raise InputError(f"unknown on_error '{on_error}'", hint="use fail or quarantine")
    if on_error == "fail":
        if quarantine is not None:
            raise InputError(
                "a quarantine folder is of no use to a load that fails on bad records",
                hint='pass on_error="quarantine" with it',
            )
        return LoadOrder(quarantine=None, **facts)
    folder = f"{facts['uri'].rstrip('/')}.quarantine" if quarantine is None else quarantine
    require(PATH, quarantine=folder)
    return LoadOrder(quarantine=os.fspath(folder), **facts)


# --- data that the caller hands over ----------------------------------------------------------


def request_order(
    data: Any, *, type_name: str | None, strict: bool, idempotency_key: str | None, **facts: Any
) -> LoadOrder:
    """The order of a load in process. What the caller holds is known by what is in it: submitted
    again with the same key, it must be the same."""
    require(FLAG, strict=strict)
    require_mode(facts["mode"])
    require(TEXT_OR_NONE, type=type_name)
    if type_name is not None:
        if isinstance(data, Mapping):
            raise InputError(
                "a mapping says itself which types its rows are of",
                hint=f'leave out type=, or pass rows in a list: load([row], type="{type_name}", …)',
            )
        data = {type_name: data}
    if not isinstance(data, Mapping):
        _refuse_misread(data)
        require(DATA, data=data)
    paths = isinstance(data, list | tuple) and isinstance(next(iter(data), None), os.PathLike)
    if isinstance(data, Mapping):
        _refuse_record(data)
        data = {name: held(str(name), given) for name, given in data.items()}
    if paths or isinstance(data, Mapping) or _is_folder(data):
        if not strict:
            raise InputError(
                "only one text or file has a permissive form", hint="leave out strict=False"
            )
        return checked_order(sources=data, idempotency_key=idempotency_key, **facts)
    if isinstance(data, os.PathLike):
        data = _file_or_what_it_says(os.fspath(data))
    request = None
    if idempotency_key is not None:
        if not isinstance(data, str | bytes | os.PathLike):
            data = _held_twice(data)
        lines = digest_of_lines(_lines(data))
        request = KeyedRequest.of(
            idempotency_key, "load", lines=lines, mode=facts["mode"], strict=strict
        )
    return checked_order(
        sources=Inputs(ready=tuple(_inputs(data, strict=strict))),
        idempotency_key=idempotency_key,
        request=request,
        keys_once=not strict,
        **facts,
    )


def _is_folder(data: Any) -> bool:
    """Whether it is a folder; `NotFoundError` if there is nothing in it."""
    if not isinstance(data, os.PathLike) or not os.path.isdir(data):
        return False
    name = os.fspath(data)
    if not _FILES.found(name):
        raise NotFoundError(f"there is no file in '{name}'", kind="file", name=name)
    return True


def _refuse_misread(data: Any) -> None:
    """Say what was probably meant by a path that came as text, by a table of no type, and by what
    belongs to one type."""
    if isinstance(data, str) and _looks_like_a_path(data):
        raise InputError(
            f"data is the text to load, and '{data}' looks like the path of a file",
            hint=f'pass pathlib.Path("{data}")',
        )
    first = data[0] if isinstance(data, list | tuple) and data else None
    if isinstance(first, str) and _looks_like_a_path(first):
        raise InputError(
            f"data is a list of lines, and '{first}' looks like the path of a file",
            hint=f'pass [pathlib.Path("{first}"), …]',
        )
    if isinstance(data, os.PathLike):
        name = os.fspath(data)
        if name.endswith(_TABLE_SUFFIXES):
            raise InputError(
                f"'{name}' holds the rows of one type, and it is not said of which",
                hint='pass type="…", or a mapping from types to paths',
            )
    elif hasattr(data, "__arrow_c_stream__") or hasattr(data, "mapInArrow"):
        raise InputError(
            f"a {type(data).__name__} holds the rows of one type, and it is not said of which",
            hint='pass type="Person", or a mapping: {"Person": frame}',
        )
    elif hasattr(data, "nodes") and hasattr(data, "edges"):
        raise InputError(
            f"a {type(data).__name__} does not say which types its nodes and edges have",
            hint="pass omnigraph.from_networkx(graph, node_type=…, edge_type=…)",
        )


def _refuse_record(data: Mapping[Any, Any]) -> None:
    if isinstance(data.get("type", data.get("edge")), str) and "data" in data:
        raise InputError(
            "one record stands where a mapping from types to their rows is expected",
            hint="put it into a list: graph.load([record], …)",
        )


def _looks_like_a_path(text: str) -> bool:
    if not text.strip() or "\n" in text or "{" in text or len(text) > PATH_CHARACTERS_MAX:
        return False
    return text.endswith((*_LINE_SUFFIXES, *_TABLE_SUFFIXES, ".gz")) or os.path.exists(text)


def _file_or_what_it_says(path: str) -> Path | bytes:
    """The file; of a pipe (`/dev/stdin`, `<(…)`) what comes out of it, which can be read once and
    would be empty for whoever looks again."""
    try:
        if os.path.exists(path) and not os.path.isfile(path):
            return Path(path).read_bytes()
        with open(path, "rb"):
            return Path(path)
    except FileNotFoundError as cause:
        raise NotFoundError(f"No such file: '{path}'", kind="file", name=path) from cause
    except OSError as cause:
        raise InputError(f"cannot read data file '{path}': {cause.strerror}") from cause


def _inputs(
    data: str | bytes | os.PathLike[str] | Iterable[Any], *, strict: bool
) -> Iterator[Input]:
    if isinstance(data, os.PathLike):
        if strict:
            yield from (GraphLines(chunks=partial(read_chunks, split)) for split in _splits(data))
            return
        with _FILES.unpacked(os.fspath(data)) as file:
            data = bytes(file.read())
    if not strict:
        yield HeldRecords(body=_body(data))
    elif isinstance(data, str | bytes):
        yield from (held_lines((block,)) for block in _pieces(_body(data)))
    else:
        yield from _handed_over(data)


def _held_twice(items: Iterable[Any]) -> bytes | list[Any]:
    """What may come only once, for those who need it twice: lines as one text, or the records."""
    held_items = list(items)
    records = bool(held_items) and isinstance(held_items[0], Mapping)
    return held_items if records else b"".join(_blocks(held_items))


def _handed_over(items: Iterable[Any]) -> Iterator[Input]:
    """Lines of text, or records as dictionaries."""
    waiting = iter(items)
    first = next(waiting, None)
    if not isinstance(first, Mapping):
        yield held_lines(_blocks(chain([] if first is None else [first], waiting)))
        return
    records = [first, *waiting]
    for start in range(0, len(records), PIECE_ROWS):
        yield ObjectRecords(records=records[start : start + PIECE_ROWS], first=start)


def _body(data: str | bytes | Iterable[Any]) -> bytes:
    if isinstance(data, str):
        data = data.encode(errors="surrogatepass")
    body = data if isinstance(data, bytes) else b"".join(_blocks(data))
    return body.removeprefix(BOM)


def _lines(data: str | bytes | os.PathLike[str] | list[Any]) -> Iterator[bytes]:
    """The lines of data that can be read more than once."""
    if isinstance(data, list):
        yield from (text_of(one).encode(errors="surrogatepass") for one in data)
        return
    if not isinstance(data, os.PathLike):
        yield from io.BytesIO(_body(data))
        return
    for split in _splits(data):
        for chunk in read_chunks(split, _FILES):
            yield from chunk.lines


def _splits(path: os.PathLike[str]) -> list[Split]:
    file = InputFile(address=os.fspath(path), size=os.path.getsize(path))
    return plan_splits([file])


def _pieces(body: bytes) -> Iterator[bytes]:
    """The text in pieces of whole lines, one a task; also the last line gets an end."""
    start = 0
    while start < len(body):
        end = len(body)
        if end - start > SPLIT_CHUNK_BYTES:
            end = body.rfind(b"\n", start, start + SPLIT_CHUNK_BYTES) + 1
            end = end or body.find(b"\n", start) + 1 or len(body)
        piece = body[start:end]
        yield piece if piece.endswith(b"\n") else piece + b"\n"
        start = end


def _blocks(items: Iterable[Any]) -> Iterator[bytes]:
    """Lines that come one by one, as text of bounded size."""
    waiting: list[bytes] = []
    size = 0
    for number, item in enumerate(items):
        if not isinstance(item, str | bytes | bytearray | memoryview):
            raise InputError(
                f"load: item {number + 1} of data must be a line (str or bytes), got "
                f"{type(item).__name__}",
                hint="give lines of JSON, or only records as dictionaries",
            )
        text = item.encode(errors="surrogatepass") if isinstance(item, str) else bytes(item)
        if number == 0:
            text = text.removeprefix(BOM)
        waiting.append(text if text.endswith(b"\n") else text + b"\n")
        size += len(text)
        if size >= SPLIT_CHUNK_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)
