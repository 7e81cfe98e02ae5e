"""Several frames as one: what a variable that may be of several types holds positions of.

The frames stand one after the other, by the names of their types: the positions of the second begin
where those of the first end. So an entity of any of the types is one dense number, and its order
among entities with the same id is that of the types' names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np

from omnigraph.engine.arrow import Array, DataType, pa
from omnigraph.engine.expr.order import Key, Window, order_rows
from omnigraph.engine.read.memory.arrays import NO_POSITIONS, Column, Positions
from omnigraph.engine.read.memory.codes import Coded
from omnigraph.engine.read.memory.frame import Frame
from omnigraph.engine.read.memory.selection import Selection


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """One of the frames: its type, and the stored column of each property that it has."""

    type_name: str
    frame: Frame
    columns: Mapping[str, str]


class Frames:
    """Frames one after the other, by type name. `kinds` are the types of all their columns."""

    def __init__(self, tables: Sequence[Table], kinds: Mapping[str, DataType]) -> None:
        self.tables = tuple(tables)
        self._kinds = kinds
        lengths = [table.frame.length for table in tables]
        self.starts: Positions = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        self._start_of = {
            table.type_name: int(start)
            for table, start in zip(tables, self.starts[:-1], strict=True)
        }

    @property
    def length(self) -> int:
        return int(self.starts[-1])

    def start_of(self, type_name: str) -> int | None:
        """Where the positions of a type begin; None if it is not among these."""
        return self._start_of.get(type_name)

    # --- positions ---

    def which(self, positions: Positions) -> Positions:
        """The number of the frame that each position is of; -1 for none."""
        found = np.searchsorted(self.starts[1:], positions, side="right")
        return np.where(positions < 0, -1, found)

    def split(self, positions: Positions) -> Iterator[tuple[Table, Positions, Positions]]:
        """For each frame that occurs: which of the positions are of it, and these within it."""
        if len(self.tables) == 1:
            rows = np.flatnonzero(positions >= 0)
            if len(rows):
                yield self.tables[0], rows, positions[rows]
            return
        which = self.which(positions)
        for number, table in enumerate(self.tables):
            rows = np.flatnonzero(which == number)
            if len(rows):
                yield table, rows, positions[rows] - self.starts[number]

    def placed(self, positions: Positions, source: Frames) -> Positions:
        """Positions of other frames as positions of these; -1 for a type that is not here."""
        if source is self:
            return positions
        shifts = [
            (self._start_of.get(table.type_name), int(start))
            for table, start in zip(source.tables, source.starts[:-1], strict=True)
        ]
        if len(shifts) == 1 and shifts[0][0] is not None:
            return positions + (shifts[0][0] - shifts[0][1])
        by = np.asarray([0 if here is None else here - start for here, start in shifts] + [0])
        lost = np.asarray([here is None for here, _ in shifts] + [True])
        which = source.which(positions)
        return np.where(lost[which], -1, positions + by[which])

    def living(self) -> Positions:
        """Every living position."""
        found = [
            table.frame.living().positions() + start
            for table, start in zip(self.tables, self.starts[:-1], strict=True)
        ]
        return np.concatenate([NO_POSITIONS, *found])

    def lookup(self, ids: Sequence[str]) -> Positions:
        """The living positions of these ids, in any of the frames; -1 where one has none."""
        found = []
        for table, start in zip(self.tables, self.starts[:-1], strict=True):
            here = table.frame.lookup(ids)
            found.append(np.where(here >= 0, here + start, -1))
        return np.concatenate([NO_POSITIONS, *found])

    def ranks(self, positions: Positions) -> Positions:
        """Numbers in the order of ids, then of types, among these positions."""
        some, back = np.unique(positions, return_inverse=True)
        keys = [Key.of(self.fetch("id", some), descending=False)]  # then by position
        order = order_rows(keys, len(some), Window())
        ranks = np.empty(len(some), dtype=np.int64)
        ranks[order] = np.arange(len(some), dtype=np.int64)
        return ranks[back]

    # --- columns ---

    def type_names(self, positions: Positions) -> Array:
        names = pa.array([table.type_name for table in self.tables])
        return Column.of(names).take(self.which(positions))

    def fetch(self, name: str, rows: Positions | Selection) -> Array:
        """The values at the positions; null at -1 and for types without such a property."""
        positions = rows.positions() if isinstance(rows, Selection) else rows
        kind = self._kinds[name]
        places = np.full(len(positions), -1, dtype=np.int64)
        found, total = [], 0
        for table, at, local in self.split(positions):
            column = table.columns.get(name)
            if column is not None:
                values = table.frame.fetch(column, local)
                found.append(values if values.type == kind else values.cast(kind))
                places[at] = np.arange(total, total + len(at), dtype=np.int64)
                total += len(at)
        if not found:
            return pa.nulls(len(positions), kind)
        return Column.of(pa.concat_arrays(found)).take(places)

    def held(self, name: str, rows: int) -> None:
        """Let each frame read its whole column now if it is worth it; there is none of all."""
        for table in self.tables:
            column = table.columns.get(name)
            if column is not None:
                table.frame.held(column, rows)

    def codes_for(self, _name: str, _rows: int) -> Coded | None:
        """Values of several columns have no codes in common."""
        return None
