"""How the conformance tests compare what they found with what a case expects."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest


def plain(value: Any) -> Any:
    """A value as its JSON twin: dates and times as text, nested values too."""
    match value:
        case dt.datetime():
            moment = value.astimezone(dt.UTC) if value.tzinfo else value
            return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
        case dt.date():
            return value.isoformat()
        case Mapping():
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
        case _:
            return value


def same(found: Any, expected: Any) -> bool:
    """Equal as JSON values, with room for the rounding of floats; a boolean is no number."""
    if isinstance(expected, bool) or isinstance(found, bool):
        return found is expected
    if isinstance(expected, int | float) and isinstance(found, int | float):
        return math.isclose(found, expected, rel_tol=1e-5, abs_tol=1e-9)
    if isinstance(expected, list) and isinstance(found, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, dict) and isinstance(found, dict):
        return found.keys() == expected.keys() and all(
            same(found[key], value) for key, value in expected.items()
        )
    return bool(found == expected)


def same_bag(found: list[Any], expected: list[Any]) -> bool:
    """The same values, in any order, each as often."""
    left = list(found)
    for item in expected:
        index = next((i for i, other in enumerate(left) if same(other, item)), None)
        if index is None:
            return False
        del left[index]
    return not left


def has_members(found: Any, expected: Mapping[str, Any]) -> bool:
    """`found` holds every key of `expected` with that value; nested mappings likewise."""
    for key, value in expected.items():
        if key not in found:
            return False
        if isinstance(value, dict):
            if not isinstance(found[key], dict) or not has_members(found[key], value):
                return False
        elif not same(found[key], value):
            return False
    return True


@contextmanager
def environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the length of one step."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        yield
