"""LlamaIndex: a vector store and a property graph store. Needs `omnigraph[llama-index]`."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from omnigraph.engine.graph import Graph
from omnigraph.errors import InputError
from omnigraph.integrations.chunks import Chunks
from omnigraph.integrations.labelled import (
    LABEL,
    METADATA,
    Labelled,
    Rows,
    edge_type,
    folded,
    is_any,
    told,
    vector_of,
)
from omnigraph.model.machine import extra_for
from omnigraph.model.schema import EdgeType, NodeType

with extra_for("omnigraph.integrations.llama_index"):
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.graph_stores.types import (
        ChunkNode,
        EntityNode,
        LabelledNode,
        PropertyGraphStore,
        Relation,
        Triplet,
    )
    from llama_index.core.prompts import PromptTemplate
    from llama_index.core.schema import BaseNode, TextNode
    from llama_index.core.vector_stores.types import (
        BasePydanticVectorStore,
        VectorStoreQuery,
        VectorStoreQueryMode,
        VectorStoreQueryResult,
    )


class OmnigraphVectorStore(BasePydanticVectorStore):  # type: ignore[misc]
    """Nodes with vectors in a node type: `chunk_schema` gives one, or name the properties.

    `add` and `delete` are one commit each. Queries of the mode "hybrid" rank by words, too.
    """

    stores_text: bool = True
    flat_metadata: bool = False
    _chunks: Any = PrivateAttr()

    def __init__(self, graph: Graph, **names: str) -> None:
        """`names` are `node_type`, `text`, `vector` and `branch`."""
        super().__init__()
        self._chunks = Chunks(graph, **names)

    @classmethod
    def class_name(cls) -> str:
        """The name under which LlamaIndex writes it down."""
        return "OmnigraphVectorStore"

    @property
    def client(self) -> Graph:
        """The graph."""
        graph: Graph = self._chunks.graph
        return graph

    def add(self, nodes: Sequence[BaseNode], **_: Any) -> list[str]:
        """Add nodes with their vectors, in place of those with the same ids; the ids."""
        self._chunks.add(
            [
                {
                    "key": one.node_id,
                    "text": one.get_content(),
                    "vector": one.get_embedding(),
                    "metadata": {"node": one.to_json()},
                    "document": one.ref_doc_id,
                }
                for one in nodes
            ]
        )
        return [one.node_id for one in nodes]

    def delete(self, ref_doc_id: str, **_: Any) -> None:
        """Delete all nodes of a document."""
        self._chunks.delete_document(ref_doc_id)

    def delete_nodes(
        self, node_ids: list[str] | None = None, filters: Any = None, **_: Any
    ) -> None:
        """Delete nodes by their ids."""
        if filters is not None:
            raise InputError("filters are not there for deleting", hint="pass node_ids")
        self._chunks.delete(node_ids or [])

    def query(self, query: VectorStoreQuery, **_: Any) -> VectorStoreQueryResult:
        """The nodes nearest to the query's vector."""
        if query.query_embedding is None:
            raise InputError("the query has no vector", hint="an index makes one of its text")
        if query.filters is not None and query.filters.filters:
            raise InputError("filters on metadata are not there", hint="use graph.query for them")
        words = query.query_str if query.mode == VectorStoreQueryMode.HYBRID else None
        found = self._chunks.near(query.query_embedding, query.similarity_top_k, words=words)
        return VectorStoreQueryResult(
            nodes=[_node(one) for one in found],
            similarities=[1.0 - one.distance for one in found],
            ids=[one.key for one in found],
        )


def _node(one: Any) -> TextNode:
    written = one.metadata.get("node")
    if written is None:  # put there by somebody else
        return TextNode(id_=one.key, text=one.text, metadata=one.metadata)
    return TextNode.from_dict({**json.loads(written), "embedding": None})


TEXT_CHUNK: Final = ChunkNode.model_fields[LABEL].default
QUERY_TEMPLATE: Final = PromptTemplate(
    """Write one query in the language .gq that answers the question about a graph with this schema:
{schema}
A query looks like this; a walk names its edge type with a small first letter:
query answer() {{
  match {{ $p: Person  $p.age > 30  $p worksAt $c }}
  return {{ $p.name, $c.name }}
  limit 20
}}
Answer with the query alone, without explanation or fences.
Question: {question}
"""
)


class OmnigraphPropertyGraphStore(PropertyGraphStore):  # type: ignore[misc]
    """What `PropertyGraphIndex` asks of a graph. Every upsert and delete is one commit.

    A label names the type of that name (`WORKS_AT` is `WorksAt`); others go to `Entity` and
    `Relation` where the schema has them (`property_graph_schema`), and are refused where not.
    Pieces of text go to `chunk_type`. A node is known by its id, which is its key.
    """

    supports_structured_queries: bool = True
    text_to_cypher_template: PromptTemplate = QUERY_TEMPLATE

    def __init__(self, graph: Graph, *, chunk_type: str = "Chunk", branch: str = "main") -> None:
        self._labelled = Labelled(graph, branch=branch)
        # Checks that pieces of text fit in.
        self._chunks = Chunks(graph, node_type=chunk_type, branch=branch)
        self.supports_vector_queries: bool = any(
            vector_of(made) for made in self._types() if not self._is_chunk(made)
        )

    @property
    def client(self) -> Graph:
        """The graph."""
        return self._labelled.graph

    # --- reading ----------------------------------------------------------------------------------

    def get(
        self, properties: dict[str, Any] | None = None, ids: list[str] | None = None
    ) -> list[LabelledNode]:
        """The nodes with these ids that have all these properties; without either, all nodes."""
        found: list[LabelledNode] = []
        for made in self._types():
            found += self._nodes(made, properties or {}, ids)
        return found

    def get_triplets(
        self,
        entity_names: list[str] | None = None,
        relation_names: list[str] | None = None,
        properties: dict[str, Any] | None = None,
        ids: list[str] | None = None,
    ) -> list[Triplet]:
        """The relations of these names that touch one of the entities and one of the ids, where
        each property is one of the relation or of an end; without any of these, none."""
        if not (entity_names or relation_names or properties or ids):
            return []
        touching = [one for one in (entity_names, ids) if one]
        return [
            triplet
            for _, triplet in self._triplets(relation_names, touching)
            if all(
                any(one.properties.get(k) == v for one in triplet)
                for k, v in (properties or {}).items()
            )
        ]

    def get_rel_map(
        self,
        graph_nodes: list[LabelledNode],
        depth: int = 2,
        limit: int = 30,
        ignore_rels: list[str] | None = None,
    ) -> list[Triplet]:
        """The relations at most so many steps away from the nodes, in any direction."""
        ignored = {folded(name) for name in ignore_rels or ()}
        found: dict[str, Triplet] = {}
        seen: set[str] = set()
        border = {one.id for one in graph_nodes}
        for _ in range(depth):
            if not border or len(found) >= limit:
                break
            near = self._triplets(None, [sorted(border)], limit=limit + len(found), ignored=ignored)
            seen |= border
            border = set()
            for key, triplet in near:
                found.setdefault(key, triplet)
                border |= {triplet[0].id, triplet[2].id} - seen
        return list(found.values())[:limit]

    def structured_query(self, query: str, param_map: Mapping[str, Any] | None = None) -> Any:
        """The rows of a read query in `.gq`."""
        return self._labelled.rows(query, param_map)

    def vector_query(
        self, query: VectorStoreQuery, **_: Any
    ) -> tuple[list[LabelledNode], list[float]]:
        """The entities nearest to the query's vector, of all types, and how near they are."""
        vector = _plain_vector(query)
        near: list[tuple[float, LabelledNode]] = []
        for made in self._types():
            name = vector_of(made, len(vector))
            if name is None or self._is_chunk(made):
                continue
            rank = f"nearest($n.{name}, $v)"
            source = (
                f"query near($v: Vector({len(vector)}), $k: I64) {{ match {{ $n: {made.name} }} "
                f"return {{ {_columns('n', made)}, {rank} as distance }} "
                f"order {{ {rank} }} limit $k }}"
            )
            rows = self._labelled.rows(source, {"v": vector, "k": query.similarity_top_k})
            near += [(row["distance"], self._node(made, row)) for row in rows]
        near.sort(key=lambda one: one[0])
        near = near[: query.similarity_top_k]
        return [node for _, node in near], [1.0 - distance for distance, _ in near]

    def get_schema(self, refresh: bool = False) -> Any:  # noqa: ARG002, FBT001, FBT002
        """The schema as facts, always as it is now."""
        return self._labelled.structured_schema()

    def get_schema_str(self, refresh: bool = False) -> str:  # noqa: ARG002, FBT001, FBT002
        """The schema as text, for prompts."""
        return self._labelled.schema_source()

    # --- writing ----------------------------------------------------------------------------------

    def upsert_nodes(self, nodes: Sequence[LabelledNode]) -> None:
        """Put nodes in, in place of those with the same ids."""
        catalog = self._labelled.catalog()
        rows = Rows(catalog)
        for one in nodes:
            if isinstance(one, ChunkNode):
                facts = {**one.properties, self._chunks.text: one.text}
                if "document" in self._chunks.extra:
                    facts["document"] = one.properties.get("ref_doc_id")
                if one.embedding is not None:
                    facts[self._chunks.vector] = one.embedding
                rows.node(self._chunks.type.name, one.id, facts)
            else:
                rows.node(one.label, one.id, one.properties, one.embedding)
        self._labelled.put(rows)

    def upsert_relations(self, relations: list[Relation]) -> None:
        """Put relations in, in place of the same ones; the nodes must be there."""
        rows = Rows(self._labelled.catalog())
        for one in relations:
            rows.relation(one.label, one.source_id, one.target_id, one.properties)
        self._labelled.put(rows)

    def delete(
        self,
        entity_names: list[str] | None = None,
        relation_names: list[str] | None = None,
        properties: dict[str, Any] | None = None,
        ids: list[str] | None = None,
    ) -> None:
        """Delete the nodes of these names and ids, those that have all these properties, and the
        relations of these names; a node's relations go with it."""
        names = {*(entity_names or ()), *(ids or ())}
        doomed: dict[str, set[str]] = {}
        for made in self._types():
            found = {one.id for one in self._nodes(made, {}, sorted(names))}
            if properties:
                found |= {one.id for one in self._nodes(made, properties, None)}
            doomed[made.name] = found
        for edge in self._edges(relation_names or ()):
            doomed[edge.name] = {row["r_id"] for row in self._edge_rows(edge, relation_names, [])}
        with self._labelled.graph.transaction(self._labelled.branch) as tx:
            for name, found in doomed.items():
                if found:
                    source = f"query d($ids: [String]) {{ delete {name} where id in $ids }}"
                    tx.mutate(source, params={"ids": sorted(found)})

    # --- types and rows ---------------------------------------------------------------------------

    def _types(self) -> Iterable[NodeType]:
        return self._labelled.catalog().nodes.values()

    def _is_chunk(self, made: NodeType) -> bool:
        return made.name == self._chunks.type.name

    def _edges(self, names: Collection[str] | None) -> list[EdgeType]:
        """The edge types that have relations of these names."""
        catalog = self._labelled.catalog()
        if names is None:
            return list(catalog.edges.values())
        made = {found.name: found for name in names if (found := edge_type(catalog, name))}
        return list(made.values())

    def _nodes(
        self, made: NodeType, properties: Mapping[str, Any], ids: Sequence[str] | None
    ) -> list[LabelledNode]:
        if properties.keys() - made.by_name.keys() and METADATA not in made.by_name:
            return []
        conditions, params = "", []
        given: dict[str, Any] = {}
        if ids is not None:
            conditions, given["ids"] = " $n.id in $ids", list(ids)
            params.append("$ids: [String]")
        # What stands in the metadata is looked for as it was written; the exact look comes after.
        for at, name in enumerate(sorted(properties.keys() - made.by_name.keys())):
            conditions += f" $n.{METADATA} contains $w{at}"
            params.append(f"$w{at}: String")
            given[f"w{at}"] = json.dumps({name: properties[name]}, default=str)[1:-1]
        source = (
            f"query get({', '.join(params)}) {{ match {{ $n: {made.name}{conditions} }} "
            f"return {{ {_columns('n', made)} }} }}"
        )
        found = [self._node(made, row) for row in self._labelled.rows(source, given)]
        return [
            one for one in found if all(one.properties.get(k) == v for k, v in properties.items())
        ]

    def _node(self, made: NodeType, row: Mapping[str, Any]) -> LabelledNode:
        facts = told(made, _stripped("n", row))
        name = str(facts.pop("id"))
        facts = {key: value for key, value in facts.items() if key not in made.key}
        if self._is_chunk(made):
            facts.pop("document", None)
            text = facts.pop(self._chunks.text, None) or ""
            return ChunkNode(id_=name, text=text, label=TEXT_CHUNK, properties=facts)
        label = row.get(f"n_{LABEL}") if is_any(made) else None
        return EntityNode(name=name, label=label or made.name, properties=facts)

    def _edge_rows(
        self,
        made: EdgeType,
        names: Collection[str] | None,
        touching: Sequence[Sequence[str]],
        limit: int | None = None,
    ) -> list[dict[str, Any]]:
        given: dict[str, Any] = {f"t{at}": list(ids) for at, ids in enumerate(touching)}
        conditions = "".join(
            f" ($a.id in $t{at} or $b.id in $t{at})" for at in range(len(touching))
        )
        if is_any(made) and names is not None:
            conditions, given["names"] = f"{conditions} $r.{LABEL} in $names", list(names)
        params = ", ".join(f"${name}: [String]" for name in given)
        walk = made.name[0].lower() + made.name[1:]
        source = (
            f"query near({params}) {{ match {{ $a: {made.from_type} $a $r:{walk} $b{conditions} }} "
            f"return {{ $a.id as source, $b.id as target, {_columns('r', made)} }}"
            f"{'' if limit is None else f' limit {limit}'} }}"
        )
        return self._labelled.rows(source, given)

    def _triplets(
        self,
        names: Collection[str] | None,
        touching: Sequence[Sequence[str]],
        limit: int | None = None,
        ignored: Collection[str] = (),
    ) -> list[tuple[str, Triplet]]:
        """The relations with the ids of their edges."""
        catalog = self._labelled.catalog()
        found = []
        for made in self._edges(names):
            if folded(made.name) in ignored:
                continue
            rows = self._edge_rows(made, names, touching, limit)
            ends = [
                {one.id: one for one in self._nodes(catalog.nodes[end], {}, sorted(ids))}
                for end, ids in (
                    (made.from_type, {row["source"] for row in rows}),
                    (made.to_type, {row["target"] for row in rows}),
                )
            ]
            for row in rows:
                facts = told(made, _stripped("r", row))
                key = facts.pop("id")
                label = (row[f"r_{LABEL}"] if is_any(made) else None) or made.name
                if folded(label) in ignored:
                    continue
                relation = Relation(
                    label=label, source_id=row["source"], target_id=row["target"], properties=facts
                )
                triplet = (ends[0][row["source"]], relation, ends[1][row["target"]])
                found.append((f"{made.name}:{key}", triplet))
        return found


def _columns(variable: str, made: NodeType | EdgeType) -> str:
    """The id and everything else but vectors, under names that no property has."""
    names = ["id", *(one.name for one in made.properties if one.type.dimension is None)]
    return ", ".join(f"${variable}.{name} as {variable}_{name}" for name in names)


def _stripped(variable: str, row: Mapping[str, Any]) -> dict[str, Any]:
    prefix = f"{variable}_"
    return {name.removeprefix(prefix): row[name] for name in row if name.startswith(prefix)}


def _plain_vector(query: VectorStoreQuery) -> list[float]:
    """The vector of a query that asks for nothing else."""
    if query.query_embedding is None:
        raise InputError("the query has no vector", hint="a retriever makes one of its text")
    if (query.filters is not None and query.filters.filters) or query.doc_ids or query.node_ids:
        raise InputError("filters are not there for graph stores", hint="use structured_query")
    if query.mode != VectorStoreQueryMode.DEFAULT:
        raise InputError(
            f"graph stores do not search in the mode '{VectorStoreQueryMode(query.mode).value}'"
        )
    return [float(one) for one in query.query_embedding]
