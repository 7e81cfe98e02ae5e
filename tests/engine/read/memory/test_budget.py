"""What is held is what the formula says, and a small budget is kept to."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from omnigraph import Graph
from omnigraph.engine.read.match import candidates
from omnigraph.engine.read.memory import cache, files, frame

MANY = (
    "node N { name: String @key  age: I32  city: String  score: F64? }\nedge E: N -> N { w: I32 }"
)
NODES, EDGES_EACH = 3_000, 3


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    uri = str(tmp_path_factory.mktemp("many") / "g.omni")
    names = [f"n{number:011}" for number in range(NODES)]
    numbers = np.arange(NODES * EDGES_EACH)
    people = pa.table(
        {
            "name": names,
            "age": pa.array(np.arange(NODES) % 90, pa.int32()),
            "city": [f"c{number % 50:03}" for number in range(NODES)],
            "score": [None if number % 7 == 0 else number / 2 for number in range(NODES)],
        }
    )
    edges = pa.table(
        {
            "from": [names[number % NODES] for number in numbers],
            "to": [names[(number * 7 + 1) % NODES] for number in numbers],
            "w": pa.array(numbers % 40, pa.int32()),
        }
    )
    with Graph.init(uri, MANY, durability="process") as graph:
        graph.load({"N": people, "E": edges}, mode="append")
    return uri


def test_the_documented_bytes_for_a_node_and_an_edge_are_true(many, monkeypatch):
    monkeypatch.setattr(files, "TOPOLOGY_FILE_EDGES_MIN", 1 << 60)
    with Graph.open(many) as graph:
        caches, entries = graph._reader._caches, graph._core.snapshot("main", None).entries
        nodes = caches.frame(entries["node:N"])
        steps = {}

        def added(name, work):
            before = nodes.nbytes
            work()
            steps[name] = (nodes.nbytes - before) / NODES

        added("id", lambda: nodes.column("id"))
        added("id table", lambda: nodes.lookup_all(nodes.column("id").whole()))
        added("I32", lambda: nodes.column("age"))
        added("text", lambda: nodes.column("city"))
        added("F64 with nulls", lambda: nodes.column("score"))
        added("codes", lambda: nodes.coded("city"))
        topology = caches.topology(entries["edge:E"], nodes, nodes)
        assert 12.3 <= steps.pop("id table") <= 24.7
        expected = {"id": 0, "I32": 4, "text": 4 + 4, "F64 with nulls": 8 + 1 / 8}
        expected["codes"] = 1 + 16 * 50 / NODES  # and a place and a size for each of 50 cities
        assert steps == pytest.approx(expected, abs=0.2)
        assert nodes.column("id").nbytes / NODES == pytest.approx(12 + 4, abs=0.1)
        for side in ("out", "in"):
            topology.bulk.rows(side)
        assert topology.nbytes == pytest.approx(24 * NODES * EDGES_EACH + 8 * NODES, rel=0.01)
        edges = caches.frame(entries["edge:E"])
        assert edges.nbytes == 0
        edges.column("w")
        assert edges.nbytes == pytest.approx(4 * NODES * EDGES_EACH, rel=0.01)


STREAMED = {
    "match { $n: N } return { $n.city, count(*) as n, avg($n.score) as a }": ["city", "score"],
    "match { $n: N } return distinct { $n.age }": ["age"],
    "match { $n: N  $n.age > 30 } return { count(distinct $n.city) as n }": ["city"],
    "match { $n: N } return { sum($n.age) as s, max($n.score) as m }": ["age", "score"],
}
OTHERS = (
    "match { $n: N  $n.age > 80 } return { $n.name, $n.score } order { $n.score desc } limit 3",
    "match { $a: N  $a $e:e $b  $e.w > 30 } return { count(*) as n }",
    "match { $a: N  $a e $b } return { $a.city, count($b) as n }",
    'match { $a: N { name: "n00000000007" }  $a e{1,3} $b } return { $b.name }',
)


def test_with_a_small_budget_tables_are_streamed_and_explain_says_so(many, monkeypatch):
    budget = 10_000  # less than any column of nodes takes
    for module in (cache, frame, candidates):
        monkeypatch.setattr(module, "SMALL_TABLE_ROWS", 0)
    with Graph.open(many) as graph, Graph.open(many, cache_bytes=budget) as small:
        kept = small._reader._caches._kept
        for question in [*STREAMED, *OTHERS]:
            text = f"query q() {{ {question} }}"
            for _ in range(4):  # however often it is asked
                assert small.query(text).to_pylist() == graph.query(text).to_pylist()
                assert kept.held_bytes() <= budget
        for question, columns in STREAMED.items():
            told = small.explain(f"query q() {{ {question} }}")
            assert "read $n: N (streamed)" in str(told)
            assert told.columns_read == {"node:N": columns}
            assert kept.held_bytes() <= budget
