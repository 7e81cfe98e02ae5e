"""A schema belongs to a commit: each branch changes its own, and answers under it."""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext, suppress

import pytest

from omnigraph import Graph
from omnigraph.engine import evolve
from omnigraph.errors import ConstraintViolationError, NotFoundError, OmnigraphError
from omnigraph.model.ports import World
from omnigraph.model.steps import Step

OLD = """
node Person { name: String @key  age: I32?  city: String? }
node Pet { name: String @key }
edge Owns: Person -> Pet { since: I32? }
"""
DATA = [
    {"type": "Person", "data": {"name": "ada", "age": 36, "city": "Ulm"}},
    {"type": "Person", "data": {"name": "bob"}},
    {"type": "Pet", "data": {"name": "rex"}},
    {"edge": "Owns", "from": "ada", "to": "rex", "data": {"id": "o1", "since": 3}},
]
NEW = """
node Human @rename_from("Person") {
  name: String @key  years: I64? @rename_from("age")  rank: I32 @default(7)
}
node Pet { name: String @key }
node Toy { name: String @key }
edge Owns: Human -> Pet { since: I32?  until: I32? }
"""


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", OLD, durability="process") as graph:
        graph.load("\n".join(map(json.dumps, DATA)), mode="append")
        graph.create_branch("side")
        yield graph


def nodes(graph, type_name, **target):
    lines = map(json.loads, graph.export(types=[type_name], **target))
    return {line["data"]["id"]: line["data"] for line in lines}


def everything(graph, **target):
    return sorted(graph.export(**target))


def test_a_branch_has_a_schema_of_its_own(graph):
    before, main = graph.snapshot("side"), everything(graph)
    result = graph.apply_schema(NEW, branch="side", actor="act-x", message="people are human")
    assert (result.commit.graph_branch, result.commit.actor_id) == ("side", "act-x")
    assert result.commit.message == "people are human"
    assert graph.commits("side")[0] == result.commit
    assert (graph.schema_source(), graph.schema_source("side")) == (OLD, NEW)
    assert everything(graph) == main
    assert everything(graph, snapshot=before.graph_commit_id) == main
    assert nodes(graph, "Human", branch="side")["ada"] == {
        "id": "ada",
        "name": "ada",
        "years": 36,
        "rank": 7,
    }
    old = graph.query("query q() { match { $p: Person } return { $p.city } order { $p.name } }")
    assert old.to_pylist() == [{"p.city": "Ulm"}, {"p.city": None}]
    new = "query q() { match { $h: Human $h owns $p } return { $h.years, $p.name } }"
    assert graph.query(new, branch="side").to_pylist() == [{"h.years": 36, "p.name": "rex"}]
    assert graph.lint(new).status == "error"
    assert graph.lint(new, "side").status == "ok"
    with pytest.raises(OmnigraphError):
        graph.query(new)


def test_a_plan_is_of_the_branch(graph):
    graph.apply_schema(NEW, branch="side")
    assert not graph.plan_schema(NEW, branch="side").steps
    assert graph.plan_schema(NEW).steps
    again = graph.apply_schema(NEW, branch="side")
    assert (again.applied, again.commit) == (False, None)
    with pytest.raises(NotFoundError):
        graph.plan_schema(OLD, branch="nowhere")


def test_only_the_tables_that_change_are_forked(graph):
    graph.apply_schema(OLD.replace("city: String?", "city: String?  mail: String?"), branch="side")
    main, side = graph.snapshot(), graph.snapshot("side")
    assert main.entries["node:Pet"] == side.entries["node:Pet"]
    assert side.entries["node:Person"].branch is not None
    assert side.entries["node:Person"].location == main.entries["node:Person"].location


def test_all_writers_work_under_the_schema_of_their_branch(graph):
    graph.apply_schema(NEW, branch="side")
    graph.mutate('query q() { insert Human { name: "eve", years: 5 } }', branch="side")
    graph.load('{"type":"Toy","data":{"name":"ball"}}', mode="merge", branch="side")
    graph.load('{"type":"Person","data":{"name":"fay","city":"Bonn"}}', mode="append")
    graph.optimize("side")
    graph.ensure_indices("side")
    graph.create_branch("child", "side")
    graph.mutate('query q() { update Human set { rank: 1 } where name = "eve" }', branch="child")
    assert graph.merge("child", into="side").outcome == "fast_forward"
    assert nodes(graph, "Human", branch="side")["eve"]["rank"] == 1
    assert nodes(graph, "Toy", branch="side").keys() == {"ball"}
    assert nodes(graph, "Person").keys() == {"ada", "bob", "fay"}
    graph.cleanup(keep_versions=1)
    assert nodes(graph, "Human", branch="side").keys() == {"ada", "bob", "eve"}


def test_main_may_change_its_schema_under_a_branch(graph):
    graph.mutate('query q() { insert Person { name: "eve", city: "Rom" } }', branch="side")
    graph.apply_schema(NEW)
    assert nodes(graph, "Person", branch="side")["eve"]["city"] == "Rom"
    assert nodes(graph, "Person", branch="side")["ada"]["city"] == "Ulm"
    graph.mutate('query q() { insert Pet { name: "tom" } }', branch="side")
    assert nodes(graph, "Human").keys() == {"ada", "bob"}


def test_a_type_that_two_branches_add_has_two_tables(graph):
    text = OLD + "node Toy { name: String @key }"
    graph.create_branch("other")
    for branch in ("main", "side", "other"):
        graph.apply_schema(text, branch=branch)
        graph.load(f'{{"type":"Toy","data":{{"name":"{branch}"}}}}', mode="append", branch=branch)
    snapshots = [graph.snapshot(branch) for branch in ("main", "side", "other")]
    assert len({one.entries["node:Toy"].location for one in snapshots}) == 3
    for branch in ("main", "side", "other"):
        assert nodes(graph, "Toy", branch=branch).keys() == {branch}


def test_a_new_constraint_is_checked_against_the_rows_of_the_branch(graph):
    text = OLD.replace("city: String?", "city: String? @unique")
    graph.mutate('query q() { insert Person { name: "eve", city: "Ulm" } }', branch="side")
    with pytest.raises(ConstraintViolationError):
        graph.apply_schema(text, branch="side")
    assert graph.apply_schema(text).applied


# --- drops with their past ------------------------------------------------------------------------

WITHOUT = """
node Person { name: String @key  age: I32? }
"""


@pytest.mark.parametrize("on", ["main", "side"])
def test_a_hard_drop_takes_nothing_that_another_branch_shows(graph, on):
    other = {"main": "side", "side": "main"}[on]
    graph.mutate('query q() { insert Pet { name: "tom" } }', branch="side")
    graph.mutate('query q() { update Person set { city: "Bonn" } where name = "ada" }')
    before = everything(graph, branch=other)
    graph.apply_schema(WITHOUT, allow_data_loss=True, branch=on)
    assert nodes(graph, "Person", branch=on)["ada"] == {"id": "ada", "name": "ada", "age": 36}
    assert everything(graph, branch=other) == before
    graph.mutate('query q() { insert Pet { name: "uli" } }', branch=other)
    graph.cleanup(keep_versions=1)
    assert len(everything(graph, branch=other)) == len(before) + 1
    graph.apply_schema(WITHOUT, allow_data_loss=True, branch=other)
    assert not [line for line in everything(graph, branch=other) if "Ulm" in line]


def test_a_hard_drop_on_a_branch_takes_what_only_it_had(graph):
    graph.apply_schema(OLD + "node Toy { name: String @key }", branch="side")
    graph.load('{"type":"Toy","data":{"name":"ball"}}', mode="append", branch="side")
    with_toy = graph.snapshot("side").graph_commit_id
    graph.apply_schema(OLD, allow_data_loss=True, branch="side")
    assert len(everything(graph, branch="side")) == len(DATA)
    with pytest.raises(NotFoundError):
        everything(graph, snapshot=with_toy)


def test_a_branch_with_types_of_its_own_goes_without_a_trace(graph, tmp_path):
    graph.apply_schema(OLD + "node Toy { name: String @key }", branch="side")
    graph.load('{"type":"Toy","data":{"name":"ball"}}', mode="append", branch="side")
    location = graph.snapshot("side").entries["node:Toy"].location
    graph.delete_branch("side", force=True)
    graph.cleanup(keep_versions=1)
    assert not [one for one in (tmp_path / "g.omni" / location).rglob("*") if one.is_file()]


def deleted_by_force(graph, how):
    """A branch that needs what main drops, deleted: with main's tables, or with some of its own."""
    if how == "own tables":
        graph.mutate('query q() { insert Pet { name: "tom" } }', branch="side")
        graph.mutate(
            'query q() { update Person set { city: "Bonn" } where name = "ada" }', branch="side"
        )
    else:
        graph.apply_schema(OLD + "node Toy { name: String @key }", branch="side")
    found = everything(graph, branch="side")
    graph.delete_branch("side", force=True)
    return found


@pytest.mark.parametrize("how", ["own tables", "mains tables"])
def test_a_branch_that_was_deleted_by_force_comes_back_whole_after_a_hard_drop(graph, how):
    before = deleted_by_force(graph, how)
    graph.mutate('query q() { insert Pet { name: "uli" } }')
    graph.mutate('query q() { update Person set { city: "Rom" } where name = "ada" }')
    graph.apply_schema(WITHOUT, allow_data_loss=True)
    with Graph.open(graph.uri) as again:
        again.restore_branch("side")
        assert everything(again, branch="side") == before
        again.mutate('query q() { insert Pet { name: "max" } }', branch="side")
        assert again.merge("main", into="side").outcome == "merged"
        assert again.verify(deep=True).problems == ()


def test_the_base_of_a_merge_is_there_after_a_hard_drop_of_one_side(graph):
    graph.mutate('query q() { update Person set { age: 40 } where name = "ada" }')
    graph.mutate('query q() { insert Person { name: "eve" } }', branch="side")
    graph.mutate('query q() { delete Person where name = "bob" }', branch="side")
    graph.apply_schema(OLD.replace("city: String?", ""), allow_data_loss=True)
    assert graph.merge("side").outcome == "merged"
    found = {name: row.get("age") for name, row in nodes(graph, "Person").items()}
    assert found == {"ada": 40, "eve": None}


@pytest.mark.parametrize("act", [("restore_branch", "side"), ("create_tag", "late", "main~1")])
def test_nobody_names_anything_old_while_a_hard_drop_looks_and_takes(graph, act, monkeypatch):
    before, done, look = deleted_by_force(graph, "own tables"), [], evolve.survey

    def name():
        with Graph.open(graph.uri) as other:
            done.append(getattr(other, act[0])(*act[1:]))

    thread = threading.Thread(target=name)

    def looking(core, policy):
        thread.start()
        thread.join(0.5)
        assert not done
        return look(core, policy)

    monkeypatch.setattr(evolve, "survey", looking)
    graph.apply_schema(WITHOUT, allow_data_loss=True)
    thread.join()
    assert len(done) == 1
    if act[0] == "restore_branch":
        graph.refresh()
        assert everything(graph, branch="side") == before


# --- several writers ------------------------------------------------------------------------------


def test_two_branches_apply_at_once(graph):
    failures = []

    def apply(branch):
        try:
            with Graph.open(graph.uri, durability="process") as own:
                own.apply_schema(NEW, branch=branch)
        except OmnigraphError as cause:
            failures.append(cause)

    threads = [threading.Thread(target=apply, args=(one,)) for one in ("main", "side")]
    for one in threads:
        one.start()
    for one in threads:
        one.join(120)
    assert not failures
    graph.load('{"type":"Toy","data":{"name":"ball"}}', mode="append", branch="side")
    assert nodes(graph, "Human") == nodes(graph, "Human", branch="side")
    assert (nodes(graph, "Toy"), len(nodes(graph, "Toy", branch="side"))) == ({}, 1)


class Meddling:
    """Does a deed of somebody else's once, when a write of the branch is staged."""

    def __init__(self, deed):
        self.deed, self.done = deed, False

    def reach(self, step):
        if step is Step.WRITE_STAGED and not self.done:
            self.done = True
            self.deed()


AFTER = [
    (lambda own: own.mutate('query q() { insert Pet { name: "tom" } }', branch="side"), {"Pet": 2}),
    (
        lambda own: own.mutate(
            'query q() { update Person set { age: 1 } where name = "bob" }', branch="side"
        ),
        None,
    ),
    (
        lambda own: own.load(
            '{"type":"Person","data":{"name":"eve","city":"x"}}', mode="merge", branch="side"
        ),
        None,
    ),
    (lambda own: own.optimize("side"), None),
    (lambda own: own.merge("work", into="side"), None),
]


@pytest.mark.parametrize(("act", "counts"), AFTER)
def test_a_write_that_meets_an_apply_is_made_again_or_refused(graph, act, counts):
    """Rows never end in columns that they were not made for."""
    for name in ("u1", "u2", "u3"):
        graph.load(f'{{"type":"Person","data":{{"name":"{name}"}}}}', mode="append", branch="side")
    graph.create_branch("work", "side")
    graph.mutate('query q() { insert Person { name: "zoe", city: "Rom" } }', branch="work")
    text = NEW.replace("rank: I32 @default(7)", "rank: I32 @default(7)  city: I32? @default(5)")
    before = nodes(graph, "Person", branch="side")
    steps = Meddling(lambda: [graph.apply_schema(one, branch="side") for one in (NEW, text)])
    with (
        Graph.open(graph.uri, world=World(steps=steps, durability="process")) as own,
        nullcontext() if counts else suppress(OmnigraphError),
    ):
        act(own)
    assert steps.done
    found = nodes(graph, "Human", branch="side")
    assert found.keys() >= before.keys()
    for key, row in found.items():
        assert (row["city"], row["rank"], row["years"]) == (5, 7, before.get(key, {}).get("age"))
    for name, count in (counts or {}).items():
        assert len(nodes(graph, name, branch="side")) == count
