"""The type rules: what compares with what, what a literal becomes, which numbers fit."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Sequence

from omnigraph.compiler.query import ast
from omnigraph.compiler.query.expressions import Literal, ScalarValue, Value
from omnigraph.compiler.query.temporal import parse_date, parse_datetime
from omnigraph.model.schema import INTEGERS, NUMBERS, PropertyType, Scalar
from omnigraph.model.values import F32_MAX, INTEGER_BOUNDS

STRING = PropertyType(scalar=Scalar.STRING)
I64 = PropertyType(scalar=Scalar.I64)
U64 = PropertyType(scalar=Scalar.U64)
F64 = PropertyType(scalar=Scalar.F64)
DATE = PropertyType(scalar=Scalar.DATE)
DATETIME = PropertyType(scalar=Scalar.DATETIME)
BOOL = PropertyType(scalar=Scalar.BOOL)
NULL = PropertyType(scalar=Scalar.STRING, nullable=True)


class LiteralError(Exception):
    """A literal that cannot become what is wanted; `code` is the T-code it deserves, if fixed."""

    def __init__(self, message: str, *, code: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.code, self.hint = message, code, hint


def core(kind: PropertyType) -> str:
    """The type's name without its question mark."""
    return str(kind).removesuffix("?")


def nullable(kind: PropertyType) -> PropertyType:
    return kind if kind.nullable else dataclasses.replace(kind, nullable=True)


def element(kind: PropertyType) -> PropertyType:
    """The type of a list's elements."""
    return dataclasses.replace(kind, is_list=False, nullable=False)


def is_number(kind: PropertyType) -> bool:
    return kind.scalar in NUMBERS and not kind.is_list


def is_integer(kind: PropertyType) -> bool:
    return kind.scalar in INTEGERS and not kind.is_list


def is_text(kind: PropertyType) -> bool:
    return kind.scalar is Scalar.STRING and not kind.is_list


def comparable(left: PropertyType, right: PropertyType) -> bool:
    """Whether two scalars may be compared: numbers with numbers, else like with like."""
    if left.is_list or right.is_list:
        return False
    return left.scalar is right.scalar or (left.scalar in NUMBERS and right.scalar in NUMBERS)


def assignable(kind: PropertyType, target: PropertyType) -> bool:
    """Whether a value of a declared type may be stored in, or matched with, a property."""
    if kind.is_list != target.is_list:
        return False
    if kind.scalar is Scalar.VECTOR or target.scalar is Scalar.VECTOR:
        return kind.scalar is target.scalar and kind.dimension == target.dimension
    if target.scalar is Scalar.BLOB:
        return kind.scalar in {Scalar.STRING, Scalar.BLOB}
    return kind.scalar is target.scalar or (kind.scalar in NUMBERS and target.scalar in NUMBERS)


# --- literals as they stand --------------------------------------------------------------------


def literal(lit: ast.Lit | ast.ListLit) -> Literal:
    """The literal with the type that it has by itself, or LiteralError."""
    if isinstance(lit, ast.ListLit):
        return _list_literal(lit)
    value = lit.value
    if value is None:
        return Literal(value=None, type=NULL)
    if isinstance(value, bool):
        return Literal(value=value, type=BOOL)
    if isinstance(value, int):
        return Literal(value=value, type=_integer_type(value))
    if isinstance(value, float):
        return Literal(value=value, type=F64)
    match lit.kind:
        case "date":
            return Literal(value=_date(value), type=DATE)
        case "datetime":
            return Literal(value=_datetime(value), type=DATETIME)
        case _:
            return Literal(value=value, type=STRING)


def _integer_type(value: int) -> PropertyType:
    low, high = INTEGER_BOUNDS[Scalar.I64]
    if low <= value <= high:
        return I64
    if 0 <= value <= INTEGER_BOUNDS[Scalar.U64][1]:
        return U64
    raise LiteralError(f"integer {value} does not fit 64 bits", code="T7")


def _date(text: str) -> dt.date:
    value = parse_date(text)
    if value is None:
        raise LiteralError(f"invalid date '{text}'", code="T7", hint="dates are YYYY-MM-DD")
    return value


def _datetime(text: str) -> int:
    value = parse_datetime(text)
    if value is None:
        hint = "timestamps are RFC 3339, such as 2026-02-14T10:00:00Z"
        raise LiteralError(f"invalid datetime '{text}'", code="T7", hint=hint)
    return value


def _list_literal(lit: ast.ListLit) -> Literal:
    items = [literal(item) for item in lit.items]
    if not items:
        return Literal(value=(), type=dataclasses.replace(STRING, is_list=True))
    kinds = {item.type.scalar for item in items}
    if any(item.value is None for item in items):
        message = "list literal elements must share a compatible scalar type, and none may be null"
        raise LiteralError(message)
    if len(kinds) > 1 and not kinds <= NUMBERS:
        names = " and ".join(sorted(kinds))
        hint = f"this list mixes {names}"
        raise LiteralError("list literal elements must share a compatible scalar type", hint=hint)
    kind = items[0].type if len(kinds) == 1 else F64 if Scalar.F64 in kinds else U64
    values = tuple(_scalar(item.value) for item in items)
    if kind is F64:
        values = _floats(values)
    elif kind is U64 and any(isinstance(value, int) and value < 0 for value in values):
        message = "no integer type holds all elements of this list"
        raise LiteralError(message, code="T7", hint="I64 ends at 2^63-1, U64 starts at 0")
    return Literal(value=values, type=dataclasses.replace(kind, is_list=True))


def _scalar(value: Value) -> ScalarValue:
    assert value is not None
    assert not isinstance(value, tuple)
    return value


# --- literals that meet a property -------------------------------------------------------------


def fitted(lit: ast.Lit | ast.ListLit, target: PropertyType, name: str) -> Literal:
    """The literal as a value of the property's type, or LiteralError.

    Whole numbers become floats, text becomes dates, lists of numbers become vectors. The error's
    code is T3 for values that no type could explain (enum, vector length, null), None for a plain
    mismatch, whose code depends on where it stands.
    """
    if isinstance(lit, ast.Lit) and lit.kind == "null":
        if target.nullable:
            return Literal(value=None, type=target)
        raise LiteralError(f"property `{name}` is required and cannot be null", code="T3")
    given = literal(lit)
    if target.scalar is Scalar.VECTOR and not target.is_list:
        return _vector(given, target, name)
    if given.type.is_list != target.is_list:
        raise _misfit(given, target, name)
    if isinstance(given.value, tuple):
        if not given.value:
            return Literal(value=(), type=target)
        kind, one = element(given.type), element(target)
        values = tuple(_fit(value, kind, one, name, given) for value in given.value)
        return Literal(value=values, type=target)
    value = _fit(_scalar(given.value), given.type, target, name, given)
    return Literal(value=value, type=target)


def _misfit(given: Literal, target: PropertyType, name: str) -> LiteralError:
    return LiteralError(f"property `{name}` has type {core(target)} but got {core(given.type)}")


def _vector(given: Literal, target: PropertyType, name: str) -> Literal:
    values = given.value
    if not isinstance(values, tuple) or not (is_number(element(given.type)) or not values):
        raise _misfit(given, target, name)
    if len(values) != target.dimension:
        message = (
            f"property `{name}` has type {core(target)} "
            f"but got vector literal with {len(values)} elements"
        )
        raise LiteralError(message, code="T3")
    return Literal(value=_floats(values), type=target)


def _floats(values: Sequence[ScalarValue]) -> tuple[float, ...]:
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    assert len(numbers) == len(values), "a list of numbers holds numbers"
    return tuple(numbers)


def vector_of(given: Literal) -> tuple[float, ...] | None:
    """The numbers of a non-empty list literal of numbers, or None when it is something else."""
    if isinstance(given.value, tuple) and given.value and is_number(element(given.type)):
        return _floats(given.value)
    return None


def _fit(
    value: ScalarValue, kind: PropertyType, target: PropertyType, name: str, given: Literal
) -> ScalarValue:
    """One scalar in the Python form of the target type."""
    if target.enum_values is not None and isinstance(value, str):
        if value in target.enum_values:
            return value
        choices = ", ".join(target.enum_values)
        raise LiteralError(
            f"property `{name}` expects one of [{choices}], got '{value}'", code="T3"
        )
    if kind.scalar in NUMBERS and target.scalar in NUMBERS and isinstance(value, int | float):
        return _fit_number(value, target, name)
    if kind.scalar is Scalar.STRING and isinstance(value, str):
        if target.scalar is Scalar.DATE:
            return _date(value)
        if target.scalar is Scalar.DATETIME:
            return _datetime(value)
        if target.scalar is Scalar.BLOB:
            return value
    if kind.scalar is not target.scalar:
        raise _misfit(given, target, name)
    return value


def _fit_number(value: float, target: PropertyType, name: str) -> float:
    if target.scalar in INTEGERS:
        if value != int(value):
            message = f"property `{name}` has type {core(target)} but got the fraction {value}"
            raise LiteralError(message)
        low, high = INTEGER_BOUNDS[target.scalar]
        if not low <= value <= high:
            message = f"property `{name}` has type {core(target)}, which cannot hold {value}"
            raise LiteralError(message, hint=f"{core(target)} goes from {low} to {high}")
        return int(value)
    if target.scalar is Scalar.F32 and abs(value) > F32_MAX:
        raise LiteralError(f"property `{name}` has type F32, which cannot hold {value}")
    return float(value)
