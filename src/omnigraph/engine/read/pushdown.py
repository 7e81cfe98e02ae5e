"""Conditions as SQL text for storage, where storage means exactly what we mean.

A condition that cannot be said without changing its meaning gives None and is evaluated here.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Final

from omnigraph.compiler.query import ir
from omnigraph.engine.read.evaluate import Constants
from omnigraph.model.schema import FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.storage import sql

_LISTED_MAX: Final = 1_000
_FLAT: Final = frozenset({Scalar.STRING, Scalar.BOOL, Scalar.DATE, Scalar.DATETIME}) | INTEGERS


def condition_sql(expr: ir.Expr, constants: Constants) -> str | None:
    """The condition on one variable as a Lance filter, or None."""
    match expr:
        case ir.Compare():
            return _compare(expr, constants)
        case ir.And() | ir.Or():
            parts = [condition_sql(item, constants) for item in expr.items]
            if any(part is None for part in parts):
                return None
            word = " AND " if isinstance(expr, ir.And) else " OR "
            return word.join(f"({part})" for part in parts)
        case ir.Not():
            inner = condition_sql(expr.item, constants)
            return None if inner is None else f"NOT ({inner})"
        case ir.IsNull():
            name = _column(expr.item)
            return None if name is None else f"{name} IS {'NOT ' if expr.negated else ''}NULL"
        case ir.InList():
            return _in_list(expr, constants)
        case _:
            return None


def _column(expr: ir.Expr) -> str | None:
    match expr:
        case ir.IdRef():
            return sql.column("id")
        case ir.EndpointRef():
            return sql.column(expr.side)
        case ir.PropertyRef():
            return sql.column(expr.prop)
        case _:
            return None


def _compare(expr: ir.Compare, constants: Constants) -> str | None:
    left, right = _side(expr.left, constants, expr.right), _side(expr.right, constants, expr.left)
    if left is None or right is None:
        return None
    return f"{left} {expr.op.value} {right}"


def _side(expr: ir.Expr, constants: Constants, other: ir.Expr) -> str | None:
    name = _column(expr)
    if name is not None:
        return name if _same_family(expr.type, other.type) else None
    if not isinstance(expr, ir.Literal | ir.Param | ir.Now):
        return None
    return literal_sql(constants.value(expr), expr.type)


def _same_family(left: PropertyType, right: PropertyType) -> bool:
    """Whether SQL compares the two types as we do: whole numbers with whole numbers, and so on."""
    if left.is_list or right.is_list:
        return False
    if left.scalar in FLOATS and right.scalar in FLOATS:
        return left.scalar is Scalar.F64 and right.scalar is Scalar.F64
    if Scalar.U64 in (left.scalar, right.scalar):
        return left.scalar is right.scalar
    if left.scalar in INTEGERS and right.scalar in INTEGERS:
        return True
    return left.scalar is right.scalar and left.scalar in _FLAT


def literal_sql(value: object, kind: PropertyType) -> str | None:
    """A constant as SQL text; None for null, which SQL text would not compare as we do."""
    if value is None or kind.is_list:
        return None
    if kind.scalar is Scalar.DATETIME and isinstance(value, int):
        moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=value)
        return sql.literal(moment)
    if isinstance(value, float) and not math.isfinite(value):  # NaN orders differently in SQL
        return None
    assert isinstance(value, str | bool | int | float | dt.date), "a plain constant"
    return sql.literal(value)


def _in_list(expr: ir.InList, constants: Constants) -> str | None:
    name = _column(expr.needle)
    options = constants.value(expr.options)
    element = PropertyType(scalar=expr.options.type.scalar)
    if name is None or options is None or not _same_family(expr.needle.type, element):
        return None
    if element.scalar in FLOATS and 0 in options:  # in a list, SQL tells 0 from -0
        return None
    texts = [literal_sql(one, element) for one in options if one is not None]
    if not texts or len(texts) > _LISTED_MAX or any(text is None for text in texts):
        return None
    return f"{name} IN ({', '.join(text for text in texts if text is not None)})"
