"""What a check finds: violations as values, the first ones listed and all of them counted.

Here is the one place that says in which order the findings of a load are told, how many of them,
and as which error. The in-process evaluator and the Spark pipeline both end here, so that they say
the same in the same words.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, get_args

import msgspec

from omnigraph.errors import (
    ConstraintViolationError,
    KeyConflictError,
    OmnigraphError,
    RecordError,
)
from omnigraph.model.limits import OFFENDERS_SHOWN_MAX, VIOLATIONS_LISTED_MAX
from omnigraph.model.schema import EdgeType, EntityKind, NodeType

# In the order of what is wrong with one record.
Kind = Literal[
    "record", "file", "type", "required", "enum", "range", "check", "key", "conflict", "unique",
    "endpoint", "cardinality",
]  # fmt: skip
_KINDS: Final[tuple[str, ...]] = get_args(Kind)

PlaceWord = Literal["line", "row", "record", "statement"]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a record was: a line of a file, a row of a source, one of the records that were given,
    or the statement that made it, with the `line` of its text. `at` orders places as the input is
    ordered. What is stored has no place; its entities are named instead."""

    word: PlaceWord
    number: int  # from 1
    source: str = ""  # the address of a file or of a part of a DataFrame; none for what was given
    at: tuple[int, int]
    line: int | None = None  # of a statement

    def __str__(self) -> str:
        if self.word == "statement":
            of = f" of {self.source}" if self.source else ""
            return f"statement {self.number}{of} (line {self.line})"
        if self.word == "line" and self.source:
            return f"{self.source}:{self.number}"
        return f"{self.source} {self.word} {self.number}".lstrip()

    @property
    def facts(self) -> dict[str, int]:
        """Which line or record it was, for errors; nothing for the rows of a table."""
        if self.word == "statement":
            return {"statement": self.number, "line": self.line or 1}
        return {} if self.word == "row" else {self.word: self.number}


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a row breaks the schema.

    `property` is a name, or several joined as `(a, b)`; `ids` are the entities involved; `place`
    says where the row came from (`line 3`), None when it came from a statement or is stored.
    """

    kind: Kind
    entity_kind: EntityKind
    type_name: str
    property: str
    value: str | None
    ids: tuple[str, ...]
    text: str
    place: Place | None = None

    @builtins.property  # the field above took the name
    def message(self) -> str:
        if self.place and self.place.word == "statement":
            return f"{self.text}, in {self.place}"
        return f"{self.place}: {self.text}" if self.place else self.text

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "entity_kind": self.entity_kind,
            "type_name": self.type_name,
            "property": self.property,
            "value": self.value,
            "ids": list(self.ids),
            "place": str(self.place) if self.place else None,
            "message": self.message,
        }


def violated(
    entity: NodeType | EdgeType,
    kind: Kind,
    name: str,
    text: str,
    *,
    place: Place | None,
    value: str | None = None,
    ids: Sequence[str] = (),
) -> Violation:
    """A rule about the properties of this name, broken by an entity of the type."""
    return Violation(
        kind=kind,
        entity_kind=entity.kind,
        type_name=entity.name,
        property=name,
        value=value,
        ids=tuple(ids),
        text=text,
        place=place,
    )


class Unreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A record, or the rest of a file, that cannot be read."""

    text: str
    place: Place
    hint: str | None = None
    kind: Literal["record", "file"] = "record"

    @property
    def message(self) -> str:
        return f"{self.place}: {self.text}"


class Offender(msgspec.Struct, frozen=True, kw_only=True):
    """One bad record as reports show it."""

    place: str
    kind: str
    message: str
    hint: str | None = None
    raw: str | None = None

    def to_json(self) -> dict[str, str]:
        facts = {"place": self.place, "kind": self.kind, "message": self.message}
        return facts | ({"hint": self.hint} if self.hint else {})


Finding = Violation | Unreadable


def kind_rank(kind: str) -> int:
    """Where a kind stands among the things that are wrong with one record."""
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS)


def in_order(found: Iterable[Finding]) -> list[Any]:
    """The findings in the order in which they are told: as their records stand in the input, and
    of one record by kind. What has no place in the input (stored rows) comes last. Findings of one
    rank stay as they were found, rule by rule."""
    return sorted(
        found, key=lambda one: (0, one.place.at, kind_rank(one.kind)) if one.place else (1,)
    )


class Findings:
    """Collects what is wrong with a change; what is listed is the first of it in order.

    A check describes its first `room` findings in the order of the input and counts the others.
    """

    def __init__(self, *, listed_max: int = VIOLATIONS_LISTED_MAX) -> None:
        self.by_kind: dict[str, int] = {}
        self._listed_max = listed_max
        self._violations: list[Violation] = []
        self._unreadable: list[Unreadable] = []

    @property
    def total(self) -> int:
        return sum(self.by_kind.values())

    @property
    def listed(self) -> list[Violation]:
        """The first violations, in order."""
        return in_order(self._violations)[: self._listed_max]

    @property
    def room(self) -> int:
        """How many findings a check describes: any of them may be among the first of all."""
        return self._listed_max

    @property
    def any_unreadable(self) -> bool:
        return bool(self._unreadable)

    def add(self, violations: Iterable[Violation], *, total: int | None = None) -> None:
        """Take violations; `total` is given when only the first of them, of one kind, are
        described."""
        described = list(violations)
        self._violations = self._capped([*self._violations, *described])
        for one in described:
            self.count(one.kind)
        if total is not None and total > len(described):
            assert described, "of what is counted, the first is described"
            self.count(described[0].kind, total - len(described))

    def refuse(self, unreadable: Unreadable) -> None:
        """Take a record that cannot be read."""
        self._unreadable = self._capped([*self._unreadable, unreadable])
        self.count(unreadable.kind)

    def _capped(self, found: list[Any]) -> list[Any]:
        most = self._listed_max
        return in_order(found)[:most] if len(found) > 8 * max(most, 1) else found

    def count(self, kind: str, more: int = 1) -> None:
        """Count what is not described."""
        self.by_kind[kind] = self.by_kind.get(kind, 0) + more

    def copy(self) -> Findings:
        """The same findings, to which more can be added."""
        other = Findings(listed_max=self._listed_max)
        other.by_kind = dict(self.by_kind)
        other._violations = list(self._violations)
        other._unreadable = list(self._unreadable)
        return other

    def raise_if_any(self) -> None:
        """The error that tells all of it, if there is anything to tell."""
        if self.total:
            raise self._with_summary(self._error())

    def _error(self) -> OmnigraphError:
        """`RecordError` if a record cannot be read, `KeyConflictError` if records are only there
        already, else `ConstraintViolationError`. Its message is the first of its kind."""
        listed, more = self.listed, self.total - 1
        if self._unreadable:
            first = in_order(self._unreadable)[0]
            return RecordError(
                first.message + others(more),
                hint=first.hint,
                place=str(first.place),
                **first.place.facts,
                violations=tuple(listed),
                total=self.total,
            )
        if set(self.by_kind) == {"conflict"}:
            return KeyConflictError(
                entity_kind=listed[0].entity_kind,
                type_name=listed[0].type_name,
                entity_id=listed[0].value or "",
                place=str(listed[0].place) if listed[0].place else None,
                more=more,
            )
        error = ConstraintViolationError(
            listed[0].message + others(more), violations=listed, total=self.total
        )
        if (place := listed[0].place) is not None and place.word == "statement":
            _add_facts(error, place.facts)
        return error

    def _with_summary(self, error: OmnigraphError) -> OmnigraphError:
        """The error with the counts by kind and the first offenders among its facts."""
        places = [one.place for one in self._violations if one.place is not None]
        if all(place.word == "statement" for place in places) and not self._unreadable:
            return error  # a statement or a merge: there are no records to point at
        shown = in_order([*self._violations, *self._unreadable])[:OFFENDERS_SHOWN_MAX]
        facts = {
            "by_kind": dict(sorted(self.by_kind.items())),
            "offenders": [
                Offender(
                    place=str(one.place or "stored"),
                    kind=one.kind,
                    message=one.text,
                    hint=one.hint if isinstance(one, Unreadable) else None,
                ).to_json()
                for one in shown
            ],
        }
        _add_facts(error, facts)
        return error


def _add_facts(error: OmnigraphError, facts: Mapping[str, Any]) -> None:
    error.facts |= facts
    for name, value in facts.items():
        setattr(error, name, value)


def others(more: int) -> str:
    """The end of a message that tells the first of several things."""
    return f" (and {more} more)" if more > 0 else ""
