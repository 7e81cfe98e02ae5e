"""The `where` of a mutation: exact over one row, and as SQL that lets fewer rows leave the table.

`holds` is the meaning. `candidates` is only a sieve: its SQL is true at least wherever the
condition is, so rows that Lance leaves out cannot match; those that it returns `holds` judges.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from omnigraph.compiler.query import ir
from omnigraph.engine.write.values import (
    EPOCH,
    EPOCH_MOMENT,
    INTEGER_BOUNDS,
    MS_PER_DAY,
    nearest_f32,
)
from omnigraph.model.schema import FLOATS, INTEGERS, NUMBERS, PropertyType, Scalar
from omnigraph.storage import sql

Row = Mapping[str, Any]  # fitted values by column, as `values.fit` makes them


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What constants mean in this run: bound parameters and the one moment of `now()`."""

    params: Mapping[str, Any]
    now_ms: int

    def constant(self, expr: ir.Literal | ir.Param | ir.Now) -> Any:
        """The value behind a constant, in the IR's Python form."""
        match expr:
            case ir.Literal():
                return expr.value
            case ir.Param():
                return self.params.get(expr.name)
            case ir.Now():
                return self.now_ms


def holds(expr: ir.Expr, row: Row, scope: Scope) -> bool:
    """Whether the condition is true for the row; null counts as not true."""
    return _value(expr, row, scope) is True


def columns_of(expr: ir.Expr) -> frozenset[str]:
    """The columns that the condition looks at."""
    return frozenset(_columns(expr))


# --- exact, row by row ------------------------------------------------------------------------


def _value(expr: ir.Expr, row: Row, scope: Scope) -> Any:
    match expr:
        case ir.Literal() | ir.Param() | ir.Now():
            return _plain(scope.constant(expr))
        case ir.PropertyRef():
            return row[expr.prop]
        case ir.IdRef():
            return row["id"]
        case ir.EndpointRef():
            return row[expr.side]
        case ir.Compare():
            return _compared(expr, row, scope)
        case ir.And():
            return _all([_value(item, row, scope) for item in expr.items])
        case ir.Or():
            return _negated(_all([_negated(_value(item, row, scope)) for item in expr.items]))
        case ir.Not():
            return _negated(_value(expr.item, row, scope))
        case ir.InList():
            return _listed(expr, row, scope)
        case ir.IsNull():
            return (_value(expr.item, row, scope) is None) != expr.negated
        case ir.ListContains():
            return _both(expr.items, expr.needle, row, scope, lambda items, one: one in items)
        case ir.TextContains():
            return _both(expr.text, expr.part, row, scope, lambda text, part: part in text)
        case ir.StartsWith():
            return _both(expr.text, expr.prefix, row, scope, lambda t, start: t.startswith(start))
        case ir.Arithmetic():
            return _both(expr.left, expr.right, row, scope, _ARITHMETIC[expr.op])
        case _:
            raise AssertionError(f"{type(expr).__name__} in the where of a mutation")


def _plain(value: Any) -> Any:
    """A constant in the form that rows have."""
    if isinstance(value, dt.date):
        return (value - EPOCH).days
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _both(
    left: ir.Expr, right: ir.Expr, row: Row, scope: Scope, judge: Callable[[Any, Any], Any]
) -> Any:
    one, other = _value(left, row, scope), _value(right, row, scope)
    return None if one is None or other is None else judge(one, other)


def _compared(expr: ir.Compare, row: Row, scope: Scope) -> bool | None:
    left, right = _value(expr.left, row, scope), _value(expr.right, row, scope)
    if left is None or right is None:
        return None
    left, right = _beside(left, expr.left, expr.right), _beside(right, expr.right, expr.left)
    kinds = (expr.left.type.scalar, expr.right.type.scalar)
    if kinds == (Scalar.DATE, Scalar.DATETIME):
        left = left * MS_PER_DAY
    elif kinds == (Scalar.DATETIME, Scalar.DATE):
        right = right * MS_PER_DAY
    return bool(_COMPARE[expr.op](left, right))


def _listed(expr: ir.InList, row: Row, scope: Scope) -> bool | None:
    needle, options = _value(expr.needle, row, scope), _value(expr.options, row, scope)
    if needle is None or options is None:
        return None
    return any(
        option is not None and _beside(option, expr.options, expr.needle) == needle
        for option in options
    )


def _beside(value: Any, expr: ir.Expr, other: ir.Expr) -> Any:
    """A constant as it compares with the other side: beside F32 it is the nearest F32."""
    constant = isinstance(expr, ir.Literal | ir.Param) and isinstance(value, float)
    return nearest_f32(value) if constant and other.type.scalar is Scalar.F32 else value


def _all(values: list[Any]) -> bool | None:
    if any(value is False for value in values):
        return False
    return None if any(value is None for value in values) else True


def _negated(value: Any) -> bool | None:
    return None if value is None else not value


def _divided(left: Any, right: Any) -> float | None:
    return left / right if right else None


def _remainder(left: Any, right: Any) -> Any:
    if not right:
        return None
    if isinstance(left, int) and isinstance(right, int):
        return int(math.copysign(1, left)) * (abs(left) % abs(right))
    return math.nan if math.isinf(left) else math.fmod(left, right)


_COMPARE: Final[Mapping[ir.CompareOp, Callable[[Any, Any], bool]]] = {
    ir.CompareOp.EQ: lambda left, right: left == right,
    ir.CompareOp.NE: lambda left, right: left != right,
    ir.CompareOp.LT: lambda left, right: left < right,
    ir.CompareOp.LE: lambda left, right: left <= right,
    ir.CompareOp.GT: lambda left, right: left > right,
    ir.CompareOp.GE: lambda left, right: left >= right,
}
_ARITHMETIC: Final[Mapping[ir.ArithmeticOp, Callable[[Any, Any], Any]]] = {
    ir.ArithmeticOp.ADD: lambda left, right: left + right,
    ir.ArithmeticOp.SUB: lambda left, right: left - right,
    ir.ArithmeticOp.MUL: lambda left, right: left * right,
    ir.ArithmeticOp.DIV: _divided,
    ir.ArithmeticOp.MOD: _remainder,
}


def _columns(expr: ir.Expr) -> Iterator[str]:
    match expr:
        case ir.PropertyRef():
            yield expr.prop
        case ir.IdRef():
            yield "id"
        case ir.EndpointRef():
            yield expr.side
        case ir.Compare() | ir.Arithmetic():
            yield from _columns(expr.left)
            yield from _columns(expr.right)
        case ir.And() | ir.Or():
            for item in expr.items:
                yield from _columns(item)
        case ir.Not() | ir.IsNull():
            yield from _columns(expr.item)
        case ir.InList():
            yield from _columns(expr.needle)
        case ir.ListContains():
            yield from _columns(expr.items)
            yield from _columns(expr.needle)
        case ir.TextContains():
            yield from _columns(expr.text)
            yield from _columns(expr.part)
        case ir.StartsWith():
            yield from _columns(expr.text)
            yield from _columns(expr.prefix)
        case _:
            return


# --- a sieve in SQL ---------------------------------------------------------------------------

_MIRRORED: Final = {
    ir.CompareOp.LT: ir.CompareOp.GT,
    ir.CompareOp.LE: ir.CompareOp.GE,
    ir.CompareOp.GT: ir.CompareOp.LT,
    ir.CompareOp.GE: ir.CompareOp.LE,
}


def candidates(expr: ir.Expr, scope: Scope) -> str | None:
    """SQL that is true wherever the condition is; None when every row is a candidate."""
    match expr:
        case ir.And():
            return sql.all_of(*(candidates(item, scope) for item in expr.items))
        case ir.Or():
            parts = [candidates(item, scope) for item in expr.items]
            texts = [part for part in parts if part is not None]
            return " OR ".join(f"({t})" for t in texts) if len(texts) == len(parts) else None
        case ir.Compare():
            return _sieve_compare(expr, scope)
        case ir.InList():
            return _sieve_list(expr, scope)
        case ir.IsNull():
            name = _column(expr.item)
            word = "IS NOT NULL" if expr.negated else "IS NULL"
            return f"{sql.column(name)} {word}" if name else None
        case ir.StartsWith():
            return _sieve_text("starts_with", expr.text, expr.prefix, scope)
        case ir.TextContains():
            return _sieve_text("contains", expr.text, expr.part, scope)
        case _:
            return None


def listed_values(expr: ir.Expr, scope: Scope) -> tuple[str, list[Any]] | None:
    """A column and the few values one of which it holds wherever the condition is true, as Python
    sees stored values; None when the condition does not say so."""
    match expr:
        case ir.And():
            found = (listed_values(item, scope) for item in expr.items)
            return next((one for one in found if one is not None), None)
        case ir.Compare(op=ir.CompareOp.EQ):
            left, right = expr.left, expr.right
            if _column(left) is None:
                left, right = right, left
            if not isinstance(right, ir.Literal | ir.Param):
                return None
            return _listed_column(left, right.type, [scope.constant(right)])
        case ir.InList():
            options = scope.constant(expr.options)
            return _listed_column(expr.needle, expr.options.type, list(options or ()))
        case _:
            return None


def _listed_column(
    needle: ir.Expr, kind: PropertyType, options: list[Any]
) -> tuple[str, list[Any]] | None:
    name = _column(needle)
    values = [option for option in options if option is not None]
    scalar = needle.type.scalar
    if name is None or needle.type.is_list or not values:
        return None
    if scalar in INTEGERS:
        # Compared as numbers by `holds`; here only integers of the column's own range are sure.
        lowest, highest = INTEGER_BOUNDS[scalar]
        if any(type(value) is not int or not lowest <= value <= highest for value in values):
            return None
        return name, values
    same = scalar is kind.scalar and scalar in (Scalar.STRING, Scalar.DATE)
    return (name, values) if same else None


def _column(expr: ir.Expr) -> str | None:
    match expr:
        case ir.PropertyRef():
            return expr.prop
        case ir.IdRef():
            return "id"
        case ir.EndpointRef():
            return expr.side
        case _:
            return None


def _sieve_compare(expr: ir.Compare, scope: Scope) -> str | None:
    left, op, right = expr.left, expr.op, expr.right
    if _column(left) is None:
        left, op, right = right, _MIRRORED.get(op, op), left
    name = _column(left)
    if name is None or not isinstance(right, ir.Literal | ir.Param | ir.Now):
        return None
    value = scope.constant(right)
    if value is None:
        return "false"
    literal = _literal(left.type, value, right.type)
    if literal is None:
        return None
    sign = "<>" if op is ir.CompareOp.NE else op.value
    return f"{sql.column(name)} {sign} {literal}"


def _sieve_list(expr: ir.InList, scope: Scope) -> str | None:
    name = _column(expr.needle)
    options = scope.constant(expr.options)
    if name is None:
        return None
    if options is None:
        return "false"
    literals = [
        _literal(expr.needle.type, option, expr.options.type)
        for option in options
        if option is not None
    ]
    texts = [literal for literal in literals if literal is not None]
    if len(texts) != len(literals):
        return None
    return f"{sql.column(name)} IN ({', '.join(texts)})" if texts else "false"


def _sieve_text(function: str, text: ir.Expr, part: ir.Expr, scope: Scope) -> str | None:
    name = _column(text)
    if name is None or not isinstance(part, ir.Literal | ir.Param):
        return None
    value = scope.constant(part)
    if not isinstance(value, str):
        return "false" if value is None else None
    return f"{function}({sql.column(name)}, {sql.literal(value)})"


def _literal(kind: PropertyType, value: Any, other: PropertyType) -> str | None:
    """The constant as Lance compares it exactly with a column of the kind, or None."""
    if kind.is_list or kind.scalar in (Scalar.VECTOR, Scalar.BLOB):
        return None
    if kind.scalar in NUMBERS:
        return _number(kind.scalar, value)
    if kind.scalar is Scalar.DATETIME and other.scalar is Scalar.DATETIME:
        moment = EPOCH_MOMENT + dt.timedelta(milliseconds=value)
        return sql.literal(moment)
    if kind.scalar is not other.scalar:
        return None
    return sql.literal(value)


def _number(scalar: Scalar, value: Any) -> str | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if scalar is Scalar.F32 and isinstance(value, float):
        value = nearest_f32(value)
    if scalar in FLOATS:
        exact = math.isfinite(value) and (isinstance(value, float) or abs(value) <= 2**53)
        # Lance tells 0 and -0 apart, we do not.
        return sql.literal(float(value)) if exact and value != 0 else None
    # Lance refuses integers outside the column's type; floats it would compare with a loss.
    if scalar in INTEGERS and isinstance(value, float):
        if not value.is_integer():
            return None
        value = int(value)
    lowest, highest = INTEGER_BOUNDS[scalar]
    return sql.literal(value) if lowest <= value <= highest else None
