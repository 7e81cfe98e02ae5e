"""Threads for the chunks of all queries of this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from omnigraph.engine.arrow import pa

T = TypeVar("T")
R = TypeVar("R")

THREADS_MAX: Final = 16
PARALLEL_ROWS_MIN: Final = 1 << 17  # fewer rows are done before another thread wakes up


class _Pool:
    """Started when it is first needed; a forked child starts its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._threads = None

    def threads(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._threads is None:
                count = min(THREADS_MAX, pa.cpu_count())
                self._threads = ThreadPoolExecutor(count, thread_name_prefix="omnigraph-scan")
            return self._threads


_pool: Final = _Pool()
_working: Final = threading.local()


def in_parallel(work: Callable[[T], R], items: Sequence[T], rows: int) -> list[R]:
    """What the work gives for each item, in their order; together the items have so many rows."""
    # Work that waited for other work of the same threads could wait for ever.
    here = getattr(_working, "busy", False)
    if here or len(items) < 2 or rows < PARALLEL_ROWS_MIN or pa.cpu_count() < 2:
        return [work(item) for item in items]

    def marked(item: T) -> R:
        _working.busy = True
        return work(item)

    return [*_pool.threads().map(marked, items)]
