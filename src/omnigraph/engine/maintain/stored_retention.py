"""The retention that a graph carries: how much of the past each branch keeps, and whether upkeep
sees to it by itself. `cleanup` without bounds of its own goes by it.

It is one small object, replaced as a whole. A branch goes by the longest pattern that fits its
name; one that no pattern fits keeps everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from omnigraph.engine.arguments import AGE_OR_NONE, FLAG, INT_OR_NONE, MAPPING, TEXT, require
from omnigraph.engine.core import Core
from omnigraph.errors import CorruptGraphError, InputError
from omnigraph.storage.objects.root import RETENTION

Age = timedelta | int | float
EVERY: Final = "*"  # the pattern that fits every branch
_FORMAT: Final = 1
_BOUNDS: Final = ("keep_versions", "older_than")


class Bounds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much of a branch's past stays: a snapshot goes only if every given bound lets it go, and
    none goes without a bound."""

    keep_versions: int | None = None
    older_than_us: int | None = None

    @classmethod
    def of(cls, keep_versions: int | None, older_than: Age | None) -> Bounds:
        """The bounds as callers give them; `InputError` for one that makes no sense."""
        require(INT_OR_NONE, keep_versions=keep_versions)
        if keep_versions is not None and keep_versions < 1:
            raise InputError(f"keep_versions is {keep_versions}", hint="keep at least 1")
        older_than_us = None if older_than is None else age_us("older_than", older_than)
        return cls(keep_versions=keep_versions, older_than_us=older_than_us)

    @property
    def older_than(self) -> timedelta | None:
        return None if self.older_than_us is None else timedelta(microseconds=self.older_than_us)

    def to_json(self) -> dict[str, Any]:
        age = self.older_than
        seconds = None if age is None else int(age.total_seconds())
        return {"keep_versions": self.keep_versions, "older_than_secs": seconds}


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds by pattern of branch names; `automatic`: upkeep cleans up by them."""

    branches: Mapping[str, Bounds] = {}
    automatic: bool = False

    def bounds(self, branch: str) -> Bounds:
        """What the branch goes by."""
        fitting = [pattern for pattern in self.branches if fnmatchcase(branch, pattern)]
        best = max(fitting, key=lambda one: (one == branch, len(one), one), default=None)
        return Bounds() if best is None else self.branches[best]

    def to_json(self) -> dict[str, Any]:
        rules = {pattern: bounds.to_json() for pattern, bounds in sorted(self.branches.items())}
        return {"branches": rules, "automatic": self.automatic}


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    format_version: int
    branches: dict[str, Bounds]
    automatic: bool

    def __post_init__(self) -> None:
        if self.format_version != _FORMAT:
            raise ValueError(f"unknown format {self.format_version}")
        if not all(_is_sound(bounds) for bounds in self.branches.values()):
            raise ValueError("a bound that nobody could have set")


def stored(core: Core) -> Retention:
    """What the graph carries; no bounds at all if nothing was ever set."""
    found = core.store.objects.read(RETENTION)
    if found is None:
        return Retention()
    try:
        told = msgspec.json.decode(found.body, type=_Stored)
    except msgspec.MsgspecError as cause:
        raise CorruptGraphError(
            f"the retention of the graph '{RETENTION}' cannot be read: {cause}",
            hint="set it again, for example with `omnigraph retention set`",
            part=RETENTION,
        ) from cause
    return Retention(branches=told.branches, automatic=told.automatic)


def _is_sound(bounds: Bounds) -> bool:
    keep, age = bounds.keep_versions, bounds.older_than_us
    return (keep is None or keep >= 1) and (age is None or age >= 0) and bounds != Bounds()


def store(core: Core, rules: Mapping[str, Mapping[str, Any]], *, automatic: bool) -> Retention:
    """Replace what the graph carries; no rules and not automatic is what a new graph has."""
    core.require_writable()
    require(FLAG, automatic=automatic)
    retention = Retention(branches=_rules(rules), automatic=automatic)
    if automatic and not retention.branches:
        raise InputError(
            "automatic retention without a rule would never let go of anything",
            hint="give one, for example {'*': {'keep_versions': 100}}",
            argument="automatic",
        )
    told = _Stored(format_version=_FORMAT, branches=dict(retention.branches), automatic=automatic)
    core.store.objects.put(RETENTION, msgspec.json.format(msgspec.json.encode(told), indent=2))
    return retention


def _rules(rules: Mapping[str, Mapping[str, Any]]) -> dict[str, Bounds]:
    require(MAPPING, rules=rules)
    found: dict[str, Bounds] = {}
    for pattern, given in rules.items():
        require(TEXT, pattern=pattern)
        if not pattern.strip():
            raise InputError("a pattern of branch names must not be empty", argument="rules")
        require(MAPPING, bounds=given)
        unknown = sorted(set(given) - set(_BOUNDS))
        if unknown:
            raise InputError(
                f"unknown bound '{unknown[0]}' for the branches '{pattern}'",
                hint=f"use {' and '.join(_BOUNDS)}",
                argument="rules",
            )
        bounds = Bounds.of(given.get("keep_versions"), given.get("older_than"))
        if bounds == Bounds():
            raise InputError(
                f"the branches '{pattern}' have no bound",
                hint=f"give {' or '.join(_BOUNDS)}; without a rule a branch keeps everything",
                argument="rules",
            )
        found[pattern] = bounds
    return found


def age_us(name: str, age: Age) -> int:
    """A length of time in microseconds; `InputError` with the argument's name for what is none."""
    require(AGE_OR_NONE, **{name: age})
    seconds = age.total_seconds() if isinstance(age, timedelta) else age
    if not abs(seconds) <= timedelta.max.total_seconds():
        raise InputError(f"{name} is no length of time: {age}", argument=name)
    if seconds < 0:
        raise InputError(f"{name} is negative", argument=name)
    return round(seconds * 1_000_000)
