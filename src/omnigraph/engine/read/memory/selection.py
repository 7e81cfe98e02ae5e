"""Positions of a frame that are not written down: a mask a chunk.

Whole-table questions are answered a chunk at a time; most of them need the values that a mask
leaves, or only how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from omnigraph.engine.arrow import Array, as_mask, booleans, pa
from omnigraph.engine.read.memory.arrays import (
    CHUNK_ROWS,
    NO_POSITIONS,
    Column,
    Mask,
    Positions,
    distinct_sorted,
)


class Part(msgspec.Struct, frozen=True):
    """The positions of one chunk that a mask keeps: Arrow's booleans without null. Without a mask,
    all of them."""

    number: int
    length: int
    mask: Array | None = None

    @property
    def count(self) -> int:
        return self.length if self.mask is None else int(self.mask.true_count)

    def positions(self) -> Positions:
        first = self.number * CHUNK_ROWS
        if self.mask is None:
            return np.arange(first, first + self.length, dtype=np.int64)
        return np.flatnonzero(as_mask(self.mask)) + first

    def positions_or_run(self) -> Positions | range:
        """The same; all of a chunk as a range."""
        first = self.number * CHUNK_ROWS
        return range(first, first + self.length) if self.mask is None else self.positions()

    def narrowed(self, mask: Array) -> Part | None:
        """Those of these positions that a mask of them keeps; None if it keeps none."""
        count = mask.true_count
        if count == self.count:
            return self
        if not count:
            return None
        if self.mask is None:
            return Part(self.number, self.length, mask)
        whole = np.zeros(self.length, dtype=np.bool_)
        whole[as_mask(self.mask)] = as_mask(mask)
        return Part(self.number, self.length, booleans(whole))

    def of(self, column: Column) -> Array:
        """The values of the column at these positions."""
        values = column.chunk(self.number)
        return values if self.mask is None else values.filter(self.mask)


class Selection(msgspec.Struct, frozen=True):
    """Ascending positions of a frame of `length` positions, chunk by chunk."""

    length: int
    parts: Sequence[Part]  # by number; chunks of which nothing is kept are left out
    count: int

    @classmethod
    def of(cls, length: int, parts: Sequence[Part]) -> Selection:
        return cls(length, parts, sum(part.count for part in parts))

    @classmethod
    def without(cls, length: int, gone: Positions) -> Selection:
        """Every position but these, which ascend."""
        parts = []
        for number, first in enumerate(range(0, length, CHUNK_ROWS)):
            here = min(CHUNK_ROWS, length - first)
            start, end = np.searchsorted(gone, [first, first + here]).tolist()
            mask = None
            if start < end:
                kept = np.ones(here, dtype=np.bool_)
                kept[gone[start:end] - first] = False
                mask = booleans(kept)
            if end - start < here:
                parts.append(Part(number, here, mask))
        return cls(length, parts, length - len(gone))

    @classmethod
    def where(cls, kept: Mask) -> Selection:
        """Every position that a mask keeps."""
        return cls.without(len(kept), np.flatnonzero(~kept))

    @property
    def everything(self) -> bool:
        return self.count == self.length

    def positions(self) -> Positions:
        if self.everything:
            return np.arange(self.length, dtype=np.int64)
        return np.concatenate([NO_POSITIONS, *(part.positions() for part in self.parts)])

    def mask(self) -> Mask:
        """For every position of the frame, whether it is one of these."""
        kept = np.zeros(self.length, dtype=np.bool_)
        for part in self.parts:
            first = part.number * CHUNK_ROWS
            kept[first : first + part.length] = True if part.mask is None else as_mask(part.mask)
        return kept

    def at(self, rows: Positions) -> Positions:
        """The positions of these rows, in any order; only their chunks are looked at."""
        if self.everything:
            return rows
        ends = np.cumsum([part.count for part in self.parts])
        chosen = np.searchsorted(ends, rows, side="right")
        found = np.empty(len(rows), dtype=np.int64)
        for number in distinct_sorted(chosen).tolist():
            part, here = self.parts[number], np.flatnonzero(chosen == number)
            found[here] = part.positions()[rows[here] - (ends[number] - part.count)]
        return found

    def among(self, positions: Positions) -> Positions:
        """Those of the ascending positions that are of these; only their chunks are looked at."""
        if self.everything:
            return positions
        kept = []
        for part in self.parts:
            first = part.number * CHUNK_ROWS
            start, end = np.searchsorted(positions, [first, first + part.length]).tolist()
            here = positions[start:end]
            if part.mask is not None and len(here):
                here = here[as_mask(part.mask)[here - first]]
            kept.append(here)
        return np.concatenate([NO_POSITIONS, *kept])

    def values(self, column: Column) -> Array:
        """The values of the column at these positions."""
        if self.everything:
            return column.whole()
        kept = [part.of(column) for part in self.parts]
        if len(kept) == 1:
            return kept[0]
        return pa.concat_arrays(kept) if kept else column.base.slice(0, 0)
