"""One writer at a time per branch.

On local disk a lease is an OS file lock: a killed process frees it at once. On object stores it is
an object that its owner renews; a writer that dies is followed by the next one when its time is up.
The lease only spares writers from racing. What makes a late writer harmless is the publisher, and
the fence that recovery leaves on the tables of a write it gives up.

What is done under a lease is done as a whole: `unbroken` keeps interrupts away from it.
"""

from __future__ import annotations

import contextvars
import os
import random
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar, cast

import msgspec

from omnigraph.errors import LeaseUnavailableError, StorageUnavailableError
from omnigraph.model.graph import MAIN
from omnigraph.model.ports import ObjectStore, StoredObject, World
from omnigraph.storage.objects.local import LOCKS, OBJECTS_LOCK, PRESENCE_LOCK, LockFile
from omnigraph.storage.objects.root import Root

if TYPE_CHECKING:
    from omnigraph.storage.objects.s3 import S3Objects

_POLL_MS_MIN: Final = 1
_STORE_POLL_MS_MAX: Final = 250
_PASSING_ON_MS: Final = 5
_QUEUE_LOOK_MS: Final = 50  # how often one who waits in the queue looks whether to give up

_Result = TypeVar("_Result")


# The lease of those who let the past go, and of those who give something in it a name: a cleanup, a
# new tag, a branch that is brought back. No branch has such an id.
PAST: Final = "~past"


class Lease(Protocol):
    """The right to commit on a branch, for as long as `check` does not raise."""

    @property
    def token(self) -> int:
        """Grows with every holder on an object store; 0 on local disk, where locks cannot lapse."""
        ...

    @property
    def can_lapse(self) -> bool:
        """Whether another may get the branch while we still live."""
        ...

    def check(self) -> None:
        """Raise LeaseUnavailableError if the lease was lost."""
        ...

    def release(self) -> None:
        """Give the lease back before the block ends; repeating it is fine."""
        ...


class Leases:
    """Hands out the leases of one graph."""

    def __init__(self, root: Root, store: ObjectStore, world: World) -> None:
        self._local = None if root.local_path is None else Path(root.local_path) / LOCKS
        self._file_locks_lapse = world.lease.file_locks_lapse
        self._stored: _StoredLeases | None = None
        if root.local_path is None:
            self._stored = _StoredLeases(cast("S3Objects", store), world)

    def collect(self, living: Collection[str]) -> int:
        """Remove what the leases of branches that are no more have left; says how many it was.

        Each is taken first, so nobody holds it when it goes. Who waited for it meanwhile starts
        anew: a lock file is looked at again by whoever got it, and a claim is read again.
        """
        if self._local is not None:
            kept = {f"{name}.lock" for name in (MAIN, PAST, *living)}
            kept |= {OBJECTS_LOCK, PRESENCE_LOCK}
            files = sorted(self._local.glob("*.lock"))
            return sum(_removed(path) for path in files if path.name not in kept)
        assert self._stored is not None, "a root is local or on an object store"
        return self._stored.collect(living)

    def holding(
        self, branch_id: str | None, work: Callable[[Lease], _Result], *, wait_ms: int
    ) -> _Result:
        """Do the work while holding the branch; None is main.

        No interrupt reaches the work: it is awaited first, so that the lease never goes while
        something of it is still under way. One that comes before the lease does ends the waiting.
        """

        def held(stop: Stop) -> _Result:
            with self.hold(branch_id, wait_ms=wait_ms, stop=stop) as lease:
                # The lease goes when the block ends, so the work must have ended by then: whoever
                # starts threads in it waits for them.
                return work(lease)

        return unbroken(held)

    def hold(
        self, branch_id: str | None, *, wait_ms: int, stop: Stop | None = None
    ) -> AbstractContextManager[Lease]:
        """Wait for the branch to be free and keep it for the block. Use `holding` wherever an
        interrupt can strike: it could cut the taking and the giving back in two.

        A thread that holds the lease must not ask for it again: it would wait for itself.
        """
        name = MAIN if branch_id is None else branch_id
        waiting = _Waiting(name, wait_ms, stop or Stop())
        if self._local is not None:
            path = self._local / f"{name}.lock"
            return _hold_file(path, waiting, can_lapse=self._file_locks_lapse)
        assert self._stored is not None, "a root is local or on an object store"
        return self._stored.hold(f"{LOCKS}/{name}.json", waiting)


def _words(name: str) -> str:
    return "the past of the graph" if name == PAST else f"branch '{name}'"


def _lost(name: str) -> LeaseUnavailableError:
    return LeaseUnavailableError(
        f"the lease of {_words(name)} was lost", hint="try again", branch=name
    )


class _Waiting:
    """How long one waits for a branch, and polls with growing, jittered pauses meanwhile."""

    def __init__(self, name: str, wait_ms: int, stop: Stop) -> None:
        assert wait_ms >= 0, "nobody waits for less than nothing"
        self.name = name
        self._wait_ms = wait_ms
        self._stop = stop
        self._until = time.monotonic() + wait_ms / 1000
        self._pause_ms: float = _POLL_MS_MIN

    @property
    def left(self) -> float:
        """Seconds. Raises if the caller was interrupted: then there is nothing to wait for."""
        if self._stop.asked:
            raise StoppedError
        return max(0.0, self._until - time.monotonic())

    def too_long(self) -> LeaseUnavailableError:
        return LeaseUnavailableError(
            f"another writer held {_words(self.name)} for more than {self._wait_ms} ms",
            hint="try again",
            branch=self.name,
            waited_ms=self._wait_ms,
        )

    def pause(self) -> None:
        """Sleep a little, or raise if the time is up."""
        left = self.left
        if not left:
            raise self.too_long()
        # Chance only spreads the waiters out; nothing secret hangs on it.
        time.sleep(min(left, self._pause_ms * random.uniform(0.5, 1.0) / 1000))  # noqa: S311
        self._pause_ms = min(self._pause_ms * 1.5, _STORE_POLL_MS_MAX)


# --- local disk ------------------------------------------------------------------------------


class _FileLease(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    file: LockFile
    can_lapse: bool
    token: int = 0

    def check(self) -> None:
        # A lock on a file that the path does not name any more keeps nobody out.
        if not self.file.is_current:
            raise _lost(self.name)

    def release(self) -> None:
        self.file.close()


@contextmanager
def _hold_file(path: Path, waiting: _Waiting, *, can_lapse: bool) -> Iterator[Lease]:
    with closing(_locked(path, waiting)) as file:
        yield _FileLease(name=waiting.name, file=file, can_lapse=can_lapse)


def _removed(path: Path) -> bool:
    try:
        with closing(LockFile(path, os.O_RDWR)) as file:
            # Removed only while it is held: nobody can be writing under a lock that we have.
            if not file.try_lock() or not file.is_current:
                return False
            path.unlink()
    except OSError:
        return False  # somebody else was first, or it is not ours to touch
    return True


def _locked(path: Path, waiting: _Waiting) -> LockFile:
    while True:
        file = None
        try:
            path.parent.mkdir(exist_ok=True)
            file = LockFile(path)
            at_once = file.try_lock()
        except OSError as cause:
            if file is not None:
                file.close()
            reason = cause.strerror or str(cause)
            raise StorageUnavailableError(
                f"cannot lock '{path}': {reason}", uri=str(path), reason=reason
            ) from cause
        if not at_once:
            _Queued(file).wait(waiting)
        # Cleanup takes the lock files of dead branches away, and it does so while holding the
        # lock. Whoever waited for such a file has to queue up for its successor.
        if file.is_current:
            return file
        file.close()


class _Queued:
    """Waits for a file lock in the kernel's queue, first come first served, but not for ever.

    A blocking lock call cannot be given up, so a thread makes it. If the lock comes too late, the
    thread closes the file, which passes the lock on.
    """

    def __init__(self, file: LockFile) -> None:
        self._file = file
        self._turn = threading.Lock()
        self._got = threading.Event()
        self._given_up = False
        threading.Thread(target=self._block, name="lease-queue", daemon=True).start()

    def wait(self, waiting: _Waiting) -> None:
        """Until the lock is there. Raises if that takes too long or is not wanted any more; then
        the file is no longer the caller's."""
        # One who gave up may just be passing the lock on: that much time there always is.
        self._got.wait(_PASSING_ON_MS / 1000)
        try:
            while (left := waiting.left) and not self._got.is_set():
                self._got.wait(min(left, _QUEUE_LOOK_MS / 1000))
        except BaseException:
            if not self._give_up():
                self._file.close()
            raise
        if self._give_up():
            raise waiting.too_long()

    def _give_up(self) -> bool:
        """Leave the file to the thread that waits for it; False if the lock is there."""
        # One of two must close the file: the waiter, or the thread that gets the lock too late.
        # Who takes the turn first decides, and the other one finds the decision.
        with self._turn:
            self._given_up = not self._got.is_set()
            return self._given_up

    def _block(self) -> None:
        self._file.lock()
        with self._turn:
            if self._given_up:
                self._file.close()
            else:
                self._got.set()


# --- object stores ---------------------------------------------------------------------------


class _Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What the lease object says. `expires_at` is 0 once its holder gave it back."""

    owner: str
    token: int
    expires_at: int

    @classmethod
    def decode(cls, stored: StoredObject) -> _Claim:
        try:
            return msgspec.json.decode(stored.body, type=cls)
        except (msgspec.MsgspecError, ValueError):
            # A torn or foreign object must not lock a branch for ever.
            return cls(owner="", token=0, expires_at=0)


class _Held(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that we wrote, and the tag under which the store has it."""

    claim: _Claim
    tag: str


class _StoredLeases:
    """Leases as objects. Remembers what it gave back: to take that again needs one request."""

    def __init__(self, store: S3Objects, world: World) -> None:
        self._store = store
        self._clock = world.clock
        self._ids = world.ids
        self.terms = world.lease
        self.free: dict[str, _Held] = {}  # how the store has the claims that were given back

    @contextmanager
    def hold(self, key: str, waiting: _Waiting) -> Iterator[Lease]:
        owner = self._ids.ulid()
        # The clock is read before the store is asked: our lease may seem shorter to us than it is,
        # never longer.
        since = _ticks()
        held = self._try_again(key, owner) or self._try_claim(key, owner)
        while held is None:
            waiting.pause()
            since = _ticks()
            held = self._try_claim(key, owner)
        assert held.claim.owner == owner, "a claim that was won is our own"
        lease = _StoredLease(self, key, waiting.name, held, since=since)
        try:
            yield lease
        finally:
            lease.release()

    def collect(self, living: Collection[str]) -> int:
        kept = {f"{LOCKS}/{name}.json" for name in (MAIN, PAST, *living)}
        gone = [key for key in self._store.list_keys(LOCKS) if key not in kept]
        # Whoever asks for a claim that is not there makes a new one.
        return sum(
            self._store.delete(key)
            for key in gone
            if key.endswith(".json") and self._try_claim(key, self._ids.ulid()) is not None
        )

    def claim(self, owner: str, token: int) -> _Claim:
        expires_at = self._clock.now_us() + self.terms.expiry_ms * 1000
        return _Claim(owner=owner, token=token, expires_at=expires_at)

    def _try_again(self, key: str, owner: str) -> _Held | None:
        """Take what we gave back, if nobody had it since."""
        free = self.free.pop(key, None)
        if free is None:
            return None
        assert free.claim.expires_at == 0, "only what was given back is remembered"
        # The tag is the condition: it has changed if anybody took the lease meanwhile.
        return self._replace(key, self.claim(owner, free.claim.token + 1), free.tag)

    def _try_claim(self, key: str, owner: str) -> _Held | None:
        """The new claim, or None while somebody else holds the branch."""
        found = self._store.read(key)
        if found is None:
            first = self.claim(owner, 1)
            tag = self._store.create_tagged(key, msgspec.json.encode(first))
            return None if tag is None else _Held(claim=first, tag=tag)
        held = _Claim.decode(found)
        # Clocks differ: a claim is honoured for as long as its owner's clock may be behind ours.
        kept_until = held.expires_at + self.terms.skew_ms * 1000
        if held.expires_at and kept_until > self._clock.now_us():
            return None
        assert found.tag is not None, "object stores tag what they hold"
        # The tag is the condition: of two who found the claim lapsed, one gets it.
        return self._replace(key, self.claim(owner, held.token + 1), found.tag)

    def rewrite(self, key: str, claim: _Claim, tag: str) -> _Held | None:
        """Replace the claim that has the tag; None if another one is there by now."""
        kept = self._replace(key, claim, tag)
        if kept is not None:
            return kept
        # An answer that was lost looks like a loss of the lease: see whose claim is there.
        found = self._store.read(key)
        if found is None or found.tag is None or _Claim.decode(found) != claim:
            return None
        return _Held(claim=claim, tag=found.tag)

    def _replace(self, key: str, claim: _Claim, tag: str) -> _Held | None:
        fresh = self._store.replace_tagged(key, msgspec.json.encode(claim), tag=tag)
        return None if fresh is None else _Held(claim=claim, tag=fresh)


def _ticks() -> float:
    """Seconds that go on while the machine sleeps: a lease lapses then, too."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


class _StoredLease:
    """A claim that a thread renews until it is given back."""

    can_lapse = True

    def __init__(
        self, leases: _StoredLeases, key: str, name: str, held: _Held, *, since: float
    ) -> None:
        self._leases = leases
        self._key = key
        self._name = name
        self._held = held  # written by the renewing thread only, until that has ended
        self._lasts = leases.terms.expiry_ms / 1000
        self._good_until = since + self._lasts  # counted from before the store was asked
        self._stop = threading.Event()
        self._lost = threading.Event()
        self._released = False
        self._process = os.getpid()
        self._renewer = threading.Thread(target=self._renew, name=f"lease-{name}", daemon=True)
        self._renewer.start()

    @property
    def token(self) -> int:
        return self._held.claim.token

    def check(self) -> None:
        # Our own clock decides, not the store: an answer takes time, and the machine may sleep. A
        # child that was forked has the memory of the lease, but not the thread that renews it.
        gone = self._released or self._lost.is_set() or self._process != os.getpid()
        if gone or _ticks() >= self._good_until:
            raise _lost(self._name)

    def release(self) -> None:
        """End the claim, if it is still ours, and remember how the store has it now."""
        if self._released or self._process != os.getpid():
            return  # a forked child has no lease to give back
        self._released = True
        self._stop.set()
        self._renewer.join()
        # Nobody else writes the claim from here on.
        claim = self._held.claim
        if self._lost.is_set():
            return
        try:
            free = self._write(_Claim(owner=claim.owner, token=claim.token, expires_at=0))
        except StorageUnavailableError:
            return  # the claim runs out by itself; the write it protected is over
        if free is not None:
            self._leases.free[self._key] = free

    def _renew(self) -> None:
        while not self._stop.wait(self._leases.terms.renew_ms / 1000):
            started = _ticks()
            claim = self._held.claim
            try:
                kept = self._write(self._leases.claim(claim.owner, claim.token))
            except StorageUnavailableError:
                continue  # the next round may get through before the claim runs out
            if kept is None:
                # Another one has it. To go on renewing could only take it away from them.
                self._lost.set()
                return
            assert kept.claim.token == claim.token, "to renew is not to take again"
            self._held = kept
            self._good_until = started + self._lasts

    def _write(self, claim: _Claim) -> _Held | None:
        """Write the claim over our own one; None if it is no longer ours."""
        return self._leases.rewrite(self._key, claim, self._held.tag)


# --- work that an interrupt must not cut in two ----------------------------------------------
#
# Python raises `KeyboardInterrupt` in the main thread, between any two of its steps, and other
# tools raise `SystemExit` or their own exceptions in a thread in the same way. So whatever must be
# done as a whole is done in a thread of its own, which nobody interrupts; the caller waits for its
# end. An interrupt ends the waiting only after the work has ended: by then it is known what was
# done.


class Stop:
    """Says whether the waiting thread was interrupted. Work may end early, but need not."""

    asked = False


class StoppedError(Exception):
    """The work was given up because its caller was interrupted; nobody but `unbroken` sees it."""


class _Here(threading.local):
    stop: Stop | None = None


_here = _Here()


def stop_if_asked() -> None:
    """Give the work up here if its caller was interrupted. Only where nothing is half done."""
    if _here.stop is not None and _here.stop.asked:
        raise StoppedError


def unbroken(work: Callable[[Stop], _Result]) -> _Result:
    """Do the work as a whole, whatever strikes this thread meanwhile; then go on with that.

    Work inside such work is part of it.
    """
    if _here.stop is not None:
        return work(_here.stop)
    run = _Run(work)
    struck = run.outlast()
    if struck is not None:
        raise struck
    return run.result()


class _Run(Generic[_Result]):
    """One piece of work in its own thread."""

    def __init__(self, work: Callable[[Stop], _Result]) -> None:
        self._work = work
        self._stop = Stop()
        self._begun = threading.Lock()  # whoever takes it decides whether the work begins
        # A plain lock: the waiting side of an Event is Python code that an interrupt can break.
        self._running = threading.Lock()
        self._running.acquire()
        self._ended = False
        self._answer: list[_Result] = []
        self._error: BaseException | None = None

    def outlast(self) -> BaseException | None:
        """Begin, and wait for the end; what struck the waiting thread first, if anything did."""
        struck: BaseException | None = None
        context = contextvars.copy_context()
        try:
            threading.Thread(target=context.run, args=(self._do,), name="omnigraph-write").start()
        except RuntimeError:
            self._do()  # no thread is to be had, as when the interpreter is about to end
        except BaseException as interrupt:  # noqa: BLE001 - it goes on when the work has ended
            self._stop.asked = True
            struck = interrupt
            if self._begun.acquire(blocking=False):
                return struck  # it had not begun, and now never will
        while not self._ended:
            try:
                self._running.acquire()
            except BaseException as interrupt:  # noqa: BLE001 - likewise, however many come
                self._stop.asked = True
                struck = struck or interrupt
        return struck

    def result(self) -> _Result:
        assert self._ended, "the work is awaited before anybody asks for its result"
        if self._error is not None:
            raise self._error
        return self._answer[0]

    def _do(self) -> None:
        if not self._begun.acquire(blocking=False):
            return
        assert _here.stop is None, "work inside of work runs in the same thread"
        _here.stop = self._stop
        try:
            self._answer.append(self._work(self._stop))
        except BaseException as error:  # noqa: BLE001 - carried to the waiting thread as it is
            self._error = error
        finally:
            _here.stop = None
            # In this order: whoever wakes up finds the end, and does not wait for it again.
            self._ended = True
            self._running.release()
