"""Every bullet of the language's second edition, as cases with their answers.

A case belongs to a form. A form whose probe does not compile has not landed: its cases are expected
to fail, strictly, and `test_every_form_has_landed` names it.
"""

from __future__ import annotations

import datetime as dt
import json

import pytest

from omnigraph import Graph, errors
from omnigraph.compiler.query import compile_query, format_source, parse_file
from omnigraph.compiler.schema import compile_schema

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  born: Date?
  seen: DateTime?
  tags: [String]?
  bio: String?
  role: enum(admin, user)?
  vec: Vector(4)?
}
node Company { name: String @key  city: String? }
node Event { kind: String  at: DateTime }
edge Knows: Person -> Person { since: Date?  weight: F64? }
edge WorksAt: Person -> Company
edge Attended: Person -> Event
"""
PEOPLE = [
    {"name": "ann", "age": 70, "born": "1956-03-31", "seen": "2026-01-31T10:30:00Z",
     "tags": ["a", "b", "c"], "bio": "  Ann climbs  ", "role": "admin", "vec": [1, 0, 0, 0]},
    {"name": "bob", "age": 30, "born": "1996-02-29", "seen": "2026-01-31T08:00:00Z",
     "tags": [], "bio": "Bob reads", "role": "user", "vec": [0.9, 0.1, 0, 0]},
    {"name": "cat", "age": 17, "born": "2009-12-01", "tags": ["b"], "vec": [0, 1, 0, 0]},
    {"name": "dan"},
]  # fmt: skip
KNOWS = [
    ("ann", "bob", "2020-01-01", 1.0), ("bob", "cat", "2021-06-15", 1.0),
    ("ann", "cat", "2022-02-02", 5.0), ("cat", "dan", None, 2.0),
]  # fmt: skip
WORKS = [("ann", "acme"), ("bob", "acme"), ("cat", "beta")]
TYPES = {str: "String", bool: "Bool", int: "I64", float: "F64", list: "[String]"}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    graph = Graph.init(str(tmp_path_factory.mktemp("g") / "g.omni"), SCHEMA, durability="process")
    lines = [{"type": "Person", "data": data} for data in PEOPLE]
    lines += [
        {"type": "Company", "data": {"name": name, "city": city}}
        for name, city in (("acme", "Berlin"), ("beta", "Paris"))
    ]
    lines += [
        {"edge": "Knows", "from": a, "to": b, "data": {"since": since, "weight": weight}}
        for a, b, since, weight in KNOWS
    ]
    lines += [{"edge": "WorksAt", "from": a, "to": b, "data": {}} for a, b in WORKS]
    graph.load("\n".join(map(json.dumps, lines)), mode="append")
    return graph


# --- forms and their probes ----------------------------------------------------------------------

PROBES = {
    "expressions": "query q() { match { $p: Person } return { lower($p.name) } }",
    "stages": "query q() { match { $p: Person } with { $p } match { $p knows $f } return { $f } }",
    "union": "query q() { match { $p: Person } return { $p } union match { $p: Person } "
    "return { $p } }",
    "unwind": "query q($l: [String]) { match { unwind $l as $x } return { $x } }",
    "params": "query q($r: Person.role) { match { $p: Person  $p.role = $r } return { $p } }",
    "records": "query q($rows: [{name: String, age: I32?}]) { match { unwind $rows as $row } "
    "return { $row.name } }",
    "edges": "query q() { match { $p: Person  $p knows|worksAt $x } return { $x } }",
    "paths": "query q() { match { $p: Person  $p $w:knows{1,4} $f } return { length($w) } }",
    "shortest": "query q() { match { $a: Person  $b: Person } "
    "return { length(shortest($a, $b, knows)) } }",
    "like this": "query q() { match { $e: Person { name: \"ann\" }  $d: Person } return { $d } "
    "order { nearest($d.vec, $e.vec) } limit 2 }",
    "computed": "query q() { update Person set { age: age + 1 } where name = \"ann\" }",
    "named": "query q() { insert Event { kind: \"a\", at: now() } as $e "
    "insert Attended { from: \"ann\", to: $e } }",
    "upsert": "query q() { upsert Person { name: \"ann\" } }",
    "or nothing": "query q() { insert Person { name: \"ann\" } or nothing }",
    "found": "query q() { match { $p: Person } update $p set { age: 1 } }",
    "for": "query q($l: [String]) { for $x in $l  insert Person { name: $x } }",
    "returning": "query q() { insert Person { name: \"x\" } as $p returning { $p.name } }",
}  # fmt: skip
CATALOG = compile_schema(SCHEMA)


def has_landed(form: str) -> bool:
    try:
        compile_query(PROBES[form], CATALOG)
    except errors.OmnigraphError:
        return False
    return True


def cases(table):
    """The cases of a table, named by their form."""
    return [pytest.param(*case[1:], id=f"{case[0]}: {case[1][:60]}") for case in table]


def test_every_form_has_landed():
    assert sorted(form for form in PROBES if not has_landed(form)) == []


# --- reading -------------------------------------------------------------------------------------

D, T = dt.date, dt.datetime


def utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)


ANN = 'match { $p: Person { name: "ann" } } return {'
ALL = "match { $p: Person } return {"
E = "expressions"
# (form, body of a query, parameters, rows as tuples)
READ = [
    # text
    (E, f"{ANN} lower(\"AbC\"), upper(\"abc\"), trim($p.bio), length($p.name) }}", {},
     [("abc", "ABC", "Ann climbs", 3)]),
    (E, f"{ANN} substring($p.name, 1), substring($p.name, 0, 2), replace($p.name, \"n\", \"m\") }}", {},
     [("nn", "an", "amm")]),
    (E, f"{ANN} split(\"a,b\", \",\"), concat($p.name, \"-\", \"x\"), $p.name + \"!\" }}", {},
     [(["a", "b"], "ann-x", "ann!")]),
    # null
    (E, f"{ALL} $p.name, coalesce($p.age, 0) }}", {},
     [("ann", 70), ("bob", 30), ("cat", 17), ("dan", 0)]),
    # numbers
    (E, f"{ANN} abs(-3), round(2.5), round(-2.5), round(1.25, 1), floor(1.9), ceil(1.1) }}", {},
     [(3, 3.0, -3.0, 1.3, 1.0, 2.0)]),
    (E, f"{ANN} sqrt(9), pow(2, 10), sign(-4), least(3, 1, 2), greatest(3, 1, 2) }}", {},
     [(3.0, 1024.0, -1, 1, 3)]),
    # conversion
    (E, f"{ANN} to_string(7), to_int(\"7\"), to_int(\"x\"), to_float(\"1.5\") }}", {},
     [("7", 7, None, 1.5)]),
    (E, f"{ANN} to_date(\"2026-01-02\"), to_date(\"no\"), to_datetime(\"2026-01-02T03:04:05Z\") }}", {},
     [(D(2026, 1, 2), None, utc(2026, 1, 2, 3, 4, 5))]),
    # lists
    (E, f"{ANN} length($p.tags), $p.tags[0], $p.tags[-1], $p.tags[1..3], $p.tags[7] }}", {},
     [(3, "a", "c", ["b", "c"], None)]),
    (E, f"{ANN} \"b\" in $p.tags, $p.tags + [\"z\"], $p.tags + \"z\", range(1, 3) }}", {},
     [(True, ["a", "b", "c", "z"], ["a", "b", "c", "z"], [1, 2, 3])]),
    # time
    (E, f"{ANN} year($p.born), month($p.born), day($p.born), hour($p.seen), minute($p.seen), "
     "second($p.seen) }", {}, [(1956, 3, 31, 10, 30, 0)]),
    (E, f"{ANN} date($p.seen), trunc(\"month\", $p.seen), $p.born + days(7) }}", {},
     [(D(2026, 1, 31), utc(2026, 1, 1), D(1956, 4, 7))]),
    (E, f"{ANN} $p.seen - hours(2), $p.seen + minutes(30), now() - hours(2) < now() }}", {},
     [(utc(2026, 1, 31, 8, 30), utc(2026, 1, 31, 11), True)]),
    (E, "match { $p: Person { name: \"ann\" }  $q: Person { name: \"bob\" } } "
     "return { $p.seen - $q.seen, $q.born - $p.born }", {}, [(9000.0, 14579)]),
    # graph
    (E, "match { $p: Person { name: \"ann\" }  $p $w:knows $f  $f.name = \"bob\" } "
     "return { type($w), id($p), degree($p, knows), degree($f, <knows>) }", {},
     [("Knows", "ann", 2, 2)]),
    # operators
    (E, "match { $p: Person  $p.name ends_with \"n\" } return { $p.name }", {}, [("ann",), ("dan",)]),
    (E, "match { $p: Person  $p.name matches \"[ab].*\" } return { $p.name }", {},
     [("ann",), ("bob",)]),
    (E, "match { $p: Person  $p.name matches \"n\" } return { $p.name }", {}, []),
    (E, "match { $p: Person  $p.name like \"_a%\" } return { $p.name }", {}, [("cat",), ("dan",)]),
    (E, "match { $p: Person  $p.name like \"A%\" } return { $p.name }", {}, []),
    (E, "match { $p: Person  $p.age between 17 and 30 } return { $p.name }", {},
     [("bob",), ("cat",)]),
    # case
    (E, f"{ALL} case when $p.age >= 65 then \"senior\" when $p.age >= 18 then \"adult\" "
     "else \"minor\" end as c }", {}, [("senior",), ("adult",), ("minor",), ("minor",)]),
    (E, f"{ALL} case $p.role when \"admin\" then 1 else 0 end as c }}", {}, [(1,), (0,), (0,), (0,)]),
    # blocks as values
    (E, "match { $p: Person  exists { $p knows $x  $x.age > 25 } or $p.name = \"dan\" } "
     "return { $p.name }", {}, [("ann",), ("dan",)]),
    (E, f"{ALL} $p.name, count {{ $p knows $x }} as n }}", {},
     [("ann", 2), ("bob", 1), ("cat", 1), ("dan", 0)]),
    # operators between bare variables, keywords in any case
    (E, "match { $p: Person  $p.name in $list } return { $p.name }", {"list": ["ann", "x"]}, [("ann",)]),
    (E, "match { $p: Person { name: \"ann\" }  $x starts_with $y } return { $p.name }",
     {"x": "abc", "y": "ab"}, [("ann",)]),
    (E, "MATCH { $p: Person  $p.age > 20 AND NOT $p.age > 60 } RETURN { $p.name AS n } "
     "ORDER { n DESC } LIMIT 1", {}, [("bob",)]),
    # whole entities
    (E, "match { $c: Company { name: \"acme\" } } return { $c.* }", {}, [("acme", "Berlin")]),
    (E, "match { $p: Person { name: \"ann\" }  $p worksAt $c } return { $c.*, $p.name, $p }", {},
     [("acme", "Berlin", "ann", "ann")]),
    # aggregates
    (E, "match { $p: Person  $p worksAt $c } return { $c.name, collect($p.name) as who } "
     "order { $c.name }", {}, [("acme", ["ann", "bob"]), ("beta", ["cat"])]),
    (E, f"{ALL} collect(distinct $p.role) as r, min($p.born) as b, max($p.seen) as s, "
     "max($p.name) as m }", {},
     [(["admin", "user"], D(1956, 3, 31), utc(2026, 1, 31, 10, 30), "dan")]),
    (E, f"{ALL} median($p.age) as m, percentile($p.age, 0.5) as p, stddev($p.age) as s }}", {},
     [(30.0, 30.0, 27.622454633866266)]),
    (E, "match { $p: Person  $p.age is not null } return { $p.age >= 18 as adult, count(*) as n } "
     "having { n > 1 }", {}, [(True, 2)]),
    (E, "match { $p: Person  $p worksAt $c } return { $c.name } "
     "having { count($p) > 1 }", {}, [("acme",)]),
    # stages
    ("stages", "match { $p: Person  $p worksAt $c } with { $c, count($p) as n } having { n > 1 } "
     "order { n desc } limit 10 match { $x worksAt $c } return { $c.name, $x.name, n } "
     "order { $x.name }", {}, [("acme", "ann", 2), ("acme", "bob", 2)]),
    ("union", "match { $p: Person  $p.age > 60 } return { $p.name as n } union all "
     "match { $c: Company } return { $c.name as n } order { n desc } limit 2", {},
     [("beta",), ("ann",)]),
    ("union", "match { $p: Person  $p.age > 60 } return { $p.name as n } union "
     "match { $p: Person  $p.age > 20 } return { $p.name as n } order { n }", {},
     [("ann",), ("bob",)]),
    ("unwind", "match { unwind $names as $n  $p: Person  $p.name = $n } return { $n, $p.age }",
     {"names": ["cat", "ann"]}, [("ann", 70), ("cat", 17)]),
    # edges of several types
    ("edges", "match { $p: Person { name: \"ann\" }  $p knows|worksAt $x } return { $x } "
     "order { $x }", {}, [("acme",), ("bob",), ("cat",)]),
    ("edges", "match { $p: Person { name: \"ann\" }  $p $w:any $x } return { type($w) as t, "
     "count(*) as n } order { t }", {}, [("Knows", 2), ("WorksAt", 1)]),
    ("edges", "match { $p: Person { name: \"ann\" }  $p any $x } return { $x.city as c, $x.age as a } "
     "order { a, c }", {}, [("Berlin", None), (None, 17), (None, 30)]),
    # paths
    ("paths", "match { $a: Person { name: \"bob\" }  $a knows{0,2} $b } return { $b.name }", {},
     [("bob",), ("cat",), ("dan",)]),
    ("paths", "match { $a: Person { name: \"ann\" }  $a knows{1,} $b } return { $b.name }", {},
     [("bob",), ("cat",), ("dan",)]),
    ("paths", "match { $a: Person { name: \"ann\" }  $a $path:knows{1,4} $b } "
     "return { $b.name, length($path) as n, nodes($path) } order { n, $b.name }", {},
     [("bob", 1, ["ann", "bob"]), ("cat", 1, ["ann", "cat"]), ("dan", 2, ["ann", "cat", "dan"])]),
    ("paths", "match { $a: Person { name: \"ann\" }  $a $path:knows{1,4} $b  $b.name = \"dan\" } "
     "return { length(edges($path)) as n }", {}, [(2,)]),
    ("shortest", "match { $a: Person { name: \"ann\" }  $b: Person { name: \"dan\" } } "
     "return { nodes(shortest($a, $b, knows|worksAt)) as w }", {}, [(["ann", "cat", "dan"],)]),
    ("shortest", "match { $a: Person { name: \"ann\" }  $b: Person { name: \"dan\" } } "
     "return { nodes(shortest($a, $b, knows, weight)) as w }", {},
     [(["ann", "bob", "cat", "dan"],)]),
    # more like this
    ("like this", "match { $e: Person { name: \"ann\" }  $d: Person  $d.name != \"ann\" } "
     "return { $d.name } order { nearest($d.vec, $e.vec) } limit 2", {}, [("bob",), ("cat",)]),
]  # fmt: skip


def declared(params):
    return ", ".join(f"${name}: {TYPES[type(value)]}" for name, value in params.items())


@pytest.mark.parametrize(("body", "params", "rows"), cases(READ))
def test_a_read_answers_as_the_page_says(base, body, params, rows):
    text = f"query q({declared(params)}) {{ {body} }}"
    found = base.query(text, params=params)
    got = [tuple(row.values()) for row in found.to_pylist()]
    assert got == [tuple(pytest.approx(v) if isinstance(v, float) else v for v in r) for r in rows]
    printed = format_source(text)
    assert parse_file(printed) == parse_file(text)
    assert format_source(printed) == printed


PARAMETERS = [
    (E, "query q($n: I32 = 2) { match { $p: Person } return { $p.name } limit $n }", {},
     ["ann", "bob"]),
    (E, "query q($n: I32 = 2) { match { $p: Person } return { $p.name } limit $n }", {"n": 1}, ["ann"]),
    ("params", "query q($r: Person.role) { match { $p: Person  $p.role = $r } return { $p.name } }",
     {"r": "admin"}, ["ann"]),
    ("records", "query q($rows: [{name: String, age: I32?}]) { match { unwind $rows as $row  "
     "$p: Person  $p.name = $row.name } return { $p.name } }", {"rows": [{"name": "cat"}]}, ["cat"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "params", "names"), cases(PARAMETERS))
def test_parameters_have_defaults_enums_and_records(base, text, params, names):
    assert [row["p.name"] for row in base.query(text, params=params)] == names


def test_a_parameter_that_the_query_does_not_declare_names_the_nearest(base):
    text = "query q($name: String) { match { $p: Person { name: $name } } return { $p } }"
    with pytest.raises(errors.InputError) as caught:
        base.query(text, params={"name": "ann", "nam": "x"})
    assert "name`?" in (caught.value.hint or caught.value.message)


def test_an_enum_parameter_takes_only_its_values(base):
    with pytest.raises(errors.InputError, match="admin"):
        base.query(PARAMETERS[2][1], params={"r": "boss"})


# --- changing ------------------------------------------------------------------------------------

PERSON = "query look($n: String) { match { $p: Person { name: $n } } return { $p.age, $p.tags } }"
# (form, mutation, parameters, affected nodes and edges, a query about the outcome, its rows)
CHANGED = [
    ("computed", "query q($n: String) { update Person set { age: age + 1, "
     "tags: coalesce(tags, []) + [\"vip\"], seen: now() } where name = $n }", {"n": "cat"}, (1, 0),
     "match { $p: Person { name: \"cat\" } } return { $p.age, $p.tags, $p.seen > datetime(\"2026-01-01T00:00:00Z\") }",
     [(18, ["b", "vip"], True)]),
    ("computed", "query q() { update Person set { age: 1 } where name like \"%a%\" and "
     "age between 10 and 20 }", {}, (1, 0),
     "match { $p: Person  $p.age = 1 } return { $p.name }", [("cat",)]),
    ("named", "query q($who: String) { insert Event { kind: \"talk\", at: now() } as $e "
     "insert Attended { from: $who, to: $e } }", {"who": "ann"}, (1, 1),
     "match { $p: Person  $p attended $e } return { $p.name, $e.kind }", [("ann", "talk")]),
    ("upsert", "query q($n: String, $a: I64) { upsert Person { name: $n, age: $a } }",
     {"n": "ann", "a": 71}, (1, 0),
     "match { $p: Person { name: \"ann\" } } return { $p.age, $p.role }", [(71, "admin")]),
    ("upsert", "query q($n: String, $a: I64) { upsert Person { name: $n, age: $a } }",
     {"n": "new", "a": 1}, (1, 0),
     "match { $p: Person { name: \"new\" } } return { $p.age }", [(1,)]),
    (E, "query q($n: String) { insert Person { name: $n, age: 1 } }", {"n": "ann"}, (1, 0),
     "match { $p: Person { name: \"ann\" } } return { $p.age, $p.role }", [(1, None)]),
    ("or nothing", "query q($n: String) { insert Person { name: $n, age: 1 } or nothing }",
     {"n": "ann"}, (0, 0),
     "match { $p: Person { name: \"ann\" } } return { $p.age, $p.role }", [(70, "admin")]),
    ("found", "query q($x: String) { match { $p: Person  $p worksAt $c  $c.name = $x } "
     "update $p set { age: $p.age + 1 } }", {"x": "acme"}, (2, 0),
     "match { $p: Person  $p worksAt $c  $c.name = \"acme\" } return { $p.age }", [(71,), (31,)]),
    ("found", "query q() { match { $p: Person { name: \"bob\" }  $q: Person { name: \"dan\" } } "
     "insert Knows { from: $p, to: $q, since: date(\"2026-01-01\") } }", {}, (0, 1),
     "match { $p: Person { name: \"bob\" }  $p $w:knows $f  $w.since = date(\"2026-01-01\") } "
     "return { $f.name }", [("dan",)]),
    ("found", "query q() { match { $p: Person  $p.age > 60 } delete $p }", {}, (1, 3),
     "match { $p: Person } return { count(*) as n }", [(3,)]),
    ("found", "query q() { match { $p: Person { name: \"ann\" }  $p $w:knows $f } delete $w }", {},
     (0, 2), "match { $p: Person  $p knows $f } return { $p.name }", [("bob",), ("cat",)]),
    ("for", "query q($rows: [{name: String, age: I32?}]) { for $row in $rows  "
     "insert Person { name: $row.name, age: $row.age } }",
     {"rows": [{"name": "x", "age": 1}, {"name": "y"}]}, (2, 0),
     "match { $p: Person  $p.name in [\"x\", \"y\"] } return { $p.name, $p.age }",
     [("x", 1), ("y", None)]),
]  # fmt: skip


@pytest.fixture
def branch(base):
    base.create_branch("try")
    yield "try"
    base.delete_branch("try", force=True)


def changed(base, branch, text, params):
    return base.mutate(text, params=params, branch=branch)


@pytest.mark.parametrize(("text", "params", "affected", "look", "rows"), cases(CHANGED))
def test_a_mutation_changes_what_the_page_says(base, branch, text, params, affected, look, rows):
    result = base.mutate(text, params=params, branch=branch)
    assert (result.affected_nodes, result.affected_edges) == affected
    found = base.query(f"query look() {{ {look} }}", branch=branch)
    assert [tuple(row.values()) for row in found] == rows
    printed = format_source(text)
    assert parse_file(printed) == parse_file(text)


RETURNED = [
    ("returning", "query q() { insert Event { kind: \"a\", at: now() } as $e "
     "returning { $e.kind, $e.id } }", lambda result: [("a", result.ids[0])]),
    ("returning", "query q() { match { $p: Person  $p.age > 20 } update $p set { age: 1 } "
     "returning { $p.name } }", lambda _: [("ann",), ("bob",)]),
    ("returning", "query q() { match { $p: Person  $p.age > 60 } delete $p returning { $p.name } }",
     lambda _: [("ann",)]),
    ("returning", "query q() { match { $p: Person  $p.age > 20 } update $p set { age: 1 } "
     "returning { count(*) as n } }", lambda _: [(2,)]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "rows"), cases(RETURNED))
def test_a_mutation_gives_rows_back(base, branch, text, rows):
    result = base.mutate(text, branch=branch)
    assert [tuple(row.values()) for row in result.rows] == rows(result)


def test_inserts_and_deletes_do_not_mix_in_one_query(base):
    text = 'query q() { insert Company { name: "a" } delete Company where name = "b" }'
    with pytest.raises(errors.InputError, match="mixes"):
        base.mutate(text)


# --- grammar notes -------------------------------------------------------------------------------

NAMES = [
    "node Order { name: String @key  limit: I32?  type: String?  any: I32?  for: I32?  case: I32? }",
    "edge Any: Order -> Order",
]


def test_words_of_the_language_may_be_names(tmp_path):
    graph = Graph.init(str(tmp_path / "g.omni"), "\n".join(NAMES), durability="process")
    graph.mutate(
        'query q() { insert Order { name: "a", limit: 1, type: "t", any: 2, for: 3, case: 4 } '
        'insert Order { name: "b" } insert Any { from: "a", to: "b" } }'
    )
    found = graph.query(
        "query q() { match { $o: Order  $o any $x } "
        "return { $o.limit, $o.type, $o.any, $o.for, $o.case, $x.name } limit 1 }"
    )
    assert [tuple(row.values()) for row in found] == [(1, "t", 2, 3, 4, "b")]


def test_an_index_bracket_touches_its_list(base):
    apart = 'query q() { match { $p: Person { name: "ann" } } return { $p.tags [0] } }'
    assert [tuple(row.values()) for row in base.query(apart)] == [(["a", "b", "c"], [0])]
