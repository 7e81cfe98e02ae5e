"""Tags, which keep what they name; unmerged work, which is not deleted by mistake."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from omnigraph import Graph, OpenMode
from omnigraph.errors import (
    AlreadyExistsError,
    CorruptGraphError,
    InputError,
    InvalidNameError,
    LimitExceededError,
    NotFoundError,
    UnmergedBranchError,
)
from omnigraph.model.ports import World
from omnigraph.model.steps import Step

SCHEMA = "node P { k: String @key  v: I32? }\nnode Q { k: String @key }"
ALL = "query q() { match { $p: P } return { $p.k } }"


class At:
    """Does something once when a step is reached."""

    def __init__(self, step, deed):
        self._step, self._deed = step, deed

    def reach(self, step):
        if step is self._step and self._deed is not None:
            deed, self._deed = self._deed, None
            deed()


def load(graph, key, branch="main"):
    line = json.dumps({"type": "P", "data": {"k": key}})
    return graph.load(line, mode="append", branch=branch).commit.graph_commit_id


def keys(graph, **how):
    return "".join(sorted(row["p.k"] for row in graph.query(ALL, **how).to_pylist()))


def stepping(graph, steps):
    return Graph.open(graph.uri, world=World(steps=steps, durability="process"), maintenance=None)


@pytest.fixture
def graph(tmp_path):
    """main: a, b, c; side, made after a: s, t."""
    with Graph.init(
        str(tmp_path / "g.omni"), SCHEMA, durability="process", maintenance=None
    ) as graph:
        load(graph, "a")
        graph.create_branch("side")
        for key in "bc":
            load(graph, key)
        for key in "st":
            load(graph, key, "side")
        yield graph


def test_a_tag_says_what_it_names_who_made_it_when_and_why(graph):
    before = datetime.now(UTC)
    made = graph.create_tag("v1", "side~1", actor="ada", message="the first")
    assert graph.tags() == [made]
    assert made.graph_commit_id == graph.commit("side~1").graph_commit_id
    assert (made.name, made.created_by, made.message) == ("v1", "ada", "the first")
    assert before - timedelta(seconds=1) <= made.created_at <= datetime.now(UTC)
    assert made.to_json() == {
        "name": "v1",
        "graph_commit_id": made.graph_commit_id,
        "message": "the first",
        "actor_id": "ada",
        "created_at": made.created_us,
    }


def test_without_a_ref_the_head_of_main_is_named(graph):
    assert graph.create_tag("now").graph_commit_id == graph.commits(limit=1)[0].graph_commit_id


def test_any_ref_can_be_tagged_and_a_tag_is_one(graph):
    head = graph.commit("main")
    refs = {
        "id": head.graph_commit_id,
        "branch": "main",
        "steps": "side^",
        "prefix": head.graph_commit_id[:24],
        "moment": head.created_at,
        "text": head.created_at.isoformat(),
        "number": head.graph_manifest_version,
    }
    for name, ref in refs.items():
        graph.create_tag(name, ref)
        assert keys(graph, snapshot=name) == keys(graph, snapshot=ref)
    graph.create_tag("tag", "steps")
    assert graph.commit("tag~1") == graph.commit("side~2")
    assert [tag.name for tag in graph.tags()] == sorted([*refs, "tag"])


def test_a_tag_does_not_move_with_its_branch(graph):
    graph.create_tag("v1")
    load(graph, "d")
    assert (keys(graph, snapshot="v1"), keys(graph)) == ("abc", "abcd")
    assert {change.id for change in graph.diff("v1", "main").changes} == {"d"}


@pytest.mark.parametrize("name", ["", " ", "main", " v1", "v\n1", "__schema_apply_lock__"])
def test_names_that_no_branch_may_have_are_refused_for_tags_too(graph, name):
    with pytest.raises(InvalidNameError, match="tag"):
        graph.create_tag(name)
    assert graph.tags() == []


@pytest.mark.parametrize("name", ["v1.0", "release/2026 ü", "main~2", "2026-01-31", "x" * 200])
def test_any_other_text_is_a_name(graph, name):
    graph.create_tag(name, "side~1")
    assert keys(graph, snapshot=name) == "as"
    graph.delete_tag(name)
    assert graph.tags() == []


def test_what_makes_no_tag_leaves_none(graph):
    graph.create_tag("v1", "side")
    cases = [
        (lambda: graph.create_tag("v1"), AlreadyExistsError, "tag 'v1' already exists"),
        (lambda: graph.create_tag("side"), AlreadyExistsError, "there is a branch 'side'"),
        (lambda: graph.create_branch("v1"), AlreadyExistsError, "there is a tag 'v1'"),
        (lambda: graph.create_tag("x", "sid"), NotFoundError, "'sid' is neither"),
        (lambda: graph.create_tag("x", True), InputError, "at must be"),
        (lambda: graph.create_tag(7), InputError, "name must be str"),
        (lambda: graph.create_tag("x", message=" "), InputError, "must not be empty"),
        (lambda: graph.create_tag("x", message="m" * 10**6), LimitExceededError, "message"),
        (lambda: graph.delete_tag("v2"), NotFoundError, "tag 'v2' does not exist"),
        (lambda: graph.delete_tag("side"), NotFoundError, "tag 'side' does not exist"),
    ]
    for act, error, words in cases:
        with pytest.raises(error, match=words):
            act()
    assert [tag.name for tag in graph.tags()] == ["v1"]
    assert graph.branches() == ["main", "side"]
    assert keys(graph, snapshot="v1") == "ast"


def test_a_tag_that_is_not_there_is_told_with_the_nearest(graph):
    graph.create_tag("release-1")
    with pytest.raises(NotFoundError) as found:
        graph.delete_tag("relaese-1")
    assert found.value.hint == "did you mean 'release-1'?"


def test_a_read_only_graph_lists_tags_and_makes_none(graph):
    graph.create_tag("v1")
    with Graph.open(graph.uri, mode=OpenMode.READ_ONLY) as reader:
        assert [tag.name for tag in reader.tags()] == ["v1"]
        for act in (lambda: reader.create_tag("v2"), lambda: reader.delete_tag("v1")):
            with pytest.raises(InputError, match="read-only"):
                act()


# --- what a tag names stays ---


def test_cleanup_keeps_what_tags_name_and_nothing_else_of_it(graph):
    graph.create_tag("old", "main~1")
    graph.create_tag("older", "side~1")
    gone = graph.commit("main~2").graph_commit_id
    for key in "def":
        load(graph, key)
    graph.cleanup(keep_versions=1)
    assert (keys(graph, snapshot="old"), keys(graph, snapshot="older")) == ("ab", "as")
    graph.delete_tag("old")
    graph.cleanup(keep_versions=1)
    with Graph.open(graph.uri) as again, pytest.raises(NotFoundError, match="not kept any more"):
        keys(again, snapshot="main~4")
    assert graph.commit(gone).graph_commit_id == gone
    with pytest.raises(NotFoundError, match="not kept any more"):
        graph.create_tag("late", "main~4")
    assert [tag.name for tag in graph.tags()] == ["older"]


def test_a_tagged_commit_outlives_its_branch(graph):
    graph.create_branch("child", from_branch="side")
    load(graph, "u", "child")
    graph.create_tag("v1", "side~1")
    graph.create_tag("v2", "child")
    for name in ("child", "side"):
        graph.delete_branch(name, force=True)
    for _ in range(2):
        assert (keys(graph, snapshot="v1"), keys(graph, snapshot="v2")) == ("as", "astu")
        graph.cleanup(keep_versions=1)
    with Graph.open(graph.uri) as again:
        assert (keys(again, snapshot="v1"), keys(again, branch="v2")) == ("as", "astu")
        assert again.commit("v2~2").graph_commit_id == graph.commit("v1").graph_commit_id
    graph.delete_tag("v2")
    graph.cleanup(keep_versions=1)
    assert keys(graph, snapshot="v1") == "as"
    graph.delete_tag("v1")
    assert len(graph.cleanup(keep_versions=1).reclaimed) >= 2
    assert list(Path(graph.uri, "_refs/retired").glob("*")) == []


def test_what_a_tag_shows_survives_a_drop_with_data_loss(graph):
    graph.delete_branch("side", force=True)
    graph.load('{"type":"Q","data":{"k":"q"}}', mode="append")
    graph.create_tag("before")
    graph.apply_schema("node P { k: String @key }", allow_data_loss=True)
    assert keys(graph, snapshot="before") == "abc"
    source = "query q() { match { $q: Q } return { $q.k } }"
    assert graph.query(source, snapshot="before").to_pylist() == [{"q.k": "q"}]


# --- damage ---


def test_an_unreadable_tag_stops_nothing_else_and_can_be_removed(graph):
    graph.create_tag("good", "main~1")
    Path(graph.uri, "_refs/tags/bad.json").write_text("{")
    assert [tag.name for tag in graph.tags()] == ["good"]
    assert [tag.name for tag in graph.unreadable_tags()] == ["bad"]
    assert keys(graph, snapshot="good") == "ab"
    with pytest.raises(CorruptGraphError, match="tag 'bad' cannot be read"):
        keys(graph, snapshot="bad")
    load(graph, "d")
    graph.merge("side")
    graph.create_branch("other")
    for act in (lambda: graph.create_tag("bad"), lambda: graph.create_branch("bad")):
        with pytest.raises(AlreadyExistsError):
            act()
    assert any("tag 'bad'" in one for one in graph.health().damage)
    # It may name anything, so nothing goes, not even with its branch.
    report = graph.cleanup(keep_versions=1)
    assert ("tag bad" in dict(report.failures), report.old_versions_removed) == (True, 0)
    graph.delete_tag("bad")
    assert graph.cleanup(keep_versions=1).old_versions_removed > 0
    assert keys(graph, snapshot="good") == "ab"


# --- races ---


def test_of_a_branch_and_a_tag_of_one_name_that_are_made_at_once_not_both_stay(graph):
    with Graph.open(graph.uri) as other:
        racing = stepping(graph, At(Step.TAG_WRITTEN, lambda: _quietly(other.create_branch, "x")))
        with racing:
            racing.create_tag("x")
        racing = stepping(graph, At(Step.BRANCH_MANIFEST_FORKED, lambda: other.create_tag("y")))
        with racing, pytest.raises(AlreadyExistsError, match="there is a tag 'y'"):
            racing.create_branch("y")
    assert (graph.branches(), [tag.name for tag in graph.tags()]) == (["main", "side"], ["x", "y"])


def _quietly(act, *words):
    try:
        act(*words)
    except AlreadyExistsError:
        return


def test_a_tag_that_is_made_while_cleanup_looks_is_kept_or_refused(graph):
    done = []

    def tag():
        with Graph.open(graph.uri) as other:
            try:
                other.create_tag("late", "main~1")
            except NotFoundError as refused:
                done.append(refused)

    thread = threading.Thread(target=tag)
    cleaner = stepping(graph, At(Step.CLEANUP_MANIFEST_PRUNED, thread.start))
    with cleaner:
        cleaner.cleanup(keep_versions=1, grace=0)
    thread.join()
    assert (len(done), graph.tags()) == (1, [])


def test_a_branch_that_is_deleted_while_a_tag_is_made_on_it_leaves_the_tag_whole(graph):
    thread = threading.Thread(target=lambda: graph.delete_branch("side", force=True))
    tagging = stepping(graph, At(Step.TAG_WRITTEN, thread.start))
    with tagging:
        tagging.create_tag("v1", "side")
    thread.join()
    assert graph.branches() == ["main"]
    graph.cleanup(keep_versions=1, grace=0)
    assert keys(graph, snapshot="v1") == "ast"


# --- unmerged work ---


def test_a_branch_with_work_of_its_own_is_not_deleted_unless_forced(graph):
    with pytest.raises(UnmergedBranchError) as refused:
        graph.delete_branch("side")
    head = graph.commit("side").graph_commit_id
    assert (refused.value.branch, refused.value.head_commit_id) == ("side", head)
    assert (refused.value.commits, refused.value.retryable) == (2, False)
    assert keys(graph, branch="side") == "ast"
    graph.delete_branch("side", force=True)
    assert graph.branches() == ["main"]


def test_a_branch_is_deleted_freely_once_another_has_its_work(graph):
    graph.create_branch("copy", from_branch="side")
    graph.delete_branch("copy")  # it has nothing of its own
    graph.create_branch("other")
    graph.merge("side", into="other")
    graph.delete_branch("side")
    with pytest.raises(UnmergedBranchError):
        graph.delete_branch("other")
    assert graph.merge("other", delete_branch=True).branch_deleted
    assert (graph.branches(), keys(graph)) == (["main"], "abcst")


def test_work_after_the_merge_counts_and_upkeep_does_not(graph):
    graph.merge("side")
    graph.optimize("side")
    assert graph.commits("side")[0].writer_kind == "Optimize"
    load(graph, "u", "side")
    with pytest.raises(UnmergedBranchError, match="has a commit that no other"):
        graph.delete_branch("side")
    graph.merge("side")
    graph.optimize("side")
    graph.delete_branch("side")


def test_a_tag_does_not_count_as_a_branch_that_has_the_work(graph):
    graph.create_tag("v1", "side")
    with pytest.raises(UnmergedBranchError):
        graph.delete_branch("side")


def test_a_merge_that_is_to_delete_its_source_leaves_what_came_meanwhile(graph):
    late = At(Step.WRITE_PUBLISHED, lambda: load(graph, "u", "side"))
    with stepping(graph, late) as merging:
        done = merging.merge("side", delete_branch=True)
    assert (done.outcome, done.branch_deleted) == ("merged", False)
    assert "no other branch contains" in done.branch_delete_error
    assert keys(graph, branch="side") == "astu"


def test_a_write_that_is_under_way_is_seen_by_the_deletion(graph):
    refused = []

    def delete():
        with Graph.open(graph.uri) as other:
            try:
                other.delete_branch("side")
            except UnmergedBranchError as error:
                refused.append(error.commits)

    graph.merge("side")
    thread = threading.Thread(target=delete)
    with stepping(graph, At(Step.WRITE_LEASED, thread.start)) as writing:
        load(writing, "u", "side")
    thread.join()
    assert (refused, keys(graph, branch="side")) == ([1], "astu")


# --- deleted, and brought back ---


def test_a_branch_that_was_deleted_by_force_comes_back_whole(graph):
    commits = graph.commits("side")
    old = commits[1].graph_commit_id
    graph.delete_branch("side", actor="ada", force=True)
    (found,) = graph.deleted_branches()
    assert (found.name, found.deleted_by) == ("side", "ada")
    assert found.head_commit_id == commits[0].graph_commit_id
    assert datetime.now(UTC) - found.deleted_at < timedelta(minutes=5)
    assert found.to_json()["head_commit_id"] == found.head_commit_id
    back = graph.restore_branch("side")
    assert (back.name, back.id) == ("side", found.branch.id)
    assert (graph.commits("side"), graph.deleted_branches()) == (commits, [])
    load(graph, "u", "side")
    assert (keys(graph, branch="side"), keys(graph, snapshot=old)) == ("astu", "as")
    assert graph.merge("side").outcome == "merged"
    graph.delete_branch("side")
    assert (keys(graph), graph.deleted_branches()) == ("abcstu", [])


def test_a_branch_can_come_back_under_another_name_or_by_its_id(graph):
    first = graph.snapshot("side").branch.id
    graph.delete_branch("side", force=True)
    graph.create_branch("side")
    load(graph, "x", "side")
    with pytest.raises(AlreadyExistsError):
        graph.restore_branch("side")
    graph.create_tag("old")
    with pytest.raises(AlreadyExistsError, match="there is a tag"):
        graph.restore_branch("side", as_name="old")
    with pytest.raises(InvalidNameError):
        graph.restore_branch("side", as_name="main")
    graph.delete_branch("side", force=True)
    assert [one.branch.id for one in graph.deleted_branches()][1] == first
    assert keys(graph, branch=graph.restore_branch("side").name) == "abcx"
    assert keys(graph, branch=graph.restore_branch(first, as_name="older").name) == "ast"
    assert graph.deleted_branches() == []


def test_what_was_made_from_a_deleted_branch_comes_back_too(graph):
    graph.create_branch("child", from_branch="side")
    load(graph, "u", "child")
    for name in ("child", "side"):
        graph.delete_branch(name, force=True)
    back = graph.restore_branch("child")
    assert (back.parent, keys(graph, branch="child")) == ("main", "astu")
    graph.cleanup(keep_versions=1, grace=0)
    with Graph.open(graph.uri) as again:
        assert keys(again, branch="child") == "astu"
        load(again, "v", "child")
        assert again.merge("child").outcome == "merged"


def test_cleanup_takes_deleted_branches_when_its_age_says_so(graph):
    graph.delete_branch("side", force=True)
    for key in "def":
        load(graph, key)
    graph.cleanup(older_than=timedelta(days=1), grace=0)
    assert [one.name for one in graph.deleted_branches()] == ["side"]
    graph.cleanup(older_than=timedelta(days=1), keep_versions=1, grace=0)
    assert keys(graph, branch=graph.restore_branch("side").name) == "ast"
    assert graph.merge_preview("side").conflicts == ()
    graph.delete_branch("side", force=True)
    graph.cleanup(keep_versions=1, grace=0)
    assert graph.deleted_branches() == []
    with pytest.raises(NotFoundError, match="no deleted branch 'side'"):
        graph.restore_branch("side")
    assert list(Path(graph.uri, "__manifest/tree").glob("*")) == []


def test_a_branch_that_is_restored_while_cleanup_works_is_whole_or_refused(graph):
    graph.delete_branch("side", force=True)
    told = []

    def restore():
        with Graph.open(graph.uri) as other:
            try:
                other.restore_branch("side")
            except NotFoundError as refused:
                told.append(refused.message)

    thread = threading.Thread(target=restore)
    with stepping(graph, At(Step.CLEANUP_RETIRED_ENDED, thread.start)) as cleaner:
        cleaner.cleanup(keep_versions=1, grace=0)
    thread.join()
    assert (len(told), graph.branches()) == (1, ["main"])


def test_what_cannot_be_restored_is_said(graph):
    graph.delete_branch("side", force=True)
    with pytest.raises(NotFoundError) as found:
        graph.restore_branch("sied")
    assert found.value.hint == "did you mean 'side'?"
    with Graph.open(graph.uri, mode=OpenMode.READ_ONLY) as reader:
        assert [one.name for one in reader.deleted_branches()] == ["side"]
        with pytest.raises(InputError, match="read-only"):
            reader.restore_branch("side")
