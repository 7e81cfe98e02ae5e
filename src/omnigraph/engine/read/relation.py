"""Match rows as parallel arrays: one array of positions per variable, -1 where there is none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from omnigraph.engine.expr.order import row_keys
from omnigraph.engine.read.column import Mask, Positions


@dataclass(frozen=True, slots=True)
class Relation:
    """`count` rows; every array has that length. Without variables it is just a number of rows."""

    count: int
    columns: Mapping[str, Positions]

    @classmethod
    def of(cls, var: str, positions: Positions) -> Relation:
        return cls(len(positions), {var: positions})

    @classmethod
    def one_row(cls) -> Relation:
        """The relation that changes nothing when crossed with another."""
        return cls(1, {})

    def __getitem__(self, var: str) -> Positions:
        return self.columns[var]

    def __contains__(self, var: str) -> bool:
        return var in self.columns

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())

    def take(self, rows: Positions) -> Relation:
        """These rows, in this order, perhaps more than once."""
        return Relation(len(rows), {var: column[rows] for var, column in self.columns.items()})

    def take_slice(self, rows: slice) -> Relation:
        """A run of rows."""
        first, last, _ = rows.indices(self.count)
        if last - first == self.count:
            return self
        taken = {var: column[first:last] for var, column in self.columns.items()}
        return Relation(max(0, last - first), taken)

    def where(self, keep: Mask) -> Relation:
        if keep.all():
            return self
        count = int(np.count_nonzero(keep))
        return Relation(count, {var: column[keep] for var, column in self.columns.items()})

    def with_column(self, var: str, positions: Positions) -> Relation:
        return Relation(self.count, {**self.columns, var: positions})

    def only(self, variables: Iterable[str]) -> Relation:
        kept = {var: self.columns[var] for var in variables if var in self.columns}
        return Relation(self.count, kept)

    def crossed(self, other: Relation) -> Relation:
        """Every row of this with every row of the other."""
        left = np.repeat(np.arange(self.count, dtype=np.int64), other.count)
        right = np.tile(np.arange(other.count, dtype=np.int64), self.count)
        return self.take(left).beside(other.take(right))

    def beside(self, other: Relation) -> Relation:
        """Row by row, the variables of both."""
        assert self.count == other.count, "rows that stand side by side are equally many"
        return Relation(self.count, {**self.columns, **other.columns})

    def distinct(self) -> tuple[Relation, Positions]:
        """Every different row once, and for each row of this the number of its twin there."""
        if not self.columns:
            return Relation(min(self.count, 1), {}), np.zeros(self.count, dtype=np.int64)
        keys = row_keys([self.columns[var] for var in self.columns])
        _, first, back = np.unique(keys, return_index=True, return_inverse=True)
        return self.take(first), np.asarray(back, dtype=np.int64)


def joined_rows(left: Positions, right: Positions) -> tuple[Positions, Positions]:
    """Pairs of row numbers with equal keys, by the left row first."""
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    first = np.searchsorted(ordered, left, side="left")
    counts = np.searchsorted(ordered, left, side="right") - first
    rows = np.repeat(np.arange(len(left), dtype=np.int64), counts)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    flat = np.arange(total, dtype=np.int64) + np.repeat(first - (ends - counts), counts)
    return rows, order[flat]


def distinct_positions(positions: Positions, size: int) -> tuple[Positions, Positions]:
    """Every different position once (-1 last), and for each row the place of its own among them."""
    present = np.zeros(size + 1, dtype=np.bool_)  # the last cell stands for -1
    present[positions] = True
    found = np.flatnonzero(present)
    places = np.empty(size + 1, dtype=np.int64)
    places[found] = np.arange(len(found), dtype=np.int64)
    found[found == size] = -1
    return found, places[positions]
