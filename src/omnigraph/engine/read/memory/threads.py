"""Threads for the chunks of all queries of this process, and turns for its short queries.

A query that is nothing but Python and small Arrow calls lets go of Python's lock a dozen times. Of
several such queries at once each then waits for another one a dozen times, and together they are
slower than one after the other. So they take turns. A query that goes to storage or to other
threads ends its turn, for from there on it works without the lock; and whoever has had the turn for
a while is no short query, so the next one does not wait for it any longer.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Final, Generic, TypeVar

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
    """What the work gives for each item, in their order; together the items have so many rows.

    Whoever asks works too, and the others help: each takes the next item that nobody has taken. Of
    several items that fail, the first one tells why.
    """
    # Work that waited for other work of the same threads could wait for ever.
    here = getattr(_working, "busy", False)
    if here or len(items) < 2 or rows < PARALLEL_ROWS_MIN or pa.cpu_count() < 2:
        return [work(item) for item in items]
    end_turn()
    shared = _Shared(work, items)
    threads = _pool.threads()
    helpers = [threads.submit(shared.help) for _ in range(min(pa.cpu_count(), len(items)) - 1)]
    try:
        shared.help()
    finally:
        shared.left.clear()  # an interrupt: nobody wants the rest
        _working.busy = False
        for helper in helpers:
            if not helper.cancel():  # one that has not begun has nothing left to do
                helper.result()
    if shared.failed:
        raise shared.failed[min(shared.failed)]
    return [shared.made[number] for number in range(len(items))]


class _Shared(Generic[T, R]):
    """Items that several threads work at. Their numbers are taken in order."""

    __slots__ = ("failed", "items", "left", "made", "work")

    def __init__(self, work: Callable[[T], R], items: Sequence[T]) -> None:
        self.work, self.items = work, items
        self.left = deque(range(len(items)))
        self.made: dict[int, R] = {}
        self.failed: dict[int, Exception] = {}

    def help(self) -> None:
        """Work until nothing is left. After a failure nobody begins another item: all before the
        one that failed have begun, and may have failed before it."""
        _working.busy = True
        while self.left and not self.failed:
            try:
                number = self.left.popleft()
            except IndexError:  # another thread was quicker
                return
            try:
                self.made[number] = self.work(self.items[number])
            except Exception as cause:  # noqa: BLE001 - who asked raises it
                self.failed[number] = cause


def work_alone() -> None:
    """From now on this thread does all its work itself: it may be waited for by the others."""
    _working.busy = True


# --- turns -------------------------------------------------------------------------------------

TURN_SECONDS: Final = 0.002  # a query that has had the turn for longer is not waited for
TURN_WAITS_MAX: Final = 50  # of so many seconds each, before a query goes on without a turn
_has_lock: Final[bool] = getattr(sys, "_is_gil_enabled", lambda: True)()


class _Turn:
    """What one query at a time has; after a long one the others get another."""

    __slots__ = ("lock", "since")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.since = monotonic()


class _Turns:
    """The turn of the process."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._turn = _Turn()
        self._changing = threading.Lock()
        self._mine = threading.local()

    def begin(self) -> bool:
        """Wait for the turn, but not for a long query. False if this thread has it already, or if
        so many others want it that it goes on without."""
        if getattr(self._mine, "turn", None) is not None:
            return False
        for _ in range(TURN_WAITS_MAX):
            turn = self._turn
            if turn.lock.acquire(timeout=TURN_SECONDS):
                turn.since = monotonic()
                self._mine.turn = turn
                return True
            with self._changing:
                # The long one keeps its turn, which nobody wants any more.
                if self._turn is turn and monotonic() - turn.since >= TURN_SECONDS:
                    self._turn = _Turn()
        return False

    def end(self) -> None:
        turn = getattr(self._mine, "turn", None)
        if turn is not None:
            self._mine.turn = None
            turn.lock.release()


_turns: Final = _Turns()


def begin_turn() -> bool:
    """Begin the turn of a query; False if there is nothing to end."""
    return _has_lock and _turns.begin()


def end_turn() -> None:
    """Let others have the turn, if this thread has it."""
    _turns.end()
