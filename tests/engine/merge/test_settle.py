"""Conflicts that say everything, and resolutions that settle them one by one."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from merge_world import MergeWorld, edge, p

from omnigraph.errors import (
    ConstraintViolationError,
    IdempotencyKeyReusedError,
    InputError,
    MergeConflictsError,
)

SCHEMA = """
node P {
    k: String @key
    a: I32?
    b: String?
    day: Date?
    at: DateTime?
    spot: Vector(2)?
    pic: Blob?
    tags: [String]?
    n: I32 @default(0)
    mail: String? @unique
    @range(n, 0..100)
}
edge E: P -> P { w: F64? }
"""


@pytest.fixture
def world(tmp_path):
    world = MergeWorld(str(tmp_path / "g.omni"), SCHEMA, maintenance=None)
    with world.graph:
        yield world


def diverged(world, base=(), ours=(), theirs=()):
    """A branch `side` and main that went on from the same records, each with its own."""
    world.load("main", p("other"), *base)
    world.graph.create_branch("side")
    if theirs:
        world.load("side", *theirs)
    if ours:
        world.load("main", *ours)


def conflict(world, **how):
    (found,) = world.graph.merge_preview("side", **how).conflicts
    return found


# --- what a conflict says ---


def test_a_conflict_says_property_base_ours_and_theirs(world):
    diverged(world, [p("x", a=1, b="b")], [p("x", a=2, b="b")], [p("x", a=3, b="b")])
    found = conflict(world)
    assert found.properties == [("a", 1, 2, 3)]
    assert (found.property, found.base, found.ours, found.theirs) == ("a", 1, 2, 3)
    assert found.to_json()["properties"] == [{"property": "a", "base": 1, "ours": 2, "theirs": 3}]
    with pytest.raises(MergeConflictsError) as error:
        world.graph.merge("side")
    assert list(error.value.conflicts) == [found]


def test_one_conflict_an_entity_lists_all_its_properties_in_the_order_of_the_schema(world):
    diverged(
        world,
        [p("x", a=1, b="b", n=1)],
        [p("x", a=2, b="o", n=2)],
        [p("x", a=3, b="t", n=1)],
    )
    # `n` was changed by one side only.
    assert conflict(world).properties == [("a", 1, 2, 3), ("b", "b", "o", "t")]


def test_where_each_side_changed_other_properties_all_of_them_are_told(world):
    diverged(world, [p("x", a=1, b="b")], [p("x", a=2, b="b")], [p("x", a=1, b="t")])
    assert conflict(world).properties == [("a", 1, 2, 1), ("b", "b", "b", "t")]
    assert world.graph.merge_preview("side", strategy="property").conflicts == ()


def test_what_both_made_has_no_base(world):
    diverged(world, ours=[p("x", a=1, b="o")], theirs=[p("x", a=1)])
    found = conflict(world)
    assert (found.kind, found.properties) == ("divergent_insert", [("b", None, "o", None)])


@pytest.mark.parametrize("deleter", ["ours", "theirs"])
def test_of_a_deleted_entity_the_other_side_s_changes_are_told(world, deleter):
    diverged(world, [p("x", a=1, b="b")])
    branches = {"ours": "main", "theirs": "side"}
    world.drop(branches.pop(deleter), "x")
    world.load(*branches.values(), p("x", a=2, b="b"))
    found = conflict(world)
    values = {"ours": 2, "theirs": 2, deleter: None}
    assert found.properties == [("a", 1, values["ours"], values["theirs"])]
    assert (found.kind, found.deleted_by) == ("delete_vs_update", deleter)


def test_values_are_such_that_json_can_hold_them(world):
    diverged(
        world,
        [p("x", day="2020-01-01", at="2020-01-01T00:00:00Z", spot=[0, 1], tags=["a"])],
        [p("x", day="2020-01-02", at="2020-01-02T00:00:00Z", spot=[0, 2], pic="base64:AQI=")],
        [p("x", day="2020-01-03", at=None, spot=[0, 3], tags=["b"], pic="base64:AQM=")],
    )
    found = {one.property: one[1:] for one in conflict(world).properties}
    assert found["day"] == ("2020-01-01", "2020-01-02", "2020-01-03")
    assert found["at"] == ("2020-01-01T00:00:00.000Z", "2020-01-02T00:00:00.000Z", None)
    assert found["spot"] == ([0, 1], [0, 2], [0, 3])
    assert found["tags"] == (["a"], None, ["b"])
    assert [one and one["size"] for one in found["pic"]] == [None, 2, 2]
    assert found["pic"][1]["sha256"] != found["pic"][2]["sha256"]
    json.dumps(conflict(world).to_json())


def test_the_ends_of_an_edge_are_from_and_to(world):
    diverged(
        world,
        [p("x"), edge("e", "x", "other")],
        [edge("e", "x", "x")],
        [edge("e", "other", "other")],
    )
    assert conflict(world).properties == [
        ("from", "x", "x", "other"),
        ("to", "other", "x", "other"),
    ]
    done = {"from": "other", "to": "x"}
    world.graph.merge("side", resolutions={("edge:E", "e"): done})
    (line,) = map(json.loads, world.graph.export(types=["E"]))
    assert (line["from"], line["to"]) == ("other", "x")


def test_a_broken_rule_has_no_properties(world):
    diverged(world, [], [p("x", mail="m")], [p("y", mail="m")])
    found = conflict(world)
    assert (found.kind, found.properties, found.property) == ("unique_violation", [], None)
    assert (found.base, found.ours, found.theirs, found.deleted_by) == (None, None, None, None)


# --- resolutions ---


def clash(world):
    """x: both changed a and b, they also n. y: a each. z: they deleted what we changed."""
    diverged(world, [p("x", a=1, b="b", n=1), p("y", a=1), p("z", a=1)])
    world.load("side", p("x", a=3, b="t", n=3), p("y", a=3))
    world.drop("side", "z")
    world.load("main", p("x", a=2, b="o", n=1), p("y", a=2), p("z", a=2))


def merged(world, resolutions, **how):
    plan = world.graph.merge_preview("side", resolutions=resolutions, **how)
    assert plan.conflicts == ()
    done = world.graph.merge("side", resolutions=resolutions, **how)
    assert done.changes == plan.changes
    rows = world.all()
    return {key: tuple(rows[key][name] for name in "abn") if key in rows else None for key in "xyz"}


@pytest.mark.parametrize(
    ("decisions", "found"),
    [
        (("ours", "ours", "ours"), {"x": (2, "o", 1), "y": (2, None, 0), "z": (2, None, 0)}),
        (("theirs", "theirs", "theirs"), {"x": (3, "t", 3), "y": (3, None, 0), "z": None}),
        (
            ({"a": 40, "b": "new"}, {"a": None}, "ours"),
            {"x": (40, "new", 3), "y": (None, None, 0), "z": (2, None, 0)},
        ),
        (
            ({"a": {"take": "theirs"}, "b": {"take": "ours"}, "n": 7}, "theirs", "theirs"),
            {"x": (3, "o", 7), "y": (3, None, 0), "z": None},
        ),
    ],
)
def test_each_entity_is_settled_as_was_decided(world, decisions, found):
    clash(world)
    keys = [("node:P", key) for key in "xyz"]
    assert merged(world, dict(zip(keys, decisions, strict=True))) == found


@pytest.mark.parametrize(
    ("strategy", "found"),
    [
        ("ours", {"x": (40, "o", 3), "y": (2, None, 0), "z": (2, None, 0)}),
        ("theirs", {"x": (40, "t", 3), "y": (3, None, 0), "z": None}),
    ],
)
def test_a_resolution_counts_more_than_the_strategy_which_settles_the_rest(world, strategy, found):
    clash(world)
    assert merged(world, {("node:P", "x"): {"a": 40}}, strategy=strategy) == found


def test_a_property_that_both_changed_and_nobody_decided_stays_a_conflict(world):
    clash(world)
    decided = {("node:P", "y"): "ours", ("node:P", "z"): "ours"}
    for values, left in (({"a": 40}, ["b"]), ({"n": 7}, ["a", "b"]), ({}, ["a", "b"])):
        how = {"resolutions": {("node:P", "x"): values, **decided}}
        assert [one.property for one in conflict(world, **how).properties] == left
        with pytest.raises(MergeConflictsError):
            world.graph.merge("side", **how)
    assert world.all()["x"]["a"] == 2


def test_no_values_at_all_merge_what_each_side_changed(world):
    diverged(world, [p("x", a=1, b="b")], [p("x", a=2, b="b")], [p("x", a=1, b="t")])
    world.graph.merge("side", resolutions={("node:P", "x"): {}})
    assert (world.all()["x"]["a"], world.all()["x"]["b"]) == (2, "t")


def test_every_kind_of_value_can_be_given_as_loads_take_it(world):
    base = p("x", day="2020-01-01")
    diverged(world, [base], [p("x", day="2020-01-02")], [p("x", day="2020-01-03")])
    values = {
        "day": "2021-01-01",
        "at": "2020-01-01T01:00:00+01:00",
        "spot": [1, 2],
        "pic": "base64:AQI=",
        "tags": ["p", "q"],
    }
    world.graph.merge("side", resolutions={("node:P", "x"): values})
    found = world.all()["x"]
    assert (found["day"], found["at"]) == ("2021-01-01", "2020-01-01T00:00:00.000Z")
    assert (found["spot"], found["tags"]) == ([1, 2], ["p", "q"])
    assert world.graph.read_blob("node", "P", "x", "pic").read_range(0, 2) == b"\x01\x02"


NAMES = "names are those of the merged schema; a preview of the merge shows them"


@pytest.mark.parametrize(
    ("resolutions", "words", "hint"),
    [
        ({("node:P", "xx"): "ours"}, "node P 'xx', which is in no conflict", "did you mean 'x'?"),
        ({("node:P", "other"): "ours"}, "'other', which is in no conflict", None),
        ({("node:Q", "x"): "ours"}, "there is no such type", "did you mean 'node:P'?"),
        ({("node:P", "x"): {"tag": 1}}, "sets 'tag', which it does not", "did you mean 'tags'?"),
        ({("node:P", "x"): {"k": "y"}}, "sets 'k', which is its key", None),
        ({("node:P", "x"): {"id": "y"}}, "sets 'id', which is its key", None),
        ({("node:P", "z"): {"a": 1}}, "one side deleted node P 'z'", 'say "ours" or "theirs"'),
        ({("node:P", "x"): "mine"}, "must be 'ours', 'theirs' or values by property", None),
        ({("node:P", "x"): None}, "must be 'ours', 'theirs' or values by property", None),
        ({("node:P", "x"): np.arange(2)}, "must be 'ours', 'theirs' or values by prop", None),
        ({("P", "x"): "ours"}, "there is no such type", NAMES),
        ({"x": "ours"}, "a pair of texts", None),
        ({("node:P", 7): "ours"}, "a pair of texts", None),
        ([("node:P", "x")], "must be a mapping", None),
    ],
)
def test_a_resolution_that_settles_nothing_is_refused(world, resolutions, words, hint):
    clash(world)
    for act in (world.graph.merge, world.graph.merge_preview):
        with pytest.raises(InputError) as error:
            act("side", resolutions=resolutions)
        assert words in error.value.message
        assert hint is None or error.value.hint == hint
    assert world.all()["x"]["a"] == 2


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"a": "text"}, "field 'a' expects"),
        ({"a": 2**40}, "field 'a'"),
        ({"day": "2020-13-01"}, "no day of the calendar"),
        ({"spot": [1]}, "field 'spot'"),
        ({"n": None}, "non-nullable property 'n'"),
        ({"a": {"take": "mine"}}, "field 'a'"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_as_by_a_load(world, values, words):
    clash(world)
    for act in (world.graph.merge, world.graph.merge_preview):
        with pytest.raises(ConstraintViolationError, match=words) as error:
            act("side", resolutions={("node:P", "x"): values})
        assert error.value.message.startswith("the resolution of node P 'x': P: ")
        assert [one.ids for one in error.value.violations] == [("x",)]


def test_rules_are_checked_with_the_values_that_were_given(world):
    diverged(world, [p("x", a=1), p("y", mail="m")], [p("x", a=2), p("y", mail="m")], [p("x", a=3)])
    for values, kind in (
        ({"a": 1, "n": 101}, "value_constraint_violation"),
        ({"a": 1, "mail": "m"}, "unique_violation"),
    ):
        found = conflict(world, resolutions={("node:P", "x"): values})
        assert found.kind == kind


def test_up_to_date_branches_have_no_use_for_resolutions_and_take_them(world):
    clash(world)
    how = {"resolutions": {("node:P", key): "ours" for key in "xyz"}}
    world.graph.merge("side", **how)
    assert world.graph.merge("side", **how).outcome == "already_up_to_date"


def test_a_request_with_other_resolutions_is_another_request(world):
    clash(world)
    how = {"resolutions": {("node:P", key): "ours" for key in "xyz"}, "idempotency_key": "once"}
    first = world.graph.merge("side", **how)
    again = world.graph.merge("side", **how)
    assert (again.commit, again.already_applied) == (first.commit, True)
    how["resolutions"] = how["resolutions"] | {("node:P", "x"): "theirs"}
    with pytest.raises(IdempotencyKeyReusedError):
        world.graph.merge("side", **how)


def test_what_the_bases_are_at_odds_about_can_be_decided(world):
    diverged(world, [p("x", a=0)])
    graph = world.graph
    world.load("main", p("x", a=1))
    world.load("side", p("x", a=2))
    graph.create_branch("old")
    graph.merge("side", strategy="ours")
    graph.merge("old", into="side", strategy="theirs")
    world.load("side", p("x", a=5))
    world.load("main", p("x", a=6))
    graph.merge("side", resolutions={("node:P", "x"): {"a": 9}})
    assert world.all()["x"]["a"] == 9


# --- against a plain model ---

NAMES = ("a", "b", "n")
VALUES = {"a": (None, 1, 2, 3), "b": (None, "p", "q"), "n": (0, 1, 2)}


def a_row(random):
    return {name: random.choice(VALUES[name]) for name in NAMES}


def modelled(base, ours, theirs, strategy, decision):
    """The merged row (None = deleted), or the open properties."""
    if decision is None and strategy in ("ours", "theirs"):
        decision = strategy
    if decision in ("ours", "theirs"):
        return ours if decision == "ours" else theirs
    if ours is None or theirs is None:
        return {"*"}
    if decision is None and strategy == "fail":
        return {"*"}
    row, left = {}, set()
    for name in NAMES:
        given = (decision or {}).get(name, "none")
        if given != "none":
            row[name] = given
        elif ours[name] == theirs[name] or (base and theirs[name] == base[name]):
            row[name] = ours[name]
        elif base and ours[name] == base[name]:
            row[name] = theirs[name]
        elif strategy in ("ours", "theirs"):
            row[name] = (ours if strategy == "ours" else theirs)[name]
        else:
            left.add(name)
    return left or row


@pytest.mark.parametrize("seed", range(12))
def test_merges_with_decisions_are_those_of_a_plain_model(world, seed):
    chance = random.Random(seed)
    strategy = chance.choice(["fail", "ours", "theirs", "property"])
    base, ours, theirs, decisions = {}, {}, {}, {}
    for number in range(12):
        key = f"e{number}"
        states = [a_row(chance) if chance.random() < 0.8 else None for _ in range(3)]
        base[key], ours[key], theirs[key] = states
    diverged(world, [p(key, **row) for key, row in base.items() if row])
    for branch, rows in (("main", ours), ("side", theirs)):
        world.load(branch, *(p(key, **row) for key, row in rows.items() if row))
        gone = [key for key, row in rows.items() if row is None and base[key]]
        if gone:
            world.drop(branch, *gone)
    expected, open_ones = {}, {}
    for key in base:
        states = base[key], ours[key], theirs[key]
        both = ours[key] != base[key] and theirs[key] != base[key] and ours[key] != theirs[key]
        if not both:
            expected[key] = theirs[key] if ours[key] == base[key] else ours[key]
            continue
        choices = ["ours", "theirs", None]
        if ours[key] and theirs[key]:
            choices += [{n: v for n, v in a_row(chance).items() if chance.random() < 0.6}] * 2
        decision = chance.choice(choices)
        if decision is not None:
            decisions["node:P", key] = decision
        found = modelled(*states, strategy, decision)
        if isinstance(found, set):
            open_ones[key] = found
        else:
            expected[key] = found
    plan = world.graph.merge_preview("side", strategy=strategy, resolutions=decisions)
    assert {one.entity_id for one in plan.conflicts} == open_ones.keys()
    for one in plan.conflicts:
        if open_ones[one.entity_id] != {"*"}:
            assert {each.property for each in one.properties} == open_ones[one.entity_id]
    if open_ones:
        decisions |= {("node:P", key): "theirs" for key in open_ones}
        expected |= {key: theirs[key] for key in open_ones}
    world.graph.merge("side", strategy=strategy, resolutions=decisions)
    rows = {key: {name: row[name] for name in NAMES} for key, row in world.all().items()}
    del rows["other"]
    assert rows == {key: row for key, row in expected.items() if row}
