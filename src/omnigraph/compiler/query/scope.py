"""What names mean at a place of a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.types import core, nullable
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


class Unwound(msgspec.Struct, frozen=True, kw_only=True):
    """What a variable of `unwind` stands for: a value, or a record with fields. `place` is its
    place in the list, as long as that is known."""

    name: str
    element: ir.RowRef | None = None
    fields: Mapping[str, ir.RowRef] = MappingProxyType({})
    place: ir.RowRef | None = None

    @property
    def values(self) -> tuple[ir.RowRef, ...]:
        return tuple(self.fields.values()) if self.element is None else (self.element,)

    def loose(self) -> Unwound:
        """The same behind an `optional`: every value may be null."""
        return Unwound(
            name=self.name,
            element=None if self.element is None else _loose(self.element),
            fields={name: _loose(ref) for name, ref in self.fields.items()},
            place=None if self.place is None else _loose(self.place),
        )


def _loose(ref: ir.RowRef) -> ir.RowRef:
    return replace(ref, type=nullable(ref.type))


class Name(msgspec.Struct, frozen=True, kw_only=True):
    """What a name of a `for` or of an insert stands for: a value, or one with fields."""

    value: PropertyType | None = None
    fields: Mapping[str, PropertyType] | None = None
    variable: ir.Variable | None = None  # of an insert


class Scope(dict[str, ir.Variable]):
    """Variables by written name, and what is no entity: columns of an earlier stage by their bare
    names, unwound values by their variables. An inner scope sees the outer ones and keeps its own
    to itself."""

    def __init__(self, outer: Mapping[str, ir.Variable] = MappingProxyType({})) -> None:
        super().__init__(outer)
        self.own: list[str] = []
        # Paths by written name: they are no variables, but follow from two of them.
        self.paths: dict[str, ir.Way] = dict(outer.paths) if isinstance(outer, Scope) else {}
        self.columns: dict[str, ir.RowRef] = {}
        self.unwound: dict[str, Unwound] = {}
        self.own_unwound: list[str] = []
        if isinstance(outer, Scope):
            self.columns |= outer.columns
            self.unwound |= outer.unwound
        self.path_places: dict[str, int] = {}  # where the own ones are bound

    def add(self, written: str, bound: ir.Variable) -> None:
        self[written] = bound
        self.own.append(written)

    def unwind(self, written: str, unwound: Unwound) -> None:
        self.unwound[written] = unwound
        self.own_unwound.append(written)

    def plan_names(self) -> frozenset[str]:
        entities = {bound.name for bound in self.values()}
        values = [ref for item in self.unwound.values() for ref in item.values]
        return frozenset(entities | {ref.var for ref in (*self.columns.values(), *values)})

    def row_order(self) -> tuple[ir.IdRef | ir.RowRef, ...]:
        """The order that rows have by themselves: by the ids of their variables, then by columns
        of the stage before, then by places in lists that were unwound."""
        ids = [bound.id for bound in sorted(self.values(), key=lambda bound: bound.name)]
        unwound = [self.unwound[name] for name in sorted(self.unwound)]
        values = [ref for item in unwound if item.place is None for ref in item.values]
        places = [item.place for item in unwound if item.place is not None]
        return (*ids, *self.columns.values(), *values, *places)


class Context(msgspec.Struct, kw_only=True):
    """What is fixed while one query is checked, and what is collected on the way."""

    catalog: Catalog
    params: Mapping[str, PropertyType]
    problems: Problems
    records: Mapping[str, ir.RecordParam]
    # A block inside an expression, with the scope around it: the block, and what it uses of that.
    inner: Callable[[Context, Scope, ast.Block], tuple[ir.MatchBlock, frozenset[str]]]
    variables: dict[str, ir.Variable] = msgspec.field(default_factory=dict)
    rows: set[str] = msgspec.field(default_factory=set)  # plan names of what is no entity
    gone: set[str] = msgspec.field(default_factory=set)  # written names that a `with` left out
    buried: set[str] = msgspec.field(default_factory=set)  # written names bound only inside `not`

    def bind(self, scope: Scope, written: str, kind: EntityKind, *types: str) -> ir.Variable:
        """A new variable of these types. Its plan name is one that no other has; wildcards always
        get a hidden one, and cannot be referred to."""
        hidden = written == WILDCARD
        name = self.fresh(written)
        bound = ir.Variable(name=name, kind=kind, types=types, hidden=hidden)
        self.variables[name] = bound
        if not hidden:
            scope.add(written, bound)
        return bound

    def fresh(self, written: str) -> str:
        """A plan name that no other variable has."""
        number = 1
        name = f"{written}#{number}" if written == WILDCARD else written
        while name in self.variables or name in self.rows:
            number += 1
            name = f"{written}#{number}"
        return name

    def properties(self, bound: ir.Variable) -> Mapping[str, Property]:
        """The properties behind a variable, by name. Of an open one those of all its types: what
        not every type has may be null. A property that is of different types is left out."""
        entities = self._entities(bound)
        if len(entities) == 1:
            return entities[0].by_name
        declared: dict[str, list[Property]] = {}
        for entity in entities:
            for prop in entity.properties:
                declared.setdefault(prop.name, []).append(prop)
        return {
            name: _merged(found, everywhere=len(found) == len(entities))
            for name, found in declared.items()
            if len({_shape(prop) for prop in found}) == 1
        }

    def clash(self, bound: ir.Variable, name: str) -> str | None:
        """What types a property has that is not of one type, in words."""
        found = [
            (entity.by_name[name].type, entity.name)
            for entity in self._entities(bound)
            if name in entity.by_name
        ]
        if len({_shape_of(kind) for kind, _ in found}) < 2:
            return None
        return ", ".join(f"{core(kind)} of {owner}" for kind, owner in found)

    def property_names(self, bound: ir.Variable) -> list[str]:
        """The names of all properties behind a variable, also of those that clash."""
        entities = self._entities(bound)
        return [*dict.fromkeys(prop.name for entity in entities for prop in entity.properties)]

    def _entities(self, bound: ir.Variable) -> list[NodeType | EdgeType]:
        if bound.kind == "node":
            return [self.catalog.nodes[name] for name in bound.types]
        return [self.catalog.edges[name] for name in bound.types]


def _shape_of(kind: PropertyType) -> tuple[object, ...]:
    return kind.scalar, kind.is_list, kind.dimension


def _shape(prop: Property) -> tuple[object, ...]:
    return _shape_of(prop.type)


def _merged(found: Sequence[Property], *, everywhere: bool) -> Property:
    """One property that stands for those of several types."""
    first = found[0].type
    missing = not everywhere or any(prop.type.nullable for prop in found)
    values: tuple[str, ...] | None = None
    if all(prop.type.enum_values is not None for prop in found):
        values = tuple(dict.fromkeys(v for prop in found for v in prop.type.enum_values or ()))
    kind = replace(first, nullable=missing, enum_values=values)
    return Property(name=found[0].name, type=kind)


def property_ref(bound: ir.Variable, prop: Property) -> ir.PropertyRef:
    kind = nullable(prop.type) if bound.nullable else prop.type
    return ir.PropertyRef(var=bound.name, prop=prop.name, type=kind)
