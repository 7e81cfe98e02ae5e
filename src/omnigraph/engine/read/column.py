"""One column of a frame: values by position, with a small patch over a big base.

A commit changes few rows. The next version of a column shares the base of the one before and only
carries the changed positions, so that moving forward costs what changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, pa

Positions = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NO_POSITIONS: Final[Positions] = np.empty(0, dtype=np.int64)
PATCH_ROWS_MAX: Final = 8192  # a longer patch is folded into a new base


@dataclass(frozen=True, slots=True)
class Column:
    """Values at positions 0 to `length` - 1. `patch_at` is sorted and wins over `base`."""

    base: Array
    length: int
    patch_at: Positions
    patch: Array

    @classmethod
    def of(cls, values: Array) -> Column:
        return cls(values, len(values), _NO_POSITIONS, values.slice(0, 0))

    @property
    def nbytes(self) -> int:
        return int(self.base.nbytes + self.patch.nbytes)

    def take(self, positions: Positions) -> Array:
        """The values at the positions, in their order; -1 gives null."""
        if len(self.patch_at) == 0:
            return _take(self.base, positions)
        slot = np.searchsorted(self.patch_at, positions)
        slot[slot == len(self.patch_at)] = 0
        patched = self.patch_at[slot] == positions
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
        return both.take(pa.array(place))

    def whole(self) -> Array:
        """All values, by position."""
        if len(self.patch_at) == 0:
            return self.base
        return self.take(np.arange(self.length, dtype=np.int64))

    def patched(self, at: Positions, values: Array, length: int) -> Column:
        """The same column with other values at these positions, some of them perhaps new."""
        order = np.argsort(at, kind="stable")
        at, values = at[order], values.take(pa.array(order))
        kept = ~np.isin(self.patch_at, at)
        merged_at = np.concatenate([self.patch_at[kept], at])
        merged = pa.concat_arrays([self.patch.filter(pa.array(kept)), values])
        order = np.argsort(merged_at, kind="stable")
        column = Column(self.base, length, merged_at[order], merged.take(pa.array(order)))
        if len(merged_at) <= PATCH_ROWS_MAX:
            return column
        return Column.of(column.whole())


def _take(values: Array, positions: Positions) -> Array:
    if len(positions) and positions.min() < 0:
        return values.take(pa.array(positions, mask=positions < 0))
    return values.take(pa.array(positions))


def one_array(values: Any) -> Array:
    """A column of an Arrow table as a single array."""
    if isinstance(values, pa.ChunkedArray):
        return values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    return values


class Growable:
    """An array that grows at its end; later versions share memory with earlier ones.

    Only the newest sharer may extend in place: anybody else copies first. A view never changes.
    """

    __slots__ = ("_shared", "length")

    def __init__(self, values: npt.NDArray[Any], shared: _Shared | None = None) -> None:
        self._shared = shared or _Shared(values)
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
            room = np.empty(end + max(1024, end // 8), dtype=shared.data.dtype)
            room[: self.length] = self.view
            shared = _Shared(room)
            shared.used = end
        shared.data[self.length : end] = added
        return Growable(shared.data[:end], shared)


class _Shared:
    __slots__ = ("data", "used")

    def __init__(self, data: npt.NDArray[Any]) -> None:
        self.data = data
        self.used = len(data)
