"""Search through queries: what is found, how it is ranked, and that indexes change nothing."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pyarrow as pa
import pytest

from inside import core_of
from omnigraph import Graph
from omnigraph.engine.read import stages
from omnigraph.engine.read.memory import frame
from omnigraph.engine.read.memory.change import Change
from omnigraph.engine.read.search import fusion, search, text
from omnigraph.engine.read.search.vectors import Vectors
from omnigraph.errors import EmbeddingModelMismatchError, InputError
from omnigraph.model.graph import WriterKind
from omnigraph.storage.commit.prepared import Intent, Prepared
from omnigraph.storage.table.index import IndexSpec
from omnigraph.storage.table.upkeep import Upkeep

SCHEMA = """
node Doc {
  slug: String @key
  title: String? @index
  body: String @index
  lang: enum(en, de)? @index
  vec: Vector(2)? @index
}
node Author { name: String @key }
edge Wrote: Author -> Doc
"""
DOCS = [
    ("a", "Graph databases", "graphs store nodes and edges", "en", [1.0, 0.0]),
    ("b", "Databases of graphs", "a table stores rows", "en", [0.0, 1.0]),
    ("c", None, "edges and nodes make graphs of graphs", "de", [1.0, 1.0]),
    ("d", "Cooking", "the soup needs salt", "en", None),
    ("e", "Cooking", "the soup needs salt", None, [-1.0, 0.0]),
]
QUERIES = """
query search($q: String) { match { $d: Doc  search($d.title, $q) } return { $d.slug } }
query not_search($q: String) { match { $d: Doc  not search($d.title, $q) } return { $d.slug } }
query fuzzy($q: String) { match { $d: Doc  fuzzy($d.title, $q, 1) } return { $d.slug } }
query fuzzy_default($q: String) { match { $d: Doc  fuzzy($d.body, $q) } return { $d.slug } }
query phrase($q: String) { match { $d: Doc  match_text($d.body, $q) } return { $d.slug } }
query bm25($q: String) {
  match { $d: Doc }
  return { $d.slug, bm25($d.body, $q) as score } order { bm25($d.body, $q) } limit 9
}
query by_alias($q: String) {
  match { $d: Doc } return { $d.slug, bm25($d.body, $q) as score } order { score desc }
}
query unordered($q: String) { match { $d: Doc } return { $d.slug, bm25($d.body, $q) as score } }
query near($v: Vector(2)) {
  match { $d: Doc }
  return { $d.slug, nearest($d.vec, $v) as far } order { nearest($d.vec, $v) } limit 9
}
query near_in($v: Vector(2)) {
  match { $d: Doc { lang: "en" } } return { $d.slug } order { nearest($d.vec, $v) } limit 1
}
query near_walk($v: Vector(2), $n: String) {
  match { $a: Author { name: $n }  $a wrote $d }
  return { $d.slug } order { nearest($d.vec, $v) } limit 1
}
query near_text() {
  match { $d: Doc } return { $d.slug } order { nearest($d.vec, "some text") } limit 2
}
query fused($v: Vector(2), $q: String) {
  match { $d: Doc } return { $d.slug, rrf(nearest($d.vec, $v), bm25($d.body, $q)) as score }
  order { rrf(nearest($d.vec, $v), bm25($d.body, $q)) } limit 2
}
query fused_k($v: Vector(2), $q: String) {
  match { $d: Doc } return { $d.slug, rrf(nearest($d.vec, $v), bm25($d.body, $q), 1) as score }
  order { score desc } limit 9
}
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    made = Graph.init(str(tmp_path_factory.mktemp("search") / "g.omni"), SCHEMA)
    made.load("\n".join(lines(DOCS)), mode="overwrite")
    yield made
    made.close()


def lines(docs):
    for slug, title, body, lang, vec in docs:
        data = {"slug": slug, "title": title, "body": body, "lang": lang, "vec": vec}
        yield json.dumps({"type": "Doc", "data": data})
    yield json.dumps({"type": "Author", "data": {"name": "ann"}})
    for slug in ("b", "e"):
        yield json.dumps({"edge": "Wrote", "from": "ann", "to": slug})


def slugs(graph, name, **params):
    return [row["d.slug"] for row in graph.query(QUERIES, name, params=params).to_pylist()]


@pytest.mark.parametrize(
    ("name", "query", "found"),
    [
        ("search", "graph", ["a"]),
        ("search", "GRAPHS cooking", ["b", "d", "e"]),
        ("search", "nothing", []),
        ("not_search", "cooking", ["a", "b"]),  # a missing title is neither
        ("fuzzy", "graph", ["a", "b"]),
        ("fuzzy", "grap", ["a"]),
        ("fuzzy", "coking", ["d", "e"]),
        ("fuzzy_default", "grahps", ["a", "c"]),
        ("phrase", "nodes and edges", ["a"]),
        ("phrase", "Edges and NODES", ["c"]),
        ("phrase", "edges nodes", []),
    ],
)
def test_text_predicates_find(graph, name, query, found):
    assert sorted(slugs(graph, name, q=query)) == found


def test_relevance_orders_best_first_and_leaves_out_what_does_not_match(graph):
    rows = graph.query(QUERIES, "bm25", params={"q": "graphs"}).to_pylist()
    assert [row["d.slug"] for row in rows] == ["c", "a"]
    assert rows[0]["score"] > rows[1]["score"] > 0


@pytest.mark.parametrize(
    ("slug", "found"),
    [("a", [("c", 1 - math.sqrt(0.5)), ("b", 1.0), ("e", 2.0)]), ("d", [])],  # d has no vector
)
def test_what_is_nearest_to_another_node_is_more_like_it(graph, slug, found):
    text = f"""query q() {{
      match {{ $e: Doc {{ slug: "{slug}" }}  $d: Doc  $d != $e }}
      return {{ $d.slug, nearest($d.vec, $e.vec) as far }}
      order {{ nearest($d.vec, $e.vec) }} limit 9
    }}"""
    rows = [tuple(row.values()) for row in graph.query(text).to_pylist()]
    assert [row[0] for row in rows] == [one for one, _ in found]
    assert [row[1] for row in rows] == pytest.approx([far for _, far in found])


NEAR_EACH = """query q() {
  match { $e: Doc  $e.slug in ["c", "a", "d"] } with { $e }
  match { $d: Doc  $d != $e }
  RETURNED order { nearest($d.vec, $e.vec) } limit 2 offset FIRST
  END
}"""


@pytest.mark.parametrize(
    ("first", "found"),
    [
        (0, [("a", "c"), ("a", "b"), ("c", "a"), ("c", "b")]),  # d has no vector to be near to
        (2, [("a", "e"), ("c", "e")]),
        (3, []),
    ],
)
@pytest.mark.parametrize("last", [True, False])
def test_each_row_of_the_stage_before_has_a_ranking_of_its_own(graph, first, found, last):
    shown, end = (
        ("return { $e.slug, $d.slug }", "")
        if last
        else ("with { $e, $d }", "return { $e.slug, $d.slug }")
    )
    text = NEAR_EACH.replace("RETURNED", shown).replace("END", end).replace("FIRST", str(first))
    rows = [tuple(row.values()) for row in graph.query(text).to_pylist()]
    assert (rows if last else sorted(rows)) == (found if last else sorted(found))


def test_different_rows_without_a_score_are_left_out_too(graph):
    text = """query q() {
      match { $d: Doc } return distinct { $d.lang, bm25($d.body, "graphs") as s } order { s }
    }"""
    assert [row["d.lang"] for row in graph.query(text).to_pylist()] == ["de", "en"]


@pytest.mark.parametrize("walked", ["", "$a: Author  $a wrote $d"])
@pytest.mark.parametrize("keys", ["$d.slug", "$d.id", "$d.slug, $d.lang"])
def test_a_rank_among_different_rows_is_that_among_all_of_them(graph, keys, walked):
    """Also of those that a limit does not show."""
    rank = "rrf(nearest($d.vec, [1.0, 0.0]), bm25($d.body, 'graphs'))".replace("'", '"')

    def shown(word, end=""):
        text = f"match {{ $d: Doc {walked} }} return {word} {{ {keys}, {rank} as s }} order {{ s }}"
        return [tuple(row.values()) for row in graph.query(f"query q() {{ {text} {end} }}")]

    every = shown("")
    assert len(every) > 1
    for first in range(len(every)):
        for word in ("", "distinct"):
            assert shown(word, f"limit 2 offset {first}") == every[first : first + 2], (word, first)


def test_rows_that_bring_both_nodes_are_ranked_together(graph):
    text = """query q() {
      match { $e: Doc  $d: Doc  $d != $e } with { $e, $d }
      match { $d.slug != "e" } return { $e.slug, $d.slug } order { nearest($d.vec, $e.vec) } limit 2
    }"""
    rows = [tuple(row.values()) for row in graph.query(text).to_pylist()]
    assert rows == [("c", "a"), ("c", "b")]


def test_the_distance_to_another_node_is_that_of_each_row(graph):
    text = """query q() {
      match { $e: Doc  $d: Doc  nearest($d.vec, $e.vec) > 1.5 }
      return { $d.slug, $e.slug, nearest($d.vec, $e.vec) as far }
    }"""
    rows = [tuple(row.values()) for row in graph.query(text).to_pylist()]
    assert [row[:2] for row in rows] == [("a", "e"), ("c", "e"), ("e", "a"), ("e", "c")]
    assert rows[0][2] == pytest.approx(2.0)
    assert rows[1][2] == rows[3][2] == pytest.approx(1 + math.sqrt(0.5))


def test_equal_scores_are_ordered_by_id(graph):
    assert slugs(graph, "bm25", q="soup") == ["d", "e"]


def test_a_score_can_be_ordered_by_its_alias_and_is_null_without_a_match(graph):
    rows = graph.query(QUERIES, "by_alias", params={"q": "graphs"}).to_pylist()
    assert [row["d.slug"] for row in rows] == ["c", "a"]
    rows = graph.query(QUERIES, "unordered", params={"q": "graphs"}).to_pylist()
    assert {row["d.slug"] for row in rows if row["score"] is None} == {"b", "d", "e"}


def test_vectors_are_compared_by_cosine_distance(graph):
    rows = graph.query(QUERIES, "near", params={"v": [5.0, 0.0]}).to_pylist()
    assert [row["d.slug"] for row in rows] == ["a", "c", "b", "e"]
    expected = [0.0, 1 - math.sqrt(0.5), 1.0, 2.0]
    assert [row["far"] for row in rows] == pytest.approx(expected, abs=1e-7)


def test_vectors_too_big_to_keep_are_scanned_with_the_same_answers(graph, monkeypatch):
    asked = {"v": [0.3, -0.2]}
    expected = graph.query(QUERIES, "near", params=asked).to_pylist()
    monkeypatch.setattr(frame, "COLUMN_BYTES_MAX", 0)
    monkeypatch.setattr(frame, "SMALL_TABLE_ROWS", -1)
    with Graph.open(graph.uri) as other:
        assert other.query(QUERIES, "near", params=asked).to_pylist() == expected


def test_filters_and_walks_restrict_before_ranking(graph):
    assert slugs(graph, "near_in", v=[1.0, 1.0]) == ["a"]
    assert slugs(graph, "near_walk", v=[1.0, 0.0], n="ann") == ["b"]


def test_fusion_sums_reciprocal_ranks_over_all_rows_whatever_the_limit(graph):
    rows = graph.query(QUERIES, "fused", params={"v": [1.0, 0.0], "q": "graphs"}).to_pylist()
    # By vector a, c, b, e; by text c, a: ranks from 0.
    both = 1 / 61 + 1 / 62
    assert [(row["d.slug"], row["score"]) for row in rows] == [
        ("a", pytest.approx(both)),
        ("c", pytest.approx(both)),
    ]
    rows = graph.query(QUERIES, "fused_k", params={"v": [1.0, 0.0], "q": "soup"}).to_pylist()
    scores = {row["d.slug"]: row["score"] for row in rows}
    assert scores["e"] == pytest.approx(1 / 5 + 1 / 3)
    assert scores["d"] == pytest.approx(1 / 2)
    assert scores["a"] == pytest.approx(1 / 2)


def test_a_text_query_is_embedded_first(graph, monkeypatch):
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    assert len(slugs(graph, "near_text")) == 2
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "")
    for name in ("OPENROUTER_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InputError, match="API key"):
        slugs(graph, "near_text")


def test_another_model_than_the_declared_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    monkeypatch.setenv("OMNIGRAPH_EMBED_MODEL", "theirs")
    schema = 'node Doc { slug: String @key  t: String  vec: Vector(2)? @embed("t", model="ours") }'
    with Graph.init(str(tmp_path / "g.omni"), schema) as graph:
        query = (
            'query q() { match { $d: Doc } return { $d } order { nearest($d.vec, "x") } limit 1 }'
        )
        graph.load('{"type": "Doc", "data": {"slug": "a", "t": "t", "vec": [1, 0]}}', mode="append")
        with pytest.raises(EmbeddingModelMismatchError, match="ours"):
            graph.query(query)


ASKED = [
    ("search", {"q": "graph databases"}),
    ("fuzzy", {"q": "graph"}),
    ("phrase", {"q": "nodes and edges"}),
    ("bm25", {"q": "graphs and soup"}),
    ("near", {"v": [1.0, 0.5]}),
    ("fused", {"v": [1.0, 0.5], "q": "graphs"}),
]


INDEXES = (
    IndexSpec(name="title_idx", column="title", kind="btree"),
    IndexSpec(name="body_idx", column="body", kind="btree"),
    IndexSpec(name="lang_idx", column="lang", kind="btree"),
    IndexSpec(name="vec_idx", column="vec", kind="vector"),
)


def build_indexes(graph):
    """Storage indexes over what is there now, as one commit."""
    core = core_of(graph)

    def prepare(context):
        table = context.writable("node:Doc")
        plan = table.plan_upkeep(INDEXES, Upkeep(compact=False))
        done = table.finish_upkeep(plan, [table.run_upkeep_task(task) for task in plan.tasks])
        staged = table.stage_upkeep(done)
        assert staged is not None
        return Prepared(staged=(staged.write,)), None

    core.write(Intent(branch=core.branch("main"), kind=WriterKind.ENSURE_INDICES), prepare)


def test_no_partial_and_full_indexes_give_the_same_answers(tmp_path):
    def answers(graph):
        return [graph.query(QUERIES, name, params=params).to_pylist() for name, params in ASKED]

    def docs(some):
        return "\n".join(line for line in lines(some) if '"Doc"' in line)

    with Graph.init(str(tmp_path / "plain.omni"), SCHEMA) as plain:
        plain.load("\n".join(lines(DOCS)), mode="overwrite")
        expected = answers(plain)
    with Graph.init(str(tmp_path / "indexed.omni"), SCHEMA) as indexed:
        indexed.load(docs(DOCS[:3]), mode="append")
        build_indexes(indexed)
        indexed.load(docs(DOCS[3:]), mode="append")
        assert answers(indexed) == expected  # the indexes cover three of five
        build_indexes(indexed)
        assert answers(indexed) == expected
    with Graph.open(str(tmp_path / "indexed.omni")) as again:
        assert answers(again) == expected


MANY = [
    *DOCS,
    *(
        (
            f"x{n:03}",
            None if n % 7 == 0 else f"Soup {n % 5} über graphs {'graph ' * (n % 3)}",
            f"nodes and edges {n % 11}",
            "de",
            None if n % 6 == 0 else [float(n % 13) - 6, 1e20 if n % 17 == 0 else float(n % 5)],
        )
        for n in range(200)
    ),
]
MORE = """
query hits($q: String) { match { $d: Doc  search($d.title, $q) or $d.lang = "en" }
  return { $d.slug, bm25($d.body, $q) as score, nearest($d.vec, [1.0, 2.0]) as far } }
query none($q: String) { match { $d: Doc  not match_text($d.title, $q) } return { $d.slug } }
query best($q: String) { match { $d: Doc { lang: "de" } } return { $d.slug }
  order { bm25($d.title, $q) } limit 7 }
query near_few() { match { $d: Doc  $d.slug < "x010" } return { $d.slug }
  order { nearest($d.vec, [0.5, 1.0]) } limit 3 }
query walked($q: String) { match { $a: Author  $a wrote $d } return { $a.name, $d.slug }
  order { rrf(nearest($d.vec, [0.5, 1.0]), bm25($d.body, $q)) } limit 3 }
"""
MANY_ASKED = [
    *ASKED,
    *((name, {"q": "graphs soup"}) for name in ("hits", "none", "best", "walked")),
]
MANY_ASKED.append(("near_few", {}))


@pytest.mark.parametrize("part", [3, 1 << 17])
def test_without_room_in_memory_columns_are_streamed_with_the_same_answers(
    tmp_path, monkeypatch, part
):
    monkeypatch.setattr(text, "PART_TEXTS", part)
    monkeypatch.setattr(search, "NEAR_ROWS_MIN", 1)
    for module in (frame, search):
        monkeypatch.setattr(module, "SMALL_TABLE_ROWS", 0)
    uri = str(tmp_path / "g.omni")
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        graph.load("\n".join(lines(MANY)), mode="overwrite")
        with Graph.open(uri) as roomy, Graph.open(uri, cache_bytes=600) as small:
            for turn in range(3):
                for name, params in MANY_ASKED:
                    expected = roomy.query(QUERIES + MORE, name, params=params).to_pylist()
                    assert small.query(QUERIES + MORE, name, params=params).to_pylist() == expected
                changed = [(f"n{turn}", "graphs", "soup and graphs", "de", [1.0, float(turn)])]
                graph.load("\n".join(list(lines(changed))[:1]), mode="merge")
                graph.mutate(f'query q() {{ delete Doc where slug = "x01{turn}" }}')
                roomy.refresh(), small.refresh()
            kinds = {key[0] for key in small._reader._caches._kept._values}
            assert not kinds & {"text", "vectors"}
            for name, column in (("search", "title"), ("bm25", "body"), ("near", "vec")):
                told = small.explain(QUERIES, name, params=dict(ASKED)[name])
                assert f"read $d.{column} (streamed)" in str(told)
                assert "(streamed)" not in str(
                    roomy.explain(QUERIES, name, params=dict(ASKED)[name])
                )


FUSIONS = """
query walked($v: Vector(2), $q: String, $n: I64) { match { $a: Author  $a wrote $d }
  return { $a.name, $d.slug, rrf(nearest($d.vec, $v), bm25($d.title, $q), 7) as score }
  order { rrf(nearest($d.vec, $v), bm25($d.title, $q), 7) } limit $n }
query alone($v: Vector(2), $q: String, $n: I64) { match { $d: Doc }
  return { $d.slug, rrf(bm25($d.body, $q), nearest($d.vec, $v)) as score }
  order { rrf(bm25($d.body, $q), nearest($d.vec, $v)), $d.lang } limit $n offset 2 }
query maybe($v: Vector(2), $q: String, $n: I64) { match { $a: Author  optional { $a wrote $d } }
  return { $a.name, $d.slug }
  order { rrf(bm25($d.body, $q), nearest($d.vec, $v)) } limit $n }
"""


@pytest.mark.parametrize("contenders", [512, 4])
def test_fused_ranks_of_the_first_are_those_of_all(tmp_path, monkeypatch, contenders):
    draw = random.Random(contenders)
    numbers = (0.0, 1.0, -1.0, 1e-3, 1e20, 1e-30, 0.1)
    docs = [
        (
            f"d{n:03}",
            " ".join(draw.choices(["soup", "graph", "graphs", "salt"], k=draw.randint(0, 4))),
            draw.choice(["salt", "soup soup", "graph"]),
            draw.choice(["en", "de", None]),
            None if n % 9 == 0 else [draw.choice(numbers), draw.choice(numbers)],
        )
        for n in range(300)
    ]
    edges = [
        json.dumps({"edge": "Wrote", "from": "ann", "to": draw.choice(docs)[0]}) for _ in range(250)
    ]
    with Graph.init(str(tmp_path / "g.omni"), SCHEMA, durability="process") as graph:
        graph.load("\n".join([*list(lines(docs))[:-2], *edges]), mode="overwrite")
        for _ in range(12):
            asked = {"v": [draw.choice(numbers), draw.uniform(-1, 1)], "n": draw.choice([1, 3, 30])}
            asked["q"] = draw.choice(["soup", "graphs salt", "nothing", "the"])
            for name in ("walked", "alone", "maybe"):
                monkeypatch.setattr(stages, "FUSED_ROWS_MIN", 1 << 60)
                expected = graph.query(FUSIONS, name, params=asked).to_pylist()
                for module in (stages, fusion):
                    monkeypatch.setattr(module, "FUSED_ROWS_MIN", 1)
                monkeypatch.setattr(fusion, "CONTENDERS_MAX", contenders)
                assert graph.query(FUSIONS, name, params=asked).to_pylist() == expected


def test_what_does_not_fit_is_not_tried_again_and_again(tmp_path, monkeypatch):
    uri = str(tmp_path / "g.omni")
    monkeypatch.setattr(text, "PART_TEXTS", 16)
    monkeypatch.setattr(text, "TEXT_BYTES_MIN", 0)
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        graph.load("\n".join(lines(MANY)), mode="overwrite")
    with Graph.open(uri, cache_bytes=9_000) as small:
        rows = []
        for _ in range(2):
            told = small.explain(QUERIES, "bm25", params={"q": "graphs"})
            rows.append(told.rows_read)
        kept = small._reader._caches
        assert kept._sizes
        kept._kept.budget_bytes = 1 << 30  # and once there is room, it is kept
        assert "(streamed)" not in str(small.explain(QUERIES, "bm25", params={"q": "graphs"}))
    assert rows[1] < rows[0]


def test_relevance_counts_only_entities_that_have_a_text(tmp_path):
    query = 'query q() { match { $d: Doc } return { $d.k } order { bm25($d.t, "graph") } limit 2 }'
    docs = {"short": "graph store", "long": "graph " * 6 + "word " * 30}
    silent = {f"n{i:04d}": None for i in range(1000)}

    def load(graph, texts):
        records = ({"type": "Doc", "data": {"k": k, "t": t}} for k, t in texts.items())
        graph.load("\n".join(map(json.dumps, records)), mode="merge")

    with Graph.init(
        str(tmp_path / "g.omni"), "node Doc { k: String @key  t: String? }", durability="process"
    ) as graph:
        orders = []
        # Alone, beside nulls, beside texts that came and went again; on one warm handle.
        for texts in (docs, silent, {k: f"word {k}" for k in silent}, silent):
            load(graph, texts)
            orders.append([row["d.k"] for row in graph.query(query).to_pylist()])
        with Graph.open(str(tmp_path / "g.omni")) as fresh:
            orders.append([row["d.k"] for row in fresh.query(query).to_pylist()])
    full = ["short", "long"]
    assert orders == [full[::-1], full[::-1], full, full[::-1], full[::-1]]


def test_moved_vectors_compare_like_new_ones():
    kind = pa.list_(pa.float32(), 2)
    values = [[1.0, 0.0], None, [0.0, 2.0], [0.0, 0.0]]
    block = Vectors.of(pa.array(values, kind))
    values = [[1.0, 0.0], [3.0, 3.0], None, [0.0, 0.0], None, [-1.0, 0.0]]
    change = Change(
        origin=("nodes", None, 1),
        updated_at=np.array([1, 2]),
        updated=pa.table({"v": pa.array([values[1], None], kind)}),
        added_at=np.array([5]),  # the row at 4 came and went
        added=pa.table({"v": pa.array([values[5]], kind)}),
        deleted_at=np.array([], np.int64),
        length=6,
        nbytes=0,
    )
    block = block.moved(change, "v")
    query = np.array([2.0, 0.0])
    fresh = Vectors.of(pa.array(values, kind))
    np.testing.assert_array_equal(
        block.distances(np.arange(6), query), fresh.distances(np.arange(6), query)
    )
    np.testing.assert_allclose(block.similarity(query), fresh.similarity(query))
    assert block.similarity(query)[2] == -np.inf
