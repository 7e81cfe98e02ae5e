"""The one primitive: run a function over a list of payloads on Spark's executors.

The list travels in the task closure and answers come back as bytes, so no row ever becomes a JVM
row, and the same code runs on this machine, on a cluster and over Spark Connect.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from omnigraph.engine.load.report import Listener, Tick
from omnigraph.errors import OmnigraphError, SparkUnavailableError

Payload = TypeVar("Payload")
Answer = TypeVar("Answer")

_POLL_SECONDS = 0.2

_ANSWER_COLUMNS = "i long, answer binary"
_ANSWER_FIELDS: dict[str, pa.DataType] = {"i": pa.int64(), "answer": pa.binary()}
_ANSWER_SCHEMA = pa.schema(_ANSWER_FIELDS)


class SparkRunner:
    """Runs the tasks of a load on the executors of a session (the port `Runner`)."""

    held_bytes = 0

    def __init__(self, spark: SparkSession, listener: Listener | None = None) -> None:
        self._spark, self._listener = spark, listener

    @property
    def parallelism(self) -> int:
        context = getattr(self._spark, "sparkContext", None)
        return int(context.defaultParallelism) if context is not None else 4

    def run(
        self, tasks: Sequence[Payload], function: Callable[[Payload], Answer], *, stage: str
    ) -> list[Answer]:
        return fan_out(self._spark, tasks, function, stage=stage, listener=self._listener)


def fan_out(
    spark: SparkSession | None,
    payloads: Sequence[Payload],
    fn: Callable[[Payload], Answer],
    *,
    stage: str = "tasks",
    listener: Listener | None = None,
) -> list[Answer]:
    """`[fn(payload) for payload in payloads]`, one task each, in the order of the payloads.

    `fn` may run more than once for a payload (retries, speculation); exactly one of its answers is
    kept. So it must be repeatable, and what is wrong with the data it returns as data: an exception
    means the task failed, is tried again, and fails the whole call in the end. One of ours then
    arrives as itself, anything else as `SparkUnavailableError`. Without a session (in processes
    that Spark itself started) the work is done here, one payload after the other.
    """
    if not payloads:
        return []
    if spark is None:
        return [fn(payload) for payload in payloads]
    blobs = [pickle.dumps(payload) for payload in payloads]

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            indices: list[Any] = batch.column(0).to_pylist()
            for index in indices:
                answer = _answer(fn, pickle.loads(blobs[index]))  # noqa: S301  (our own bytes)
                yield pa.RecordBatch.from_pylist(
                    [{"i": index, "answer": answer}], schema=_ANSWER_SCHEMA
                )

    count = len(blobs)
    frame = spark.range(0, count, 1, count).mapInArrow(run, _ANSWER_COLUMNS)
    # The rows are collected straight from the tasks: a step behind them would run them twice.
    rows = watched(
        spark,
        stage=stage,
        tasks=count,
        listener=listener,
        job=lambda: collected(frame, stage=stage),
    )
    answers: list[Any] = [None] * count
    for row in rows:
        answers[row.i] = pickle.loads(bytes(row.answer))  # noqa: S301  (our own bytes)
    for answer in answers:
        if isinstance(answer, _Refusal):
            raise answer.error
    return answers


def collected(frame: Any, *, stage: str) -> list[Any]:
    """The rows of a DataFrame whose tasks are ours, with Spark's failures in our words."""
    try:
        return list(frame.collect())
    except PySparkException as cause:
        lines = [line for line in str(cause).splitlines() if line.strip()]
        told = next((line.strip() for line in reversed(lines) if _names_error(line)), lines[0])
        raise SparkUnavailableError(
            f"a Spark task of the step '{stage}' failed for good: {told}", output="\n".join(lines)
        ) from cause


class _Refusal:
    """An error of ours on its way home: it is an answer, so Spark does not retry it."""

    def __init__(self, error: OmnigraphError) -> None:
        self.error = error


def _answer(fn: Callable[[Any], Any], payload: Any) -> bytes:
    try:
        return pickle.dumps(fn(payload))
    except OmnigraphError as error:
        if error.retryable:
            raise  # the store may be back at the next attempt
        return pickle.dumps(_Refusal(error))


def _names_error(line: str) -> bool:
    head = line.strip().partition(":")[0]
    return head.endswith(("Error", "Exception")) and " " not in head


# --- telling how far it is ------------------------------------------------------------


def watched(
    spark: SparkSession,
    *,
    stage: str,
    tasks: int,
    listener: Listener | None,
    job: Callable[[], Answer],
) -> Answer:
    """Run the job; while it runs, tell the listener about its tasks.

    An interrupt cancels the job's tasks before it travels on. Spark Connect tells nothing while a
    job runs, so there only the first and the last event are sent.
    """
    if listener is None:
        return job()
    started = time.monotonic()

    def tick(done: int) -> None:
        seconds = time.monotonic() - started
        listener(Tick(stage=stage, tasks_done=done, tasks_total=tasks, seconds=seconds))

    tick(0)
    answer = _polled(spark, stage, tick, job) if is_classic(spark) else job()
    tick(tasks)
    return answer


def is_classic(spark: SparkSession) -> bool:
    """Whether the session owns a JVM here, rather than speaking to a Connect server."""
    return hasattr(spark, "_jsparkSession")


def _polled(
    spark: SparkSession, stage: str, tick: Callable[[int], None], job: Callable[[], Answer]
) -> Answer:
    context = spark.sparkContext
    tracker = context.statusTracker()
    group = f"omnigraph-{stage}-{time.monotonic_ns()}"
    answers: list[Answer] = []
    failures: list[BaseException] = []

    def run() -> None:
        context.setJobGroup(group, stage)
        try:
            answers.append(job())
        except BaseException as failure:  # noqa: BLE001  (carried to the waiting thread as it is)
            failures.append(failure)

    worker = InheritableThread(target=run)
    worker.start()
    try:
        while worker.is_alive():
            worker.join(_POLL_SECONDS)
            done = 0
            for job_id in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job_id)
                for stage_id in info.stageIds if info else ():
                    found = tracker.getStageInfo(stage_id)
                    done += found.numCompletedTasks if found else 0
            tick(done)
    except BaseException:
        context.cancelJobGroup(group)
        worker.join()
        raise
    if failures:
        raise failures[0]
    return answers[0]
