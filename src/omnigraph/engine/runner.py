"""The runner of this process: the tasks of a load in a few threads.

Arrow, Lance and NumPy do most of a task's work without Python's lock, so that threads pay.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from omnigraph.model.limits import LOAD_HELD_BYTES_MAX, LOAD_THREADS_MAX
from omnigraph.model.ports import Answer, Task
from omnigraph.storage.objects.lease import Stop, StoppedError, unbroken


class Inline:
    """Runs tasks here, at most `threads` at once (the port `Runner`).

    `heard` is told (stage, tasks done, tasks) at the begin and after each task, one call at a time
    but from the thread that did the task.
    """

    def __init__(
        self,
        *,
        held_bytes: int = LOAD_HELD_BYTES_MAX,
        threads: int = LOAD_THREADS_MAX,
        heard: Callable[[str, int, int], None] | None = None,
    ) -> None:
        self.held_bytes = held_bytes
        self.parallelism = min(threads, os.cpu_count() or 1)
        self._heard = heard

    def run(
        self, tasks: Sequence[Task], function: Callable[[Task], Answer], *, stage: str
    ) -> list[Answer]:
        if self._heard is not None and tasks:
            function = _counted(self._heard, stage, len(tasks), function)
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


def _counted(
    heard: Callable[[str, int, int], None],
    stage: str,
    total: int,
    function: Callable[[Task], Answer],
) -> Callable[[Task], Answer]:
    """The function, telling how many tasks it has done."""
    done, lock = 0, threading.Lock()

    def run(task: Task) -> Answer:
        nonlocal done
        answer = function(task)
        with lock:
            done += 1
            heard(stage, done, total)
        return answer

    heard(stage, 0, total)
    return run
