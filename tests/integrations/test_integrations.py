"""Adapters do what their frameworks ask of them, and nobody loads a framework by accident."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import duckdb
import pandas as pd
import polars as pl
import pytest

from omnigraph import Graph
from omnigraph.errors import InputError, OmnigraphError
from omnigraph.integrations.chunks import Chunks, chunk_schema

PLACES = "node Place { name: String @key }\nedge NearTo: Place -> Place { km: I32? }\n"


def vector(text: str) -> list[float]:
    return [float(text.count(letter)) + 0.1 for letter in "aeio"]


@pytest.fixture
def graph(tmp_path):
    source = chunk_schema(4) + PLACES
    with Graph.init(tmp_path / "g.omni", source, durability="process") as graph:
        yield graph


# --- LangChain ------------------------------------------------------------------------------------


def langchain_store(graph):
    from langchain_core.embeddings import Embeddings

    from omnigraph.integrations.langchain import OmnigraphVectorStore

    class Letters(Embeddings):
        def embed_documents(self, texts):
            return [vector(text) for text in texts]

        def embed_query(self, text):
            return vector(text)

    return OmnigraphVectorStore(graph, Letters())


def test_langchain_adds_finds_and_deletes_documents(graph):
    store = langchain_store(graph)
    ids = store.add_texts(["aaa", "eee", "iii"], [{"n": n} for n in range(3)], ids=["a", "e", "i"])
    assert ids == ["a", "e", "i"]
    (first, score), *_ = store.similarity_search_with_score("aa", k=2)
    assert (first.id, first.page_content, first.metadata) == ("a", "aaa", {"n": 0})
    assert score < 0.1
    assert [one.id for one in store.similarity_search("eee", k=1, hybrid=True)] == ["e"]
    assert [one.id for one in store.as_retriever(search_kwargs={"k": 1}).invoke("iii")] == ["i"]
    assert [one.id for one in store.get_by_ids(["i", "nothing", "a"])] == ["i", "a"]
    store.add_texts(["aaaa"], ids=["a"])
    assert store.get_by_ids(["a"])[0].page_content == "aaaa"
    store.delete(["a", "e"])
    assert [one.id for one in store.similarity_search("a", k=5)] == ["i"]
    assert len(store.add_texts(["o", "oo"])) == 2
    with pytest.raises(InputError, match="do not match"):
        store.add_texts(["x"], ids=["1", "2"])


def test_langchain_makes_a_store_of_texts(graph):
    from omnigraph.integrations.langchain import OmnigraphVectorStore

    embedding = langchain_store(graph).embeddings
    store = OmnigraphVectorStore.from_texts(["aaa", "eee"], embedding, graph=graph)
    assert store.similarity_search("e", k=1)[0].page_content == "eee"


def test_langchain_puts_graph_documents_in(graph):
    from omnigraph.integrations.langchain import OmnigraphGraphStore

    store = OmnigraphGraphStore(graph)
    ulm, bonn = (SimpleNamespace(id=n, type="Place", properties={}) for n in ("Ulm", "Bonn"))
    near = SimpleNamespace(source=ulm, target=bonn, type="NEAR_TO", properties={"km": 400})
    document = SimpleNamespace(nodes=[ulm, bonn], relationships=[near])
    store.add_graph_documents([document])
    store.add_graph_documents([document])
    rows = store.query(
        "query q() { match { $a: Place $a $n:nearTo $b } return { $a.name, $n.km } }"
    )
    assert rows == [{"a.name": "Ulm", "n.km": 400}]  # put in twice, there once
    assert "node Place" in store.get_schema
    assert {"start": "Place", "type": "NearTo", "end": "Place"} in store.get_structured_schema[
        "relationships"
    ]
    wrong = SimpleNamespace(
        nodes=[SimpleNamespace(id="x", type="Nope", properties={})], relationships=[]
    )
    with pytest.raises(OmnigraphError, match="Nope"):
        store.add_graph_documents([wrong])


# --- LlamaIndex -----------------------------------------------------------------------------------


def test_llama_index_adds_finds_and_deletes_nodes(graph):
    from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
    from llama_index.core.vector_stores.types import VectorStoreQuery

    from omnigraph.integrations.llama_index import OmnigraphVectorStore

    store = OmnigraphVectorStore(graph)
    nodes = [
        TextNode(
            id_=name,
            text=name * 3,
            metadata={"name": name},
            embedding=vector(name * 3),
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"doc-{name}")},
        )
        for name in "aei"
    ]
    assert store.add(nodes) == ["a", "e", "i"]
    found = store.query(VectorStoreQuery(query_embedding=vector("aa"), similarity_top_k=2))
    assert found.ids[0] == "a"
    assert (found.nodes[0].text, found.nodes[0].metadata) == ("aaa", {"name": "a"})
    assert found.nodes[0].ref_doc_id == "doc-a"
    hybrid = VectorStoreQuery(
        query_embedding=vector("e"), query_str="eee", similarity_top_k=1, mode="hybrid"
    )
    assert store.query(hybrid).ids == ["e"]
    store.delete("doc-a")
    store.delete_nodes(["e"])
    left = store.query(VectorStoreQuery(query_embedding=vector("a"), similarity_top_k=5))
    assert left.ids == ["i"]
    assert store.client is graph


# --- what both are made of ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"node_type": "Chnk"}, "no node type 'Chnk'"),
        ({"text": "txt"}, "no property 'txt'"),
        ({"node_type": "Place", "text": "name", "vector": "name"}, "cannot hold pieces"),
    ],
)
def test_a_type_that_does_not_fit_is_refused_at_once(graph, names, words):
    with pytest.raises(OmnigraphError, match=words):
        Chunks(graph, **names)


# --- frames ---------------------------------------------------------------------------------------


def test_frames_and_duckdb_read_a_type_through_arrow(graph):
    graph.load({"Place": pd.DataFrame({"name": ["Ulm", "Bonn"]})}, mode="append")
    places = graph.query("query q() { match { $p: Place } return { $p.name as name } }")
    assert sorted(pl.DataFrame(places)["name"]) == ["Bonn", "Ulm"]
    assert sorted(places.to_pandas()["name"]) == ["Bonn", "Ulm"]
    assert duckdb.sql("select count(*) from places").fetchall() == [(2,)]


# --- pytest ---------------------------------------------------------------------------------------

SUITE = """
import pytest

@pytest.mark.omnigraph(schema="node P { name: String @key }", data={"P": [{"name": "Ada"}]})
def test_marked(omnigraph_graph):
    source = "query q() { match { $p: P } return { $p.name } }"
    assert omnigraph_graph.query(source).scalar() == "Ada"

def test_made(omnigraph_factory):
    one, two = (omnigraph_factory("node P { name: String @key }") for _ in range(2))
    assert one.uri != two.uri

def test_unmarked(omnigraph_graph):
    pass
"""


def test_the_fixtures_make_graphs_and_say_what_they_need(tmp_path):
    (tmp_path / "test_it.py").write_text(SUITE)
    # By hand, so that it does not matter whether the plugin is installed.
    (tmp_path / "conftest.py").write_text("from omnigraph.integrations.pytest_plugin import *\n")
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:omnigraph", str(tmp_path)]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *words], capture_output=True, text=True, check=False,
        cwd=tmp_path,
    )  # fmt: skip
    assert "2 passed, 1 error" in ran.stdout, ran.stdout
    assert "needs a mark" in ran.stdout


def test_no_framework_is_loaded_unless_it_is_used():
    source = (
        "import sys, omnigraph, omnigraph.engine.graph, omnigraph.integrations.chunks\n"
        "assert not {'langchain_core', 'llama_index', 'pytest', 'polars'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", source], check=True)
