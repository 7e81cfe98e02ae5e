"""What names mean at a place of a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.types import nullable
from omnigraph.compiler.text import Problems
from omnigraph.model.schema import (
    Catalog,
    EdgeType,
    EntityKind,
    NodeType,
    Property,
    PropertyType,
)

WILDCARD = "_"


class Scope(dict[str, ir.Variable]):
    """Variables by written name. An inner scope sees the outer ones and keeps its own to itself."""

    def __init__(self, outer: Mapping[str, ir.Variable] = MappingProxyType({})) -> None:
        super().__init__(outer)
        self.own: list[str] = []

    def add(self, written: str, bound: ir.Variable) -> None:
        self[written] = bound
        self.own.append(written)

    def plan_names(self) -> frozenset[str]:
        return frozenset(bound.name for bound in self.values())


class Context(msgspec.Struct, kw_only=True):
    """What is fixed while one query is checked, and what is collected on the way."""

    catalog: Catalog
    params: Mapping[str, PropertyType]
    problems: Problems
    # A block inside an expression, with the scope around it: the block, and what it uses of that.
    inner: Callable[[Context, Scope, ast.Block], tuple[ir.MatchBlock, frozenset[str]]]
    variables: dict[str, ir.Variable] = msgspec.field(default_factory=dict)
    buried: set[str] = msgspec.field(default_factory=set)  # written names bound only inside `not`

    def bind(self, scope: Scope, written: str, kind: EntityKind, type_name: str) -> ir.Variable:
        """A new variable. Its plan name is one that no other has; wildcards always get a hidden
        one, and cannot be referred to."""
        hidden, number = written == WILDCARD, 1
        name = f"{written}#{number}" if hidden else written
        while name in self.variables:
            number += 1
            name = f"{written}#{number}"
        bound = ir.Variable(name=name, kind=kind, type_name=type_name, hidden=hidden)
        self.variables[name] = bound
        if not hidden:
            scope.add(written, bound)
        return bound

    def entity(self, bound: ir.Variable) -> NodeType | EdgeType:
        """The type behind a variable."""
        types = self.catalog.nodes if bound.kind == "node" else self.catalog.edges
        return types[bound.type_name]


def property_ref(bound: ir.Variable, prop: Property) -> ir.PropertyRef:
    kind = nullable(prop.type) if bound.nullable else prop.type
    return ir.PropertyRef(var=bound.name, prop=prop.name, type=kind)
