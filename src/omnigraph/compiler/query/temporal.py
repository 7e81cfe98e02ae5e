"""Dates and timestamps as text: `YYYY-MM-DD` and RFC 3339."""

from __future__ import annotations

import datetime as dt
import re

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_DATETIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?([Zz]|[+-]\d{2}:\d{2})?",
    re.ASCII,
)
_EPOCH = dt.date(1970, 1, 1)
_DAY_MS = 86_400_000


def parse_date(text: str) -> dt.date | None:
    """The date, or None when the text is not one."""
    if not _DATE.fullmatch(text):
        return None
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        return None


def parse_datetime(text: str) -> int | None:
    """Milliseconds since the epoch, or None. Without an offset the text means UTC; digits beyond
    milliseconds are dropped."""
    found = _DATETIME.fullmatch(text)
    if found is None:
        return None
    day = parse_date(found[1])
    hour, minute, second = int(found[2]), int(found[3]), int(found[4])
    if day is None or hour > 23 or minute > 59 or second > 59:
        return None
    offset = _offset_minutes(found[6])
    if offset is None:
        return None
    fraction_ms = int((found[5] or "0").ljust(3, "0")[:3])
    time_ms = ((hour * 60 + minute - offset) * 60 + second) * 1000 + fraction_ms
    return (day - _EPOCH).days * _DAY_MS + time_ms


def _offset_minutes(text: str | None) -> int | None:
    if text is None or text in "Zz":
        return 0
    hours, minutes = int(text[1:3]), int(text[4:6])
    if hours > 23 or minutes > 59:
        return None
    return (hours * 60 + minutes) * (-1 if text[0] == "-" else 1)
