"""What a merge starts from: contained heads, several ancestors, branches that are deleted."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from merge_world import MergeWorld, edge, kinds, p

from inside import store_of
from omnigraph import Graph
from omnigraph.errors import (
    ChangeFeedGapError,
    CorruptGraphError,
    MergeConflictsError,
    NotFoundError,
)
from omnigraph.model.ports import World as Ports
from omnigraph.model.steps import Step

SCHEMA = """
node P { k: String @key  x: I32?  y: I32?  b: Blob? }
edge E: P -> P { w: I32? }
"""


class World(MergeWorld):
    def __init__(self, uri):
        self.uri = Path(uri)  # means nothing on an object store
        super().__init__(uri, SCHEMA, maintenance=None)
        self.put("main", a=0, b=0)

    def put(self, branch, **values):
        """Set x of some nodes; a pair sets y too."""
        for key, value in values.items():
            x, y = value if isinstance(value, tuple) else (value, None)
            self.load(branch, p(key, x=x, y=y))

    def xs(self, branch="main"):
        return {key: data.get("x") for key, data in self.all(branch).items()}

    def cross(self, one, other):
        """Merge two branches into each other at once, so that neither head contains the other."""
        self.graph.create_branch("crossing", one)
        self.graph.merge(other, into=one)
        self.graph.merge("crossing", into=other)
        self.graph.delete_branch("crossing", force=True)

    def cleanup(self):
        return self.graph.cleanup(keep_versions=1, grace=0)

    def lines(self):
        """Every line of the manifest and of tables that is on disk."""
        return {path.name for path in self.uri.glob("**/tree/*") if path.is_dir()}


# --- contained heads -------------------------------------------------------------------------


def test_a_head_that_the_target_contains_brings_nothing(world):
    """The shortest way over parents leads to an older ancestor; its values must not come back."""
    graph = world.graph
    graph.create_branch("work")
    world.put("work", a=1)
    for value in (1, 2, 3):
        world.put("main", b=value)
    graph.merge("main", into="work")
    graph.create_branch("old", "work")
    world.put("work", a=0)
    graph.merge("work")
    assert graph.merge_preview("old").outcome == "already_up_to_date"
    assert graph.merge("old").outcome == "already_up_to_date"
    assert world.xs() == {"a": 0, "b": 3}
    assert graph.merge("main", into="old").outcome == "fast_forward"
    assert world.xs("old") == world.xs()


# --- several best ancestors ------------------------------------------------------------------


def crossed(world, ours, theirs):
    """Main and B each change something, then merge each other at once."""
    world.graph.create_branch("B")
    world.put("main", **ours)
    world.put("B", **theirs)
    world.cross("main", "B")
    assert world.xs("B") == world.xs()


@pytest.mark.parametrize("undone", ["a", "b"])
@pytest.mark.parametrize("into", ["main", "B"])
def test_an_undo_after_a_criss_cross_arrives(world, undone, into):
    crossed(world, {"a": 1}, {"b": 1})
    source = "B" if into == "main" else "main"
    world.put(source, **{undone: 0})
    preview = world.graph.merge_preview(source, into=into)
    assert preview.conflicts == ()
    assert preview.outcome == "merged"
    assert world.graph.merge(source, into=into).outcome == "merged"
    assert world.xs(into) == {"a": 1, "b": 1} | {undone: 0}


def test_a_delete_and_an_insert_after_a_criss_cross_arrive(world):
    crossed(world, {"c": 1}, {"d": 1})
    world.drop("B", "c")
    world.drop("main", "d")
    world.graph.merge("B")
    assert world.xs() == {"a": 0, "b": 0}
    world.put("B", e=1)
    world.graph.merge("main", into="B")
    assert world.xs("B") == {"a": 0, "b": 0, "e": 1}


def resolved(world, ours, theirs):
    """Both sides change `a`, merge each other at once, and each keeps its own value."""
    graph = world.graph
    graph.create_branch("B")
    world.put("main", a=ours)
    world.put("B", a=theirs)
    graph.create_branch("crossing")
    graph.merge("B", strategy="ours")
    graph.merge("crossing", into="B", strategy="ours")
    graph.delete_branch("crossing", force=True)


def test_sides_that_settled_a_dispute_differently_are_a_conflict(world):
    """Each side equals one of the ancestors: neither may win without a word."""
    resolved(world, 1, 2)
    with pytest.raises(MergeConflictsError, match="does not tell which side") as refused:
        world.graph.merge("B")
    assert kinds(refused.value) == [("divergent_update", "a")]
    assert world.graph.merge_preview("B").conflicts == tuple(refused.value.conflicts)


@pytest.mark.parametrize(("ours", "theirs"), [(1, 3), (3, 1), (2, 3), (3, 4)])
def test_a_disputed_value_that_a_side_changed_is_a_conflict_too(world, ours, theirs):
    resolved(world, 1, 2)
    world.put("main", a=ours)
    world.put("B", a=theirs)
    with pytest.raises(MergeConflictsError) as refused:
        world.graph.merge("B")
    assert kinds(refused.value) == [("divergent_update", "a")]


def test_sides_that_agree_on_a_disputed_value_are_none(world):
    resolved(world, 1, 2)
    world.put("B", a=1, b=7)
    assert world.graph.merge("B").outcome == "merged"
    assert world.xs() == {"a": 1, "b": 7}


@pytest.mark.parametrize(("strategy", "value"), [("ours", 1), ("theirs", 2)])
def test_a_strategy_decides_a_dispute(world, strategy, value):
    resolved(world, 1, 2)
    world.graph.merge("B", strategy=strategy)
    assert world.xs()["a"] == value


@pytest.mark.parametrize(
    ("strategy", "there"), [("fail", None), ("ours", True), ("theirs", False), ("property", None)]
)
def test_a_disputed_entity_that_one_side_deleted_is_kept_or_goes_by_strategy(
    world, strategy, there
):
    graph = world.graph
    graph.create_branch("B")
    world.put("main", a=1)
    world.drop("B", "a")
    graph.create_branch("crossing")
    graph.merge("B", strategy="ours")
    graph.merge("crossing", into="B", strategy="ours")
    assert ("a" in world.xs(), "a" in world.xs("B")) == (True, False)
    if there is None:
        with pytest.raises(MergeConflictsError) as refused:
            graph.merge("B", strategy=strategy)
        assert kinds(refused.value) == [("delete_vs_update", "a")]
    else:
        graph.merge("B", strategy=strategy)
        assert ("a" in world.xs()) is there


def test_ancestors_are_merged_by_property_if_the_merge_is(world):
    graph = world.graph
    graph.create_branch("B")
    world.put("main", a=(1, None))
    world.put("B", a=(0, 1))
    graph.create_branch("crossing")
    graph.merge("B", strategy="property")
    graph.merge("crossing", into="B", strategy="property")
    world.put("B", a=(0, 1))
    with pytest.raises(MergeConflictsError):
        graph.merge("B")
    graph.merge("B", strategy="property")
    row = world.all()["a"]
    assert (row["x"], row["y"]) == (0, 1)


def test_blobs_of_ancestors_are_compared_by_their_bytes(world):
    def blob(key, text):
        return p(key, x=0, b=text)

    graph = world.graph
    old, new = "base64:AAAA", "base64:////"
    world.load("main", blob("p", old), blob("q", old))
    graph.create_branch("B")
    world.load("main", blob("p", new))
    world.load("B", blob("q", new))
    world.cross("main", "B")
    world.load("B", blob("p", old))
    graph.merge("B")
    assert graph.read_blob("node", "P", "p", "b").read_range(0, 3) == b"\0\0\0"
    assert graph.read_blob("node", "P", "q", "b").read_range(0, 3) == b"\xff\xff\xff"


def test_edges_and_cascades_after_a_criss_cross(world):
    graph = world.graph
    graph.create_branch("B")
    world.load("main", edge("e1", "a", "b"))
    world.load("B", edge("e2", "b", "a"))
    world.cross("main", "B")
    world.drop("B", "b")  # takes both edges along
    graph.merge("B")
    assert world.xs() == {"a": 0}
    assert list(graph.export(types=["E"])) == []


def test_a_criss_cross_of_criss_crosses(world):
    """The ancestors have several ancestors themselves."""
    crossed(world, {"a": 1}, {"b": 1})
    world.put("main", c=1)
    world.put("B", d=1)
    world.cross("main", "B")
    world.cleanup()
    world.put("B", a=0)
    world.put("main", d=0)
    world.graph.merge("B")
    assert world.xs() == {"a": 0, "b": 1, "c": 1, "d": 0}


# --- branches that are deleted ---------------------------------------------------------------


def shared_and_deleted(world, **values):
    """A branch that main and `other` have merged, and that is gone."""
    graph = world.graph
    graph.create_branch("feat")
    graph.create_branch("other")
    world.put("feat", **values)
    graph.merge("feat", into="other")
    assert graph.merge("feat", delete_branch=True).branch_deleted


@pytest.mark.parametrize("cleaned", [False, True])
def test_what_a_deleted_branch_brought_can_be_taken_back(world, cleaned):
    shared_and_deleted(world, a=1, z=1)
    if cleaned:
        world.cleanup()
    world.put("other", a=0)
    world.drop("other", "z")
    if cleaned:
        world.cleanup()
    assert world.graph.merge("other").outcome == "merged"
    assert world.xs() == {"a": 0, "b": 0}


def test_a_change_of_what_a_deleted_branch_brought_is_no_conflict(world):
    shared_and_deleted(world, a=1)
    world.put("other", a=2)
    world.graph.merge("other")
    assert world.xs()["a"] == 2


def test_a_deleted_branch_that_is_needed_is_gone_for_everybody_else(world):
    graph = world.graph
    shared_and_deleted(world, a=1)
    assert graph.branches() == ["main", "other"]
    graph.create_branch("feat")
    assert world.xs("feat") == world.xs()
    world.put("feat", a=5)
    world.cleanup()
    assert world.xs("feat")["a"] == 5
    graph.delete_branch("feat", force=True)
    graph.merge("other")
    assert graph.branches() == ["main", "other"]


def test_cleanup_ends_a_deleted_branch_that_no_merge_needs(world):
    graph = world.graph
    shared_and_deleted(world, a=1)
    world.cleanup()
    before = world.lines()
    assert list((world.uri / "_refs/retired").iterdir())
    graph.merge("other", delete_branch=True)
    report = world.cleanup()
    assert not report.failures
    assert not list((world.uri / "_refs/retired").iterdir())
    assert world.lines() == set() != before
    assert world.xs()["a"] == 1


def test_a_deleted_branch_that_only_one_branch_merged_leaves_no_line(world):
    graph = world.graph
    graph.create_branch("feat")
    world.put("feat", a=1)
    graph.merge("feat", delete_branch=True)
    assert world.lines() == set()
    assert not (world.uri / "_refs/retired").exists()


def test_a_way_that_leads_through_a_deleted_branch_is_remembered(world):
    """`feat` had merged `other`, so main contains other's commit only by way of `feat`."""
    graph = world.graph
    graph.create_branch("other")
    graph.create_branch("feat")
    world.put("other", a=1)
    graph.merge("other", into="feat")
    world.put("feat", b=1)
    graph.merge("feat", delete_branch=True)
    world.cleanup()
    world.cleanup()
    world.put("other", a=0)
    graph.merge("other")
    assert world.xs() == {"a": 0, "b": 1}


def test_what_is_remembered_of_deleted_branches_stays_small(world):
    graph = world.graph
    for number in range(6):
        graph.create_branch("feat")
        for value in range(4):
            world.put("feat", a=10 * number + value)
        graph.merge("feat", delete_branch=True)
    world.cleanup()
    record = json.loads((world.uri / "_refs/descent.json").read_text())
    assert len(record["parents"]) == 6, "one commit a merge, not every commit of a branch"
    assert record["commits"].keys() == record["parents"].keys()


def merged_and_deleted(world):
    """The last commit of a branch that main has merged, and that is gone."""
    graph = world.graph
    graph.create_branch("feat")
    world.put("feat", a=1)
    world.put("feat", a=2)
    world.put("main", b=1)
    graph.merge("feat", actor="ann")
    commit = graph.commit(graph.commits()[0].merged_parent_commit_id)
    graph.delete_branch("feat")
    return commit


@pytest.mark.parametrize("cleanups", [0, 1, 2])
def test_the_commit_that_a_merge_names_stays_known_when_its_branch_is_deleted(world, cleanups):
    commit = merged_and_deleted(world)
    for _ in range(cleanups):
        world.cleanup()
    with Graph.open(world.uri) as graph:
        assert graph.commit(commit.graph_commit_id) == commit
        with pytest.raises(NotFoundError, match="was made on branch 'feat', which is deleted"):
            graph.query("match { $x: P } return { $x.k }", snapshot=commit.graph_commit_id)
        with pytest.raises(ChangeFeedGapError):
            graph.commit_changes(commit.graph_commit_id)


def test_a_deleted_branch_that_is_let_go_of_by_cleanup_leaves_what_a_merge_names(world):
    """It is kept whole at first, because it has work that nobody has merged."""
    graph = world.graph
    graph.create_branch("feat")
    world.put("feat", a=1)
    graph.merge("feat")
    world.put("main", b=1)
    world.put("feat", a=2)
    graph.merge("feat")
    named = graph.commit(graph.commits()[0].merged_parent_commit_id)
    world.put("feat", a=3)
    unmerged = graph.commits("feat")[0]
    graph.delete_branch("feat", force=True)
    assert graph.commit(unmerged.graph_commit_id) == unmerged, "until cleanup it can be restored"
    world.cleanup()
    assert graph.commit(named.graph_commit_id) == named
    with pytest.raises(NotFoundError, match="not in the history of any branch"):
        graph.commit(unmerged.graph_commit_id)


def test_a_record_of_releases_that_kept_only_parents_is_read(world):
    commit = merged_and_deleted(world)
    path = world.uri / "_refs/descent.json"
    record = json.loads(path.read_text())
    del record["commits"]
    path.write_text(json.dumps(record))
    with Graph.open(world.uri) as graph:
        with pytest.raises(NotFoundError, match="not in the history of any branch"):
            graph.commit(commit.graph_commit_id)
        graph.create_branch("next")
    world.put("next", a=5)
    assert world.graph.merge("next").outcome == "fast_forward"
    world.cleanup()
    assert commit.graph_commit_id in json.loads(path.read_text())["parents"]


def test_a_lost_record_of_deleted_branches_makes_conflicts_and_no_wrong_values(world):
    """As in a graph of the first release, which kept nothing of deleted branches."""
    graph = world.graph
    graph.create_branch("other")
    graph.create_branch("feat")
    world.put("feat", a=1)
    graph.merge("feat", delete_branch=True)
    world.put("other", b=1)
    (world.uri / "_refs/descent.json").unlink()
    with pytest.raises(MergeConflictsError, match="does not tell which side") as refused:
        graph.merge("other")
    assert kinds(refused.value) == [("divergent_update", "a"), ("divergent_update", "b")]
    assert graph.merge_preview("other").base_commit_id is None
    graph.create_branch("after")
    world.put("after", b=2)
    assert graph.merge("after").outcome == "fast_forward"
    graph.merge("other", strategy="ours")
    graph.merge("main", into="other")  # from here on both contain what is not known
    world.put("other", b=3)
    graph.merge("other")
    assert world.xs() == {"a": 1, "b": 3}


def test_a_base_that_is_not_kept_makes_conflicts_and_no_refusal_for_ever(world):
    shared_and_deleted(world, a=1)
    world.put("other", a=0)
    retired = world.uri / "_refs/retired"
    branch_id = next(retired.iterdir()).stem
    shutil.rmtree(retired)
    shutil.rmtree(world.uri / "__manifest/tree" / branch_id)
    graph = Graph.open(world.uri)
    with pytest.raises(MergeConflictsError):
        graph.merge("other")
    graph.merge("other", strategy="theirs")
    assert world.xs()["a"] == 0
    graph.close()


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"format_version": 9, "parents": {}}'])
def test_a_damaged_record_of_deleted_branches_is_named_and_stops_nothing_else(world, body):
    graph = world.graph
    graph.create_branch("other")
    graph.create_branch("feat")
    world.put("feat", a=1)
    graph.merge("feat", delete_branch=True)
    world.put("other", b=1)
    (world.uri / "_refs/descent.json").write_bytes(body)
    with pytest.raises(CorruptGraphError) as refused:
        graph.merge("other")
    assert refused.value.part == "_refs/descent.json"
    assert ("_refs/descent.json", refused.value.message) in world.cleanup().failures
    graph.health()
    graph.create_branch("feat")
    world.put("feat", a=2)
    assert graph.merge("feat", delete_branch=True).branch_deleted
    assert world.xs()["a"] == 2


def test_a_branch_deleted_while_a_reference_is_unreadable_stays_for_it(world):
    graph = world.graph
    graph.create_branch("feat")
    graph.create_branch("other")
    world.put("feat", a=1)
    graph.merge("feat", into="other")
    graph.merge("feat")
    reference = world.uri / "_refs/branches/other.json"
    body = reference.read_bytes()
    reference.write_bytes(b"{")
    graph.delete_branch("feat", force=True)
    world.cleanup()
    reference.write_bytes(body)
    world.cleanup()
    world.put("other", a=0)
    graph.merge("other")
    assert world.xs()["a"] == 0


def test_an_unreadable_reference_of_a_retired_branch_changes_nothing(world):
    shared_and_deleted(world, a=1)
    next((world.uri / "_refs/retired").iterdir()).write_bytes(b"{")
    world.cleanup()
    world.put("other", a=0)
    world.graph.merge("other")
    assert world.xs()["a"] == 0


@pytest.mark.s3
def test_a_deleted_branch_is_remembered_on_an_object_store(s3_root):
    world = World(s3_root.uri)
    graph = world.graph
    shared_and_deleted(world, a=1, z=1)
    graph.create_branch("third")
    world.put("third", b=1)
    graph.merge("third", delete_branch=True)
    world.cleanup()
    world.put("other", a=0)
    world.drop("other", "z")
    graph.merge("other", delete_branch=True)
    assert world.xs() == {"a": 0, "b": 1}
    assert not world.cleanup().failures
    store = store_of(graph).objects
    assert store.list_keys("_refs/retired") == []
    assert len(json.loads(store.read("_refs/descent.json").body)["parents"]) == 3
    graph.close()


# --- crashes ---------------------------------------------------------------------------------


class Stop(BaseException):
    """The process is gone."""


class StopAt:
    def __init__(self, step):
        self.step = step

    def reach(self, step):
        if step is self.step:
            raise Stop(step)


def dying(world, step):
    world.graph.close()
    return Graph.open(world.uri, world=Ports(steps=StopAt(step), durability="process"))


@pytest.mark.parametrize("step", [Step.BRANCH_RETIRED, Step.BRANCH_REF_DELETED])
def test_a_killed_deletion_of_a_needed_branch_changes_no_merge(world, step):
    graph = world.graph
    graph.create_branch("feat")
    graph.create_branch("other")
    world.put("feat", a=1)
    graph.merge("feat", into="other")
    graph.merge("feat")
    with dying(world, step) as killed, pytest.raises(Stop):
        killed.delete_branch("feat", force=True)
    world.graph = Graph.open(world.uri, durability="process", maintenance=None)
    if "feat" in world.graph.branches():
        world.cleanup()
        assert not list((world.uri / "_refs/retired").iterdir()), "it lives: nobody retired it"
        world.graph.delete_branch("feat", force=True)
    world.cleanup()
    world.put("other", a=0)
    world.graph.merge("other")
    assert world.xs()["a"] == 0


@pytest.mark.parametrize("step", [Step.BRANCH_DESCENT_KEPT, Step.BRANCH_REF_DELETED])
def test_a_killed_deletion_of_a_merged_branch_changes_no_merge(world, step):
    graph = world.graph
    graph.create_branch("other")
    graph.create_branch("feat")
    world.put("other", a=1)
    graph.merge("other", into="feat")
    world.put("feat", b=1)
    graph.merge("feat")
    with dying(world, step) as killed, pytest.raises(Stop):
        killed.delete_branch("feat", force=True)
    world.graph = Graph.open(world.uri, durability="process", maintenance=None)
    world.cleanup()
    world.put("other", a=0)
    world.graph.merge("other")
    assert world.xs() == {"a": 0, "b": 1}
    if "feat" in world.graph.branches():
        world.put("feat", b=7)
        world.graph.merge("feat", delete_branch=True)
        assert world.xs() == {"a": 0, "b": 7}


@pytest.mark.parametrize(
    "step",
    [Step.CLEANUP_DESCENT_KEPT, Step.CLEANUP_RETIRED_ENDED, Step.CLEANUP_FORK_RECLAIMED],
)
def test_a_killed_cleanup_of_a_retired_branch_is_finished_by_the_next(world, step):
    graph = world.graph
    graph.create_branch("third")
    world.put("third", t=1)
    shared_and_deleted(world, a=1)
    graph.merge("third", into="other")
    graph.merge("other", delete_branch=True)
    with dying(world, step) as killed, pytest.raises(Stop):
        killed.cleanup(keep_versions=1, grace=0)
    world.graph = Graph.open(world.uri, durability="process", maintenance=None)
    world.cleanup()
    assert not list((world.uri / "_refs/retired").iterdir())
    assert len(world.lines()) == 1, "only the third branch has lines"
    world.put("third", t=0)
    world.graph.merge("third")
    assert world.xs() == {"a": 1, "b": 0, "t": 0}


# --- many branches ---------------------------------------------------------------------------


def test_cleanup_keeps_every_base_of_sixty_branches(world):
    graph = world.graph
    for number in range(58):
        graph.create_branch(f"f{number}")
    for name in ("one", "two"):
        graph.create_branch(name)
        world.put(name, **{name: 1})
    graph.merge("one", into="two")
    world.put("one", one=2)
    world.put("two", two=2)
    world.cleanup()
    assert graph.merge("one", into="two").outcome == "merged"
    assert world.xs("two") == {"a": 0, "b": 0, "one": 2, "two": 2}
