"""LangChain: a vector store on a node type, and a graph store. Needs `omnigraph[langchain]`."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from omnigraph.engine.graph import Graph
from omnigraph.errors import InputError
from omnigraph.integrations.chunks import FOUND_DEFAULT, Chunk, Chunks
from omnigraph.integrations.labelled import Labelled, Rows
from omnigraph.model.machine import extra_for

with extra_for("omnigraph.integrations.langchain"):
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.vectorstores import VectorStore


class OmnigraphVectorStore(VectorStore):  # type: ignore[misc]
    """Documents in a node type: `chunk_schema` gives one, or name the properties of your own.

    Every `add_texts` and `delete` is one commit. `hybrid=True` of a search ranks by words, too.
    """

    def __init__(self, graph: Graph, embedding: Embeddings, **names: str) -> None:
        """`names` are `node_type`, `text`, `vector` and `branch`."""
        self._chunks = Chunks(graph, **names)
        self._embedding = embedding

    @property
    def embeddings(self) -> Embeddings:
        """What makes vectors of texts."""
        return self._embedding

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[Any, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **_: Any,
    ) -> list[str]:
        """Add texts, in place of those with the same ids; the ids."""
        texts = list(texts)
        keys = [one or str(uuid.uuid4()) for one in ids or [""] * len(texts)]
        facts = metadatas or [{}] * len(texts)
        if not len(texts) == len(keys) == len(facts):
            raise InputError(
                f"{len(texts)} texts, {len(keys)} ids and {len(facts)} metadatas do not match"
            )
        vectors = self._embedding.embed_documents(texts)
        self._chunks.add(
            [
                {"key": key, "text": text, "vector": vector, "metadata": fact}
                for key, text, vector, fact in zip(keys, texts, vectors, facts, strict=True)
            ]
        )
        return keys

    def similarity_search(
        self, query: str, k: int = FOUND_DEFAULT, **kwargs: Any
    ) -> list[Document]:
        """The documents nearest to the query."""
        return [found for found, _ in self.similarity_search_with_score(query, k, **kwargs)]

    def similarity_search_with_score(
        self, query: str, k: int = FOUND_DEFAULT, *, hybrid: bool = False, **_: Any
    ) -> list[tuple[Document, float]]:
        """The documents nearest to the query, and their cosine distances."""
        vector = self._embedding.embed_query(query)
        found = self._chunks.near(vector, k, words=query if hybrid else None)
        return [(_document(one), one.distance) for one in found]

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = FOUND_DEFAULT, **_: Any
    ) -> list[Document]:
        """The documents nearest to a vector."""
        return [_document(one) for one in self._chunks.near(embedding, k)]

    def _select_relevance_score_fn(self) -> Any:
        return self._cosine_relevance_score_fn

    def delete(self, ids: list[str] | None = None, **_: Any) -> bool | None:
        """Delete documents by their ids."""
        self._chunks.delete(ids or [])
        return True

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """The documents with these ids, in their order."""
        found = {one.key: one for one in self._chunks.of(ids)}
        return [_document(found[key]) for key in ids if key in found]

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[Any, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> OmnigraphVectorStore:
        """A store with these texts; `graph=` is needed."""
        store = cls(kwargs.pop("graph"), embedding, **kwargs)
        store.add_texts(texts, metadatas, ids=ids)
        return store


def _document(one: Chunk) -> Document:
    return Document(page_content=one.text, metadata=one.metadata, id=one.key)


class OmnigraphGraphStore:
    """What LangChain's graph chains ask of a graph: its schema, answers, and a place for documents.

    A label names the type of that name (`WORKS_AT` is `WorksAt`); others go to `Entity` and
    `Relation` where the schema has them (`property_graph_schema`), and are refused where not.
    """

    def __init__(self, graph: Graph, *, branch: str = "main") -> None:
        self._labelled = Labelled(graph, branch=branch)

    @property
    def get_schema(self) -> str:
        """The schema as text, for prompts."""
        return self._labelled.schema_source()

    @property
    def get_structured_schema(self) -> dict[str, Any]:
        """The schema as facts: properties by type, and which types edges connect."""
        return self._labelled.structured_schema()

    def refresh_schema(self) -> None:
        """Nothing is kept: every look reads the schema of the branch."""

    def query(self, query: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """The rows of a read query."""
        return self._labelled.rows(query, params)

    def add_graph_documents(
        self,
        graph_documents: Sequence[Any],
        include_source: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        """Add the nodes and relationships of graph documents, as one commit; what was put in by
        a store before is replaced. `include_source` is refused: a type for sources would have to
        be in the schema."""
        if include_source:
            raise InputError("sources have no type in the schema", hint="load them as nodes")
        rows = Rows(self._labelled.catalog())
        for document in graph_documents:
            for one in document.nodes:
                rows.node(one.type, str(one.id), one.properties)
            for one in document.relationships:
                ends = str(one.source.id), str(one.target.id)
                rows.relation(one.type, *ends, one.properties)
        self._labelled.put(rows)
