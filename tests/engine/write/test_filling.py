"""Vectors made in process: at `load`, at `mutate`, in a transaction, and for what is stored."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from omnigraph import Graph
from omnigraph.engine.embed import CachingEmbedder, CallableEmbedder, EmbedConfig
from omnigraph.errors import (
    ConstraintViolationError,
    EmbeddingError,
    EmbeddingModelMismatchError,
    InputError,
    NotFoundError,
)
from omnigraph.model.limits import EMBED_BATCH_TEXTS, EMBED_COMMIT_ROWS
from omnigraph.model.ports import World

SCHEMA = """
node Note {
  slug: String @key
  text: String?
  stars: I32?
  vec: Vector(3)? @embed("text")
}
node Page {
  slug: String @key
  body: String
  vec: Vector(2) @embed("body")
}
edge Cites: Note -> Page
"""
NEAR = """query q() {
  match { $n: Note } return { $n.slug as slug } order { nearest($n.vec, $t) } limit 1
}"""
ALL = "query all() { match { $n: Note } return { $n.slug as slug, $n.vec as vec } }"


class Letters:
    """An embedder whose vectors tell the text: the numbers of `a`, `b`, and of all letters."""

    def __init__(self, dimension=3, fails_on=None):
        self.calls, self.dimension, self.fails_on = [], dimension, fails_on

    def __call__(self, texts):
        self.calls.append(list(texts))
        if self.fails_on is not None and any(self.fails_on in text for text in texts):
            raise ConnectionError("no line")
        return [self.vector(text) for text in texts]

    def vector(self, text):
        return [len(text) + 1.0, float(text.count("a")), float(text.count("b"))][: self.dimension]

    @property
    def texts(self):
        return [text for call in self.calls for text in call]


def unit(text):
    vector = np.array(Letters().vector(text))
    return pytest.approx((vector / np.linalg.norm(vector)).tolist(), abs=1e-6)


@pytest.fixture
def uri(tmp_path):
    place = str(tmp_path / "graph")
    Graph.init(place, SCHEMA, durability="process").close()
    return place


def opened(uri, embedder):
    return Graph.open(uri, embedder=embedder, durability="process", maintenance=None)


def vectors(graph, **where):
    return {row["slug"]: row["vec"] for row in graph.query(ALL, **where)}


def note(slug, **data):
    return {"type": "Note", "data": {"slug": slug, **data}}


def insert(graph, slug, text, *, vec=None):
    given = ", vec: $vec" if vec is not None else ""
    graph.mutate(
        f"query add($slug: String, $text: String?, $vec: Vector(3)?) {{"
        f" insert Note {{ slug: $slug, text: $text{given} }} }}",
        params={"slug": slug, "text": text, "vec": vec},
    )


# --- what gets a vector ---------------------------------------------------------------------------


def test_load_and_insert_fill_what_is_left_out(uri):
    with opened(uri, Letters()) as graph:
        graph.load([note("a", text="aab"), note("b", text=" "), note("c")], mode="append")
        insert(graph, "d", "bb")
        insert(graph, "e", None)
        insert(graph, "f", "bb", vec=[0.0, 0.0, 1.0])
        assert vectors(graph) == {
            "a": unit("aab"),
            "b": None,
            "c": None,
            "d": unit("bb"),
            "e": None,
            "f": [0, 0, 1],
        }


def test_a_required_vector_may_be_left_out_where_there_is_an_embedder(uri):
    add = 'query add() { insert Page { slug: "p", body: "ab" } }'
    with opened(uri, None) as graph, pytest.raises(ConstraintViolationError):
        graph.mutate(add)
    with opened(uri, Letters(dimension=2)) as graph:
        graph.mutate(add)
        found = graph.query("query q() { match { $p: Page } return { $p.vec as vec } }")
        assert found.to_pylist() == [{"vec": pytest.approx([3 / 10**0.5, 1 / 10**0.5])}]


@pytest.mark.parametrize(
    ("statement", "wanted"),
    [
        ('update Note set { text: "bbb" } where slug = "a"', "bbb"),
        ('update Note set { text: "aab" } where slug = "a"', "aab"),
        ('update Note set { stars: 3 } where slug = "a"', "aab"),
        ('update Note set { text: "  " } where slug = "a"', None),
        ('update Note set { text: "bbb", vec: [0.0, 1.0, 0.0] } where slug = "a"', [0, 1, 0]),
        ('upsert Note { slug: "a", text: "ab" }', "ab"),
    ],
)
def test_a_text_that_changes_changes_its_vector(uri, statement, wanted):
    with opened(uri, Letters()) as graph:
        insert(graph, "a", "aab")
        insert(graph, "other", "x")
        graph.mutate(f"query change() {{ {statement} }}")
        found = vectors(graph)
    assert found["other"] == unit("x")
    assert found["a"] == (unit(wanted) if isinstance(wanted, str) else wanted)


def test_without_an_embedder_an_update_leaves_the_vector_alone(uri):
    with opened(uri, Letters()) as graph:
        insert(graph, "a", "aab")
    with opened(uri, None) as graph:
        graph.mutate('query change() { update Note set { text: "b" } where slug = "a" }')
        assert vectors(graph) == {"a": unit("aab")}


def test_a_text_that_did_not_change_is_not_embedded_again(uri):
    with opened(uri, Letters()) as graph:
        insert(graph, "a", "aab")
    again = Letters()
    with opened(uri, again) as graph:
        graph.mutate('query q() { update Note set { text: "aab", stars: 1 } where slug = "a" }')
    assert again.calls == []


def test_a_transaction_sees_the_vectors_of_what_it_wrote(uri):
    near = NEAR.replace("$t", "[9.0, 9.0, 0.1]")
    with opened(uri, Letters()) as graph:
        with graph.transaction() as pending:
            pending.load([note("b", text="bbbbb")], mode="append")
            pending.mutate('query q() { insert Note { slug: "a", text: "aaaa" } }')
            assert pending.query(near).to_pylist() == [{"slug": "a"}]
        assert vectors(graph) == {"a": unit("aaaa"), "b": unit("bbbbb")}


def test_a_text_to_look_for_is_embedded_by_the_graphs_embedder(uri):
    near = NEAR.replace("q()", "q($t: String)")
    with opened(uri, Letters()) as graph:
        graph.load([note("a", text="aaaa"), note("b", text="bbbb")], mode="append")
        assert graph.query(near, params={"t": "bb"}).to_pylist() == [{"slug": "b"}]


# --- what is asked for ----------------------------------------------------------------------------


def test_a_text_is_asked_for_once(uri):
    letters = Letters()
    with opened(uri, letters) as graph:
        graph.load([note(f"n{i}", text=f"t{i % 5}") for i in range(50)], mode="append")
        insert(graph, "again", "t1")
        graph.load([note("n1", text="t1", stars=2)], mode="merge")
    assert sorted(letters.texts) == [f"t{i}" for i in range(5)]


def test_what_a_failed_load_has_paid_for_is_kept(uri):
    count = 3 * EMBED_BATCH_TEXTS
    records = [note(f"n{i:04}", text=f"text {i:04}") for i in range(count)]
    letters = Letters(fails_on=f"{count - 1:04}")
    with opened(uri, letters) as graph:
        with pytest.raises(EmbeddingError) as failed:
            graph.load(records, mode="append")
        assert vectors(graph) == {}
        letters.fails_on, letters.calls = None, []
        graph.load(records, mode="append")
        assert len(vectors(graph)) == count
    assert len(letters.texts) == EMBED_BATCH_TEXTS
    facts = failed.value.facts
    assert (facts["type_name"], facts["property_name"]) == ("Note", "vec")
    assert "no line" in failed.value.message
    assert facts["place"] in failed.value.message


def test_another_process_finds_what_a_failed_load_kept_if_the_model_has_a_name(uri):
    count = 2 * EMBED_BATCH_TEXTS
    records = [note(f"n{i:04}", text=f"text {i:04}") for i in range(count)]
    for named, asked in ((False, count), (True, EMBED_BATCH_TEXTS)):
        failing, whole = Letters(fails_on=f"{count - 1:04}"), Letters()
        if named:
            failing.model = whole.model = "letters-1"
        with opened(uri, failing) as graph, pytest.raises(EmbeddingError):
            graph.load(records, mode="overwrite")
        with opened(uri, whole) as graph:
            graph.load(records, mode="overwrite")
        assert len(whole.texts) == asked


# --- what goes wrong ------------------------------------------------------------------------------

BAD = [
    (lambda texts: [[1.0, 2.0] for _ in texts], "has 2 numbers, expected 3"),
    (lambda texts: [[1.0, float("nan"), 0.0] for _ in texts], "not finite or all zero"),
    (lambda texts: [[0.0, 0.0, 0.0] for _ in texts], "not finite or all zero"),
    (lambda texts: [[1.0, 2.0, 3.0]] * (len(texts) + 1), "made 2 vectors for 1 texts"),
    (lambda texts: [["x", 1, 2] for _ in texts], "is no list of numbers"),
    (lambda texts: [7 for _ in texts], "is no list of numbers"),
    (lambda texts: 1 / 0, "ZeroDivisionError"),
]


@pytest.mark.parametrize(("call", "words"), BAD)
def test_a_vector_of_no_use_names_type_property_and_record(uri, call, words):
    with opened(uri, call) as graph:
        with pytest.raises(EmbeddingError, match=words) as refused:
            insert(graph, "a", "x")
        assert (refused.value.facts["type_name"], refused.value.facts["entity_id"]) == ("Note", "a")
        assert "'Note.vec'" in refused.value.message
        with pytest.raises(EmbeddingError, match=words):
            graph.load([note("a", text="x")], mode="append")
        assert vectors(graph) == {}


def test_the_record_with_the_bad_vector_is_named(uri):
    letters = Letters()
    letters.vector = lambda text: [1.0] * (2 if text == "bad" else 3)
    with opened(uri, letters) as graph, pytest.raises(EmbeddingError) as refused:
        graph.load("\n".join(json.dumps(note(t, text=t)) for t in ("x", "bad", "y")), mode="append")
    assert refused.value.facts["place"] == "line 2"


def test_a_model_of_another_name_is_refused(tmp_path):
    letters = Letters()
    letters.model = "letters-2"
    schema = 'node N { s: String @key t: String v: Vector(3)? @embed("t", model="letters-1") }'
    with (
        Graph.init(tmp_path / "g", schema, embedder=letters, durability="process") as graph,
        pytest.raises(EmbeddingModelMismatchError),
    ):
        graph.mutate('query q() { insert N { s: "a", t: "x" } }')


@pytest.mark.parametrize("wrong", [3, "mock", [1.0]])
def test_an_embedder_is_something_to_call(uri, wrong):
    with pytest.raises(InputError, match="embedder must be"):
        Graph.open(uri, embedder=wrong)


# --- what is stored already -----------------------------------------------------------------------


def test_health_counts_missing_vectors_and_embed_makes_them(uri):
    with opened(uri, None) as graph:
        graph.load([note("a", text="aab"), note("b", text=" "), note("c")], mode="append")
        (told,) = [one for one in graph.health().datasets if one.type_key == "node:Note"]
        assert told.missing_vectors == {"vec": 1}
        assert any("node:Note.vec (1)" in line for line in graph.health().advice)
        with pytest.raises(InputError, match="no embedder"):
            graph.embed()
    with opened(uri, EmbedConfig(provider="mock", base_url="", model=None)) as graph:
        report = graph.embed(types=["Note"], message="vectors", actor="ann")
        assert (report.filled, len(report.graph_commit_ids)) == (1, 1)
        assert graph.commits(limit=1)[0].message == "vectors"
        assert vectors(graph)["a"] is not None
        assert graph.embed().graph_commit_ids == ()
        assert all(not one.missing_vectors for one in graph.health().datasets)
        with pytest.raises(NotFoundError):
            graph.embed(types=["Nothing"])


def test_missing_vectors_are_the_same_with_and_without_stored_numbers(tmp_path):
    uri, schema = str(tmp_path / "g"), SCHEMA.replace("Vector(3)?", "Vector(3)? @index")
    world = World(durability="process", derived_rows_min=3, derived_bytes_max=30)

    def missing(graph):
        (told,) = [one for one in graph.health().datasets if one.type_key == "node:Note"]
        return told.missing_vectors.get("vec")

    with Graph.init(uri, schema, world=world) as graph:
        rows = [note(f"n{i}", text="a" * (i % 3), vec=[1.0, 2.0, float(i)]) for i in range(4)]
        graph.load([*rows, *(note(f"m{i}", text="b" * (i % 3)) for i in range(6))], mode="append")
        assert len(list(Path(uri).rglob("*.int8v1.*"))) > 1
        assert missing(graph) == 4
        graph.load([note("m1", text="now", vec=[0.0, 0.0, 1.0]), note("x", text="y")], mode="merge")
        graph.mutate('query q() { delete Note where slug = "m2" }')
        assert missing(graph) == 3
        shutil.rmtree(Path(uri, "_derived"))
        assert missing(graph) == 3


def test_optimize_fills_where_there_is_an_embedder(uri):
    with opened(uri, None) as graph:
        graph.load([note("a", text="aab")], mode="append")
        graph.optimize()
        assert vectors(graph) == {"a": None}
    with opened(uri, Letters()) as graph:
        graph.optimize()
        assert vectors(graph) == {"a": unit("aab")}


def test_embed_keeps_what_it_has_made_when_a_later_text_fails(uri, monkeypatch):
    monkeypatch.setattr("omnigraph.engine.write.filling.EMBED_COMMIT_ROWS", 10)
    assert EMBED_COMMIT_ROWS >= 10
    with opened(uri, None) as graph:
        graph.load([note(f"n{i:02}", text=f"text {i:02}") for i in range(25)], mode="append")
    with opened(uri, Letters(fails_on="text 24")) as graph, pytest.raises(EmbeddingError):
        graph.embed()
    rest = Letters()
    with opened(uri, rest) as graph:
        assert graph.embed().filled == 5
        assert None not in vectors(graph).values()
    assert len(rest.texts) == 5


def test_a_full_memory_forgets_the_oldest_text():
    letters = Letters()
    caching = CachingEmbedder(CallableEmbedder(letters), bytes_max=2 * 3 * 8)
    for text in ("a", "b", "a", "c", "a", "b"):
        caching.embed(text, dimension=3)
    assert letters.texts == ["a", "b", "c", "b"]
