"""Vectors as small numbers: the bounds hold, and `nearest` gives what whole vectors give."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph import Graph
from omnigraph.engine.read import stages
from omnigraph.engine.read.search import fusion, search
from omnigraph.engine.read.search.coded import (
    KIND,
    Closeness,
    Coded,
    CodedPart,
    closeness_of,
    unit_of,
)
from omnigraph.engine.read.search.vectors import cosine_distances

SCHEMA = """
node Doc { slug: String @key  num: I32  vec: Vector(6)? @index }
"""
NEAR = """
query near($v: Vector(6), $k: I32, $most: I32) {
  match { $d: Doc  $d.num < $most }
  return { $d.slug as slug, nearest($d.vec, $v) as far }
  order { far }
  limit $k
}
"""
ODD = [0.0, -0.0, 1.0, -1.0, 1e-30, 1e30, 3e38, 1e-44, 0.5, 127.0]


def column(rows, width):
    flat = pa.array([one for row in rows for one in (row or [0.0] * width)], pa.float32())
    mask = pa.array([row is None for row in rows])
    return pa.FixedSizeListArray.from_arrays(flat, width, mask=mask)


def cosines(rows, query):
    """By numpy alone, in double precision."""
    found = []
    for row in rows:
        if row is None:
            found.append(-np.inf)
            continue
        vector, asked = np.asarray(row, np.float32).astype(float), np.asarray(query, float)
        size = np.sqrt((vector**2).sum()) * np.sqrt((asked**2).sum())
        found.append(float(vector @ asked) / size if size > 0 else 0.0)
    return np.array(found)


numbers = st.one_of(st.sampled_from(ODD), st.floats(-10, 10, width=32))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), width=st.integers(1, 9))
def test_no_cosine_is_outside_its_bounds(data, width):
    vector = st.lists(numbers, min_size=width, max_size=width)
    rows = data.draw(st.lists(st.one_of(st.none(), vector), min_size=1, max_size=30))
    query = np.asarray(data.draw(vector), np.float64)
    at = np.array(data.draw(st.permutations(range(len(rows)))), np.int64)
    shuffled = column([rows[one] for one in at], width)
    found = closeness_of([CodedPart.placed(Coded.of(shuffled), at)], len(rows), query, lambda: None)
    exact = cosines(rows, query)
    there = exact > -np.inf
    assert (found.close[~there] == -np.inf).all()
    assert (np.abs(found.close[there] - exact[there]) <= found.doubts[there]).all()


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.sampled_from([-np.inf, 0.0, 0.1, 0.1, 0.2, 0.9]), min_size=1, max_size=90),
    others=st.sampled_from([0, 1_000, 5_000]),
    wanted=st.integers(1, 12),
)
def test_those_that_may_be_first_hold_those_that_are(values, others, wanted):
    chance = np.random.default_rng(len(values))
    close = np.array(values + [-np.inf] * others, np.float32)
    chance.shuffle(close)
    found = Closeness(close, np.full(len(close), 0.05, np.float32)).may_be_first(wanted)
    told = np.flatnonzero(close > -np.inf)
    if found is None:
        assert len(told) < wanted
        return
    first = set(told[np.argsort(-close[told], kind="stable")][:wanted].tolist())
    assert first <= set(found.tolist())


def test_a_vector_of_zeros_is_known_and_a_missing_one_is_none():
    coded = Coded.of(column([[0.0, 0.0], None, [3.0, 4.0]], 2))
    assert coded.doubts[0] == 0
    assert np.isnan(coded.doubts[1])
    assert 0 < coded.doubts[2] < 0.01
    found = closeness_of([CodedPart(coded, 0)], 3, np.array([3.0, 4.0]), lambda: None)
    assert found.close[0] == 0.0
    assert found.close[1] == -np.inf
    assert found.close[2] == pytest.approx(1.0, abs=0.01)
    assert unit_of(np.zeros(2)).tolist() == [0.0, 0.0]


# --- in a graph -----------------------------------------------------------------------------------


class World:
    """A graph of vectors and what it should hold, told by numpy."""

    def __init__(self, graph, seed):
        self.graph, self.rng = graph, np.random.default_rng(seed)
        self.rows = {}
        self.made = 0

    def vector(self):
        kind = self.rng.integers(0, 12)
        if kind == 0:
            return None
        if kind == 1:
            return [0.0] * 6
        # Few different values, so that many are equally far.
        return [float(one) for one in self.rng.integers(-2, 3, 6)]

    def add(self, count, branch="main"):
        rows = {f"d{self.made + one:05}": (one % 10, self.vector()) for one in range(count)}
        self.made += count
        self.rows |= rows
        data = [{"slug": s, "num": n, "vec": v} for s, (n, v) in rows.items()]
        self.graph.load({"Doc": data}, mode="append", branch=branch)

    def change(self, branch="main"):
        slugs = self.rng.choice(sorted(self.rows), 7, replace=False).tolist()
        for slug in slugs[:4]:
            self.rows[slug] = (self.rows[slug][0], self.vector())
        data = [{"slug": s, "num": self.rows[s][0], "vec": self.rows[s][1]} for s in slugs[:4]]
        self.graph.load({"Doc": data}, mode="merge", branch=branch)
        for slug in slugs[4:]:
            del self.rows[slug]
            self.graph.mutate(
                "query q($s: String) { delete Doc where slug = $s }",
                params={"s": slug},
                branch=branch,
            )

    def expected(self, rows, query, k, most):
        told = {s: v for s, (n, v) in rows.items() if n < most and v is not None}
        far = cosine_distances(column(list(told.values()), 6), np.asarray(query, float))
        order = sorted(zip(far.tolist(), told, strict=True))
        return [slug for _, slug in order[:k]]

    def check(self, rows=None, **where):
        rows = self.rows if rows is None else rows
        for _ in range(3):
            query = [float(one) for one in self.rng.integers(-2, 3, 6)]
            k, most = int(self.rng.integers(1, 12)), int(self.rng.choice([3, 7, 10]))
            params = {"v": query, "k": k, "most": most}
            found = [row["slug"] for row in self.graph.query(NEAR, params=params, **where)]
            assert found == self.expected(rows, query, k, most)


def store_codes(graph, *, branch="main", fragments=slice(None)):
    """Leave the derived files of some fragments, as upkeep does."""
    core = graph._core
    table = core.table(core.head(branch), "node:Doc")
    for number, file in list(table.column_files("vec").items())[fragments]:
        first = 0
        for values in table.stored_values(number, "vec", bytes_max=2000):  # of eighty rows
            rows = (first, first + len(values))
            table.put_derived(file, KIND, rows, Coded.of(values).sections(), {})
            first += len(values)


@pytest.fixture
def quick(monkeypatch):
    """Small tables go the way of big ones."""
    monkeypatch.setattr(search, "NEAR_ROWS_MIN", 8)
    monkeypatch.setattr(search, "WHOLE_NUMBERS_MAX", 0)


@pytest.mark.parametrize("stored", ["none", "some", "all"])
@pytest.mark.parametrize("cache_bytes", [None, 0])
def test_nearest_is_the_same_whatever_is_stored(tmp_path, quick, stored, cache_bytes):
    uri = str(tmp_path / "g")
    options = {"durability": "process", "maintenance": None, "cache_bytes": cache_bytes}
    fragments = {"none": slice(0, 0), "some": slice(1, None), "all": slice(None)}[stored]
    with Graph.init(uri, SCHEMA, **options) as graph:
        world = World(graph, seed=len(stored))
        for _ in range(3):
            world.add(90)
        world.check()
        store_codes(graph, fragments=fragments)
        old, before = dict(world.rows), graph.commits(limit=1)[0].graph_commit_id
        world.check()
        world.change()
        world.check()
        graph.create_branch("b", from_branch="main")
        main = dict(world.rows)
        world.change(branch="b")
        world.add(40, branch="b")
        store_codes(graph, branch="b", fragments=fragments)
        world.check(branch="b")
        world.check(main)
        world.check(old, snapshot=before)
    with Graph.open(uri, **options) as world.graph:
        world.check(branch="b")
        world.check(main)
        world.check(old, snapshot=before)
        world.rows = main
        world.graph.optimize()
        world.check()
        store_codes(world.graph, fragments=fragments)
        world.check()


@pytest.mark.parametrize(
    "rank", ["nearest($d.vec, $v)", 'rrf(nearest($d.vec, $v), bm25($d.slug, "d00007"))']
)
def test_the_worst_come_first_where_the_order_says_so(tmp_path, quick, monkeypatch, rank):
    monkeypatch.setattr(fusion, "FUSED_ROWS_MIN", 8)
    monkeypatch.setattr(stages, "FUSED_ROWS_MIN", 8)
    with Graph.init(str(tmp_path / "g"), SCHEMA, durability="process") as graph:
        World(graph, seed=3).add(90)
        for way in ("asc", "desc"):
            source = f"""
            query worst($v: Vector(6)) {{
              match {{ $d: Doc }} return {{ $d.slug as slug, {rank} as score }}
              order {{ score {way} }} """
            params = {"v": [1.0, 0.5, 0.0, 2.0, 0.1, 0.3]}
            every, few = (
                graph.query(source + limit, params=params).column("slug")
                for limit in ("limit 90 }", "limit 5 offset 2 }")
            )
            assert few == every[2:7]


def test_a_damaged_file_costs_time_only(tmp_path, quick):
    uri = str(tmp_path / "g")
    with Graph.init(uri, SCHEMA, durability="process", maintenance=None) as graph:
        world = World(graph, seed=3)
        world.add(300)
        store_codes(graph)
    (file, *_) = (tmp_path / "g").rglob(f"*.{KIND}.*")
    body = bytearray(file.read_bytes())
    body[200] ^= 0xFF
    file.write_bytes(bytes(body))
    with Graph.open(uri, durability="process", maintenance=None) as world.graph:
        world.check()


def test_a_new_process_reads_no_vectors_but_the_last_few(tmp_path, quick):
    uri = str(tmp_path / "g")
    with Graph.init(uri, SCHEMA, durability="process", maintenance=None) as graph:
        World(graph, seed=3).add(3000)
        store_codes(graph)
    with Graph.open(uri, durability="process", maintenance=None) as graph:
        params = {"v": [1.0, 0.5, 0.0, 2.0, 0.1, 0.3], "k": 5}
        told = graph.explain(
            NEAR.replace("$d.num < $most", "").replace(", $most: I32", ""), params=params
        )
        assert told.rows_read < 3100  # every id, and some vectors
        assert "by numbers" in str(told)
