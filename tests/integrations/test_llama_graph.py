"""LlamaIndex's own index and retrievers, on a graph of ours; nothing leaves the machine."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from omnigraph import Graph
from omnigraph.errors import InputError, OmnigraphError
from omnigraph.integrations.labelled import property_graph_schema

pytest.importorskip("llama_index.core", reason="needs omnigraph[llama-index]")

from llama_index.core import Document, PropertyGraphIndex, StorageContext
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.graph_stores.types import ChunkNode, EntityNode, Relation
from llama_index.core.indices.property_graph import (
    LLMSynonymRetriever,
    SimpleLLMPathExtractor,
    TextToCypherRetriever,
    VectorContextRetriever,
)
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters, VectorStoreQuery

from omnigraph.integrations.llama_index import OmnigraphPropertyGraphStore

TYPED = """
node Person { name: String @key  age: I32?  vec: Vector(4)? @index  metadata: String? }
node Town { name: String @key }
edge LivesIn: Person -> Town { since: I32? }
"""
GQ = "query q() { match { $a: Entity  $a $r:relation $b } return { $a.name, $b.name } }"


class Letters(BaseEmbedding):
    def _get_text_embedding(self, text):
        return [float(text.count(letter)) + 0.1 for letter in "aeio"]

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query):
        return self._get_text_embedding(query)


class Scripted(CustomLLM):
    """Answers by what a prompt is about."""

    @property
    def metadata(self):
        return LLMMetadata()

    def complete(self, prompt, formatted=False, **_):
        if "language .gq" in prompt:
            assert "edge Relation" in prompt
            return CompletionResponse(text=GQ)
        if "synonyms" in prompt:
            return CompletionResponse(text="Ada^Nobody")
        if "Ada" in prompt:
            return CompletionResponse(text="(Ada, wrote, Notes)\n(Ada, knows, Babbage)")
        return CompletionResponse(text="(Babbage, built, Engine)")

    def stream_complete(self, prompt, formatted=False, **_):
        raise AssertionError


@pytest.fixture
def graph(tmp_path):
    source = property_graph_schema(4) + TYPED
    with Graph.init(tmp_path / "g.omni", source, durability="process") as graph:
        yield graph


@pytest.fixture
def store(graph):
    return OmnigraphPropertyGraphStore(graph)


def named(triplets):
    return {(a.id, r.label, b.id) for a, r, b in triplets}


def indexed(store):
    documents = [
        Document(id_="d1", text="Ada wrote notes", metadata={"year": 1843}),
        Document(id_="d2", text="Babbage built an engine"),
    ]
    return PropertyGraphIndex.from_documents(
        documents,
        property_graph_store=store,
        llm=Scripted(),
        embed_model=Letters(),
        kg_extractors=[SimpleLLMPathExtractor(llm=Scripted(), num_workers=1)],
        use_async=False,
        show_progress=False,
    )


def test_an_index_is_built_asked_and_emptied_by_llama_index_itself(graph, store):
    index = indexed(store)
    assert {one.id for one in store.get() if isinstance(one, EntityNode)} == {
        *("Ada", "Notes", "Babbage", "Engine")
    }
    every = {("Ada", "wrote", "Notes"), ("Ada", "knows", "Babbage"), ("Babbage", "built", "Engine")}
    found = store.get_triplets(entity_names=["Ada", "Babbage"])
    assert {(a, r.lower(), b) for a, r, b in named(found)} == every
    assert all(r.properties["triplet_source_id"] for _, r, _ in found)

    by_vector = VectorContextRetriever(
        store, embed_model=Letters(), similarity_top_k=1, include_text=False, path_depth=1
    )
    assert any("Babbage" in one.text for one in by_vector.retrieve("Babbage"))
    with_text = VectorContextRetriever(store, embed_model=Letters(), include_text=True)
    assert any("Ada wrote notes" in one.text for one in with_text.retrieve("Ada"))
    by_word = LLMSynonymRetriever(store, llm=Scripted(), include_text=False)
    assert any("Notes" in one.text for one in by_word.retrieve("who is Ada?"))
    by_query = TextToCypherRetriever(store, llm=Scripted())
    assert "Engine" in by_query.retrieve("who built what?")[0].text
    answer = index.as_retriever(sub_retrievers=[by_vector, by_word]).retrieve("Ada")
    assert answer

    before = len(list(graph.commits()))
    indexed(store)  # nothing is there twice
    assert len(store.get_triplets(entity_names=["Ada", "Babbage"])) == 3
    assert len(list(graph.commits())) > before
    reopened = PropertyGraphIndex.from_existing(
        property_graph_store=OmnigraphPropertyGraphStore(graph),
        llm=Scripted(), embed_model=Letters(), kg_extractors=[],
    )  # fmt: skip
    ada = store.get(ids=["Ada"])
    chunk = next(one for one in store.get() if isinstance(one, ChunkNode) and "Ada" in one.text)
    assert store.get_llama_nodes([chunk.id])[0].metadata["year"] == 1843
    assert store.get_llama_nodes([chunk.id])[0].ref_doc_id == "d1"
    reopened.delete_nodes([chunk.id])
    assert store.get(ids=[chunk.id]) == []
    store.delete_llama_nodes(node_ids=sorted({one.properties["triplet_source_id"] for one in ada}))
    store.delete_llama_nodes(ref_doc_ids=["d1"])
    left = {one.id for one in store.get() if isinstance(one, EntityNode)}
    assert left == {"Babbage", "Engine"}
    assert not any(isinstance(one, ChunkNode) and "Ada" in one.text for one in store.get())
    assert StorageContext.from_defaults(property_graph_store=store).property_graph_store is store


def people(store):
    store.upsert_nodes(
        [
            EntityNode(name="Ada", label="PERSON", properties={"age": 36, "nick": "Countess"},
                       embedding=[9.0, 0.1, 0.1, 0.1]),
            EntityNode(name="Bo", label="Person", embedding=[0.1, 9.0, 0.1, 0.1]),
            EntityNode(name="Ulm", label="town"),
            EntityNode(name="Love", label="feeling", properties={"label": "x", "metadata": [1]}),
        ]
    )  # fmt: skip
    store.upsert_relations(
        [
            Relation(
                label="LIVES_IN", source_id="Ada", target_id="Ulm", properties={"since": 1815}
            ),
            Relation(label="lives in", source_id="Bo", target_id="Ulm"),
        ]
    )


def test_labels_are_the_types_of_the_schema_where_it_has_them(graph, store):
    people(store)
    rows = graph.query(
        "query q() { match { $p: Person  $p $l:livesIn $t } "
        "return { $p.name, $p.age, $l.since } order { $p.name } }"
    ).to_json_rows()
    assert rows == [
        {"p.name": "Ada", "p.age": 36, "l.since": 1815},
        {"p.name": "Bo", "p.age": None, "l.since": None},
    ]
    (ada,) = store.get(ids=["Ada"])
    assert (ada.id, ada.label, ada.properties) == ("Ada", "Person", {"age": 36, "nick": "Countess"})
    (love,) = store.get(ids=["Love"])
    assert (love.label, love.properties) == ("feeling", {"label": "x", "metadata": [1]})


@pytest.mark.parametrize(
    ("asked", "ids"),
    [
        ({"ids": []}, set()),
        ({"ids": ["Ada", "nobody"]}, {"Ada"}),
        ({"properties": {"nick": "Countess"}}, {"Ada"}),
        ({"properties": {"nick": "Count"}}, set()),
        ({"properties": {"age": 36}}, {"Ada"}),
        ({"properties": {"age": 36, "nick": "x"}}, set()),
        ({}, {"Ada", "Bo", "Ulm", "Love"}),
    ],
)
def test_nodes_are_found_by_ids_and_properties(store, asked, ids):
    people(store)
    assert {one.id for one in store.get(**asked)} == ids


@pytest.mark.parametrize(
    ("asked", "sources"),
    [
        ({}, set()),
        ({"entity_names": ["Ulm"]}, {"Ada", "Bo"}),
        ({"ids": ["Bo"]}, {"Bo"}),
        ({"entity_names": ["Ulm"], "ids": ["Bo"]}, {"Bo"}),
        ({"relation_names": ["LIVES_IN"]}, {"Ada", "Bo"}),
        ({"relation_names": ["hates"]}, set()),
        ({"properties": {"since": 1815}}, {"Ada"}),
        ({"properties": {"nick": "Countess"}}, {"Ada"}),
    ],
)
def test_triplets_are_found_by_what_they_touch(store, asked, sources):
    people(store)
    assert {a.id for a, _, _ in store.get_triplets(**asked)} == sources


def test_relations_are_followed_so_far_and_no_more_than_so_many(store):
    names = [f"n{at}" for at in range(6)]
    store.upsert_nodes([EntityNode(name=name) for name in names])
    store.upsert_relations(
        [Relation(label="next", source_id=a, target_id=b) for a, b in pairwise(names)]
        + [Relation(label="odd", source_id="n0", target_id="n5")]
    )
    (start,) = store.get(ids=["n0"])
    assert named(store.get_rel_map([start], depth=1)) == {("n0", "next", "n1"), ("n0", "odd", "n5")}
    assert len(store.get_rel_map([start], depth=2)) == 4
    assert len(store.get_rel_map([start], depth=9)) == 6
    assert len(store.get_rel_map([start], depth=9, limit=3)) == 3
    assert named(store.get_rel_map([start], depth=9, ignore_rels=["next"])) == {("n0", "odd", "n5")}
    assert store.get_rel_map([], depth=2) == []
    store.upsert_relations(
        [Relation(label="next", source_id="n0", target_id="n1", properties={"w": 2})]
    )
    (again,) = store.get_triplets(entity_names=["n0"], relation_names=["next"])
    assert again[1].properties == {"w": 2}


def test_what_is_deleted_is_gone_in_one_commit(graph, store):
    people(store)
    before = len(list(graph.commits()))
    store.delete(entity_names=["Love"], properties={"nick": "Countess"})
    assert len(list(graph.commits())) == before + 1
    assert {one.id for one in store.get()} == {"Bo", "Ulm"}
    store.delete(relation_names=["LIVES_IN"])
    assert store.get_triplets(entity_names=["Ulm"]) == []
    store.delete(ids=[])
    store.delete()
    assert {one.id for one in store.get()} == {"Bo", "Ulm"}


def test_vectors_find_entities_of_every_type(store):
    people(store)
    store.upsert_nodes([EntityNode(name="Bob", label="robot", embedding=[0.1, 8.0, 3.0, 0.1])])
    nodes, near = store.vector_query(
        VectorStoreQuery(query_embedding=[0.1, 9.0, 0.1, 0.1], similarity_top_k=2)
    )
    assert [one.id for one in nodes] == ["Bo", "Bob"]
    assert near[0] == pytest.approx(1.0)
    assert near[0] > near[1]
    one = MetadataFilters(filters=[MetadataFilter(key="a", value=1)])
    for more in ({"filters": one}, {"mode": "hybrid"}, {"query_embedding": None}):
        with pytest.raises(InputError):
            store.vector_query(VectorStoreQuery(**{"query_embedding": [1.0] * 4, **more}))


def test_the_schema_is_told_and_queries_are_answered(store):
    people(store)
    assert "edge LivesIn: Person -> Town" in store.get_schema_str()
    assert {"start": "Person", "type": "LivesIn", "end": "Town"} in store.get_schema()[
        "relationships"
    ]
    source = "query q($n: String) { match { $p: Person { name: $n } } return { $p.age as age } }"
    assert store.structured_query(source, {"n": "Ada"}) == [{"age": 36}]
    assert json.dumps(store.get_schema(refresh=True))


def test_a_store_says_what_it_cannot_do(tmp_path):
    from omnigraph.integrations.chunks import chunk_schema

    with Graph.init(
        tmp_path / "p.omni", chunk_schema(4) + "node Town { name: String @key }"
    ) as graph:
        store = OmnigraphPropertyGraphStore(graph)
        assert not store.supports_vector_queries
        with pytest.raises(OmnigraphError, match="Robot"):
            store.upsert_nodes([EntityNode(name="x", label="Robot")])
        with pytest.raises(OmnigraphError, match="size"):
            store.upsert_nodes([EntityNode(name="Ulm", label="Town", properties={"size": 3})])
        with pytest.raises(OmnigraphError, match="no node type 'Pieces'"):
            OmnigraphPropertyGraphStore(graph, chunk_type="Pieces")
        assert store.get() == []


def test_relations_need_their_nodes(store):
    with pytest.raises(OmnigraphError, match="nobody"):
        store.upsert_relations([Relation(label="knows", source_id="nobody", target_id="no one")])
