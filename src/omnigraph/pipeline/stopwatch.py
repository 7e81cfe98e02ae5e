"""Times of the steps of a run, and the last word about each to whoever listens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from omnigraph.pipeline.progress import Listener, Tick
from omnigraph.pipeline.report import StepTime


@dataclass(slots=True)
class RunningStep:
    """A step that is under way; its counts are filled in as they become known."""

    name: str
    started: float
    tasks: int = 0
    records: int | None = None


class Stopwatch:
    """Collects steps in order; a step that runs again adds to its time."""

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener
        self._done: dict[str, StepTime] = {}
        self._open: RunningStep | None = None

    @contextmanager
    def step(self, name: str) -> Iterator[RunningStep]:
        """Time the block."""
        running = self.start(name)
        try:
            yield running
        finally:
            self.finish()

    def start(self, name: str) -> RunningStep:
        """Begin a step; the one before ends."""
        self.finish()
        self._open = RunningStep(name=name, started=time.monotonic())
        return self._open

    def finish(self) -> None:
        """End the step that is under way, if there is one."""
        step, self._open = self._open, None
        if step is None:
            return
        seconds = time.monotonic() - step.started
        before = self._done.get(step.name)
        self._done[step.name] = StepTime(
            name=step.name,
            seconds=seconds + (before.seconds if before else 0.0),
            tasks=step.tasks + (before.tasks if before else 0),
            records=step.records if step.records is not None or not before else before.records,
        )
        if self._listener is not None:
            self._listener(
                Tick(
                    stage=step.name,
                    tasks_done=max(1, step.tasks),
                    tasks_total=max(1, step.tasks),
                    seconds=seconds,
                    records=step.records,
                )
            )

    @property
    def steps(self) -> tuple[StepTime, ...]:
        return tuple(self._done.values())
