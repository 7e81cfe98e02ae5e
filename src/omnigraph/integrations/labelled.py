"""Nodes and relations that have labels, as rows of a graph's types: what graph stores of frameworks
are made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

from omnigraph.compiler.schema import compile_schema
from omnigraph.engine.graph import Graph
from omnigraph.integrations.chunks import chunk_schema
from omnigraph.model.schema import Catalog, EdgeType, NodeType

# The types of what has a label that no other type is named by; the label is a property of theirs.
ANY_NODE: Final = "Entity"
ANY_EDGE: Final = "Relation"
LABEL: Final = "label"
METADATA: Final = "metadata"

Made = TypeVar("Made", NodeType, EdgeType)


def property_graph_schema(dimension: int) -> str:
    """The schema of a graph that takes any label, to be put beside types of your own.

    Examples:
        >>> from omnigraph.integrations.labelled import property_graph_schema
        >>> "edge Relation: Entity -> Entity" in property_graph_schema(8)
        True
    """
    return chunk_schema(dimension) + (
        f"node {ANY_NODE} {{\n    name: String @key\n    {LABEL}: String? @index\n"
        f"    vec: Vector({dimension})? @index\n    {METADATA}: String?\n}}\n"
        f"edge {ANY_EDGE}: {ANY_NODE} -> {ANY_NODE} {{\n    {LABEL}: String?\n"
        f"    {METADATA}: String?\n}}\n"
    )


class Labelled:
    """A graph as somebody sees it who knows labels: its schema, answers, and a place for data."""

    def __init__(self, graph: Graph, *, branch: str) -> None:
        self.graph, self.branch = graph, branch

    def schema_source(self) -> str:
        """The schema of the branch as it is now."""
        return self.graph.schema_source(self.branch)

    def catalog(self) -> Catalog:
        """The types of the branch as they are now."""
        return compile_schema(self.schema_source())

    def structured_schema(self) -> dict[str, Any]:
        """The schema as facts: properties by type, and which types edges connect."""
        catalog = self.catalog()
        return {
            "node_props": {name: _facts(made) for name, made in catalog.nodes.items()},
            "rel_props": {name: _facts(made) for name, made in catalog.edges.items()},
            "relationships": [
                {"start": made.from_type, "type": name, "end": made.to_type}
                for name, made in catalog.edges.items()
            ],
        }

    def rows(self, query: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The rows of a read query."""
        return self.graph.query(query, params=params or {}, branch=self.branch).to_json_rows()

    def put(self, found: Rows) -> None:
        """Put nodes and relations in, in place of those that were there, as one commit."""
        data = {name: list(rows.values()) for name, rows in found.by_type.items()}
        if data:
            self.graph.load(data, mode="merge", branch=self.branch)


class Rows:
    """Rows by type; what is told twice is there once, as it was told last.

    Properties that a type does not have are kept in its `metadata`; without that they are refused.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self.by_type: dict[str, dict[str, dict[str, Any]]] = {}

    def node(
        self,
        label: str,
        name: str,
        properties: Mapping[str, Any],
        vector: Sequence[float] | None = None,
    ) -> None:
        """Add a node, its vector where the type has a place for it. A label that names no type
        is left to the load, which refuses it."""
        made = node_type(self._catalog, label)
        row = dict(properties)
        if made is None:
            self.by_type.setdefault(label, {})[name] = {**row, "id": name}
            return
        row = _fitted(made, row, label)
        place = None if vector is None else vector_of(made, len(vector))
        if place is not None:
            row[place] = vector
        row[made.key[0] if len(made.key) == 1 else "id"] = name
        self.by_type.setdefault(made.name, {})[name] = row

    def relation(self, label: str, source: str, target: str, properties: Mapping[str, Any]) -> None:
        """Add a relation; one that is told again, now or later, is the same edge."""
        made = edge_type(self._catalog, label)
        ends = {"from": source, "to": target}
        if made is None:
            self.by_type.setdefault(label, {})[f"{source}\0{target}"] = {**properties, **ends}
            return
        row = _fitted(made, dict(properties), label) | ends
        told = "\x1f".join((made.name, row.get(LABEL) or "", source, target))
        row["id"] = hashlib.sha256(told.encode()).hexdigest()[:32]
        self.by_type.setdefault(made.name, {})[row["id"]] = row


def node_type(catalog: Catalog, label: str) -> NodeType | None:
    """The type that a label names, `PERSON` and `text_chunk` too, or the one for any label."""
    return _named(catalog.nodes, label) or _any(catalog.nodes.get(ANY_NODE))


def edge_type(catalog: Catalog, label: str) -> EdgeType | None:
    """The edge type that a label names, `NEAR_TO` too, or the one for any label."""
    return _named(catalog.edges, label) or _any(catalog.edges.get(ANY_EDGE))


def is_any(made: NodeType | EdgeType) -> bool:
    """Whether the type is the one for any label, which its rows tell."""
    return made.name in (ANY_NODE, ANY_EDGE) and LABEL in made.by_name


def vector_of(made: NodeType, dimension: int | None = None) -> str | None:
    """The first vector of the type; only one of this dimension, if any is named."""
    for one in made.properties:
        found = one.type.dimension
        if found is not None and (dimension is None or dimension == found):
            return one.name
    return None


def folded(label: str) -> str:
    """The same for all spellings of a label."""
    return label.replace("_", "").replace(" ", "").replace("-", "").casefold()


def told(made: NodeType | EdgeType, row: Mapping[str, Any]) -> dict[str, Any]:
    """The properties of a row as they were put in."""
    kept = json.loads(row[METADATA]) if row.get(METADATA) else {}
    label = LABEL if is_any(made) else None
    own = {name: value for name, value in row.items() if value is not None}
    return {name: value for name, value in own.items() if name not in (METADATA, label)} | kept


def _named(types: Mapping[str, Made], label: str) -> Made | None:
    return next((made for name, made in types.items() if folded(name) == folded(label)), None)


def _any(made: Made | None) -> Made | None:
    return made if made is not None and is_any(made) else None


def _fitted(made: NodeType | EdgeType, row: dict[str, Any], label: str) -> dict[str, Any]:
    if METADATA in made.by_name:
        taken = {METADATA, LABEL} if is_any(made) else {METADATA}
        rest = {name: row.pop(name) for name in [*row] if name not in made.by_name.keys() - taken}
        row[METADATA] = json.dumps(rest, default=str) if rest else None
    return row | ({LABEL: label} if is_any(made) else {})


def _facts(made: NodeType | EdgeType) -> list[dict[str, str]]:
    return [{"property": one.name, "type": str(one.type)} for one in made.properties]
