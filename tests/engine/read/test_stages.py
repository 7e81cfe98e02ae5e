"""Stages, unions, unwound lists and parameters that are records: each text and its rows."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph, errors
from omnigraph.compiler.query import format_source, parse_file
from omnigraph.engine.read.context import ReadLimits

SCHEMA = """
node Company { name: String @key  city: String? }
node Person {
  name: String @key
  age: I32?
  tags: [String]?
  role: enum(admin, user)?
  score: F64?
}
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company
"""
PEOPLE = [
    {"name": "ann", "age": 30, "tags": ["x", "y"], "role": "admin", "score": -0.0},
    {"name": "bob", "age": 20, "tags": ["x"], "role": "user", "score": 0.0},
    {"name": "cy", "age": 40},
    {"name": "dee", "tags": ["z", "x"], "role": "user"},
]
EDGES = [
    ("Knows", "ann", "bob"), ("Knows", "bob", "cy"), ("Knows", "ann", "cy"),
    ("Knows", "cy", "dee"), ("WorksAt", "ann", "acme"), ("WorksAt", "bob", "acme"),
    ("WorksAt", "cy", "bolt"), ("WorksAt", "dee", "acme"),
]  # fmt: skip


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    graph = Graph.init(str(tmp_path_factory.mktemp("g") / "g.omni"), SCHEMA, durability="process")
    lines = [{"type": "Person", "data": data} for data in PEOPLE]
    lines += [{"type": "Company", "data": {"name": n, "city": n[0]}} for n in ("acme", "bolt")]
    lines += [{"edge": kind, "from": a, "to": b, "data": {}} for kind, a, b in EDGES]
    graph.load("\n".join(map(json.dumps, lines)), mode="append")
    return graph


def answer(graph, body, declared="", **params):
    text = f"query q({declared}) {{ {body} }}"
    printed = format_source(text)
    assert parse_file(printed) == parse_file(text)
    found = graph.query(text, params=params).to_pylist()
    assert graph.query(printed, params=params).to_pylist() == found
    return [tuple(row.values()) for row in found]


AT = "match { $p: Person  $p worksAt $c }"
STAGES = [
    (
        (f"{AT} with {{ $c, count($p) as n }} having {{ n > 1 }} order {{ n desc }} limit 10 "
        "match { $q worksAt $c  $q.age >= 20 } return { $c.name, n, $q.name }"),
        [("acme", 3, "ann"), ("acme", 3, "bob")],
    ),
    (f"{AT} with {{ $c, count($p) as n }} order {{ n desc }} limit 1 return {{ $c.name, n }}",
     [("acme", 3)]),
    (
        (f"{AT} with {{ $c.city as city, max($p.age) as oldest }} "
        "match { $q: Person  $q.age = oldest } return { city, $q.name, oldest + 1 as k } "
        "order { k desc }"),
        [("b", "cy", 41), ("a", "ann", 31)],
    ),
    (("match { $p: Person } with { $p, $p.age * 2 as d } match { $p knows $f  $f.age < d } "
     "return { $p.name, $f.name, d }"), [("ann", "bob", 60), ("ann", "cy", 60)]),
    (("match { $p: Person } with { $p, $p.age * 2 as d } having { d > 50 and $p.age < 40 } "
     "match { $p knows $f } return { $p.name, d, $f.name }"),
     [("ann", 60, "bob"), ("ann", 60, "cy")]),
    (("match { $p: Person optional { $p worksAt $c  $c.name = \"bolt\" } } "
     "with { $p, $c.city as city } having { city is null } order { $p.name desc } limit 2 "
     "return { $p.name }"), [("bob",), ("dee",)]),
    ('match { $p: Person { name: "no" } } with distinct { 1 as one } return { one }', []),
    ("match { $p: Person } with distinct { $p.role as role } return { role }",
     [(None,), ("admin",), ("user",)]),
    (f"{AT} with distinct {{ $c }} order {{ $c.name desc }} limit 1 return {{ $c.name }}",
     [("bolt",)]),
    (("match { $p: Person } with { collect($p.name) as names } "
     "match { $q: Person  $q.name in names  $q.age > 20 } return { $q.name, length(names) as n }"),
     [("ann", 4), ("cy", 4)]),
    (("match { $p: Person } with { $p, $p.age as a } match { not { $p knows $x  $x.age > a } "
     'optional { $p worksAt $c  $c.city = "a" } } return { $p.name, $c.name }'),
     [("cy", None), ("dee", "acme")]),
    ("match { $p: Person  $p $w:worksAt $c } with { $w } return { $w.src } order { $w.src desc }",
     [("dee",), ("cy",), ("bob",), ("ann",)]),
    (("match { $p: Person } with { $p, exists { $p knows $x } as e } match { e = true } "
     "return { $p.name, count { $p knows $y } as k }"), [("ann", 2), ("bob", 1), ("cy", 1)]),
    (
        (
            "match { $p: Person } with { $p, $p.age > 25 as old } match { old  $p knows $q } "
            "return { $p.name, $q.name }"
        ),
        [("ann", "bob"), ("ann", "cy"), ("cy", "dee")],
    ),
    # Rows keep their number: two friends of ann are two rows.
    ("match { $p: Person  $p knows $f } with { $p } return { $p.name, count(*) as n }",
     [("ann", 2), ("bob", 1), ("cy", 1)]),
    # A stage without rows is one row once it is counted.
    ("match { $p: Person } with { $p } limit 0 return { count($p) as n }", [(0,)]),
    (("match { $p: Person } with { sum($p.age) as total } with { total / 2 as half } "
     "return { half }"), [(45.0,)]),
    # A variable that was dropped may come again, as another one.
    (("match { $p: Person  $p.age > 30 } with { $p.age as a } match { $p: Person  $p.age < a } "
     "return { $p.name, a }"), [("ann", 40), ("bob", 40)]),
    # Equal entities in different rows are ordered by the values that came with them.
    ("match { $p: Person  unwind $p.tags as $t } with { $p, $t as t } return { $p.name, t }",
     [("ann", "x"), ("ann", "y"), ("bob", "x"), ("dee", "x"), ("dee", "z")]),
    (("match { $p: Person } with { $p.name as n, $p.age as a } order { a desc } limit 2 "
     "return { collect(n) as names, sum(a) as s }"), [(["ann", "cy"], 70)]),
]  # fmt: skip
OPEN = [
    # Nodes of several types, edges of several types and paths go on as what they are.
    (
        (
            "match { $p: Person  $p knows|worksAt $x } with { $x, count($p) as n } "
            "return { type($x) as t, id($x) as i, n }"
        ),
        [
            ("Company", "acme", 3),
            ("Person", "bob", 1),
            ("Company", "bolt", 1),
            ("Person", "cy", 2),
            ("Person", "dee", 1),
        ],
    ),
    (
        (
            "match { $p: Person  $p any $x } with distinct { $x } order { id($x) desc } limit 2 "
            "match { $x worksAt $c } return { id($x) as i, $c.name }"
        ),
        [("dee", "acme"), ("cy", "bolt")],
    ),
    (
        (
            "match { $a: Person  $a $w:knows{1,3} $b } with { $a, $b, $w } "
            "match { length($w) > 1 } return { nodes($w) as ns }"
        ),
        [(["ann", "cy", "dee"],), (["bob", "cy", "dee"],)],
    ),
    (
        "match { $a: Person  $a $w:any $b } with { $w } return { type($w) as t, count(*) as n }",
        [("Knows", 4), ("WorksAt", 4)],
    ),
]
UNNAMED = [
    # The end of a path that an optional block finds may have no name.
    (
        (
            "match { $p: Person  optional { $_ $w:knows{1,2} $p  $p.age > 30 } } "
            "return { $p.name, count(length($w)) as n, max(length($w)) as far }"
        ),
        [("ann", 0, None), ("bob", 0, None), ("cy", 2, 1), ("dee", 0, None)],
    ),
]
UNWOUND = [
    ("match { $p: Person  unwind $p.tags as $t } return { $p.name, $t }",
     [("ann", "x"), ("ann", "y"), ("bob", "x"), ("dee", "z"), ("dee", "x")]),
    (("match { $p: Person  unwind $p.tags as $t } with { $t, count($p) as n } "
     "return { $t, n } order { n desc, $t }"), [("x", 3), ("y", 1), ("z", 1)]),
    ("match { unwind range(3, 1) as $i } return { count($i) as n }", [(0,)]),
    ("match { unwind [3, 1] as $i  unwind range(1, $i) as $j } return { $i, $j }",
     [(3, 1), (3, 2), (3, 3), (1, 1)]),
    ('match { $p: Person  not { unwind $p.tags as $t  $t = "x" } } return { $p.name }',
     [("cy",)]),
    ('match { $p: Person } return { count { unwind $p.tags as $t  $t >= "y" } as n }',
     [(1,), (0,), (0,), (1,)]),
    ("match { $p: Person  optional { unwind $p.tags as $t } } return { $p.name, count($t) as n }",
     [("ann", 2), ("bob", 1), ("cy", 0), ("dee", 2)]),
    ('match { unwind ["y", "w"] as $t  $p: Person  $t in $p.tags } return { $p.name, $t }',
     [("ann", "y")]),
]  # fmt: skip
UNIONS = [
    # A variable of one part has nothing to do with that of another.
    (
        (
            'match { $p: Person } return { bm25($p.name, "ann") is null as x } '
            'union all match { $p: Company } return { bm25($p.name, "ann") is null as x }'
        ),
        [(False,), *[(True,)] * 5],
    ),
    (("match { $p: Person } return { $p.name as n } union match { $c: Company } "
     "return { $c.name as n } order { n desc } limit 2 offset 1"), [("cy",), ("bolt",)]),
    (("match { $p: Person } return { $p.role as r } union match { $p: Person } "
     "return { $p.role as r }"), [(None,), ("admin",), ("user",)]),
    (("match { $p: Person } return { $p.role as r } union all match { $c: Company } "
     "return { null as r }"), [(None,), (None,), (None,), ("admin",), ("user",), ("user",)]),
    # -0.0 equals 0.0, whole numbers become what holds them all.
    (("match { $p: Person } return { $p.score as s } union match { $c: Company } "
     "return { 0 as s }"), [(None,), (0.0,)]),
    # From left to right: what `union` made different may be there twice behind a `union all`.
    (("match { $c: Company } return { 1 as x } union match { $c: Company } return { 1 as x } "
     "union all match { $c: Company } return { 1 as x }"), [(1,), (1,), (1,)]),
    (("match { $p: Person } return { $p.name as n } order { n desc } limit 1 "
     "union all match { $c: Company } return { $c.name as n }"), [("acme",), ("bolt",), ("dee",)]),
    (f"{AT} with {{ $c, count($p) as n }} return {{ $c.name as k, n }} union "
     "match { $p: Person } return { 'x' as k, count($p) as n }".replace("'", '"'),
     [("acme", 3), ("bolt", 1), ("x", 4)]),
]  # fmt: skip


@pytest.mark.parametrize(("body", "rows"), [*STAGES, *OPEN, *UNNAMED, *UNWOUND, *UNIONS])
def test_the_text_has_these_rows(graph, body, rows):
    assert answer(graph, body) == rows


GIVEN = [
    ("$rows: [{name: String, age: I32?}]",
     "match { unwind $rows as $row  $p: Person { name: $row.name } } return { $p.name, $row.age }",
     {"rows": [{"name": "bob", "age": 3}, {"name": "zed"}, {"name": "ann"}]},
     [("ann", None), ("bob", 3)]),
    ("$rows: [{name: String}]",
     "match { unwind $rows as $row } with { $row, count(*) as n } return { $row.name, n }",
     {"rows": [{"name": "b"}, {"name": "a"}, {"name": "b"}]}, [("a", 1), ("b", 2)]),
    ("$rows: [{name: String}]", "match { unwind $rows as $row } return { $row.name }",
     {"rows": [{"name": "b"}, {"name": "a"}, {"name": "b"}]}, [("b",), ("a",), ("b",)]),
    ("$rows: [{tags: [String]}]",
     "match { unwind $rows as $row  unwind $row.tags as $t } return { $t }",
     {"rows": [{"tags": ["q", "p"]}, {"tags": []}]}, [("q",), ("p",)]),
    ("$rows: [{name: String}]?", "match { unwind $rows as $row } return { count(*) as n }",
     {}, [(0,)]),
    ("$r: Person.role", "match { $p: Person  $p.role = $r } return { $p.name }",
     {"r": "user"}, [("bob",), ("dee",)]),
    ("$r: [Person.role]", "match { $p: Person  $p.role in $r } return { $p.name }",
     {"r": ["admin"]}, [("ann",)]),
    ('$r: Person.role = "admin"', "match { $p: Person  $p.role = $r } return { $p.name }",
     {}, [("ann",)]),
    ("$x: {low: I32, high: I32?}",
     "match { $p: Person  $p.age > $x.low } return { $p.name, $x.high as h }",
     {"x": {"low": 20}}, [("ann", None), ("cy", None)]),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "body", "params", "rows"), GIVEN)
def test_a_parameter_has_these_rows(graph, declared, body, params, rows):
    assert answer(graph, body, declared, **params) == rows


REFUSED = [
    (
        "",
        "match { $a: Person  $a $w:knows{1,3} $b } with { $a, $w } return { $a.name }",
        "goes on only with both of its ends",
    ),
    ("", ("match { $p: Person } return { $p.age as a } union match { $c: Company } "
     "return { $c.name as a }"), "column `a` is I32"),
    ("", ("match { $p: Person } return { $p.age as a } union match { $c: Company } "
     "return { 2 as b }"), "the same columns: `a`"),
    ("", ("match { $p: Person } return { $p.age as a } union match { $c: Company } "
     "return { 2 as a } order { $c.name }"), "order by its columns"),
    ("", "match { $p: Person } with { $p.age } return { 1 as x }", "needs a name"),
    ("", "match { $p: Person } with { $p.age as a } return { b }", "unknown alias `b`"),
    ("", ("match { $p: Person } with { $p.age as a } match { $p: Person  $p.age > b } "
     "return { a }"), "`b` is no column"),
    ("", "match { $p: Person } with { $p.age as a } return { $p.name }", "`$p` is not bound"),
    ("", "match { $p: Person } with { $p, $p } return { $p.name }", "`$p` is given twice"),
    ("", "match { $p: Person } with { $p.age as a, $p.name as a } return { a }", "given twice"),
    ("", "match { $p: Person  unwind $p.age as $t } return { $t }", "unwind requires a list"),
    ("", "match { $p: Person  unwind $p.tags as $p } return { $p.name }", "already bound"),
    ("$rows: [{name: String}]", "match { unwind $rows as $r } return { $r }", "is a record"),
    ("$rows: [{name: String}]", "match { unwind $rows as $r } return { $r.nam }",
     "no field `nam`"),
    ("$rows: [{name: String}]", "match { $p: Person  $p.name = $rows.name } return { $p.age }",
     "is a list of records"),
    ("$r: Person.rol", "match { $p: Person } return { $p.age }", "no property `rol`"),
    ("$r: {a: I32, a: I32}", "match { $p: Person } return { $p.age }", "declared twice"),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "body", "told"), REFUSED)
def test_the_text_is_refused_with_a_place(graph, declared, body, told):
    with pytest.raises(errors.TypeCheckError) as caught:
        graph.query(f"query q({declared}) {{ {body} }}")
    assert told in str(caught.value)
    assert caught.value.errors[0]["column"] > 1


UNFIT = [
    ("$n: I32", {"m": 1}, "param 'm': the query declares no such parameter", "`n`"),
    ("$r: Person.role", {"r": "adm"}, "expected one of [admin, user]", "`admin`"),
    ("$t: String", {"t": 7}, "expected string, got number", 'quotes: "7"'),
    ("$r: {name: String}", {"r": {"nam": "x"}}, "has no field `nam`", "`name`"),
    ("$r: [{name: String}]", {"r": [{"name": "x"}, {}]}, "record[1] misses the field", None),
    ("$r: [{name: String}]", {"r": [{"name": 3}]}, "param 'r[0].name': expected string", None),
    ("$r: [{name: String}]", {"r": {"name": "x"}}, "expected array of objects", None),
]


@pytest.mark.parametrize(("declared", "params", "told", "hint"), UNFIT)
def test_an_argument_that_does_not_fit_is_named(graph, declared, params, told, hint):
    text = f"query q({declared}) {{ match {{ $p: Person }} return {{ $p.name }} }}"
    with pytest.raises(errors.ParameterError) as caught:
        graph.query(text, params=params)
    assert told in str(caught.value)
    assert hint is None or hint in caught.value.hint


LIMITED = [
    ("match { unwind range(1, 500) as $i } return { count($i) as n }", "unwind $i"),
    ("match { $p: Person } with { $p } match { unwind range(1, 500) as $i } return { $i }",
     "unwind $i"),
    (("match { $p: Person  $q: Person  $r: Person } with { $p, $q, $r, 1 as a, 2 as b } "
     "return { count(*) as n }"), "join all pairs"),
    (("match { unwind range(1, 40) as $i } return { $i } union all "
     "match { unwind range(1, 40) as $i } return { $i } union all "
     "match { unwind range(1, 40) as $i } return { $i }"), "union 3"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "step"), LIMITED)
def test_a_limit_names_the_step_that_met_it(graph, body, step):
    limits = ReadLimits(memory_bytes=800)
    with pytest.raises(errors.LimitExceededError) as caught:
        graph.query(f"query q() {{ {body} }}", limits=limits)
    assert caught.value.facts["step"] == step
    assert f"`{step}`" in caught.value.hint


def test_a_limit_without_advice_still_names_its_step(graph):
    with pytest.raises(errors.LimitExceededError) as caught:
        graph.query("query q() { match { $p: Person } return { range(0, 1000000) as n } }")
    assert caught.value.hint == "in the step `project`"


def test_an_explanation_shows_stages_and_unions(graph):
    text = f"{AT} with {{ $c, count($p) as n }} return {{ n }} union match {{ $p: Person }} "
    found = graph.query(f"query q() {{ {text} return {{ 1 as n }} }}", explain=True).explanation
    first, second, *rest = found.root.children
    assert [step.name for step in (first, second, *rest)] == ["part", "union", "distinct", "order"]
    assert first.children[0].name == "with"
    assert first.children[0].rows == 2


def test_a_description_tells_the_types_of_every_stage(graph):
    text = f"{AT} with {{ $c, count($p) as n }} return {{ $c, n }}"
    (result,) = graph.lint(f"query q() {{ {text} }}").results
    told = result.operation.to_json()
    assert [column["kind"] for column in told["result"]] == ["object", "bigint"]
    assert [use["type_name"] for use in told["reads"]] == ["Company", "Person", "WorksAt"]


def test_a_description_tells_the_parameters(graph):
    declared = '$rows: [{name: String, age: I32?}], $r: Person.role = "user", $n: I32?'
    body = "match { unwind $rows as $x  $p: Person { name: $x.name, role: $r, age: $n } }"
    (result,) = graph.lint(f"query q({declared}) {{ {body} return {{ $p.name }} }}").results
    assert result.operation.to_json()["params"] == [
        {"name": "rows", "type": "[{name: String, age: I32?}]"},
        {"name": "r", "type": "enum(admin, user)", "default": "user"},
        {"name": "n", "type": "I32?"},
    ]


F32 = [("=", []), (">=", ["cy"]), ("<", ["ann", "bob"])]


@pytest.mark.parametrize(("sign", "names"), F32)
def test_an_f32_parameter_is_one_number_everywhere(tmp_path, sign, names):
    graph = Graph.init(str(tmp_path / "g.omni"), "node N { name: String @key  x: F64 }")
    lines = [("ann", 0.1), ("bob", 0.0), ("cy", 0.5)]
    rows = [json.dumps({"type": "N", "data": {"name": n, "x": x}}) for n, x in lines]
    graph.load("\n".join(rows), mode="append")
    body = f"match {{ $n: N  $n.x {sign} $x }} return {{ $n.name }}"
    assert [name for (name,) in answer(graph, body, "$x: F32", x=0.1)] == names
    assert [name for (name,) in answer(graph, body, "$x: F32 = 0.1")] == names
