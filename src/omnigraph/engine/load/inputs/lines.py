"""Graph NDJSON to shaped rows: many lines of one type at once, the others rule by rule.

Arrow parses lines by columns, which is only the fast way. It accepts a line when the record rules
(`records.py`) accept it with the same values, and hands every other line back for those rules to
judge one by one. So it can be quick without having an opinion of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Final, Literal

import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.json as pj
from msgspec.structs import replace

from omnigraph.engine.arrow import Column, Ints, Mask, as_mask, pc, picked
from omnigraph.engine.check.findings import PlaceWord
from omnigraph.engine.check.rules import Entity
from omnigraph.engine.load.inputs.records import (
    BadRecordError,
    Record,
    StrictRecords,
    gather,
    permissive_records,
)
from omnigraph.engine.load.inputs.sources import BrokenInputError, LineChunk, line_chunks
from omnigraph.engine.load.reading import Problem, RawRows, Reading, ShapedRows, shape
from omnigraph.engine.rows.columns import (
    batch_schema,
    column_type,
    default_cell,
    fitted,
    lists_holding,
)
from omnigraph.errors import LimitExceededError
from omnigraph.model.schema import (
    CALENDAR,
    FLOATS,
    INTEGERS,
    Catalog,
    EdgeType,
    NodeType,
    PropertyType,
    Scalar,
)
from omnigraph.storage.objects.files import FileAccess

# How values come: dates as `counts` of days, as exports of release 0.10 have them; integers as
# `floats`, as programs write them whose integers can be missing.
Spelling = Literal["plain", "counts", "floats"]

_PARSE_BLOCK_BYTES: Final = 1 << 25
_BAD_LINES_SOUGHT_MAX: Final = 32  # per bucket; beyond that, one by one is cheaper than halving
_LINES_ONE_BY_ONE: Final = 16
_CLOSING: Final = ord("}")
_ESCAPED_NAME: Final = re.compile(rb'\\u[^"\n]*"[ \t\r]*:')
_LINE_END: Final = ord("\n")


class GraphLines(msgspec.Struct, frozen=True, kw_only=True):
    """Graph NDJSON: a split of a file, text that the caller holds, or a partition of a DataFrame.

    Lines of a file travel to where they are read; others may come only once.
    """

    chunks: Callable[[FileAccess], Iterable[LineChunk]]
    address: str = ""  # as messages name the file; empty: they name the line alone
    word: PlaceWord = "line"

    first: ClassVar[int] = 0

    def shaped(self, reading: Reading) -> Iterator[tuple[str, ShapedRows]]:
        """The good rows by table key, chunk after chunk."""
        parser, rules = LineParser(reading.catalog), StrictRecords(reading.catalog)
        try:
            for chunk in self.chunks(reading.files):
                yield from _shaped_chunk(chunk, parser, rules, reading)
                reading.lines = chunk.first + len(chunk.lines)
                reading.records += len(chunk.lines) - chunk.lines.count(b"")
        except BrokenInputError as broken:
            reading.lines = max(reading.lines, broken.lines_before)
            reading.problems.add([Problem(number=reading.lines, kind="file", text=str(broken))])


def held_lines(blocks: Iterable[bytes]) -> GraphLines:
    """Lines in memory, with their ends, in blocks that are cut anywhere."""
    return GraphLines(chunks=lambda _files: line_chunks(iter(blocks)))


def batch_chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[LineChunk]:
    """A column of lines."""
    first = 0
    for batch in batches:
        texts: list[Any] = batch.column(0).to_pylist()
        lines = [text.encode(errors="surrogatepass") for text in texts if text is not None]
        if lines:
            yield LineChunk(first=first, lines=lines, text=b"\n".join(lines) + b"\n")
            first += len(lines)


class HeldRecords(msgspec.Struct, frozen=True, kw_only=True):
    """Records of the permissive form. They are read as a whole: an edge may come before the node
    whose other spelling it uses."""

    body: bytes

    address: ClassVar[str] = ""
    word: ClassVar[PlaceWord] = "record"
    first: ClassVar[int] = 0

    def shaped(self, reading: Reading) -> Iterator[tuple[str, ShapedRows]]:
        texts: dict[int, str] = {}
        keeps = reading.problems.keep_all

        def refuse(number: int, error: BadRecordError, text: str) -> None:
            problem = _unreadable(number, error, text if keeps else None)
            if keeps and error.is_last:
                problem = replace(problem, text=f"{error.text}; nothing behind it was read")
            reading.problems.add([problem])

        def noted(record: Record) -> Record:
            if keeps:
                texts[record.number] = _text_of(record)
            return record

        read = map(noted, permissive_records(self.body, reading.catalog, refuse))
        for raw in gather(read, reading.catalog, strict=False):
            reading.records += raw.rows.num_rows
            shaped = shape(raw, reading, texts.__getitem__ if keeps else None)
            if shaped.rows.num_rows or shaped.lost:
                yield raw.entity.table_key, shaped


def _text_of(record: Record) -> str:
    """A record of the permissive form as it was understood."""
    name, data = record.entity.name, record.data
    if isinstance(record.entity, NodeType):
        return json.dumps({"type": name, "data": data})
    return json.dumps({"edge": name, "from": record.src, "to": record.dst, "data": data})


def _unreadable(number: int, error: BadRecordError, raw: str | None) -> Problem:
    return Problem(number=number, kind="record", text=error.text, hint=error.hint, raw=raw)


def _shaped_chunk(
    chunk: LineChunk, parser: LineParser, rules: StrictRecords, reading: Reading
) -> Iterator[tuple[str, ShapedRows]]:
    buckets, slow = parser.buckets(chunk)
    found: dict[str, list[RawRows]] = {}
    for key, bucket in buckets.items():
        parsed, more = parser.parse(key, bucket)
        if parsed.rows.num_rows:
            found[key] = [parsed]
        slow += more
    del buckets
    slow.sort()
    for raw in _one_by_one(slow, rules, reading):
        found.setdefault(raw.entity.table_key, []).append(raw)

    def text_of(number: int) -> str:
        return chunk.lines[number - chunk.first].decode(errors="replace")

    keeps = reading.problems.keep_all
    for key, raws in sorted(found.items()):
        shaped = _in_order([shape(raw, reading, text_of if keeps else None) for raw in raws])
        if shaped.rows.num_rows or shaped.lost:
            yield key, shaped


def _one_by_one(
    slow: Sequence[tuple[int, bytes]], rules: StrictRecords, reading: Reading
) -> Iterator[RawRows]:
    """The record rules for lines that the fast way would not take."""
    good: list[Record] = []
    problems = reading.problems
    for number, line in slow:
        raw = line.decode(errors="replace") if problems.keep_all else None
        try:
            record = rules.read(line, number)
        except BadRecordError as error:
            problems.add([_unreadable(number, error, raw)])
        except LimitExceededError as error:
            text = error.message
            problems.add([Problem(number=number, kind="record", text=text, raw=raw, error=error)])
        else:
            good += [record] if record else []
    return gather(good, reading.catalog, strict=True)


def _in_order(shaped: Sequence[ShapedRows]) -> ShapedRows:
    """All rows in the order of their lines."""
    if len(shaped) == 1:
        return shaped[0]
    rows = pa.concat_tables([one.rows for one in shaped])
    numbers = np.concatenate([one.numbers for one in shaped])
    order = np.argsort(numbers, kind="stable")
    return ShapedRows(
        rows=picked(rows, order),
        numbers=numbers[order],
        fresh_ids=all(one.fresh_ids for one in shaped),
        lost=sum(one.lost for one in shaped),
        refused=tuple(entity_id for one in shaped for entity_id in one.refused),
    )


# --- the fast way -----------------------------------------------------------------------------


class Bucket(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of one type, in order, with their numbers within the split."""

    lines: Sequence[bytes]
    numbers: Sequence[int]
    text: bytes | None  # all lines with their ends, where that is at hand


class LineParser:
    """Parses lines of a graph's types. One per task; it holds prepared schemas, no state."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._prefixes: Mapping[bytes, str] = {
            prefix: entity.table_key for entity in catalog.types() for prefix in _prefixes(entity)
        }

    def buckets(self, chunk: LineChunk) -> tuple[dict[str, Bucket], list[tuple[int, bytes]]]:
        """The lines by table key, and those whose type cannot be told at a glance."""
        prefixes = self._prefixes
        alike = self._all_alike(chunk)
        if alike is not None:
            numbers = range(chunk.first, chunk.first + len(chunk.lines))
            return {alike: Bucket(lines=chunk.lines, numbers=numbers, text=chunk.text)}, []
        gathered: dict[str, tuple[list[bytes], list[int]]] = {}
        odd: list[tuple[int, bytes]] = []
        for number, line in enumerate(chunk.lines, chunk.first):
            key = prefixes.get(line[: line.find(b",")])
            if key is None or line[-1] != _CLOSING:
                key, line = self._second_look(line)
                if key is None:
                    if line:  # what JSON calls white space is gone
                        odd.append((number, line))
                    continue
            lists = gathered.get(key)
            if lists is None:
                lists = gathered[key] = ([], [])
            lists[0].append(line)
            lists[1].append(number)
        return {
            key: Bucket(lines=lines, numbers=numbers, text=None)
            for key, (lines, numbers) in gathered.items()
        }, odd

    def _all_alike(self, chunk: LineChunk) -> str | None:
        """The table key of all lines, if they begin and end in the same plain way; else None.

        Counting in the whole text is many times faster than looking at each line.
        """
        first = chunk.lines[0]
        prefix = first[: first.find(b",")]
        key = self._prefixes.get(prefix)
        if key is None or chunk.text.count(b"}\n") != len(chunk.lines):
            return None
        others = chunk.text.count(b"\n" + prefix + b",")
        return key if others == len(chunk.lines) - 1 else None

    def parse(self, key: str, bucket: Bucket) -> tuple[RawRows, list[tuple[int, bytes]]]:
        """The rows that the fast way accepts, in order, and the lines that it does not. Ids may be
        null, properties are fitted columns."""
        entity = self._catalog.type_of(key)
        batches: list[pa.RecordBatch] = []
        kept = np.zeros(len(bucket.lines), dtype=bool)
        slow: list[tuple[int, bytes]] = []
        sought = 0
        spelling: Spelling = "plain"
        stack = [(0, len(bucket.lines))]
        while stack:
            start, end = stack.pop()
            lines = bucket.lines[start:end]
            whole = len(lines) == len(bucket.lines)
            text = bucket.text if whole and bucket.text else b"\n".join(lines) + b"\n"
            table = _parsed(entity, text, rows=len(lines), spelling=spelling)
            if isinstance(table, str) and whole:
                other = _other_spelling(table)
                if other != "plain":
                    table = _parsed(entity, text, rows=len(lines), spelling=other)
                    spelling = "plain" if isinstance(table, str) else other
            if isinstance(table, pa.Table):
                batch, refused = _fitted(entity, table, _SpelledNulls(text, lines))
                kept[start:end] = ~refused
                if refused.any():
                    at = (np.flatnonzero(refused) + start).tolist()
                    slow += [(bucket.numbers[one], bucket.lines[one]) for one in at]
                    batch = batch.filter(pa.array(~refused))
                batches.append(batch)
            elif len(lines) <= _LINES_ONE_BY_ONE or sought >= _BAD_LINES_SOUGHT_MAX:
                sought += 1
                slow.extend(zip(bucket.numbers[start:end], lines, strict=True))
            else:
                middle = (start + end) // 2
                stack += [(middle, end), (start, middle)]
        rows = pa.Table.from_batches(batches, batch_schema(entity))
        numbers = np.array(bucket.numbers, dtype=np.int64)[kept]
        return RawRows(entity=entity, rows=rows, numbers=numbers), slow

    def _second_look(self, line: bytes) -> tuple[str | None, bytes]:
        """The type of a line that is spelled in another way than the plainest one."""
        line = line.strip(b" \t\r")
        if not line.startswith(b"{") or not line.endswith(b"}"):
            return None, line
        if plain := self._prefixes.get(line[: line.find(b",")]):  # a line of Windows
            return plain, line
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError:
            return None, line
        kind, name = record.get("type"), record.get("edge")
        if isinstance(kind, str) and name is None and kind in self._catalog.nodes:
            return f"node:{kind}", line
        if isinstance(name, str) and kind is None:
            edge = self._catalog.edge_named(name)
            return (edge.table_key if edge else None), line
        return None, line


def _prefixes(entity: Entity) -> list[bytes]:
    name = orjson.dumps(entity.name)
    word = b"type" if isinstance(entity, NodeType) else b"edge"
    return [b'{"' + word + b'":' + space + name for space in (b"", b" ")]


def _other_spelling(refusal: str) -> Spelling:
    """How lines may be readable that Arrow has refused; a wrong guess only costs time."""
    if "from string to number" in refusal:
        return "counts"
    return "floats" if "couldn't parse" in refusal else "plain"


def _line_schema(entity: Entity, spelling: Spelling) -> pa.Schema:
    data = pa.struct(
        [pa.field("id", pa.string())]
        + [pa.field(prop.name, _json_type(prop.type, spelling)) for prop in entity.properties]
    )
    if isinstance(entity, NodeType):
        return pa.schema([pa.field("type", pa.string()), pa.field("data", data)])
    names = ("edge", "from", "to")
    return pa.schema([*(pa.field(name, pa.string()) for name in names), pa.field("data", data)])


def _json_type(kind: PropertyType, spelling: Spelling) -> pa.DataType:
    """The type in which Arrow's JSON reader reads the property before it is fitted."""
    if kind.scalar is Scalar.VECTOR:
        return pa.list_(pa.float64())
    if kind.scalar in CALENDAR and spelling == "counts":
        leaf: pa.DataType = pa.int64()
    elif kind.scalar in (Scalar.BLOB, Scalar.STRING) or kind.scalar in CALENDAR:
        leaf = pa.string()
    elif kind.scalar in FLOATS or (kind.scalar in INTEGERS and spelling == "floats"):
        leaf = pa.float64()
    else:
        leaf = column_type(PropertyType(scalar=kind.scalar))
    return pa.list_(leaf) if kind.is_list else leaf


def _parsed(entity: Entity, text: bytes, *, rows: int, spelling: Spelling) -> pa.Table | str:
    """One row a line, or why there is not: Arrow refuses one of them or counts differently.

    Every line starts with `{` and ends with `}`, so an object cannot reach over a line end, and
    equal counts mean exactly one object on each line.
    """
    options = pj.ParseOptions(
        explicit_schema=_line_schema(entity, spelling), unexpected_field_behavior="error"
    )
    in_blocks = pj.ReadOptions(use_threads=False, block_size=_PARSE_BLOCK_BYTES)
    try:
        if not text.isascii():
            text.decode()  # Arrow would take bytes that are no text
        source: Any = pa.BufferReader(text)
        table = pj.read_json(source, read_options=in_blocks, parse_options=options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError) as refusal:
        return str(refusal)
    return table if table.num_rows == rows else "not one record a line"


class _SpelledNulls:
    """Which lines say in so many words that a member is null.

    Arrow gives a null for a member that is null and for one that is missing. A line that Arrow has
    read holds no names but those of the schema, so that `"name": null` is found nowhere else: the
    quotes inside of a text have a backslash before them. It is `sure` unless a name may be written
    with escapes; then it is every line with a null.
    """

    def __init__(self, text: bytes, lines: Sequence[bytes]) -> None:
        self._text, self._lines = text, lines
        self._some = b"null" in text
        self.sure = not self._some or _ESCAPED_NAME.search(text) is None

    def of(self, name: str) -> Mask:
        mask = np.zeros(len(self._lines), dtype=bool)
        if not self.sure:
            mask[:] = [b"null" in line for line in self._lines]
        elif self._some:
            member = re.compile(rb'"' + re.escape(name.encode()) + rb'"[ \t\r]*:[ \t\r]*null')
            found = [one.start() for one in member.finditer(self._text)]
            mask[np.searchsorted(self._ends, np.array(found, dtype=np.int64))] = True
        return mask

    @cached_property
    def _ends(self) -> Ints:
        return np.flatnonzero(np.frombuffer(self._text, np.uint8) == _LINE_END)


def _fitted(entity: Entity, table: pa.Table, spelled: _SpelledNulls) -> tuple[pa.RecordBatch, Mask]:
    """The rows in their columns, and which of them must be judged one by one."""
    data = table["data"].combine_chunks()
    refused = np.zeros(table.num_rows, dtype=bool)
    if data.null_count:
        # Nodes need `data`; edges may leave it out, but not say that it is null.
        missing = as_mask(pc.is_null(data))
        refused |= missing if isinstance(entity, NodeType) else missing & spelled.of("data")
    columns: dict[str, Column] = {"id": pc.struct_field(data, [0])}
    if columns["id"].null_count:
        refused |= as_mask(pc.is_null(columns["id"])) & spelled.of("id")
    if isinstance(entity, EdgeType):
        for ours, theirs in (("src", "from"), ("dst", "to")):
            columns[ours] = table[theirs].combine_chunks()
            if columns[ours].null_count:
                refused |= as_mask(pc.is_null(columns[ours]))
    for place, prop in enumerate(entity.properties, 1):
        raw = pc.struct_field(data, [place])
        columns[prop.name], left = fitted(raw, prop.type)
        refused |= left
        if prop.type.scalar in FLOATS:
            refused |= _bare_words(raw)
        if raw.null_count:
            missing = as_mask(pc.is_null(raw))
            if prop.default is not None:
                said = missing & spelled.of(prop.name)
                absent = pa.array(missing & ~said)
                columns[prop.name] = pc.if_else(absent, default_cell(prop), columns[prop.name])
                missing = said
            if not prop.type.nullable or (prop.default is not None and not spelled.sure):
                refused |= missing  # the record rules know what to say of it
    schema = batch_schema(entity)
    batch = pa.record_batch([columns[name] for name in schema.names], schema=schema)
    return batch, refused


def _bare_words(raw: Column) -> Mask:
    """JSON has no word for what is not finite, yet Arrow's reader takes `NaN` and `Infinity`."""
    if pa.types.is_list(raw.type):
        return lists_holding(raw, as_mask(pc.invert(pc.is_finite(raw.flatten()))))
    return as_mask(pc.invert(pc.is_finite(raw)))
