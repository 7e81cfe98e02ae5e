"""What a check finds: violations as values, the first ones listed and all of them counted."""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from omnigraph.errors import ConstraintViolationError
from omnigraph.model.limits import VIOLATIONS_LISTED_MAX
from omnigraph.model.schema import EntityKind

Kind = Literal[
    "type", "required", "enum", "range", "check", "key", "unique", "endpoint", "cardinality"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One way in which a row breaks the schema.

    `property` is a name, or several joined as `(a, b)`; `ids` are the entities involved; `place`
    says where the row came from (`line 3`), None when it came from a statement.
    """

    kind: Kind
    entity_kind: EntityKind
    type_name: str
    property: str
    value: str | None
    ids: tuple[str, ...]
    text: str
    place: str | None = None

    @builtins.property  # the field above took the name
    def message(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "entity_kind": self.entity_kind,
            "type_name": self.type_name,
            "property": self.property,
            "value": self.value,
            "ids": list(self.ids),
            "place": self.place,
            "message": self.message,
        }


class Findings:
    """Collects violations in the order in which they are found."""

    def __init__(self, *, listed_max: int = VIOLATIONS_LISTED_MAX) -> None:
        self.listed: list[Violation] = []
        self.total = 0
        self._listed_max = listed_max

    @property
    def room(self) -> int:
        """How many more would be listed; a check describes no more than that."""
        return max(0, self._listed_max - len(self.listed))

    def add(self, violations: Iterable[Violation], *, total: int | None = None) -> None:
        """Take violations; `total` is given when only the first of them are described."""
        described = list(violations)
        self.listed += described[: self.room]
        self.total += len(described) if total is None else total

    def raise_if_any(self) -> None:
        """`ConstraintViolationError` with the first violation as its message."""
        if not self.total:
            return
        first = self.listed[0].message
        more = f" (and {self.total - 1} more)" if self.total > 1 else ""
        raise ConstraintViolationError(first + more, violations=self.listed, total=self.total)
