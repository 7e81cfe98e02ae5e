"""The runner of this process: the tasks of a load in a few threads.

Arrow, Lance and NumPy do most of a task's work without Python's lock, so that threads pay.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from omnigraph.model.limits import LOAD_HELD_BYTES_MAX, LOAD_THREADS_MAX
from omnigraph.model.ports import Answer, Task
from omnigraph.storage.objects.lease import Stop, StoppedError, unbroken


class Inline:
    """Runs tasks here, at most `threads` at once (the port `Runner`)."""

    def __init__(
        self, *, held_bytes: int = LOAD_HELD_BYTES_MAX, threads: int = LOAD_THREADS_MAX
    ) -> None:
        self.held_bytes = held_bytes
        self.parallelism = min(threads, os.cpu_count() or 1)

    def run(
        self, tasks: Sequence[Task], function: Callable[[Task], Answer], *, stage: str
    ) -> list[Answer]:
        del stage
        if min(len(tasks), self.parallelism) <= 1:
            return [function(task) for task in tasks]
        return unbroken(lambda stop: self._side_by_side(tasks, function, stop))

    def _side_by_side(
        self, tasks: Sequence[Task], function: Callable[[Task], Answer], stop: Stop
    ) -> list[Answer]:
        """The answers in the order of the tasks, or the error that running them one after the
        other would raise. No task is running any more when this ends."""
        failed: list[int] = []  # not `stop`, which may be that of a greater work

        def run(number: int, task: Task) -> Answer:
            # One that stands before a failed one runs in any case: it may fail too.
            if stop.asked or any(one < number for one in failed):
                raise StoppedError
            try:
                return function(task)
            except BaseException:
                failed.append(number)
                raise

        with ThreadPoolExecutor(self.parallelism, thread_name_prefix="omnigraph-load") as pool:
            running = [pool.submit(run, number, task) for number, task in enumerate(tasks)]
        # Whichever was given up stands behind one that failed.
        return [one.result() for one in running]
