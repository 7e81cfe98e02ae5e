"""What storage may evaluate instead of us: conditions and orders as SQL for Lance.

A *sieve* is SQL that is true at least wherever the condition is. It is *exact* when it is true
nowhere else; otherwise the evaluator judges the rows that come back. `evaluate` is the meaning:
`tests/properties/test_pushdown.py` holds every form said here to it, with and without an index.

What is known of Lance and relied upon here: comparisons of text, booleans, dates, moments and
integers are ours, as long as a constant fits into the column's type. Of floats, -0.0 equals 0.0 in
every comparison, but NaN is ordered above (with its sign set: below) all numbers and equals itself.
Sorting tells -0.0 from 0.0 as well, so floats are never sorted there.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from omnigraph.compiler.query import ir
from omnigraph.engine.expr.compare import SWAPPED
from omnigraph.engine.expr.evaluate import (
    Constants,
    can_fail,
    conjuncts,
    is_constant,
)
from omnigraph.model.schema import CALENDAR, FLOATS, INTEGERS, NUMBERS, PropertyType, Scalar
from omnigraph.model.values import INTEGER_BOUNDS, fits_f32, moment_at, nearest_f32
from omnigraph.storage.lance import sql

LISTED_MAX: Final = 1_000  # values of one IN; more are compared here

_PLAIN: Final = CALENDAR | {Scalar.STRING, Scalar.BOOL}
_OPPOSITE: Final[Mapping[ir.CompareOp, ir.CompareOp]] = {
    ir.CompareOp.EQ: ir.CompareOp.NE,
    ir.CompareOp.NE: ir.CompareOp.EQ,
    ir.CompareOp.LT: ir.CompareOp.GE,
    ir.CompareOp.GE: ir.CompareOp.LT,
    ir.CompareOp.GT: ir.CompareOp.LE,
    ir.CompareOp.LE: ir.CompareOp.GT,
}
_EQUALITIES: Final = (ir.CompareOp.EQ, ir.CompareOp.NE)


class PushDown(msgspec.Struct, frozen=True, kw_only=True):
    """How conditions are shared out: storage keeps the rows of `where` (None: all), and of those
    the answer is where all of `rest` are true."""

    where: str | None
    rest: tuple[ir.Expr, ...]


class Sieve(msgspec.Struct, frozen=True, kw_only=True):
    """SQL that is true wherever a condition is; `exact`: and nowhere else."""

    where: str
    exact: bool = True


def push_down(conditions: Sequence[ir.Expr], constants: Constants) -> PushDown:
    """Let storage do what it does as we would, and leave the rest."""
    texts, rest = [], []
    for part in conjuncts(conditions):
        found = sieve(part, constants)
        if found is not None:
            texts.append(found.where)
        if found is None or not found.exact:
            rest.append(part)
    return PushDown(where=sql.all_of(*texts), rest=tuple(rest))


def sieve(expr: ir.Expr, constants: Constants) -> Sieve | None:
    """The sieve of a condition; None when every row has to be looked at.

    A condition that can fail has none: which rows raise an error must not depend on the way.
    """
    return None if can_fail(expr) else _sieve(expr, constants, wanted=True)


def sortable_by_storage(kind: PropertyType) -> bool:
    """Whether storage sorts a column of the type exactly as we do."""
    return not kind.is_list and (kind.scalar in _PLAIN or kind.scalar in INTEGERS)


def listed_values(expr: ir.Expr, constants: Constants) -> tuple[str, list[Any]] | None:
    """A column and the few values one of which it holds wherever the condition is true, as Python
    sees stored values; None when the condition does not say so."""
    for part in conjuncts([expr]):
        match part:
            case ir.Compare(op=ir.CompareOp.EQ, left=left, right=right):
                if column_of(left) is None:
                    left, right = right, left
                if not is_constant(right) or isinstance(right, ir.Now):
                    continue
                found = _listed(left, right.type, [constants.value(right)])
            case ir.InList(needle=needle, options=options):
                found = _listed(needle, options.type, list(constants.value(options) or ()))
            case _:
                continue
        if found is not None:
            return found
    return None


def _listed(
    needle: ir.Expr, kind: PropertyType, options: list[Any]
) -> tuple[str, list[Any]] | None:
    name, scalar = column_of(needle), needle.type.scalar
    values = [option for option in options if option is not None]
    if name is None or needle.type.is_list or not values:
        return None
    if scalar in INTEGERS:
        # Only integers of the column's own range are sure to be looked up as they are compared.
        lowest, highest = INTEGER_BOUNDS[scalar]
        fits = all(type(value) is int and lowest <= value <= highest for value in values)
        return (name, values) if fits else None
    same = scalar is kind.scalar and all(type(value) in (str, dt.date) for value in values)
    return (name, values) if same else None


def column_of(expr: ir.Expr) -> str | None:
    """The column that the expression names, if it is one."""
    match expr:
        case ir.IdRef():
            return "id"
        case ir.EndpointRef():
            return expr.side
        case ir.PropertyRef():
            return expr.prop
        case _:
            return None


# --- conditions --------------------------------------------------------------------------------


def _sieve(expr: ir.Expr, constants: Constants, *, wanted: bool) -> Sieve | None:
    """A sieve for the rows where the condition is `wanted`, which is never where it is null."""
    match expr:
        case ir.Not():
            return _sieve(expr.item, constants, wanted=not wanted)
        case ir.And() | ir.Or():
            parts = [_sieve(item, constants, wanted=wanted) for item in expr.items]
            return _joined(parts, "AND" if isinstance(expr, ir.And) == wanted else "OR")
        case ir.Compare():
            return _compare(expr, constants, wanted=wanted)
        case ir.InList():
            return _in_list(expr, constants, wanted=wanted)
        case ir.IsNull() if expr.item.type.scalar is not Scalar.BLOB:
            name = column_of(expr.item)
            word = "IS NOT NULL" if expr.negated == wanted else "IS NULL"
            return None if name is None else Sieve(where=f"{sql.column(name)} {word}")
        case ir.StartsWith(text=text, prefix=part):
            return _text("starts_with", text, part, constants, wanted=wanted)
        case ir.TextContains(text=text, part=part):
            return _text("contains", text, part, constants, wanted=wanted)
        case ir.PropertyRef() if expr.type.scalar is Scalar.BOOL and not expr.type.is_list:
            return Sieve(where=f"{sql.column(expr.prop)} = {sql.literal(wanted)}")
        case _:
            return None


def _joined(parts: Sequence[Sieve | None], word: Literal["AND", "OR"]) -> Sieve | None:
    """All or any of the parts. A part that cannot be said may be left out of an AND only."""
    said = [part for part in parts if part is not None]
    complete = len(said) == len(parts)
    if not said or (word == "OR" and not complete):
        return None
    where = f" {word} ".join(f"({part.where})" for part in said)
    return Sieve(where=where, exact=complete and all(part.exact for part in said))


_NOWHERE: Final = Sieve(where="false")


def _always(name: str, *, truth: bool, wanted: bool) -> Sieve:
    """A comparison whose answer is the same for every value, and null for null."""
    return Sieve(where=f"{sql.column(name)} IS NOT NULL") if truth == wanted else _NOWHERE


def _compare(expr: ir.Compare, constants: Constants, *, wanted: bool) -> Sieve | None:
    left, op, right = expr.left, expr.op, expr.right
    if column_of(left) is None:
        left, op, right = right, SWAPPED.get(op, op), left
    name, other = column_of(left), column_of(right)
    if name is None or left.type.is_list:
        return None
    if other is not None:
        if not _comparable_columns(left.type, right.type):
            return None
        return _comparison(name, op, sql.column(other), wanted=wanted)
    if not is_constant(right):
        return None
    value = constants.value(right)
    if value is None:
        return _NOWHERE
    if right.type.scalar is Scalar.F32:
        value = nearest_f32(value)  # the number that its 32 bits hold
    if left.type.scalar in FLOATS:
        return _compare_float(name, left.type.scalar, op, value, wanted=wanted)
    if left.type.scalar in INTEGERS:
        return _compare_integer(name, left.type.scalar, op, value, wanted=wanted)
    text = _literal(value, left.type.scalar, right.type.scalar)
    return None if text is None else _comparison(name, op, text, wanted=wanted)


def _comparison(name: str, op: ir.CompareOp, other: str, *, wanted: bool) -> Sieve:
    op = op if wanted else _OPPOSITE[op]
    sign = "<>" if op is ir.CompareOp.NE else op.value
    return Sieve(where=f"{sql.column(name)} {sign} {other}")


def _comparable_columns(left: PropertyType, right: PropertyType) -> bool:
    if left.is_list or right.is_list:
        return False
    if left.scalar in INTEGERS and right.scalar in INTEGERS:
        # Storage would squeeze an unsigned 64-bit number into a signed one.
        return left.scalar is right.scalar or Scalar.U64 not in (left.scalar, right.scalar)
    return left.scalar is right.scalar and left.scalar in _PLAIN


def _compare_integer(
    name: str, scalar: Scalar, op: ir.CompareOp, value: Any, *, wanted: bool
) -> Sieve | None:
    """A whole-number column beside any number: the nearest integer that asks the same."""
    bound: Any = value
    if isinstance(value, float) and not value.is_integer():
        if op in _EQUALITIES or math.isnan(value):
            return _always(name, truth=op is ir.CompareOp.NE, wanted=wanted)
        if math.isfinite(value):
            up = op in (ir.CompareOp.LT, ir.CompareOp.GE)
            bound = math.ceil(value) if up else math.floor(value)
    lowest, highest = INTEGER_BOUNDS[scalar]
    if not lowest <= bound <= highest:
        below = op in (ir.CompareOp.LT, ir.CompareOp.LE)  # true for all values of the type, or none
        truth = op is ir.CompareOp.NE or (op is not ir.CompareOp.EQ and below == (bound > highest))
        return _always(name, truth=truth, wanted=wanted)
    return _comparison(name, op, sql.literal(int(bound)), wanted=wanted)


def _compare_float(
    name: str, scalar: Scalar, op: ir.CompareOp, value: Any, *, wanted: bool
) -> Sieve | None:
    """NaN is told apart by hand: it satisfies `!=` and nothing else."""
    number = _float(scalar, value)
    if number is None:
        return None
    if math.isnan(number):
        return _always(name, truth=op is ir.CompareOp.NE, wanted=wanted)
    said = _comparison(name, op, sql.literal(number), wanted=wanted)
    if op in _EQUALITIES:
        return said
    # `not (x > 1)` holds for NaN, `x > 1` does not.
    also = "AND NOT" if wanted else "OR"
    return Sieve(where=f"{said.where} {also} isnan({sql.column(name)})")


def _float(scalar: Scalar, value: float) -> float | None:
    """The constant as it compares with a float column; None if that cannot be said exactly."""
    number = nearest_f32(value) if scalar is Scalar.F32 else float(value)
    if isinstance(value, int):  # compared as it is, so it must be a float of the column
        return number if number == value else None
    return None if scalar is Scalar.F32 and not fits_f32(number) else number


def _in_list(expr: ir.InList, constants: Constants, *, wanted: bool) -> Sieve | None:
    name = column_of(expr.needle)
    if name is None or expr.needle.type.is_list:
        return None
    options = constants.value(expr.options)
    if options is None:
        return _NOWHERE
    texts: list[str] = []
    for option in options:
        if option is None:
            continue
        text = _option(option, expr.needle.type.scalar, expr.options.type.scalar)
        if text is None:
            return None
        if text:
            texts.append(text)
    if len(texts) > LISTED_MAX:
        return None
    if not texts:
        return _always(name, truth=False, wanted=wanted)
    word = "IN" if wanted else "NOT IN"
    return Sieve(where=f"{sql.column(name)} {word} ({', '.join(texts)})")


def _option(value: Any, scalar: Scalar, given: Scalar) -> str | None:
    """One value of a list as SQL; empty if the column cannot hold it, None if we cannot say it."""
    if given is Scalar.F32:
        value = nearest_f32(value)
    if scalar in FLOATS and given in NUMBERS:
        number = _float(scalar, value)
        if number is None:
            return None
        return "" if math.isnan(number) else sql.literal(number)
    if scalar in INTEGERS and given in NUMBERS:
        lowest, highest = INTEGER_BOUNDS[scalar]
        whole = not isinstance(value, float) or value.is_integer()
        return sql.literal(int(value)) if whole and lowest <= value <= highest else ""
    return _literal(value, scalar, given)


def _literal(value: Any, scalar: Scalar, given: Scalar) -> str | None:
    if scalar is not given or scalar not in _PLAIN:
        return None
    if scalar in CALENDAR and isinstance(value, int):
        value = moment_at(value)
    return sql.literal(value)


def _text(
    function: str, text: ir.Expr, part: ir.Expr, constants: Constants, *, wanted: bool
) -> Sieve | None:
    name = column_of(text)
    if name is None or not is_constant(part):
        return None
    value = constants.value(part)
    if value is None:
        return _NOWHERE
    call = f"{function}({sql.column(name)}, {sql.literal(value)})"
    return Sieve(where=call if wanted else f"NOT {call}")
