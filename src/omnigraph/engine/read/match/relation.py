"""The rows of a match: an array of positions per variable, and the values that expressions see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, int64_array, pa, picked
from omnigraph.engine.expr.evaluate import Rows, Search, evaluate
from omnigraph.engine.expr.order import row_keys
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.memory.arrays import (
    CHUNK_ROWS,
    NO_POSITIONS,
    Mask,
    Positions,
    equal_runs,
    spread,
)
from omnigraph.engine.read.memory.selection import Selection
from omnigraph.engine.read.search import fusion, search

# A column of a relation that is no variable: for every row, the number of the row of an earlier
# relation that it came from. What was computed for those rows can be found again by it. The name of
# the column is how many blocks deep that relation was.
RowNumber: TypeAlias = int
WHOLE_MATCH: Final[RowNumber] = -1  # the rows of the whole match, before any was left out
EACH_GIVEN: Final[RowNumber] = -2  # the rows of the stage before, where each is ordered by itself
Ends: TypeAlias = Callable[[Positions], Positions]  # for edges, the nodes at one of their sides

SLICED_SHARE: Final = 8  # for a smaller part of the rows, the positions of all are not made


class Later:
    """A column of positions that is made when somebody looks at it, once.

    It may be known to be a `selection` of a frame, or the end that each of the edges in the
    selection beside it has: `ends` gives them for edge positions.
    """

    __slots__ = ("_made", "_make", "_some", "ends", "selection")

    def __init__(
        self,
        make: Callable[[], Positions],
        *,
        some: Callable[[Positions], Positions] | None = None,
        selection: Selection | None = None,
        ends: Ends | None = None,
    ) -> None:
        self._some = some
        self._make: Callable[[], Positions] | None = make
        self._made: Positions = NO_POSITIONS
        self.selection = selection
        self.ends = ends

    @classmethod
    def of(cls, selection: Selection) -> Later:
        return cls(selection.positions, some=selection.at, selection=selection)

    def positions(self) -> Positions:
        make = self._make
        if make is not None:  # two threads may make it at once, with the same result
            self._made = make()
            self._make = None
        return self._made

    def at(self, rows: Positions) -> Positions:
        """The positions of some rows, without those of all rows where that can be."""
        if self._make is None or self._some is None:
            return self.positions()[rows]
        return self._some(rows)


class Relation(msgspec.Struct, frozen=True):
    """`count` rows of a match: an array of that length per variable, with the position of each
    row's entity or -1 where there is none. Without variables it is just a number of rows."""

    count: int
    columns: Mapping[str | RowNumber, Positions | Later]

    @classmethod
    def of(cls, var: str, positions: Positions | Selection) -> Relation:
        if isinstance(positions, Selection):
            return cls(positions.count, {var: Later.of(positions)})
        return cls(len(positions), {var: positions})

    @classmethod
    def of_edges(cls, var: str, selection: Selection, ends: Mapping[str, Ends]) -> Relation:
        """The selected edges, with the variables at their ends."""
        edges = Later.of(selection)
        columns: dict[str | RowNumber, Positions | Later] = {var: edges}
        for name, end_of in ends.items():
            columns[name] = _end(edges, end_of)
        return cls(selection.count, columns)

    def __getitem__(self, var: str | RowNumber) -> Positions:
        column = self.columns[var]
        return column.positions() if isinstance(column, Later) else column

    def __contains__(self, var: str | RowNumber) -> bool:
        return var in self.columns

    def selected(self, var: str) -> Selection | None:
        """The selection whose positions the rows are, one after the other, if it is one."""
        column = self.columns[var]
        return column.selection if isinstance(column, Later) else None

    def take(self, rows: Positions) -> Relation:
        """These rows, in this order, perhaps more than once."""
        made = {var: Later(partial(self._at, var, rows)) for var in self.columns}
        return Relation(len(rows), made)

    def _at(self, var: str | RowNumber, rows: Positions) -> Positions:
        column = self.columns[var]
        return column.at(rows) if isinstance(column, Later) else column[rows]

    def slice(self, first: int, last: int) -> Relation:
        """A run of rows."""
        if (last - first) * SLICED_SHARE < self.count:
            return self.take(np.arange(first, last, dtype=np.int64))
        return self._mapped(last - first, lambda column: column[first:last])

    def where(self, keep: Mask) -> Relation:
        if keep.all():
            return self
        return self._mapped(int(np.count_nonzero(keep)), lambda column: column[keep])

    def among(self, var: str, positions: Positions, size: int) -> Relation:
        """The rows whose entity is at one of these ascending positions of a frame of `size`."""
        selection = self.selected(var)
        if selection is not None and len(self.columns) == 1:
            return Relation.of(var, selection.among(positions))
        kept = np.zeros(size + 1, dtype=np.bool_)  # the last cell stands for -1
        kept[positions] = True
        return self.where(kept[self[var]])

    def _mapped(self, count: int, rows: Callable[[Positions], Positions]) -> Relation:
        """Other rows of the same variables; a variable that nobody looks at again costs nothing."""
        return Relation(count, {var: Later(partial(self._rows, rows, var)) for var in self.columns})

    def _rows(self, rows: Callable[[Positions], Positions], var: str | RowNumber) -> Positions:
        return rows(self[var])

    def pieces(self) -> list[Relation]:
        """The rows in pieces of about one chunk, in order; a selection along its chunks."""
        whole = next(
            (c.selection for c in self.columns.values() if isinstance(c, Later) and c.selection),
            None,
        )
        if whole is None:
            return [
                self.slice(first, min(first + CHUNK_ROWS, self.count))
                for first in range(0, self.count, CHUNK_ROWS)
            ]
        return [self._piece(Selection(whole.length, (part,), part.count)) for part in whole.parts]

    def _piece(self, part: Selection) -> Relation:
        chosen = Later.of(part)
        columns: dict[str | RowNumber, Positions | Later] = {}
        for var, column in self.columns.items():
            assert isinstance(column, Later), "what stands beside a selection follows from it"
            columns[var] = chosen if column.ends is None else _end(chosen, column.ends)
        return Relation(part.count, columns)

    def with_column(self, var: str | RowNumber, positions: Positions) -> Relation:
        plain = {name: self._plain(name) for name in self.columns}
        return Relation(self.count, {**plain, var: positions})

    def _plain(self, var: str | RowNumber) -> Positions | Later:
        """The column, which no longer stands for the whole relation."""
        column = self.columns[var]
        if isinstance(column, Later) and (column.selection or column.ends is not None):
            return Later(column.positions)
        return column

    def numbered(self, number: str | RowNumber) -> Relation:
        """With the number of each row, which stays with it through later steps."""
        return self.with_column(number, np.arange(self.count, dtype=np.int64))

    def only(self, variables: Iterable[str]) -> Relation:
        return Relation(self.count, {var: self._plain(var) for var in variables if var in self})

    def crossed(self, other: Relation) -> Relation:
        """Every row of this with every row of the other."""
        left = np.repeat(np.arange(self.count, dtype=np.int64), other.count)
        right = np.tile(np.arange(other.count, dtype=np.int64), self.count)
        return self.take(left).beside(other.take(right))

    def beside(self, other: Relation) -> Relation:
        """Row by row, the variables of both."""
        assert self.count == other.count, "rows that stand side by side are equally many"
        mine = {var: self._plain(var) for var in self.columns}
        return Relation(self.count, {**mine, **{var: other._plain(var) for var in other.columns}})

    def distinct(self) -> tuple[Relation, Positions]:
        """Every different row once, and for each row of this the number of its twin there."""
        if not self.columns:
            return Relation(min(self.count, 1), {}), np.zeros(self.count, dtype=np.int64)
        keys = row_keys([self[var] for var in self.columns])
        _, first, back = np.unique(keys, return_index=True, return_inverse=True)
        return self.take(first), np.asarray(back, dtype=np.int64)


def at_places(values: Array, places: Positions) -> Array:
    """The values at these places, null at -1."""
    missing = places < 0
    if not missing.any():
        return picked(values, places)
    return values.take(pa.array(np.where(missing, 0, places), mask=missing))


def _end(edges: Later, end_of: Ends) -> Later:
    return Later(
        lambda: end_of(edges.positions()), some=lambda rows: end_of(edges.at(rows)), ends=end_of
    )


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
        self._paths: dict[ir.Way, Any] = {}

    def value_of(self, var: str, name: str) -> Array:
        key = (var, name)
        found = self._fetched.get(key)
        if found is None:
            rows = self.relation.columns[var]
            chosen = (rows.selection or rows.positions()) if isinstance(rows, Later) else rows
            found = self.run.rows_of(var).fetch(self.run.stored(var, name), chosen)
            self._fetched[key] = found
        return found

    def of_row(self, expr: ir.RowRef | ir.Position) -> Array:
        at = self.relation[expr.var]
        if isinstance(expr, ir.Position):
            there = at >= 0
            return int64_array(at) if there.all() else pa.array(at, mask=~there)
        return at_places(self.run.rows[expr.var][expr.column], at)

    def endpoint(self, var: str, side: str) -> Array:
        positions = self.relation[var]
        edges = [self.run.catalog.edges[name] for name in self.run.variables[var].types]
        types = {edge.from_type if side == "src" else edge.to_type for edge in edges}
        nodes = self.run.frames("node", tuple(sorted(types)))
        found = np.full(len(positions), -1, dtype=np.int64)
        for table, at, local in self.run.frames_of(var).split(positions):
            edge = self.run.catalog.edges[table.type_name]
            topology = self.run.topology(edge.name)
            first = nodes.start_of(edge.from_type if side == "src" else edge.to_type)
            assert first is not None, "the types of all ends are among them"
            found[at] = topology.ends_at("src" if side == "src" else "dst", local) + first
        return nodes.fetch("id", found)

    def type_of(self, var: str) -> Array:
        return self.run.frames_of(var).type_names(self.relation[var])

    def search(self, expr: Search) -> Array:
        found = self._searched.get(expr)
        if found is None:
            values = partial(evaluate, rows=self)
            if isinstance(expr, ir.Nearest) and isinstance(expr.query, ir.PropertyRef):
                ends = self.relation[expr.field.var], self.relation[expr.query.var]
                found = search.beside(self.run, expr, *ends)
            elif not isinstance(expr, ir.Rrf):
                found = search.answer(self.run, expr, self.relation[expr.field.var], values)
            elif expr in self.run.fused and WHOLE_MATCH in self.relation:
                found = picked(self.run.fused[expr], self.relation[WHOLE_MATCH])
            else:
                found = fusion.fused(self.run, expr, self.relation.__getitem__, values)
            self._searched[expr] = found
        return found

    def of_graph(self, expr: ir.Degree | ir.BlockValue | ir.PathPart) -> Array:
        found = self._searched.get(expr)
        if found is None:
            if isinstance(expr, ir.Degree):
                found = self._degrees(expr)
            elif isinstance(expr, ir.PathPart):
                found = self._of_path(expr)
            else:
                counts = self.run.count_inner(self.run, self.relation, expr)
                found = pa.array(counts > 0) if expr.word == "exists" else int64_array(counts)
            self._searched[expr] = found
        return found

    def _degrees(self, expr: ir.Degree) -> Array:
        nodes = self.relation[expr.var]
        there = nodes >= 0
        found = np.zeros(len(nodes), dtype=np.int64)
        edge, topology = self.run.catalog.edges[expr.edge_type], self.run.topology(expr.edge_type)
        for table, at, local in self.run.frames_of(expr.var).split(nodes):
            # A node of a type that the edge does not touch has none.
            ends = {"out": edge.from_type, "in": edge.to_type}
            sides = [side for side, end in ends.items() if end == table.type_name]
            direction = expr.direction
            if direction == "both" and len(sides) == 1:
                direction = "out" if sides == ["out"] else "in"
            if sides and (direction == "both" or direction in sides):
                found[at] = topology.counts(local, direction, per_edge=True)
        return int64_array(found) if there.all() else pa.array(found, mask=~there)

    def _of_path(self, expr: ir.PathPart) -> Array:
        known = self._paths.get(expr.way)
        if known is None:
            ends = self.relation[expr.way.src], self.relation[expr.way.dst]
            known = self._paths[expr.way] = self.run.find_paths(self.run, expr.way, *ends)
        return known.part(expr.part)

    def at(self, numbers: Positions) -> MatchedRows:
        return MatchedRows(self.run, self.relation.take(numbers))
