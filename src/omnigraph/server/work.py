"""Blocking work: one bounded pool of threads for engine calls, and who may add to it.

The event loop waits for a graph no longer than a short read takes. A write that has begun goes on
when its client hangs up.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from time import monotonic, process_time
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from omnigraph.model.limits import SERVER_QUEUE_MAX, SERVER_THREADS_MAX
from omnigraph.wire.failures import RETRY_AFTER_SECONDS, RefusedError

T = TypeVar("T")
_Inbox: TypeAlias = "SimpleQueue[_Job | None]"  # of one thread
SHORT_SECONDS: Final = 0.003  # a read that has run for longer holds up no other
TURN_SECONDS: Final = 0.01  # that the loop waits for reads before it looks who else is there
BUSY_SHARE: Final = 0.75  # of a processor: where less is spent, reads wait for storage
RETRY_LATER = (("retry-after", str(RETRY_AFTER_SECONDS)),)


def threads_of_machine() -> int:
    """Most of them wait for storage; what computes holds the interpreter's lock anyway."""
    return min(SERVER_THREADS_MAX, 4 * (os.cpu_count() or 1))


class _Bell:
    """Rung once, in one thread; another waits for it, but not for ever."""

    __slots__ = ("_claim", "_silence")

    def __init__(self) -> None:
        self._silence, self._claim = threading.Lock(), threading.Lock()
        self._silence.acquire()

    def heard(self, seconds: float) -> bool:
        """Whether it rang so soon. If not, nobody waits any more."""
        if self._silence.acquire(timeout=seconds):
            return True
        if self._claim.acquire(blocking=False):
            return False
        return self._silence.acquire()  # the other thread has the claim: it rings this moment

    def rung(self) -> bool:
        """Whether somebody waits, who now hears it."""
        if not self._claim.acquire(blocking=False):
            return False
        self._silence.release()
        return True


class _Job:
    """What a thread is to do, and who is told of its end."""

    __slots__ = ("_bell", "_ended", "_failure", "_result", "_work", "future")

    def __init__(self, work: Callable[[], Any], ended: Callable[[], None]) -> None:
        # It is waited for behind a shield: nobody cancels it.
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._work: Callable[[], Any] | None = work
        self._ended = ended
        self._result: Any = None
        self._failure: BaseException | None = None
        self._bell: _Bell | None = None  # of a job that the loop's thread waits for

    def expect(self) -> None:
        """Say, before the job begins, that the loop's thread is going to wait for it."""
        self._bell = _Bell()

    def waited_for(self, seconds: float) -> bool:
        """Whether the job ended so soon; the loop's thread does nothing else until then."""
        assert self._bell is not None, "the job is expected"
        if not self._bell.heard(seconds):
            return False
        self._hand_over()
        return True

    def run(self) -> None:
        """Do the work; in a thread of the pool."""
        work, self._work = self._work, None
        assert work is not None, "a job runs once"
        try:
            self._result = work()
        except BaseException as problem:  # noqa: BLE001 - it goes on where the job was asked for
            self._failure = problem
            if isinstance(problem, StopIteration) or not isinstance(problem, Exception):
                # A future takes no StopIteration, a loop ends with others, and nobody answers what
                # is no Exception, such as a panic of a library in Rust.
                self._failure = RuntimeError(f"a job raised {problem!r}")
                self._failure.__cause__ = problem

    def tell(self) -> None:
        """Let the loop know that the work is done; in the thread that did it."""
        if self._bell is not None and self._bell.rung():
            return
        try:
            self.future.get_loop().call_soon_threadsafe(self._hand_over)
        except RuntimeError:  # the loop is closed: nobody waits any more
            return

    def _hand_over(self) -> None:
        """Hand over what came of it; in the loop's thread."""
        self._ended()
        if self._failure is None:
            self.future.set_result(self._result)
        else:
            self.future.set_exception(self._failure)


class Pool:
    """Threads that run one job after the other. Half of them take no writes, which may wait long
    for each other, so that there is always a thread for reads.

    Short reads compute, which the interpreter lets one thread do at a time: several at once would
    spend as much on taking its lock from each other. So a read begins when the one before it has
    ended, or has run for a while: then it waits for storage, or is long, and holds up nobody. Where
    it waits for storage, all that are there begin: one at a time would be a few hundred a second.

    Where the last read was a short one, the loop's thread waits for the next one just as long: to
    go on beside it would be taking the lock from it, and to be told of its end costs a wake-up. Of
    many reads that come together it waits for the first ones alone: others want to be heard, too.
    """

    def __init__(self, threads: int, *, short_seconds: float = SHORT_SECONDS) -> None:
        self.threads = threads
        self._short_seconds = short_seconds
        # Jobs that wait or run, also for requests that were cancelled; the loop's thread's alone.
        self._pending = 0
        self._writes = asyncio.Semaphore(max(1, threads // 2))
        self._waiting = 0  # writes that wait for their turn
        self._waited = 0.0  # seconds that the loop's thread has waited for reads in this turn
        self._looks = False  # whether a look is coming; touched by the loop's thread alone
        self._looked = self._spent = 0.0  # when that was known, and what the process had computed
        self._lock = threading.Lock()  # guards what follows
        self._jobs: deque[_Job] = deque()  # that no thread has begun
        self._inboxes: list[_Inbox] = [SimpleQueue() for _ in range(threads)]
        self._idle = list(self._inboxes)  # whoever was busy last is at the end, and comes first
        self._short: _Inbox | None = None  # whose job may still be a short one
        self._since = 0.0  # when it began
        self._are_short = False  # whether the read that ended last was a short one
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
        asked = _Job(job, self._ended)
        self._pending += 1
        self._begin(asked, at_once=at_once)
        return asked.future

    def _ended(self) -> None:
        self._pending -= 1

    def _begin(self, job: _Job, *, at_once: bool) -> None:
        """Give the job to a thread, or let it wait for the one before it."""
        with self._lock:
            if at_once and self._idle:
                self._idle.pop().put(job)
                return
            is_next = not self._jobs and self._short is None and bool(self._idle)
            is_expected = is_next and self._are_short and self._waited < TURN_SECONDS
            if is_expected:
                job.expect()
            self._jobs.append(job)
            self._begin_next()
            waits = bool(self._jobs)
        if waits:
            self._look_later(job.future.get_loop())
        elif is_expected:
            self._wait_for(job)

    def _wait_for(self, job: _Job) -> None:
        """Do nothing in the loop's thread until the job ends, if it ends soon."""
        began = monotonic()
        if not job.waited_for(self._short_seconds):
            self._are_short = False
        if not self._waited:  # the first one of this turn
            job.future.get_loop().call_soon(self._turned)
        self._waited += monotonic() - began

    def _turned(self) -> None:
        self._waited = 0.0

    def _begin_next(self) -> None:
        """Begin the next job, unless one is running that may be short; under the lock."""
        if self._jobs and self._idle and self._short is None:
            self._short, self._since = self._idle.pop(), monotonic()
            self._short.put(self._jobs.popleft())

    def _look_later(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._looks:
            self._looks = True
            self._looked, self._spent = monotonic(), process_time()
            loop.call_later(self._short_seconds, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Whether the job that others wait for is a short one after all."""
        self._looks = False
        now = monotonic()
        is_busy = process_time() - self._spent >= BUSY_SHARE * (now - self._looked)
        with self._lock:
            if self._short is not None and now - self._since >= self._short_seconds:
                self._short, self._are_short = None, False
                while self._jobs and self._idle and not is_busy:
                    self._idle.pop().put(self._jobs.popleft())
            self._begin_next()
            waits = bool(self._jobs)
        if waits:
            self._look_later(loop)

    def _work(self, inbox: _Inbox) -> None:
        job = inbox.get()
        while job is not None:
            job.run()
            # Whoever is told may ask again at once: this thread is free by then.
            following = self._next(inbox)
            job.tell()
            del job  # an idle thread holds nobody's answer
            job = following or inbox.get()

    def _next(self, inbox: _Inbox) -> _Job | None:
        """The job that this thread goes on with; None: it has nothing to do."""
        with self._lock:
            if self._short is inbox:
                self._short = None
                self._are_short = monotonic() - self._since < self._short_seconds
            if self._jobs and self._short is None:
                self._short, self._since = inbox, monotonic()
                return self._jobs.popleft()
            self._idle.append(inbox)
            return None


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
