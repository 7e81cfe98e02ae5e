"""Codes: a column as small numbers, equal where its values are equal in groups.

Grouping and distinct work on them instead of on values. After a commit they are made for the
changed positions alone.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from omnigraph.engine.arrow import Array, as_mask, int64_array, pa, pc
from omnigraph.engine.expr.order import equal_codes
from omnigraph.engine.read.memory.arrays import CHUNK_ROWS, Column, Mask, Positions, array_bytes
from omnigraph.storage.lance.columns import equal_floats

SIZED_CODES_MAX: Final = 1 << 16  # of more codes, it is not kept how many rows have each
_NOWHERE: Final = np.iinfo(np.int64).max


class Coded(msgspec.Struct, frozen=True, kw_only=True):
    """The codes of one column, from 0 to `count` - 1; null has -1, which is a number here.

    `first` is the first living position of each code, or -1 where no living row has it; `sizes` is
    how many living rows have each code, and last how many are null (None: there are too many codes
    to keep that). The codes at positions that are not alive mean nothing.
    """

    codes: Column
    first: Positions
    sizes: Positions | None
    count: int
    values: Column  # what the codes are of

    @classmethod
    def of(cls, values: Column, alive: Mask | None) -> Coded:
        codes = equal_codes(values.whole())
        count = int(codes.max(initial=-1)) + 1
        first = np.full(count + 1, -1, dtype=np.int64)  # the last cell stands for null
        sizes = None if count > SIZED_CODES_MAX else np.zeros(count + 1, dtype=np.int64)
        # Written backwards, so that the first position of each code stays.
        for start in reversed(range(0, len(codes), CHUNK_ROWS)):
            here = codes[start : start + CHUNK_ROWS]
            places = np.arange(len(here) - 1, -1, -1)
            if alive is not None:
                places = places[alive[start : start + CHUNK_ROWS][::-1]]
            living = here[places]
            first[living] = places + start
            if sizes is not None:
                np.add.at(sizes, living, 1)
        kept = Column.of(_narrow(codes, count))
        return cls(codes=kept, first=first[:-1], sizes=sizes, count=count, values=values)

    def buffers(self) -> dict[int, int]:
        """The size of each buffer that is held, by its address."""
        sizes = {} if self.sizes is None else array_bytes(self.sizes)
        return self.values.buffers() | self.codes.buffers() | array_bytes(self.first) | sizes

    def moved(self, values: Column, at: Positions, alive: Mask | None) -> Coded | None:
        """The codes of a later version of the column, which differs at these positions, sorted, by
        value or by being alive. None for lists, which Arrow cannot look up."""
        if pa.types.is_nested(values.base.type):
            return None
        living = np.ones(len(at), dtype=np.bool_) if alive is None else alive[at]
        fresh = np.full(len(at), -1, dtype=np.int64)
        fresh[living] = self._codes_of(values.take(at[living]))
        count = max(self.count, int(fresh.max(initial=-1)) + 1)
        changes, codes = _narrow(fresh, count), self.codes
        if changes.type != codes.base.type:
            codes = Column.of(codes.whole().cast(changes.type))
        codes = codes.patched(at, changes, values.length)
        first = np.full(count, _NOWHERE, dtype=np.int64)
        first[: self.count] = np.where(self.first < 0, _NOWHERE, self.first)
        known = at[at < self.codes.length]
        before = np.asarray(self.codes.take(known), dtype=np.int64)
        sizes = self._sizes_after(before, fresh[living], count)
        lost = before[(before >= 0) & (self.first[before] == known)] if self.count else before[:0]
        first_lost = int(first[lost].min(initial=_NOWHERE))
        first[lost] = _NOWHERE
        found = fresh >= 0
        np.minimum.at(first, fresh[found], at[found])
        if len(lost):
            _find_again(first, lost, codes, first_lost // CHUNK_ROWS, alive)
        first[first == _NOWHERE] = -1
        return Coded(codes=codes, first=first, sizes=sizes, count=count, values=values)

    def _sizes_after(self, before: Positions, after: Positions, count: int) -> Positions | None:
        """How many rows have each code, when some had these before and some have those now."""
        if self.sizes is None or count > SIZED_CODES_MAX:
            return None
        sizes = np.zeros(count + 1, dtype=np.int64)
        sizes[: self.count], sizes[-1] = self.sizes[:-1], self.sizes[-1]
        # What changes was alive before: a row that is gone never comes back to its position.
        np.subtract.at(sizes, before, 1)
        np.add.at(sizes, after, 1)
        assert sizes.min() >= 0, "a row was counted before it went"
        return sizes

    def _codes_of(self, values: Array) -> Positions:
        """The codes of other values of the column: those it had, and new ones behind them."""
        listed = equal_floats(values).dictionary_encode()
        known = equal_floats(self.values.take(self.first))
        # The few are looked for by the many: a table of the many would cost as much as new codes.
        hits = pc.index_in(known, value_set=listed.dictionary, skip_nulls=True)
        codes = np.flatnonzero(as_mask(hits.is_valid()))
        renamed = np.full(len(listed.dictionary) + 1, -1, dtype=np.int64)  # the last one is null's
        renamed[hits.drop_null().to_numpy()] = codes
        new = np.flatnonzero(renamed[:-1] < 0)
        renamed[new] = np.arange(self.count, self.count + len(new))
        return np.asarray(renamed[listed.indices.fill_null(-1).to_numpy(zero_copy_only=False)])


def _find_again(
    first: Positions, lost: Positions, codes: Column, start: int, alive: Mask | None
) -> None:
    """Write down the first living position of these codes, which are at no place before a chunk."""
    wanted = np.zeros(len(first) + 1, dtype=np.bool_)  # the last cell stands for null
    wanted[lost] = True
    left = len(lost)
    for number in range(start, codes.chunk_count):
        here = codes.chunk(number).to_numpy()
        hit = wanted[here]
        offset = number * CHUNK_ROWS
        if alive is not None:
            hit &= alive[offset : offset + len(here)]
        places = np.flatnonzero(hit)
        if not len(places):
            continue
        np.minimum.at(first, here[places], places + offset)
        wanted[here[places]] = False
        left = int(np.count_nonzero(wanted))
        if not left:
            return


def _narrow(codes: Positions, count: int) -> Array:
    """The codes in the narrowest type that has room for so many."""
    kind = pa.int32() if count > 1 << 15 else pa.int16() if count > 1 << 7 else pa.int8()
    return int64_array(codes).cast(kind)
