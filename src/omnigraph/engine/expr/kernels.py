"""One kernel for each scalar function, duration and operator of `compiler/query/functions.py`.

A kernel takes Arrow arrays or scalars, one for each argument, gives an array, or a scalar if all
of them are, and keeps the null rule that the table states. A scalar that is null it only gets if
null does not always give null. Where Arrow has no such kernel, numpy
does it for whole columns; Python goes through the values only where the work is hardly ever done
for many of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any, Final

import numpy as np

from omnigraph.compiler.query.functions import DURATIONS_MS, SHOWN_MARK, TRUNC_UNITS
from omnigraph.engine.arrow import Array, DataType, Ints, Mask, Values, as_mask, counted, pa, pc
from omnigraph.engine.expr.rowwise import (
    by_distinct,
    constant_of,
    made,
    missing_in,
    numbers_of,
    on_columns,
    row_by_row,
)
from omnigraph.engine.rows.columns import judged
from omnigraph.engine.text.analysis import Analysis
from omnigraph.engine.text.shown import highlight, snippet
from omnigraph.errors import InputError, LimitExceededError
from omnigraph.model.limits import RANGE_ITEMS_MAX
from omnigraph.model.schema import PropertyType, Scalar
from omnigraph.model.values import (
    DAYS_MAX,
    DAYS_MIN,
    FLOAT_NAMES,
    INTEGER_BOUNDS,
    MS_MAX,
    MS_MIN,
    MS_PER_DAY,
)
from omnigraph.storage.lance.columns import value_type

_I64_MIN, _I64_MAX = INTEGER_BOUNDS[Scalar.I64]
_DATE: Final = PropertyType(scalar=Scalar.DATE)
_DATETIME: Final = PropertyType(scalar=Scalar.DATETIME)
_DAY_TYPE: Final = value_type(_DATE)
_MOMENT_TYPE: Final = value_type(_DATETIME)


def overflow(what: str, kind: str) -> InputError:
    return InputError(
        f"the result of '{what}' does not fit into {kind}",
        hint="use a float property or literal to calculate with floats" if "64" in kind else None,
    )


# --- text --------------------------------------------------------------------------------------


def _length(value: Values) -> Values:
    if pa.types.is_list(value.type):
        return pc.cast(pc.list_value_length(value), pa.int64())
    return pc.cast(pc.utf8_length(value), pa.int64())


def _substring(text: Values, start: Values, count: Values | None = None) -> Values:
    first, many = constant_of(start), 0 if count is None else constant_of(count)
    constant = first is not None and many is not None and not isinstance(text, pa.Scalar)
    if constant and first >= 0 and many >= 0:
        stop = None if count is None else min(first + many, _I64_MAX)
        return pc.utf8_slice_codeunits(text, start=min(first, 1 << 40), stop=stop)
    args = (text, start) if count is None else (text, start, count)
    return row_by_row(_characters, pa.string())(*args)


def _characters(text: str, start: int, count: int | None = None) -> str | None:
    if start < 0 or (count is not None and count < 0):
        return None
    return text[start:] if count is None else text[start : start + count]


def _replace(text: Values, old: Values, new: Values) -> Values:
    constant = constant_of(old) and constant_of(new) is not None
    if constant and not isinstance(text, pa.Scalar):
        return pc.replace_substring(text, pattern=constant_of(old), replacement=constant_of(new))
    return row_by_row(lambda t, a, b: t.replace(a, b) if a else t, pa.string())(text, old, new)


def _split(text: Values, separator: Values) -> Values:
    if constant_of(separator) and not isinstance(text, pa.Scalar):
        return pc.split_pattern(text, pattern=constant_of(separator))
    return row_by_row(lambda t, s: t.split(s) if s else list(t), pa.list_(pa.string()))(
        text, separator
    )


def _concat(*texts: Values) -> Values:
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")


def _ends_with(text: Values, part: Values) -> Values:
    if constant_of(part) is not None and not isinstance(text, pa.Scalar):
        return pc.ends_with(text, pattern=constant_of(part))
    return row_by_row(str.endswith, pa.bool_())(text, part)


def _by_pattern(expression_of: Callable[[str], str]) -> Callable[[Values, Values], Values]:
    """Whether the whole text is of the regular expression that the pattern becomes (RE2)."""

    def applied(texts: Array, patterns: Array) -> Array:
        coded = patterns.dictionary_encode()
        codes = np.asarray(coded.indices.fill_null(-1))
        found = np.zeros(len(texts), dtype=np.bool_)
        for code, pattern in enumerate(coded.dictionary.to_pylist()):
            # Every pattern is read once, whatever the number of its rows.
            at = np.flatnonzero(codes == code)
            some = texts if len(at) == len(texts) else texts.take(pa.array(at))
            found[at] = as_mask(pc.match_substring_regex(some, pattern=expression_of(pattern)))
        return made(found, missing_in(texts, patterns), pa.bool_())

    return on_columns(applied)


def _regular(pattern: str) -> str:
    try:  # alone: two wrong halves must not become right between our brackets
        pc.match_substring_regex(pa.array([""]), pattern=pattern)
    except pa.ArrowInvalid as cause:
        reason = str(cause).removeprefix("Invalid regular expression: ")
        raise InputError(
            f'"{pattern}" is no regular expression: {reason}',
            hint="`matches` takes the syntax of RE2; a backslash in a text is written twice",
        ) from cause
    return rf"\A(?:{pattern})\z"


_LIKE_PART: Final = re.compile(r"\\([%_\\])|(.)", re.DOTALL)


def _like(pattern: str) -> str:
    parts = []
    for found in _LIKE_PART.finditer(pattern):
        plain, char = found.group(1), found.group(2)
        parts.append({"%": ".*", "_": "."}.get(char) or _quoted(plain or char))
    return rf"(?s)\A{''.join(parts)}\z"


def _quoted(char: str) -> str:
    """The expression of one character; RE2 reads a NUL only by its number."""
    if char == "\x00":
        return r"\x00"
    return char if char.isalnum() or not char.isascii() else f"\\{char}"


# --- numbers -----------------------------------------------------------------------------------


def _wide(value: Values) -> Values:
    """Whole numbers in 64 bits, others as floats of 64 bits."""
    if pa.types.is_integer(value.type):
        return value if pa.types.is_uint64(value.type) else pc.cast(value, pa.int64())
    return pc.cast(value, pa.float64())


def _absolute(value: Values) -> Values:
    try:
        return pc.abs_checked(_wide(value))
    except pa.ArrowInvalid as cause:
        raise overflow("abs", "I64") from cause


def _round(value: Values, digits: Values | None = None) -> Values:
    value = _wide(value)
    places = 0 if digits is None else constant_of(digits)
    if pa.types.is_integer(value.type):
        if places is not None and places >= 0:
            return value
        return row_by_row(_rounded_whole(value.type), value.type)(value, digits)
    if places == 0:
        return pc.round(value, ndigits=0, round_mode="half_towards_infinity")
    if places is None or abs(places) > _QUICK_DIGITS or isinstance(value, pa.Scalar):
        return row_by_row(_rounded, pa.float64())(value, digits)
    return _rounded_column(value, places)


_QUICK_DIGITS: Final = 11
_QUICK_MAX: Final = 1e11  # scaled numbers below it are wrong by far less than what we look at


def _rounded_column(array: Array, places: int) -> Array:
    """Scaled, cut and scaled back; what is near a half is looked at digit by digit."""
    numbers, missing = numbers_of(array), missing_in(array)
    power = 10.0 ** abs(places)
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.abs(numbers * power if places > 0 else numbers / power)
        cut = np.floor(scaled)
        sure = (scaled < _QUICK_MAX) & (np.abs(scaled - cut - 0.5) > 1e-4)
        nearest = np.floor(scaled + 0.5)
        found = np.copysign(nearest / power if places > 0 else nearest * power, numbers)
    for row in np.flatnonzero(~sure & ~missing).tolist():
        found[row] = _rounded(float(numbers[row]), places)
    return made(found, missing, pa.float64())


def _rounded(number: float, places: int) -> float:
    """The number with so many decimal digits, as its shortest decimal form says it."""
    if not math.isfinite(number) or places > 400:
        return number
    if places < -400:
        return math.copysign(0.0, number)
    with localcontext(prec=1000):
        return float(Decimal(repr(number)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP))


def _rounded_whole(kind: DataType) -> Callable[[int, int], int]:
    least, most = (0, 2**64 - 1) if pa.types.is_uint64(kind) else (_I64_MIN, _I64_MAX)

    def rounded(number: int, places: int) -> int:
        if places >= 0:
            return number
        power: int = 10 ** min(-places, 25)
        found = (abs(number) * 2 + power) // (2 * power) * power
        found = found if number >= 0 else -found
        if not least <= found <= most:
            raise overflow("round", "64 bits")
        return found

    return rounded


def _whole_or(kernel: Callable[[Values], Values]) -> Callable[[Values], Values]:
    """A kernel of floats that leaves whole numbers as they are."""

    def applied(value: Values) -> Values:
        value = _wide(value)
        return value if pa.types.is_integer(value.type) else kernel(value)

    return applied


def _as_float(value: Values) -> Values:
    return pc.cast(value, pa.float64(), safe=False)


def _sign(value: Values) -> Values:
    found = pc.sign(_wide(value))
    if pa.types.is_floating(found.type):
        found = pc.if_else(pc.is_nan(found), pa.scalar(None, found.type), found)
    return pc.cast(found, pa.int64())


def _extreme(*args: Values, greatest: bool) -> Values:
    """The largest or the smallest of values of one type; NaN is above every number."""
    found = args[0]
    for other in args[1:]:
        better = (pc.greater if greatest else pc.less)(other, found)
        if pa.types.is_floating(found.type):
            better = pc.or_kleene(better, pc.is_nan(other if greatest else found))
            unknown = pc.or_(pc.is_null(found), pc.is_null(other))
            better = pc.if_else(unknown, pa.scalar(None, pa.bool_()), better)
        found = pc.if_else(better, other, found)
    return found


# --- conversion --------------------------------------------------------------------------------


def _to_string(value: Values) -> Values:
    kind = value.type
    if pa.types.is_floating(kind):
        single = pa.types.is_float32(kind)
        return by_distinct(_shortest_single if single else _shortest, pa.string())(value)
    if kind == _MOMENT_TYPE:
        plain = pc.cast(pc.cast(value, pa.timestamp("ms")), pa.string())
        return pc.binary_join_element_wise(pc.replace_substring(plain, " ", "T"), "Z", "")
    return pc.cast(value, pa.string())


def _shortest(number: float) -> str:
    if math.isfinite(number):
        return repr(number)
    return next(name for name, one in FLOAT_NAMES.items() if repr(one) == repr(number))


def _shortest_single(number: float) -> str:
    """The fewest digits that mean this number of 32 bits, written as a float's are."""
    return _shortest(float(str(np.float32(number))))


_DECIMAL: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,6})?", re.ASCII)


def _to_int(value: Values) -> Values:
    kind = value.type
    if pa.types.is_string(kind):
        return by_distinct(_whole_of, pa.int64())(value)
    if pa.types.is_floating(kind):
        number = pc.trunc(_as_float(value))
        low, high = pa.scalar(-(2.0**63)), pa.scalar(2.0**63)
        fits = pc.and_(pc.greater_equal(number, low), pc.less(number, high))
        return pc.cast(pc.if_else(fits, number, pa.scalar(None, pa.float64())), pa.int64())
    if pa.types.is_uint64(kind):
        fits = pc.less_equal(value, pa.scalar(_I64_MAX, kind))
        value = pc.if_else(fits, value, pa.scalar(None, kind))
    return pc.cast(value, pa.int64())


def _whole_of(text: str) -> int | None:
    if _DECIMAL.fullmatch(text) is None:
        return None
    number = Decimal(text)
    if number and number.adjusted() > 19:
        return None
    whole = int(number)
    return whole if _I64_MIN <= whole <= _I64_MAX else None


def _to_float(value: Values) -> Values:
    if not pa.types.is_string(value.type):
        return _as_float(value)
    return by_distinct(_float_of, pa.float64())(value)


def _float_of(text: str) -> float | None:
    if _DECIMAL.fullmatch(text) is not None:
        return float(text)
    return FLOAT_NAMES.get(text)


def _read(texts: Array, kind: PropertyType) -> Array:
    """The days or moments that texts say, null where one says none."""
    found, _ = judged(texts, kind, texts.to_pylist())
    return found


@on_columns
def _to_date(value: Array) -> Array:
    if pa.types.is_string(value.type):
        return _read(value, _DATE)
    if value.type == _DAY_TYPE:
        return value
    days = np.floor_divide(numbers_of(counted(value)), MS_PER_DAY).astype(np.int32)
    return made(days, missing_in(value), pa.int32()).cast(_DAY_TYPE)


@on_columns
def _to_datetime(value: Array) -> Array:
    if pa.types.is_string(value.type):
        return pc.coalesce(_read(value, _DATETIME), _midnight(_read(value, _DATE)))
    return _midnight(value) if value.type == _DAY_TYPE else value


def _midnight(days: Array) -> Array:
    moments = numbers_of(counted(days)).astype(np.int64) * MS_PER_DAY
    return made(moments, missing_in(days), pa.int64()).cast(_MOMENT_TYPE)


# --- lists -------------------------------------------------------------------------------------


def _extents(lists: Array) -> tuple[Ints, Ints]:
    """Where the elements of each list begin among all values, and how many there are."""
    offsets = np.asarray(lists.offsets, dtype=np.int64)
    lengths = np.diff(offsets)
    return offsets[:-1], np.where(missing_in(lists), 0, lengths)


def _from_runs(values: Array, starts: Ints, lengths: Ints, rows: Ints, missing: Mask) -> Array:
    """Lists of runs of values; `rows` are how many elements each list gets."""
    ends = np.cumsum(lengths)
    at = np.arange(int(lengths.sum()), dtype=np.int64)
    at += np.repeat(starts - (ends - lengths), lengths)
    offsets = np.concatenate([[0], np.cumsum(rows)]).astype(np.int32)
    gone = pa.array(missing) if missing.any() else None
    return pa.ListArray.from_arrays(pa.array(offsets), values.take(pa.array(at)), mask=gone)


def _from_end(places: Ints, lengths: Ints) -> Ints:
    return np.where(places < 0, places + lengths, places)


@on_columns
def _element(lists: Array, places: Array) -> Array:
    starts, lengths = _extents(lists)
    at = _from_end(numbers_of(places.cast(pa.int64())), lengths)
    none = (at < 0) | (at >= lengths) | missing_in(lists, places)
    return lists.values.take(pa.array(np.where(none, 0, starts + at), mask=none))


@on_columns
def _slice(lists: Array, low: Array, high: Array) -> Array:
    starts, lengths = _extents(lists)
    missing = missing_in(lists, low, high)
    first, last = (
        np.clip(_from_end(numbers_of(place.cast(pa.int64())), lengths), 0, lengths)
        for place in (low, high)
    )
    counts = np.where(missing, 0, np.maximum(last - first, 0))
    return _from_runs(lists.values, starts + first, counts, counts, missing)


@on_columns
def _joined(left: Array, right: Array) -> Array:
    missing = missing_in(left, right)
    (a, a_count), (b, b_count) = _extents(left), _extents(right)
    a_count, b_count = np.where(missing, 0, a_count), np.where(missing, 0, b_count)
    values = pa.concat_arrays([left.values, right.values])
    starts = np.stack([a, b + len(left.values)], axis=1).ravel()
    lengths = np.stack([a_count, b_count], axis=1).ravel()
    return _from_runs(values, starts, lengths, a_count + b_count, missing)


@on_columns
def _single(items: Array) -> Array:
    there = ~missing_in(items)
    at, counts = np.arange(len(items), dtype=np.int64), there.astype(np.int64)
    return _from_runs(items, at, counts, counts, ~there)


@on_columns
def _range(low: Array, high: Array) -> Array:
    for side in (low, high):
        if pa.types.is_uint64(side.type) and (pc.max(side).as_py() or 0) > _I64_MAX:
            raise overflow("range", "I64")
    first, last = (numbers_of(side.cast(pa.int64())) for side in (low, high))
    missing = missing_in(low, high)
    # As floats, for the difference of two whole numbers may be beyond them.
    wanted = np.where(missing, 0, last.astype(np.float64) - first.astype(np.float64) + 1)
    if wanted.max(initial=0) > RANGE_ITEMS_MAX:
        raise LimitExceededError(
            resource="range (elements)", limit=RANGE_ITEMS_MAX, actual=int(wanted.max())
        )
    counts = np.where(missing | (last < first), 0, last - first + 1)
    ends = np.cumsum(counts)
    items = np.arange(int(counts.sum()), dtype=np.int64)
    items += np.repeat(first - (ends - counts), counts)
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    gone = pa.array(missing) if missing.any() else None
    return pa.ListArray.from_arrays(offsets, pa.array(items), mask=gone)


# --- time --------------------------------------------------------------------------------------


def _calendar(value: Values) -> Values:
    """Days as they are, moments without their zone, which is always UTC."""
    return pc.cast(value, pa.timestamp("ms")) if pa.types.is_timestamp(value.type) else value


def _part(kernel: Callable[[Values], Values]) -> Callable[[Values], Values]:
    return lambda value: pc.cast(kernel(_calendar(value)), pa.int64())


_OF_DAYS: Final = frozenset({"hour", "minute", "second"})


def _trunc(unit: Values, value: Values) -> Values:
    name = constant_of(unit)
    if name not in TRUNC_UNITS:
        hint = "one of: " + ", ".join(f'"{one}"' for one in TRUNC_UNITS)
        raise InputError(f'trunc does not know the unit "{name}"', hint=hint)
    if name in _OF_DAYS and value.type == _DAY_TYPE:
        return value
    found = pc.floor_temporal(_calendar(value), unit=name, week_starts_monday=True)
    return pc.cast(found, value.type)


def _duration(name: str) -> Callable[[Values], Values]:
    unit = DURATIONS_MS[name]

    def milliseconds(value: Values) -> Values:
        try:
            if pa.types.is_integer(value.type):
                return pc.multiply_checked(pc.cast(value, pa.int64()), pa.scalar(unit, pa.int64()))
            exact = pc.multiply(_as_float(value), pa.scalar(float(unit)))
            exact = pc.if_else(pc.is_nan(exact), pa.scalar(None, exact.type), exact)
            rounded = pc.round(exact, ndigits=0, round_mode="half_towards_infinity")
            return pc.cast(rounded, pa.int64())
        except pa.ArrowInvalid as cause:
            raise overflow(name, "I64") from cause

    return milliseconds


@on_columns
def _shifted(value: Array, milliseconds: Array) -> Array:
    """The day or moment so much later; a day moves by whole days."""
    missing = missing_in(value, milliseconds)
    numbers, by = numbers_of(counted(value)).astype(np.int64), numbers_of(milliseconds)
    day = value.type == _DAY_TYPE
    if day:
        by = np.sign(by) * (np.abs(by) // MS_PER_DAY)
    lowest, highest = (DAYS_MIN, DAYS_MAX) if day else (MS_MIN, MS_MAX)
    outside = (by > highest - numbers) | (by < lowest - numbers)
    if (outside & ~missing).any():
        raise overflow("+", "Date" if day else "DateTime")
    found = np.where(missing, 0, numbers + np.where(missing, 0, by))
    shifted = made(found, missing, pa.int64())
    return (shifted.cast(pa.int32()) if day else shifted).cast(value.type)


@on_columns
def _since(later: Array, earlier: Array) -> Array:
    missing = missing_in(later, earlier)
    found = numbers_of(counted(later)).astype(np.int64) - numbers_of(counted(earlier))
    if later.type == _DAY_TYPE:
        return made(found, missing, pa.int64())
    return made(found / 1000, missing, pa.float64())


def _highlight(text: str, query: str, *how: str) -> str:
    """Behind the query come the marks before and behind, and how the text is cut."""
    return highlight(text, query, *_how(*how))


def _snippet(text: str, query: str, words: int, *how: str) -> str:
    if words < 1:
        raise InputError(f"snippet: the number of words must be 1 or more, got {words}")
    return snippet(text, query, words, *_how(*how))


def _how(
    before: str = SHOWN_MARK,
    behind: str | None = None,
    language: str = "",
    tokenizer: Any = "words",
) -> tuple[tuple[str, str], Analysis]:
    """The marks, and how the text is cut: the checker tells that of properties."""
    marks = (before, before if behind is None else behind)
    return marks, Analysis(language or None, tokenizer)


KERNELS: Final[Mapping[str, Callable[..., Values]]] = {
    # One letter for one letter, in any place and language: İ gives i.
    "lower": pc.utf8_lower,
    "upper": pc.utf8_upper,
    "trim": pc.utf8_trim_whitespace,
    "length": _length,
    "substring": _substring,
    "replace": _replace,
    "split": _split,
    "concat": _concat,
    "highlight": row_by_row(_highlight, pa.string()),
    "snippet": row_by_row(_snippet, pa.string()),
    "coalesce": pc.coalesce,
    "abs": _absolute,
    "round": _round,
    "floor": _whole_or(pc.floor),
    "ceil": _whole_or(pc.ceil),
    "sqrt": lambda value: pc.sqrt(_as_float(value)),
    "pow": lambda base, exponent: pc.power(_as_float(base), _as_float(exponent)),
    "sign": _sign,
    "least": lambda *args: _extreme(*args, greatest=False),
    "greatest": lambda *args: _extreme(*args, greatest=True),
    "to_string": _to_string,
    "to_int": _to_int,
    "to_float": _to_float,
    "to_date": _to_date,
    "to_datetime": _to_datetime,
    "date": _to_date,
    "datetime": _to_datetime,
    "range": _range,
    "year": _part(pc.year),
    "month": _part(pc.month),
    "day": _part(pc.day),
    "hour": _part(pc.hour),
    "minute": _part(pc.minute),
    "second": _part(pc.second),
    "trunc": _trunc,
    **{name: _duration(name) for name in DURATIONS_MS},
    "ends_with": _ends_with,
    "like": _by_pattern(_like),
    "matches": _by_pattern(_regular),
    "element": _element,
    "slice": _slice,
    "joined": _joined,
    "single": _single,
    "shifted": _shifted,
    "since": _since,
}
