"""One writer at a time per branch.

On local disk a lease is an OS file lock: a killed process frees it at once. On object stores it is
an object that its owner renews; a writer that dies is followed by the next one when its time is up.
The lease only spares writers from racing: what makes a late writer harmless is the publisher.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from omnigraph.errors import LeaseUnavailableError, StorageUnavailableError
from omnigraph.model.graph import MAIN
from omnigraph.model.limits import LEASE_EXPIRY_MS, LEASE_RENEW_MS
from omnigraph.model.ports import Clock, ObjectStore, StoredObject, World
from omnigraph.storage.layout import LOCKS
from omnigraph.storage.objects import Root
from omnigraph.storage.s3_store import S3Objects

_POLL_MS_MIN: Final = 1
_STORE_POLL_MS_MAX: Final = 250
_CLOCK_SKEW_US: Final = 2_000_000


class Lease(Protocol):
    """The right to commit on a branch, for as long as `check` does not raise."""

    @property
    def token(self) -> int:
        """Grows with every holder on an object store; 0 on local disk, where locks cannot lapse."""
        ...

    def check(self) -> None:
        """Raise LeaseUnavailableError if the lease was lost."""
        ...


class Leases:
    """Hands out the leases of one graph."""

    def __init__(self, root: Root, store: ObjectStore, world: World) -> None:
        self._local = None if root.local_path is None else Path(root.local_path) / LOCKS
        self._stored = _StoredLeases(store, world) if isinstance(store, S3Objects) else None

    def hold(self, branch_id: str | None, *, wait_ms: int) -> AbstractContextManager[Lease]:
        """Wait for the branch to be free and keep it for the block; None is main.

        A thread that holds the lease must not ask for it again: it would wait for itself.
        """
        name = MAIN if branch_id is None else branch_id
        if self._local is not None:
            return _hold_file(self._local / f"{name}.lock", name, wait_ms)
        assert self._stored is not None, "a root is local or on an object store"
        return self._stored.hold(f"{LOCKS}/{name}.json", name, wait_ms)


def _unavailable(name: str, wait_ms: int) -> LeaseUnavailableError:
    return LeaseUnavailableError(
        f"another writer held branch '{name}' for more than {wait_ms} ms",
        hint="try again",
        branch=name,
        waited_ms=wait_ms,
    )


def _lost(name: str) -> LeaseUnavailableError:
    return LeaseUnavailableError(
        f"the lease of branch '{name}' was lost", hint="try again", branch=name
    )


class _Waiting:
    """Polls with growing, jittered pauses until the time is up."""

    def __init__(self, wait_ms: int, *, pause_ms_max: int) -> None:
        self._until = time.monotonic() + wait_ms / 1000
        self._pause_ms: float = _POLL_MS_MIN
        self._pause_ms_max = pause_ms_max

    def pause(self) -> bool:
        """Sleep a little; False if the time is up instead."""
        left = self._until - time.monotonic()
        if left <= 0:
            return False
        # Chance only spreads the waiters out; nothing secret hangs on it.
        time.sleep(min(left, self._pause_ms * random.uniform(0.5, 1.0) / 1000))  # noqa: S311
        self._pause_ms = min(self._pause_ms * 1.5, self._pause_ms_max)
        return True


# --- local disk ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileLease:
    name: str
    path: Path
    descriptor: int
    token: int = 0

    def check(self) -> None:
        try:
            same = os.stat(self.path).st_ino == os.fstat(self.descriptor).st_ino
        except OSError:
            same = False
        if not same:
            raise _lost(self.name)


@contextmanager
def _hold_file(path: Path, name: str, wait_ms: int) -> Iterator[Lease]:
    try:
        path.parent.mkdir(exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as cause:
        reason = cause.strerror or str(cause)
        raise StorageUnavailableError(
            f"cannot lock '{path}': {reason}", uri=str(path), reason=reason
        ) from cause
    if not _try_lock(descriptor) and not _Queued(descriptor).wait(wait_ms):
        raise _unavailable(name, wait_ms)
    try:
        yield _FileLease(name=name, path=path, descriptor=descriptor)
    finally:
        os.close(descriptor)  # closing the last descriptor frees the lock


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class _Queued:
    """Waits for a file lock in the kernel's queue, first come first served, but not for ever.

    A blocking lock call cannot be given up, so a thread makes it. If the lock comes too late, the
    thread closes the descriptor, which passes the lock on.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._turn = threading.Lock()
        self._got = threading.Event()
        self._given_up = False
        threading.Thread(target=self._block, name="lease-queue", daemon=True).start()

    def wait(self, wait_ms: int) -> bool:
        """Whether the lock came in time; if not, the descriptor is no longer the caller's."""
        if self._got.wait(wait_ms / 1000):
            return True
        with self._turn:
            self._given_up = not self._got.is_set()
        return not self._given_up

    def _block(self) -> None:
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        with self._turn:
            if self._given_up:
                os.close(self._descriptor)
            else:
                self._got.set()


# --- object stores ---


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    """What the lease object says. `expires_at` is 0 once its holder gave it back."""

    owner: str
    token: int
    expires_at: int

    def encode(self) -> bytes:
        body = {"owner": self.owner, "token": self.token, "expires_at": self.expires_at}
        return json.dumps(body).encode()

    @classmethod
    def decode(cls, stored: StoredObject) -> _Claim:
        try:
            body = json.loads(stored.body)
            return cls(
                owner=str(body["owner"]),
                token=int(body["token"]),
                expires_at=int(body["expires_at"]),
            )
        except (ValueError, KeyError, TypeError):
            # A torn or foreign object must not lock a branch for ever.
            return cls(owner="", token=0, expires_at=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A claim that we wrote, and the tag under which the store has it."""

    claim: _Claim
    tag: str


class _StoredLeases:
    """Leases as objects. Remembers what it gave back: to take that again needs one request."""

    def __init__(self, store: S3Objects, world: World) -> None:
        self._store = store
        self._clock = world.clock
        self._ids = world.ids
        self._free: dict[str, _Held] = {}

    @contextmanager
    def hold(self, key: str, name: str, wait_ms: int) -> Iterator[Lease]:
        owner = self._ids.ulid()
        waiting = _Waiting(wait_ms, pause_ms_max=_STORE_POLL_MS_MAX)
        held = self._try_again(key, owner) or self._try_claim(key, owner)
        while held is None:
            if not waiting.pause():
                raise _unavailable(name, wait_ms)
            held = self._try_claim(key, owner)
        lease = _StoredLease(self._store, self._clock, key, name, held)
        lease.start()
        try:
            yield lease
        finally:
            free = lease.give_back()
            if free is not None:
                self._free[key] = free

    def _try_again(self, key: str, owner: str) -> _Held | None:
        """Take what we gave back, if nobody had it since."""
        free = self._free.pop(key, None)
        if free is None:
            return None
        return self._replace(key, _claim(owner, free.claim.token + 1, self._clock), free.tag)

    def _try_claim(self, key: str, owner: str) -> _Held | None:
        """The new claim, or None while somebody else holds the branch."""
        found = self._store.read(key)
        if found is None:
            first = _claim(owner, 1, self._clock)
            tag = self._store.create_tagged(key, first.encode())
            return None if tag is None else _Held(claim=first, tag=tag)
        held = _Claim.decode(found)
        if held.expires_at and held.expires_at + _CLOCK_SKEW_US > self._clock.now_us():
            return None
        assert found.tag is not None, "object stores tag what they hold"
        return self._replace(key, _claim(owner, held.token + 1, self._clock), found.tag)

    def _replace(self, key: str, claim: _Claim, tag: str) -> _Held | None:
        fresh = self._store.replace_tagged(key, claim.encode(), tag=tag)
        return None if fresh is None else _Held(claim=claim, tag=fresh)


def _claim(owner: str, token: int, clock: Clock) -> _Claim:
    return _Claim(owner=owner, token=token, expires_at=clock.now_us() + LEASE_EXPIRY_MS * 1000)


class _StoredLease:
    """A claim that a thread renews until it is given back."""

    def __init__(self, store: S3Objects, clock: Clock, key: str, name: str, held: _Held) -> None:
        self._store = store
        self._clock = clock
        self._key = key
        self._name = name
        self._held = held  # written by the renewing thread only, until that has ended
        self._good_until = time.monotonic() + LEASE_EXPIRY_MS / 1000
        self._stop = threading.Event()
        self._lost = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name=f"lease-{name}", daemon=True)

    @property
    def token(self) -> int:
        return self._held.claim.token

    def start(self) -> None:
        self._renewer.start()

    def check(self) -> None:
        if self._lost.is_set() or time.monotonic() >= self._good_until:
            raise _lost(self._name)

    def give_back(self) -> _Held | None:
        """End the claim and return how the store has it now; None if that is not known."""
        self._stop.set()
        self._renewer.join()
        claim = self._held.claim
        if self._lost.is_set():
            return None
        try:
            return self._write(_Claim(owner=claim.owner, token=claim.token, expires_at=0))
        except StorageUnavailableError:
            # The claim runs out by itself; the write it protected is over.
            return None

    def _renew(self) -> None:
        while not self._stop.wait(LEASE_RENEW_MS / 1000):
            started = time.monotonic()
            claim = self._held.claim
            try:
                kept = self._write(_claim(claim.owner, claim.token, self._clock))
            except StorageUnavailableError:
                continue  # the next round may get through before the claim runs out
            if kept is None:
                self._lost.set()
                return
            self._held = kept
            self._good_until = started + LEASE_EXPIRY_MS / 1000

    def _write(self, claim: _Claim) -> _Held | None:
        """Write the claim over our own one; None if it is no longer ours."""
        fresh = self._store.replace_tagged(self._key, claim.encode(), tag=self._held.tag)
        if fresh is not None:
            return _Held(claim=claim, tag=fresh)
        # An answer that was lost looks like a loss of the lease: see whose claim is there.
        found = self._store.read(self._key)
        if found is None or found.tag is None or _Claim.decode(found) != claim:
            return None
        return _Held(claim=claim, tag=found.tag)
