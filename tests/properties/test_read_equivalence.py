"""Every form of read query answers as a naive evaluator does, on random small graphs.

The graphs have ids that collide between types, self loops, parallel edges, cycles, nulls and types
without any entity. Each graph is asked cold, and again by a reader that has followed changes.
"""

from __future__ import annotations

import json
import random
import re

import pytest
from naive_reader import Naive
from ways import WAYS, way

from inside import core_of
from omnigraph import Graph
from omnigraph.compiler.query import bind_params, compile_query
from omnigraph.engine.core import OpenMode

SCHEMA = """
node Person { name: String @key  age: I32?  score: F64?  tags: [String]?  role: enum(a, b)? }
node Company { name: String @key  size: I64? }
node Ghost { name: String @key }
edge Knows: Person -> Person { since: I32?  note: String? }
edge WorksAt: Person -> Company { since: I32? }
edge Haunts: Ghost -> Person
"""
IDS = ["x", "y", "z", "v", "w"]  # the same ids in every type

QUERIES = """
query scan() { match { $p: Person } return { $p.name, $p.age } }
query by_key($n: String) { match { $p: Person { name: $n } } return { $p, $p.score } }
query by_id($n: String) { match { $p: Person  $p.id = $n } return { $p.id } }
query any_of($n: [String]) { match { $p: Person  $p.name in $n } return { $p.name } }
query lossless() { match { $p: Person  $p.age > 1.5 } return { $p.name } }
query three_valued() { match { $p: Person  ($p.age > 1 or $p.score < 0.5) and not $p.role = "a" }
  return { $p.name } }
query nulls() { match { $p: Person  $p.age is null } return { $p.name } }
query not_nulls() { match { $p: Person  $p.tags is not null } return { $p.name } }
query member() { match { $p: Person  $p.tags contains "t1" } return { $p.name } }
query inline_member() { match { $p: Person { tags: "t2" } } return { $p.name } }
query out() { match { $p: Person  $p knows $q } return { $p.name, $q.name } }
query back($n: String) { match { $q: Person { name: $n }  $p knows $q } return { $p.name } }
query loop() { match { $p: Person  $p knows $p } return { $p.name } }
query hops() { match { $p: Person  $p knows{1,2} $q } return { $p.name, $q.name } }
query exact() { match { $p: Person  $p knows{2,2} $q } return { $p.name, $q.name } }
query far($n: String) { match { $p: Person { name: $n }  $p knows{2,4} $q } return { $q.name } }
query far_back($n: String) { match { $q: Person { name: $n }  $p knows{2,3} $q }
  return { $p.name } }
query undirected() { match { $p: Person  $p <knows> $q } return { $p.name, $q.name } }
query undirected_hops() { match { $p: Person  $p <knows>{2,3} $q } return { $p.name, $q.name } }
query undirected_back($n: String) { match { $q: Person { name: $n }  $p <knows>{1,2} $q }
  return { $p.name } }
query edge_bound() { match { $p: Person  $p $w:knows $q }
  return { $p.name, $w.since, $q.name, $w.id } }
query edge_ends() { match { $p: Person  $p $w:knows $q } return { $w.src, $w.dst } }
query edge_filter() { match { $p: Person  $p $w:knows $q  $w.since >= 2 }
  return { $p.name, $q.name } }
query edge_undirected() { match { $p: Person  $p $w:<knows> $q }
  return { $p.name, $q.name, $w.id } }
query wildcard() { match { $p: Person  $p knows $_ } return { $p.name } }
query two_types() { match { $p: Person  $p worksAt $c } return { $p.name, $c.name } }
query two_types_hops() { match { $p: Person  $p worksAt{1,3} $c } return { $p.name, $c.name } }
query colleagues() { match { $p: Person  $p worksAt $c  $q worksAt $c  $p != $q }
  return { $p.name, $q.name } }
query triangle() { match { $p: Person  $p knows $q  $q knows $r  $r knows $p }
  return { $p.name, $q.name, $r.name } }
query both_bound() { match { $p: Person  $q: Person  $p knows{1,2} $q  $p.age < $q.age }
  return { $p.name, $q.name } }
query between_edges() { match { $p: Person  $q: Person  $p knows $q  $p $w:knows $q }
  return { $p.name, $w.id } }
query cross() { match { $p: Person  $c: Company } return { $p.name, $c.name } }
query joined() { match { $p: Person  $c: Company  $p.name = $c.name } return { $p.name, $c.size } }
query cross_filter() { match { $p: Person  $c: Company  $p.age < $c.size }
  return { $p.name, $c.name } }
query without() { match { $p: Person  not { $p knows $_ } } return { $p.name } }
query without_back() { match { $p: Person  not { $q knows $p } } return { $p.name } }
query without_filter() { match { $p: Person  not { $p knows $q  $q.age > 1 } } return { $p.name } }
query without_nested() { match { $p: Person  not { $p knows $q  not { $q worksAt $c } } }
  return { $p.name } }
query without_edge() { match { $p: Person  not { $p $w:knows $q  $w.since = 1 } }
  return { $p.name } }
query without_outer() { match { $p: Person  $p knows $q  not { $q knows $p } }
  return { $p.name, $q.name } }
query without_value() { match { $p: Person  not { $p.age > 1 } } return { $p.name } }
query without_hops() { match { $p: Person  not { $p knows{2,2} $x } } return { $p.name } }
query maybe() { match { $p: Person  optional { $p worksAt $c } } return { $p.name, $c.name } }
query maybe_filter() { match { $p: Person  optional { $p knows $q  $q.age > 1 } }
  return { $p.name, $q.name } }
query maybe_twice() { match { $p: Person  optional { $p worksAt $c }  optional { $p knows $q } }
  return { $p.name, $c.name, $q.name } }
query maybe_late() { match { $p: Person  optional { $p worksAt $c }  $c.name is null }
  return { $p.name } }
query empty_type() { match { $g: Ghost } return { $g.name } }
query empty_walk() { match { $p: Person  $g haunts $p } return { $p.name } }
query empty_without() { match { $p: Person  not { $g haunts $p } } return { $p.name } }
query count_all() { match { $p: Person }
  return { count($p) as n, count(*) as m, count($p.age) as a } }
query count_none() { match { $g: Ghost } return { count($g) as n, sum(1) as s } }
query grouped() { match { $p: Person }
  return { $p.role, count($p) as n, sum($p.age) as s, avg($p.age) as m,
    min($p.name) as lo, max($p.score) as hi } }
query degree() { match { $p: Person  $p knows $q }
  return { $p.name, count($q) as n } order { n desc } limit 3 }
query group_two() { match { $p: Person  $p worksAt $c }
  return { $c.name, $p.role, count($p) as n, count(distinct $p.age) as d } order { n desc } }
query group_maybe() { match { $p: Person  optional { $p worksAt $c } }
  return { $c.name, count($c) as n, count($p) as m } }
query ordered() { match { $p: Person } return { $p.name, $p.age } order { $p.age desc } }
query ordered_two() { match { $p: Person  $p knows $q }
  return { $p.name, $q.name } order { $q.age asc, $p.score desc } }
query limited() { match { $p: Person } return { $p.name } order { $p.age } limit 2 offset 1 }
query unordered_limit() { match { $p: Person  $p knows $q } return { $p.name, $q.name } limit 3 }
query distinct_rows() { match { $p: Person  $p knows $q }
  return distinct { $q.role } order { $q.role } }
query calculated() { match { $p: Person }
  return { $p.name, $p.age * 2 + 1 as x, $p.age / 2 as h, $p.age % 2 as r, 0 - $p.age as minus } }
query by_zero() { match { $p: Person } return { $p.name, 1 / ($p.age - 1) as x } }
query null_param($m: String?) { match { $p: Person  $p.name = $m } return { $p.name } }
query null_list($m: [String]?) { match { $p: Person  $p.name in $m } return { $p.name } }
query not_in($n: [String]) { match { $p: Person  not $p.name in $n } return { $p.name } }
query part() { match { $p: Person  $p.name contains "x" or $p.name starts_with "y" } return { $p } }
query part_of() { match { $p: Person  $c: Company  $c.name starts_with $p.name } return { $c, $p } }
query edge_null() { match { $p: Person  $p $w:knows $q  $w.since is null } return { $w.id } }
query edge_group() { match { $p: Person  $p $w:knows $q } return { $w.since, count($w.id) as n } }
query edge_order() {
  match { $p: Person  $p $w:knows $q }
  return { $w.id, $q.age } order { $w.since desc, $q.age } limit 4
}
query edge_maybe() {
  match { $p: Person  optional { $p $w:knows $q  $w.since = 1 } }
  return { $p.name, $w.since, $q.name }
}
query edges_of_one($n: String) { match { $q: Person { name: $n }  $p $w:knows $q }
  return { $p, $w.id } }
query edge_count_back() { match { $q: Person  $p $w:knows $q }
  return { $q.name, count($w.id) as n } }
query count_pairs() { match { $p: Person  $p knows $q } return { count($q) as n } }
query count_undirected() { match { $p: Person  $p <knows> $q } return { $p.name, count($q) as n } }
query count_far() { match { $p: Person  $p knows $q  $q knows $r }
  return { $p.name, count($r) as n } }
query count_other() { match { $p: Person  $p knows $q }
  return { $q.role, count($p) as n, count(*) as m } }
query count_hops() { match { $p: Person  $p knows{1,2} $q } return { $p.name, count($q) as n } }
query count_maybe() { match { $p: Person  optional { $p knows $q } }
  return { $p.name, count($q) as n } }
query count_without() {
  match { $p: Person  $p knows $q  not { $q worksAt $c } } return { $p.name, count($q) as n }
}
query maybe_nested() {
  match { $p: Person  optional { $p knows $q  optional { $q worksAt $c } } }
  return { $p.name, $q.name, $c.name }
}
query maybe_without() {
  match { $p: Person  optional { $p knows $q  not { $q knows $p } } } return { $p.name, $q.name }
}
query maybe_chain() {
  match { $p: Person  optional { $p worksAt $c }  optional { $q worksAt $c } }
  return { $p.name, $q.name }
}
query without_join() { match { $p: Person  not { $c: Company  $c.name = $p.name } }
  return { $p.name } }
query without_two() { match { $p: Person  $c: Company  not { $p worksAt $c } } return { $p, $c } }
query loop_hops() { match { $p: Person  $p knows{1,3} $p } return { $p.name } }
query diamond() {
  match { $p: Person  $p knows $q  $p knows $r  $q knows $s  $r knows $s  $q.id < $r.id }
  return { $p, $q, $r, $s }
}
query groups_by_value() {
  match { $p: Person } return { $p.age, $p.role, min($p.score) as lo, sum($p.age * 2) as s }
  order { s desc, lo }
}
query flags() { match { $p: Person } return { $p.name } order { $p.tags is null, $p.name desc } }
query by_sum() { match { $p: Person } return { $p.name } order { $p.age + $p.score desc } limit 3 }
query some($k: I64) { match { $p: Person }
  return { $p.name } order { $p.name desc } limit $k offset 1 }
query lists() { match { $p: Person } return distinct { $p.tags } }
query distinct_two() {
  match { $p: Person  $p knows{1,2} $q }
  return distinct { $p.role, $q.role } order { $q.role desc } limit 3
}
query count_distinct() { match { $p: Person  $p knows $q } return { count(distinct $q) as n } }
query two_hop() { match { $p: Person { name: "x" }  $p knows $m  $m knows $f } return { $f.name } }
"""


def random_graph(rng):
    """Nodes and edges as the naive reader wants them, and as lines to load."""
    nodes = {
        "Person": [
            {
                "id": one,
                "name": one,
                "age": rng.choice([None, 0, 1, 2, 3]),
                "score": rng.choice([None, 0.25, 0.5, 1.5]),
                "tags": rng.choice([None, [], ["t1"], ["t1", "t2"]]),
                "role": rng.choice([None, "a", "b"]),
            }
            for one in rng.sample(IDS, rng.randint(0, 5))
        ],
        "Company": [
            {"id": one, "name": one, "size": rng.choice([None, 1, 3])}
            for one in rng.sample(IDS, rng.randint(0, 3))
        ],
        "Ghost": [],
    }
    people = [node["id"] for node in nodes["Person"]]
    companies = [node["id"] for node in nodes["Company"]]
    edges = {"Knows": [], "WorksAt": [], "Haunts": []}
    for number in range(rng.randint(0, 9) if people else 0):
        edges["Knows"].append(
            {
                "id": f"k{number}",
                "src": rng.choice(people),
                "dst": rng.choice(people),
                "since": rng.choice([None, 1, 2]),
                "note": None,
            }
        )
    for number in range(rng.randint(0, 4) if people and companies else 0):
        edges["WorksAt"].append(
            {
                "id": f"k{number}",
                "src": rng.choice(people),
                "dst": rng.choice(companies),
                "since": 1,
            }
        )
    return nodes, edges


def lines(nodes, edges):
    made = []
    for kind, rows in nodes.items():
        made += [json.dumps({"type": kind, "data": row}) for row in rows]
    for kind, rows in edges.items():
        for row in rows:
            data = {name: value for name, value in row.items() if name not in ("src", "dst")}
            made.append(
                json.dumps({"edge": kind, "from": row["src"], "to": row["dst"], "data": data})
            )
    return "\n".join(made)


def queries():
    """Every query by name, each as a text of its own."""
    parts = re.split(r"^(?=query )", QUERIES.strip(), flags=re.MULTILINE)
    return {re.match(r"query (\w+)", part)[1]: part for part in parts if part}


def value_of(decl):
    if decl.type.nullable:
        return None
    if decl.name == "k":
        return 2
    return ["x", "y", "nobody"] if decl.type.is_list else "x"


def check(graph, nodes, edges):
    """Ask every query and compare; unordered answers as bags."""
    snapshot = graph.snapshot()
    catalog = core_of(graph).catalog(snapshot)
    for name, text in queries().items():
        compiled = compile_query(text, catalog, name)
        values = {decl.name: value_of(decl) for decl in compiled.params}
        found = graph.query(text, params=values)
        bound = bind_params(compiled.params, values)
        expected = Naive(nodes, edges, bound).run(compiled.plan)
        got = [tuple(row.values()) for row in found.to_pylist()]
        assert found.row_count == len(got)
        if not (compiled.plan.orderings or compiled.plan.limit):
            got, expected = sorted(got, key=repr), sorted(expected, key=repr)
        assert got == expected, name


@pytest.fixture(params=WAYS)
def reading(request, monkeypatch, tmp_path):
    """The settings of one way of reading, and a home of its own for what is kept in files."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with way(request.param):
        yield request.param


@pytest.mark.parametrize("seed", range(6))
def test_every_query_form_answers_as_the_naive_reader(tmp_path, seed, reading):
    rng = random.Random(seed)
    nodes, edges = random_graph(rng)
    graph = Graph.init(str(tmp_path / "g.omni"), SCHEMA, durability="process")
    text = lines(nodes, edges)
    if text:
        graph.load(text, mode="overwrite")
    check(graph, nodes, edges)
    with Graph.open(graph.uri, OpenMode.READ_ONLY) as cold:
        check(cold, nodes, edges)


@pytest.mark.parametrize("seed", range(2))
def test_a_reader_that_follows_changes_answers_like_a_fresh_one(tmp_path, seed, reading):
    rng = random.Random(100 + seed)
    nodes, edges = random_graph(rng)
    graph = Graph.init(str(tmp_path / "g.omni"), SCHEMA, durability="process")
    graph.load(lines(nodes, edges) or json.dumps(PERSON), mode="overwrite")
    if not lines(nodes, edges):
        nodes["Person"].append(PERSON["data"])
    check(graph, nodes, edges)
    for _ in range(5):
        change(rng, graph, nodes, edges)
        if rng.random() < 0.3:
            graph.optimize()  # rows move, what is kept follows by row id
        check(graph, nodes, edges)


PERSON = {
    "type": "Person",
    "data": {"id": "x", "name": "x", "age": 1, "score": None, "tags": None, "role": None},
}


def change(rng, graph, nodes, edges):
    """One random commit, done to the graph and to the naive copy alike."""
    people = [node["id"] for node in nodes["Person"]]
    match rng.choice(["add", "update", "delete node", "delete edge", "connect"]):
        case "update" if people:
            one = rng.choice(people)
            graph.mutate(f'query u() {{ update Person set {{ age: 3 }} where name = "{one}" }}')
            next(node for node in nodes["Person"] if node["id"] == one)["age"] = 3
        case "delete node" if people:
            one = rng.choice(people)
            graph.mutate(f'query d() {{ delete Person where name = "{one}" }}')
            nodes["Person"][:] = [node for node in nodes["Person"] if node["id"] != one]
            for rows in edges.values():
                rows[:] = [edge for edge in rows if one not in ends_of(edge, rows, edges)]
        case "delete edge" if edges["Knows"]:
            one = rng.choice(edges["Knows"])["id"]
            graph.mutate(f'query d() {{ delete Knows where id = "{one}" }}')
            edges["Knows"][:] = [edge for edge in edges["Knows"] if edge["id"] != one]
        case "connect" if people:
            edge = {
                "id": f"n{rng.random()}",
                "src": rng.choice(people),
                "dst": rng.choice(people),
                "since": 2,
                "note": None,
            }
            graph.load(lines({}, {"Knows": [edge]}), mode="append")
            edges["Knows"].append(edge)
        case _:
            free = [one for one in [*IDS, "q", "r", "s"] if one not in people]
            node = {**PERSON["data"], "id": free[0], "name": free[0], "age": rng.choice([1, 2])}
            graph.load(lines({"Person": [node]}, {}), mode="append")
            nodes["Person"].append(node)


def ends_of(edge, rows, edges):
    """The person ids at the ends of an edge: a company may have the same id as a person."""
    return (edge["src"],) if rows is edges["WorksAt"] else (edge["src"], edge["dst"])
