"""NDJSON in: text, a file or lines become records, one after the other, with their place.

Strict: one JSON object a line, nothing that would be ignored. Permissive: any stream of JSON
values, also spread over lines. Both read a bounded request, line by line.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson

from omnigraph.compiler.diagnostics import closest
from omnigraph.errors import InputError, LimitExceededError, NotFoundError, RecordError
from omnigraph.model.limits import LOAD_LINE_BYTES_MAX, LOAD_REQUEST_BYTES_MAX
from omnigraph.model.schema import Catalog, EdgeType, NodeType

Data = str | bytes | os.PathLike[str] | Iterable[str | bytes]

PHYSICAL: Final = frozenset(
    {
        "_rowid",
        "_rowaddr",
        "_rowoffset",
        "_row_created_at_version",
        "_row_last_updated_at_version",
    }
)
STRUCTURAL: Final = frozenset({"src", "dst", "from", "to"})
_NODE_MEMBERS: Final = frozenset({"type", "data"})
_EDGE_MEMBERS: Final = frozenset({"edge", "from", "to", "data"})
_MEMBER = re.compile(rb'"[ \t\r\n]*:')
_BLANK = re.compile(r"[ \t\r\n]*")
_BOM: Final = b"\xef\xbb\xbf"
_TOO_BIG: Final = "load it with the Spark pipeline: `omnigraph load --engine spark`"


@dataclass(slots=True)
class Record:
    """One node or edge as written. `number` counts lines (strict) or records (permissive)."""

    number: int
    entity: NodeType | EdgeType
    data: dict[str, Any]
    src: str | None = None
    dst: str | None = None


Refuse = Callable[[RecordError], None]


def refuse_first(error: RecordError) -> None:
    """Stop at the first record that cannot be read."""
    raise error


def records(
    data: Data, catalog: Catalog, *, strict: bool, refuse: Refuse = refuse_first
) -> Iterator[Record]:
    """Every record of the request that can be read; `refuse` is told of the others."""
    read = _strict_values if strict else _permissive_values
    shape = _Strict(catalog) if strict else _Permissive(catalog)
    with _lines(data) as lines:
        for number, value in read(lines, refuse):
            try:
                record = shape.record(number, value)
            except RecordError as error:
                refuse(error)
                continue
            yield record


def held_lines(data: Data) -> list[bytes]:
    """The lines of a request, within its limits, as data that can be read more than once."""
    with _lines(data) as lines:
        return list(lines)


# --- lines ------------------------------------------------------------------------------------


@contextmanager
def _lines(data: Data) -> Iterator[Iterator[bytes]]:
    if isinstance(data, os.PathLike):
        path = os.fspath(data)
        try:
            file = open(path, "rb")  # noqa: SIM115 - closed below; what is read out there is not ours
        except FileNotFoundError as cause:
            raise NotFoundError(f"No such file: '{path}'", kind="file", name=path) from cause
        except OSError as cause:
            raise InputError(f"cannot read data file '{path}': {cause.strerror}") from cause
        with file:
            _require_size(os.fstat(file.fileno()).st_size)
            yield _bounded(file)
        return
    if isinstance(data, str | bytes):
        body = data.encode(errors="surrogatepass") if isinstance(data, str) else data
        _require_size(len(body))
        yield _bounded(io.BytesIO(body))
        return
    yield _bounded(_split(data))


def _split(items: Iterable[str | bytes]) -> Iterator[bytes]:
    for number, item in enumerate(items):
        if not isinstance(item, str | bytes | bytearray | memoryview):
            raise InputError(
                f"load: item {number + 1} of data must be a line (str or bytes), got "
                f"{type(item).__name__}",
                hint="write each record as a line of JSON: json.dumps(record)",
            )
        text = item.encode(errors="surrogatepass") if isinstance(item, str) else bytes(item)
        yield from io.BytesIO(text) if text else (b"",)


def _bounded(lines: Iterable[bytes]) -> Iterator[bytes]:
    """The lines, as long as each and all together stay within their limits."""
    total = 0
    for number, line in enumerate(lines):
        total += len(line)
        if len(line) > LOAD_LINE_BYTES_MAX:
            raise LimitExceededError(
                resource=f"line {number + 1} of a load, in bytes,",
                limit=LOAD_LINE_BYTES_MAX,
                actual=len(line),
            )
        _require_size(total)
        yield line.removeprefix(_BOM) if number == 0 else line


def _require_size(size: int) -> None:
    if size > LOAD_REQUEST_BYTES_MAX:
        raise LimitExceededError(
            resource="a load in process, in bytes,",
            limit=LOAD_REQUEST_BYTES_MAX,
            actual=size,
            hint=_TOO_BIG,
        )


# --- JSON values ------------------------------------------------------------------------------


def _strict_values(lines: Iterator[bytes], refuse: Refuse) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(lines, start=1):
        text = line.strip(b" \t\r\n")
        if not text:
            continue
        try:
            value = _strict_value(number, text)
        except RecordError as error:
            refuse(error)
            continue
        yield number, value


def _strict_value(number: int, text: bytes) -> Any:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as cause:
        raise RecordError(f"line {number}: invalid strict JSON: {cause}", line=number) from cause
    try:
        # Each member has its own `":`; more of them than parsed ones may mean a duplicate.
        if len(_MEMBER.findall(text)) != _members(value, text):
            _refuse_duplicates(text, number)
    except RecursionError as cause:
        raise RecordError(f"line {number}: nested too deeply", line=number) from cause
    return value


def _members(value: Any, text: bytes) -> int:
    """How many members the value has, at all depths."""
    if type(value) is dict and text.count(b"{") == 2 and type(data := value.get("data")) is dict:
        return len(value) + len(data)  # the usual record: nothing nested but its data
    return _members_within(value)


def _members_within(value: Any) -> int:
    if type(value) is dict:
        return len(value) + sum(map(_members_within, value.values()))
    return sum(map(_members_within, value)) if type(value) is list else 0


def _refuse_duplicates(text: bytes, number: int) -> None:
    def pairs(members: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for name, _ in members:
            if name in seen:
                raise RecordError(f"line {number}: duplicate JSON member '{name}'", line=number)
            seen.add(name)

    json.loads(text, object_pairs_hook=pairs)


def _permissive_values(lines: Iterator[bytes], refuse: Refuse) -> Iterator[tuple[int, Any]]:
    number = 0
    for line in lines:
        text = line.strip(b" \t\r\n")
        if not text:
            continue
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            # A value that goes on over several lines, or several on one: read the rest as one text.
            try:
                yield from _value_stream(b"".join([line, *lines]), number)
            except RecordError as error:
                refuse(error)  # nobody knows where the next value would begin
            return
        number += 1
        yield number, value


def _value_stream(body: bytes, number: int) -> Iterator[tuple[int, Any]]:
    try:
        text = body.decode()
    except UnicodeDecodeError as cause:
        raise RecordError(
            f"invalid JSON at record {number + 1}: {cause}", record=number + 1
        ) from cause
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    at = _after_blank(text, 0)
    while at < len(text):
        number += 1
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as cause:
            raise RecordError(f"invalid JSON at record {number}: {cause}", record=number) from cause
        yield number, value
        at = _after_blank(text, end)


def _after_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


# --- records ----------------------------------------------------------------------------------


class _Strict:
    """Shapes values of strict lines; whatever would be ignored is refused."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known = {
            entity.table_key: frozenset({"id", *entity.by_name}) for entity in catalog.types()
        }

    def record(self, number: int, value: Any) -> Record:
        if not isinstance(value, dict):
            raise _bad(number, "expected a JSON object")
        if ("type" in value) == ("edge" in value):
            raise _bad(number, "expected exactly one of 'type' or 'edge'")
        is_node = "type" in value
        members = _NODE_MEMBERS if is_node else _EDGE_MEMBERS
        if not members.issuperset(value):
            raise _unknown(number, next(name for name in value if name not in members), members)
        entity = _named(self._catalog, value, number, "line")
        data = value.get("data", {})
        if not isinstance(data, dict) or (is_node and "data" not in value):
            raise _bad(number, "field 'data' must be an object")
        self._require_known(entity, data, number)
        if isinstance(entity, NodeType):
            return Record(number, entity, data)
        ends = [value.get("from"), value.get("to")]
        for name, end in zip(("from", "to"), ends, strict=True):
            if name not in value:
                raise _bad(number, f"edge missing '{name}'")
            if not isinstance(end, str):
                raise _bad(number, f"field '{name}' must be a string")
        return Record(number, entity, data, ends[0], ends[1])

    def _require_known(
        self, entity: NodeType | EdgeType, data: dict[str, Any], number: int
    ) -> None:
        known = self._known[entity.table_key]
        if not known.issuperset(data):
            names = [name for name in data if name not in known]
            if isinstance(entity, EdgeType) and names[0] in STRUCTURAL:
                raise _bad(number, f"field '{names[0]}' is reserved structural state")
            raise _unknown(number, names[0], known)
        if "id" in data and not isinstance(data["id"], str):
            raise _bad(number, "field 'id' must be a string")


class _Permissive:
    """Shapes values of the permissive stream; unknown fields are ignored."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def record(self, number: int, value: Any) -> Record:
        if not isinstance(value, dict) or not ("type" in value or "edge" in value):
            raise _bad(number, "expected 'type' or 'edge' field", word="record")
        entity = _named(self._catalog, value, number, "record")
        data = value.get("data")
        data = {} if data is None else data
        if not isinstance(data, dict):
            raise _bad(number, "field 'data' must be an object", word="record")
        identity = data.get("id")
        if identity is not None and not isinstance(identity, str):
            data = {**data, "id": _as_id(identity, "id", number)}
        if isinstance(entity, NodeType):
            return Record(number, entity, data)
        ends = []
        for name in ("from", "to"):
            if value.get(name) is None:
                raise _bad(number, f"edge missing '{name}'", word="record")
            ends.append(_as_id(value[name], name, number))
        return Record(number, entity, data, ends[0], ends[1])


def _named(catalog: Catalog, value: Any, number: int, word: str) -> NodeType | EdgeType:
    kind = "node" if "type" in value else "edge"
    name = value["type" if kind == "node" else "edge"]
    if not isinstance(name, str):
        raise _bad(number, f"field '{'type' if kind == 'node' else kind}' must be a string", word)
    found = catalog.nodes.get(name) if kind == "node" else catalog.edge_named(name)
    if found is None:
        names = catalog.nodes if kind == "node" else catalog.edges
        near = closest(name, list(names))
        raise _bad(
            number,
            f"unknown {kind} type '{name}'",
            word,
            hint=f"did you mean '{near}'?" if near else None,
        )
    return found


def _as_id(value: Any, name: str, number: int) -> str:
    """An id of the permissive form, where a number may stand for its text."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise _bad(number, f"field '{name}' must be a string", word="record")


def _unknown(number: int, name: str, known: Iterable[str]) -> RecordError:
    if name in PHYSICAL:
        return _bad(number, f"field '{name}' is reserved physical state")
    near = closest(name, sorted(known))
    hint = f"did you mean '{near}'?" if near else None
    return _bad(number, f"unknown input field '{name}'", hint=hint)


def _bad(number: int, message: str, word: str = "line", hint: str | None = None) -> RecordError:
    return RecordError(f"{word} {number}: {message}", hint=hint, **{word: number})
