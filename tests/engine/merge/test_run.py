"""Merging: strategies, values of every kind, directions, and what a preview leaves alone."""

from __future__ import annotations

import pytest
from merge_world import MergeWorld, edge, kinds, p

from omnigraph.errors import ConflictError, InputError, MergeConflictsError, NotFoundError

SCHEMA = """
node P { k: String @key  v: I32?  s: String?  t: [String]?  e: Vector(2)?  b: Blob?  f: F64? }
node U { k: String @key  mail: String? @unique }
edge E: P -> P { w: I32? }
edge One: P -> P @card(0..1)
"""


class World(MergeWorld):
    def __init__(self, uri):
        super().__init__(uri, SCHEMA)
        self.load("main", *(p(key, v=0, s="old") for key in "abc"))
        self.graph.create_branch("side")

    def blob(self, key, branch="main"):
        reader = self.graph.read_blob("node", "P", key, "b", branch=branch)
        return reader.read_range(0, reader.size)


# --- strategies ------------------------------------------------------------------------------


def diverge(world):
    """Both sides change a, delete-vs-update b, and insert n; the side alone changes c."""
    world.load("main", p("a", v=1, s="old"), p("b", v=1, s="old"), p("n", v=1))
    world.load("side", p("a", v=0, s="new"), p("c", v=5, s="old"), p("n", v=2))
    world.drop("side", "b")


def test_every_conflict_is_told_and_nothing_is_published(world):
    diverge(world)
    head = world.graph.snapshot()
    with pytest.raises(MergeConflictsError) as caught:
        world.graph.merge("side")
    assert kinds(caught.value) == [
        ("delete_vs_update", "b"),
        ("divergent_insert", "n"),
        ("divergent_update", "a"),
    ]
    assert world.graph.snapshot() == head
    body = caught.value.conflicts[0].to_json()
    assert set(body) == {
        "entity_kind",
        "type_name",
        "entity_id",
        "kind",
        "message",
        "properties",
    }


def test_ours_keeps_the_targets_side_of_what_both_changed(world):
    diverge(world)
    assert world.graph.merge("side", strategy="ours").outcome == "merged"
    rows = world.all()
    assert (rows["a"]["v"], rows["a"]["s"]) == (1, "old")
    assert (rows["n"]["v"], rows["b"]["v"], rows["c"]["v"]) == (1, 1, 5)


def test_theirs_takes_the_sources_side_of_what_both_changed(world):
    diverge(world)
    assert world.graph.merge("side", strategy="theirs").outcome == "merged"
    rows = world.all()
    assert (rows["a"]["v"], rows["a"]["s"]) == (0, "new")
    assert (rows["n"]["v"], rows["c"]["v"]) == (2, 5)
    assert "b" not in rows


def test_property_merges_what_each_side_changed(world):
    world.load("main", p("a", v=1, s="old", t=["m"]))
    world.load("side", p("a", v=0, s="new"))
    with pytest.raises(MergeConflictsError):
        world.graph.merge("side")
    result = world.graph.merge("side", strategy="property")
    assert result.changes["node:P"].updated == 1
    row = world.all()["a"]
    assert (row["v"], row["s"], row["t"]) == (1, "new", ["m"])


def test_property_still_refuses_one_property_with_two_values(world):
    world.load("main", p("a", v=1, s="old"))
    world.load("side", p("a", v=2, s="new"))
    with pytest.raises(MergeConflictsError) as caught:
        world.graph.merge("side", strategy="property")
    assert kinds(caught.value) == [("divergent_update", "a")]


def test_property_merges_null_as_a_value_of_its_own(world):
    world.load("main", p("a", v=None, s="old"))
    world.load("side", p("a", v=0, s=""))
    world.graph.merge("side", strategy="property")
    row = world.all()["a"]
    assert (row.get("v"), row["s"]) == (None, "")


def test_property_merges_blobs_vectors_and_lists(world):
    full = {"b": "base64:aGk=", "e": [1.0, 2.0], "t": ["x"], "f": 0.5}
    world.load("main", p("z", **full))
    world.graph.merge("main", into="side")
    world.load("main", p("z", **{**full, "e": [3.0, 4.0], "f": 0.25}))
    world.load("side", p("z", **{**full, "b": "base64:aG8=", "t": ["x", "y"]}))
    world.graph.merge("side", strategy="property")
    row = world.all()["z"]
    assert (row["e"], row["f"], row["t"]) == ([3.0, 4.0], 0.25, ["x", "y"])
    assert world.blob("z") == b"ho"


@pytest.mark.parametrize("strategy", ["mine", "", "FAIL"])
def test_an_unknown_strategy_is_refused(world, strategy):
    with pytest.raises(InputError, match="strategy"):
        world.graph.merge("side", strategy=strategy)


# --- equality --------------------------------------------------------------------------------

SAME = [
    {"b": "base64:aGk="},
    {"e": [1.0, 2.0]},
    {"t": ["x", "y"]},
    {"t": []},
    {"s": ""},
    {"f": "NaN"},
    {"v": None},
]
DIFFERENT = [
    ({"s": None}, {"s": ""}),
    ({"t": None}, {"t": []}),
    ({"t": ["a", "b"]}, {"t": ["b", "a"]}),
    ({"e": [1.0, 2.0]}, {"e": [1.0, 2.5]}),
    ({"b": "base64:aGk="}, {"b": "base64:aG8="}),
    ({"b": None}, {"b": "base64:aG8="}),
    ({"f": 0.0}, {"f": "NaN"}),
]


@pytest.mark.parametrize("data", SAME)
def test_the_same_insert_on_both_sides_is_no_conflict(world, data):
    world.load("main", p("n", **data))
    world.load("side", p("n", **data))
    assert world.graph.merge("side").changes == {}


@pytest.mark.parametrize(("ours", "theirs"), DIFFERENT)
def test_different_values_are_different(world, ours, theirs):
    world.load("main", p("n", **ours))
    world.load("side", p("n", **theirs))
    with pytest.raises(MergeConflictsError) as caught:
        world.graph.merge("side")
    assert kinds(caught.value) == [("divergent_insert", "n")]


def test_a_change_that_was_taken_back_is_no_change(world):
    world.load("side", p("a", v=9, s="old"))
    world.load("side", p("a", v=0, s="old"))
    world.load("main", p("a", v=1, s="old"))
    world.graph.merge("side")
    assert world.all()["a"]["v"] == 1


# --- rules -----------------------------------------------------------------------------------


def test_edges_that_would_hang_in_the_air_are_conflicts(world):
    world.drop("side", "b")
    world.load("main", edge("e1", "a", "b"))
    with pytest.raises(MergeConflictsError) as caught:
        world.graph.merge("side")
    assert kinds(caught.value) == [("orphan_edge", "e1")]


def test_a_strategy_settles_entities_and_never_rules(world):
    world.drop("side", "b")
    world.load("main", edge("e1", "a", "b"))
    for strategy in ("ours", "theirs", "property"):
        with pytest.raises(MergeConflictsError):
            world.graph.merge("side", strategy=strategy)


def test_uniqueness_and_cardinality_hold_for_the_merged_graph(world):
    world.load("main", {"type": "U", "data": {"k": "x", "mail": "m"}}, edge("o1", "a", "b", "One"))
    world.load("side", {"type": "U", "data": {"k": "y", "mail": "m"}}, edge("o2", "a", "c", "One"))
    with pytest.raises(MergeConflictsError) as caught:
        world.graph.merge("side")
    assert [one.kind for one in caught.value.conflicts] == [
        "unique_violation",
        "cardinality_violation",
    ]


# --- previews --------------------------------------------------------------------------------


def everything_on_disk(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(("source", "target"), [("side", "main"), ("main", "side")])
def test_a_preview_writes_nothing(world, tmp_path, source, target):
    world.load("main", p("m", b="base64:aGk="))
    world.load("side", p("n"), p("a", v=4, s="old"))
    before = everything_on_disk(tmp_path)
    preview = world.graph.merge_preview(source, target)
    assert everything_on_disk(tmp_path) == before
    assert preview.outcome == "merged"
    result = world.graph.merge(source, target)
    assert result.changes == preview.changes


def test_a_preview_tells_conflicts_instead_of_raising(world):
    diverge(world)
    preview = world.graph.merge_preview("side")
    assert len(preview.conflicts) == 3
    assert preview.to_json()["outcome"] == "conflict"
    assert world.graph.merge_preview("side", strategy="theirs").conflicts == ()


# --- directions ------------------------------------------------------------------------------


def test_merge_commits_have_two_parents_also_when_fast_forward(world):
    world.load("side", p("n"))
    ours, theirs = (world.graph.commits(name, limit=1)[0] for name in ("main", "side"))
    result = world.graph.merge("side", actor="act-m")
    assert result.outcome == "fast_forward"
    assert result.commit.parent_commit_id == ours.graph_commit_id
    assert result.commit.merged_parent_commit_id == theirs.graph_commit_id
    assert result.commit.actor_id == "act-m"
    assert world.graph.merge("side").outcome == "already_up_to_date"
    back = world.graph.merge("main", into="side")
    assert back.outcome == "fast_forward"
    assert world.all("side") == world.all()


def test_a_branch_that_took_mains_table_writes_on_its_own_again(world):
    world.load("side", p("n"))
    world.load("main", p("m"))
    world.graph.merge("main", into="side")
    world.load("side", p("o"))
    world.graph.merge("side")
    world.graph.merge("main", into="side")
    world.load("side", p("q"))
    assert set(world.all("side")) == set("abcnmoq")
    assert set(world.all()) == set("abcnmo")
    world.graph.merge("side")
    assert world.all() == world.all("side")


def test_branches_of_branches_merge_along_and_across(world):
    world.load("side", p("n"))
    world.graph.create_branch("deep", from_branch="side")
    world.load("deep", p("d"), p("n", v=7))
    world.load("main", p("m"))
    assert world.graph.merge("deep").outcome == "merged"
    assert set(world.all()) == set("abcnmd")
    assert world.graph.merge("deep", into="side").outcome == "fast_forward"
    assert world.graph.merge("side").changes == {}
    assert world.all()["n"]["v"] == 7


def test_siblings_merge_into_each_other(world):
    world.graph.create_branch("other")
    world.load("side", p("n"))
    world.load("other", p("o"))
    world.graph.merge("side", into="other")
    assert set(world.all("other")) == set("abcno")
    assert set(world.all("side")) == set("abcn")
    world.graph.delete_branch("side", force=True)
    assert set(world.all("other")) == set("abcno")


def test_a_merged_branch_can_be_deleted_in_the_same_call(world):
    world.load("side", p("n", b="base64:aGk="))
    result = world.graph.merge("side", delete_branch=True)
    assert result.branch_deleted
    assert world.graph.branches() == ["main"]
    assert world.blob("n") == b"hi"
    world.graph.create_branch("side")
    world.graph.create_branch("child", from_branch="side")
    world.load("side", p("o"))
    kept = world.graph.merge("side", delete_branch=True)
    assert (kept.branch_deleted, kept.outcome) == (False, "fast_forward")
    assert "child" in kept.branch_delete_error


@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        ("main", "main", InputError),
        ("nobody", "main", NotFoundError),
        ("side", "no", NotFoundError),
    ],
)
def test_branches_that_cannot_be_merged_are_refused(world, source, target, error):
    with pytest.raises(error):
        world.graph.merge(source, into=target)


# --- undoing ---------------------------------------------------------------------------------


def test_a_revert_undoes_one_commit_and_keeps_later_ones(world):
    world.load("main", p("a", v=5, s="old"), p("n"))
    commit = world.graph.snapshot().graph_commit_id
    world.load("main", p("b", v=6, s="old"))
    result = world.graph.revert(commit, actor="act-r")
    rows = world.all()
    assert (rows["a"]["v"], rows["b"]["v"], "n" in rows) == (0, 6, False)
    assert result.commit.properties["reverts"] == commit
    assert world.graph.revert(commit).commit is None
    world.graph.revert(result.commit.graph_commit_id)
    assert (world.all()["a"]["v"], "n" in world.all()) == (5, True)


def test_a_revert_that_later_commits_stand_against_is_refused(world):
    world.load("main", p("a", v=5, s="old"), p("n"))
    commit = world.graph.snapshot().graph_commit_id
    world.load("main", p("a", v=6, s="old"), edge("e1", "b", "n"))
    head = world.graph.snapshot()
    with pytest.raises(MergeConflictsError) as caught:
        world.graph.revert(commit)
    assert kinds(caught.value) == [("divergent_update", "a")]
    assert world.graph.snapshot() == head
    with pytest.raises(NotFoundError):
        world.graph.revert("01M0000000000000000000000X")
    with pytest.raises(ConflictError):
        world.graph.revert(world.graph.commits()[-1].graph_commit_id)


def test_a_revert_of_a_schema_change_says_so(world):
    world.graph.apply_schema(SCHEMA.replace("v: I32?", "v: I64?"))
    with pytest.raises(ConflictError, match="schema"):
        world.graph.revert(world.graph.snapshot().graph_commit_id)
