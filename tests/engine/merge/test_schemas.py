"""Merges of branches that changed the schema, each in its own way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import ConflictError, InputError, MergeConflictsError

BASE = """
node Person { k: String @key  age: I32?  note: String?  photo: Blob? }
node Old { k: String @key }
edge Knows: Person -> Person { w: I32? }
"""
OURS = """
node Human @rename_from("Person") {
    k: String @key
    years: I32? @rename_from("age")
    note: String? @description("free text")
    photo: Blob?
    nick: String?
}
node Old { k: String @key }
node City { k: String @key }
edge Knows: Human -> Human @card(0..9) { weight: I32? @rename_from("w") }
edge LivesIn: Human -> City
"""
THEIRS = """
node Person {
    k: String @key
    age: I64?
    note: String?
    photo: Blob?
    rank: I32 @default(7)
    @index(note)
}
node Team { k: String @key  size: I32? }
edge Knows: Person -> Person { w: I32?  since: Date? }
edge In: Person -> Team
"""


class World:
    """A graph with a branch `side`, as it was before both went on."""

    def __init__(self, uri: Path, schema: str = BASE) -> None:
        self.graph = Graph.init(uri, schema, durability="process", maintenance=None)
        self.load("main", *(node("Person", key, age=at) for at, key in enumerate("abc")))
        self.load("main", edge("Knows", "k1", "a", "b", w=1))
        self.graph.create_branch("side")

    def load(self, branch: str, *records: str) -> None:
        self.graph.load(list(records), mode="merge", branch=branch)

    def apply(self, branch: str, text: str) -> None:
        self.graph.apply_schema(text, branch=branch)

    def lines(self, branch: str) -> list[str]:
        return sorted(self.graph.export(branch=branch))

    def conflicts(self, source: str = "side", into: str = "main", **how: object) -> list:
        with pytest.raises(MergeConflictsError) as refused:
            self.graph.merge(source, into=into, **how)
        preview = self.graph.merge_preview(source, into=into, **how)
        assert list(preview.conflicts) == list(refused.value.conflicts)
        return list(refused.value.conflicts)


def node(kind: str, key: str, **data: object) -> str:
    return json.dumps({"type": kind, "data": {"k": key, **data}})


def edge(kind: str, id_: str, source: str, target: str, **data: object) -> str:
    return json.dumps({"edge": kind, "from": source, "to": target, "data": {"id": id_, **data}})


def both_went_on(world: World) -> None:
    world.apply("main", OURS)
    world.load(
        "main",
        node("Human", "d", years=4, nick="dd", photo="base64:YQ=="),
        node("City", "x"),
        edge("LivesIn", "l1", "d", "x"),
        edge("Knows", "k2", "d", "a", weight=5),
    )
    world.apply("side", THEIRS)
    world.load(
        "side",
        node("Person", "a", age=2**40, rank=1, note="from side"),
        node("Person", "e", age=1, photo="base64:Yg=="),
        node("Team", "t", size=3),
        edge("In", "i1", "e", "t"),
        edge("Knows", "k3", "e", "c", since="2024-01-02"),
    )
    world.graph.mutate('query q() { delete Person where k = "b" }', branch="side")


def test_two_long_lived_branches_become_one_whichever_is_merged_first(tmp_path):
    seen = []
    for at, ways in enumerate(
        ([("side", "main"), ("main", "side")], [("main", "side"), ("side", "main")])
    ):
        world = World(tmp_path / str(at))
        both_went_on(world)
        for source, into in ways:
            world.graph.merge(source, into=into)
        assert world.lines("main") == world.lines("side")
        main, side = (world.graph.schema_source(one) for one in ("main", "side"))
        assert world.graph.plan_schema(side, branch="main").steps == ()
        assert world.graph.plan_schema(main, branch="side").steps == ()
        assert world.graph.merge_preview("side").changes == {}
        seen.append(
            sorted(json.dumps(json.loads(one), sort_keys=True) for one in world.lines("main"))
        )
        world.graph.close()
    assert seen[0] == seen[1]
    data = {one["data"]["id"]: one["data"] for one in map(json.loads, seen[0])}
    assert set(data) == {"a", "c", "d", "e", "t", "x", "i1", "k2", "k3", "l1"}
    assert data["a"] == {
        "id": "a", "k": "a", "years": 2**40, "rank": 1, "note": "from side", "nick": None,
        "photo": None,
    }  # fmt: skip
    assert (data["d"]["rank"], data["d"]["photo"] is not None) == (7, True)
    assert data["k3"]["since"] == "2024-01-02"


def test_after_the_merge_both_branches_go_on_and_merge_again(world):
    both_went_on(world)
    world.graph.merge("side")
    world.graph.merge("main", into="side")
    world.load("side", node("Human", "n", years=1, rank=2), node("Team", "u"))
    world.apply(
        "main",
        world.graph.schema_source("main")
        .replace("nick:", "alias:")
        .replace("alias: String?", 'alias: String? @rename_from("nick")'),
    )
    world.load("main", node("Human", "d", years=9, alias="new"))
    result = world.graph.merge("side")
    assert {key: one.inserted for key, one in result.changes.items()} == {
        "node:Human": 1, "node:Team": 1,
    }  # fmt: skip
    names = [json.loads(one)["data"] for one in world.lines("main") if '"Human"' in one]
    assert {one["k"]: one["alias"] for one in names} == {
        "a": None, "c": None, "d": "new", "e": None, "n": None,
    }  # fmt: skip


def test_a_conflict_of_schemas_names_the_thing_and_both_steps_and_no_strategy_settles_it(world):
    world.apply("main", BASE.replace("age: I32?", 'years: I32? @rename_from("age")'))
    world.apply("side", BASE.replace("age: I32?", 'old: I32? @rename_from("age")'))
    head = world.graph.snapshot()
    for strategy in ("fail", "ours", "theirs", "property"):
        (found,) = world.conflicts(strategy=strategy)
        assert (found.kind, found.type_key, found.entity_id) == (
            "schema_conflict",
            "node:Person",
            None,
        )
        assert (found.step_ours.kind, found.step_ours.to) == ("rename_property", "years")
        assert (found.step_theirs.kind, found.step_theirs.to) == ("rename_property", "old")
        assert "no strategy settles" in found.message
        body = found.to_json()
        assert body["step_ours"]["to"] == "years"
        assert body["step_theirs"]["kind"] == "rename_property"
    assert world.graph.snapshot() == head
    # The way out is a commit.
    world.apply("side", BASE.replace("age: I32?", 'years: I32? @rename_from("old")'))
    assert world.graph.merge("side").outcome == "merged"


def test_a_side_that_only_changed_words_or_indexes_is_in_nobodys_way(world):
    world.apply("main", BASE.replace("note: String?", 'note: String? @description("x") @index'))
    world.load("side", node("Person", "a", age=77))
    world.graph.merge("main", into="side")
    assert "@index" in world.graph.schema_source("side")
    result = world.graph.merge("side")
    assert result.changes["node:Person"].updated == 1


@pytest.mark.parametrize(
    ("rule", "records", "kind"),
    [
        ("@unique(note)", [node("Person", one, note="n") for one in "ab"], "unique_violation"),
        ("@range(age, 0..10)", [node("Person", "a", age=11)], "value_constraint_violation"),
        ('@check(note, "^x")', [node("Person", "a", note="n")], "value_constraint_violation"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("rule_by", ["main", "side"])
def test_a_rule_of_one_side_holds_for_the_rows_of_the_other(world, rule, records, kind, rule_by):
    other = "side" if rule_by == "main" else "main"
    world.apply(rule_by, BASE.replace("photo: Blob?", f"photo: Blob? {rule}"))
    world.load(other, *records)
    for source, into in (("side", "main"), ("main", "side")):
        assert {one.kind for one in world.conflicts(source, into)} == {kind}


@pytest.mark.parametrize("rule_by", ["main", "side"])
def test_a_cardinality_of_one_side_holds_for_the_edges_of_the_other(world, rule_by):
    other = "side" if rule_by == "main" else "main"
    world.apply(rule_by, BASE.replace("Person -> Person", "Person -> Person @card(0..1)"))
    world.load(other, edge("Knows", "k9", "a", "c"))
    for source, into in (("side", "main"), ("main", "side")):
        (found,) = world.conflicts(source, into)
        assert (found.kind, found.entity_id) == ("cardinality_violation", "a")


def test_a_rule_that_both_sides_together_break_is_told_once_for_each_row(world):
    world.apply("side", BASE.replace("photo: Blob?", "photo: Blob? @unique(note)"))
    world.load("side", node("Person", "a", note="n"))
    world.load("main", node("Person", "b", note="n"))
    assert [one.kind for one in world.conflicts()] == ["unique_violation"]


def test_a_type_that_both_added_has_the_properties_of_both_and_rows_must_have_required_ones(world):
    world.apply("main", BASE + "node Tag { k: String @key  a: I32? }")
    world.apply("side", BASE + "node Tag { k: String @key  b: I32 }")
    world.load("side", node("Tag", "s", b=1))
    world.graph.merge_preview("side")
    world.load("main", node("Tag", "m", a=1))
    (found,) = world.conflicts()
    assert (found.kind, found.type_name) == ("value_constraint_violation", "Tag")
    world.graph.mutate('query q() { delete Tag where k = "m" }')
    world.graph.merge("side")
    assert '{"type":"Tag","data":{"id":"s","k":"s","a":null,"b":1}}' in world.lines("main")


def test_what_one_side_dropped_is_gone_with_its_data(world):
    world.apply(
        "side", BASE.replace("node Old { k: String @key }", "").replace("note: String?", "")
    )
    world.load("main", node("Old", "o"), node("Person", "a", age=1, note="new"))
    world.graph.merge("side")
    assert "note" not in world.graph.schema_source()
    assert not [one for one in world.lines("main") if "Old" in one or "note" in one]
    assert "node:Old" not in world.graph.snapshot().entries


def test_rows_in_conflict_are_compared_under_the_merged_schema(world):
    both_went_on(world)
    world.load("main", node("Human", "a", years=1))
    (found,) = world.conflicts()
    assert (found.kind, found.type_key, found.entity_id) == ("divergent_update", "node:Human", "a")
    world.graph.merge("side", strategy="theirs")
    assert '"years":1099511627776' in "".join(world.lines("main"))


@pytest.mark.parametrize(
    ("values", "found"),
    [
        # A property that a side does not know is not that side's to empty.
        ("ours", {"years": 1, "nick": "aa", "rank": 1, "note": None}),
        ("theirs", {"years": 2**40, "nick": "aa", "rank": 1, "note": "from side"}),
        ({"years": {"take": "theirs"}}, {"years": 2**40, "nick": "aa", "rank": 1}),
        ({"years": 2**41, "nick": "z", "rank": 9}, {"years": 2**41, "nick": "z", "rank": 9}),
    ],
)
def test_resolutions_name_things_as_the_merged_schema_does(world, values, found):
    both_went_on(world)
    world.load("main", node("Human", "a", years=1, nick="aa"))
    for wrong in ({("node:Person", "a"): values}, {("node:Human", "a"): {"age": 1}}):
        for act in (world.graph.merge, world.graph.merge_preview):
            with pytest.raises(InputError, match=r"no such type|sets .age., which"):
                act("side", resolutions=wrong)
    how = {"resolutions": {("node:Human", "a"): values}}
    assert world.graph.merge_preview("side", **how).conflicts == ()
    world.graph.merge("side", **how)
    (row,) = [one for one in map(json.loads, world.lines("main")) if one["data"]["id"] == "a"]
    assert {name: row["data"][name] for name in found} == found


@pytest.mark.parametrize("strategy", ["ours", "theirs"])
def test_a_strategy_leaves_each_side_the_properties_that_only_it_has(world, strategy):
    both_went_on(world)
    world.load("main", node("Human", "a", years=1, nick="aa"), node("Human", "e", nick="ee"))
    world.load("main", edge("Knows", "k3", "d", "d", weight=3))
    world.graph.merge("side", strategy=strategy)
    data = {one["data"]["id"]: one for one in map(json.loads, world.lines("main"))}
    mine = strategy == "ours"
    for key, ours, theirs, rank in (("a", 1, 2**40, 1), ("e", None, 1, 7)):
        row = data[key]["data"]
        expected = (ours if mine else theirs, f"{key}{key}", rank)
        assert (row["years"], row["nick"], row["rank"]) == expected
    both = data["k3"]
    assert (both["from"], both["to"]) == (("d", "d") if mine else ("e", "c"))
    assert (both["data"]["weight"], both["data"]["since"]) == (3 if mine else None, "2024-01-02")


def test_no_resolution_settles_a_conflict_of_schemas(world):
    for branch, name in (("main", "one"), ("side", "two")):
        world.apply(branch, BASE.replace("age: I32?", f'{name}: I32? @rename_from("age")'))
        world.load(branch, node("Person", "a", **{name: len(branch) + 40}))
    (found,) = world.conflicts(resolutions={("node:Person", "a"): "ours"})
    assert (found.kind, found.can_be_resolved) == ("schema_conflict", False)


def test_a_preview_makes_no_table(world, tmp_path):
    both_went_on(world)
    before = sorted(tmp_path.rglob("*.manifest"))
    world.graph.merge_preview("side")
    assert sorted(tmp_path.rglob("*.manifest")) == before


def test_a_commit_of_rows_is_undone_also_after_the_schema_went_on(world):
    world.load("main", node("Person", "a", age=50))
    commit = world.graph.snapshot().graph_commit_id
    world.apply("main", OURS)
    applied = world.graph.snapshot().graph_commit_id
    world.graph.revert(commit)
    assert '"id":"a","k":"a","years":0' in "".join(world.lines("main"))
    with pytest.raises(ConflictError, match="changed the schema"):
        world.graph.revert(applied)


def test_after_crossing_merges_the_schemas_of_several_ancestors_are_merged_first(world):
    world.apply("main", BASE.replace("node Old", "node New { k: String @key }\nnode Old"))
    world.load("main", node("New", "m"))
    world.apply("side", BASE.replace("age: I32?", 'years: I32? @rename_from("age")'))
    world.graph.create_branch("was", from_branch="main")
    world.graph.merge("side")
    world.graph.merge("was", into="side")
    # Both have everything now, from two ancestors; each goes on.
    world.load("side", node("Person", "a", years=5), node("New", "s"))
    world.apply(
        "main", world.graph.schema_source().replace("note: String?", "note: String?  z: I32?")
    )
    result = world.graph.merge("side")
    assert {key: (one.inserted, one.updated) for key, one in result.changes.items()} == {
        "node:Person": (0, 1), "node:New": (1, 0),
    }  # fmt: skip


@pytest.mark.parametrize("evolves", [False, True])
def test_a_merge_under_other_columns_reads_what_one_under_the_same_reads(tmp_path, evolves):
    start = "node P { k: String @key  v: I32?  a: String? }"
    graph = Graph.init(tmp_path / "g", start, durability="process", maintenance=None)
    graph.load([node("P", f"n{at}", v=at) for at in range(3000)], mode="append")
    graph.create_branch("side")
    name = "v"
    if evolves:
        graph.apply_schema(start.replace("a: String?", "a: String?  b: String?"), branch="side")
        graph.apply_schema(start.replace("v: I32?", 'w: I32? @rename_from("v")  c: String?'))
        name = "w"
    graph.load([node("P", f"n{at}", v=0, a="x") for at in range(3)], mode="merge", branch="side")
    graph.load([node("P", f"n{at}", **{name: 0}) for at in range(5, 8)], mode="merge")
    meter = graph._core.store.tables.meter
    before = meter.total.rows
    assert graph.merge("side").changes["node:P"].updated == 3
    # Once over the ids, to find where the three are (there is no index yet), and what changed.
    assert meter.total.rows - before < 3000 + 100
    assert json.loads(next(one for one in graph.export() if '"n1"' in one))["data"]["a"] == "x"
    graph.close()


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize(("filled", "held"), [(" @default(7)", 7), ("", None)])
def test_what_a_property_lost_before_a_merge_brought_it_back_is_a_difference(
    tmp_path, filled, held, optimized
):
    """Both add it, ours drops it again: it is the same property still, but its values are gone."""
    bare = "node P { k: String @key  v: I32? }"
    more = bare.replace("v: I32?", f"v: I32?  w: I32?{filled}")
    graph = Graph.init(tmp_path / "g", bare, durability="process", maintenance=None)

    def given(branch, *records):
        graph.load(list(records), mode="merge", branch=branch)

    given("main", *(node("P", key, v=1) for key in "abc"))
    graph.create_branch("side")
    for branch in ("side", "main"):
        graph.apply_schema(more, branch=branch)
    given("main", node("P", "a", v=1, w=9))
    given("main", node("P", "c", v=1, w=8))
    then = graph.snapshot().graph_commit_id
    graph.create_branch("old")
    given("old", node("P", "z", v=1, w=5))
    graph.mutate('query q() { delete P where k = "c" }')
    graph.apply_schema(bare)
    assert graph.merge("side").outcome == "merged"
    if optimized:
        graph.optimize()
    now = graph.snapshot().graph_commit_id

    def told(one, other):
        return [
            (
                change.id,
                change.op,
                *(i and i.properties["w"] for i in (change.before, change.after)),
            )
            for change in graph.diff(one, other).changes
        ]

    assert told(then, now) == [("a", "update", 9, held), ("c", "delete", 8, None)]
    assert told(now, then) == [("a", "update", held, 9), ("c", "insert", None, 8)]
    graph.merge("main", into="old")
    left = [json.loads(one)["data"] for one in graph.export(branch="old")]
    assert {data["id"]: data["w"] for data in left} == {"a": held, "b": held, "z": 5}
    graph.close()
