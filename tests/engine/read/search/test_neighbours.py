"""Candidates from an approximate index: near the truth, never a wrong distance, and never for those
who ask for `exact`."""

from __future__ import annotations

import numpy as np
import pytest

from omnigraph import Graph
from omnigraph.engine.read.search import search

WIDTH = 8
SCHEMA = "node Doc { slug: String @key  num: I32  vec: Vector(8)? @index(ann=true) }"
NEAR = """
query near($v: Vector(8), $most: I32) {
  match { $d: Doc  $d.num < $most }
  return { $d.slug as slug, nearest($d.vec, $v) as far }
  order { nearest($d.vec, $v) }
  limit 10
}
"""
EXACT = NEAR.replace("order { nearest($d.vec, $v) }", "order { nearest($d.vec, $v, exact) }")
OPTIONS = {"durability": "process", "maintenance": None}


@pytest.fixture
def quick(monkeypatch):
    """Small tables go the way of big ones."""
    monkeypatch.setattr(search, "NEAR_ROWS_MIN", 16)
    monkeypatch.setattr(search, "WHOLE_NUMBERS_MAX", 0)


class Docs:
    """Vectors in a graph and, for numpy, beside it."""

    def __init__(self, graph):
        self.graph, self.rng, self.vectors = graph, np.random.default_rng(7), {}
        self.centres = self.rng.standard_normal((30, WIDTH))

    def one(self):
        return (
            self.centres[self.rng.integers(30)] + 0.3 * self.rng.standard_normal(WIDTH)
        ).tolist()

    def put(self, slugs, mode="append", branch="main"):
        rows = {slug: self.one() for slug in slugs}
        self.vectors |= rows
        data = [{"slug": s, "num": int(s[1:]) % 10, "vec": v} for s, v in rows.items()]
        self.graph.load({"Doc": data}, mode=mode, branch=branch)

    def truth(self, query, most, vectors=None):
        known = {s: v for s, v in (vectors or self.vectors).items() if int(s[1:]) % 10 < most}
        matrix = np.array([*known.values()], np.float32).astype(float)
        query = np.asarray(query, np.float32).astype(float)
        sizes = np.linalg.norm(matrix, axis=1) * np.linalg.norm(query)
        far = 1 - (matrix * query).sum(axis=1) / sizes
        order = sorted(zip(far.tolist(), known, strict=True))[:10]
        return {slug: one for one, slug in order}

    def recall(self, *, most=10, vectors=None, **where):
        """How much of the truth is found; every distance that is told must be right."""
        hits = 0
        for _ in range(20):
            query = self.one()
            params = {"v": query, "most": most}
            found = {r["slug"]: r["far"] for r in self.graph.query(NEAR, params=params, **where)}
            exact = self.graph.query(EXACT, params=params, **where).to_pylist()
            truth = self.truth(query, most, vectors)
            assert {row["slug"]: pytest.approx(row["far"]) for row in exact} == truth
            assert len(found) == 10
            assert [*found.values()] == sorted(found.values())
            hits += sum(found.get(slug) == pytest.approx(far) for slug, far in truth.items())
        return hits / 200


def test_an_index_finds_nearly_all_whatever_happens_to_the_rows(tmp_path, quick):
    with Graph.init(str(tmp_path / "g"), SCHEMA, **OPTIONS) as graph:
        docs = Docs(graph)
        docs.put([f"d{number}" for number in range(3000)])
        before, old = graph.commits(limit=1)[0].graph_commit_id, dict(docs.vectors)
        assert docs.recall() == 1.0  # there is no index yet
        assert not graph.ensure_indices().pending_indexes
        told = str(graph.explain(NEAR, params={"v": docs.one(), "most": 10}))
        assert "by index" in told
        assert "by index" not in str(graph.explain(EXACT, params={"v": docs.one(), "most": 10}))
        assert docs.recall() >= 0.95
        assert docs.recall(most=4) >= 0.95
        docs.put([f"d{number}" for number in range(3000, 3100)])
        docs.put([f"d{number}" for number in range(0, 3000, 50)], mode="merge")
        gone = [f"d{number}" for number in range(7, 3000, 100)]
        graph.mutate("query q($s: [String]) { delete Doc where slug in $s }", params={"s": gone})
        docs.vectors = {s: v for s, v in docs.vectors.items() if s not in set(gone)}
        assert docs.recall() >= 0.95
        assert docs.recall(vectors=old, snapshot=before) == 1.0
        graph.create_branch("b", from_branch="main")
        main = dict(docs.vectors)
        docs.put([f"d{number}" for number in range(5000, 5050)], branch="b")
        assert docs.recall(branch="b") >= 0.95
        assert docs.recall(vectors=main) >= 0.95
        docs.vectors = main
        graph.optimize()
        assert docs.recall() >= 0.95


def test_the_length_of_the_query_makes_no_difference(tmp_path, quick):
    with Graph.init(str(tmp_path / "g"), SCHEMA, **OPTIONS) as graph:
        docs = Docs(graph)
        docs.put([f"d{number}" for number in range(3000)])
        graph.ensure_indices()
        query = np.array(docs.one(), np.float32)

        def slugs(vector, source=NEAR):
            params = {"v": [float(one) for one in vector], "most": 10}
            return graph.query(source, params=params).column("slug")

        for size in (2.0**-90, 2.0**120):  # squared, no float of single precision
            assert slugs(query * np.float32(size)) == slugs(query)
        assert slugs(query * 0) == slugs(query * 0, EXACT)  # all are equally far: by id


def test_few_rows_that_satisfy_a_condition_are_all_found(tmp_path, quick):
    with Graph.init(str(tmp_path / "g"), SCHEMA, **OPTIONS) as graph:
        docs = Docs(graph)
        docs.put([f"d{number}" for number in range(3000)])
        graph.ensure_indices()
        assert docs.recall(most=1) >= 0.95


def test_the_wish_for_an_index_comes_and_goes_with_the_schema(tmp_path, quick):
    plain = SCHEMA.replace("(ann=true)", "")
    with Graph.init(str(tmp_path / "g"), plain, **OPTIONS) as graph:
        docs = Docs(graph)
        docs.put([f"d{number}" for number in range(600)])

        def indexes():
            graph.optimize()
            (told,) = graph.health().datasets
            return {one.name for one in told.indexes if one.property == "vec"}

        assert indexes() == set()
        graph.apply_schema(SCHEMA)
        assert indexes() == {"vec_vector"}
        assert docs.recall() >= 0.95
        graph.apply_schema(plain)
        assert indexes() == set()
        assert docs.recall() == 1.0
