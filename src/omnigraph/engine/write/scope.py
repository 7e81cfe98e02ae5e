"""The rows that the `where` of a mutation looks at: columns of one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array
from omnigraph.engine.expr.evaluate import Constants, holding
from omnigraph.engine.expr.sql import column_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TableScope:
    """The entities that a statement looks at, one a row, with the columns that it names."""

    rows: pa.Table
    constants: Constants

    @property
    def count(self) -> int:
        return self.rows.num_rows

    def value_of(self, var: str, name: str) -> Array:
        assert var == ir.SELF, "a statement looks at one entity at a time"
        column: Any = self.rows[name].combine_chunks()
        return column

    def id_of(self, var: str) -> Array:
        return self.value_of(var, "id")

    def endpoint(self, var: str, side: str) -> Array:
        return self.value_of(var, side)

    def search(self, expr: ir.TextMatch | ir.Bm25 | ir.Nearest | ir.Rrf) -> Array:
        raise AssertionError(f"{type(expr).__name__} in the where of a mutation")

    def computed(self, expr: ir.KeyRef | ir.AggregateRef) -> Array:
        raise AssertionError(f"{type(expr).__name__} in the where of a mutation")

    def at(self, rows: npt.NDArray[np.int64]) -> TableScope:
        return TableScope(rows=self.rows.take(rows), constants=self.constants)

    def matching(self, where: ir.Expr) -> pa.Table:
        """The rows for which the condition is true."""
        keep = holding([where], self)
        return self.rows if keep.all() else self.rows.filter(pa.array(keep))


def columns_of(where: ir.Expr) -> frozenset[str]:
    """The columns that the condition looks at."""
    names = (column_of(part) for part in ir.walk(where))
    return frozenset(name for name in names if name is not None)
