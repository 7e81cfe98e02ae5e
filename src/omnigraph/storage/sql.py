"""SQL text for Lance filters: names in backticks, values as literals.

Lance reads double quotes as string literals, so a name must never stand in them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Final

Value = str | int | float | bool | date | datetime | None

_INT_MIN: Final = -(1 << 63)
_INT_MAX: Final = (1 << 63) - 1


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
            return _float(value)
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            return _timestamp(value)
        case date():
            return f"date '{value.isoformat()}'"


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


def _float(value: float) -> str:
    if math.isfinite(value):
        return f"CAST('{value!r}' AS DOUBLE)"
    word = "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return f"CAST('{word}' AS DOUBLE)"


def _timestamp(value: datetime) -> str:
    moment = value.replace(tzinfo=UTC) if value.tzinfo is None else value
    text = moment.astimezone(UTC).isoformat(sep=" ", timespec="milliseconds")
    return f"timestamp '{text.removesuffix('+00:00')}'"
