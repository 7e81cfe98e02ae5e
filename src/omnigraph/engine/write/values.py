"""One value at a time: what a JSON or Python value becomes in a column of a declared type.

A *fitted* value is what Arrow takes for the column as it is: text, bool, int, float; days since
the epoch for Date; milliseconds since the epoch for DateTime; a list of floats for Vector; a
`BlobCell` for Blob; a list of fitted items for `[T]`. Anything else is a `Misfit`, which says why.
The columnar twin with the same verdicts is `columns.py`.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from omnigraph.model.limits import BLOB_URI_BYTES_MAX
from omnigraph.model.schema import INTEGERS, PropertyType, Scalar
from omnigraph.model.values import (
    EPOCH,
    EPOCH_MOMENT,
    F32_MAX,
    INTEGER_BOUNDS,
    nearest_f32,
    whole,
)

MS_PER_DAY: Final = 86_400_000
# Python's own calendar: what lies outside could be stored but never be read back as a date.
DAYS_MIN: Final = (dt.date.min - EPOCH).days
DAYS_MAX: Final = (dt.date.max - EPOCH).days
MS_MIN: Final = DAYS_MIN * MS_PER_DAY
MS_MAX: Final = (DAYS_MAX + 1) * MS_PER_DAY - 1

FLOAT_NAMES: Final[Mapping[str, float]] = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}
# Numbers are called by both names: the one of the schema, and the one that says what it means.
_NUMBER_WORDS: Final[Mapping[Scalar, str]] = {
    Scalar.I32: "Int32",
    Scalar.I64: "Int64",
    Scalar.U32: "UInt32",
    Scalar.U64: "UInt64",
    Scalar.F32: "Float32",
    Scalar.F64: "Float64",
}

DATE_PATTERN: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
MOMENT_PATTERN: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})?$"
)
_DATE = re.compile(DATE_PATTERN)
_MOMENT = re.compile(MOMENT_PATTERN)
_INTEGER = re.compile(r"^-?[0-9]+$")
_URI = re.compile(r"^(file:///|s3://[^/\s]+/)\S+$")  # what Lance can read in place

BASE64_PREFIX: Final = "base64:"


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a value cannot go into a column."""

    message: str


@dataclass(frozen=True, slots=True)
class BlobCell:
    """A blob to be stored: its bytes, or the URI of where they are; exactly one is there."""

    data: bytes | None = None
    uri: str | None = None


def fit(value: Any, kind: PropertyType) -> Any:
    """The fitted value, None for None, or a `Misfit`. Nullability is not judged here."""
    if value is None:
        return None
    if kind.is_list:
        return _fit_list(value, kind)
    if kind.scalar is Scalar.VECTOR:
        return _fit_vector(value, kind)
    return _FITTERS[kind.scalar](value)


def type_words(kind: PropertyType) -> str:
    """The type as messages name it: as the schema spells it, without the question mark."""
    if kind.scalar is Scalar.VECTOR or kind.is_list:
        return str(replace(kind, nullable=False))
    return scalar_words(kind.scalar)


def scalar_words(scalar: Scalar) -> str:
    """For instance `String`, `Date` or `Int32 (I32)`."""
    number = _NUMBER_WORDS.get(scalar)
    return scalar.value if number is None else f"{number} ({scalar.value})"


def shown(value: Any) -> str:
    """The value as a message shows it: short, strings in single quotes."""
    text = f"'{value}'" if isinstance(value, str) else _json_word(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _json_word(value: Any) -> str:
    match value:
        case True:
            return "true"
        case False:
            return "false"
        case None:
            return "null"
        case dict():
            return "an object"
        case list() | tuple():
            return f"an array of {len(value)}"
        case bytes():
            return f"{len(value)} bytes"
        case _:
            return str(value)


def _wrong(scalar: Scalar, value: Any) -> Misfit:
    return Misfit(f"expects {scalar_words(scalar)}, got {shown(value)}")


def _far(scalar: Scalar, value: Any) -> Misfit:
    number = _NUMBER_WORDS[scalar]
    return Misfit(f"expects {scalar_words(scalar)}, got {shown(value)}, outside the {number} range")


def _fit_string(value: Any) -> Any:
    if not isinstance(value, str):
        return _wrong(Scalar.STRING, value)
    try:
        value.encode()
    except UnicodeEncodeError:
        return Misfit("expects String, got text with a lone surrogate")
    return value


def _fit_bool(value: Any) -> Any:
    return value if isinstance(value, bool) else _wrong(Scalar.BOOL, value)


def _fit_integer(scalar: Scalar) -> Callable[[Any], Any]:
    lowest, highest = INTEGER_BOUNDS[scalar]
    takes_text = scalar in (Scalar.I64, Scalar.U64)

    def fitted(value: Any) -> Any:
        if takes_text and isinstance(value, str) and len(value) <= 40 and _INTEGER.match(value):
            value = int(value)
        if isinstance(value, float) and (number := whole(value)) is not None:
            value = number  # programs whose integers can be missing write them as floats
        if not isinstance(value, int) or isinstance(value, bool):
            return _wrong(scalar, value)
        if not lowest <= value <= highest:
            return _far(scalar, value)
        return value

    return fitted


def _fit_f64(value: Any) -> Any:
    if isinstance(value, str) and value in FLOAT_NAMES:
        return FLOAT_NAMES[value]
    if not isinstance(value, int | float) or isinstance(value, bool):
        return _wrong(Scalar.F64, value)
    try:
        return float(value)
    except OverflowError:
        return _far(Scalar.F64, value)


def _fit_f32(value: Any) -> Any:
    wide = _fit_f64(value)
    if isinstance(wide, Misfit):
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return _far(Scalar.F32, value) if is_number else _wrong(Scalar.F32, value)
    narrow = nearest_f32(wide)
    if abs(narrow) > F32_MAX and not math.isinf(narrow):
        return _far(Scalar.F32, value)
    return narrow


def _fit_date(value: Any) -> Any:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return (value - EPOCH).days
    if isinstance(value, str) and _DATE.match(value):
        try:
            return (dt.date.fromisoformat(value) - EPOCH).days
        except ValueError:
            return Misfit(f"expects Date, got {shown(value)}, which is no day of the calendar")
    if isinstance(value, int) and not isinstance(value, bool):
        if DAYS_MIN <= value <= DAYS_MAX:
            return value
        return Misfit(f"expects Date, got {value}, outside the years 1 to 9999")
    return _wrong(Scalar.DATE, value)


def _fit_datetime(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return _milliseconds(value)
    if isinstance(value, str) and _MOMENT.match(value):
        try:
            return _milliseconds(dt.datetime.fromisoformat(_with_microseconds(value)))
        except (ValueError, OverflowError):
            return Misfit(f"expects DateTime, got {shown(value)}, which is no moment in time")
    if isinstance(value, int) and not isinstance(value, bool):
        if MS_MIN <= value <= MS_MAX:
            return value
        return Misfit(f"expects DateTime, got {value}, outside the years 1 to 9999")
    return _wrong(Scalar.DATETIME, value)


def _with_microseconds(text: str) -> str:
    """The moment without the digits beyond microseconds, which Python would refuse."""
    return re.sub(r"(\.[0-9]{6})[0-9]+", r"\1", text).upper()


def _milliseconds(moment: dt.datetime) -> Any:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    count = (moment - EPOCH_MOMENT) // dt.timedelta(milliseconds=1)
    if not MS_MIN <= count <= MS_MAX:
        return Misfit(f"expects DateTime, got {moment.isoformat()}, outside the years 1 to 9999")
    return count


def _fit_blob(value: Any) -> Any:
    if isinstance(value, BlobCell):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return BlobCell(data=bytes(value))
    if not isinstance(value, str):
        return _wrong(Scalar.BLOB, value)
    if value.startswith(BASE64_PREFIX):
        try:
            data = base64.b64decode(value[len(BASE64_PREFIX) :].encode(), validate=True)
        except (binascii.Error, UnicodeEncodeError):
            return Misfit(f"expects Blob, got {shown(value)}, which is not valid base64")
        return BlobCell(data=data)
    if not _URI.match(value):
        return Misfit(f"expects Blob as 'base64:…' or a file:// or s3:// URI, got {shown(value)}")
    if len(value.encode(errors="replace")) > BLOB_URI_BYTES_MAX:
        return Misfit(f"expects Blob, got a URI longer than {BLOB_URI_BYTES_MAX} bytes")
    return BlobCell(uri=value)


def _fit_vector(value: Any, kind: PropertyType) -> Any:
    if not isinstance(value, list | tuple | np.ndarray):
        return Misfit(f"expects {type_words(kind)}, got {shown(value)}")
    if len(value) != kind.dimension:
        return Misfit(f"expects {type_words(kind)}, got {len(value)} numbers")
    numbers = [_fit_f32(_plain_number(item)) for item in value]
    for item, number in zip(value, numbers, strict=True):
        if isinstance(number, Misfit):
            return Misfit(f"expects {type_words(kind)}, got an item {shown(item)}")
        if not math.isfinite(number):
            return Misfit(f"expects {type_words(kind)}, got an item that is not finite")
    return numbers


def _plain_number(item: Any) -> Any:
    return item.item() if isinstance(item, np.generic) else item


def _fit_list(value: Any, kind: PropertyType) -> Any:
    if not isinstance(value, list | tuple):
        return Misfit(f"expects {type_words(kind)}, got {shown(value)}")
    fitter = _FITTERS[kind.scalar]
    items = [None if item is None else fitter(item) for item in value]
    for place, item in enumerate(items):
        if item is None or isinstance(item, Misfit):
            return Misfit(
                f"expects {type_words(kind)}, got a null or invalid item {shown(value[place])} "
                f"at position {place}"
            )
    return items


_FITTERS: Final[Mapping[Scalar, Callable[[Any], Any]]] = {
    Scalar.STRING: _fit_string,
    Scalar.BOOL: _fit_bool,
    Scalar.F32: _fit_f32,
    Scalar.F64: _fit_f64,
    Scalar.DATE: _fit_date,
    Scalar.DATETIME: _fit_datetime,
    Scalar.BLOB: _fit_blob,
    **{scalar: _fit_integer(scalar) for scalar in INTEGERS},
}
