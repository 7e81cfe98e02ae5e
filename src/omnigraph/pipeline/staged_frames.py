"""DataFrames and Spark tables to staged parts: rows come from the JVM as Arrow, once."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from omnigraph.engine.load.inputs.lines import GraphLines, batch_chunks
from omnigraph.engine.load.inputs.sources import Inputs, Mapped, Source, TypedSource
from omnigraph.engine.load.inputs.tables import TableBatches
from omnigraph.engine.load.intake import Intake, entries_of, staged_intake
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
        stage = partial(staged_rows, job, source.table_key, source.source.mapped, first=first)
        return _answers(self._frame(source.source), stage)

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
    answers = _answers(frame, partial(_staged_lines, job))
    return staged_intake(job, answers, context.snapshot.schema.fingerprint)


def _answers(
    frame: DataFrame, stage: Callable[[Iterator[pa.RecordBatch]], StageAnswer]
) -> list[StageAnswer]:
    """What a function makes of each partition, in their order."""
    rows = collected(frame.mapInArrow(partial(_answer, stage), "answer binary"), stage="stage")
    answers = [pickle.loads(bytes(row.answer)) for row in rows]  # noqa: S301  (our own bytes)
    return sorted(answers, key=lambda answer: answer.number)


def _answer(
    stage: Callable[[Iterator[pa.RecordBatch]], StageAnswer], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    answer = pickle.dumps(stage(batches))
    yield pa.RecordBatch.from_pylist([{"answer": answer}], schema=_ANSWER)


def _staged_lines(job: StageJob, batches: Iterator[pa.RecordBatch]) -> StageAnswer:
    partition = _partition_number()
    address = f"partition {partition}"
    lines = GraphLines(chunks=lambda _: batch_chunks(batches), address=address, word="row")
    return run_stage(job, StageTask(number=partition, source=lines))


def staged_rows(
    job: StageJob,
    table_key: str,
    mapped: Mapped,
    batches: Iterator[pa.RecordBatch],
    *,
    first: int = 0,
) -> StageAnswer:
    """Stage the rows of the partition that this process works on; `first` is the number of the
    first partition's part."""
    partition = _partition_number()
    rows = TableBatches(
        table_key=table_key, mapped=mapped, batches=batches, address=f"partition {partition}"
    )
    return run_stage(job, StageTask(number=first + partition, source=rows))


def _partition_number() -> int:
    context = TaskContext.get()
    return context.partitionId() if context is not None else os.getpid()
