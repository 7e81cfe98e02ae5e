"""Expressions as Spark columns.

Where an operator of Spark means exactly what ours does, it is used: it costs nothing and Spark can
move it. Everything else is an Arrow function of the one evaluator. Of floats, Spark takes NaN for
equal to itself and above all numbers, which is right in orders and groups but not in comparisons.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)
from pyspark.sql.pandas.types import from_arrow_type

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, picked
from omnigraph.engine.expr.evaluate import Constants, Rows, Search, can_fail, is_constant
from omnigraph.model.schema import CALENDAR, FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.pipeline.gq.layout import Key, Layout, carried_type, spark_type
from omnigraph.pipeline.gq.scan import carried
from omnigraph.storage.lance.columns import value_type

_EXACT: Final = CALENDAR | {Scalar.STRING, Scalar.BOOL}
_COMPARED: Final[Mapping[ir.CompareOp, Callable[[Column, Column], Column]]] = {
    ir.CompareOp.EQ: lambda a, b: a == b,
    ir.CompareOp.NE: lambda a, b: a != b,
    ir.CompareOp.LT: lambda a, b: a < b,
    ir.CompareOp.LE: lambda a, b: a <= b,
    ir.CompareOp.GT: lambda a, b: a > b,
    ir.CompareOp.GE: lambda a, b: a >= b,
}
_COMPUTED: Final = ir.Degree | ir.BlockValue | ir.PathPart | Search


class TaskRows(Rows):
    """The rows of one Arrow batch of Spark's, for the evaluator."""

    def __init__(self, count: int, constants: Constants, arrays: Mapping[Key, Array]) -> None:
        self.count, self.constants, self._arrays = count, constants, arrays

    def value_of(self, var: str, name: str) -> Array:
        return self._arrays["of", var, name]

    def endpoint(self, var: str, side: str) -> Array:
        return self._arrays["end", var, side]

    def type_of(self, var: str) -> Array:
        return self._arrays["type", var]

    def of_row(self, expr: ir.RowRef | ir.Position) -> Array:
        assert isinstance(expr, ir.RowRef), "positions are keys of groups, which are columns"
        return self._arrays["row", expr.var, expr.column]

    def of_graph(self, expr: ir.Degree | ir.BlockValue | ir.PathPart) -> Array:
        return self._arrays[expr]

    def search(self, expr: Search) -> Array:
        return self._arrays[expr]

    def computed(self, expr: ir.KeyRef | ir.AggregateRef) -> Array:
        return self._arrays["key" if isinstance(expr, ir.KeyRef) else "aggregate", expr.index]

    def at(self, numbers: npt.NDArray[np.int64]) -> TaskRows:
        some = {key: picked(values, numbers) for key, values in self._arrays.items()}
        return TaskRows(len(numbers), self.constants, some)


class Values:
    """Makes columns of expressions over the rows of one DataFrame. `made` are the columns of what
    was computed of edges or of all rows before."""

    def __init__(self, layout: Layout, constants: Constants, made: Mapping[ir.Expr, str]) -> None:
        self._layout, self._constants, self._made = layout, constants, made

    def column(self, expr: ir.Expr) -> Column:
        """The expression for every row, in the type that its values travel in."""
        found = self._native(expr)
        return self._asked(expr) if found is None else found

    def condition(self, expr: ir.Expr) -> Column:
        """Where the expression is true."""
        return F.coalesce(self.column(expr), F.lit(False))  # noqa: FBT003  (a value)

    # --- with Spark's own operators ---

    def _native(self, expr: ir.Expr) -> Column | None:
        leaf = self._leaf(expr)
        if leaf is not None:
            return F.col(leaf[1])
        match expr:
            case ir.Literal() | ir.Param() | ir.Now():
                return constant(self._constants.value(expr), expr.type)
            case ir.TypeRef():
                (name,) = self._layout.variables[expr.var].types
                return F.when(F.col(self._layout.id(expr.var)).isNotNull(), F.lit(name))
            case ir.And() | ir.Or() if not can_fail(expr):
                parts = [self.column(item) for item in expr.items]
                both = isinstance(expr, ir.And)
                return reduce(lambda a, b: a & b if both else a | b, parts)
            case ir.Not():
                return ~self.column(expr.item)
            case ir.IsNull():
                item = self.column(expr.item)
                return item.isNotNull() if expr.negated else item.isNull()
            case ir.Compare():
                return self._compared(expr)
            case ir.InList():
                return self._listed(expr)
            case ir.TextContains():
                return F.contains(self.column(expr.text), self.column(expr.part))
            case ir.StartsWith():
                return F.startswith(self.column(expr.text), self.column(expr.prefix))
            case _:
                return None

    def _compared(self, expr: ir.Compare) -> Column | None:
        a, b = expr.left.type, expr.right.type
        if a.is_list or b.is_list or None in (_constant(expr.left), _constant(expr.right)):
            return None
        one, other = a.scalar, b.scalar
        if (one is other and one in _EXACT) or {one, other} <= INTEGERS:
            return _COMPARED[expr.op](self.column(expr.left), self.column(expr.right))
        if one is other and one in FLOATS:  # a constant beside an F32 is the nearest F32
            left, right = self.column(expr.left), self.column(expr.right)
            numbers = ~(F.isnan(left) | F.isnan(right))
            if expr.op is ir.CompareOp.NE:
                return (left != right) | ~numbers & left.isNotNull() & right.isNotNull()
            return _COMPARED[expr.op](left, right) & numbers
        return None

    def _listed(self, expr: ir.InList) -> Column | None:
        one, other = expr.needle.type.scalar, expr.options.type.scalar
        options = self._constants.value(expr.options)
        plain = (one is other and one in _EXACT) or {one, other} <= INTEGERS
        if options is None or not plain or expr.needle.type.is_list:
            return None
        element = PropertyType(scalar=other)
        listed = [constant(option, element) for option in options if option is not None]
        needle = self.column(expr.needle)
        found = needle.isin(*listed) if listed else F.lit(False)  # noqa: FBT003  (a value)
        return F.when(needle.isNotNull(), found)

    def _leaf(self, expr: ir.Expr) -> tuple[Key, str, PropertyType] | None:
        known = self._made.get(expr)
        return (expr, known, expr.type) if known is not None else self._layout.leaf(expr)

    # --- with the evaluator ---

    def _asked(self, expr: ir.Expr) -> Column:
        leaves = {leaf[0]: leaf for leaf in self._leaves(expr)}
        keys = tuple(leaves)
        kinds = tuple(value_type(leaf[2]) for leaf in leaves.values())
        target = carried_type(expr.type)
        function = _task_function(expr, keys, kinds, self._constants, target)
        made = arrow_function(function, target)
        if can_fail(expr):
            # An error belongs to rows that everything else keeps: Spark must not ask earlier.
            made = made.asNondeterministic()
        columns = [F.col(leaf[1]) for leaf in leaves.values()]
        found: Column = made(*columns) if columns else made(F.lit(True))  # noqa: FBT003  (a value)
        return found

    def _leaves(self, expr: ir.Expr) -> Iterator[tuple[Key, str, PropertyType]]:
        leaf = self._leaf(expr)
        if leaf is not None:
            yield leaf
            return
        assert not isinstance(expr, _COMPUTED), f"{type(expr).__name__} was not computed"
        for part in ir.children(expr):
            yield from self._leaves(part)


def _constant(expr: ir.Expr) -> bool | None:
    """None for the literal null, which is of no type."""
    return None if isinstance(expr, ir.Literal) and expr.value is None else is_constant(expr)


def _task_function(
    expr: ir.Expr,
    keys: tuple[Key, ...],
    kinds: tuple[pa.DataType, ...],
    constants: Constants,
    target: pa.DataType,
) -> Callable[..., Any]:
    # Spark reads these hints.
    def values(*arrays: pa.Array) -> pa.Array:  # type: ignore[type-arg]
        given = {
            key: carried(array, kind) for key, array, kind in zip(keys, arrays, kinds, strict=False)
        }
        found = TaskRows(len(arrays[0]), constants, given).values(expr)
        made: pa.Array[Any] = carried(found, target)
        return made

    return values


def arrow_function(function: Callable[..., Any], target: pa.DataType) -> Any:
    """A function of Arrow arrays as one of columns; its hints say that it is so."""
    return F.arrow_udf(function, from_arrow_type(target))  # type: ignore[attr-defined]


def constant(value: Any, kind: PropertyType) -> Column:
    """A Python value of the IR as a column."""
    if value is None:
        return F.lit(None).cast(spark_type(kind))
    if isinstance(value, list | tuple):
        element = PropertyType(scalar=kind.scalar)
        if kind.scalar is Scalar.VECTOR and not kind.is_list:
            element = PropertyType(scalar=Scalar.F32)
        return F.array(*(constant(item, element) for item in value)).cast(spark_type(kind))
    if kind.scalar is Scalar.DATETIME:
        return F.timestamp_millis(F.lit(value))
    if isinstance(value, dt.date):  # PySpark writes years before 1000 without their zeros
        return F.lit(value.isoformat()).cast(spark_type(kind))
    if isinstance(value, float):
        return F.lit(value).cast(spark_type(kind))
    return F.lit(str(value) if kind.scalar is Scalar.U64 else value).cast(spark_type(kind))
