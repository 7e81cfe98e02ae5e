"""The schema that tables were written under, where only a later one was kept.

Old formats keep one schema for the whole graph: the newest. For a snapshot from before a schema
change the columns of its tables tell what there was; the newest schema tells what it meant, as far
as names or rename hints lead there. What leads nowhere (a type or a property that was dropped)
is taken for what its column says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from omnigraph.compiler.schema.catalog import Types
from omnigraph.compiler.schema.compile import catalog_from_reference, catalog_of, compile_schema
from omnigraph.compiler.schema.printer import print_schema
from omnigraph.errors import InputError
from omnigraph.model.schema import (
    Annotation,
    Catalog,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    PropertyType,
)

_T = TypeVar("_T", NodeType, EdgeType)
Columns = Mapping[str, PropertyType]  # the properties of a table, by name


class OldSchemas:
    """What storage must know of the schemas of old graphs, and may not ask a compiler itself."""

    def read(self, ir: str, source: str) -> Catalog:
        """What an IR of the reference and its source mean together, or `CorruptGraphError`."""
        return catalog_from_reference(ir, source)

    def recall(self, newest: Catalog, tables: Mapping[str, Columns]) -> Catalog:
        """The schema that tables were written under."""
        return recalled(newest, tables)


def recalled(newest: Catalog, tables: Mapping[str, Columns]) -> Catalog:
    """The catalog for tables as they were; `newest` itself if they are what it says.

    An edge type that the newest schema does not know is left out: which nodes it joined is told by
    no column.
    """
    nodes: dict[str, NodeType] = {}
    names: dict[str, str] = {}  # a node type's name now -> then
    for key, columns in tables.items():
        kind, _, name = key.partition(":")
        if kind == "node":
            now = newest.nodes.get(name) or _renamed(newest.nodes.values(), name)
            nodes[name] = _node(name, now, columns, newest.interfaces)
            if now is not None:
                names[now.name] = name
    edges: dict[str, EdgeType] = {}
    for key, columns in tables.items():
        kind, _, name = key.partition(":")
        if kind == "edge":
            joined = newest.edges.get(name) or _renamed(newest.edges.values(), name)
            if joined is not None and {joined.from_type, joined.to_type} <= names.keys():
                edges[name] = _edge(name, joined, columns, names)
    types = Types(interfaces=dict(newest.interfaces), nodes=nodes, edges=edges)
    then = catalog_of(types, source="")
    if then.ir == newest.ir:
        return newest
    return _settled(replace(then, source=print_schema(then)))


def _settled(then: Catalog) -> Catalog:
    """The catalog as its own text gives it, so that it can be stored and read back as text."""
    try:
        return compile_schema(then.source)
    except InputError:  # a word that the language refuses by now; what was decoded still holds
        return then


def _renamed(types: Iterable[_T], name: str) -> _T | None:
    return next((each for each in types if each.rename_from == name), None)


def _node(
    name: str, now: NodeType | None, columns: Columns, interfaces: Mapping[str, InterfaceType]
) -> NodeType:
    if now is None:
        return NodeType(name=name, properties=tuple(_plain(columns)))
    then = _names(now, columns)
    implemented = [
        each
        for each in now.implements
        if all(then.get(prop.name) == prop.name for prop in interfaces[each].properties)
    ]
    return NodeType(
        name=name,
        properties=_properties(now, columns, then, implemented),
        key=_mapped(now.key, then) or (),
        unique=_kept(now.unique, then),
        index=_kept(now.index, then),
        ranges=tuple(
            replace(each, property=then[each.property])
            for each in now.ranges
            if each.property in then
        ),
        checks=tuple(
            replace(each, property=then[each.property])
            for each in now.checks
            if each.property in then
        ),
        implements=tuple(implemented),
        annotations=_without_hint(now.annotations),
        description=now.description,
        instruction=now.instruction,
    )


def _edge(name: str, now: EdgeType, columns: Columns, nodes: Mapping[str, str]) -> EdgeType:
    then = {**_names(now, columns), "src": "src", "dst": "dst"}
    return EdgeType(
        name=name,
        from_type=nodes[now.from_type],
        to_type=nodes[now.to_type],
        cardinality=now.cardinality,
        properties=_properties(now, columns, then, ()),
        unique=_kept(now.unique, then),
        index=_kept(now.index, then),
        annotations=_without_hint(now.annotations),
        description=now.description,
        instruction=now.instruction,
    )


def _names(now: NodeType | EdgeType, columns: Columns) -> dict[str, str]:
    """The properties of today that there were already, and what they were called."""
    found: dict[str, str] = {}
    for prop in now.properties:
        for name in (prop.name, prop.rename_from or prop.name):
            if name in columns and _same(columns[name], prop.type):
                found[prop.name] = name
                break
    return found


def _same(stored: PropertyType, declared: PropertyType) -> bool:
    """Whether a column of one type holds values of the other; enums are told by no column."""
    return (stored.scalar, stored.is_list, stored.dimension) == (
        declared.scalar,
        declared.is_list,
        declared.dimension,
    )


def _properties(
    now: NodeType | EdgeType, columns: Columns, then: Mapping[str, str], implements: Collection[str]
) -> tuple[Property, ...]:
    kept = [
        replace(
            prop,
            name=then[prop.name],
            rename_from=None,
            annotations=_without_hint(prop.annotations),
            inherited_from=prop.inherited_from
            if (prop.inherited_from or "") in implements
            else None,
        )
        for prop in now.properties
        if prop.name in then
    ]
    told = {prop.name for prop in kept}
    return (*kept, *_plain({name: columns[name] for name in columns if name not in told}))


def _without_hint(annotations: Iterable[Annotation]) -> tuple[Annotation, ...]:
    return tuple(note for note in annotations if note.name != "rename_from")


def _plain(columns: Columns) -> Iterable[Property]:
    return (Property(name=name, type=kind) for name, kind in columns.items())


def _mapped(names: Iterable[str], then: Mapping[str, str]) -> tuple[str, ...] | None:
    """The names of then; None if one of them was not there."""
    wanted = tuple(names)
    return tuple(then[name] for name in wanted) if all(one in then for one in wanted) else None


def _kept(
    groups: Iterable[tuple[str, ...]], then: Mapping[str, str]
) -> tuple[tuple[str, ...], ...]:
    mapped = (_mapped(group, then) for group in groups)
    return tuple(group for group in mapped if group is not None)
