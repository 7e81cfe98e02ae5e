"""How work gets to Spark's executors: a list of tasks, one function, and their answers as bytes.

The list travels in the task closure, so no row ever becomes a JVM row, and the same code runs on
this machine, on a cluster and over Spark Connect.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import InheritableThread
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from omnigraph import errors
from omnigraph.engine.arguments import Kind, require
from omnigraph.engine.load.report import Listener, Tick
from omnigraph.engine.rows.parts import GraphAccess
from omnigraph.errors import OmnigraphError, SparkUnavailableError
from omnigraph.model.ports import Answer, Task
from omnigraph.storage.commit.outcome import interrupt_behind
from omnigraph.storage.objects.root import aws_environment

# A session of its own JVM and one of Spark Connect have no class in common.
SESSION: Final = Kind("SparkSession", lambda value: hasattr(type(value), "readStream"))

_POLL_SECONDS: Final = 0.2
_OUR_ERRORS: Final = f"{errors.__name__}."
_ANSWER_COLUMNS: Final = "i long, answer binary"
_ANSWER_FIELDS: Final[dict[str, pa.DataType]] = {"i": pa.int64(), "answer": pa.binary()}
_ANSWER_SCHEMA: Final = pa.schema(_ANSWER_FIELDS)


class SparkRunner:
    """Runs tasks on the executors of a session (the port `Runner`).

    A task's function may run more than once (retries, speculation); an exception means that the
    task failed, is tried again, and fails the whole call in the end. One of ours then arrives as
    itself, anything else as `SparkUnavailableError`.
    """

    held_bytes = 0

    def __init__(self, spark: SparkSession, listener: Listener | None = None) -> None:
        require(SESSION, spark=spark)
        self._spark, self._listener = spark, listener

    @property
    def parallelism(self) -> int:
        context = getattr(self._spark, "sparkContext", None)
        return int(context.defaultParallelism) if context is not None else 4

    def run(
        self, tasks: Sequence[Task], function: Callable[[Task], Answer], *, stage: str
    ) -> list[Answer]:
        if not tasks:
            return []
        blobs = [pickle.dumps(task) for task in tasks]

        def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                indices: list[Any] = batch.column(0).to_pylist()
                for index in indices:
                    answer = _answer(function, pickle.loads(blobs[index]))  # noqa: S301  (our own)
                    yield pa.RecordBatch.from_pylist(
                        [{"i": index, "answer": answer}], schema=_ANSWER_SCHEMA
                    )

        count = len(blobs)
        frame = self._spark.range(0, count, 1, count).mapInArrow(run, _ANSWER_COLUMNS)
        # The rows are collected straight from the tasks: a step behind them would run them twice.
        rows = self._watched(stage, count, lambda: collected(frame, stage=stage))
        answers: list[Any] = [None] * count
        for row in rows:
            answers[row.i] = pickle.loads(bytes(row.answer))  # noqa: S301  (our own bytes)
        for answer in answers:
            if isinstance(answer, _Refusal):
                raise answer.error
        return answers

    def _watched(self, stage: str, tasks: int, job: Callable[[], Answer]) -> Answer:
        """Run the job; while it runs, tell the listener about its tasks.

        An interrupt cancels the job's tasks before it travels on. Spark Connect tells nothing while
        a job runs, so there only the first and the last event are sent.
        """
        listener = self._listener
        if listener is None:
            return job()
        started = time.monotonic()

        def tick(done: int) -> None:
            seconds = time.monotonic() - started
            listener(Tick(stage=stage, tasks_done=done, tasks_total=tasks, seconds=seconds))

        tick(0)
        classic = is_classic(self._spark)
        answer = _polled(self._spark, stage, tick, job) if classic else job()
        tick(tasks)
        return answer


def access_to(uri: str) -> GraphAccess:
    """How tasks reach the graph there: as this process does."""
    return GraphAccess(uri=uri, environ=dict(aws_environment()))


def is_classic(spark: SparkSession) -> bool:
    """Whether the session owns a JVM here, rather than speaking to a Connect server."""
    return hasattr(spark, "_jsparkSession")


def collected(frame: Any, *, stage: str) -> list[Any]:
    """The rows of a DataFrame whose tasks are ours, with Spark's failures in our words."""
    with in_our_words(stage):
        return list(frame.collect())


@contextmanager
def in_our_words(stage: str) -> Iterator[None]:
    """Tell what a task died of: an error of ours as itself, anything else as what Spark says; and
    an interrupt as such, also where PySpark fails to clean up behind it."""
    try:
        yield
    except (PySparkException, Py4JError) as cause:
        interrupt = interrupt_behind(cause)
        if interrupt is not None:
            raise interrupt from None
        # What Java says about a failed task comes through PySpark as it is, if the task was part of
        # a checkpoint or of rows that were being fetched.
        if not isinstance(cause, PySparkException | Py4JJavaError):
            raise
        lines = [line for line in str(cause).splitlines() if line.strip()]
        lines = lines or [type(cause).__name__]  # some errors of Java say nothing
        ours = _ours(lines)
        if ours is not None:
            raise ours from cause
        told = next((line.strip() for line in reversed(lines) if _names_error(line)), lines[0])
        raise SparkUnavailableError(
            f"a Spark task of the step '{stage}' failed for good: {told}", output="\n".join(lines)
        ) from cause


def _ours(lines: Sequence[str]) -> OmnigraphError | None:
    """The error of ours that the trace of a task ends with: its message, and behind it a hint."""
    for number, line in reversed([*enumerate(lines)]):
        head, _, message = line.strip().partition(": ")
        kind = getattr(errors, head.removeprefix(_OUR_ERRORS), None)
        if head.startswith(_OUR_ERRORS) and isinstance(kind, type):
            after = lines[number + 1] if number + 1 < len(lines) else ""
            marked = after.startswith(errors.HINT_MARK)
            hint = after.removeprefix(errors.HINT_MARK) if marked else None
            return errors.restored(kind, message, hint, {})
    return None


def _names_error(line: str) -> bool:
    head = line.strip().partition(":")[0]
    return head.endswith(("Error", "Exception")) and " " not in head


class _Refusal:
    """An error of ours on its way home: it is an answer, so Spark does not retry it."""

    def __init__(self, error: OmnigraphError) -> None:
        self.error = error


def _answer(function: Callable[[Any], Any], task: Any) -> bytes:
    try:
        return pickle.dumps(function(task))
    except OmnigraphError as error:
        if error.retryable:
            raise  # the store may be back at the next attempt
        return pickle.dumps(_Refusal(error))


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
