"""Search on Spark: matches, scores and ranks are those of the engine, to the last bit."""

from __future__ import annotations

import random

import pytest
from both_engines import both

from omnigraph import Graph, pipeline
from omnigraph.errors import InputError
from omnigraph.model.ports import World

pytestmark = pytest.mark.spark

SCHEMA = """
node Doc { slug: String @key  body: String? @index  haus: String? @index(language="german")
           vec: Vector(4)? @index }
edge Cites: Doc -> Doc
"""
WORDS = (
    "graph",
    "data",
    "base",
    "lance",
    "branch",
    "merge",
    "commit",
    "query",
    "queries",
    "houses",
)
HAUS = ("Haus", "Häuser", "häuslich", "Garten", "Gärten", "Straße", "Strasse", "gehen", "ging")


def records(seed: int = 11, docs: int = 60):
    rng = random.Random(seed)
    for number in range(docs):
        body = " ".join(rng.choices(WORDS, k=rng.randint(0, 9))) if number % 8 else None
        vec = [rng.choice([0.0, 0.25, -1.0, 3.0]) for _ in range(4)] if number % 7 else None
        data = {"slug": f"d{number:02}", "body": body, "vec": vec}
        yield {"type": "Doc", "data": {**data, "haus": " ".join(rng.choices(HAUS, k=3))}}
    for _ in range(docs):
        yield {
            "edge": "Cites",
            "from": f"d{rng.randrange(docs):02}",
            "to": f"d{rng.randrange(docs):02}",
        }


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """A graph of which some words are stored, some rows gone and some changed."""
    uri = str(tmp_path_factory.mktemp("searched") / "graph.omni")
    with Graph.init(uri, SCHEMA, world=World(derived_rows_min=1)) as graph:
        lines = [*records()]
        nodes = [line for line in lines if "type" in line]
        graph.load(nodes[:40], mode="append")
        graph.optimize()
        graph.load(nodes[40:] + [line for line in lines if "edge" in line], mode="append")
        graph.mutate(
            'query m() { update Doc set { body: "graph graph house" } where slug = "d03" }'
        )
        graph.mutate('query m() { delete Doc where slug = "d05" }')
        yield graph


QUERIES = {
    "predicates": """match { $d: Doc  search($d.body, "house query") }
        return { $d.slug, match_text($d.body, "graph data") as row,
                 fuzzy($d.body, "brnch", 1) as near, search($d.haus, "haus") as german,
                 search($d.body, "+graph -merge") as signs }""",
    "relevance": """match { $d: Doc }
        return { $d.slug, bm25($d.body, "graph house lance") as score,
                 bm25($d.haus, "Gärten") as g }
        order { bm25($d.body, "graph house lance") desc } limit 12""",
    "nearest": """match { $d: Doc  $d.slug != "d07" }
        return { $d.slug, nearest($d.vec, $q) as far } order { nearest($d.vec, $q) } limit 9""",
    "nearest of each": """match { $e: Doc  $e.slug in ["d01", "d02", "d07", "d09"] } with { $e }
        match { $d: Doc  $d.slug != $e.slug }
        return { $e.slug as of, $d.slug, nearest($d.vec, $e.vec) as far }
        order { nearest($d.vec, $e.vec) } limit 2 offset 1""",
    "fused": """match { $d: Doc  $d cites $c }
        return { $d.slug, $c.slug as cited,
                 rrf(nearest($d.vec, $q), bm25($d.body, "data query")) as s }
        order { rrf(nearest($d.vec, $q), bm25($d.body, "data query")) desc } limit 15""",
    "distinct": """match { $d: Doc  $d cites $c }
        return distinct { $d.slug, bm25($d.body, "data house") as s } order { s desc } limit 20""",
    "in groups": """match { $d: Doc  search($d.body, "data") }
        return { $d.haus, count(*) as n, max(bm25($d.body, "data")) as best } order { n desc }""",
}
SHORT = {"relevance", "fused"}


@pytest.mark.parametrize(
    "name", [n if n in SHORT else pytest.param(n, marks=pytest.mark.slow) for n in QUERIES]
)
def test_spark_finds_what_the_engine_finds(spark, graph, name):
    asks = "$q: Vector(4)" if "$q" in QUERIES[name] else ""
    source = f"query q({asks}) {{ {QUERIES[name]} }}"
    params = {"q": [0.1, -1.0, 2.5, 0.3]} if asks else {}
    here = graph.query(source, params=params)
    frame = pipeline.query(spark, graph.uri, source, params=params)
    there = [[repr(value) for value in row] for row in frame.collect()]
    assert there == [[repr(value) for value in row.values()] for row in here.to_pylist()]
    assert len(here) > 4


def test_a_number_that_makes_no_sense_is_refused_as_by_the_engine(spark, graph):
    source = (
        """query q($e: I32) { match { $d: Doc  fuzzy($d.body, "branch", $e) } return { $d } }"""
    )
    for ask in (graph.query, lambda *a, **k: pipeline.query(spark, graph.uri, *a, **k)):
        with pytest.raises(InputError, match="0 or more, got -1"):
            ask(source, params={"e": -1})


def test_texts_behind_missing_ones_are_ranked(spark, tmp_path):
    bodies = [None, None, "graph data", None, "graph", "data graph graph"]
    with Graph.init(str(tmp_path / "some.omni"), SCHEMA) as graph:
        docs = ({"slug": f"d{place}", "body": body} for place, body in enumerate(bodies))
        graph.load([{"type": "Doc", "data": doc} for doc in docs], mode="append")
        here, there = both(
            spark, graph, 'match { $d: Doc } return { $d, bm25($d.body, "graph data") as s }'
        )
    assert there == here
    assert [row[1] for row in here[1]].count(None) == 3
