"""Structured Streaming into the graph: one commit a micro-batch, exactly once.

A micro-batch is a load with an idempotency key: the id of the query, which Spark keeps in the
checkpoint, and the number of the batch. When Spark repeats a batch after a crash, the commit is
found and the batch is skipped; there is no moment in which one exists without the other. A
checkpoint that is deleted and made again is another query, whatever its path.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from itertools import takewhile
from typing import Any

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from omnigraph.engine.access import Gate, PolicySource
from omnigraph.engine.arguments import (
    INT_OR_NONE,
    MAPPING_OR_NONE,
    PATH,
    TEXT,
    TEXT_OR_NONE,
    require,
)
from omnigraph.engine.core import OpenMode, open_core
from omnigraph.engine.load.inputs.sources import Mapped, Source
from omnigraph.engine.load.order import LoadOrder, checked_order
from omnigraph.errors import InputError, StorageUnavailableError
from omnigraph.model.graph import MAIN, Commit
from omnigraph.model.limits import STREAM_CLOCK_SKEW_MS_MAX
from omnigraph.model.ports import World
from omnigraph.model.requests import KeyedRequest, key_of
from omnigraph.pipeline.loads import load_on
from omnigraph.pipeline.runner import SESSION, is_classic
from omnigraph.pipeline.staged_frames import take_in_lines

STREAM_PROPERTY, BATCH_PROPERTY, NAME_PROPERTY = "stream", "stream_batch", "stream_name"
_GLOB = re.compile(r"([\[\]{}*?\\])")  # letters that mean something in a path that Spark reads


class StreamPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Where micro-batches go, and how."""

    order: LoadOrder
    checkpoint: str
    name: str | None  # for people
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
    policy: PolicySource | None = None,
) -> StreamingQuery:
    """Start a query that commits every micro-batch of the source as one graph commit.

    `source` is a streaming DataFrame of rows of the `type` (or a mapping from one type name to it),
    a streaming DataFrame of graph NDJSON lines (one text column), or a folder into which NDJSON
    files are moved. `columns` maps properties to columns as in `Source`. The stream is known by
    the query id in its `checkpoint`; its commits carry that id, the number of the batch, and
    `name`, if it has one. With `quarantine`, bad records are put there and the rest is
    committed; without, they stop the query and nothing of their batch is visible. `trigger` is
    Spark's (`{"availableNow": True}`). A `policy` must allow loads into the branch to the actor
    when the stream starts.

    Examples:
        >>> pipeline.stream(spark, "people.omni", "incoming/", mode="merge", checkpoint="points")
    """
    require(SESSION, spark=spark)
    require(PATH, uri=uri, checkpoint=checkpoint)
    require(TEXT, branch=branch)
    require(TEXT_OR_NONE, name=name, type=type)
    require(MAPPING_OR_NONE, columns=columns, trigger=trigger)
    require(INT_OR_NONE, files_per_batch=files_per_batch)
    order = checked_order(
        uri=os.fspath(uri),
        sources=None,
        mode=mode,
        branch=branch,
        actor=actor,
        on_error="quarantine" if quarantine else "fail",
        quarantine=quarantine,
        idempotency_key=None,
    )
    Gate.of(policy, actor).require("load", branch=branch)
    if mode == "overwrite":
        raise InputError("a stream appends or merges", hint="use mode append or merge")
    given = source if type is None else {type: source}
    table, frame, mapped = _frame_of(spark, given, columns, files_per_batch)
    plan = StreamPlan(
        order=order, checkpoint=os.fspath(checkpoint), name=name, table=table, mapped=mapped
    )
    writer = frame.writeStream.option("checkpointLocation", os.fspath(checkpoint))
    if trigger:
        writer = writer.trigger(**dict(trigger))
    return writer.foreachBatch(StreamRun(plan)).start()


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
        if not getattr(typed.frame, "isStreaming", False):
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


class StreamRun:
    """One run of a stream, from a start of its query to the end: commits its micro-batches."""

    def __init__(self, plan: StreamPlan) -> None:
        self._plan = plan
        self._query_id: str | None = None  # read with the first batch

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Commit one micro-batch, unless the branch has its commit already."""
        checkpoint = Checkpoint(spark=frame.sparkSession, address=self._plan.checkpoint)
        offsets = checkpoint.offsets(batch_id)
        is_first = self._query_id is None
        if self._query_id is None:
            self._query_id = checkpoint.query_id()
        batch = Batch(query_id=self._query_id, number=batch_id, offsets=offsets)
        # Spark repeats at most the first batch after a start, however long ago that ran first.
        if not (is_first and landed_earlier(self._plan, batch)):
            commit_batch(self._plan, batch, frame)


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """One micro-batch: whose it is, its number, and what Spark planned for it."""

    query_id: str
    number: int
    offsets: str

    @property
    def request(self) -> KeyedRequest:
        """The load of the batch, known by its query and number.

        What Spark planned is part of it. So a checkpoint that was copied, or brought back from an
        older copy, is refused where it parts from what the branch has, instead of having its
        batches taken for others of the same number.
        """
        key = f"stream:{self.query_id}:{self.number}"
        request = KeyedRequest.of(key, "micro-batch", offsets=self.offsets)
        assert request is not None, "it has a key"
        return request

    @property
    def planned_at(self) -> int:
        """When Spark planned it, in microseconds since the epoch."""
        return int(json.loads(self.offsets.splitlines()[1])["batchTimestampMs"]) * 1000


def commit_batch(plan: StreamPlan, batch: Batch, frame: DataFrame) -> None:
    """Load one micro-batch, once."""
    properties = {STREAM_PROPERTY: batch.query_id, BATCH_PROPERTY: str(batch.number)}
    if plan.name is not None:
        properties[NAME_PROPERTY] = plan.name
    spark = frame.sparkSession
    if plan.table is not None:
        sources: Any = {plan.table: Source(format="frame", frame=frame, mapped=plan.mapped)}
        order = plan.order.of_batch(sources, batch.request, properties)
        load_on(spark, order, world=World())
        return
    order = plan.order.of_batch(None, batch.request, properties)
    stage = partial(take_in_lines, frame, keep_all=order.quarantine is not None, mode=order.mode)
    load_on(spark, order, world=World(), stage_input=stage)


def landed_earlier(plan: StreamPlan, batch: Batch) -> bool:
    """Whether the branch has the batch's commit, however many commits have followed it: all that
    are younger than its plan are looked at."""
    # Others who write here may have clocks that are behind.
    oldest = batch.planned_at - STREAM_CLOCK_SKEW_MS_MAX * 1000
    with closing(open_core(plan.order.uri, mode=OpenMode.READ_WRITE)) as core:
        known = core.store.manifests.fresh(core.branch(plan.order.branch).id)
        younger = takewhile(
            lambda commit: commit.created_us >= oldest, core.store.manifests.line(known)
        )
        return any(_is_of(commit, plan, batch) for commit in younger)


def _is_of(commit: Commit, plan: StreamPlan, batch: Batch) -> bool:
    """Whether the commit is the batch's; `IdempotencyKeyReusedError` if another batch took its key.

    The first release wrote no key and knew a stream by its name, or the path of its checkpoint. A
    batch of an earlier checkpoint there may have the same number: that one was committed before
    Spark planned this one.
    """
    if key_of(commit.properties) == batch.request.key:
        batch.request.require_same(commit)
        return True
    return (
        commit.properties.get(STREAM_PROPERTY) == (plan.name or plan.checkpoint)
        and commit.properties.get(BATCH_PROPERTY) == str(batch.number)
        and commit.created_us >= batch.planned_at
    )


# --- the checkpoint ----------------------------------------------------------------------------


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What Spark has written down about a query, read by Spark, which knows the place."""

    spark: SparkSession
    address: str

    def query_id(self) -> str:
        """The id that the query keeps as long as its checkpoint."""
        return str(json.loads(self._read("metadata"))["id"])

    def offsets(self, batch_id: int) -> str:
        """What Spark planned for the batch. It is written before the batch runs, and never again,
        also when the batch is repeated."""
        return self._read(f"offsets/{batch_id}")

    def _read(self, name: str) -> str:
        address = f"{self.address.rstrip('/')}/{name}"
        try:
            return self._by_driver(address) if is_classic(self.spark) else self._by_job(address)
        except (PySparkException, Py4JError) as cause:
            raise StorageUnavailableError(
                f"cannot read '{name}' of the checkpoint '{self.address}': {cause}"
            ) from cause

    def _by_driver(self, address: str) -> str:
        """Through the JVM that writes it: a job would make every micro-batch a fifth longer."""
        session: Any = self.spark
        jvm, java_session = session._jvm, session._jsparkSession  # noqa: SLF001 - no public way
        path = jvm.org.apache.hadoop.fs.Path(address)
        settings = java_session.sessionState().newHadoopConf()
        file = path.getFileSystem(settings).open(path)
        try:
            return str(jvm.org.apache.commons.io.IOUtils.toString(file, "UTF-8"))
        finally:
            file.close()

    def _by_job(self, address: str) -> str:
        """With Connect the JVM is somewhere else."""
        plain = _GLOB.sub(r"\\\1", address)
        rows = self.spark.read.text(plain, wholetext=True).collect()
        return "".join(str(row[0]) for row in rows)
