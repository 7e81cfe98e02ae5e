"""The type rules: what compares with what, which numbers fit, and what a literal or the value of a
parameter becomes."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from msgspec.structs import replace

from omnigraph.compiler.query import ast
from omnigraph.compiler.query.ir import Expr, Literal, ScalarValue, Value
from omnigraph.compiler.text import MisfitError, closest
from omnigraph.model.schema import FLOATS, INTEGERS, NUMBERS, PropertyType, Scalar
from omnigraph.model.values import (
    DATE_HINT,
    INTEGER_BOUNDS,
    MOMENT_HINT,
    fits_f32,
    in_bounds,
    nearest_f32,
    parse_date,
    parse_moment,
)

STRING = PropertyType(scalar=Scalar.STRING)
I64 = PropertyType(scalar=Scalar.I64)
U64 = PropertyType(scalar=Scalar.U64)
F64 = PropertyType(scalar=Scalar.F64)
DATE = PropertyType(scalar=Scalar.DATE)
DATETIME = PropertyType(scalar=Scalar.DATETIME)
BOOL = PropertyType(scalar=Scalar.BOOL)
NULL = PropertyType(scalar=Scalar.STRING, nullable=True)


_KINDS = {
    Scalar.STRING: "string", Scalar.BOOL: "bool", Scalar.DATE: "date", Scalar.DATETIME: "datetime",
    Scalar.I32: "int", Scalar.U32: "int", Scalar.I64: "bigint", Scalar.U64: "bigint",
    Scalar.F32: "float", Scalar.F64: "float", Scalar.VECTOR: "vector", Scalar.BLOB: "blob",
}  # fmt: skip


def core(kind: PropertyType) -> str:
    """The type's name without its question mark."""
    return str(kind).removesuffix("?")


def kind_word(kind: PropertyType, *, item: bool = False) -> str:
    """The word that descriptions use for a type, or for the items of a list."""
    return "list" if kind.is_list and not item else _KINDS[kind.scalar]


def is_null(expr: Expr) -> bool:
    """Whether the expression is the literal null, which fits every type."""
    return isinstance(expr, Literal) and expr.value is None


def nullable(kind: PropertyType) -> PropertyType:
    return kind if kind.nullable else replace(kind, nullable=True)


def element(kind: PropertyType) -> PropertyType:
    """The type of a list's elements."""
    return replace(kind, is_list=False, nullable=False)


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
    return left.scalar is right.scalar or {left.scalar, right.scalar} <= NUMBERS


def assignable(kind: PropertyType, target: PropertyType) -> bool:
    """Whether a value of a declared type may be stored in, or matched with, a property."""
    if kind.is_list != target.is_list:
        return False
    if kind.scalar is Scalar.VECTOR or target.scalar is Scalar.VECTOR:
        return kind.scalar is target.scalar and kind.dimension == target.dimension
    if target.scalar is Scalar.BLOB:
        return kind.scalar in {Scalar.STRING, Scalar.BLOB}
    return kind.scalar is target.scalar or {kind.scalar, target.scalar} <= NUMBERS


# --- one type for several values -----------------------------------------------------------


def common_type(exprs: Sequence[Expr]) -> PropertyType | None:
    """The type that the values of all expressions can become, or None.

    Numbers widen: whole numbers to I64 (unsigned ones to U64), otherwise to F64. A literal does not
    widen what it fits into: beside an I32, `0` is an I32; beside an F32, `0.1` is the nearest F32.
    """
    literals = [expr for expr in exprs if isinstance(expr, Literal)]
    kinds = [expr.type for expr in exprs if not isinstance(expr, Literal)]
    if not kinds:
        written = [lit for lit in literals if lit.value != ()] or literals
        kinds = [lit.type for lit in written] or [NULL]
    found = _holding(kinds)
    unfit = [lit.type for lit in literals if found is None or not _literal_fits(lit, found)]
    return _holding([*kinds, *unfit]) if unfit else found


def _holding(kinds: Sequence[PropertyType]) -> PropertyType | None:
    """The smallest type that holds the values of all these, or None."""
    first = kinds[0]
    if any((kind.is_list, kind.dimension) != (first.is_list, first.dimension) for kind in kinds):
        return None
    if any(kind.enum_values != first.enum_values for kind in kinds):
        first = replace(first, enum_values=None)
    scalars = {kind.scalar for kind in kinds}
    if len(scalars) == 1:
        return first
    if not scalars <= NUMBERS:
        return None
    if scalars & FLOATS:
        return replace(first, scalar=Scalar.F64)
    if Scalar.U64 not in scalars:
        return replace(first, scalar=Scalar.I64)
    unsigned = scalars <= {Scalar.U32, Scalar.U64}
    return replace(first, scalar=Scalar.U64) if unsigned else None


def _literal_fits(lit: Literal, kind: PropertyType) -> bool:
    if isinstance(lit.value, tuple) != kind.is_list or kind.scalar is Scalar.VECTOR:
        return False
    values = lit.value if isinstance(lit.value, tuple) else (_scalar(lit.value),)
    if not values:
        return True
    if kind.enum_values is not None:
        return all(value in kind.enum_values for value in values)
    if lit.type.scalar not in NUMBERS or kind.scalar not in NUMBERS:
        return lit.type.scalar is kind.scalar
    return all(_number_fits(value, kind.scalar) for value in values)


def _number_fits(value: ScalarValue, scalar: Scalar) -> bool:
    if isinstance(value, int):
        if scalar in INTEGERS:
            return in_bounds(value, scalar)
        return scalar is Scalar.F64 or nearest_f32(value) == value
    assert isinstance(value, float), "a number is an int or a float"
    return scalar is Scalar.F64 or (scalar is Scalar.F32 and fits_f32(value))


# --- literals as they stand ----------------------------------------------------------------


def literal(lit: ast.Lit | ast.ListLit) -> Literal:
    """The literal with the type that it has by itself, or MisfitError."""
    if isinstance(lit, ast.ListLit):
        return _list_literal(lit)
    value = lit.value
    match value:
        case None:
            return Literal(value=None, type=NULL)
        case bool():
            return Literal(value=value, type=BOOL)
        case int():
            if not in_bounds(value, Scalar.I64) and not in_bounds(value, Scalar.U64):
                raise MisfitError(f"integer {value} does not fit 64 bits", code="T7")
            return Literal(value=value, type=I64 if in_bounds(value, Scalar.I64) else U64)
        case float():
            return Literal(value=value, type=F64)
        case _ if lit.kind == "date":
            return Literal(value=_date(value), type=DATE)
        case _ if lit.kind == "datetime":
            return Literal(value=_datetime(value), type=DATETIME)
        case _:
            return Literal(value=value, type=STRING)


def _date(text: str) -> dt.date:
    value = parse_date(text)
    if value is None:
        raise MisfitError(f"invalid date '{text}'", code="T7", hint=DATE_HINT)
    return value


def _datetime(text: str) -> int:
    value = parse_moment(text)
    if value is None:
        raise MisfitError(f"invalid datetime '{text}'", code="T7", hint=MOMENT_HINT)
    return value


def _list_literal(lit: ast.ListLit) -> Literal:
    items = [literal(item) for item in lit.items]
    if not items:
        return Literal(value=(), type=replace(STRING, is_list=True))
    kinds = {item.type.scalar for item in items}
    if any(item.value is None for item in items):
        message = "list literal elements must share a compatible scalar type, and none may be null"
        raise MisfitError(message)
    if len(kinds) > 1 and not kinds <= NUMBERS:
        hint = f"this list mixes {' and '.join(sorted(kinds))}"
        raise MisfitError("list literal elements must share a compatible scalar type", hint=hint)
    kind = items[0].type if len(kinds) == 1 else F64 if Scalar.F64 in kinds else U64
    values = tuple(_scalar(item.value) for item in items)
    if kind is F64:
        values = _floats(values)
    elif kind is U64 and any(isinstance(value, int) and value < 0 for value in values):
        message = "no integer type holds all elements of this list"
        raise MisfitError(message, code="T7", hint="I64 ends at 2^63-1, U64 starts at 0")
    return Literal(value=values, type=replace(kind, is_list=True))


def _scalar(value: Value) -> ScalarValue:
    assert value is not None
    assert not isinstance(value, tuple)
    return value


# --- literals that meet a property ---------------------------------------------------------


def fitted(lit: ast.Lit | ast.ListLit, target: PropertyType, name: str) -> Literal:
    """The literal as a value of the property's type, or MisfitError.

    Whole numbers become floats, text becomes dates, lists of numbers become vectors. The error's
    code is T3 for values that no type could explain (enum, vector length, null), None for a plain
    mismatch, whose code depends on where it stands.
    """
    if isinstance(lit, ast.Lit) and lit.kind == "null":
        if target.nullable:
            return Literal(value=None, type=target)
        raise MisfitError(f"property `{name}` is required and cannot be null", code="T3")
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


def _misfit(given: Literal, target: PropertyType, name: str) -> MisfitError:
    return MisfitError(f"property `{name}` has type {core(target)} but got {core(given.type)}")


def _vector(given: Literal, target: PropertyType, name: str) -> Literal:
    numbers = vector_of(given)
    if numbers is None and given.value != ():
        raise _misfit(given, target, name)
    numbers = numbers or ()
    if len(numbers) != target.dimension:
        wanted = f"property `{name}` has type {core(target)}"
        message = f"{wanted} but got vector literal with {len(numbers)} elements"
        raise MisfitError(message, code="T3")
    return Literal(value=numbers, type=target)


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
        near = closest(value, target.enum_values)
        raise MisfitError(
            f"property `{name}` expects one of [{choices}], got '{value}'",
            code="T3",
            hint=f"did you mean '{near}'?" if near else None,
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
            raise MisfitError(message)
        if not in_bounds(value, target.scalar):
            low, high = INTEGER_BOUNDS[target.scalar]
            message = f"property `{name}` has type {core(target)}, which cannot hold {value}"
            raise MisfitError(message, hint=f"{core(target)} goes from {low} to {high}")
        return int(value)
    if target.scalar is Scalar.F32 and not fits_f32(value):
        raise MisfitError(f"property `{name}` has type F32, which cannot hold {value}")
    return float(value)
