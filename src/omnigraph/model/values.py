"""What a value of each type is: bounds, dates and times, fitting one value, and its JSON form.

Told here once, for schema defaults, literals, parameters, records, columns and results. Arrow's
columns are judged by `engine.rows.columns`, which gives the same verdicts many values at a time.

A *fitted* value is what Arrow takes for the column as it is: text, bool, int, float; days since
the epoch for Date; milliseconds since the epoch for DateTime; a list of floats for Vector; a
`BlobCell` for Blob; a list of fitted items for `[T]`. Anything else is a `Misfit`, which says why.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from omnigraph.model.limits import BLOB_URI_BYTES_MAX
from omnigraph.model.schema import INTEGERS, PropertyType, Scalar

# --- numbers ----------------------------------------------------------------------------------

INTEGER_BOUNDS: Final[Mapping[Scalar, tuple[int, int]]] = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}
F32_MAX: Final = 3.4028234663852886e38
# Beyond this, two integers can be the same double: 2^53 may have been 2^53 + 1. It is also where
# the numbers of JavaScript end, and so of JSON.
FLOAT_EXACT_MAX: Final = 2**53 - 1
# Arrow's fixed-size lists count with a signed 32-bit number.
VECTOR_DIMENSION_MAX: Final = INTEGER_BOUNDS[Scalar.I32][1]
FLOAT_NAMES: Final[Mapping[str, float]] = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
}


def in_bounds(value: float, scalar: Scalar) -> bool:
    """Whether the integer type reaches as far as the number."""
    lowest, highest = INTEGER_BOUNDS[scalar]
    return lowest <= value <= highest


def whole(value: float) -> int | None:
    """The integer that a float says exactly, as `3.0` says 3; None if it may mean another one."""
    exact = value.is_integer() and abs(value) <= FLOAT_EXACT_MAX
    return int(value) if exact else None


def nearest_f32(value: float) -> float:
    """The number that an F32 column holds for this one; one out of its range is left as it is."""
    if math.isnan(value):
        return value
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return value


def nearest_f32s(values: Sequence[float]) -> list[float] | None:
    """The same of many finite numbers at once; None if one of them is none, or out of the range."""
    if not {*map(type, values)} <= {int, float}:
        return None
    form = struct.Struct(f"<{len(values)}f")
    try:
        found = form.unpack(form.pack(*values))
    except OverflowError:
        return None
    return [*found] if all(map(math.isfinite, found)) else None


def fits_f32(value: float) -> bool:
    """Whether F32 has a number near this one. NaN and the infinities are numbers of F32 too."""
    return not F32_MAX < abs(nearest_f32(value)) < math.inf


# --- dates and times --------------------------------------------------------------------------

EPOCH: Final = dt.date(1970, 1, 1)
EPOCH_MOMENT: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MS_PER_DAY: Final = 86_400_000
# Python's own calendar: what lies outside could be stored but never be read back as a date.
DAYS_MIN: Final = (dt.date.min - EPOCH).days
DAYS_MAX: Final = (dt.date.max - EPOCH).days
MS_MIN: Final = DAYS_MIN * MS_PER_DAY
MS_MAX: Final = (DAYS_MAX + 1) * MS_PER_DAY - 1
DATE_HINT: Final = "dates are YYYY-MM-DD"
MOMENT_HINT: Final = "timestamps are RFC 3339, such as 2026-02-14T10:00:00Z"

# These shapes are regular expressions of Python and of Arrow (RE2) alike; whether there is such a
# day or hour is asked afterwards. A moment is RFC 3339: in any letter case, with a space for the
# T, with any number of digits after the second. Without an offset it means UTC, wherever it is
# written: in a default, a literal, a parameter, a record or a file.
DATE_PATTERN: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"
MOMENT_PATTERN: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"([Zz]|[+-][0-9]{2}:[0-5][0-9])?$"
)
_DATE = re.compile(DATE_PATTERN)
_MOMENT = re.compile(MOMENT_PATTERN)
_TOO_FINE = re.compile(r"(\.[0-9]{6})[0-9]+")
_ISO = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def calendar_bounds(scalar: Scalar) -> tuple[int, int]:
    """The first and the last day number of Date, or millisecond of DateTime."""
    return (DAYS_MIN, DAYS_MAX) if scalar is Scalar.DATE else (MS_MIN, MS_MAX)


def calendar_number(value: dt.date) -> int:
    """What is stored: days since the epoch of a date, milliseconds of a datetime.

    A datetime without a zone means UTC; what is finer than a millisecond is dropped.
    """
    if isinstance(value, dt.datetime):
        return (in_utc(value) - EPOCH_MOMENT) // dt.timedelta(milliseconds=1)
    return (value - EPOCH).days


def moment_at(milliseconds: int) -> dt.datetime:
    """The moment so long after the epoch."""
    return EPOCH_MOMENT + dt.timedelta(milliseconds=milliseconds)


def microseconds(moment: dt.datetime) -> int:
    """How long after the epoch, exactly; commits are dated so."""
    return (in_utc(moment) - EPOCH_MOMENT) // dt.timedelta(microseconds=1)


def in_utc(moment: dt.datetime) -> dt.datetime:
    """The moment with a zone; without one it means UTC."""
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def parse_date(text: str) -> dt.date | None:
    """The day that `YYYY-MM-DD` names, or None."""
    try:
        return dt.date.fromisoformat(text) if _DATE.fullmatch(text) else None
    except ValueError:
        return None


def parse_moment(text: str) -> int | None:
    """Milliseconds since the epoch of RFC 3339 text, or None; the years are 1 to 9999."""
    moment = _read_moment(text)
    count = None if moment is None else calendar_number(moment)
    return count if count is not None and MS_MIN <= count <= MS_MAX else None


def _read_moment(text: str) -> dt.datetime | None:
    if _MOMENT.fullmatch(text) is None:
        return None
    try:
        # Python reads at most six digits of a second.
        return dt.datetime.fromisoformat(_TOO_FINE.sub(r"\1", text).upper())
    except ValueError:
        return None


def parse_iso(text: str) -> dt.datetime | None:
    """The moment of any ISO text that Python reads, as people write one by hand: a day alone is
    its midnight, the seconds may be missing. None if it is no such text."""
    try:
        return in_utc(dt.datetime.fromisoformat(text)) if _ISO.match(text) else None
    except ValueError:
        return None


def moment_text(moment: dt.datetime, timespec: str = "milliseconds") -> str:
    """`YYYY-MM-DDTHH:MM:SS.mmmZ`, or as exactly as `timespec` says."""
    # Not strftime, whose %Y leaves out the zeros of early years.
    plain = in_utc(moment).astimezone(dt.UTC).replace(tzinfo=None)
    return f"{plain.isoformat(timespec=timespec)}Z"


def json_value(value: Any) -> Any:
    """A value as JSON shows it: dates in ISO form, times in UTC with milliseconds, integers beyond
    2^53 - 1 and non-finite floats as text."""
    match value:
        case bool() | None | str():
            return value
        case int():
            return value if -FLOAT_EXACT_MAX <= value <= FLOAT_EXACT_MAX else str(value)
        case float():
            return value if math.isfinite(value) else float_name(value)
        case dt.datetime():
            return moment_text(value)
        case dt.date():
            return value.isoformat()
        case list() | tuple():
            return [json_value(item) for item in value]
        case _:
            return value


def float_name(value: float) -> str:
    """The word for a float that no digits can say; see `FLOAT_NAMES`."""
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


# --- fitting one value ------------------------------------------------------------------------


class Misfit(msgspec.Struct, frozen=True):
    """Why a value cannot go into a column."""

    message: str


class BlobCell(msgspec.Struct, frozen=True):
    """A blob to be stored: its bytes, or the URI of where they are; exactly one is there."""

    data: bytes | None = None
    uri: str | None = None


# Numbers are called by both names: the one of the schema, and the one that says what it means.
_NUMBER_WORDS: Final[Mapping[Scalar, str]] = {
    Scalar.I32: "Int32",
    Scalar.I64: "Int64",
    Scalar.U32: "UInt32",
    Scalar.U64: "UInt64",
    Scalar.F32: "Float32",
    Scalar.F64: "Float64",
}
_INTEGER = re.compile(r"^-?[0-9]{1,40}$")
_SURROGATE = re.compile("[\ud800-\udfff]")
_URI = re.compile(r"^(file:///|s3://[^/\s]+/)\S+$")  # what Lance can read in place
BASE64_PREFIX: Final = "base64:"


def fit(value: Any, kind: PropertyType) -> Any:
    """The fitted value, None for None, or a `Misfit`. Nullability is not judged here."""
    if value is None:
        return None
    if kind.is_list:
        return _fit_list(value, kind)
    if kind.scalar is Scalar.VECTOR:
        return _fit_vector(value, kind)
    return _FITTERS[kind.scalar](value)


def plain(value: Any) -> Any:
    """NumPy's scalars and arrays as Python values, without knowing NumPy; others as they are."""
    unwrap = getattr(value, "tolist", None)
    return unwrap() if callable(unwrap) else value


def with_text_ends(record: Any) -> Any:
    """A record of a program's with its ends as text: keys that are numbers are at hand as such."""
    if not isinstance(record, dict) or "edge" not in record:
        return record
    ends = {name: record[name] for name in ("from", "to") if type(record.get(name)) is int}
    return {**record, **{name: str(end) for name, end in ends.items()}} if ends else record


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
    match value:
        case str():
            text = f"'{value}'"
        case True | False | None:
            text = {True: "true", False: "false", None: "null"}[value]
        case dict():
            text = "an object"
        case list() | tuple():
            text = f"an array of {len(value)}"
        case bytes():
            text = f"{len(value)} bytes"
        case _:
            text = str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _wrong(scalar: Scalar, value: Any, why: str = "") -> Misfit:
    return Misfit(f"expects {scalar_words(scalar)}, got {shown(value)}{why}")


def _far(scalar: Scalar, value: Any) -> Misfit:
    return _wrong(scalar, value, f", outside the {_NUMBER_WORDS[scalar]} range")


def _fit_string(value: Any) -> Any:
    if not isinstance(value, str):
        return _wrong(Scalar.STRING, value)
    if has_lone_surrogate(value):
        return Misfit("expects String, got text with a lone surrogate")
    return value


def has_lone_surrogate(text: str) -> bool:
    """Whether the text holds half of a surrogate pair, which UTF-8 cannot say."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def _fit_bool(value: Any) -> Any:
    return value if isinstance(value, bool) else _wrong(Scalar.BOOL, value)


def _fit_integer(scalar: Scalar) -> Callable[[Any], Any]:
    # Programs without 64-bit integers write these two as text.
    takes_text = scalar in (Scalar.I64, Scalar.U64)

    def fitted(value: Any) -> Any:
        if takes_text and isinstance(value, str) and _INTEGER.fullmatch(value):
            value = int(value)
        if isinstance(value, float) and (number := whole(value)) is not None:
            value = number  # programs whose integers can be missing write them as floats
        if not isinstance(value, int) or isinstance(value, bool):
            return _wrong(scalar, value)
        return value if in_bounds(value, scalar) else _far(scalar, value)

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
    return nearest_f32(wide) if fits_f32(wide) else _far(Scalar.F32, value)


def _fit_date(value: Any) -> Any:
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return calendar_number(value)
    if isinstance(value, str) and _DATE.fullmatch(value):
        day = parse_date(value)
        why = ", which is no day of the calendar"
        return _wrong(Scalar.DATE, value, why) if day is None else calendar_number(day)
    return _fit_count(Scalar.DATE, value)


def _fit_datetime(value: Any) -> Any:
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        moment = _read_moment(value)
        if moment is None:
            return _wrong(Scalar.DATETIME, value, ", which is no moment in time")
        value = moment
    if isinstance(value, dt.datetime):
        count = calendar_number(value)
        return count if MS_MIN <= count <= MS_MAX else _beyond(Scalar.DATETIME, value.isoformat())
    return _fit_count(Scalar.DATETIME, value)


def _fit_count(scalar: Scalar, value: Any) -> Any:
    """Days or milliseconds since the epoch, as older exports have them."""
    if not isinstance(value, int) or isinstance(value, bool):
        return _wrong(scalar, value)
    lowest, highest = calendar_bounds(scalar)
    return value if lowest <= value <= highest else _beyond(scalar, value)


def _beyond(scalar: Scalar, value: Any) -> Misfit:
    return Misfit(f"expects {scalar.value}, got {value}, outside the years 1 to 9999")


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
            return _wrong(Scalar.BLOB, value, ", which is not valid base64")
        return BlobCell(data=data)
    if not _URI.fullmatch(value):
        return Misfit(f"expects Blob as 'base64:…' or a file:// or s3:// URI, got {shown(value)}")
    if len(value.encode(errors="replace")) > BLOB_URI_BYTES_MAX:
        return Misfit(f"expects Blob, got a URI longer than {BLOB_URI_BYTES_MAX} bytes")
    return BlobCell(uri=value)


def _fit_vector(value: Any, kind: PropertyType) -> Any:
    items = plain(value)
    if not isinstance(items, list | tuple):
        return Misfit(f"expects {type_words(kind)}, got {shown(value)}")
    if len(items) != kind.dimension:
        return Misfit(f"expects {type_words(kind)}, got {len(items)} numbers")
    numbers = [_fit_f32(plain(item)) for item in items]
    for item, number in zip(items, numbers, strict=True):
        if isinstance(number, Misfit):
            return Misfit(f"expects {type_words(kind)}, got an item {shown(item)}")
        if not math.isfinite(number):
            return Misfit(f"expects {type_words(kind)}, got an item that is not finite")
    return numbers


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
