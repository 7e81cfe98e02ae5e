"""What a name means at a place of a query: variables, parameters, aliases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from omnigraph.compiler.query.problems import Problems
from omnigraph.model.schema import Catalog, EdgeType, EntityKind, NodeType, PropertyType

WILDCARD = "_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A variable in scope: its name in the plan and what it stands for."""

    plan_name: str
    kind: EntityKind
    type_name: str
    nullable: bool = False
    hidden: bool = False


class Scope:
    """Variables by written name. An inner scope sees the outer ones and keeps its own to itself."""

    def __init__(self, outer: Mapping[str, Bound] | None = None) -> None:
        self._bound = dict(outer or {})
        self.own: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._bound

    def __iter__(self) -> Iterator[str]:
        return iter(self._bound)

    def __getitem__(self, name: str) -> Bound:
        return self._bound[name]

    def get(self, name: str) -> Bound | None:
        return self._bound.get(name)

    def add(self, name: str, bound: Bound) -> None:
        self._bound[name] = bound
        self.own.append(name)

    def inner(self) -> Scope:
        return Scope(self._bound)

    def own_plan_names(self) -> frozenset[str]:
        return frozenset(self._bound[name].plan_name for name in self.own)

    def plan_names(self) -> frozenset[str]:
        return frozenset(bound.plan_name for bound in self._bound.values())


@dataclass(slots=True, kw_only=True)
class Context:
    """What is fixed while one query is checked, and what is collected on the way."""

    catalog: Catalog
    params: Mapping[str, PropertyType]
    problems: Problems
    names_taken: set[str] = field(default_factory=set)
    variables: dict[str, Bound] = field(default_factory=dict)
    buried: set[str] = field(default_factory=set)  # written names bound only inside `not`

    def fresh(self, written: str) -> str:
        """A plan name that no other variable has; wildcards always get a hidden one."""
        name, number = written, 1
        if written == WILDCARD:
            name = f"{written}#{number}"
        while name in self.names_taken:
            number += 1
            name = f"{written}#{number}"
        self.names_taken.add(name)
        return name

    def entity(self, bound: Bound) -> NodeType | EdgeType:
        """The type behind a variable."""
        types = self.catalog.nodes if bound.kind == "node" else self.catalog.edges
        return types[bound.type_name]
