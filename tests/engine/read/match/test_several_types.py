"""Walks along edges of several types, variables of several types, and paths."""

from __future__ import annotations

import json
import math

import pytest

from omnigraph import Graph
from omnigraph.engine.read.context import ReadLimits
from omnigraph.errors import InputError, LimitExceededError, TypeCheckError

SCHEMA = """
node Person { name: String @key  age: I32?  city: String?  code: I32? }
node Company { name: String @key  city: String?  code: String? }
node Far { name: String @key }
edge Knows: Person -> Person { since: I32?  weight: F64? }
edge Likes: Person -> Person { since: I32? }
edge WorksAt: Person -> Company
edge Owns: Company -> Company
edge Orbits: Far -> Far
"""


def lines():
    for name in "abcdef":
        yield {"type": "Person", "data": {"name": name, "age": ord(name)}}
    for name in "xya":  # a person is called a too
        yield {"type": "Company", "data": {"name": name, "city": f"city of {name}"}}
    yield {"type": "Far", "data": {"name": "z"}}
    for number, (a, b) in enumerate(["ab", "bc", "cd", "ae", "ed", "ff", "ab"]):
        data = {"id": f"k{number}", "weight": float(number)}
        yield {"edge": "Knows", "from": a, "to": b, "data": data}
    for a, b in ["ab", "ac"]:
        yield {"edge": "Likes", "from": a, "to": b, "data": {"id": f"l{b}", "since": 1}}
    for a, b in ["ax", "bx", "cy", "da"]:
        yield {"edge": "WorksAt", "from": a, "to": b, "data": {"id": f"w{a}"}}
    yield {"edge": "Owns", "from": "x", "to": "y", "data": {"id": "o"}}
    yield {"edge": "Orbits", "from": "z", "to": "z"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    made = Graph.init(str(tmp_path_factory.mktemp("several") / "g.omni"), SCHEMA)
    made.load("\n".join(map(json.dumps, lines())), mode="overwrite")
    return made


A = '$p: Person { name: "a" }'
ANSWERS = [
    (f"{A} $p knows|likes $b", "$b", ["b", "c", "e"]),
    (f"{A} $p $w:knows|likes $b", "$b, type($w) as t, $w.since", [
        ("b", "Knows", None), ("b", "Knows", None), ("b", "Likes", 1), ("c", "Likes", 1),
        ("e", "Knows", None),
    ]),
    (f"{A} $p any $b", "$b, type($b) as t, $b.city, $b.age", [
        ("b", "Person", None, 98), ("c", "Person", None, 99), ("e", "Person", None, 101),
        ("x", "Company", "city of x", None),
    ]),
    (f"{A} $p ANY $b $b.age > 98", "$b", ["c", "e"]),
    (f"{A} $p any $b $b.city is null $b.id != \"c\"", "$b", ["b", "e"]),
    (f"{A} $p any $b $b worksAt $c", "$b, $c", [("b", "x"), ("c", "y")]),
    (f"{A} $p any{{2,2}} $b", "$b, type($b) as t", [("d", "Person"), ("y", "Company")]),
    ('$c: Company { name: "x" } $c <knows|worksAt>{1,2} $b', "$b, type($b) as t", [
        ("a", "Person"), ("b", "Person"), ("c", "Person"), ("e", "Person"),
    ]),
    ('$c: Company { name: "x" } $b any $c', "$b, type($b) as t", [
        ("a", "Person"), ("b", "Person"),
    ]),
    ('$c: Company { name: "y" } $b $w:any $c', "$b, $w.src, $w.dst, $w.id", [
        ("c", "c", "y", "wc"), ("x", "x", "y", "o"),
    ]),
    ("$p: Person $p any $b", "type($b) as t, count(*) as n, count(distinct $b) as d", [
        ("Company", 4, 3), ("Person", 7, 5),
    ]),
    ("$b: Person $b <any>{1,} $x $b.name = \"d\"",
     "count($x) as n, count(distinct $x.id) as m", [(7, 6)]),
    ("$p: Person not { $p any $b  $b.city is not null }", "$p", ["e", "f"]),
    ("$p: Person exists { $p worksAt|likes $x }", "$p, count { $p any $x } as n", [
        ("a", 4), ("b", 2), ("c", 2), ("d", 1),
    ]),
    ("$p: Person optional { $p worksAt|likes $x }", "$p, type($x) as t, $x", [
        ("a", "Person", "b"), ("a", "Person", "c"), ("a", "Company", "x"), ("b", "Company", "x"),
        ("c", "Company", "y"), ("d", "Company", "a"), ("e", None, None), ("f", None, None),
    ]),
    (f"{A} $p any $b", "$b, degree($b, worksAt) as d, degree($b, <worksAt>) as e", [
        ("b", 1, 1), ("c", 1, 1), ("e", 0, 0), ("x", 0, 2),
    ]),
    (f"{A} $p any $b", "$b, degree($b, <knows>) as d", [("b", 3), ("c", 2), ("e", 2), ("x", 0)]),
    (f"{A} $p knows{{0,1}} $b", "$b", ["a", "b", "e"]),
    (f"{A} $p any $x  $x knows{{0,1}} $y", "$x, $y, type($y) as t", [
        ("b", "b", "Person"), ("b", "c", "Person"), ("c", "c", "Person"), ("c", "d", "Person"),
        ("e", "d", "Person"), ("e", "e", "Person"), ("x", "x", "Company"),
    ]),
    (f"{A} $p any $x  $x $way:orbits{{0,}} $y", "$y, length($way) as n", [
        ("b", 0), ("c", 0), ("e", 0), ("x", 0),
    ]),
    ("$p: Person $p any $x  $x knows{0,2} $y  $q worksAt $x", "$x, $y", [
        ("x", "x"), ("x", "x"), ("x", "x"), ("x", "x"), ("y", "y"), ("a", "a"),
    ]),
    ("$c: Company $c <worksAt|orbits> $b", "$c, $b", [
        ("x", "a"), ("x", "b"), ("y", "c"), ("a", "d"),
    ]),
    (f"{A} $p knows{{2,}} $b", "$b", ["c", "d"]),
    (f"{A} $p worksAt{{0,1}} $b", "$b, type($b) as t", [("a", "Person"), ("x", "Company")]),
    (f"{A} $p $way:knows{{1,4}} $b", "$b, length($way) as n, nodes($way) as v, edges($way) as e", [
        ("b", 1, ["a", "b"], ["k0"]), ("c", 2, ["a", "b", "c"], ["k0", "k1"]),
        ("d", 2, ["a", "e", "d"], ["k3", "k4"]), ("e", 1, ["a", "e"], ["k3"]),
    ]),
    ('$p: Person { name: "f" } $p $way:knows{1,4} $b', "$b, edges($way) as e", [("f", ["k5"])]),
    ('$b: Person { name: "d" } $p $way:knows{2,3} $b $p: Person', "$p, nodes($way) as v", [
        ("a", ["a", "e", "d"]), ("b", ["b", "c", "d"]),
    ]),
    (f"{A} optional {{ $p $way:knows{{3,3}} $b }}", "$b, length($way) as n", [(None, None)]),
    (f"{A} $b: Person $b.name in [\"a\", \"d\", \"f\"]",
     "$b, nodes(shortest($p, $b, knows)) as v, nodes(shortest($p, $b, knows, weight)) as w", [
        ("a", ["a"], ["a"]), ("d", ["a", "e", "d"], ["a", "b", "c", "d"]), ("f", None, None),
    ]),
    (f"{A} $c: Company", "$c, edges(shortest($p, $c, any)) as e", [
        ("a", ["lc", "k2", "wd"]), ("x", ["wa"]), ("y", ["lc", "wc"]),
    ]),
    (f"{A} $c: Company length(shortest($p, $c, any)) > 1", "$c", ["a", "y"]),
    (f"{A} $b: Person shortest($p, $b, <knows>) is null", "$b", ["f"]),
    (f"{A} $p $way:any{{1,3}} $b", "length($way) as n, count($b) as m", [(1, 4), (2, 2), (3, 1)]),
]  # fmt: skip


@pytest.mark.parametrize(("clauses", "shown", "rows"), ANSWERS)
def test_the_answer_is_what_the_graph_says(graph, clauses, shown, rows):
    found = graph.query(f"query q() {{ match {{ {clauses} }} return {{ {shown} }} }}")
    given = [tuple(row.values()) for row in found.to_pylist()]
    assert given == [row if isinstance(row, tuple) else (row,) for row in rows]


def test_a_property_whose_types_clash_is_refused(graph):
    with pytest.raises(TypeCheckError, match="String of Company, I32 of Person"):
        graph.query(f"query q() {{ match {{ {A} $p any $b }} return {{ $b.code }} }}")


def test_a_path_without_an_end_of_its_own_is_refused_once_however_deep_it_stands(graph):
    inner = "optional { $p $way:knows{1,3} $p }"
    with pytest.raises(TypeCheckError, match="path binding `\\$way` needs an end") as caught:
        graph.query(
            f"query q() {{ match {{ {A} optional {{ $p knows $b {inner} }} }} return {{ $p }} }}"
        )
    assert str(caught.value).count("needs an end") == 1


def test_only_edge_types_that_can_fit_are_looked_at(graph):
    text = f"query q() {{ match {{ {A} $p any{{1,}} $b }} return {{ $b }} }}"
    described = graph.query(text, explain=True).explanation
    assert "Orbits" not in str(described)
    assert not [table for table in described.columns_read if "Orbits" in table or "Far" in table]


def test_a_declared_edge_wins_over_the_word(tmp_path):
    schema = "node N { k: String @key }\nedge Any: N -> N\nedge Other: N -> N"
    graph = Graph.init(str(tmp_path / "g.omni"), schema)
    rows = [{"type": "N", "data": {"k": name}} for name in "ab"]
    graph.load(
        "\n".join(map(json.dumps, [*rows, {"edge": "Other", "from": "a", "to": "b"}])),
        mode="append",
    )
    assert not graph.query("query q() { match { $a: N $a any $b } return { $b } }").row_count
    assert graph.query("query q() { match { $a: N $a any|other $b } return { $b } }").row_count == 1


@pytest.mark.parametrize("weight", [-1.0, math.nan])
def test_a_weight_that_is_no_length_is_an_error_that_names_the_edge(tmp_path, weight):
    schema = "node N { k: String @key }\nedge E: N -> N { w: F64? }"
    graph = Graph.init(str(tmp_path / "g.omni"), schema)
    rows = [{"type": "N", "data": {"k": name}} for name in "ab"]
    shown = "NaN" if math.isnan(weight) else weight
    rows.append({"edge": "E", "from": "a", "to": "b", "data": {"id": "e1", "w": shown}})
    graph.load("\n".join(map(json.dumps, rows)), mode="append")
    with pytest.raises(InputError, match="'e1'"):
        graph.query(
            "query q() { match { $a: N $b: N } return { length(shortest($a, $b, e, w)) as n } }"
        )


@pytest.mark.parametrize(
    "text",
    [
        "match { $p: Person $p <any>{1,} $b } return { $b }",
        "match { $p: Person $b: Person } return { nodes(shortest($p, $b, <any>)) as way }",
    ],
)
def test_walks_without_an_end_keep_to_the_memory_limit(graph, text):
    with pytest.raises(LimitExceededError):
        graph.query(f"query q() {{ {text} }}", limits=ReadLimits(memory_bytes=600))


# Fewer companies than people, so that a position of one table cannot be one of the other's.
BETWEEN = """
node Person { name: String @key }
node Company { name: String @key }
edge WorksAt: Person -> Company { weight: F64? }
edge Owns: Company -> Company
edge Knows: Person -> Person { weight: F64? }
"""
ONE_EDGE_BOTH_WAYS = [
    ("$a: Person  $a <worksAt|owns> $b", "$a, $b", [("p0", "c1"), ("p4", "c0")]),
    ("$a: Person  $a <worksAt|owns>{1,1} $b", "$a, $b", [("p0", "c1"), ("p4", "c0")]),
    (
        "$a: Person  $a $w:<worksAt|owns> $b",
        "$a, $w.dst, $b",
        [("p0", "c1", "c1"), ("p4", "c0", "c0")],
    ),
    ("$a: Person  $a $p:<worksAt|owns>{1,1} $b", "nodes($p)", [(["p0", "c1"],), (["p4", "c0"],)]),
    ("$a: Person  $b: Company  $a <any> $b", "$a, $b", [("p0", "c1"), ("p4", "c0")]),
    ("$b: Company  $b <any> $a  $a: Person", "$a, $b", [("p0", "c1"), ("p4", "c0")]),
    ("$a: Person  not { $a <worksAt|owns> $b }", "$a", [("p1",), ("p2",), ("p3",)]),
    ("$a: Person  $a <worksAt|owns> $b", "count(*)", [(2,)]),
    ("$a: Person  $a <worksAt|owns> $b", "$b, count($a) as n", [("c0", 1), ("c1", 1)]),
    ("$a: Person", "count { $a <worksAt|owns> $b } as n", [(1,), (0,), (0,), (0,), (1,)]),
    ('$a: Person { name: "p4" }  optional { $a <worksAt|owns> $b }', "$b", [("c0",)]),
]


@pytest.mark.parametrize(("clauses", "shown", "rows"), ONE_EDGE_BOTH_WAYS)
def test_an_edge_between_two_types_is_walked_from_the_end_that_fits(tmp_path, clauses, shown, rows):
    with Graph.init(tmp_path / "g", BETWEEN, durability="process") as graph:
        edges = [{"from": "p0", "to": "c1"}, {"from": "p4", "to": "c0"}]
        people = [{"name": f"p{n}"} for n in range(5)]
        companies = [{"name": "c0"}, {"name": "c1"}]
        graph.load({"Person": people, "Company": companies, "WorksAt": edges}, mode="append")
        found = graph.query(f"query q() {{ match {{ {clauses} }} return {{ {shown} }} }}")
        assert sorted(tuple(row.values()) for row in found) == sorted(rows)


def test_weights_that_add_up_to_too_much_are_an_error(tmp_path):
    with Graph.init(tmp_path / "g", BETWEEN, durability="process") as graph:
        people = [{"name": name} for name in "abc"]
        edges = [{"from": a, "to": b, "weight": 1e308} for a, b in ("ab", "bc")]
        graph.load({"Person": people, "Knows": edges}, mode="append")
        with pytest.raises(InputError, match="more than an F64 can hold"):
            graph.query(
                'query q() { match { $a: Person { name: "a" } $c: Person { name: "c" } } '
                "return { length(shortest($a, $c, knows, weight)) } }"
            )
