"""Written types to property types, and `@default` literals to values of them."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date, datetime

from omnigraph.compiler.diagnostics import closest
from omnigraph.compiler.schema.ast import Argument, TypeExpr, Word
from omnigraph.compiler.schema.problems import Problems
from omnigraph.model.schema import (
    FLOATS,
    INTEGERS,
    LiteralValue,
    PropertyType,
    Scalar,
)
from omnigraph.model.values import F32_MAX, INTEGER_BOUNDS

VECTOR_DIMENSION_MAX = 2**31 - 1  # Arrow's fixed-size lists count with a signed 32-bit number
_DIMENSION_PARSED_MAX = 2**32 - 1
_BASES = {scalar.value: scalar for scalar in Scalar if scalar is not Scalar.VECTOR}
_TYPE_WORDS = (*_BASES, "enum", "Vector")
_OTHER_NAMES = {
    "int": "I64", "integer": "I64", "long": "I64", "float": "F64", "double": "F64",
    "text": "String", "str": "String", "boolean": "Bool", "timestamp": "DateTime",
    "bytes": "Blob", "binary": "Blob",
}  # fmt: skip
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DATETIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})"
)


def resolved_type(written: TypeExpr, *, where: str, problems: Problems) -> PropertyType | None:
    """The property type, or None after a report. `where` names the property in messages."""
    if written.enum_values is not None:
        return _enum(written, written.enum_values, where=where, problems=problems)
    if written.dimension is not None:
        return _vector(written, written.dimension, where=where, problems=problems)
    scalar = _BASES.get(written.base)
    if scalar is None:
        near = _OTHER_NAMES.get(written.base.lower()) or closest(written.base, _TYPE_WORDS)
        problems.report(
            f"unknown type '{written.base}' of {where}",
            offset=written.offset,
            hint=f"did you mean `{near}`?" if near else "the types are " + ", ".join(_TYPE_WORDS),
        )
        return None
    if written.is_list and scalar is Scalar.BLOB:
        problems.report(f"list of Blob is not supported ({where})", offset=written.offset)
        return None
    return PropertyType(scalar=scalar, nullable=written.nullable, is_list=written.is_list)


def _enum(
    written: TypeExpr, values: tuple[str, ...], *, where: str, problems: Problems
) -> PropertyType | None:
    value, times = Counter(values).most_common(1)[0]
    if times > 1:
        problems.report(f"duplicate enum value '{value}' in {where}", offset=written.offset)
        return None
    return PropertyType(
        scalar=Scalar.STRING, nullable=written.nullable, enum_values=tuple(sorted(values))
    )


def _vector(
    written: TypeExpr, dimension: int, *, where: str, problems: Problems
) -> PropertyType | None:
    message = None
    if dimension > _DIMENSION_PARSED_MAX:
        message = f"invalid Vector dimension {dimension} of {where}"
    elif dimension > VECTOR_DIMENSION_MAX:
        message = (
            f"Vector dimension {dimension} of {where} exceeds maximum supported "
            f"{VECTOR_DIMENSION_MAX}"
        )
    elif dimension == 0:
        message = f"Vector dimension of {where} must be greater than zero"
    if message is not None:
        problems.report(message, offset=written.offset)
        return None
    return PropertyType(scalar=Scalar.VECTOR, nullable=written.nullable, dimension=dimension)


def default_of(kind: PropertyType, written: Argument) -> LiteralValue | None:
    """The value of `@default(written)` for a type, or None when the literal does not fit it.

    Dates stay text, in the form the schema wrote them.
    """
    value: LiteralValue = written.text if isinstance(written, Word) else written
    if kind.is_list or kind.scalar in (Scalar.VECTOR, Scalar.BLOB):
        return None
    if kind.enum_values is not None:
        return value if value in kind.enum_values else None
    if kind.scalar in INTEGERS:
        low, high = INTEGER_BOUNDS[kind.scalar]
        fits = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        return value if fits else None
    if kind.scalar in FLOATS:
        return _float_default(kind.scalar, value)
    if kind.scalar is Scalar.BOOL:
        return value if isinstance(value, bool) else None
    if not isinstance(value, str):
        return None
    if kind.scalar is Scalar.STRING or _is_moment(kind.scalar, value):
        return value
    return None


def _float_default(scalar: Scalar, value: LiteralValue) -> float | None:
    if isinstance(value, bool | str):
        return None
    number = float(value)
    return None if scalar is Scalar.F32 and abs(number) > F32_MAX else number


def _is_moment(scalar: Scalar, text: str) -> bool:
    form, read = (_DATE, date) if scalar is Scalar.DATE else (_DATETIME, datetime)
    if form.fullmatch(text) is None:
        return False
    try:
        # Python reads at most six digits of a second.
        read.fromisoformat(re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", text.upper()))
    except ValueError:
        return False
    return True


def default_forms(kind: PropertyType) -> str:
    """What a default of this type looks like."""
    if kind.enum_values is not None:
        return "one of: " + ", ".join(f"`{value}`" for value in kind.enum_values)
    return {
        Scalar.STRING: '`@default("text")`',
        Scalar.BOOL: "`@default(true)` or `@default(false)`",
        Scalar.DATE: '`@default("2024-01-31")`',
        Scalar.DATETIME: '`@default("2024-01-31T12:00:00Z")`',
        Scalar.F32: "`@default(0.5)`",
        Scalar.F64: "`@default(0.5)`",
    }.get(kind.scalar, f"a whole number in the range of {kind.scalar.value}: `@default(0)`")
