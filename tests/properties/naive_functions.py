"""What each scalar function and operator means, as plain Python over single values.

Values are those of the IR: `datetime.date` for Date, milliseconds for DateTime. `Overflow` stands
for the error that a user would see. Nothing here is shared with the engine.
"""

from __future__ import annotations

import datetime as dt
import functools
import math
import re
import struct
import unicodedata
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MS = dt.timedelta(milliseconds=1)
UNITS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


class Overflow(Exception):  # noqa: N818 - what it stands for
    """A number does not fit into its 64 bits, or a day into the calendar."""


def called(name, args, kinds=()):
    """The value of a call; `kinds` are the scalars of the arguments where that matters."""
    if name == "coalesce":
        return next((one for one in args if one is not None), None)
    if any(one is None for one in args):
        return None
    if name == "to_string" and "DateTime" in kinds:
        return (EPOCH + args[0] * MS).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3].rjust(23, "0") + "Z"
    return _FUNCTIONS[name](*args, **({"single": "F32" in kinds} if name == "to_string" else {}))


def _fitting(number):
    """A number of U64, or one of I64 without its sign."""
    if not -(2**63) <= number < 2**64 or number == 2**63:
        raise Overflow
    return number


def _whole(number):
    if not -(2**63) <= number < 2**63:
        raise Overflow
    return number


def _lower(text):
    return "".join({"İ": "i"}.get(char, char.lower()) for char in text)


def _upper(text):
    """Letter by letter: a letter whose upper case would be several keeps its own, but ß."""
    made = []
    for char in text:
        upper = char.upper()
        made.append("ẞ" if char == "ß" else upper if len(upper) == 1 else char)
    return "".join(made)


def _substring(text, start, count=None):
    if start < 0 or (count is not None and count < 0):
        return None
    return text[start:] if count is None else text[start : start + count]


def _whole_like(to_whole, number):
    """A whole number keeps the sign: -0.5 goes up to -0.0."""
    if isinstance(number, int) or not math.isfinite(number):
        return number
    return math.copysign(to_whole(number), number)


def _round(number, places=0):
    if isinstance(number, int):
        if places >= 0:
            return number
        step = 10 ** min(-places, 30)
        found = int((Fraction(abs(number), step) + Fraction(1, 2)).__floor__()) * step
        return _whole(found if number >= 0 else -found)
    if not math.isfinite(number):
        return number
    with localcontext(prec=1100):
        exact = Decimal(repr(number)).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    return float(exact)


def _pow(base, exponent):
    base, exponent = float(base), float(exponent)
    try:
        return math.pow(base, exponent)
    except OverflowError:
        odd = exponent.is_integer() and math.fmod(exponent, 2) != 0
        return -math.inf if base < 0 and odd else math.inf
    except ValueError:
        if base == 0:
            odd = exponent.is_integer() and math.fmod(exponent, 2) != 0
            return math.copysign(math.inf, base) if odd else math.inf
        return math.nan


def _sign(number):
    if number != number:
        return None
    return (number > 0) - (number < 0)


def _extreme(values, *, greatest):
    found = values[0]
    for other in values[1:]:
        if isinstance(found, float) and math.isnan(found):
            found = found if greatest else other
        elif isinstance(other, float) and math.isnan(other):
            found = other if greatest else found
        elif (other > found) if greatest else (other < found):
            found = other
    return found


def _to_string(value, *, single=False):
    match value:
        case bool():
            return "true" if value else "false"
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case float() if single:
            return _single(value)
        case dt.date():
            return value.isoformat()
        case _:
            return str(value)


def _single(value):
    """The shortest decimal that is this F32."""
    for digits in range(1, 18):
        text = f"{value:.{digits}g}"
        try:
            if struct.unpack("<f", struct.pack("<f", float(text)))[0] == value:
                return repr(float(text))
        except OverflowError:
            continue
    raise AssertionError(value)


_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)


def _to_int(value):
    if isinstance(value, str):
        if not _NUMBER.fullmatch(value):
            return None
        value = Fraction(value.rstrip(".") if value.endswith(".") else value)
    elif isinstance(value, float) and not math.isfinite(value):
        return None
    found = math.trunc(value)
    return found if -(2**63) <= found < 2**63 else None


def _to_float(value):
    if not isinstance(value, str):
        return float(value)
    names = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    return float(value) if _NUMBER.fullmatch(value) else names.get(value)


def _day(value):
    if isinstance(value, dt.date):
        return value
    if isinstance(value, int):
        return (EPOCH + value * MS).date()
    try:
        found = re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value, re.ASCII)
        return dt.date.fromisoformat(value) if found else None
    except ValueError:
        return None


def _moment(value):
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        try:
            if len(value) > 10 and value[10] in "Tt ":
                found = dt.datetime.fromisoformat(value.upper())
                return ((found if found.tzinfo else found.replace(tzinfo=dt.UTC)) - EPOCH) // MS
        except ValueError:
            return None
    day = _day(value)
    return None if day is None else (day - EPOCH.date()).days * 86_400_000


def _parts(value):
    return EPOCH + value * MS if isinstance(value, int) else value


def _trunc(unit, value):
    moment = isinstance(value, int)
    at = _parts(value)
    units = ["year", "month", "day", "hour", "minute", "second"]
    if not moment and unit in units[3:]:
        return value
    if unit == "week":
        at, unit = at - dt.timedelta(days=at.weekday()), "day"
    if unit == "quarter":
        at, unit = at.replace(day=1, month=(at.month - 1) // 3 * 3 + 1), "month"
    gone = {"month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0, "microsecond": 0}
    after = [*units, "microsecond"][units.index(unit) + 1 :]
    at = at.replace(**{name: gone[name] for name in after if moment or name in ("month", "day")})
    return (at - EPOCH) // MS if moment else at


def _duration(number, unit):
    if isinstance(number, float):
        if math.isnan(number):
            return None
        number *= unit
        if math.isinf(number):
            raise Overflow
        return _whole(int(Decimal(number).to_integral_value(ROUND_HALF_UP)))
    return _whole(_whole(number) * unit)


def _shifted(value, ms):
    if isinstance(value, int):
        found = value + ms
        first, last = dt.datetime.min, dt.datetime.max
        ends = [(one.replace(tzinfo=dt.UTC) - EPOCH) // MS for one in (first, last)]
        if not ends[0] <= found <= ends[1]:
            raise Overflow
        return found
    days = abs(ms) // 86_400_000 * (1 if ms >= 0 else -1)
    try:
        return value + dt.timedelta(days=days)
    except OverflowError:
        raise Overflow from None


def _since(a, b):
    return (a - b) / 1000 if isinstance(a, int) else (a - b).days


def _element(items, place):
    return items[place] if -len(items) <= place < len(items) else None


def _slice(items, low, high):
    ends = [max(place + len(items), 0) if place < 0 else place for place in (low, high)]
    return list(items[ends[0] : max(ends)]) if ends[0] <= ends[1] else []


def _like(text, pattern):
    def fits(t, p):
        """Whether the text from `t` on is of the pattern from `p` on."""
        while p < len(pattern):
            char = pattern[p]
            if char == "%":
                return any(fits(at, p + 1) for at in range(t, len(text) + 1))
            if char == "\\" and p + 1 < len(pattern) and pattern[p + 1] in "%_\\":
                p, char = p + 1, pattern[p + 1]
            elif char == "_":
                char = None
            if t >= len(text) or (char is not None and text[t] != char):
                return False
            t, p = t + 1, p + 1
        return t == len(text)

    return fits(0, 0)


def _shown_words(text):
    """Where words of a text begin and end, and what they are without case and accents."""
    found = re.finditer(r"[^\W_]+", text + " ")
    spans = [[one.start(), one.end()] for one in found]
    for span in spans:
        while span[1] < len(text) and unicodedata.category(text[span[1]])[0] in "LNM":
            span[1] += 1
    return [(start, end, _bare(text[start:end])) for start, end in spans]


def _bare(word):
    letters = unicodedata.normalize("NFKD", word.lower())
    return "".join(one for one in letters if unicodedata.category(one)[0] != "M")


def _highlight(text, query, before="**", behind=None, *_how):
    """For queries of words that are their own stems, some of them with a minus."""
    wanted = {_bare(one) for one in query.split() if not one.startswith("-")}
    for start, end, word in reversed(_shown_words(text)):
        if word in wanted:
            mark = before if behind is None else behind
            text = text[:start] + before + text[start:end] + mark + text[end:]
    return text


def _snippet(text, query, count, *marks):
    wanted = {_bare(one) for one in query.split() if not one.startswith("-")}
    words = _shown_words(text)
    if len(words) <= count:
        return _highlight(text, query, *marks)
    ways = []
    for at in range(len(words) - count + 1):
        hits = [word for *_, word in words[at : at + count] if word in wanted]
        ways.append((-len(set(hits)), -len(hits), at))
    at = min(ways)[2]
    start, last = words[at][0] if at else 0, at + count == len(words)
    end = len(text) if last else words[at + count - 1][1]
    return "…" * (start > 0) + _highlight(text[start:end], query, *marks) + "…" * (not last)


_FUNCTIONS = {
    "highlight": _highlight,
    "snippet": _snippet,
    "lower": _lower,
    "upper": _upper,
    "trim": str.strip,
    "length": len,
    "substring": _substring,
    "replace": lambda text, old, new: text.replace(old, new) if old else text,
    "split": lambda text, by: text.split(by) if by else list(text),
    "concat": lambda *texts: "".join(texts),
    "abs": lambda number: _fitting(abs(number)) if isinstance(number, int) else abs(number),
    "round": _round,
    "floor": functools.partial(_whole_like, math.floor),
    "ceil": functools.partial(_whole_like, math.ceil),
    "sqrt": lambda x: math.sqrt(x) if x >= 0 else math.nan,
    "pow": _pow,
    "sign": _sign,
    "least": lambda *values: _extreme(values, greatest=False),
    "greatest": lambda *values: _extreme(values, greatest=True),
    "to_string": _to_string,
    "to_int": _to_int,
    "to_float": _to_float,
    "to_date": _day,
    "to_datetime": _moment,
    "date": _day,
    "datetime": _moment,
    "range": lambda a, b: list(range(a, b + 1)),
    "year": lambda value: _parts(value).year,
    "month": lambda value: _parts(value).month,
    "day": lambda value: _parts(value).day,
    "hour": lambda value: _parts(value).hour,
    "minute": lambda value: _parts(value).minute,
    "second": lambda value: _parts(value).second,
    "trunc": _trunc,
    **{name: lambda n, unit=unit: _duration(n, unit) for name, unit in UNITS.items()},
    "ends_with": str.endswith,
    "like": _like,
    "matches": lambda text, pattern: re.fullmatch(pattern, text) is not None,
    "element": _element,
    "slice": _slice,
    "joined": lambda a, b: [*a, *b],
    "single": lambda one: [one],
    "shifted": _shifted,
    "since": _since,
}
