"""Blocking work: one bounded pool of threads for engine calls, and who may add to it.

The event loop never waits for a graph. A write that has begun goes on when its client hangs up.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from time import monotonic
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from omnigraph.model.limits import SERVER_QUEUE_MAX, SERVER_THREADS_MAX
from omnigraph.wire.failures import RETRY_AFTER_SECONDS, RefusedError

T = TypeVar("T")
_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]
_Inbox: TypeAlias = "SimpleQueue[_Job | None]"  # of one thread
SHORT_SECONDS: Final = 0.003  # a read that has run for longer holds up no other
RETRY_LATER = (("retry-after", str(RETRY_AFTER_SECONDS)),)


def threads_of_machine() -> int:
    """Most of them wait for storage; what computes holds the interpreter's lock anyway."""
    return min(SERVER_THREADS_MAX, 4 * (os.cpu_count() or 1))


class Pool:
    """Threads that run one job after the other. Half of them take no writes, which may wait long
    for each other, so that there is always a thread for reads.

    Short reads compute, which the interpreter lets one thread do at a time: several at once would
    spend as much on taking its lock from each other. So a read begins when the one before it has
    ended, or has run for a while: then it waits for storage, or is long, and holds up nobody.
    """

    def __init__(self, threads: int, *, short_seconds: float = SHORT_SECONDS) -> None:
        self.threads = threads
        self._short_seconds = short_seconds
        # Jobs that wait or run, also for requests that were cancelled; the loop's thread's alone.
        self._pending = 0
        self._writes = asyncio.Semaphore(max(1, threads // 2))
        self._waiting = 0  # writes that wait for their turn
        self._looks = False  # whether a look is coming; touched by the loop's thread alone
        self._lock = threading.Lock()  # guards what follows
        self._jobs: deque[_Job] = deque()  # that no thread has begun
        self._inboxes: list[_Inbox] = [SimpleQueue() for _ in range(threads)]
        self._idle = list(self._inboxes)  # whoever was busy last is at the end, and comes first
        self._short: _Inbox | None = None  # whose job may still be a short one
        self._since = 0.0  # when it began
        self._closed = False
        for number, inbox in enumerate(self._inboxes):
            name = f"engine-{number}"
            threading.Thread(target=self._work, args=(inbox,), name=name, daemon=True).start()

    @property
    def pending(self) -> int:
        return self._pending

    async def run(self, job: Callable[[], T]) -> T:
        """The job's result; refused when too many wait already."""
        self._require_room()
        return await self.run_always(job)

    async def run_write(self, job: Callable[[], T]) -> T:
        """The same for a job that writes. It waits for disks: it begins at once."""
        if self._waiting >= SERVER_QUEUE_MAX:
            raise RefusedError(429, "too many writes are waiting", headers=RETRY_LATER)
        self._waiting += 1
        try:
            await self._writes.acquire()
        finally:
            self._waiting -= 1
        try:
            self._require_room()
            future = self._asked(job, at_once=True)
        except BaseException:
            self._writes.release()
            raise
        # Its turn ends with the job, not with a request that was cancelled on the way.
        future.add_done_callback(lambda _: self._writes.release())
        return await asyncio.shield(future)

    async def run_always(self, job: Callable[[], T]) -> T:
        """For work that is under way already, such as the next piece of a stream."""
        # A client that goes away takes its request along, not the work: somebody may depend
        # on what has begun, and a thread cannot be stopped half way.
        return await asyncio.shield(self._asked(job, at_once=False))

    def close(self) -> None:
        """Let the threads end when nothing is left to do. What is asked for later is refused."""
        with self._lock:
            self._closed = True
        for inbox in self._inboxes:
            inbox.put(None)

    def _require_room(self) -> None:
        if self._pending >= self.threads + SERVER_QUEUE_MAX:
            raise RefusedError(429, "too many requests are waiting", headers=RETRY_LATER)

    def _asked(self, job: Callable[[], T], *, at_once: bool) -> asyncio.Future[T]:
        """What will be the job's result."""
        if self._closed:
            raise RefusedError(503, "the server is stopping", headers=RETRY_LATER)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._pending += 1
        future.add_done_callback(self._ended)
        self._begin((loop, future, job), at_once=at_once)
        return future

    def _ended(self, _: asyncio.Future[Any]) -> None:
        self._pending -= 1

    def _begin(self, job: _Job, *, at_once: bool) -> None:
        """Give the job to a thread, or let it wait for the one before it."""
        with self._lock:
            if at_once and self._idle:
                self._idle.pop().put(job)
                return
            self._jobs.append(job)
            self._begin_next()
            waits = bool(self._jobs)
        if waits:
            self._look_later(job[0])

    def _begin_next(self) -> None:
        """Begin the next job, unless one is running that may be short; under the lock."""
        if self._jobs and self._idle and self._short is None:
            self._short, self._since = self._idle.pop(), monotonic()
            self._short.put(self._jobs.popleft())

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._looks:
            self._looks = True
            loop.call_later(self._short_seconds, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Whether the job that others wait for is a short one after all."""
        self._looks = False
        with self._lock:
            if self._short is not None and monotonic() - self._since >= self._short_seconds:
                self._short = None
            self._begin_next()
            waits = bool(self._jobs)
        if waits:
            self._look_later(loop)

    def _work(self, inbox: _Inbox) -> None:
        job = inbox.get()
        while job is not None:
            loop, future, work = job
            try:
                result = work()
            except StopIteration as problem:  # a future takes none: nobody would be answered
                _deliver(loop, future.set_exception, RuntimeError(f"a job raised {problem!r}"))
            except BaseException as problem:  # noqa: BLE001 - it goes on where the job was asked for
                _deliver(loop, future.set_exception, problem)
            else:
                _deliver(loop, future.set_result, result)
            del job, future, work  # an idle thread holds nobody's answer
            result = None
            job = self._next(inbox) or inbox.get()

    def _next(self, inbox: _Inbox) -> _Job | None:
        """The job that this thread goes on with; None: it has nothing to do."""
        with self._lock:
            if self._short is inbox:
                self._short = None
            if self._jobs and self._short is None:
                self._short, self._since = inbox, monotonic()
                return self._jobs.popleft()
            self._idle.append(inbox)
            return None


def _deliver(loop: asyncio.AbstractEventLoop, give: Callable[[Any], None], what: Any) -> None:
    try:
        loop.call_soon_threadsafe(_if_wanted, give, what)
    except RuntimeError:  # the loop is closed: nobody waits any more
        return


def _if_wanted(give: Callable[[Any], None], what: Any) -> None:
    future = give.__self__  # type: ignore[attr-defined]
    if not future.done():
        give(what)


class Held(Protocol):
    """A request that holds bytes of its body."""

    held_bytes: int


class Bodies:
    """The bytes of all bodies that a process holds; touched by the loop's thread alone."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0

    def hold(self, request: Held, size: int) -> None:
        """Count what has come of a body, or refuse it: many big ones at once would fill the
        memory before anybody decides about them."""
        if self._bytes + size > self._bytes_max:
            raise RefusedError(429, "too many big requests at once", headers=RETRY_LATER)
        self._bytes += size
        request.held_bytes += size

    def let_go(self, request: Held) -> None:
        self._bytes -= request.held_bytes
        request.held_bytes = 0


class Admission:
    """How much one actor may have under way: writes, and the bytes of their requests."""

    def __init__(self, *, writes_max: int, bytes_max: int) -> None:
        self._writes_max, self._bytes_max = writes_max, bytes_max
        self._under_way: dict[str | None, tuple[int, int]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def write(self, actor: str | None, size: int) -> Iterator[None]:
        """Count a write while it runs, or refuse it."""
        with self._lock:
            writes, held = self._under_way.get(actor, (0, 0))
            if writes >= self._writes_max:
                raise RefusedError(
                    429,
                    f"actor in-flight count cap {self._writes_max} exceeded",
                    headers=RETRY_LATER,
                )
            if held + size > self._bytes_max:
                raise RefusedError(
                    429,
                    f"actor in-flight bytes cap {self._bytes_max} exceeded",
                    headers=RETRY_LATER,
                )
            self._under_way[actor] = writes + 1, held + size
        try:
            yield
        finally:
            with self._lock:
                writes, held = self._under_way[actor]
                if writes == 1:
                    del self._under_way[actor]
                else:
                    self._under_way[actor] = writes - 1, held - size

    @property
    def writes(self) -> int:
        """How many are under way."""
        with self._lock:
            return sum(writes for writes, _ in self._under_way.values())
