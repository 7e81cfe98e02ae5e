"""Values of a mutation may be computed: from the row as it was, from parameters, from the clock."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from omnigraph import Graph, errors

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  tags: [String]?
  seen: DateTime?
  born: Date?
  bio: String?
  active: Bool
}
edge Knows: Person -> Person { weight: F64? }
"""
ROWS = [
    {"type": "Person", "data": {"name": "ann", "age": 30, "tags": ["a"], "active": True}},
    {"type": "Person", "data": {"name": "Bob", "age": 2147483647, "active": False}},
    {"type": "Person", "data": {"name": "cat", "bio": "Éa", "born": "2000-02-29", "active": True}},
    {"edge": "Knows", "from": "ann", "to": "Bob", "data": {"weight": 0.5}},
]


@pytest.fixture
def graph(tmp_path):
    graph = Graph.init(str(tmp_path / "g.omni"), SCHEMA, durability="process")
    graph.load("\n".join(map(json.dumps, ROWS)), mode="append")
    return graph


def people(graph, *columns):
    shown = ", ".join(f"$p.{name}" for name in columns)
    found = graph.query(f"query q() {{ match {{ $p: Person }} return {{ $p.name, {shown} }} }}")
    return {row["p.name"]: tuple(row[f"p.{name}"] for name in columns) for row in found.to_pylist()}


def changed(graph, text, **params):
    declared = ", ".join(f"${name}: String" for name in params)
    return graph.mutate(f"query m({declared}) {{ {text} }}", params=params)


def test_a_row_is_changed_from_what_it_was(graph):
    text = 'update Person set { age: age + 1, tags: coalesce(tags, []) + ["vip"] } where name = $n'
    assert changed(graph, text, n="ann").affected_nodes == 1
    assert people(graph, "age", "tags")["ann"] == (31, ["a", "vip"])


def test_all_assignments_of_a_statement_see_the_old_row(graph):
    changed(graph, 'update Person set { age: length(bio), bio: to_string(age) } where name = "cat"')
    assert people(graph, "age", "bio")["cat"] == (2, None)


def test_a_later_statement_sees_what_an_earlier_one_did(graph):
    one = 'update Person set { age: age * 2 } where name = "ann"'
    changed(graph, f"{one} {one} insert Person {{ name: upper($n), age: 1 + 1, active: true }} "
                   'update Person set { age: age + 1 } where name = "EVE"', n="eve")  # fmt: skip
    assert people(graph, "age")["ann"] == (120,)
    assert people(graph, "age")["EVE"] == (3,)


def test_every_operator_and_function_may_stand_in_where(graph):
    text = """update Person set { active: not active, bio: name + "!" }
        where lower(name) like "b%" or bio matches ".a" or born between date("1999-01-01") and
        date("2000-12-31")"""
    assert changed(graph, text).affected_nodes == 2
    assert people(graph, "active", "bio") == {
        "ann": (True, None), "Bob": (True, "Bob!"), "cat": (False, "cat!"),
    }  # fmt: skip


def test_days_and_moments_are_computed(graph):
    text = """update Person
        set { born: born + days(1), seen: datetime(born) - minutes(1) } where born is not null"""
    changed(graph, text)
    moment = dt.datetime(2000, 2, 28, 23, 59, tzinfo=dt.UTC)
    assert people(graph, "born", "seen")["cat"] == (dt.date(2000, 3, 1), moment)


def test_an_edge_is_changed_from_what_it_was(graph):
    text = "update Knows set { weight: weight * 3 + length(to) } where from = lower($n)"
    assert changed(graph, text, n="ANN").affected_edges == 1
    found = graph.query("query q() { match { $p: Person $p $w:knows $q } return { $w.weight } }")
    assert found.to_pylist() == [{"w.weight": 4.5}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("update Person set { age: age + 1 } where age is not null", "outside the Int32 range"),
        ("update Person set { age: age / 4 } where age = 30", "got 7.5"),
        ("update Person set { active: bio = null } where true = true", "null"),
        ("update Person set { active: age > 3 } where name = name", "active"),
        ("update Person set { age: nme } where active", "has no property `nme`"),
        ("update Person set { age: bio } where active", "has type I32 but the value is String"),
        ('insert Person { name: "x", active: true, age: age + 1 }', "neither a value"),
        ("update Person set { age: count(*) } where active", "unknown function `count`"),
        ("update Person set { age: degree(name) } where active", "unknown function `degree`"),
        ("update Person set { seen: now() + days(99999999) } where active", "does not fit into"),
    ],
)
def test_what_does_not_fit_changes_nothing(graph, text, message):
    before = people(graph, "age", "active"), graph.snapshot().graph_commit_id
    with pytest.raises(errors.OmnigraphError, match=None) as caught:
        changed(graph, text)
    assert message in str(caught.value)
    assert (people(graph, "age", "active"), graph.snapshot().graph_commit_id) == before
