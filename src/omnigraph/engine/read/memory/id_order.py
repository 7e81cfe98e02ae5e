"""Which id of a frame comes first: found out when it is asked for, and followed through commits.

Positions keep their ids for ever and new ones come at the end, so the order of a longer frame is
the order before it with few places put in. Ids that were loaded in their order, as many are, have
the order of their positions: this is seen in one pass and then costs nothing.
"""

from __future__ import annotations

import threading
from typing import Final

import numpy as np

from omnigraph.engine.arrow import Array, pc, picked
from omnigraph.engine.read.memory.arrays import CHUNK_ROWS, Column, Positions, SmallPositions

MERGED_SHARE: Final = 64  # more new ids than this part of the known ones are sorted with them


class IdOrder:
    """The order of the ids of one frame. Every call gets the column of these ids."""

    __slots__ = ("_ascending", "_lock", "_order", "_ranks")

    def __init__(self) -> None:
        # How many positions were looked at, and how many of these, from the first on, ascend.
        self._ascending: tuple[int, int] = (0, 0)
        self._order: tuple[int, SmallPositions] | None = None  # of so many positions
        self._ranks: SmallPositions | None = None
        self._lock = threading.RLock()  # held by who needs the order; nobody else asks for it

    def moved(self) -> IdOrder:
        """What is known, for a frame that has these positions and more."""
        newer = IdOrder()
        newer._ascending, newer._order = self._ascending, self._order
        return newer

    def arrays(self) -> list[SmallPositions]:
        """What is held in memory."""
        held = [self._order[1]] if self._order else []
        return held if self._ranks is None else [*held, self._ranks]

    def ascends(self, ids: Column) -> bool:
        """Whether every id is greater than the one at the position before."""
        seen, ascending = self._ascending
        if seen < ids.length:
            with self._lock:
                if seen == ascending and _ascend(ids, max(0, seen - 1)):
                    ascending = ids.length
                self._ascending = (ids.length, ascending)
        return ascending == ids.length

    def order(self, ids: Column) -> SmallPositions:
        """Every position, by the ids."""
        with self._lock:
            if self.ascends(ids):
                return np.arange(ids.length, dtype=np.int32)
            before = self._order
            if before is None:
                ascending = self._ascending[1]
                before = (ascending, np.arange(ascending, dtype=np.int32))
            if before[0] < ids.length:
                before = self._order = (ids.length, _ordered(ids, *before))
            return before[1]

    def ranks(self, ids: Column) -> SmallPositions:
        """By position: the place of the id among all ids."""
        with self._lock:
            if self._ranks is None:
                order = self.order(ids)
                self._ranks = np.empty_like(order)
                self._ranks[order] = np.arange(len(order), dtype=np.int32)
            return self._ranks


def _ascend(ids: Column, first: int) -> bool:
    """Whether ids ascend from this position on."""
    last = None
    for number in range(first // CHUNK_ROWS, ids.chunk_count):
        chunk = ids.chunk(number)
        if last is not None and not pc.less(last, chunk[0]).as_py():
            return False
        # A null is the id of a position that is empty: nothing is said about its neighbours.
        greater = pc.less(chunk.slice(0, len(chunk) - 1), chunk.slice(1))
        if pc.all(greater, skip_nulls=False, min_count=0).as_py() is not True:
            return False
        last = chunk[-1]
    return True


def _ordered(ids: Column, known: int, order: SmallPositions) -> SmallPositions:
    """All positions by id, when the order of the first ones is known."""
    nulls = ids.base.null_count or ids.patch.null_count  # of deleted rows: no order knows them
    if nulls or (ids.length - known) * MERGED_SHARE > known:
        return np.asarray(pc.sort_indices(ids.whole()), dtype=np.int32)
    fresh = ids.take(np.arange(known, ids.length, dtype=np.int64))
    by_id = np.asarray(pc.sort_indices(fresh), dtype=np.int64)
    places = _places(ids, order, picked(fresh, by_id))
    return np.insert(order, places, (by_id + known).astype(np.int32))


def _places(ids: Column, order: SmallPositions, fresh: Array) -> Positions:
    """Before which place of the order each of these ids belongs: all halve their part at once."""
    low = np.zeros(len(fresh), dtype=np.int64)
    high = np.full(len(fresh), len(order), dtype=np.int64)
    while (looking := low < high).any():
        middle = (low + high) // 2
        probes = ids.take(order[np.where(looking, middle, 0)].astype(np.int64))
        less = pc.less(probes, fresh).to_numpy(zero_copy_only=False)
        low = np.where(looking & less, middle + 1, low)
        high = np.where(looking & ~less, middle, high)
    return low
