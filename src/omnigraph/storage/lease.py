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
from omnigraph.model.ports import ObjectStore, StoredObject, World
from omnigraph.storage.layout import LOCKS
from omnigraph.storage.objects import Root

_POLL_MS_MIN: Final = 1
_POLL_MS_MAX: Final = 20
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
        self._root = root
        self._store = store
        self._world = world

    def hold(self, branch_id: str | None, *, wait_ms: int) -> AbstractContextManager[Lease]:
        """Wait for the branch to be free and keep it for the block; None is main.

        A thread that holds the lease must not ask for it again: it would wait for itself.
        """
        name = MAIN if branch_id is None else branch_id
        if self._root.local_path is not None:
            return _hold_file(Path(self._root.local_path) / LOCKS / f"{name}.lock", name, wait_ms)
        return _StoredLeases(self._store, self._world).hold(f"{LOCKS}/{name}.json", name, wait_ms)


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
    try:
        waiting = _Waiting(wait_ms, pause_ms_max=_POLL_MS_MAX)
        while not _try_lock(descriptor):
            if not waiting.pause():
                raise _unavailable(name, wait_ms)
        yield _FileLease(name=name, path=path, descriptor=descriptor)
    finally:
        os.close(descriptor)  # closing the last descriptor frees the lock


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


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


class _StoredLeases:
    def __init__(self, store: ObjectStore, world: World) -> None:
        self._store = store
        self._clock = world.clock
        self._ids = world.ids

    @contextmanager
    def hold(self, key: str, name: str, wait_ms: int) -> Iterator[Lease]:
        owner = self._ids.ulid()
        waiting = _Waiting(wait_ms, pause_ms_max=_STORE_POLL_MS_MAX)
        token = self._try_claim(key, owner)
        while token is None:
            if not waiting.pause():
                raise _unavailable(name, wait_ms)
            token = self._try_claim(key, owner)
        lease = _StoredLease(self._store, self._claim, key, name, owner, token)
        lease.start()
        try:
            yield lease
        finally:
            lease.give_back()

    def _claim(self, owner: str, token: int) -> _Claim:
        expires_at = self._clock.now_us() + LEASE_EXPIRY_MS * 1000
        return _Claim(owner=owner, token=token, expires_at=expires_at)

    def _try_claim(self, key: str, owner: str) -> int | None:
        """The token of the new claim, or None while somebody else holds the branch."""
        found = self._store.read(key)
        if found is None:
            made = self._store.put_if_absent(key, self._claim(owner, 1).encode())
            return 1 if made else None
        held = _Claim.decode(found)
        if held.expires_at and held.expires_at + _CLOCK_SKEW_US > self._clock.now_us():
            return None
        assert found.tag is not None, "object stores tag what they hold"
        mine = self._claim(owner, held.token + 1)
        return mine.token if self._store.put_if_match(key, mine.encode(), tag=found.tag) else None


class _Claims(Protocol):
    def __call__(self, owner: str, token: int) -> _Claim: ...


class _StoredLease:
    """A claim that a thread renews until it is given back."""

    def __init__(
        self, store: ObjectStore, claims: _Claims, key: str, name: str, owner: str, token: int
    ) -> None:
        self._store = store
        self._claims = claims
        self._key = key
        self._name = name
        self._owner = owner
        self._token = token
        self._good_until = time.monotonic() + LEASE_EXPIRY_MS / 1000
        self._stop = threading.Event()
        self._lost = threading.Event()
        self._renewer = threading.Thread(target=self._renew, name=f"lease-{name}", daemon=True)

    @property
    def token(self) -> int:
        return self._token

    def start(self) -> None:
        self._renewer.start()

    def check(self) -> None:
        if self._lost.is_set() or time.monotonic() >= self._good_until:
            raise _lost(self._name)

    def give_back(self) -> None:
        self._stop.set()
        self._renewer.join()
        if self._lost.is_set():
            return
        try:
            self._replace(_Claim(owner=self._owner, token=self._token, expires_at=0))
        except StorageUnavailableError:
            # The claim runs out by itself; the write it protected is over.
            return

    def _renew(self) -> None:
        while not self._stop.wait(LEASE_RENEW_MS / 1000):
            started = time.monotonic()
            try:
                kept = self._replace(self._claims(self._owner, self._token))
            except StorageUnavailableError:
                continue  # the next round may get through before the claim runs out
            if not kept:
                self._lost.set()
                return
            self._good_until = started + LEASE_EXPIRY_MS / 1000

    def _replace(self, claim: _Claim) -> bool:
        """Write the claim over our own one; False if it is no longer ours."""
        found = self._store.read(self._key)
        if found is None or found.tag is None:
            return False
        held = _Claim.decode(found)
        if (held.owner, held.token) != (self._owner, self._token):
            return False
        return self._store.put_if_match(self._key, claim.encode(), tag=found.tag)
