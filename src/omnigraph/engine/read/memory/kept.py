"""Values under one byte budget: what is counted, which of them stay, and what goes first.

A value is kept by its key: its kind, the table version it is of, and what else tells it from
others. Versions of one thing share most of their memory, and buffers that they share count once.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from omnigraph.engine.arrow import pa
from omnigraph.engine.read.memory.frame import Frame
from omnigraph.engine.read.memory.threads import end_turn
from omnigraph.model.limits import READ_CACHE_VALUES_MAX, READ_CACHE_VERSIONS_MAX

logger = logging.getLogger(__name__)

RETURNED_BYTES: Final = 64 << 20  # when so much is let go of, the allocator gives it back at once

# What a byte of each kind costs to make again, beside a byte of a column (about 2 ns).
REBUILD_COST: Final[Mapping[str, int]] = {
    "frame": 1,
    "vectors": 1,
    "topology": 4,
    "prints": 4,
    "text": 16,
}


class Sized(Protocol):
    def buffers(self) -> Mapping[int, int]:
        """The size of each buffer that is held, by its address."""


S = TypeVar("S", bound=Sized)
Key = tuple[Any, ...]  # the kind, the table, its branch and version, and more
Piece = tuple[Key, str | None]  # a column of a value, or the value without these


class Kept:
    """Values under a byte budget, each made by one thread while others wait for that one only.

    When all together are bigger than the budget, the piece goes first (a column of a frame, or a
    whole value) whose bytes, times the queries since it was last used, divided by the cost of a
    byte of its kind, are the most. What a running query has used stays until that is done. Of the
    versions of one thing only those stay that were used last: commits may come for ever.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._values: OrderedDict[Key, Sized] = OrderedDict()  # the last used are last
        self._rests_on: dict[Key, frozenset[int]] = {}  # lineages without which it is of no use
        self._used: dict[Key, int] = {}  # the query that used it last
        self._told: dict[Key, int] = {}  # bytes of each when it was last counted
        self._touched: set[Key] = set()  # those that may have grown since
        self._query = 0
        self._running: set[int] = set()
        self._making: dict[Key, threading.RLock] = {}
        self._lock = threading.Lock()

    def begin(self) -> int:
        """Begin a query: until it ends, what it has used is not let go of."""
        with self._lock:
            self._query += 1
            self._running.add(self._query)
            return self._query

    def end(self, query: int) -> None:
        with self._lock:
            self._running.remove(query)

    def get(self, key: Key) -> Any:
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._use(key)
            return found

    def get_or_make(
        self, key: Key, make: Callable[[], S], *, rests_on: frozenset[int] = frozenset()
    ) -> S:
        """The kept value, or a new one: made by one thread while the others wait for it. It goes
        when the last frame of a lineage that it rests on goes."""
        found: S | None = self.get(key)
        if found is not None:
            return found
        end_turn()  # making something takes long, and so does waiting for who makes it
        with self._lock:
            making = self._making.setdefault(key, threading.RLock())
        with making:
            found = self.get(key)
            if found is None:
                try:
                    found = make()
                    with self._lock:
                        self._values[key] = found
                        self._rests_on[key] = rests_on
                        self._use(key)
                        self._drop(self._superseded(key))
                finally:
                    with self._lock:
                        self._making.pop(key, None)
                self.trim()
            return found

    def matching(self, wanted: Callable[[Key], bool]) -> list[Any]:
        """The values whose key is wanted, the one used last first."""
        with self._lock:
            return [self._values[key] for key in reversed(self._values) if wanted(key)]

    def forget(self, keys: list[Key]) -> None:
        """Drop values that nobody needs any more."""
        with self._lock:
            self._drop(keys)

    def forget_where(self, unwanted: Callable[[Key], bool]) -> None:
        """Drop the values with such keys."""
        with self._lock:
            self._drop([key for key in self._values if unwanted(key)])

    def clear(self) -> None:
        with self._lock:
            self._drop([*self._values])

    def held_bytes(self, *, but: str | None = None) -> int:
        """What all values hold, or those of all kinds but one."""
        with self._lock:
            values = {key: value for key, value in self._values.items() if key[0] != but}
        return sum(_sizes(_buffers(values)).values())

    def bytes_by_kind(self) -> dict[str, int]:
        """What the values of each kind hold; buffers that two kinds share count for both."""
        with self._lock:
            values = dict(self._values)
        kinds: dict[str, dict[Key, Sized]] = {}
        for key, value in values.items():
            kinds.setdefault(str(key[0]), {})[key] = value
        return {kind: sum(_sizes(_buffers(own)).values()) for kind, own in kinds.items()}

    def trim(self, *, room: int = 0) -> None:
        """Let go of values, or of columns of frames, until the rest fits the budget and leaves so
        many bytes of it free, if that can be."""
        budget = max(0, self.budget_bytes - room)
        if self._bytes_at_most() <= budget:
            return
        with self._lock:
            values = dict(self._values)
        sizes = _sizes(_buffers(values))
        total = sum(sizes.values())
        if total <= budget:
            return
        pieces = _pieces(values)
        holders = Counter(at for held in pieces.values() for at in held)
        gone = 0
        for piece in self._worth_going(pieces, holders):
            if total - gone <= budget:
                break
            for left in self._let_go(piece, pieces):
                for at in pieces.pop(left):
                    holders[at] -= 1
                    gone += 0 if holders[at] else sizes.get(at, 0)
        logger.debug("let go", extra={"bytes": gone, "held": total - gone})
        if gone >= RETURNED_BYTES:
            pa.default_memory_pool().release_unused()

    # --- inside; with a lock held where nothing else is said ---

    def _use(self, key: Key) -> None:
        self._values.move_to_end(key)
        self._used[key] = self._query
        self._touched.add(key)

    def _superseded(self, newest: Key) -> list[Key]:
        """What goes for a new value: older versions of the same thing, or whatever was used
        longest ago."""
        same = [key for key in self._values if _thing(key) == _thing(newest)]
        return [
            *same[: max(0, len(same) - READ_CACHE_VERSIONS_MAX)],
            *[*self._values][: max(0, len(self._values) - READ_CACHE_VALUES_MAX)],
        ]

    def _drop(self, keys: list[Key]) -> list[Key]:
        """Drop these and what is of no use without them; gives all of them."""
        dropped = [key for key in keys if self._values.pop(key, None) is not None]
        if any(key[0] == "frame" for key in dropped):
            alive = {one.lineage for one in self._values.values() if isinstance(one, Frame)}
            orphans = [key for key in self._values if not self._rests_on[key] <= alive]
            dropped += [key for key in orphans if self._values.pop(key, None) is not None]
        for key in dropped:
            for known in (self._used, self._told, self._rests_on):
                known.pop(key, None)
            self._touched.discard(key)
        return dropped

    def _bytes_at_most(self) -> int:
        """At least as many bytes as are held: what versions share counts for each of them, and
        only values that were used are counted again. Takes the lock itself."""
        with self._lock:
            touched = {key: self._values[key] for key in self._touched}
            if not self._running:  # a query that is running may let them grow further
                self._touched.clear()
        told = {key: sum(held.values()) for key, held in _buffers(touched).items()}
        with self._lock:
            self._told |= {key: size for key, size in told.items() if key in self._values}
            return sum(self._told.values())

    def _worth_going(
        self, pieces: Mapping[Piece, Mapping[int, int]], holders: Mapping[int, int]
    ) -> list[Piece]:
        """What no running query has used, first what should go first. Takes the lock itself."""
        with self._lock:
            oldest = min(self._running, default=self._query + 1)
            used = {key: self._used.get(key, 0) for key, _ in pieces}
            newest = self._query
            cost = {key: self._cost(key) for key, name in pieces if name is None}

        def worth(piece: Piece) -> float:
            key, name = piece
            own = sum(size / holders[at] for at, size in pieces[piece].items())
            dear = REBUILD_COST.get(key[0], 1) if name else cost[key]
            return own * (1 + newest - used[key]) / dear

        idle = [piece for piece in pieces if used[piece[0]] < oldest]
        return sorted(idle, key=worth, reverse=True)

    def _cost(self, key: Key) -> int:
        """What a byte of the value costs to make again, with what rests on it."""
        value = self._values.get(key)
        kinds = {key[0]}
        if isinstance(value, Frame):
            kinds |= {other[0] for other, on in self._rests_on.items() if value.lineage in on}
        return max(REBUILD_COST.get(kind, 1) for kind in kinds)

    def _let_go(self, piece: Piece, pieces: Mapping[Piece, object]) -> list[Piece]:
        """Let go of a piece; gives all of these pieces that went with it. Takes the lock itself."""
        if piece not in pieces:  # it went with another
            return []
        key, name = piece
        with self._lock:
            value = self._values.get(key)
            if name is None:
                dropped = {*self._drop([key]), key}
                return [other for other in pieces if other[0] in dropped]
            if value is not None:
                self._touched.add(key)
        if isinstance(value, Frame):
            value.shed(name)
        return [piece]


def _thing(key: Key) -> Key:
    """What the key is of, whatever the version."""
    return (*key[:3], *key[4:])


def _buffers(values: Mapping[Key, Sized]) -> dict[Key, Mapping[int, int]]:
    return {key: value.buffers() for key, value in values.items()}


def _pieces(values: Mapping[Key, Sized]) -> dict[Piece, dict[int, int]]:
    """What can be let go of by itself: columns of frames, and values with what is left of them."""
    found: dict[Piece, dict[int, int]] = {}
    for key, held in _buffers(values).items():
        value = values[key]
        parts = value.parts() if isinstance(value, Frame) else {}
        found |= {(key, name): buffers for name, buffers in parts.items()}
        inside = {at for buffers in parts.values() for at in buffers}
        found[key, None] = {at: size for at, size in held.items() if at not in inside}
    return found


def _sizes(buffers: Mapping[Key, Mapping[int, int]]) -> dict[int, int]:
    return {at: size for held in buffers.values() for at, size in held.items()}
