"""Records one by one: text becomes values, values become records, records become rows by type.

Strict: one JSON object a line, nothing that would be ignored. Most lines never come here, because
`fastlines` reads them by columns; these are the rules for all others. Permissive: any stream of
JSON values, also spread over lines.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.compiler.text import closest
from omnigraph.engine.check.findings import Place, Violation
from omnigraph.engine.check.rules import Entity
from omnigraph.engine.check.values import foreign_id, misfit
from omnigraph.engine.load.shape import RawRows, place_of
from omnigraph.engine.rows.columns import batch_schema, column
from omnigraph.engine.rows.keys import canonical_ids, key_text, respelled_id, respelled_ids
from omnigraph.errors import LimitExceededError
from omnigraph.model.limits import (
    LOAD_CHUNK_ROWS,
    LOAD_LINE_BYTES_MAX,
    LOAD_REQUEST_BYTES_MAX,
)
from omnigraph.model.schema import PHYSICAL, Catalog, EdgeType, NodeType

STRUCTURAL: Final = frozenset({"src", "dst", "from", "to"})
_NODE_MEMBERS: Final = frozenset({"type", "data"})
_EDGE_MEMBERS: Final = frozenset({"edge", "from", "to", "data"})
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
        raise BadRecordError(f"invalid strict JSON: {cause}") from cause
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
        return self._record(number, _strict_value(text)) if text else None

    def _record(self, number: int, value: Any) -> Record:
        if not isinstance(value, dict):
            raise BadRecordError("expected a JSON object")
        if ("type" in value) == ("edge" in value):
            raise BadRecordError("expected exactly one of 'type' or 'edge'")
        is_node = "type" in value
        members = _NODE_MEMBERS if is_node else _EDGE_MEMBERS
        if not members.issuperset(value):
            raise _unknown(next(name for name in value if name not in members), members)
        entity = _named(self._catalog, value)
        data = value.get("data", {})
        if not isinstance(data, dict) or (is_node and "data" not in value):
            raise BadRecordError("field 'data' must be an object")
        self._require_known(entity, data)
        if isinstance(entity, NodeType):
            return Record(number, entity, data)
        ends = [value.get("from"), value.get("to")]
        for name, end in zip(("from", "to"), ends, strict=True):
            if name not in value:
                raise BadRecordError(f"edge missing '{name}'")
            if not isinstance(end, str):
                raise BadRecordError(f"field '{name}' must be a string")
        return Record(number, entity, data, ends[0], ends[1])

    def _require_known(self, entity: Entity, data: dict[str, Any]) -> None:
        known = self._known[entity.table_key]
        if not known.issuperset(data):
            names = [name for name in data if name not in known]
            if isinstance(entity, EdgeType) and names[0] in STRUCTURAL:
                raise BadRecordError(f"field '{names[0]}' is reserved structural state")
            raise _unknown(names[0], known)
        if "id" in data and not isinstance(data["id"], str):
            raise BadRecordError("field 'id' must be a string")


def permissive_records(body: bytes, catalog: Catalog, refuse: Refuse) -> Iterator[Record]:
    """Every record of the text that can be read; `refuse` is told of the others."""
    if len(body) > LOAD_REQUEST_BYTES_MAX:
        raise LimitExceededError(
            resource="a load of the permissive form, in bytes,",
            limit=LOAD_REQUEST_BYTES_MAX,
            actual=len(body),
            hint="the strict form has no limit",
        )
    shape = _Permissive(catalog)
    for number, value in _permissive_values(body, refuse):
        try:
            record = shape.record(number, value)
        except BadRecordError as error:
            refuse(number, error, json.dumps(value))
            continue
        yield record


class _Permissive:
    """Shapes values of the permissive stream; unknown fields are ignored."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def record(self, number: int, value: Any) -> Record:
        if not isinstance(value, dict) or not ("type" in value or "edge" in value):
            raise BadRecordError("expected 'type' or 'edge' field")
        entity = _named(self._catalog, value)
        data = value.get("data")
        data = {} if data is None else data
        if not isinstance(data, dict):
            raise BadRecordError("field 'data' must be an object")
        identity = data.get("id")
        if identity is not None and not isinstance(identity, str):
            data = {**data, "id": _as_id(identity, "id")}
        if isinstance(entity, NodeType):
            return Record(number, entity, data)
        ends = []
        for name in ("from", "to"):
            if value.get(name) is None:
                raise BadRecordError(f"edge missing '{name}'")
            ends.append(_as_id(value[name], name))
        return Record(number, entity, data, ends[0], ends[1])


def _named(catalog: Catalog, value: Any) -> Entity:
    kind = "node" if "type" in value else "edge"
    name = value["type" if kind == "node" else "edge"]
    if not isinstance(name, str):
        raise BadRecordError(f"field '{'type' if kind == 'node' else kind}' must be a string")
    found = catalog.nodes.get(name) if kind == "node" else catalog.edge_named(name)
    if found is None:
        names = catalog.nodes if kind == "node" else catalog.edges
        near = closest(name, list(names))
        raise BadRecordError(
            f"unknown {kind} type '{name}'",
            hint=f"did you mean '{near}'?" if near else None,
        )
    return found


def _as_id(value: Any, name: str) -> str:
    """An id of the permissive form, where a number may stand for its text."""
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise BadRecordError(f"field '{name}' must be a string")


def _unknown(name: str, known: Iterable[str]) -> BadRecordError:
    if name in PHYSICAL:
        return BadRecordError(f"field '{name}' is reserved physical state")
    near = closest(name, sorted(known))
    hint = f"did you mean '{near}'?" if near else None
    return BadRecordError(f"unknown input field '{name}'", hint=hint)


# --- rows -------------------------------------------------------------------------------------


class _Absent:
    """Marks a required property that a record leaves out."""


_ABSENT: Final = _Absent()


def gather(records: Iterable[Record], catalog: Catalog, *, strict: bool) -> Iterator[RawRows]:
    """The records by type, in Arrow columns. Ids are null where the graph is to make them; values
    that do not fit become violations, not errors."""
    gathering: dict[str, _Gathering] = {}
    for record in records:
        key = record.entity.table_key
        table = gathering.get(key)
        if table is None:
            table = gathering[key] = _Gathering(record.entity, strict=strict)
        table.add(record)
    aliases = {key: table.finish() for key, table in gathering.items()}
    for _, table in sorted(gathering.items()):
        yield table.gathered(catalog, aliases)


class _Gathering:
    """The records of one type so far. Python values live only until a chunk is full."""

    def __init__(self, entity: Entity, *, strict: bool) -> None:
        self.entity, self.strict = entity, strict
        self._chunks: list[pa.Table] = []
        self._numbers: list[int] = []
        self._absent: set[tuple[int, str]] = set()
        self._misfits: set[tuple[int, str]] = set()
        self._violations: list[Violation] = []
        self._aliases: dict[str, str] = {}
        self._foreign: set[str] = set()
        self._done = 0
        self._waiting: list[Record] = []

    def add(self, record: Record) -> None:
        self._waiting.append(record)
        if len(self._waiting) >= LOAD_CHUNK_ROWS:
            self._flush()

    def finish(self) -> dict[str, str]:
        """Convert what is left; the aliases that its ids were written by."""
        self._flush()
        return self._aliases

    def gathered(self, catalog: Catalog, aliases: Mapping[str, dict[str, str]]) -> RawRows:
        schema = batch_schema(self.entity)
        rows = pa.concat_tables(self._chunks) if self._chunks else schema.empty_table()
        if isinstance(self.entity, EdgeType) and not self.strict:
            rows = _respelled_ends(rows, self.entity, catalog, aliases)
        return RawRows(
            entity=self.entity,
            rows=rows,
            numbers=np.array(self._numbers, dtype=np.int64),
            absent=frozenset(self._absent),
            misfits=frozenset(self._misfits),
            violations=tuple(self._violations),
            foreign=frozenset(self._foreign),
        )

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        self._numbers += [record.number for record in waiting]
        columns: dict[str, Any] = {
            prop.name: self._column(waiting, prop.name) for prop in self.entity.properties
        }
        if isinstance(self.entity, EdgeType):
            columns["src"] = pa.array([record.src for record in waiting], pa.string())
            columns["dst"] = pa.array([record.dst for record in waiting], pa.string())
        given = [record.data.get("id") for record in waiting]
        columns["id"] = pa.array(given, pa.string())
        schema = batch_schema(self.entity)
        chunk = pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)
        if isinstance(self.entity, NodeType) and self.entity.key:
            chunk = self._keyed(self.entity, chunk, given)
        self._chunks.append(chunk)
        self._done += len(waiting)

    def _column(self, waiting: list[Record], name: str) -> Any:
        prop = self.entity.by_name[name]
        required = not prop.type.nullable and prop.default is None
        instead = _ABSENT if required else prop.default
        values = [record.data.get(name, instead) for record in waiting]
        if required and _ABSENT in values:
            self._absent |= {
                (self._done + row, name) for row, v in enumerate(values) if v is _ABSENT
            }
            values = [None if value is _ABSENT else value for value in values]
        array, problems = column(values, prop.type, strict=self.strict)
        if problems:
            self._misfits |= {(self._done + problem.row, name) for problem in problems}
            self._violations += [
                misfit(self.entity, name, problem, self._place(problem.row)) for problem in problems
            ]
        return array

    def _keyed(self, node: NodeType, chunk: pa.Table, given: list[str | None]) -> pa.Table:
        """The chunk with canonical ids; explicit ids must agree with them."""
        ids = canonical_ids(node, chunk)
        if any(one is not None for one in given):
            for row, (written, canonical) in enumerate(zip(given, ids.to_pylist(), strict=True)):
                if written is not None and canonical is not None and written != canonical:
                    self._other_spelling(node, chunk, row, written, canonical)
        return chunk.set_column(0, "id", ids)

    def _other_spelling(
        self, node: NodeType, chunk: pa.Table, row: int, written: str, canonical: str
    ) -> None:
        if not self.strict and written in _spellings(node, chunk, row, written, canonical):
            self._aliases[written] = canonical
            return
        place = self._place(row)
        self._misfits.add((self._done + row, "id"))
        self._foreign.add(written)
        self._violations.append(foreign_id(node, written, canonical, place, strict=self.strict))

    def _place(self, row: int) -> Place:
        return place_of(self._numbers[self._done + row])


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


def _respelled_ends(
    rows: pa.Table, edge: EdgeType, catalog: Catalog, aliases: Mapping[str, dict[str, str]]
) -> pa.Table:
    """The edges with their ends spelled as the ids of the nodes are."""
    for name, node_type in (("src", edge.from_type), ("dst", edge.to_type)):
        node = catalog.nodes[node_type]
        ends: Any = rows[name].combine_chunks()
        known = aliases.get(node.table_key)
        if known:
            encoded = ends.dictionary_encode()
            words = [known.get(word, word) for word in encoded.dictionary.to_pylist()]
            ends = pc.take(pa.array(words, pa.string()), encoded.indices)
        spelled = respelled_ids(node, ends)
        rows = rows.set_column(rows.schema.get_field_index(name), name, spelled)
    return rows
