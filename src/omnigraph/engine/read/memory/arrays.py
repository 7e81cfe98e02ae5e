"""Arrays by position: one column of values, an array that grows, and runs of equal keys.

A *position* is a small integer that stands for an entity in the frame of its table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, pa, picked

Positions = npt.NDArray[np.int64]
SmallPositions = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

NO_POSITIONS: Final[Positions] = np.empty(0, dtype=np.int64)
_SORTED_BY_HAND_MAX: Final = 1 << 14
PATCH_ROWS_MAX: Final = 8192  # a longer patch is folded into a new base


def spread(first: Positions, counts: Positions) -> tuple[Positions, Positions]:
    """For runs `first[i] … first[i] + counts[i] - 1`: the run number and the place, run by run."""
    rows = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    places = np.arange(total, dtype=np.int64) + np.repeat(first - (ends - counts), counts)
    return rows, places


def equal_runs(ordered: Positions, wanted: Positions) -> tuple[Positions, Positions]:
    """Where each wanted key stands among ordered keys: its first place, and how many there are."""
    first = np.searchsorted(ordered, wanted, side="left")
    return first, np.searchsorted(ordered, wanted, side="right") - first


def places_among(ordered: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> Positions:
    """Where each wanted value stands among different ordered ones, -1 where it does not."""
    if not len(ordered):
        return np.full(len(wanted), -1, dtype=np.int64)
    found = np.searchsorted(ordered, wanted)
    found[found == len(ordered)] = 0
    return np.where(ordered[found] == wanted, found, -1)


def distinct_sorted(values: Positions) -> Positions:
    """Every different value once, ascending."""
    if len(values) > _SORTED_BY_HAND_MAX:
        return np.unique(values)
    # Without being asked for indices, `np.unique` first imports numpy's masked arrays: 13 ms of the
    # first query of a process.
    ordered = np.sort(values)
    first = np.ones(len(ordered), dtype=np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def distinct_positions(positions: Positions, size: int) -> tuple[Positions, Positions]:
    """Every different position once (-1 last), and for each row the place of its own among them."""
    present = np.zeros(size + 1, dtype=np.bool_)  # the last cell stands for -1
    present[positions] = True
    found = np.flatnonzero(present)
    places = np.empty(size + 1, dtype=np.int64)
    places[found] = np.arange(len(found), dtype=np.int64)
    found[found == size] = -1
    return found, places[positions]


class Column(msgspec.Struct, frozen=True):
    """The values of one table column, at positions 0 to `length` - 1.

    A commit changes few rows: the next version of a column shares the `base` of the one before and
    carries only the changed positions. `patch_at` is sorted and wins over `base`.
    """

    base: Array
    length: int
    patch_at: Positions
    patch: Array

    @classmethod
    def of(cls, values: Array) -> Column:
        return cls(values, len(values), NO_POSITIONS, values.slice(0, 0))

    @property
    def nbytes(self) -> int:
        return int(self.base.nbytes + self.patch.nbytes)

    def take(self, positions: Positions) -> Array:
        """The values at the positions, in their order; -1 gives null."""
        if len(self.patch_at) == 0:
            return _take(self.base, positions)
        slot = places_among(self.patch_at, positions)
        patched = slot >= 0
        if not patched.any():
            return _take(self.base, positions)
        if patched.all():
            return _take(self.patch, slot)
        both = pa.concat_arrays(
            [_take(self.base, positions[~patched]), _take(self.patch, slot[patched])]
        )
        # Undo the split: the k-th unpatched row sits at k, the k-th patched one after all of them.
        place = np.where(
            patched, np.cumsum(patched) - 1 + np.count_nonzero(~patched), np.cumsum(~patched) - 1
        )
        return picked(both, place)

    def whole(self) -> Array:
        """All values, by position."""
        if len(self.patch_at) == 0:
            return self.base
        return self.take(np.arange(self.length, dtype=np.int64))

    def patched(self, at: Positions, values: Array, length: int) -> Column:
        """The same column with other values at these positions, some of them perhaps new."""
        order = np.argsort(at, kind="stable")
        at, values = at[order], picked(values, order)
        kept = ~np.isin(self.patch_at, at)
        merged_at = np.concatenate([self.patch_at[kept], at])
        merged = pa.concat_arrays([self.patch.filter(pa.array(kept)), values])
        order = np.argsort(merged_at, kind="stable")
        column = Column(self.base, length, merged_at[order], picked(merged, order))
        if len(merged_at) <= PATCH_ROWS_MAX:
            return column
        return Column.of(column.whole())


def _take(values: Array, positions: Positions) -> Array:
    if len(positions) and positions.min() < 0:
        return values.take(pa.array(positions, mask=positions < 0))
    return picked(values, positions)


class Growable:
    """An array that grows at its end; later versions share memory with earlier ones.

    Only the newest sharer may extend in place: anybody else copies first. A view never changes.
    """

    __slots__ = ("_shared", "length")

    def __init__(self, values: npt.NDArray[Any], shared: _Shared | None = None) -> None:
        self._shared = shared or _Shared(values, len(values))
        self.length = len(values)

    @property
    def view(self) -> npt.NDArray[Any]:
        return self._shared.data[: self.length]

    def extended(self, values: Sequence[Any] | npt.NDArray[Any]) -> Growable:
        """A longer array; this one keeps its length and content."""
        added = np.asarray(values, dtype=self._shared.data.dtype)
        if not len(added):
            return self
        end = self.length + len(added)
        shared = self._shared
        # The slot is claimed before it is filled, so that of two children only one shares.
        if shared.used == self.length and end <= len(shared.data):
            shared.used = end
        else:
            wider = np.empty(end + max(1024, end // 8), dtype=shared.data.dtype)
            wider[: self.length] = self.view
            shared = _Shared(wider, end)
        shared.data[self.length : end] = added
        return Growable(shared.data[:end], shared)


class _Shared(msgspec.Struct):
    data: npt.NDArray[Any]
    used: int
