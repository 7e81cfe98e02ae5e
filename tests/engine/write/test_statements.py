"""What statements know by name: rows of a match, items of a `for`, what was inserted before."""

import datetime as dt
from functools import partial

import pytest
from write_world import WriteWorld, company, edge, person

from omnigraph import Graph
from omnigraph.errors import (
    ConstraintViolationError,
    InputError,
    MixedMutationError,
    ParseError,
    TypeCheckError,
)


@pytest.fixture
def world(tmp_path):
    world = WriteWorld(tmp_path / "g")
    world.load(
        person("a", age=5, email="a@x", tags=["t"], vec=[1, 2], born="2020-01-31"),
        person("b", age=40, seen="2020-01-01T10:00:00Z"),
        person("c"),
        company("Acme"),
        edge("Knows", "a", "b", since="2020-05-05"),
        edge("Knows", "b", "c"),
        edge("Knows", "c", "c"),
        edge("WorksAt", "a", "Acme"),
        edge("WorksAt", "b", "Acme"),
    )
    return world


def ages(world):
    return {name: row.get("age") for name, row in sorted(world.nodes("Person").items())}


# --- names of what is inserted ---


def test_what_is_inserted_has_a_name_for_later_statements(world):
    done = world.mutate(
        'insert Note { text: "hi" } as $n',
        'insert About { from: $n, to: "a" }',
        "insert Note { text: concat($n.text, $n) }",
        "returning { $n.id, $n.text }",
    )
    note = done.ids[0]
    assert done.rows == [{"n.id": note, "n.text": "hi"}]
    assert world.edges("About") == [(note, "a")]
    assert world.nodes("Note")[done.ids[2]]["text"] == f"hi{note}"
    assert len(done.ids) == 3


def test_ids_are_those_of_inserted_entities_in_order(world):
    done = world.mutate(
        'insert Person { name: "z" }',
        'upsert Person { name: "a", age: 1 }',
        'insert Person { name: "y" } or nothing',
        'insert Person { name: "b" } or nothing',
    )
    assert done.ids == ("z", "y")


# --- upsert and or nothing ---


def test_an_upsert_changes_only_what_is_listed(world):
    done = world.mutate("upsert Person { name: $n, age: $a }", n=("String", "a"), a=("I32", 6))
    row = world.nodes("Person")["a"]
    assert (row["age"], row["email"], row["tags"], row["vec"]) == (6, "a@x", ["t"], [1.0, 2.0])
    assert (done.affected_nodes, done.ids) == (1, ())


def test_an_upsert_inserts_what_is_not_there(world):
    done = world.mutate('upsert Person { name: "new", age: 6 }')
    assert (world.nodes("Person")["new"]["age"], done.ids) == (6, ("new",))


def test_an_upsert_sees_what_earlier_statements_did(world):
    world.mutate(
        'insert Person { name: "new", age: 6, email: "n@x" }',
        'upsert Person { name: "new", age: 7 }',
        'upsert Person { name: "a", age: 8 }',
        "update Person set { age: age + 1 } where age > 6",
        'upsert Person { name: "a", email: "b@x" }',
    )
    people = world.nodes("Person")
    assert (people["new"]["age"], people["new"]["email"]) == (8, "n@x")
    assert (people["a"]["age"], people["a"]["email"]) == (9, "b@x")


def test_an_upsert_of_an_edge_keeps_the_edge_between_its_ends(world):
    done = world.mutate(
        'upsert Knows { from: "a", to: "b", since: date("2021-01-01") }',
        'upsert Knows { from: "a", to: "c" }',
        'upsert Knows { from: "a", to: "c", since: date("2022-01-01") }',
    )
    assert world.edges("Knows") == [("a", "b"), ("a", "c"), ("b", "c"), ("c", "c")]
    assert len(done.ids) == 1
    rows = world.graph.query(
        'query q() { match { $a: Person { name: "a" }  $a $w:knows $b } return { $w.since as s } }'
    )
    assert [row["s"].year for row in rows] == [2021, 2022]


def test_or_nothing_leaves_what_is_there_alone(world):
    done = world.mutate(
        'insert Person { name: "a", age: 99 } or nothing as $p',
        'insert Knows { from: "a", to: "b" } or nothing',
        "returning { $p.age }",
    )
    assert (done.affected_nodes, done.affected_edges, done.commit) == (0, 0, None)
    assert done.rows == [{"p.age": 5}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('upsert Note { text: "x" }', "needs a @key"),
        ('insert Note { text: "x" } or nothing', "needs a @key"),
        ('upsert WorksAt { from: "a", to: "Acme" }', "@unique(src, dst)"),
        ("upsert Person { age: 1 }", "misses required property `name`"),
        ('insert Note { text: "x" } as $n  insert About { from: "a", to: $n }', "is a Person but"),
        ('insert Note { text: "x" } as $n  insert Note { text: $n.nope }', "has no `nope`"),
        ('insert Note { text: "x" } as $n  insert Note { text: "y" } as $n', "meaning already"),
        ("update $p set { age: 1 }", "is not bound by a match"),
        ("match { $p: Person } update $p set { name: $p.name }", "cannot update @key"),
        ("match { $p: Person } delete $p  returning { $q.name }", "not bound"),
        ("for $x in $y  insert Note { text: $x }", "`$y` is none"),
    ],
)
def test_a_statement_that_cannot_mean_anything_is_refused(world, text, words):
    before = world.head()
    with pytest.raises(TypeCheckError) as caught:
        world.mutate(text)
    assert words in f"{caught.value} {caught.value.hint}"
    assert world.head() == before


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("match { $p: Person } update $p set { age: 1 } where age > 1", "clauses of the `match"),
        ('insert Note { text: "x" } return { 1 }', "returning"),
        ("for $x in $y { for $z in $y delete $x }", "two queries"),
        ('update Person set { age: $p.age } where name = "a"', "unexpected property access"),
    ],
)
def test_a_text_that_the_grammar_refuses_gets_a_hint(world, text, words):
    with pytest.raises(ParseError) as caught:
        world.mutate(text)
    assert words in f"{caught.value} {caught.value.hint}"


# --- match ---


def test_an_update_of_what_is_found_computes_from_the_row_before(world):
    done = world.mutate(
        "match { $p: Person  $p worksAt $c  $c.name = $x }",
        "update $p set { age: $p.age + 1, tags: coalesce($p.tags, []) + $c.name }",
        "returning { $p.name, $p.age, $p.tags }",
        x=("String", "Acme"),
    )
    assert done.rows == [
        {"p.name": "a", "p.age": 6, "p.tags": ["t", "Acme"]},
        {"p.name": "b", "p.age": 41, "p.tags": ["Acme"]},
    ]
    row = world.nodes("Person")["a"]
    assert (row["email"], row["born"], row["vec"]) == ("a@x", "2020-01-31", [1.0, 2.0])
    assert done.affected_nodes == 2


def test_dates_and_moments_of_a_row_stay_what_they_are(world):
    world.mutate(
        "match { $p: Person  $q: Person  $p.born is not null  $q.seen is not null }",
        "update $p set { seen: $q.seen + hours(1) }",
        "update $q set { born: $p.born + days(1) }",
    )
    people = world.nodes("Person")
    assert people["a"]["seen"] == "2020-01-01T11:00:00.000Z"
    assert people["b"]["born"] == "2020-02-01"


def test_of_several_rows_for_one_entity_the_last_in_the_default_order_counts(world):
    world.load(edge("Knows", "a", "c"))
    done = world.mutate(
        "match { $p: Person { name: $n }  $p knows $q }",
        "update $p set { email: concat($q.name, $m) }",
        "returning { $q.name, $p.email }",
        n=("String", "a"),
        m=("String", "@y"),
    )
    assert done.affected_nodes == 1
    assert done.rows == [
        {"q.name": "b", "p.email": "c@y"},
        {"q.name": "c", "p.email": "c@y"},
    ]


def test_bare_words_are_properties_of_what_is_updated(world):
    world.mutate(
        "match { $p: Person  $p knows $q }",
        "update $p set { age: coalesce(age, 0) + count { $p knows $x } + degree($p, <knows>) }",
    )
    assert ages(world) == {"a": 5 + 1 + 1, "b": 40 + 1 + 2, "c": 0 + 1 + 2}


def test_edges_are_inserted_between_what_is_found(world):
    done = world.mutate(
        "match { $p: Person  $p worksAt $c  $q: Person  $q worksAt $c  $p.name < $q.name }",
        "insert Note { text: concat($p.name, $q.name) } as $n",
        "insert About { from: $n, to: $q }",
        "returning { $n.text, $q.name, $c.name }",
    )
    assert done.rows == [{"n.text": "ab", "q.name": "b", "c.name": "Acme"}]
    assert (done.affected_nodes, done.affected_edges) == (1, 1)


def test_what_is_found_can_be_deleted_nodes_with_their_edges(world):
    done = world.mutate(
        "match { $p: Person  $p knows $q  $q.name = $n } delete $p returning { $p.name, $q.name }",
        n=("String", "c"),
    )
    assert done.rows == [{"p.name": "b", "q.name": "c"}, {"p.name": "c", "q.name": "c"}]
    assert (done.affected_nodes, done.affected_edges) == (2, 4)
    assert sorted(world.nodes("Person")) == ["a"]
    assert world.edges("Knows") == []


def test_a_bound_edge_can_be_deleted_and_updated(world):
    world.mutate(
        "match { $p: Person { name: $n }  $p $w:knows $q } update $w set { since: $p.born }",
        n=("String", "a"),
    )
    done = world.mutate(
        "match { $p: Person  $p $w:knows $q  $w.since is not null } delete $w",
        "returning { $w.since, $w.src, count(*) as n }",
    )
    assert done.rows == [{"w.since": dt.date(2020, 1, 31), "w.src": "a", "n": 1}]
    assert world.edges("Knows") == [("b", "c"), ("c", "c")]


def test_a_statement_of_its_own_runs_once_for_each_row(world):
    world.mutate(
        "match { $p: Person  $p knows $q  $p.age is not null }",
        "update Company set { founded: $p.age } where name = $c and founded is null",
        c=("String", "Acme"),
    )
    assert world.nodes("Company")["Acme"]["founded"] == 5


def test_nothing_found_is_nothing_done(world):
    done = world.mutate(
        "match { $p: Person  $p.age > 900 } update $p set { age: 1 } returning { count(*) as n }"
    )
    assert (done.commit, done.affected_nodes, done.rows) == (None, 0, [{"n": 0}])


def test_an_optional_that_is_not_there_is_passed_over(world):
    world.mutate(
        "match { $p: Person  optional { $p worksAt $c  $c.name = $x } }",
        "update $c set { founded: 1900 }",
        x=("String", "Acme"),
    )
    assert world.nodes("Company")["Acme"]["founded"] == 1900


def test_one_query_still_either_writes_or_deletes(world):
    with pytest.raises(MixedMutationError):
        world.mutate("match { $p: Person } update $p set { age: 1 } delete $p")


# --- for ---


def test_for_runs_its_statements_for_every_item(world):
    done = world.mutate(
        "for $name in $names {",
        "  insert Person { name: $name } as $p",
        "  insert Knows { from: $p, to: $to }",
        "}",
        "returning { $p.id }",
        names=("[String]", ["x", "y"]),
        to=("String", "a"),
    )
    assert done.rows == [{"p.id": "x"}, {"p.id": "y"}]
    assert (done.affected_nodes, done.affected_edges) == (2, 2)
    assert {("x", "a"), ("y", "a")} <= set(world.edges("Knows"))


def test_for_over_nothing_does_nothing(world):
    done = world.mutate("for $n in $names insert Note { text: $n }", names=("[String]", []))
    assert (done.commit, done.ids) == (None, ())


def test_many_upserts_look_into_storage_once(world):
    meter = world.graph._core.store.tables.meter
    names = [f"n{n}" for n in range(50)]
    text = "for $n in $names upsert Person { name: $n, age: 1 }"
    world.mutate(text, names=("[String]", names))
    before = meter.total.scans
    done = world.mutate(text, names=("[String]", names))
    assert meter.total.scans - before <= 4
    assert (done.affected_nodes, done.ids) == (50, ())


# --- returning ---


def test_returning_after_a_delete_gives_what_was_there(world):
    done = world.mutate("delete Person where age > 4 returning { name, age, count(*) as n }")
    assert done.rows == [{"name": "a", "age": 5, "n": 1}, {"name": "b", "age": 40, "n": 1}]


def test_returning_after_an_update_gives_what_is_there_now(world):
    done = world.mutate("update Person set { age: age + 1 } where age > 4 returning { id, age }")
    assert done.rows == [{"id": "a", "age": 6}, {"id": "b", "age": 41}]


def test_a_repeated_request_returns_the_same_rows(world):
    text = 'query q() { insert Note { text: "x" } as $n returning { $n.id, $n.text } }'
    first = world.graph.mutate(text, idempotency_key="k")
    again = world.graph.mutate(text, idempotency_key="k")
    assert again.already_applied
    assert (again.ids, again.rows, again.commit) == (first.ids, first.rows, first.commit)
    assert again.to_json()["rows"] == first.to_json()["rows"]


def test_nothing_of_what_was_shown_for_returning_stays(world, tmp_path):
    world.mutate('insert Note { text: "x" } as $n returning { $n.id }')
    assert not list((tmp_path / "g").rglob("_versions/d*"))
    assert world.graph.verify(deep=True).ok


# --- what went wrong, and where ---


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ('insert Person { name: "n", age: 200 }', ("Person.age", "200", "statement 2 (line 2)")),
        ('insert Person { name: "n", email: "a@x" }', ("Person.email", "a@x", "statement 2")),
        ('insert Knows { from: "a", to: "no" }', ("Knows", "dst", "no", "statement 2 (line 2)")),
        ('upsert Person { name: "n", role: $r }', ("Person.role", "boss", "statement 2 (line 2)")),
    ],
)
def test_a_broken_constraint_names_the_statement_and_its_line(world, statement, words):
    text = f'query q($r: String) {{ insert Note {{ text: "x" }}\n {statement} }}'
    before = world.head()
    with pytest.raises(ConstraintViolationError) as caught:
        world.graph.mutate(text, params={"r": "boss"})
    for word in words:
        assert word in str(caught.value)
    assert (caught.value.statement, caught.value.line) == (2, 2)
    assert world.head() == before


TIMES = "founded: founded * 9223372036854775807"
FAILING = [
    ('insert Person { name: "z" }\ninsert Knows { from: "a", to: $none }', "'to', got null"),
    (f'insert Note {{ text: "z" }}\nupdate Company set {{ {TIMES} }} where 1 = 1',
     "does not fit into I64"),
    (f"match {{ $c: Company }}\nupdate $c set {{ founded: 1 }}\nupdate $c set {{ {TIMES} }}",
     "does not fit into I64"),
    ('insert WorksAt { from: "c", to: "Acme" }\ninsert WorksAt { from: "c", to: "Acme" }', "@card"),
]  # fmt: skip


@pytest.mark.parametrize(("statements", "words"), FAILING)
def test_what_a_statement_cannot_do_names_it_and_its_line(world, statements, words):
    world.mutate('upsert Company { name: "Acme", founded: 2 }')
    text = f"query q($none: String?) {{\n{statements} }}"
    lines = statements.count("\n") + 2
    with pytest.raises(InputError, match=words) as caught:
        world.graph.mutate(text, params={"none": None})
    assert str(caught.value).endswith(f"in statement 2 (line {lines})")
    assert (caught.value.statement, caught.value.line) == (2, lines)


SAILING = """
node Ship { name: String @key }
node Port { name: String @key }
edge Calls: Ship -> Port @card(1..2) { day: I32? }
"""
TOO_FEW = [
    'delete Port where name = "none"\ndelete Calls where day = 3',
    "delete Calls where day = 1\ndelete Calls where day = 2",  # either of them would do
    'delete Ship where name = "ada"\ndelete Port where name = "kiel"',
    'match { $s: Ship { name: "bea" }  $s $c:calls $p }\ndelete $c',
    'match { $s: Ship { name: "bea" }  $s calls $p }\ndelete $p',
]


def in_transaction(graph, source):
    with graph.transaction() as transaction:
        transaction.mutate(source)


@pytest.mark.parametrize("text", TOO_FEW)
@pytest.mark.parametrize("together", [True, False])
def test_a_source_that_is_left_with_too_few_edges_names_the_statement(tmp_path, text, together):
    with Graph.init(str(tmp_path / "g"), SAILING, durability="process") as graph:
        calls = [("ada", "kiel", 1), ("ada", "ulm", 2), ("bea", "kiel", 3)]
        rows = [{"from": ship, "to": port, "day": day} for ship, port, day in calls]
        names = {"Ship": ["ada", "bea"], "Port": ["kiel", "ulm"]}
        data = {kind: [{"name": one} for one in some] for kind, some in names.items()}
        graph.load({**data, "Calls": rows}, mode="append")
        source, number = f"query q() {{\n{text} }}", 1 if text.startswith("match") else 2
        run = graph.mutate if together else partial(in_transaction, graph)
        with pytest.raises(ConstraintViolationError, match="@card violation on edge Calls") as told:
            run(source)
        of = "" if together else " of mutation 1"
        assert str(told.value).endswith(f"in statement {number}{of} (line 3)")
        assert (told.value.statement, told.value.line) == (number, 3)
        assert len(graph.commits()) == 2


NAMES = {"names": ("[String]", ["z", "y"])}
BORN = [{"name": "z", "born": "2001-02-03"}, {"name": "y"}]
RETURNED = {
    'insert Knows { from: "a", to: "c" } as $w returning { $w.src, $w.dst }': [("a", "c")],
    'update Knows set { since: null } where src = "b" returning { src, to }': [("b", "c")],
    """update Knows set { since: null } where src != "c"
       returning { count(distinct dst) as n, collect(from) as all }""": [(2, ["a", "b"])],
    """update Person set { age: 7 } where age > 1
       returning { sum(age) as s, max(name) as m }""": [(14, "b")],
    'delete Knows where dst = "c" returning { min(src) as first, count(*) as n }': [("b", 2)],
    "for $n in $names insert Person { name: $n } as $p returning { $n, $p.id }": [
        ("z", "z"), ("y", "y"),
    ],
    "for $n in $names insert Person { name: $n } returning { collect($n) as all }": [(["z", "y"],)],
    """for $r in $rows insert Person { name: $r.name, born: $r.born } as $p
       returning { $r.name, year($r.born) as y, $p.born }""": [
        ("z", 2001, dt.date(2001, 2, 3)), ("y", None, None),
    ],
    """match { $p: Person { name: "a" } unwind ["u", "v"] as $t } insert Note { text: $t } as $n
       returning { $t, $n.text, $p.name }""": [("u", "u", "a"), ("v", "v", "a")],
}  # fmt: skip


@pytest.mark.parametrize(("statement", "rows"), RETURNED.items())
def test_returning_knows_what_the_statements_knew(world, statement, rows):
    params = NAMES | {"rows": ("[{name: String, born: Date?}]", BORN)}
    done = world.mutate(statement, **{k: v for k, v in params.items() if f"${k}" in statement})
    assert [tuple(row.values()) for row in done.rows] == rows


def test_a_name_that_is_gone_behind_its_for_is_called_so(world):
    text = 'for $n in $names insert Note { text: $n } as $x\ninsert About { from: $x, to: "a" }'
    with pytest.raises(TypeCheckError, match="gone behind its `for`"):
        world.mutate(text, names=("[String]", ["u"]))


def test_a_value_that_does_not_fit_names_the_statement(world):
    with pytest.raises(InputError, match=r"statement 1 \(line 1\)"):
        world.mutate("match { $p: Person } update $p set { age: $n }", n=("I64", 1 << 40))


ROWS = "[{name: String, age: I32?, born: Date?, seen: DateTime?}]"


def test_for_takes_records(world):
    rows = [
        {"name": "x", "age": 1, "born": "2001-02-03", "seen": "2020-01-01T00:00:00Z"},
        {"name": "a"},
        {"name": "x", "age": 2},
    ]
    done = world.mutate(
        "for $row in $rows upsert Person { name: $row.name, age: $row.age, born: $row.born }",
        rows=(ROWS, rows),
    )
    assert (done.affected_nodes, done.ids) == (3, ("x",))
    people = world.nodes("Person")
    assert (people["x"]["age"], people["x"].get("born")) == (2, None)
    assert (people["a"].get("age"), people["a"]["email"]) == (None, "a@x")


def test_a_match_may_unwind_records(world):
    rows = [{"name": "a", "age": 7, "seen": "2020-01-01T00:00:00Z"}, {"name": "nobody", "age": 8}]
    done = world.mutate(
        "match { unwind $rows as $row  $p: Person  $p.name = $row.name }",
        "update $p set { age: $row.age, seen: $row.seen }",
        rows=(ROWS, rows),
    )
    assert done.affected_nodes == 1
    row = world.nodes("Person")["a"]
    assert (row["age"], row["seen"]) == (7, "2020-01-01T00:00:00.000Z")


def test_a_record_has_only_the_fields_that_are_declared(world):
    with pytest.raises(TypeCheckError, match="has no `nope`"):
        world.mutate("for $r in $rows insert Person { name: $r.nope }", rows=(ROWS, []))


def test_a_single_record_is_a_parameter_with_fields(world):
    record = ("{name: String, age: I32}", {"name": "r", "age": 3})
    world.mutate(
        "insert Person { name: $r.name, age: $r.age } as $p",
        "insert Note { text: $p.name }",
        r=record,
    )
    assert world.nodes("Person")["r"]["age"] == 3


def test_a_name_for_what_cannot_be_written_is_no_crash(world):
    text = 'query q() { upsert Person { name: "a", foo: 1 } as $x returning { $x.name } }'
    with pytest.raises(TypeCheckError, match="no property `foo`"):
        world.graph.mutate(text)
    assert world.graph.lint(text).status == "error"
