"""New constraints are checked against all data first, and others may write meanwhile."""

from __future__ import annotations

import json
import threading

import pytest

from omnigraph import Graph
from omnigraph.errors import ConflictError, ConstraintViolationError, SchemaUnsupportedError
from omnigraph.model.ports import World
from omnigraph.model.steps import Step

OLD = """
node Person { name: String @key  age: I32?  mail: String?  team: String? }
edge Knows: Person -> Person
"""
DATA = [
    {"type": "Person", "data": {"name": "ada", "age": 36, "mail": "a@x", "team": "red"}},
    {"type": "Person", "data": {"name": "bob", "age": 200, "mail": "b@x", "team": "red"}},
    {"type": "Person", "data": {"name": "cyd", "mail": "nowhere"}},
    {"edge": "Knows", "from": "ada", "to": "bob"},
    {"edge": "Knows", "from": "ada", "to": "cyd"},
]


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", OLD, durability="process") as graph:
        graph.load("\n".join(map(json.dumps, DATA)), mode="append")
        yield graph


REFUSED = [
    ("@range(age, 0..150)", "", "@range violation on Person.age: value 200 > max 150"),
    ('@check(mail, "@")', "", "@check violation on Person.mail: value 'nowhere'"),
    ("@unique(team)", "", "@unique violation on Person.team: value 'red'"),
    ("", "@card(0..1)", "@card violation on edge Knows: source 'ada' has 2 edges (max 1)"),
    ("", "@card(3..)", "@card violation on edge Knows: source 'ada' has 2 edges (min 3)"),
    ("", "{ @unique(src) }", "@unique violation on Knows.src: value 'ada'"),
    ("level: I32 @default(7)\n @unique(level)", "", "@unique violation on Person.level"),
]
ACCEPTED = [
    ("@range(age, 0..200)", ""),
    ('@check(mail, "[a-z]")', ""),
    ("@unique(mail)", ""),
    ("@unique(team, age)", ""),
    ("@index(team)", ""),
    ("", "@card(0..2)"),
    ("", "@card(2..2)"),
    ("", "{ @unique(src, dst) }"),
    ("level: I32 @default(7)\n @range(level, 0..7)", ""),
]


def schema(inside, edge, old=OLD):
    text = old.replace("team: String? }", f"team: String?\n {inside} }}")
    return text.replace("Person -> Person", f"Person -> Person {edge}")


@pytest.mark.parametrize(("inside", "edge", "message"), REFUSED)
def test_data_that_breaks_a_new_constraint_refuses_it(graph, inside, edge, message):
    before = graph.snapshot()
    with pytest.raises(ConstraintViolationError) as caught:
        graph.apply_schema(schema(inside, edge))
    assert message in str(caught.value)
    assert graph.snapshot() == before


@pytest.mark.parametrize(("inside", "edge"), ACCEPTED)
def test_data_that_obeys_a_new_constraint_takes_it(graph, inside, edge):
    text = schema(inside, edge)
    assert graph.apply_schema(text).applied
    assert graph.plan_schema(text).steps == ()


def test_a_new_constraint_is_checked_under_new_names_and_types(graph):
    text = schema("@range(years, 0..150)", "").replace(
        "age: I32?", 'years: I64? @rename_from("age")'
    )
    with pytest.raises(ConstraintViolationError, match=r"Person.years: value 200 > max 150"):
        graph.apply_schema(text)
    graph.mutate('query q() { update Person set { age: 20 } where name = "bob" }')
    graph.apply_schema(text)
    with pytest.raises(ConstraintViolationError):
        graph.mutate('query q() { update Person set { years: 151 } where name = "bob" }')


def test_a_constraint_that_is_removed_no_longer_holds(graph):
    graph.apply_schema(schema("@unique(mail)", ""))
    clash = 'query q() { insert Person { name: "dan", mail: "a@x" } }'
    with pytest.raises(ConstraintViolationError):
        graph.mutate(clash)
    graph.apply_schema(OLD)
    graph.mutate(clash)


def test_an_unsupported_plan_is_refused_with_its_code(graph):
    with pytest.raises(SchemaUnsupportedError, match=r"\[OG-MF-106\]"):
        graph.apply_schema(OLD.replace("age: I32?", "age: String?"))


def test_the_schema_that_is_there_is_never_refused(graph):
    graph.create_branch("b")
    for text in (OLD, f"// deployed again\n{OLD}"):
        result = graph.apply_schema(text)
        assert (result.applied, result.commit, result.steps) == (False, None, ())
    assert len(graph.commits()) == len(graph.commits("b"))


def test_a_branch_made_during_an_apply_keeps_the_schema_it_was_made_with(graph, meddled):
    steps, other = meddled
    steps.deed = lambda: graph.create_branch("late")
    text = schema("@index(team)", "")
    assert other.apply_schema(text).applied
    assert (graph.schema_source(), graph.schema_source("late")) == (text, OLD)


def test_a_branch_waits_for_an_apply_that_is_landing(graph):
    made = []

    def make():
        made.append(graph.create_branch("late"))

    class Landing:
        def reach(self, step):
            if step is Step.WRITE_LEASED and not made:
                thread = threading.Thread(target=make)
                threads.append(thread)
                thread.start()
                thread.join(0.3)
                made.append(None)

    threads = []
    with Graph.open(graph.uri, world=World(steps=Landing(), durability="process")) as applying:
        assert applying.apply_schema(schema("@index(team)", "")).applied
    threads[0].join(60)
    assert made[0] is None, "the branch was made while the schema was landing"
    assert graph.schema_source("late") == graph.schema_source()
    assert graph.merge("late").outcome == "already_up_to_date"


def test_a_write_in_between_is_in_the_evolved_table(graph, meddled):
    steps, other = meddled
    steps.deed = lambda: graph.mutate('query q() { insert Person { name: "dan", age: 1 } }')
    text = OLD.replace("age: I32?", "age: I64?  rank: I32 @default(3)")
    assert other.apply_schema(text).applied
    rows = {
        row["p.name"]: row["p.rank"]
        for row in other.query(
            "query q() { match { $p: Person } return { $p.name, $p.rank } }"
        ).to_pylist()
    }
    assert rows == dict.fromkeys(["ada", "bob", "cyd", "dan"], 3)


def test_a_write_in_between_that_breaks_the_new_constraint_refuses_it(graph, meddled):
    steps, other = meddled
    steps.deed = lambda: graph.mutate('query q() { insert Person { name: "dan", mail: "a@x" } }')
    with pytest.raises(ConstraintViolationError):
        other.apply_schema(schema("@unique(mail)", ""))


def test_another_schema_in_between_is_not_undone(graph, meddled):
    steps, other = meddled
    mine, theirs = schema("@index(team)", ""), schema("@index(mail)", "")
    steps.deed = lambda: graph.apply_schema(theirs)
    with pytest.raises(ConflictError, match="the schema changed"):
        other.apply_schema(mine)
    assert graph.schema_source() == theirs


def test_a_mutation_prepared_before_an_apply_is_prepared_again(graph, meddled):
    steps, other = meddled
    text = OLD.replace("team: String?", "team: String?  rank: I32 @default(9)")
    steps.deed = lambda: graph.apply_schema(text)
    other.mutate('query q() { insert Person { name: "dan" } }')
    found = other.query('query q() { match { $p: Person { name: "dan" } } return { $p.rank } }')
    assert found.to_pylist() == [{"p.rank": 9}]
