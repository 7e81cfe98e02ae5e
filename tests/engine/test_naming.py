"""Tags: names that stay, for commits that stay with them."""

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
