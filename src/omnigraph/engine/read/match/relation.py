"""The rows of a match: an array of positions per variable, and the values that expressions see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias

import msgspec
import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, picked
from omnigraph.engine.expr.evaluate import Rows, Search, evaluate
from omnigraph.engine.expr.order import row_keys
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.memory.arrays import Mask, Positions, equal_runs, spread
from omnigraph.engine.read.search import search

# A column of a relation that is no variable: for every row, the number of the row of an earlier
# relation that it came from. What was computed for those rows can be found again by it. The name of
# the column is how many blocks deep that relation was.
RowNumber: TypeAlias = int
WHOLE_MATCH: Final[RowNumber] = -1  # the rows of the whole match, before any was left out


class Relation(msgspec.Struct, frozen=True):
    """`count` rows of a match: an array of that length per variable, with the position of each
    row's entity or -1 where there is none. Without variables it is just a number of rows."""

    count: int
    columns: Mapping[str | RowNumber, Positions]

    @classmethod
    def of(cls, var: str, positions: Positions) -> Relation:
        return cls(len(positions), {var: positions})

    def __getitem__(self, var: str | RowNumber) -> Positions:
        return self.columns[var]

    def __contains__(self, var: str | RowNumber) -> bool:
        return var in self.columns

    def take(self, rows: Positions) -> Relation:
        """These rows, in this order, perhaps more than once."""
        return Relation(len(rows), {var: column[rows] for var, column in self.columns.items()})

    def slice(self, first: int, last: int) -> Relation:
        """A run of rows."""
        return Relation(last - first, {var: rows[first:last] for var, rows in self.columns.items()})

    def where(self, keep: Mask) -> Relation:
        if keep.all():
            return self
        count = int(np.count_nonzero(keep))
        return Relation(count, {var: column[keep] for var, column in self.columns.items()})

    def with_column(self, var: str | RowNumber, positions: Positions) -> Relation:
        return Relation(self.count, {**self.columns, var: positions})

    def numbered(self, number: RowNumber) -> Relation:
        """With the number of each row, which stays with it through later steps."""
        return self.with_column(number, np.arange(self.count, dtype=np.int64))

    def only(self, variables: Iterable[str]) -> Relation:
        return Relation(self.count, {var: self[var] for var in variables if var in self})

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
        keys = row_keys([*self.columns.values()])
        _, first, back = np.unique(keys, return_index=True, return_inverse=True)
        return self.take(first), np.asarray(back, dtype=np.int64)


def joined_rows(left: Positions, right: Positions) -> tuple[Positions, Positions]:
    """Pairs of row numbers with equal keys, by the left row first."""
    order = np.argsort(right, kind="stable")
    rows, places = spread(*equal_runs(right[order], left))
    return rows, order[places]


class MatchedRows(Rows):
    """The rows that an expression looks at, in a read: a relation and the frames that its
    positions mean. Values that were fetched are kept as long as the object."""

    def __init__(self, run: Run, relation: Relation) -> None:
        self.run = run
        self.relation = relation
        self.count = relation.count
        self.constants = run.constants
        self._fetched: dict[tuple[str, str], Array] = {}
        self._searched: dict[ir.Expr, Array] = {}

    def value_of(self, var: str, name: str) -> Array:
        key = (var, name)
        found = self._fetched.get(key)
        if found is None:
            frame = self.run.frame_of(var)
            found = frame.fetch(self.run.stored(var, name), self.relation[var])
            self._fetched[key] = found
        return found

    def endpoint(self, var: str, side: str) -> Array:
        edge = self.run.catalog.edges[self.run.variables[var].type_name]
        topology = self.run.topology(edge.name)
        ends = (topology.src if side == "src" else topology.dst).view
        positions = self.relation[var]
        there = positions >= 0
        at = np.full(len(positions), -1, dtype=np.int64)
        at[there] = ends[positions[there]]
        nodes = self.run.frame("node", edge.from_type if side == "src" else edge.to_type)
        return nodes.fetch("id", at)

    def search(self, expr: Search) -> Array:
        found = self._searched.get(expr)
        if found is None:
            values = partial(evaluate, rows=self)
            if not isinstance(expr, ir.Rrf):
                found = search.answer(self.run, expr, self.relation[expr.field.var], values)
            elif expr in self.run.fused and WHOLE_MATCH in self.relation:
                found = picked(self.run.fused[expr], self.relation[WHOLE_MATCH])
            else:
                found = search.fused(self.run, expr, self.relation.__getitem__, values)
            self._searched[expr] = found
        return found

    def at(self, numbers: Positions) -> MatchedRows:
        return MatchedRows(self.run, self.relation.take(numbers))
