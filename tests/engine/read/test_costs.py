"""What a query reads from storage, as counts: only its columns, only its rows, once."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from omnigraph import Graph

ROWS = 20_000
SCHEMA = """
node Person { name: String @key  age: I32  city: String  note: String? }
edge Knows: Person -> Person { since: I32? }
"""
QUERIES = """
query point($n: String) { match { $p: Person { name: $n } } return { $p.age } }
query filtered() { match { $p: Person  $p.age = 7 } return { $p.name } }
query page() { match { $p: Person } return { $p.city } limit 5 }
query top() { match { $p: Person  $p.age < 50 } return { $p.name } order { $p.age desc } limit 3 }
query grouped() { match { $p: Person } return { $p.city, count($p) as n } }
query two($n: String) { match { $p: Person { name: $n }  $p knows $m  $m knows $q }
  return { $q.name } }
query aged($n: String) { match { $p: Person { name: $n }  $p knows $m  $m knows $q }
  return { $q.age } }
query edge($n: String) { match { $p: Person { name: $n }  $p $w:knows $q } return { $w.since } }
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A graph whose node table is big enough not to be read whole at the first touch."""
    folder = tmp_path_factory.mktemp("costs")
    people = [
        json.dumps(
            {"type": "Person", "data": {"name": f"p{n:05}", "age": n % 90, "city": f"c{n % 7}"}}
        )
        for n in range(ROWS)
    ]
    edges = [
        json.dumps({"edge": "Knows", "from": f"p{n:05}", "to": f"p{(n * 7 + 1) % ROWS:05}"})
        for n in range(2_000)
    ]
    with Graph.init(str(folder / "g.omni"), SCHEMA, durability="process") as graph:
        graph.load("\n".join(people + edges), mode="append")
    return str(folder / "g.omni")


@pytest.fixture
def graph(home):
    with Graph.open(home, durability="process") as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "params", "columns", "rows"),
    [
        ("point", {"n": "p00007"}, ["age", "id"], 1),  # rows come by id
        ("filtered", {}, ["id"], 223),  # the key is the id
        ("page", {}, ["city", "id"], 5),
        ("top", {}, ["age", "id"], 3),
        ("grouped", {}, ["city"], ROWS),
    ],
)
def test_a_cold_query_reads_its_columns_and_its_rows(graph, name, params, columns, rows):
    told = graph.explain(QUERIES, name, params=params)
    assert told.columns_read == {"node:Person": columns}
    assert (told.reads, told.rows_read) == (1, rows)


def test_a_walk_reads_the_ends_of_the_edges_once_and_properties_for_survivors(graph):
    told = graph.explain(QUERIES, "two", params={"n": "p00000"})
    assert told.columns_read == {"edge:Knows": ["dst", "src"], "node:Person": ["id"]}
    assert told.rows_read == ROWS + 2_000
    aged = graph.explain(QUERIES, "aged", params={"n": "p00000"})
    assert aged.columns_read == {"node:Person": ["age"]}
    assert aged.rows_read == 1


def test_a_warm_query_reads_nothing(graph):
    for name in ("p00000", "p00001", "p00002"):
        graph.query(QUERIES, "two", params={"n": name})
    told = graph.explain(QUERIES, "two", params={"n": "p00003"})
    assert (told.reads, told.rows_read) == (0, 0)


def test_after_a_small_commit_a_query_reads_the_difference_only(graph):
    for name in ("p00000", "p00001", "p00002"):
        graph.query(QUERIES, "two", params={"n": name})
        graph.query(QUERIES, "edge", params={"n": name})
    graph.load('{"edge": "Knows", "from": "p00005", "to": "p00006"}', mode="append")
    graph.mutate('query u() { update Person set { age: 1 } where name = "p00009" }')
    told = graph.explain(QUERIES, "two", params={"n": "p00005"})
    assert told.rows_read == 2
    assert told.reads == 2
    assert graph.explain(QUERIES, "two", params={"n": "p00005"}).reads == 0
    found = graph.query(QUERIES, "edge", params={"n": "p00005"}).to_pylist()
    assert len(found) == 2


def test_explain_says_what_was_done_and_with_how_many_rows(graph):
    told = graph.explain(QUERIES, "two", params={"n": "p00000"})
    text = str(told)
    for words in ("scan $p: Person (by id)", "expand $p Knows $m", "1 rows", "storage:"):
        assert words in text
    body = told.to_json()
    assert body["rows"] == 1
    steps = [child["name"] for child in body["children"]]
    assert steps == ["match", "order", "project"]


@pytest.mark.s3
def test_on_an_object_store_a_warm_query_only_asks_whether_there_is_news(s3_root, request_counter):
    lines = [
        f'{{"type": "Person", "data": {{"name": "p{n}", "age": 1, "city": "c"}}}}' for n in "01"
    ]
    lines.append('{"edge": "Knows", "from": "p0", "to": "p1"}')
    walk = 'query q() { match { $p: Person { name: "p0" }  $p knows $q } return { $q.age } }'
    with Graph.init(s3_root.uri, SCHEMA) as graph:
        graph.load("\n".join(lines), mode="append")
        with request_counter.counted() as cold:
            assert graph.query(walk).to_pylist() == [{"q.age": 1}]
        with request_counter.counted() as warm:
            assert graph.query(walk).to_pylist() == [{"q.age": 1}]
    assert warm.count == 1
    assert cold.count == 3  # the same, and each table once


def test_explain_expects_no_more_rows_than_a_walk_can_give(tmp_path):
    many = 30
    names = [f"p{number}" for number in range(many)]
    with Graph.init(tmp_path / "g.omni", "node P { k: String @key }\nedge E: P -> P") as graph:
        ends = [{"from": one, "to": other} for one in names for other in names]
        graph.load({"P": [{"k": name} for name in names], "E": ends}, mode="append")
        walks = "match { $a: P  $a e{1,60} $b  $b e{1,60} $c  $c e $a }"
        plan = graph.explain(f"query q() {{ {walks} return {{ count(*) as n }} }}")
    steps = plan.root.children[0].children
    assert [step.name for step in steps] == ["scan", "expand", "expand", "expand"]
    for before, step in pairwise(steps):
        assert 1 <= step.estimated_rows <= before.rows * (many + many * many)
