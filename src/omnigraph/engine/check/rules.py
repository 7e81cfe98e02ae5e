"""The constraints of a type as data: what a schema demands of its rows.

`rules_of` is the one description. Values are checked in `values.py`, rows against each other in
`decide.py`, in this order: values, ids, uniqueness, ends, number of edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from omnigraph.model.schema import FLOATS, EdgeType, NodeType

Entity = NodeType | EdgeType


class Required(msgspec.Struct, frozen=True, kw_only=True):
    """The property may not be null."""

    property: str


class OneOf(msgspec.Struct, frozen=True, kw_only=True):
    """The value is one of an enum's."""

    property: str
    values: tuple[str, ...]


class Within(msgspec.Struct, frozen=True, kw_only=True):
    """The number lies between both bounds, each inclusive and optional; NaN lies nowhere."""

    property: str
    minimum: int | float | None
    maximum: int | float | None


class Matches(msgspec.Struct, frozen=True, kw_only=True):
    """The pattern is found somewhere in the text (RE2, as the reference's regex)."""

    property: str
    pattern: str


class FiniteKey(msgspec.Struct, frozen=True, kw_only=True):
    """A float in a key is a real number, or no id could name the node."""

    property: str


class Unique(msgspec.Struct, frozen=True, kw_only=True):
    """No two rows agree in all these columns; rows with a null among them are exempt."""

    columns: tuple[str, ...]

    @property
    def label(self) -> str:
        return label_of(self.columns)


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The column names an existing node of the type."""

    column: Literal["src", "dst"]
    node_type: str


class OutDegree(msgspec.Struct, frozen=True, kw_only=True):
    """Each source that a write touches ends with this many edges of the type."""

    minimum: int
    maximum: int | None


ValueRule = Required | OneOf | Within | Matches | FiniteKey


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a type demands of its rows, in the order of checking."""

    values: tuple[ValueRule, ...]
    unique: tuple[Unique, ...]
    endpoints: tuple[Endpoint, ...]
    out_degree: OutDegree | None


def rules_of(entity: Entity) -> Rules:
    """The type's constraints. The key itself is not among `unique`: it is the id."""
    return Rules(
        values=_value_rules(entity),
        unique=_unique_rules(entity),
        endpoints=endpoint_rules(entity),
        out_degree=_out_degree(entity),
    )


def label_of(columns: Sequence[str]) -> str:
    """How messages name one property or several."""
    return columns[0] if len(columns) == 1 else f"({', '.join(columns)})"


def _value_rules(entity: Entity) -> tuple[ValueRule, ...]:
    rules: list[ValueRule] = []
    for prop in entity.properties:
        if not prop.type.nullable:
            rules.append(Required(property=prop.name))
        if prop.type.enum_values is not None:
            rules.append(OneOf(property=prop.name, values=prop.type.enum_values))
    if isinstance(entity, NodeType):
        rules += [
            Within(property=r.property, minimum=r.minimum, maximum=r.maximum) for r in entity.ranges
        ]
        rules += [Matches(property=c.property, pattern=c.pattern) for c in entity.checks]
        rules += [
            FiniteKey(property=name)
            for name in entity.key
            if entity.by_name[name].type.scalar in FLOATS
        ]
    return tuple(rules)


def _unique_rules(entity: Entity) -> tuple[Unique, ...]:
    key = frozenset(entity.key) if isinstance(entity, NodeType) else frozenset()
    seen: dict[frozenset[str], Unique] = {}
    for columns in entity.unique:
        if frozenset(columns) != key:
            seen.setdefault(frozenset(columns), Unique(columns=tuple(columns)))
    return tuple(seen.values())


def endpoint_rules(entity: Entity) -> tuple[Endpoint, ...]:
    """What the ends of a type's edges must name; nothing for nodes."""
    if isinstance(entity, NodeType):
        return ()
    return (
        Endpoint(column="src", node_type=entity.from_type),
        Endpoint(column="dst", node_type=entity.to_type),
    )


def _out_degree(entity: Entity) -> OutDegree | None:
    if isinstance(entity, NodeType):
        return None
    wanted = entity.cardinality
    if wanted.minimum == 0 and wanted.maximum is None:
        return None
    return OutDegree(minimum=wanted.minimum, maximum=wanted.maximum)
