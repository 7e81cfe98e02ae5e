"""Graph NDJSON of one split to shaped rows: the fast way for most, rule by rule for others."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from omnigraph.engine.write.batch import gather
from omnigraph.engine.write.records import Record, records
from omnigraph.engine.write.violations import Findings
from omnigraph.errors import LimitExceededError, RecordError
from omnigraph.model.schema import Catalog
from omnigraph.pipeline.arrow import picked
from omnigraph.pipeline.fastlines import LineParser, ParsedRows
from omnigraph.pipeline.files import FileAccess
from omnigraph.pipeline.shape import Problem, Problems, RawRows, ShapedRows, shape
from omnigraph.pipeline.splits import BrokenInputError, LineChunk, Split, read_chunks
from omnigraph.pipeline.vectors import VectorFiller

_BOM = b"\xef\xbb\xbf"


@dataclass(slots=True)
class LineCount:
    """How many lines a split turned out to have; the driver adds them up to file line numbers."""

    lines: int = 0
    records: int = 0


def shaped_lines(
    split: Split,
    access: FileAccess,
    catalog: Catalog,
    problems: Problems,
    count: LineCount,
    filler: VectorFiller | None = None,
) -> Iterator[tuple[str, ShapedRows]]:
    """The good rows of the split by table key, chunk after chunk, in the order of their lines."""
    chunks = (_without_bom(chunk, split) for chunk in read_chunks(split, access))
    return shaped_chunks(chunks, catalog, problems, count, filler)


def shaped_chunks(
    chunks: Iterable[LineChunk],
    catalog: Catalog,
    problems: Problems,
    count: LineCount,
    filler: VectorFiller | None = None,
) -> Iterator[tuple[str, ShapedRows]]:
    """The good rows of lines from anywhere, by table key, chunk after chunk."""
    parser = LineParser(catalog)
    try:
        for chunk in chunks:
            yield from _shaped_chunk(chunk, parser, catalog, problems, filler)
            count.lines = chunk.first + len(chunk.lines)
            count.records += len(chunk.lines) - chunk.lines.count(b"")
    except BrokenInputError as broken:
        count.lines = max(count.lines, broken.lines_before)
        problems.add([Problem(number=count.lines, kind="file", text=str(broken))])


@contextmanager
def unhurried_collector() -> Iterator[None]:
    """Python's cycle collector costs half of the time when millions of lines are alive."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _without_bom(chunk: LineChunk, split: Split) -> LineChunk:
    if split.start or chunk.first or not chunk.lines or not chunk.lines[0].startswith(_BOM):
        return chunk
    lines = [chunk.lines[0].removeprefix(_BOM), *chunk.lines[1:]]
    return LineChunk(first=chunk.first, lines=lines, text=chunk.text.removeprefix(_BOM))


def _shaped_chunk(
    chunk: LineChunk,
    parser: LineParser,
    catalog: Catalog,
    problems: Problems,
    filler: VectorFiller | None,
) -> Iterator[tuple[str, ShapedRows]]:
    buckets, slow = parser.buckets(chunk)
    fast: dict[str, list[ParsedRows]] = {}
    for key, bucket in buckets.items():
        fast[key], more = parser.parse(key, bucket)
        slow += more
    del buckets
    slow.sort()
    judged: dict[str, list[RawRows]] = {}
    for raw in _one_by_one(slow, catalog, problems):
        judged.setdefault(raw.entity.table_key, []).append(raw)
    texts = _Texts(chunk) if problems.keep_all else None
    for key in sorted(fast.keys() | judged.keys()):
        raws = judged.get(key, [])
        if fast.get(key):
            raws = [_quick(catalog, key, fast[key]), *raws]
        if not raws:
            continue
        shaped = _in_order([shape(raw, problems, texts, filler) for raw in raws])
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
    slow: Sequence[tuple[int, bytes]], catalog: Catalog, problems: Problems
) -> Iterator[RawRows]:
    """The record rules for lines that the fast way would not take."""
    good: list[Record] = []
    for number, line in slow:
        try:
            for record in records([line], catalog, strict=True):
                record.number = number
                good.append(record)
        except (RecordError, LimitExceededError) as error:
            raw = line.decode(errors="replace") if problems.keep_all else None
            text = error.message.removeprefix("line 1: ").replace("line 1 of", "a line of")
            problems.add(
                [Problem(number=number, kind="record", text=text, hint=error.hint, raw=raw)]
            )
    waiting = [good] if good else []
    while waiting:
        some = waiting.pop()
        batch = gather(some, catalog, strict=True, found=Findings())
        if batch.found.total > len(batch.found.listed) and len(some) > 1:
            # More is wrong than would be described, and every bad row must be known: halve it.
            middle = len(some) // 2
            waiting += [some[middle:], some[:middle]]
            continue
        for table in batch.tables.values():
            yield RawRows(
                entity=table.entity,
                rows=table.rows,
                numbers=table.places.numbers.astype(np.int64),
                absent=table.absent,
                misfits=table.misfits,
                foreign=table.foreign,
                violations=tuple(
                    violation
                    for violation in batch.found.listed
                    if (violation.entity_kind, violation.type_name)
                    == (table.entity.kind, table.entity.name)
                ),
            )


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
