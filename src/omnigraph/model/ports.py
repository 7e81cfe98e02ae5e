"""What comes in by the front door: time, chance, the disk's promise, and places to crash.

A `World` carries them down. Tests pass a world with a fixed clock, counted fsyncs or a crash plan;
users never see one.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal, Protocol, TypeVar, runtime_checkable

import msgspec

from omnigraph.model.access import Access, Decision
from omnigraph.model.limits import (
    DERIVED_BYTES_MAX,
    DERIVED_ROWS_MIN,
    LEASE_CLOCK_SKEW_MS,
    LEASE_EXPIRY_MS,
    LEASE_RENEW_MS,
)
from omnigraph.model.steps import Step

Durability = Literal["power", "process"]
Task = TypeVar("Task")
Answer = TypeVar("Answer")


class Clock(Protocol):
    def now_us(self) -> int:
        """Microseconds since the epoch, UTC."""
        ...


class Ids(Protocol):
    def ulid(self) -> str:
        """A new id that sorts after every id made before it in this process."""
        ...


class Steps(Protocol):
    def reach(self, step: Step) -> None:
        """Called just after the named durable step is done (or just before, if so named)."""
        ...


@runtime_checkable
class PolicyGate(Protocol):
    def decide(self, actor: str | None, access: Access) -> Decision:
        """Whether the actor may do it. Nobody may do nothing; a policy that cannot be evaluated
        allows nothing."""
        ...


class Runner(Protocol):
    """Where the tasks of bulk work run: in this process, or on the machines of a cluster."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""
        ...

    @property
    def held_bytes(self) -> int:
        """How many bytes of rows its tasks may hold in memory together, instead of writing them to
        the graph's folders; 0 where tasks run in other processes."""
        ...

    def run(
        self, tasks: Sequence[Task], function: Callable[[Task], Answer], *, stage: str
    ) -> list[Answer]:
        """`[function(task) for task in tasks]`, in the order of the tasks.

        The function may run more than once for a task, so it must be repeatable; one of its
        answers is kept. What is wrong with the data it returns as data: an exception fails the
        whole run.
        """
        ...


class Disk(Protocol):
    def fsync_file(self, path: str) -> None: ...

    def fsync_folder(self, path: str) -> None: ...


class StoredObject(msgspec.Struct, frozen=True, kw_only=True):
    """A control object and the tag that `put_if_match` needs (None where the store has none)."""

    key: str
    body: bytes
    tag: str | None


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """What a listing tells of an object."""

    bytes: int
    written_us: int


class ObjectStore(Protocol):
    """Small control objects below the graph root; keys are relative, with `/` between parts."""

    def read(self, key: str) -> StoredObject | None: ...

    def put(self, key: str, body: bytes) -> None: ...

    def put_if_absent(self, key: str, body: bytes) -> bool:
        """True if this call made the object, False if one was there; never overwrites."""
        ...

    def put_if_match(self, key: str, body: bytes, *, tag: str) -> bool:
        """Replace the object only if it still carries the tag."""
        ...

    def list_keys(self, prefix: str) -> Sequence[str]:
        """Every key below the prefix, sorted; a missing prefix has none."""
        ...

    def keys_beginning(self, start: str) -> Sequence[str]:
        """Every key of one folder whose last part begins so (`a/b/7-`), in one small listing."""
        ...

    def folders(self, prefix: str) -> Sequence[str]:
        """The names of the folders right below the prefix, sorted, whatever lies in them."""
        ...

    def listed(self, prefix: str) -> Mapping[str, Listed]:
        """Every object below the prefix, by key."""
        ...

    def chunks(self, key: str) -> Iterator[bytes]:
        """The bytes of an object of any size, piece by piece; an object that is not there is
        `NotFoundError`."""
        ...

    def read_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes] | None:
        """The bytes from the first to before the second place of each range; None if the object is
        not there. A range that ends behind the object gives what there is of it."""
        ...

    def put_chunks(self, key: str, pieces: Iterator[bytes]) -> None:
        """Write an object of any size, piece by piece; it is there as a whole or not at all."""
        ...

    def delete(self, key: str) -> bool:
        """True if it was there."""
        ...

    def delete_prefix(self, prefix: str) -> int: ...


class SystemClock:
    def now_us(self) -> int:
        return time.time_ns() // 1000


class NoSteps:
    def reach(self, step: Step) -> None:
        """Production never crashes on purpose."""


class RealDisk:
    def fsync_file(self, path: str) -> None:
        _fsync(path, os.O_RDONLY)

    def fsync_folder(self, path: str) -> None:
        _fsync(path, os.O_RDONLY | os.O_DIRECTORY)


def _fsync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LeaseTerms(msgspec.Struct, frozen=True, kw_only=True):
    """How long a lease on an object store lasts without renewal, how often it is renewed, and how
    far the clocks of two machines may be apart. On local disk the kernel keeps locks as long as
    their process lives, but a file server may forget them: `file_locks_lapse`."""

    expiry_ms: int = LEASE_EXPIRY_MS
    renew_ms: int = LEASE_RENEW_MS
    skew_ms: int = LEASE_CLOCK_SKEW_MS
    file_locks_lapse: bool = False


Purpose = Literal["query", "document"]


class TextEmbedder(Protocol):
    """Turns texts into vectors; `engine/embed.py` has those that there are."""

    model: str | None
    space: str | None

    def embed(self, text: str, *, dimension: int, purpose: Purpose = "query") -> Sequence[float]:
        """The vector of one text."""
        ...

    def embed_many(
        self, texts: Sequence[str], *, dimension: int, purpose: Purpose = "document"
    ) -> Sequence[Sequence[float]]:
        """The vectors of all texts, in their order."""
        ...


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a graph takes from outside, except its URI."""

    clock: Clock = msgspec.field(default_factory=SystemClock)
    ids: Ids = msgspec.field(default_factory=lambda: UlidFactory(SystemClock().now_us))
    steps: Steps = msgspec.field(default_factory=NoSteps)
    disk: Disk = msgspec.field(default_factory=RealDisk)
    durability: Durability = "power"
    cache_bytes: int | None = None  # that reading may keep; None: a share of the machine's
    lease: LeaseTerms = LeaseTerms()
    derived_rows_min: int = DERIVED_ROWS_MIN  # of a fragment that derived files are made of
    derived_bytes_max: int = DERIVED_BYTES_MAX  # of values that one of these is made of
    blob_bases: tuple[str, ...] | None = None  # of blobs outside the graph; None: anywhere
    embedder: TextEmbedder | None = None  # of `@embed` properties and texts; None: see each use


# --- ids that we make: ULIDs, one at a time in order, or many at once for the rows of a load ---

ULID_LENGTH: Final = 26
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: 5 bits a letter
_PAIRS: Final = [first + second for first in _ALPHABET for second in _ALPHABET]
_RANDOM_BITS: Final = 80
_COUNTER_BITS: Final = 35  # more rows than one call can have


class UlidFactory:
    """ULIDs that grow strictly within the process, also inside one millisecond.

    `now_us` gives microseconds since the epoch, `random_bits` so many bits. What has to differ from
    the ids of every other process takes them from the system, which also forked processes share.
    """

    def __init__(
        self, now_us: Callable[[], int], random_bits: Callable[[int], int] = secrets.randbits
    ) -> None:
        self._now_us = now_us
        self._random_bits = random_bits
        self._lock = threading.Lock()
        self._last = 0

    def ulid(self) -> str:
        with self._lock:
            moment = self._now_us() // 1000
            if moment > self._last >> _RANDOM_BITS:
                self._last = moment << _RANDOM_BITS | self._random_bits(_RANDOM_BITS)
            else:
                self._last += 1
            return _crockford(self._last)


def ulids(count: int) -> bytes:
    """The letters of so many ULIDs, one behind the other, in order.

    They differ from each other and, by 45 random bits a call, from everybody else's.
    """
    assert count < 1 << _COUNTER_BITS, "the counter of a call has an end"
    head = time.time_ns() // 1_000_000 << _RANDOM_BITS
    head |= secrets.randbits(_RANDOM_BITS - _COUNTER_BITS) << _COUNTER_BITS
    blocks = []
    for start in range(0, count, len(_PAIRS)):
        stem = _crockford(head + start)[:-2]
        blocks.append(stem + stem.join(_PAIRS[: count - start]))
    return "".join(blocks).encode()


def ulid_us(text: str) -> int | None:
    """The moment that a ULID holds, in microseconds; None if the text is no ULID."""
    if len(text) != ULID_LENGTH or not set(text) <= set(_ALPHABET):
        return None
    letters = text[: ULID_LENGTH - _RANDOM_BITS // 5]
    return sum(_ALPHABET.index(one) << 5 * at for at, one in enumerate(reversed(letters))) * 1000


def _crockford(value: int) -> str:
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(120, -1, -10)])
