"""The second edition of the language, as its page writes it: each example compiles and answers."""

from __future__ import annotations

import datetime as dt
import json

import pytest

from omnigraph import Graph, errors
from omnigraph.compiler.query import format_source, parse_file

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  born: Date?
  seen: DateTime?
  tags: [String]?
  role: String?
  vec: Vector(2)?
  photo: Blob?
}
node Company { name: String @key  city: String? }
edge Knows: Person -> Person { since: Date?  weight: F64? }
edge WorksAt: Person -> Company
edge Like: Person -> Person
"""
PEOPLE = [
    {"name": "ann", "age": 70, "born": "1950-02-28", "tags": ["a", "b", "c"], "role": "admin",
     "seen": "2026-01-31T10:00:00Z"},
    {"name": "bob", "age": 30, "born": "1990-12-31", "tags": []},
    {"name": "cat", "age": 7, "seen": "2026-01-01T00:00:00Z"},
    {"name": "dan"},
]  # fmt: skip
EDGES = [
    ("Knows", "ann", "bob"), ("Knows", "ann", "bob"), ("Knows", "ann", "cat"),
    ("Knows", "bob", "ann"), ("Knows", "cat", "cat"), ("WorksAt", "ann", "acme"),
    ("WorksAt", "bob", "acme"), ("Like", "bob", "cat"),
]  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    graph = Graph.init(str(tmp_path_factory.mktemp("g") / "g.omni"), SCHEMA, durability="process")
    lines = [{"type": "Person", "data": data} for data in PEOPLE]
    lines.append({"type": "Company", "data": {"name": "acme"}})
    lines += [{"edge": kind, "from": a, "to": b, "data": {}} for kind, a, b in EDGES]
    graph.load("\n".join(map(json.dumps, lines)), mode="append")
    return graph


def answer(graph, body, **params):
    declared = ", ".join(
        f"${name}: {'I64' if isinstance(value, int) else 'String'}"
        for name, value in params.items()
    )
    text = f"query q({declared}) {{ {body} }}"
    printed = format_source(text)
    assert parse_file(printed) == parse_file(text)
    found = graph.query(text, params=params).to_pylist()
    assert graph.query(printed, params=params).to_pylist() == found
    return [tuple(row.values()) for row in found]


def of_people(graph, expr, where="", **params):
    found = answer(graph, f"match {{ $p: Person {where} }} return {{ {expr} as x }}", **params)
    return [value for (value,) in found]


EXPRESSIONS = [
    ("$p.tags[0]", ["a", None, None, None]),
    ("$p.tags[-1]", ["c", None, None, None]),
    ("$p.tags[1..3]", [["b", "c"], [], None, None]),
    ("degree($p, knows)", [3, 1, 1, 0]),
    ("degree($p, <knows>)", [4, 3, 2, 0]),
    ("id($p)", ["ann", "bob", "cat", "dan"]),
    ("type($p)", ["Person"] * 4),
    ("exists { $p knows $x  $x.age > 20 }", [True, True, False, False]),
    ("count { $p knows $x }", [2, 1, 1, 0]),
    ("count { $p $w:knows $x }", [3, 1, 1, 0]),
    ("count { $p knows $x  not { $x worksAt $c } }", [1, 0, 1, 0]),
    ("exists { $p knows{1,3} $x  $x.name = \"cat\" }", [True, True, True, False]),
    ("CASE WHEN $p.age >= 65 THEN \"senior\" WHEN $p.age >= 18 THEN \"adult\" ELSE \"minor\" END",
     ["senior", "adult", "minor", "minor"]),
    ("case $p.role when \"admin\" then 1 else 0 end", [1, 0, 0, 0]),
    ("trunc(\"month\", $p.seen) = datetime(\"2026-01-01T00:00:00Z\")", [True, None, True, None]),
    ("$p.seen - datetime(\"2026-01-01T00:00:00Z\")", [2628000.0, None, 0.0, None]),
    ("date($p.seen) + days(7)", [dt.date(2026, 2, 7), None, dt.date(2026, 1, 8), None]),
]  # fmt: skip


@pytest.mark.parametrize(("expr", "wanted"), EXPRESSIONS, ids=lambda one: str(one)[:40])
def test_an_expression_of_the_page_answers(graph, expr, wanted):
    assert of_people(graph, expr) == wanted


CONDITIONS = [
    ("exists { $p knows $x  $x.age > 30 } or $p.age is null", ["bob", "dan"]),
    ("not exists { $p worksAt $c } and $p.age between 0 and 7", ["cat"]),
    ("count { $p knows $x } >= 2", ["ann"]),
    ("$p.name matches \"[a-b].*\" AND $p.name ENDS_WITH \"b\"", ["bob"]),
    ("$p.name like \"_a%\"", ["cat", "dan"]),
    ("exists { $p like $x }", ["bob"]),
    ("$p like $x", ["bob"]),
    ("$p.name in split($q, \",\")", ["ann", "dan"]),
]  # fmt: skip


@pytest.mark.parametrize(("where", "wanted"), CONDITIONS, ids=lambda one: str(one)[:40])
def test_a_condition_of_the_page_finds(graph, where, wanted):
    params = {"q": "dan,ann"} if "$q" in where else {}
    assert of_people(graph, "$p.name", where, **params) == wanted


def test_a_declared_edge_wins_over_an_operator_between_nodes_only(graph):
    assert of_people(graph, "$p.name", "$n like $p.name", n="bob") == ["bob"]
    found = answer(graph, "match { $p: Person $q: Person $p like $q } return { $p, $q }")
    assert found == [("bob", "cat")]


def test_whole_entities_leave_out_what_has_to_be_named(graph):
    found = graph.query('query q() { match { $p: Person { name: "ann" } } return { $p.* } }')
    names = [f"p.{name}" for name in ("name", "age", "born", "seen", "tags", "role")]
    assert found.to_arrow().column_names == names
    mixed = "match { $p: Person $p worksAt $c } return { $c.*, $p.name, $p.vec }"
    assert answer(graph, mixed) == [("acme", None, "ann", None), ("acme", None, "bob", None)]


def test_groups_are_collected_filtered_and_made_of_any_expression(graph):
    text = """match { $p: Person }
        return {
            $p.age >= 18 as grown, collect($p.name) as names, max($p.born) as youngest
            median($p.age) as middle, stddev($p.age) as spread, percentile($p.age, 0.25) as low
        }
        having { grown is not null and count(*) > 0 }"""
    assert answer(graph, text) == [
        (False, ["cat"], None, 7.0, None, 7.0),
        (True, ["ann", "bob"], dt.date(1990, 12, 31), 50.0, 800**0.5, 40.0),
    ]
    text = """match { $p: Person optional { $p knows $f } }
        return { $p.name, collect(distinct $f.name) as f } having { length(f) > 1 }"""
    assert answer(graph, text) == [("ann", ["bob", "cat"])]


def test_what_is_the_same_in_all_rows_makes_no_group(graph):
    nobody = 'match { $p: Person $p.name = "nobody" }'
    assert answer(graph, f"{nobody} return {{ 7, upper($q), count(*) as n }}", q="x") == [
        (7, "X", 0)
    ]


def test_a_case_computes_only_what_it_reaches(graph):
    huge = "case when $p.age > 20 then $p.age else 9223372036854775807 + $p.age end"
    assert of_people(graph, huge, "$p.age > 20") == [70, 30]
    with pytest.raises(errors.InputError, match="does not fit into I64"):
        of_people(graph, huge)


def test_names_may_be_words_of_the_language(graph):
    text = "match { $p: Person } return { $p.age as case, case + 1 as end } order { case } limit 1"
    assert answer(graph, text) == [(None, None)]
    text = "match { $p: Person } return { $p.age as exists $p.role as count } order { exists desc }"
    assert answer(graph, text)[0] == (70, "admin")


def test_explain_names_the_steps_of_blocks_and_groups(graph):
    text = """query q() { match { $p: Person exists { $p knows $x } or $p.age = 1 }
        return { $p.role, count(*) as n } having { n > 0 } }"""
    shown = str(graph.explain(text))
    assert "exists p" in shown
    assert "having" in shown


def test_a_parameter_that_is_left_out_has_its_default(graph):
    text = """query q($n: I32 = 2, $names: [String] = ["ann", "bob", "cat"], $day: Date? = null) {
        match { $p: Person $p.name in $names  $day is null } return { $p.name } limit $n }"""
    assert parse_file(format_source(text)) == parse_file(text)

    def asked(**params):
        return [row["p.name"] for row in graph.query(text, params=params).to_pylist()]

    assert asked() == ["ann", "bob"]
    assert asked(n=1, names=["dan", "cat"]) == ["cat"]
    with pytest.raises(errors.ParameterError, match="null is not accepted"):
        asked(n=None)
    with pytest.raises(errors.TypeCheckError, match=r"`.n` has type I32 but got String"):
        graph.query('query q($n: I32 = "x") { match { $p: Person } return { $p } limit $n }')
