"""Which columns of a DataFrame stand for the variables of a plan, and what types they have.

An entity is its id, the name of its type if the variable is open, and the properties that the plan
asks for anywhere. Names of columns are numbers, because Spark does not tell `Name` from `name`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType

from omnigraph.compiler.query import ir
from omnigraph.model.schema import FLOATS, PropertyType, Scalar
from omnigraph.storage.lance.columns import value_type

# What the rows of a task know a value by: ("of", var, property), ("end", var, side), ("type", var),
# ("row", var, column), ("key", index), ("aggregate", index), or an expression that is computed
# before the one that uses it.
Key: TypeAlias = tuple[Any, ...] | ir.Expr

WIDER: Mapping[pa.DataType, pa.DataType] = {
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.timestamp("ms", tz="UTC"): pa.timestamp("us", tz="UTC"),
    pa.large_binary(): pa.binary(),
}


def carried_type(kind: PropertyType) -> pa.DataType:
    """The Arrow type that values of a type have on their way through Spark, which knows neither
    unsigned numbers nor milliseconds nor lists of one length."""
    if kind.scalar is Scalar.VECTOR:
        leaf: pa.DataType = pa.list_(pa.float32())
    else:
        leaf = value_type(PropertyType(scalar=kind.scalar))
        leaf = WIDER.get(leaf, leaf)
    return pa.list_(leaf) if kind.is_list else leaf


def spark_type(kind: PropertyType) -> DataType:
    return from_arrow_type(carried_type(kind))


class Layout:
    """The columns of one plan's variables."""

    def __init__(self, plan: ir.ReadPlan) -> None:
        self.variables = plan.variables
        self._numbers: dict[str, int] = {}
        self._properties: dict[str, dict[str, PropertyType]] = {}
        self._ends: dict[str, set[str]] = {}
        self._rows: dict[str, dict[str, PropertyType]] = {}
        self.ways: dict[ir.Way, set[ir.PathPart]] = {}  # and what is asked of each
        for part in ir.parts_of(plan):
            if isinstance(part, ir.PropertyRef):
                self._properties.setdefault(part.var, {})[part.prop] = part.type
            elif isinstance(part, ir.EndpointRef):
                self._ends.setdefault(part.var, set()).add(part.side)
            elif isinstance(part, ir.PathPart):
                self.ways.setdefault(part.way, set()).add(part)

    def _number(self, var: str) -> int:
        return self._numbers.setdefault(var, len(self._numbers))

    # --- entities ---

    def id(self, var: str) -> str:
        return f"n{self._number(var)}_id"

    def type(self, var: str) -> str:
        """The column with the name of the type; only an open variable has one."""
        return f"n{self._number(var)}_type"

    def is_open(self, var: str) -> bool:
        return self.variables[var].is_open

    def property(self, var: str, name: str) -> str:
        place = list(self._properties[var]).index(name)
        return f"n{self._number(var)}_p{place}"

    def end(self, var: str, side: str) -> str:
        return f"n{self._number(var)}_{side}"

    def properties(self, var: str) -> Mapping[str, PropertyType]:
        """The properties that the plan asks for."""
        return self._properties.get(var, {})

    def ends(self, var: str) -> list[str]:
        return sorted(self._ends.get(var, ()))

    def identity(self, var: str) -> list[str]:
        """The columns that tell an entity, or a row that came along, from others."""
        if var in self._rows:
            return self.row_columns(var)
        return [self.id(var), *([self.type(var)] if self.is_open(var) else [])]

    def details(self, var: str) -> list[str]:
        """The other columns of an entity, which follow from its identity."""
        if var in self._rows:
            return []
        found = [self.property(var, name) for name in self.properties(var)]
        return [*found, *(self.end(var, side) for side in self.ends(var))]

    def columns(self, variables: Iterable[str]) -> list[str]:
        return [name for var in variables for name in (*self.identity(var), *self.details(var))]

    # --- values that come with rows ---

    def add_rows(self, var: str, kinds: Mapping[str, PropertyType]) -> None:
        """Say which values come with the rows of a stage or an unwound list."""
        self._rows[var] = dict(kinds)

    def row_columns(self, var: str) -> list[str]:
        return [self.row(var, name) for name in self._rows[var]]

    def row(self, var: str, column: str) -> str:
        return f"r{self._number(var)}_{list(self._rows[var]).index(column)}"

    def float_rows(self) -> set[str]:
        """The columns of floats that came with the rows."""
        return {
            self.row(var, of)
            for var, some in self._rows.items()
            for of, kind in some.items()
            if kind.scalar in FLOATS
        }

    # --- what an expression reads ---

    def leaf(self, expr: ir.Expr) -> tuple[Key, str, PropertyType] | None:
        """By what key a task knows a value that a column holds, and that column."""
        match expr:
            case ir.PropertyRef():
                name = self.property(expr.var, expr.prop)
                return ("of", expr.var, expr.prop), name, expr.type
            case ir.IdRef():
                return ("of", expr.var, "id"), self.id(expr.var), ir.ID
            case ir.EndpointRef():
                return ("end", expr.var, expr.side), self.end(expr.var, expr.side), ir.ID
            case ir.TypeRef() if self.is_open(expr.var):
                return ("type", expr.var), self.type(expr.var), ir.ID
            case ir.RowRef():
                return ("row", expr.var, expr.column), self.row(expr.var, expr.column), expr.type
            case ir.KeyRef():
                return ("key", expr.index), group_key(expr.index), expr.type
            case ir.AggregateRef():
                return ("aggregate", expr.index), aggregate(expr.index), expr.type
            case _:
                return None


def group_key(index: int) -> str:
    """The column with a key of a grouping."""
    return f"k{index}"


def aggregate(index: int) -> str:
    return f"a{index}"
