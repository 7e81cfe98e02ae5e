"""LlamaIndex: a vector store on a node type. Needs `omnigraph[llama-index]`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from omnigraph.engine.graph import Graph
from omnigraph.errors import InputError
from omnigraph.integrations.chunks import Chunks
from omnigraph.model.machine import extra_for

with extra_for("omnigraph.integrations.llama_index"):
    from llama_index.core.bridge.pydantic import PrivateAttr
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
