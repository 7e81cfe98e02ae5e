"""DataFrames and Spark tables to staged parts: rows come from the JVM as Arrow, once."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from omnigraph.engine.load.inputs.lines import LineBatches
from omnigraph.engine.load.inputs.sources import Inputs, Mapped, Source, TypedSource
from omnigraph.engine.load.inputs.tables import TableBatches
from omnigraph.engine.load.intake import Intake, entries_of, staged_intake
from omnigraph.engine.load.reading import Input
from omnigraph.engine.load.stage import StageAnswer, StageJob, StageTask, run_stage
from omnigraph.engine.rows.parts import GraphAccess
from omnigraph.model.schema import Catalog
from omnigraph.pipeline.runner import collected
from omnigraph.storage.commit.writer import WriteContext
from omnigraph.storage.objects.files import FileAccess

_ANSWER = pa.schema([pa.field("answer", pa.binary())])


class SparkFrames:
    """DataFrames and tables of a session, staged by its executors (the port `Frames`)."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def columns(self, source: Source) -> Sequence[str]:
        return list(self._frame(source).columns)

    def stage(self, source: TypedSource, job: StageJob, *, first: int) -> list[StageAnswer]:
        run = partial(_stage_partition, job, source.table_key, source.source.mapped, first)
        return _answers(self._frame(source.source), run)

    def _frame(self, source: Source) -> DataFrame:
        if source.frame is not None:
            frame: DataFrame = source.frame
            return frame
        return self._spark.read.table(source.paths[0])


def take_in_lines(
    frame: DataFrame,
    context: WriteContext,
    catalog: Catalog,
    access: GraphAccess,
    scratch: str,
    *,
    keep_all: bool,
    mode: str,
) -> Intake:
    """Stage a DataFrame of one text column that holds lines of graph NDJSON."""
    job = StageJob(
        graph=access,
        files=FileAccess(environ=access.environ),
        catalog=catalog,
        entries=entries_of(Inputs(graph_files=("lines",)), catalog, context),
        keep_all=keep_all,
        scratch=scratch,
        keeps_blobs=keep_all or mode == "merge",
    )
    answers = _answers(frame, partial(_stage_lines, job))
    return staged_intake(job, answers, context.snapshot.schema.hash)


def _answers(frame: DataFrame, run: Any) -> list[StageAnswer]:
    rows = collected(frame.mapInArrow(run, "answer binary"), stage="stage")
    answers = [pickle.loads(bytes(row.answer)) for row in rows]  # noqa: S301  (our own bytes)
    return sorted(answers, key=lambda answer: answer.number)


def _stage_lines(job: StageJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    partition = _partition()
    lines = LineBatches(address=f"partition {partition}", batches=batches)
    return _answer(job, partition, lines)


def _stage_partition(
    job: StageJob,
    table_key: str,
    mapped: Mapped,
    first: int,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    partition = _partition()
    rows = partition_rows(table_key, mapped, batches, partition)
    return _answer(job, first + partition, rows)


def partition_rows(
    table_key: str, mapped: Mapped, batches: Iterator[pa.RecordBatch], partition: int
) -> TableBatches:
    """The rows of one partition as the input of a task."""
    return TableBatches(
        table_key=table_key, mapped=mapped, batches=batches, address=f"partition {partition}"
    )


def _answer(job: StageJob, number: int, source: Input) -> Iterator[pa.RecordBatch]:
    answer = run_stage(job, StageTask(number=number, source=source))
    yield pa.RecordBatch.from_pylist([{"answer": pickle.dumps(answer)}], schema=_ANSWER)


def _partition() -> int:
    context = TaskContext.get()
    return context.partitionId() if context is not None else 0
