"""Telling how far a load is: plain events to a listener, and a listener that draws bars.

Granularity is finished tasks, because that is what Spark tells while a job runs; exact record
counts arrive with the last event of a stage.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from pyspark import InheritableThread
from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_POLL_SECONDS = 0.2

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """Where a stage stands. `records` is None until the stage is over."""

    stage: str
    tasks_done: int
    tasks_total: int
    seconds: float
    records: int | None = None

    @property
    def records_per_second(self) -> float | None:
        if self.records is None:
            return None
        return self.records / self.seconds if self.seconds > 0 else float(self.records)


Listener = Callable[[Tick], None]


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


class RichListener:
    """Bars on a terminal, one a stage, for as long as the `with` block lasts."""

    def __init__(self, console: Console | None = None) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[rate]}"),
            console=console or Console(stderr=True),
        )
        self._bars: dict[str, int] = {}

    def __enter__(self) -> RichListener:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def __call__(self, tick: Tick) -> None:
        if tick.stage not in self._bars:
            self._bars[tick.stage] = self._progress.add_task(
                tick.stage, total=tick.tasks_total, rate=""
            )
        rate = tick.records_per_second
        self._progress.update(
            self._bars[tick.stage],  # type: ignore[arg-type]
            total=tick.tasks_total,
            completed=min(tick.tasks_done, tick.tasks_total),
            rate="" if rate is None else f"{tick.records:,} records, {rate:,.0f}/s",
        )
