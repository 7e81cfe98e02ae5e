"""Records one by one: text becomes values, values become records, records become rows by type.

Strict: one JSON object a line, nothing that would be ignored. Most lines never come here, because
`lines` reads them by columns; these are the rules for all others. Permissive: any stream of
JSON values, also spread over lines.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import orjson
import pyarrow as pa
from msgspec.structs import replace

from omnigraph.compiler.text import closest
from omnigraph.engine.arrow import flat
from omnigraph.engine.check.findings import Violation
from omnigraph.engine.check.rules import Entity, foreign_id, misfit
from omnigraph.engine.load.reading import RawRows, place_of
from omnigraph.engine.rows.columns import batch_schema, column
from omnigraph.engine.rows.keys import canonical_ids, key_text, respelled_id, respelled_ids
from omnigraph.errors import LimitExceededError
from omnigraph.model.limits import (
    LOAD_CHUNK_ROWS,
    LOAD_LINE_BYTES_MAX,
    LOAD_REQUEST_BYTES_MAX,
)
from omnigraph.model.schema import PHYSICAL, Catalog, EdgeType, NodeType

_STRUCTURAL: Final = frozenset({"src", "dst", "from", "to"})
_NODE_MEMBERS: Final = frozenset({"type", "data"})
_EDGE_MEMBERS: Final = frozenset({"edge", "from", "to", "data"})
_A_RECORD: Final = (
    'a record says its type: {"type": "Person", "data": {…}}; of rows of one type it is said once: '
    'type="Person"'
)
_NO_UTF8: Final = "str is not valid UTF-8"  # how orjson says it
_IN_DATA: Final = 'properties stand in "data": {"type": …, "data": {…}}'
_MEMBER = re.compile(rb'"[ \t\r\n]*:')
_BLANK = re.compile(r"[ \t\r\n]*")


class BadRecordError(Exception):
    """A record that cannot be read: why, and what may help. Behind one that `is_last` nothing can
    be read either."""

    def __init__(self, text: str, *, hint: str | None = None, is_last: bool = False) -> None:
        super().__init__(text)
        self.text, self.hint, self.is_last = text, hint, is_last


class Record(msgspec.Struct):
    """One node or edge as written. `number` counts lines (strict) or records (permissive)."""

    number: int
    entity: Entity
    data: dict[str, Any]
    src: str | None = None
    dst: str | None = None


Refuse = Callable[[int, BadRecordError, str], None]  # the number of a record, why, and its text


# --- JSON values ------------------------------------------------------------------------------


def _strict_value(text: bytes) -> Any:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as cause:
        # What says where counts lines of its own; the line is said by who asks.
        where = f" (column {cause.colno})" if cause.lineno == 1 else ""
        words = "it is not UTF-8 text" if cause.msg.startswith(_NO_UTF8) else cause.msg + where
        raise BadRecordError(f"invalid strict JSON: {words}") from cause
    try:
        # Each member has its own `":`; more of them than parsed ones may mean a duplicate.
        if len(_MEMBER.findall(text)) != _members(value, text):
            _refuse_duplicates(text)
    except RecursionError as cause:
        raise BadRecordError("nested too deeply") from cause
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


def _refuse_duplicates(text: bytes) -> None:
    def pairs(members: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for name, _ in members:
            if name in seen:
                raise BadRecordError(f"duplicate JSON member '{name}'")
            seen.add(name)

    json.loads(text, object_pairs_hook=pairs)


def _permissive_values(body: bytes, refuse: Refuse) -> Iterator[tuple[int, Any]]:
    number = 0
    lines = io.BytesIO(body)
    for line in lines:
        text = line.strip(b" \t\r\n")
        if not text:
            continue
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            # A value that goes on over several lines, or several on one: read the rest as one text.
            yield from _value_stream(line + lines.read(), number, refuse)
            return
        yield number, value
        number += 1


def _value_stream(body: bytes, number: int, refuse: Refuse) -> Iterator[tuple[int, Any]]:
    """The values of a text; behind a bad one nobody knows where the next value would begin."""
    try:
        text = body.decode()
    except UnicodeDecodeError as cause:
        error = BadRecordError(f"invalid JSON at record {number + 1}: {cause}", is_last=True)
        refuse(number, error, body.decode(errors="replace"))
        return
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    at = _after_blank(text, 0)
    while at < len(text):
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as cause:
            error = BadRecordError(f"invalid JSON at record {number + 1}: {cause}", is_last=True)
            refuse(number, error, text[at:])
            return
        yield number, value
        number += 1
        at = _after_blank(text, end)


def _after_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


# --- records ----------------------------------------------------------------------------------


class StrictRecords:
    """Reads strict lines; whatever would be ignored is refused."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._known = {
            entity.table_key: frozenset({"id", *entity.by_name}) for entity in catalog.types()
        }

    def read(self, line: bytes, number: int) -> Record | None:
        """The record of a line, or `BadRecordError`; None if the line is blank."""
        if len(line) > LOAD_LINE_BYTES_MAX:
            raise LimitExceededError(
                resource="a line of a load, in bytes,", limit=LOAD_LINE_BYTES_MAX, actual=len(line)
            )
        text = line.strip(b" \t\r\n")
        return self.record(number, _strict_value(text)) if text else None

    def record(self, number: int, value: Any) -> Record:
        """The record that a JSON value is, or `BadRecordError`."""
        if not isinstance(value, dict):
            raise BadRecordError("expected a JSON object")
        if ("type" in value) == ("edge" in value):
            hint = None if "type" in value else _A_RECORD
            raise BadRecordError("expected exactly one of 'type' or 'edge'", hint=hint)
        is_node = "type" in value
        members = _NODE_MEMBERS if is_node else _EDGE_MEMBERS
        if not members.issuperset(value):
            name = next(name for name in value if name not in members)
            raise _unknown(name, members, beside=self._properties(value))
        entity = _named(self._catalog, value)
        data = value.get("data", {})
        if not isinstance(data, dict) or (is_node and "data" not in value):
            raise BadRecordError("field 'data' must be an object")
        known = self._known[entity.table_key]
        if not known.issuperset(data):
            name = next(name for name in data if name not in known)
            if not is_node and name in _STRUCTURAL:
                raise BadRecordError(f"field '{name}' is reserved structural state")
            raise _unknown(name, known)
        if "id" in data and not isinstance(data["id"], str):
            raise BadRecordError("field 'id' must be a string")
        if is_node:
            return Record(number, entity, data)
        ends = [value.get("from"), value.get("to")]
        for name, end in zip(("from", "to"), ends, strict=True):
            if name not in value:
                raise BadRecordError(f"edge missing '{name}'")
            if not isinstance(end, str):
                raise BadRecordError(f"field '{name}' must be a string")
        return Record(number, entity, data, *ends)

    def _properties(self, value: dict[str, Any]) -> Collection[str]:
        """The properties of the type that the record names, if there is one."""
        try:
            return _named(self._catalog, value).by_name
        except BadRecordError:
            return ()


def permissive_records(body: bytes, catalog: Catalog, refuse: Refuse) -> Iterator[Record]:
    """Every record of the text that can be read; `refuse` is told of the others."""
    if len(body) > LOAD_REQUEST_BYTES_MAX:
        raise LimitExceededError(
            resource="a load of the permissive form, in bytes,",
            limit=LOAD_REQUEST_BYTES_MAX,
            actual=len(body),
            hint="the strict form has no limit",
        )
    for number, value in _permissive_values(body, refuse):
        try:
            record = _permissive_record(catalog, number, value)
        except BadRecordError as error:
            refuse(number, error, json.dumps(value))
            continue
        yield record


def _permissive_record(catalog: Catalog, number: int, value: Any) -> Record:
    """The record of a value; unknown fields are ignored."""
    if not isinstance(value, dict) or not ("type" in value or "edge" in value):
        raise BadRecordError("expected 'type' or 'edge' field")
    entity = _named(catalog, value)
    data = {} if value.get("data") is None else value["data"]
    if not isinstance(data, dict):
        raise BadRecordError("field 'data' must be an object")
    if data.get("id") is not None:
        data = {**data, "id": _as_id(data["id"], "id")}
    if isinstance(entity, NodeType):
        return Record(number, entity, data)
    ends = []
    for name in ("from", "to"):
        if value.get(name) is None:
            raise BadRecordError(f"edge missing '{name}'")
        ends.append(_as_id(value[name], name))
    return Record(number, entity, data, *ends)


def _named(catalog: Catalog, value: Any) -> Entity:
    kind, member = ("node", "type") if "type" in value else ("edge", "edge")
    name = value[member]
    if not isinstance(name, str):
        raise BadRecordError(f"field '{member}' must be a string")
    found = catalog.nodes.get(name) if kind == "node" else catalog.edge_named(name)
    if found is None:
        names = list(catalog.nodes if kind == "node" else catalog.edges)
        raise BadRecordError(f"unknown {kind} type '{name}'", hint=_meant(name, names))
    return found


def _meant(name: str, known: Sequence[str]) -> str | None:
    near = closest(name, known)
    return f"did you mean '{near}'?" if near else None


def _as_id(value: Any, name: str) -> str:
    """An id of the permissive form, where a number may stand for its text."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise BadRecordError(f"field '{name}' must be a string")


def _unknown(name: str, known: Iterable[str], *, beside: Collection[str] = ()) -> BadRecordError:
    if name in PHYSICAL:
        return BadRecordError(f"field '{name}' is reserved physical state")
    if name in beside:
        return BadRecordError(f"unknown input field '{name}'", hint=_IN_DATA)
    return BadRecordError(f"unknown input field '{name}'", hint=_meant(name, sorted(known)))


# --- rows -------------------------------------------------------------------------------------


_ABSENT: Final = object()  # marks a required property that a record leaves out
Aliases = dict[str, dict[str, str]]  # by table key: other spellings of ids, and the ids


def gather(records: Iterable[Record], catalog: Catalog, *, strict: bool) -> Iterator[RawRows]:
    """The records by type, in Arrow columns. Ids are null where the graph is to make them; values
    that do not fit become violations, not errors."""
    aliases: Aliases = {}
    waiting: dict[str, list[Record]] = {}  # Python values live only until a chunk is full
    gathered: list[RawRows] = []
    for record in records:
        some = waiting.setdefault(record.entity.table_key, [])
        some.append(record)
        if len(some) >= LOAD_CHUNK_ROWS:
            gathered.append(_raw_rows(some, aliases, strict=strict))
            some.clear()
    gathered += [_raw_rows(some, aliases, strict=strict) for some in waiting.values() if some]
    for raw in sorted(gathered, key=lambda raw: raw.entity.table_key):
        if isinstance(raw.entity, EdgeType) and not strict:
            yield replace(raw, rows=_respelled_ends(raw.rows, raw.entity, catalog, aliases))
        else:
            yield raw


def _raw_rows(records: Sequence[Record], aliases: Aliases, *, strict: bool) -> RawRows:
    """Records of one type as columns. Explicit ids of keyed nodes must be those that the keys give;
    the permissive form takes other spellings as `aliases`."""
    entity = records[0].entity
    given = [record.data.get("id") for record in records]
    columns: dict[str, Any] = {"id": pa.array(given, pa.string())}
    if isinstance(entity, EdgeType):
        columns["src"] = pa.array([record.src for record in records], pa.string())
        columns["dst"] = pa.array([record.dst for record in records], pa.string())
    absent: set[tuple[int, str]] = set()
    misfits: set[tuple[int, str]] = set()
    violations: list[Violation] = []
    for prop in entity.properties:
        required = not prop.type.nullable and prop.default is None
        instead = _ABSENT if required else prop.default
        values = [record.data.get(prop.name, instead) for record in records]
        if required and _ABSENT in values:
            absent |= {(row, prop.name) for row, value in enumerate(values) if value is _ABSENT}
            values = [None if value is _ABSENT else value for value in values]
        columns[prop.name], problems = column(values, prop.type, strict=strict)
        for problem in problems:
            place = place_of(records[problem.row].number)
            misfits.add((problem.row, prop.name))
            violations.append(misfit(entity, prop.name, problem, place))
    rows = pa.table(columns, schema=batch_schema(entity))
    foreign: set[str] = set()
    if isinstance(entity, NodeType) and entity.key:
        rows = rows.set_column(0, "id", canonical_ids(entity, rows))
        for row, written, canonical in _other_ids(given, rows):
            if not strict and written in _spellings(entity, rows, row, written, canonical):
                aliases.setdefault(entity.table_key, {})[written] = canonical
                continue
            place = place_of(records[row].number)
            misfits.add((row, "id"))
            foreign.add(written)
            violations.append(foreign_id(entity, written, canonical, place, strict=strict))
    return RawRows(
        entity=entity,
        rows=rows,
        numbers=np.array([record.number for record in records], dtype=np.int64),
        absent=frozenset(absent),
        misfits=frozenset(misfits),
        violations=tuple(violations),
        foreign=frozenset(foreign),
    )


def _other_ids(given: Sequence[str | None], rows: pa.Table) -> Iterator[tuple[int, str, str]]:
    """The rows with an id that is not the canonical one: number, written id, canonical id."""
    if any(one is not None for one in given):
        for row, (written, canonical) in enumerate(zip(given, rows["id"].to_pylist(), strict=True)):
            if written is not None and canonical is not None and written != canonical:
                yield row, written, canonical


def _spellings(
    node: NodeType, chunk: pa.Table, row: int, written: str, canonical: str
) -> tuple[str, ...]:
    """Other texts that may stand for the row's id in the permissive form: another spelling of a
    single key value, and for a composite key its first value alone, as old exports have it."""
    if len(node.key) == 1:
        return (written,) if respelled_id(node, written) == canonical else ()
    first = node.key[0]
    value: Any = chunk.column(first)[row]
    plain = value.value if hasattr(value, "value") else value.as_py()
    return (key_text(plain, node.by_name[first].type),)


def _respelled_ends(rows: pa.Table, edge: EdgeType, catalog: Catalog, aliases: Aliases) -> pa.Table:
    """The edges with their ends spelled as the ids of the nodes are."""
    for name, node_type in (("src", edge.from_type), ("dst", edge.to_type)):
        node = catalog.nodes[node_type]
        spelled = respelled_ids(node, flat(rows[name]), aliases.get(node.table_key, {}))
        rows = rows.set_column(rows.schema.get_field_index(name), name, spelled)
    return rows
