"""Strict graph NDJSON by columns: many lines of one type parsed at once by Arrow.

This is only the fast way. It accepts a line when the record rules of `engine.write` accept it with
the same values, and hands every other line back for those rules to judge one by one. So it can be
quick without having an opinion of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.json as pj

from omnigraph.engine.write.columns import batch_schema, column, column_type
from omnigraph.engine.write.values import DATE_PATTERN, DAYS_MAX, DAYS_MIN, MS_MAX, MS_MIN
from omnigraph.model.schema import (
    FLOATS,
    Catalog,
    EdgeType,
    NodeType,
    Property,
    PropertyType,
    Scalar,
)
from omnigraph.pipeline.arrow import Column, Ints, Mask, as_mask, nulls, pc
from omnigraph.pipeline.splits import LineChunk

_PARSE_BLOCK_BYTES: Final = 1 << 25
_BAD_LINES_SOUGHT_MAX: Final = 32  # per bucket; beyond that, one by one is cheaper than halving
_LINES_ONE_BY_ONE: Final = 16
_CLOSING: Final = ord("}")
_CALENDAR: Final = frozenset({Scalar.DATE, Scalar.DATETIME})
# The moments that Arrow reads as the value rules do; other spellings are judged one by one.
_PLAIN_MOMENT: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,3})?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Lines of one type, in order, with their numbers within the split."""

    lines: Sequence[bytes]
    numbers: Sequence[int]
    text: bytes | None  # all lines with their ends, where that is at hand


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRows:
    """Rows of one type: `id` may be null (to be derived), properties are fitted columns."""

    batch: pa.RecordBatch
    numbers: Ints


class LineParser:
    """Parses lines of a graph's types. One per task; it holds prepared schemas, no state."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._entities: Mapping[str, NodeType | EdgeType] = {
            entity.table_key: entity for entity in catalog.types()
        }
        self._prefixes = {
            prefix: key for key, entity in self._entities.items() for prefix in _prefixes(entity)
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
                    if line.strip():
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

    def parse(self, key: str, bucket: Bucket) -> tuple[list[ParsedRows], list[tuple[int, bytes]]]:
        """The rows that the fast way accepts, in order, and the lines that it does not."""
        entity = self._entities[key]
        numbers = np.array(bucket.numbers, dtype=np.int64)
        parsed: list[ParsedRows] = []
        slow: list[tuple[int, bytes]] = []
        sought = 0
        epochs = False  # whether dates come as counts, as exports of release 0.10 have them
        stack = [(0, len(bucket.lines))]
        while stack:
            start, end = stack.pop()
            lines = bucket.lines[start:end]
            whole = bucket.text is not None and len(lines) == len(bucket.lines)
            text = bucket.text if whole and bucket.text else b"\n".join(lines) + b"\n"
            table = _parsed(entity, text, rows=len(lines), epochs=epochs)
            if table is None and (start, end) == (0, len(bucket.lines)) and _has_dates(entity):
                table = _parsed(entity, text, rows=len(lines), epochs=True)
                epochs = table is not None
            if table is not None:
                batch, refused = _fitted(entity, table, _spelled_nulls(text, lines))
                if refused is not None:
                    at = np.flatnonzero(refused) + start
                    slow += [(bucket.numbers[int(one)], bucket.lines[int(one)]) for one in at]
                    batch = batch.filter(pa.array(~refused))
                    kept = numbers[start:end][~refused]
                else:
                    kept = numbers[start:end]
                if batch.num_rows:
                    parsed.append(ParsedRows(batch=batch, numbers=kept))
            elif end - start <= _LINES_ONE_BY_ONE or sought >= _BAD_LINES_SOUGHT_MAX:
                sought += 1
                slow.extend(zip(bucket.numbers[start:end], bucket.lines[start:end], strict=True))
            else:
                middle = (start + end) // 2
                stack += [(middle, end), (start, middle)]
        return parsed, slow

    def _second_look(self, line: bytes) -> tuple[str | None, bytes]:
        """The type of a line that is spelled in another way than the plainest one."""
        line = line.strip(b" \t\r")
        if not line.startswith(b"{") or not line.endswith(b"}"):
            return None, line
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


def _prefixes(entity: NodeType | EdgeType) -> list[bytes]:
    name = orjson.dumps(entity.name)
    word = b"type" if isinstance(entity, NodeType) else b"edge"
    return [b'{"' + word + b'":' + space + name for space in (b"", b" ")]


def _has_dates(entity: NodeType | EdgeType) -> bool:
    return any(prop.type.scalar in _CALENDAR for prop in entity.properties)


def _line_schema(entity: NodeType | EdgeType, *, epochs: bool) -> pa.Schema:
    data = pa.struct(
        [pa.field("id", pa.string())]
        + [pa.field(prop.name, _json_type(prop.type, epochs=epochs)) for prop in entity.properties]
    )
    if isinstance(entity, NodeType):
        return pa.schema([pa.field("type", pa.string()), pa.field("data", data)])
    names = ("edge", "from", "to")
    return pa.schema([*(pa.field(name, pa.string()) for name in names), pa.field("data", data)])


def _json_type(kind: PropertyType, *, epochs: bool) -> pa.DataType:
    """The type in which Arrow's JSON reader reads the property before it is fitted."""
    if kind.scalar is Scalar.VECTOR:
        return pa.list_(pa.float64())
    if kind.scalar in _CALENDAR and epochs:
        leaf: pa.DataType = pa.int64()
    elif kind.scalar in (Scalar.BLOB, Scalar.STRING) or kind.scalar in _CALENDAR:
        leaf = pa.string()
    elif kind.scalar in FLOATS:
        leaf = pa.float64()
    else:
        leaf = column_type(PropertyType(scalar=kind.scalar))
    return pa.list_(leaf) if kind.is_list else leaf


def _parsed(
    entity: NodeType | EdgeType, text: bytes, *, rows: int, epochs: bool
) -> pa.Table | None:
    """One row a line, or None if Arrow refuses any of them or counts differently.

    Every line starts with `{` and ends with `}`, so an object cannot reach over a line end, and
    equal counts mean exactly one object on each line.
    """
    options = pj.ParseOptions(
        explicit_schema=_line_schema(entity, epochs=epochs), unexpected_field_behavior="error"
    )
    reading = pj.ReadOptions(use_threads=False, block_size=_PARSE_BLOCK_BYTES)
    try:
        if not text.isascii():
            text.decode()  # Arrow would take bytes that are no text
        source: Any = pa.BufferReader(text)
        table = pj.read_json(source, read_options=reading, parse_options=options)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeDecodeError):
        return None
    return table if table.num_rows == rows else None


def _spelled_nulls(text: bytes, lines: Sequence[bytes]) -> Mask | None:
    """Which lines may say `null` in so many words; None if no line does.

    Arrow gives a null for a member that is null and for one that is missing; without the word it
    can only be missing.
    """
    if b"null" not in text:
        return None
    return np.fromiter((b"null" in line for line in lines), dtype=bool, count=len(lines))


def _fitted(
    entity: NodeType | EdgeType, table: pa.Table, spelled: Mask | None
) -> tuple[pa.RecordBatch, Mask | None]:
    """The rows in their columns, and which of them must be judged one by one (None: none)."""
    data = table["data"].combine_chunks()
    refused: list[Any] = []
    if data.null_count:
        refused.append(_without_data(entity, data, spelled))
    columns: dict[str, Column] = {"id": pc.struct_field(data, [0])}
    if spelled is not None and columns["id"].null_count:
        refused.append(np.asarray(pc.is_null(columns["id"])) & spelled)
    if isinstance(entity, EdgeType):
        for ours, theirs in (("src", "from"), ("dst", "to")):
            columns[ours] = table[theirs].combine_chunks()
            if columns[ours].null_count:
                refused.append(pc.is_null(columns[ours]))
    for place, prop in enumerate(entity.properties, 1):
        raw = pc.struct_field(data, [place])
        fitted, misfits = _column(raw, prop.type)
        if misfits is not None:
            refused.append(misfits)
        if raw.null_count and prop.default is not None:
            if spelled is not None:
                refused.append(np.asarray(pc.is_null(raw)) & spelled)
            fitted = pc.fill_null(fitted, _default(prop))
        elif raw.null_count and not prop.type.nullable:
            refused.append(pc.is_null(raw))  # the record rules know how to say it
        columns[prop.name] = fitted
    schema = batch_schema(entity)
    batch = pa.record_batch([columns[name] for name in schema.names], schema=schema)
    masks = [as_mask(pa.array(mask)) for mask in refused]
    masks = [mask for mask in masks if mask.any()]
    return batch, np.logical_or.reduce(masks) if masks else None


def _default(prop: Property) -> Any:
    values, problems = column([prop.default], prop.type, strict=True)
    assert not problems, "the compiler lets no default through that does not fit"
    return values[0]


def _without_data(entity: NodeType | EdgeType, data: Column, spelled: Mask | None) -> Any:
    """Nodes need `data`; edges may leave it out, but not say that it is null."""
    missing = np.asarray(pc.is_null(data))
    if isinstance(entity, NodeType):
        return missing
    return missing & spelled if spelled is not None else np.zeros(len(data), dtype=bool)


def _column(raw: Column, kind: PropertyType) -> tuple[Column, Any]:
    """The fitted column and the mask of cells that must be judged one by one (None: none)."""
    if kind.scalar is Scalar.VECTOR:
        return _vectors(raw, kind)
    if kind.scalar is Scalar.BLOB:
        # Bytes are decoded once, by the record rules; here a blob only decides who is judged.
        return nulls(len(raw), column_type(kind)), pc.is_valid(raw)
    if not kind.is_list:
        return _leaves(raw, kind)
    items, misfits = _leaves(raw.flatten(), kind)
    odd = as_mask(pc.is_null(items))
    if misfits is not None:
        odd |= as_mask(misfits)
    fitted = pa.ListArray.from_arrays(
        _offsets(raw), items, type=column_type(kind), mask=pc.is_null(raw)
    )
    if not odd.any():
        return fitted, None
    mask = np.zeros(len(raw), dtype=bool)
    mask[np.asarray(pc.list_parent_indices(raw))[odd]] = True
    return fitted, pa.array(mask)


def _offsets(lists: Column) -> Column:
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


def _leaves(raw: Column, kind: PropertyType) -> tuple[Column, Any]:
    leaf = column_type(PropertyType(scalar=kind.scalar))
    match kind.scalar:
        case Scalar.F64 | Scalar.F32:
            # JSON has no word for these, yet Arrow's reader takes `NaN` and `Infinity` bare.
            odd = pc.invert(pc.is_finite(raw))
            narrow = raw if kind.scalar is Scalar.F64 else raw.cast(leaf, safe=False)
            if kind.scalar is Scalar.F32:
                odd = pc.or_(odd, pc.invert(pc.is_finite(narrow)))
            return narrow, odd if pc.any(odd).as_py() else None
        case Scalar.DATE | Scalar.DATETIME if pa.types.is_integer(raw.type):
            return _counted(raw, leaf)
        case Scalar.DATE:
            return _calendar(raw, leaf, DATE_PATTERN)
        case Scalar.DATETIME:
            return _calendar(raw, leaf, _PLAIN_MOMENT)
        case _:
            return raw, None


def _counted(raw: Column, leaf: pa.DataType) -> tuple[Column, Any]:
    """Days or milliseconds since the epoch."""
    is_day = pa.types.is_date32(leaf)
    lowest, highest = (DAYS_MIN, DAYS_MAX) if is_day else (MS_MIN, MS_MAX)
    far = pc.or_(pc.less(raw, lowest), pc.greater(raw, highest))
    some_far = pc.any(far).as_py()
    near = pc.if_else(far, None, raw) if some_far else raw
    fitted = near.cast(pa.int32()).cast(leaf) if is_day else near.cast(leaf)
    return fitted, far if some_far else None


def _calendar(raw: Column, leaf: pa.DataType, pattern: str) -> tuple[Column, Any]:
    plain = pc.and_(pc.match_substring_regex(raw, pattern), pc.invert(pc.starts_with(raw, "0000")))
    odd = pc.invert(plain)
    some_odd = pc.any(odd).as_py()
    readable = pc.if_else(plain, raw, None) if some_odd else raw
    try:
        fitted = readable.cast(leaf)
    except pa.ArrowInvalid:  # a 30th of February among them
        return nulls(len(raw), leaf), pc.is_valid(raw)
    if pa.types.is_timestamp(leaf):
        counts = fitted.cast(pa.int64())
        far = pc.or_(pc.less(counts, MS_MIN), pc.greater(counts, MS_MAX))
        if pc.any(far).as_py():
            odd, some_odd = pc.or_kleene(odd, far), True
    return fitted, odd if some_odd else None


def _vectors(raw: Column, kind: PropertyType) -> tuple[Column, Any]:
    target = column_type(kind)
    items = raw.flatten()
    wrong = as_mask(pc.not_equal(pc.list_value_length(raw), kind.dimension))
    narrow = items.cast(pa.float32(), safe=False)
    unfit = ~as_mask(pc.is_finite(narrow))
    if unfit.any():
        wrong[np.asarray(pc.list_parent_indices(raw))[unfit]] = True
    if not wrong.any() and not raw.null_count:
        fixed: Any = pa.FixedSizeListArray
        return fixed.from_arrays(narrow, type=target), None
    mask = pa.array(wrong)
    clean = pc.if_else(mask, pa.scalar(None, raw.type), raw)
    return clean.cast(pa.list_(pa.float32()), safe=False).cast(target), mask
