"""Structured Streaming into the graph: one commit a micro-batch, exactly once.

The number of the batch is written in the commit itself. When Spark repeats a batch after a crash,
the commit is found and the batch is skipped; there is no moment in which one exists without the
other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from omnigraph.engine.core import OpenMode, open_core
from omnigraph.errors import InputError
from omnigraph.model.graph import MAIN
from omnigraph.model.ports import World
from omnigraph.pipeline.intake import take_in_lines
from omnigraph.pipeline.loads import LoadOrder, checked_order, run_load
from omnigraph.pipeline.sources import Mapped, Source

STREAM_PROPERTY, BATCH_PROPERTY = "stream", "stream_batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """Where micro-batches go, and how."""

    order: LoadOrder
    name: str
    table: str | None  # None: rows hold lines of graph NDJSON in the column `value`
    mapped: Mapped


def stream(  # noqa: PLR0913  (options of a stream are many, and all by name)
    spark: SparkSession,
    uri: str | os.PathLike[str],
    source: DataFrame | Mapping[str, Any] | str | os.PathLike[str],
    *,
    mode: str,
    checkpoint: str | os.PathLike[str],
    branch: str = MAIN,
    actor: str | None = None,
    name: str | None = None,
    type: str | None = None,  # noqa: A002  (as in the data source)
    columns: Mapping[str, str] | None = None,
    quarantine: str | os.PathLike[str] | None = None,
    trigger: Mapping[str, Any] | None = None,
    files_per_batch: int | None = None,
) -> StreamingQuery:
    """Start a query that commits every micro-batch of the source as one graph commit.

    `source` is a streaming DataFrame of rows of the `type` (or a mapping from one type name to it),
    a streaming DataFrame of graph NDJSON lines (one text column), or a folder into which NDJSON
    files are moved. `columns` maps properties to columns as in `Source`. `name` identifies
    the stream in the commits and must stay the same across restarts (default: the checkpoint).
    With `quarantine`, bad records are put there and the rest is committed; without, they stop the
    query and nothing of their batch is visible. `trigger` is Spark's (`{"availableNow": True}`).
    """
    order = checked_order(
        uri=os.fspath(uri),
        sources=None,
        mode=mode,
        branch=branch,
        from_branch=None,
        actor=actor,
        on_error="quarantine" if quarantine else "fail",
        quarantine=quarantine,
        idempotency_key=None,
        message=None,
    )
    if mode == "overwrite":
        raise InputError("a stream appends or merges", hint="use mode append or merge")
    given = source if type is None else {type: source}
    table, frame, mapped = _frame_of(spark, given, columns, files_per_batch)
    plan = StreamPlan(order=order, name=name or os.fspath(checkpoint), table=table, mapped=mapped)
    writer = frame.writeStream.option("checkpointLocation", os.fspath(checkpoint))
    if trigger:
        writer = writer.trigger(**dict(trigger))
    return writer.foreachBatch(partial(commit_batch, plan)).start()


def _frame_of(
    spark: SparkSession,
    source: Any,
    columns: Mapping[str, str] | None,
    files_per_batch: int | None,
) -> tuple[str | None, DataFrame, Mapped]:
    if isinstance(source, Mapping):
        if len(source) != 1:
            raise InputError("a stream fills one type", hint="give one type name and its DataFrame")
        ((table, given),) = source.items()
        typed = given if isinstance(given, Source) else Source.dataframe(given, columns)
        if typed.frame is None:
            raise InputError("a stream of one type needs a streaming DataFrame")
        return str(table), typed.frame, typed.mapped
    if isinstance(source, str | os.PathLike):
        reader = spark.readStream.format("text")
        if files_per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", str(files_per_batch))
        return None, reader.load(os.fspath(source)), Mapped()
    if not getattr(source, "isStreaming", False):
        raise InputError("a stream needs a streaming DataFrame", hint="read it with readStream")
    return None, source, Mapped()


def commit_batch(plan: StreamPlan, frame: DataFrame, batch_id: int) -> None:
    """Commit one micro-batch, unless the branch has its commit already."""
    if landed(plan.order, plan.name, batch_id):
        return
    properties = {STREAM_PROPERTY: plan.name, BATCH_PROPERTY: str(batch_id)}
    spark = frame.sparkSession
    if plan.table is not None:
        sources: Any = {plan.table: Source(format="frame", frame=frame, mapped=plan.mapped)}
        order = plan.order.of_batch(sources, properties)
        run_load(spark, order, listener=None, world=World())
        return
    order = plan.order.of_batch(None, properties)
    stage = partial(take_in_lines, frame, keep_all=order.quarantine is not None, mode=order.mode)
    run_load(spark, order, listener=None, world=World(), stage_input=stage)


def landed(order: LoadOrder, name: str, batch_id: int) -> bool:
    """Whether the branch holds the commit of this batch or of a later one."""
    core = open_core(order.uri, mode=OpenMode.READ_WRITE)
    try:
        for commit in core.history.commits(core.branch(order.branch)):
            if commit.properties.get(STREAM_PROPERTY) == name:
                return int(commit.properties[BATCH_PROPERTY]) >= batch_id
        return False
    finally:
        core.close()
