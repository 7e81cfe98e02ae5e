"""Merges while others write: what landed in between is in the result, or refuses it."""

from __future__ import annotations

import json
import threading

import pytest
from merge_world import p

from inside import store_of
from omnigraph import Graph
from omnigraph.errors import ConflictError, MergeConflictsError, NotFoundError
from omnigraph.storage.lance import files, pylance

SCHEMA = """
node P { k: String @key  v: I32? }
edge E: P -> P
"""


def put(graph, branch, *records):
    graph.load("\n".join(map(json.dumps, records)), mode="merge", branch=branch)


def values(graph, branch="main"):
    lines = map(json.loads, graph.export(branch=branch, types=["P"]))
    return {line["data"]["k"]: line["data"].get("v") for line in lines}


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="process") as graph:
        put(graph, "main", p("a", v=0), p("b", v=0))
        graph.create_branch("side")
        put(graph, "side", p("a", v=1), p("n", v=1))
        yield graph


def test_a_write_to_the_target_in_between_is_merged_too(graph, meddled):
    steps, merging = meddled
    steps.deed = lambda: put(graph, "main", p("b", v=7), p("m", v=7))
    result = merging.merge("side")
    assert result.outcome == "merged", "what began as a fast-forward is none any more"
    assert values(graph) == {"a": 1, "b": 7, "n": 1, "m": 7}
    chain = [commit.graph_commit_id for commit in graph.commits()]
    assert chain[0] == result.commit.graph_commit_id
    assert result.commit.parent_commit_id == chain[1]


def test_a_write_to_the_target_in_between_can_make_a_conflict(graph, meddled):
    steps, merging = meddled
    steps.deed = lambda: put(graph, "main", p("a", v=9))
    with pytest.raises(MergeConflictsError) as caught:
        merging.merge("side")
    assert [one.entity_id for one in caught.value.conflicts] == ["a"]
    assert values(graph) == {"a": 9, "b": 0}


def test_an_edge_to_a_deleted_node_in_between_is_an_orphan(graph, meddled):
    steps, merging = meddled
    graph.mutate('query q() { delete P where k = "b" }', branch="side")
    steps.deed = lambda: put(graph, "main", {"edge": "E", "from": "a", "to": "b"})
    with pytest.raises(MergeConflictsError) as caught:
        merging.merge("side")
    assert [one.kind for one in caught.value.conflicts] == ["orphan_edge"]


def test_a_write_to_the_source_in_between_waits_for_the_next_merge(graph, meddled):
    steps, merging = meddled
    steps.deed = lambda: put(graph, "side", p("late", v=1))
    merging.merge("side")
    assert "late" not in values(graph)
    assert graph.merge("side").outcome in ("fast_forward", "merged")
    assert values(graph)["late"] == 1


def test_a_source_deleted_in_between_leaves_the_whole_merge_or_none(graph, meddled):
    steps, merging = meddled
    steps.deed = lambda: graph.delete_branch("side", force=True)
    try:
        merging.merge("side")
        expected = {"a": 1, "b": 0, "n": 1}
    except ConflictError:
        expected = {"a": 0, "b": 0}
    assert values(graph) == expected


def test_a_revert_sees_what_landed_in_between(graph, meddled):
    steps, other = meddled
    put(graph, "main", p("b", v=5))
    commit = graph.snapshot().graph_commit_id
    steps.deed = lambda: put(graph, "main", p("a", v=3))
    other.revert(commit)
    assert values(graph) == {"a": 3, "b": 0}


def test_the_same_branch_merged_twice_at_once_is_merged_once(graph):
    outcomes = []

    def merge():
        with Graph.open(graph.uri, durability="process") as own:
            outcomes.append(own.merge("side").outcome)

    threads = [threading.Thread(target=merge) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(outcomes) == ["already_up_to_date"] * 3 + ["fast_forward"]
    assert values(graph) == {"a": 1, "b": 0, "n": 1}
    merges = [one for one in graph.commits() if one.merged_parent_commit_id is not None]
    assert len(merges) == 1


@pytest.mark.parametrize("again", [False, True])
def test_a_source_that_is_deleted_meanwhile_is_told_as_such(graph, monkeypatch, again):
    history = store_of(graph).history
    real = history.descent

    def descent(**options):
        monkeypatch.setattr(history, "descent", real)
        with Graph.open(graph.uri, durability="process") as other:
            store_of(other).refs.delete("side")  # for good, at once
            if again:
                other.create_branch("side")
        return real(**options)

    monkeypatch.setattr(history, "descent", descent)
    put(graph, "main", p("m", v=5))
    with pytest.raises(NotFoundError, match="branch 'side' was deleted meanwhile"):
        graph.merge("side")
    assert values(graph) == {"a": 0, "b": 0, "m": 5}


def test_a_target_that_is_deleted_meanwhile_is_told_as_such(meddled, graph):
    steps, other = meddled
    graph.create_branch("target")
    steps.deed = lambda: graph.delete_branch("target", force=True)
    with pytest.raises(NotFoundError, match="branch 'target' was deleted meanwhile"):
        put(other, "target", p("z", v=1))
    assert steps.deed is None


def test_a_reader_of_a_branch_that_is_deleted_meanwhile_is_told_so(graph):
    with Graph.open(graph.uri, durability="process") as other:
        lines = other.export(branch="side")
        next(lines)
        lines.close()
        lines = other.export(branch="side")
        graph.delete_branch("side", force=True)
        graph.cleanup(keep_versions=1, grace=0)
        with pytest.raises(NotFoundError, match="branch 'side' was deleted meanwhile"):
            list(lines)


@pytest.mark.parametrize("look", ["line.hinted", "pylance.opened"])
def test_a_branch_that_goes_between_two_looks_at_it_is_told_as_such(graph, monkeypatch, look):
    real = {"line.hinted": files.hinted, "pylance.opened": pylance.opened}[look]
    with Graph.open(graph.uri, durability="process") as other:

        def looked(*where, **how):
            monkeypatch.undo()
            found = real(*where, **how)
            store_of(other).refs.delete("side")  # likewise
            other.cleanup(keep_versions=1, grace=0)
            return found

        with Graph.open(graph.uri, durability="process") as fresh:
            monkeypatch.setattr(f"omnigraph.storage.lance.{look}", looked)
            with pytest.raises(NotFoundError, match="branch 'side' was deleted meanwhile"):
                fresh.snapshot("side")
