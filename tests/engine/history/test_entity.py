"""Every version of one entity: who made it, through merges and renames, and what it costs."""

from __future__ import annotations

import json
import random

import pytest

from omnigraph import Graph
from omnigraph.engine.history import entity
from omnigraph.errors import InputError, NotFoundError

SCHEMA = """
node P { k: String @key  v: I32?  s: String?  b: Blob?  e: Vector(2)?  t: [String]? }
node Q { k: String @key }
edge E: P -> Q { w: F64? }
"""


def load(graph, *records, mode="merge", **options):
    return graph.load("\n".join(map(json.dumps, records)), mode=mode, **options).commit


def p(key, **data):
    return {"type": "P", "data": {"k": key, **data}}


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="process") as graph:
        yield graph


def test_an_entity_tells_its_versions_newest_first(graph):
    load(graph, p("a", v=1), actor="act-1")
    load(graph, p("b"))
    load(graph, p("a", v=2), actor="act-2")
    graph.mutate('query q() { delete P where k = "a" }', actor="act-3")
    load(graph, p("a", v=3), actor="act-4")
    versions = graph.entity_history("node", "P", "a")
    assert [(one.op, one.commit.actor_id) for one in versions] == [
        ("insert", "act-4"),
        ("delete", "act-3"),
        ("update", "act-2"),
        ("insert", "act-1"),
    ]
    assert [one.image and one.image.properties["v"] for one in versions] == [3, None, 2, 1]
    with pytest.raises(NotFoundError):
        graph.entity_history("node", "P", "nobody")
    with pytest.raises(NotFoundError):
        graph.entity_history("node", "Nothing", "a")
    with pytest.raises(InputError):
        graph.entity_history("thing", "P", "a")


def blamed(graph, key, branch="main"):
    versions = graph.entity_history("node", "P", key, branch=branch)
    return [(one.op, one.commit.actor_id) for one in versions]


def test_a_value_that_is_no_number_is_the_same_in_every_commit(tmp_path):
    text = "node P { k: String @key  f: F64?  e: [F64]? }"
    with Graph.init(tmp_path / "g", text, durability="process") as graph:
        load(graph, p("a", f="NaN", e=["NaN", 1.0]), actor="ada")
        for key in "bcd":
            load(graph, p(key), actor="bob")
        load(graph, p("a", f="NaN", e=["NaN", 2.0]), actor="cyd")
        assert blamed(graph, "a") == [("update", "cyd"), ("insert", "ada")]


def test_blame_names_the_author_and_not_who_merged(graph):
    load(graph, p("old", v=1), actor="ada")
    load(graph, p("gone", v=1), actor="ada")
    graph.create_branch("side")
    load(graph, p("new", v=5), branch="side", actor="carol")
    load(graph, p("new", v=6), branch="side", actor="dave")
    load(graph, p("old", v=2), branch="side", actor="eve")
    graph.mutate('query q() { delete P where k = "gone" }', branch="side", actor="eve")
    load(graph, p("own", v=1), actor="bob")
    graph.create_branch("top", "side")
    graph.merge("top", actor="boss")
    assert blamed(graph, "new") == [("update", "dave"), ("insert", "carol")]
    assert blamed(graph, "old") == [("update", "eve"), ("insert", "ada")]
    assert blamed(graph, "gone") == [("delete", "eve"), ("insert", "ada")]
    assert blamed(graph, "own") == [("insert", "bob")]
    graph.merge("main", into="side", actor="boss")
    assert blamed(graph, "own", "side") == [("insert", "bob")]
    assert blamed(graph, "new", "side") == [("update", "dave"), ("insert", "carol")]


def test_blame_names_who_merged_if_the_merge_made_the_version(graph):
    load(graph, p("a", v=0, s="old"), actor="ada")
    graph.create_branch("side")
    load(graph, p("a", v=1, s="old"), branch="side", actor="carol")
    load(graph, p("a", v=0, s="new"), actor="bob")
    graph.merge("side", strategy="property", actor="boss")
    assert blamed(graph, "a") == [("update", "boss"), ("update", "bob"), ("insert", "ada")]


def test_blame_names_who_merged_if_the_author_is_not_kept(graph):
    load(graph, p("a", v=0), actor="ada")
    graph.create_branch("side")
    load(graph, p("a", v=1), branch="side", actor="carol")
    load(graph, p("b"), actor="bob")
    graph.merge("side", actor="boss", delete_branch=True)
    assert blamed(graph, "a") == [("update", "boss"), ("insert", "ada")]


def test_blame_ends_where_a_hard_drop_took_the_past(graph):
    load(graph, p("a", v=1), actor="ada")
    graph.apply_schema(SCHEMA.replace("  v: I32?", ""), allow_data_loss=True, actor="boss")
    load(graph, p("a", s="x"), actor="cyd")
    assert blamed(graph, "a") == [("update", "cyd")]


def test_blame_goes_on_through_a_rename(graph):
    load(graph, p("a", v=1), actor="act-1")
    graph.apply_schema(
        SCHEMA.replace("node P {", 'node R @rename_from("P") {').replace("P -> Q", "R -> Q")
    )
    load(graph, {"type": "R", "data": {"k": "a", "v": 2}}, actor="act-2")
    versions = graph.entity_history("node", "R", "a")
    assert [one.commit.actor_id for one in versions] == ["act-2", "act-1"]


# --- leaping over commits --------------------------------------------------------------------


def some_step(graph, chance, number):
    """One commit, or a piece of maintenance, on one of two branches."""
    branch, other = chance.sample(["main", "side"], 2)
    key = chance.choice("abcdef")
    step = chance.choice(["load"] * 4 + ["delete"] * 3 + ["merge", "optimize", "overwrite"])
    match step:
        case "load":
            load(
                graph, p(key, v=number), p(chance.choice("xyz")), branch=branch, actor=f"n{number}"
            )
        case "delete":
            graph.mutate(f'query q() {{ delete P where k = "{key}" }}', branch=branch, actor=key)
        case "merge":
            graph.merge(other, into=branch, strategy="theirs", actor=f"m{number}")
        case "optimize":
            graph.optimize()
        case "overwrite":
            load(graph, p(key, v=number), mode="overwrite", branch=branch, actor=f"o{number}")


def told(graph, key, branch):
    try:
        return graph.entity_history("node", "P", key, branch=branch)
    except NotFoundError as cause:
        return cause.message


@pytest.mark.parametrize("seed", range(8))
def test_a_leap_finds_what_single_steps_find(graph, seed, monkeypatch):
    chance = random.Random(seed)
    load(graph, p("a", v=0))
    graph.create_branch("side")
    for number in range(1, 40):
        some_step(graph, chance, number)
        if number == 20 and seed % 2:
            graph.delete_branch("side", force=True)
            graph.apply_schema(SCHEMA.replace("s: String?", "s: String?  d: I32?"))
            graph.create_branch("side")
    if seed % 3 == 0:
        graph.cleanup(keep_versions=chance.randrange(1, 20))
    asked = [(key, branch) for key in "abcdefxyz" for branch in ("main", "side")]
    leapt = {one: told(graph, *one) for one in asked}
    monkeypatch.setattr(entity, "_leapt", lambda core, here, entity_id: here)
    assert {one: told(graph, *one) for one in asked} == leapt


def test_a_schema_change_is_nobodys_version_of_an_entity(graph):
    load(graph, p("a", v=1), actor="ada")
    graph.apply_schema(SCHEMA.replace("s: String?", "s: String?  d: I32 @default(3)"), actor="boss")
    for number in range(5):
        load(graph, p(f"n{number}"))
    assert blamed(graph, "a") == [("insert", "ada")]
    load(graph, p("a", v=1, d=4), actor="cyd")
    assert blamed(graph, "a") == [("update", "cyd"), ("insert", "ada")]


def test_blame_knows_a_dropped_type_from_a_later_one_of_its_name(graph):
    load(graph, p("a", v=1), actor="ada")
    graph.apply_schema("node X { k: String @key }", actor="boss")
    assert blamed(graph, "a") == [("delete", "boss"), ("insert", "ada")]
    graph.apply_schema(SCHEMA, actor="boss")
    load(graph, p("a", v=2), actor="cyd")
    assert blamed(graph, "a") == [("insert", "cyd")]


@pytest.mark.parametrize("deleted", [False, True])
def test_the_cost_follows_the_changes_and_not_the_commits(tmp_path, deleted):
    scans = []
    with Graph.init(tmp_path / "g", SCHEMA, durability="process") as graph:
        load(graph, p("a", v=1))
        if deleted:
            graph.mutate('query q() { delete P where k = "a" }')
        for count in (20, 120):
            for number in range(count):
                load(graph, p(f"{count}-{number}"))
            graph.optimize()
            graph.entity_history("node", "P", "a")
            meter = graph._core.store.tables.meter
            before = meter.total.scans
            assert len(graph.entity_history("node", "P", "a")) == 1 + deleted
            scans.append(meter.total.scans - before)
    # Each scan is a look at one version of the table.
    assert scans[1] <= scans[0] + 4
    assert scans[1] <= 16
