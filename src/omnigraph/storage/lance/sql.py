"""SQL text for Lance filters: names in backticks, values as literals.

Lance reads double quotes as string literals, so a name must never stand in them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import Final

from omnigraph.model.schema import Scalar
from omnigraph.model.values import INTEGER_BOUNDS, float_name, in_utc

Value = str | int | float | bool | date | datetime | None

# Lance's words for the types that a constant or a wider number is cast to.
_SQL_TYPES: Final[Mapping[Scalar, str]] = {
    Scalar.STRING: "Utf8",
    Scalar.BOOL: "Boolean",
    Scalar.I32: "Int32",
    Scalar.I64: "Int64",
    Scalar.U32: "UInt32",
    Scalar.U64: "UInt64",
    Scalar.F32: "Float32",
    Scalar.F64: "Float64",
    Scalar.DATE: "Date32",
    Scalar.DATETIME: 'Timestamp(Millisecond, Some("UTC"))',
}

_INT_MIN, _INT_MAX = INTEGER_BOUNDS[Scalar.I64]


def column(name: str) -> str:
    """The column of that name, whatever words or signs the name holds."""
    return "`" + name.replace("`", "``") + "`"


def literal(value: Value) -> str:
    """The value as SQL text; dates and times are typed, floats keep every bit."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int():
            return _integer(value)
        case float():
            word = repr(value) if math.isfinite(value) else float_name(value)
            return f"CAST('{word}' AS DOUBLE)"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            text = in_utc(value).astimezone(UTC).isoformat(sep=" ", timespec="milliseconds")
            return f"timestamp '{text.removesuffix('+00:00')}'"
        case date():
            return f"date '{value.isoformat()}'"


def fitted_literal(value: Value, scalar: Scalar) -> str:
    """A fitted value (`model.values.fit`), typed as its column is."""
    text = literal(value)
    if scalar is Scalar.DATE:
        text = cast(text, Scalar.I32)  # days, which only a narrow integer turns into a date
    return cast(text, scalar)


def cast(text: str, to: Scalar) -> str:
    """The SQL expression, cast to the type of a column."""
    return f"arrow_cast({text}, '{_SQL_TYPES[to]}')"


def in_list(name: str, values: Iterable[Value]) -> str:
    """`name` is one of the values; no values match no row, a null among them matches nothing.

    NaN matches every NaN, whatever its bits.
    """
    given = [value for value in values if value is not None]
    numbers = [value for value in given if value == value]
    listed = ", ".join(literal(value) for value in numbers)
    texts = [f"{column(name)} IN ({listed})"] if listed else []
    texts += [f"isnan({column(name)})"] if len(numbers) < len(given) else []
    return f"({' OR '.join(texts)})" if len(texts) > 1 else "".join(texts) or "false"


def all_of(*conditions: str | None) -> str | None:
    """Every condition that is there, joined; None if there is none."""
    present = [condition for condition in conditions if condition]
    if len(present) <= 1:
        return present[0] if present else None
    return " AND ".join(f"({condition})" for condition in present)


def _integer(value: int) -> str:
    if _INT_MIN < value <= _INT_MAX:
        return str(value)
    # The parser reads anything bigger, and the number behind a minus, as a float and loses digits.
    if value == _INT_MIN:
        return f"CAST('{value}' AS BIGINT)"
    return f"CAST('{value}' AS BIGINT UNSIGNED)"
