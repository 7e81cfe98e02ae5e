"""Arrays by position: one column of values, an array that grows, and runs of equal keys.

A *position* is a small integer that stands for an entity in the frame of its table.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from math import isnan
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, booleans, counted, few_picked, pa, pc, picked

Positions = npt.NDArray[np.int64]
SmallPositions = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]
RowIds = npt.NDArray[np.uint64]

NO_POSITIONS: Final[Positions] = np.empty(0, dtype=np.int64)
_SORTED_BY_HAND_MAX: Final = 1 << 14
CHUNK_ROWS: Final = 1 << 17  # the unit in which a column is read whole
SLICED_VALUES_MAX: Final = 4  # so few values are copied one by one
PATCH_ROWS_MAX: Final = 8192  # a longer patch is folded into a new base
PATCH_RUNS_MAX: Final = 256  # so many runs of changed rows of a chunk are copied run by run


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


def array_bytes(array: npt.NDArray[Any]) -> dict[int, int]:
    """The size of the array by its address."""
    return {array.__array_interface__["data"][0]: array.nbytes}


def places_among(ordered: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> Positions:
    """Where each wanted value stands among different ordered ones, -1 where it does not."""
    if not len(ordered):
        return np.full(len(wanted), -1, dtype=np.int64)
    found = np.searchsorted(ordered, wanted)
    found[found == len(ordered)] = 0
    return np.where(ordered[found] == wanted, found, -1)


def distinct_sorted(values: Positions) -> Positions:
    """Every different value once, ascending."""
    if len(values) < 2:
        return values
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


class Bounds(msgspec.Struct, frozen=True):
    """What is known of a chunk without reading it. `least` and `most` are None if there is no value
    other than null and NaN; dates and moments are the numbers that they are stored as."""

    least: Any
    most: Any
    nulls: int
    has_nan: bool

    @classmethod
    def of(cls, values: Array) -> Bounds | None:
        """None for lists and other types without an order."""
        values = counted(values)
        if pa.types.is_nested(values.type) or pa.types.is_null(values.type):
            return None
        has_nan = False
        if pa.types.is_floating(values.type):
            has_nan = pc.any(pc.is_nan(values)).as_py() is True
        ends = pc.min_max(values)  # knows neither null nor NaN, unless there is nothing else
        least, most = ends["min"].as_py(), ends["max"].as_py()
        if has_nan and isnan(least):
            least = most = None
        return cls(least, most, values.null_count, has_nan)


class Column:
    """The values of one table column, at positions 0 to `length` - 1.

    A commit changes few rows: the next version of a column shares the `base` of the one before and
    carries only the changed positions. `patch_at` is sorted and wins over `base`; every position
    behind the base is in it. Read whole, a column is a row of chunks of `CHUNK_ROWS` values, of
    which a commit touches few. Never changes; what is computed from it is kept, by any thread.
    """

    __slots__ = ("_bounds", "_chunks", "_folded", "_held", "base", "length", "patch", "patch_at")

    def __init__(self, base: Array, length: int, patch_at: Positions, patch: Array) -> None:
        self.base = base
        self.length = length
        self.patch_at = patch_at
        self.patch = patch
        self._chunks: dict[int, Array] = {}  # those with patches, once they were asked for
        self._bounds: dict[int, Bounds | None] = {}
        # Everything in one array, once somebody needed that.
        self._folded: Array | None = None if len(patch_at) else base
        self._held: tuple[int, dict[int, int]] = (-1, {})  # for how many arrays, and the sizes

    @classmethod
    def of(cls, values: Array) -> Column:
        return cls(values, len(values), NO_POSITIONS, values.slice(0, 0))

    @property
    def nbytes(self) -> int:
        return sum(self.buffers().values())

    def buffers(self) -> dict[int, int]:
        """What is held: the size of each buffer by its address, so that sharers count it once."""
        made = [*self._chunks.copy().values(), *([] if self._folded is None else [self._folded])]
        known, held = self._held
        if known != len(made):
            arrays = chain.from_iterable(one.buffers() for one in (self.base, self.patch, *made))
            held = {buffer.address: buffer.size for buffer in arrays if buffer is not None}
            held |= array_bytes(self.patch_at)
            self._held = (len(made), held)
        return held

    def take(self, positions: Positions) -> Array:
        """The values at the positions, in their order; -1 gives null."""
        if self._folded is not None:
            return _take(self._folded, positions)
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

    def value(self, position: int) -> Any:
        """One value."""
        if self._folded is None:
            slot = int(np.searchsorted(self.patch_at, position))
            if slot < len(self.patch_at) and self.patch_at[slot] == position:
                return self.patch[slot].as_py()
        return (self.base if self._folded is None else self._folded)[position].as_py()

    @property
    def chunk_count(self) -> int:
        return -(-self.length // CHUNK_ROWS)

    def chunk(self, number: int) -> Array:
        """The values of one chunk: a slice of the base where nothing in it has changed."""
        first = number * CHUNK_ROWS
        last = min(first + CHUNK_ROWS, self.length)
        assert first < last, "a chunk of the column"
        if self._folded is not None:
            return self._folded.slice(first, last - first)
        kept = self._chunks.get(number)
        if kept is not None:
            return kept
        start, end = np.searchsorted(self.patch_at, [first, last])
        if start == end:
            return self.base.slice(first, last - first)
        known = self.base.slice(first, CHUNK_ROWS) if first < len(self.base) else self.base[:0]
        patch = self.patch.slice(start, end - start)
        made = _with_patch(known, self.patch_at[start:end] - first, patch, last - first)
        self._chunks[number] = made
        return made

    def bounds(self, number: int) -> Bounds | None:
        """The bounds of one chunk; None where the type has no order."""
        if number not in self._bounds:
            self._bounds[number] = Bounds.of(self.chunk(number))
        return self._bounds[number]

    def whole(self) -> Array:
        """All values in one array: where anything has changed a copy, once. See `chunk`."""
        if self._folded is None:
            parts = [self.chunk(number) for number in range(self.chunk_count)]
            self._folded = pa.concat_arrays(parts)
        return self._folded

    def patched(self, at: Positions, values: Array, length: int) -> Column:
        """The same column with other values at these positions, some of them perhaps new."""
        if self._folded is not None and len(self.patch_at):
            return self._begun_anew().patched(at, values, length)
        if _ascend(at) and (not len(self.patch_at) or self.patch_at[-1] < at[0]):
            # Most often new rows come behind all others: the rest is for what comes among them.
            merged_at = np.concatenate([self.patch_at, at])
            column = Column(self.base, length, merged_at, pa.concat_arrays([self.patch, values]))
        else:
            kept = ~np.isin(self.patch_at, at)
            merged_at = np.concatenate([self.patch_at[kept], at])
            merged = pa.concat_arrays([self.patch.filter(booleans(kept)), values])
            order = np.argsort(merged_at, kind="stable")
            column = Column(self.base, length, merged_at[order], picked(merged, order))
        touched = {*(at // CHUNK_ROWS).tolist()}
        # Copied first, at one blow: another thread may just be adding to them.
        chunks, bounds = self._chunks.copy(), self._bounds.copy()
        column._chunks.update({n: kept for n, kept in chunks.items() if n not in touched})
        column._bounds.update({n: kept for n, kept in bounds.items() if n not in touched})
        return column if len(merged_at) <= PATCH_ROWS_MAX else column._begun_anew()

    def _begun_anew(self) -> Column:
        """The same column without a patch."""
        column = Column(self.whole(), self.length, NO_POSITIONS, self.patch.slice(0, 0))
        column._bounds.update(self._bounds.copy())
        return column


def _with_patch(base: Array, at: Positions, patch: Array, length: int) -> Array:
    """The values of the base, those of the patch at its places (ascending), in one array."""
    breaks = np.flatnonzero(np.diff(at) != 1) + 1
    if len(breaks) > PATCH_RUNS_MAX:
        place = np.arange(length, dtype=np.int64)
        place[at] = np.arange(len(at)) + len(base)
        return picked(pa.concat_arrays([base, patch]), place)
    # Few runs are copied as pieces, which is ten times as fast as value by value.
    parts, done = [], 0
    for first, last in pairwise([0, *breaks.tolist(), len(at)]):
        start = int(at[first])
        parts += [base.slice(done, start - done), patch.slice(first, last - first)]
        done = start + last - first
    return pa.concat_arrays([*parts, base.slice(min(done, len(base)))])


def _ascend(positions: Positions) -> bool:
    """Whether there are some, and each is greater than the one before."""
    return len(positions) > 0 and bool((positions[1:] > positions[:-1]).all())


def _take(values: Array, positions: Positions) -> Array:
    if 0 < len(positions) <= SLICED_VALUES_MAX:
        return few_picked(values, positions.tolist())
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


class RowIdList:
    """Row ids in ascending order, growing at the end. Without gaps they are only a first one and a
    length: eight bytes a row less."""

    __slots__ = ("_first", "_listed", "length")

    def __init__(self, first: int, length: int, listed: Growable | None) -> None:
        self._first = first
        self._listed = listed
        self.length = length

    @classmethod
    def of(cls, row_ids: RowIds) -> RowIdList:
        assert len(row_ids) < 2 or row_ids[0] < row_ids[-1], "row ids ascend"
        first, length = int(row_ids[0]) if len(row_ids) else 0, len(row_ids)
        # They all differ: if the last is only as far away as the others are many, none is missing.
        dense = not length or int(row_ids[-1]) - first == length - 1
        return cls(first, length, None if dense else Growable(row_ids))

    def buffers(self) -> dict[int, int]:
        """The size of each buffer that is held, by its address."""
        if self._listed is None:
            return {}
        return array_bytes(self._listed.view)

    @property
    def first_of_range(self) -> int | None:
        """The first row id if the others follow it without gaps."""
        return self._first if self._listed is None else None

    @classmethod
    def ranging(cls, first: int, length: int) -> RowIdList:
        """Row ids without gaps."""
        return cls(first, length, None)

    def all(self) -> RowIds:
        """Every row id."""
        if self._listed is None:
            return np.arange(self._first, self._first + self.length, dtype=np.uint64)
        return self._listed.view

    def take(self, places: Positions) -> RowIds:
        """The row ids at these places."""
        if self._listed is None:
            return (places + self._first).astype(np.uint64)
        return np.asarray(self._listed.view[places])

    def places(self, row_ids: RowIds) -> Positions:
        """The places of these row ids, -1 for those that are not here."""
        if self._listed is not None:
            return places_among(self._listed.view, row_ids)
        places = row_ids.astype(np.int64)
        places -= self._first
        if len(places) and (places.min() < 0 or places.max() >= self.length):
            places[(places < 0) | (places >= self.length)] = -1
        return places

    def equal(self, row_ids: RowIds) -> bool:
        """Whether these ascending row ids are the same."""
        if self.length != len(row_ids):
            return False
        if self._listed is not None:
            return np.array_equal(self._listed.view, row_ids)
        ends = (self._first, self._first + self.length - 1)
        return not len(row_ids) or (int(row_ids[0]), int(row_ids[-1])) == ends

    def extended(self, row_ids: RowIds) -> RowIdList | None:
        """With these ascending ones behind; None if they do not all come after the last."""
        if not len(row_ids):
            return self
        if not self.length:
            return RowIdList.of(row_ids)
        last = int(self.take(np.asarray([self.length - 1]))[0])
        if int(row_ids[0]) <= last:
            return None
        length = self.length + len(row_ids)
        if self._listed is None and int(row_ids[-1]) - self._first == length - 1:
            return RowIdList(self._first, length, None)
        listed = self._listed or Growable(self.all())
        return RowIdList(self._first, length, listed.extended(row_ids))
