"""Graph NDJSON to shaped rows: the fast way for most lines, rule by rule for others."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from omnigraph.engine.arrow import picked
from omnigraph.engine.check.findings import PlaceWord
from omnigraph.engine.load.inputs.fastlines import LineParser, ParsedRows
from omnigraph.engine.load.inputs.records import (
    BadRecordError,
    Record,
    StrictRecords,
    gather,
    permissive_records,
)
from omnigraph.engine.load.inputs.splits import (
    BrokenInputError,
    LineChunk,
    Split,
    line_chunks,
    read_chunks,
)
from omnigraph.engine.load.reading import Problem, Reading, ShapedRows
from omnigraph.engine.load.shape import RawRows, shape
from omnigraph.errors import LimitExceededError
from omnigraph.model.schema import Catalog, NodeType


class FileLines(msgspec.Struct, frozen=True, kw_only=True):
    """A split of a file of graph NDJSON."""

    split: Split
    named: bool = True  # messages name the file, not only the line

    word: ClassVar[PlaceWord] = "line"
    first: ClassVar[int] = 0

    @property
    def address(self) -> str:
        return self.split.address if self.named else ""

    def shaped(self, reading: Reading) -> Iterator[tuple[str, ShapedRows]]:
        return shaped_chunks(read_chunks(self.split, reading.files), reading)


class HeldLines(msgspec.Struct, frozen=True, kw_only=True):
    """Graph NDJSON that the caller holds: text, or lines that may come only once."""

    blocks: Iterable[bytes]  # with their line ends, cut anywhere

    address: ClassVar[str] = ""
    word: ClassVar[PlaceWord] = "line"
    first: ClassVar[int] = 0

    def shaped(self, reading: Reading) -> Iterator[tuple[str, ShapedRows]]:
        return shaped_chunks(line_chunks(iter(self.blocks)), reading)


class LineBatches(msgspec.Struct, frozen=True, kw_only=True):
    """Graph NDJSON as a column of lines: one partition of a DataFrame."""

    address: str
    batches: Iterable[pa.RecordBatch]

    word: ClassVar[PlaceWord] = "row"
    first: ClassVar[int] = 0

    def shaped(self, reading: Reading) -> Iterator[tuple[str, ShapedRows]]:
        return shaped_chunks(self._chunks(), reading)

    def _chunks(self) -> Iterator[LineChunk]:
        first = 0
        for batch in self.batches:
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

        def noted(records: Iterable[Record]) -> Iterator[Record]:
            for record in records:
                texts[record.number] = _text_of(record)
                yield record

        read = permissive_records(self.body, reading.catalog, refuse)
        for raw in gather(noted(read) if keeps else read, reading.catalog, strict=False):
            reading.records += raw.rows.num_rows
            shaped = shape(raw, reading, texts)
            if shaped.rows.num_rows or shaped.lost:
                yield raw.entity.table_key, shaped


def _text_of(record: Record) -> str:
    """A record of the permissive form as it was understood."""
    name = record.entity.name
    if isinstance(record.entity, NodeType):
        return json.dumps({"type": name, "data": record.data})
    ends = {"from": record.src, "to": record.dst}
    return json.dumps({"edge": name, **ends, "data": record.data})


def _unreadable(number: int, error: BadRecordError, raw: str | None) -> Problem:
    return Problem(number=number, kind="record", text=error.text, hint=error.hint, raw=raw)


def shaped_chunks(
    chunks: Iterable[LineChunk], reading: Reading
) -> Iterator[tuple[str, ShapedRows]]:
    """The good rows of lines from anywhere, by table key, chunk after chunk."""
    parser, rules = LineParser(reading.catalog), StrictRecords(reading.catalog)
    try:
        for chunk in chunks:
            yield from _shaped_chunk(chunk, parser, rules, reading)
            reading.lines = chunk.first + len(chunk.lines)
            reading.records += len(chunk.lines) - chunk.lines.count(b"")
    except BrokenInputError as broken:
        reading.lines = max(reading.lines, broken.lines_before)
        reading.problems.add([Problem(number=reading.lines, kind="file", text=str(broken))])


def _shaped_chunk(
    chunk: LineChunk, parser: LineParser, rules: StrictRecords, reading: Reading
) -> Iterator[tuple[str, ShapedRows]]:
    buckets, slow = parser.buckets(chunk)
    fast: dict[str, list[ParsedRows]] = {}
    for key, bucket in buckets.items():
        fast[key], more = parser.parse(key, bucket)
        slow += more
    del buckets
    slow.sort()
    judged: dict[str, list[RawRows]] = {}
    for raw in _one_by_one(slow, rules, reading):
        judged.setdefault(raw.entity.table_key, []).append(raw)
    texts = _Texts(chunk) if reading.problems.keep_all else None
    for key in sorted(fast.keys() | judged.keys()):
        raws = judged.get(key, [])
        if fast.get(key):
            raws = [_quick(reading.catalog, key, fast[key]), *raws]
        if not raws:
            continue
        shaped = _in_order([shape(raw, reading, texts) for raw in raws])
        if shaped.rows.num_rows or shaped.lost:
            yield key, shaped


class _Texts(Mapping[int, str]):
    """The text of any line of a chunk, decoded only when it is asked for."""

    def __init__(self, chunk: LineChunk) -> None:
        self._chunk = chunk

    def __getitem__(self, number: int) -> str:
        at = number - self._chunk.first
        if not 0 <= at < len(self._chunk.lines):
            raise KeyError(number)
        return self._chunk.lines[at].decode(errors="replace")

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._chunk.first, self._chunk.first + len(self._chunk.lines)))

    def __len__(self) -> int:
        return len(self._chunk.lines)


def _quick(catalog: Catalog, key: str, parsed: Sequence[ParsedRows]) -> RawRows:
    return RawRows(
        entity=catalog.type_of(key),
        rows=pa.Table.from_batches([one.batch for one in parsed]),
        numbers=np.concatenate([one.numbers for one in parsed]),
    )


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
            problem = Problem(
                number=number, kind="record", text=error.message, raw=raw, error=error
            )
            problems.add([problem])
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
