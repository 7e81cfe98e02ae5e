"""The rows that an expression looks at: a relation with its frames."""

from __future__ import annotations

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, Values, pa
from omnigraph.engine.expr.evaluate import Constants, column_of, evaluate, holding
from omnigraph.engine.read import search
from omnigraph.engine.read.column import Mask, Positions
from omnigraph.engine.read.context import ROW_NUMBER, Run
from omnigraph.engine.read.relation import Relation


class RowScope:
    """The scope of expressions over a relation; what was fetched is kept while it lives."""

    def __init__(self, run: Run, relation: Relation) -> None:
        self.run = run
        self.relation = relation
        self._fetched: dict[tuple[str, str], Array] = {}
        self._searched: dict[ir.Expr, Array] = {}

    @property
    def count(self) -> int:
        return self.relation.count

    @property
    def constants(self) -> Constants:
        return self.run.constants

    def value_of(self, var: str, name: str) -> Array:
        key = (var, name)
        found = self._fetched.get(key)
        if found is None:
            stored = self.run.stored(var, name) if name != "id" else name
            found = self.run.frame_of(var).fetch(stored, self.relation[var])
            self._fetched[key] = found
        return found

    def id_of(self, var: str) -> Array:
        return self.value_of(var, "id")

    def endpoint(self, var: str, side: str) -> Array:
        return self.run.endpoint(var, self.relation[var], side)

    def search(self, expr: ir.TextMatch | ir.Bm25 | ir.Nearest | ir.Rrf) -> Array:
        found = self._searched.get(expr)
        if found is None and expr in self.run.fixed and ROW_NUMBER in self.relation:
            found = self.run.fixed[expr].take(pa.array(self.relation[ROW_NUMBER]))
            self._searched[expr] = found
        if found is None:
            if isinstance(expr, ir.Rrf):
                found = search.fused(self.run, expr, self.relation, self._values)
            else:
                positions = self.relation[expr.field.var]
                found = search.answer(self.run, expr, positions, self._values)
            self._searched[expr] = found
        return found

    def computed(self, expr: ir.KeyRef | ir.AggregateRef) -> Array:
        raise AssertionError(f"not a grouped row: {expr}")

    def values(self, expr: ir.Expr) -> Array:
        """The expression for every row, as an array."""
        return column_of(evaluate(expr, self), self.count)

    def true_for(self, *conditions: ir.Expr) -> Mask:
        """The rows for which all conditions are true."""
        return holding(conditions, self)

    def at(self, rows: Positions) -> RowScope:
        return RowScope(self.run, self.relation.take(rows))

    def _values(self, expr: ir.Expr) -> Values:
        return evaluate(expr, self)
