"""DataFrames and Spark tables to staged parts: rows come from the JVM as Arrow, once."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from omnigraph.pipeline.fanout import collected
from omnigraph.pipeline.linestage import LineCount, shaped_chunks, unhurried_collector
from omnigraph.pipeline.shape import Problems, ShapedRows, shape
from omnigraph.pipeline.sources import Mapped
from omnigraph.pipeline.splits import LineChunk
from omnigraph.pipeline.stage import StageAnswer, StageJob, write_parts
from omnigraph.pipeline.tablestage import RowTexts, raw_rows

_ANSWER = pa.schema([pa.field("answer", pa.binary())])


def stage_frame(
    frame: DataFrame, job: StageJob, *, table_key: str, mapped: Mapped, first: int
) -> list[StageAnswer]:
    """Stage every row of the DataFrame; `first` is the number of its first part."""
    run = partial(_stage_partition, job, table_key, mapped, first)
    rows = collected(frame.mapInArrow(run, "answer binary"), stage="stage")
    answers = [pickle.loads(bytes(row.answer)) for row in rows]  # noqa: S301  (our own bytes)
    return sorted(answers, key=lambda answer: answer.number)


def stage_text_frame(frame: DataFrame, job: StageJob) -> list[StageAnswer]:
    """Stage a DataFrame whose one text column holds lines of graph NDJSON."""
    rows = collected(frame.mapInArrow(partial(_stage_lines, job), "answer binary"), stage="stage")
    answers = [pickle.loads(bytes(row.answer)) for row in rows]  # noqa: S301  (our own bytes)
    return sorted(answers, key=lambda answer: answer.number)


def _stage_lines(job: StageJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    answer = stage_line_batches(job, batches, partition=partition)
    yield pa.RecordBatch.from_pylist([{"answer": pickle.dumps(answer)}], schema=_ANSWER)


def stage_line_batches(
    job: StageJob, batches: Iterator[pa.RecordBatch], *, partition: int
) -> StageAnswer:
    """Stage the lines of one partition."""
    problems = Problems(keep_all=job.keep_all)
    filler = job.filler()
    count = LineCount()

    def chunks() -> Iterator[LineChunk]:
        first = 0
        for batch in batches:
            texts: list[Any] = batch.column(0).to_pylist()
            lines = [text.encode(errors="surrogatepass") for text in texts if text is not None]
            if lines:
                yield LineChunk(first=first, lines=lines, text=b"\n".join(lines) + b"\n")
                first += len(lines)

    with unhurried_collector():
        shaped = shaped_chunks(chunks(), job.catalog, problems, count, filler)
        parts = write_parts(job, partition, shaped)
    return StageAnswer(
        number=partition,
        address=f"partition {partition}",
        word="row",
        first=0,
        lines=None,
        records=count.records,
        parts=parts,
        problems=tuple(problems.listed),
        by_kind=dict(problems.by_kind),
        vectors=filler.made if filler else 0,
    )


def _stage_partition(
    job: StageJob,
    table_key: str,
    mapped: Mapped,
    first: int,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    partition = context.partitionId() if context is not None else 0
    answer = stage_batches(job, table_key, mapped, batches, partition=partition, first=first)
    yield pa.RecordBatch.from_pylist([{"answer": pickle.dumps(answer)}], schema=_ANSWER)


def stage_batches(
    job: StageJob,
    table_key: str,
    mapped: Mapped,
    batches: Iterator[pa.RecordBatch],
    *,
    partition: int,
    first: int,
) -> StageAnswer:
    """Stage the rows of one partition."""
    problems = Problems(keep_all=job.keep_all)
    filler = job.filler()
    address = f"partition {partition}"
    seen = 0

    def shaped() -> Iterator[tuple[str, ShapedRows]]:
        nonlocal seen
        entity = job.catalog.type_of(table_key)
        for table in _gathered(batches):
            numbers = np.arange(seen, seen + table.num_rows, dtype=np.int64)
            seen += table.num_rows
            raw = raw_rows(entity, table, mapped, numbers=numbers, place=table_key)
            rows = shape(raw, problems, RowTexts(table, numbers), filler)
            if rows.rows.num_rows or rows.lost:
                yield table_key, rows

    with unhurried_collector():
        parts = write_parts(job, first + partition, shaped())
    return StageAnswer(
        number=first + partition,
        address=address,
        word="row",
        first=0,
        lines=None,
        records=seen,
        parts=parts,
        problems=tuple(problems.listed),
        by_kind=dict(problems.by_kind),
        vectors=filler.made if filler else 0,
    )


def _gathered(batches: Iterator[pa.RecordBatch], rows: int = 65_536) -> Iterator[pa.Table]:
    """Spark's small batches put together, because every step of shaping costs something."""
    waiting: list[Any] = []
    count = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            count += batch.num_rows
        if count >= rows:
            yield pa.Table.from_batches(waiting)
            waiting, count = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)
