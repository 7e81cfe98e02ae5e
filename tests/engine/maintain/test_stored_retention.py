"""The retention that a graph carries: by branch, kept with the graph, applied when asked to."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from omnigraph import Graph, OpenMode, errors
from omnigraph.engine.maintain import optimize as upkeep
from omnigraph.engine.maintain.stored_retention import Bounds, Retention
from omnigraph.model.limits import AUTO_CLEANUP_COMMITS

SCHEMA = "node P { k: String @key  v: I32? }"


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="process") as graph:
        yield graph


def write(graph, count, branch="main"):
    for number in range(count):
        graph.mutate(f'query q() {{ insert P {{ k: "{branch}{number}" }} }}', branch=branch)


def readable(graph, branch="main"):
    """How many of the branch's commits can still be read, by somebody who remembers none."""
    found = 0
    with Graph.open(graph.uri, mode=OpenMode.READ_ONLY) as other:
        for commit in other.commits(branch):
            try:
                other.snapshot(at=commit.graph_commit_id)
            except errors.NotFoundError:
                continue
            found += 1
    return found


def test_a_new_graph_carries_none(graph):
    assert graph.retention() == Retention()
    with pytest.raises(errors.InputError, match="at least one of keep_versions or older_than"):
        graph.cleanup()


def test_it_stays_with_the_graph_and_is_replaced_as_a_whole(graph):
    rules = {"*": {"keep_versions": 5}, "release/*": {"older_than": timedelta(days=90)}}
    stored = graph.set_retention(rules)
    assert stored.branches == {
        "*": Bounds(keep_versions=5),
        "release/*": Bounds(older_than_us=90 * 24 * 3600 * 1_000_000),
    }
    with Graph.open(graph.uri, mode=OpenMode.READ_ONLY) as other:
        assert other.retention() == stored
        with pytest.raises(errors.InputError, match="read-only"):
            other.set_retention({})
    assert graph.set_retention({}) == graph.retention() == Retention()


@pytest.mark.parametrize(
    ("branch", "keep"),
    [("main", 1), ("release/1", 2), ("release/1/fix", 3), ("exact", 4), ("exactly", 1)],
)
def test_a_branch_goes_by_the_longest_pattern_that_fits(branch, keep):
    retention = Retention(
        branches={
            pattern: Bounds(keep_versions=number)
            for pattern, number in {"*": 1, "release/*": 2, "release/*/fix": 3, "exact": 4}.items()
        }
        | {"exac*": Bounds(keep_versions=1)}
    )
    assert retention.bounds(branch).keep_versions == keep


def test_cleanup_goes_by_it_branch_by_branch(graph):
    for name in ("work", "release/1", "audit"):
        graph.create_branch(name)
    for name in ("main", "work", "release/1", "audit"):
        write(graph, 6, name)
    graph.set_retention({"main": {"keep_versions": 2}, "release/*": {"keep_versions": 4}})
    preview = graph.cleanup(preview=True)
    assert preview.retention == graph.retention()
    assert preview.keep_versions is None
    assert any("'main'" in warning for warning in preview.warnings)
    graph.cleanup()
    # Every branch was made from main's first commit: that one stays for merges.
    left = {name: readable(graph, name) for name in ("main", "work", "release/1", "audit")}
    assert left == {"main": 2 + 1, "release/1": 4 + 1, "work": 6 + 1, "audit": 6 + 1}
    # Bounds of one's own are for every branch.
    graph.cleanup(keep_versions=1)
    assert readable(graph, "audit") == 1 + 1


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ({"*": {}}, "have no bound"),
        ({"*": {"keep_versions": 0}}, "keep at least 1|keep_versions is 0"),
        ({"*": {"keep_versions": "5"}}, "must be int"),
        ({"*": {"older_than": -1}}, "negative"),
        ({"*": {"older_than": float("nan")}}, "no length of time"),
        ({"*": {"keep": 5}}, "unknown bound 'keep'"),
        ({"": {"keep_versions": 5}}, "must not be empty"),
        ({"*": 5}, "must be Mapping"),
        (None, "must be Mapping"),
        ({1: {"keep_versions": 5}}, "must be str"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(graph, rules, words):
    graph.set_retention({"*": {"keep_versions": 7}})
    with pytest.raises(errors.InputError, match=words):
        graph.set_retention(rules)
    assert graph.retention().branches == {"*": Bounds(keep_versions=7)}


def test_automatic_without_a_rule_is_refused(graph):
    with pytest.raises(errors.InputError, match="without a rule"):
        graph.set_retention({}, automatic=True)


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"format_version": 2, "branches": {}, "automatic": false}',
        b'{"format_version": 1, "branches": {"*": {}}, "automatic": false}',
        b'{"format_version": 1, "branches": {"*": {"keep_versions": 0}}, "automatic": false}',
    ],
)
def test_an_unreadable_one_is_told_and_can_be_set_again(graph, body):
    graph.set_retention({"*": {"keep_versions": 7}})
    Path(graph.uri, "_refs/retention.json").write_bytes(body)
    for call in (graph.retention, graph.cleanup):
        with pytest.raises(errors.CorruptGraphError, match="retention"):
            call()
    graph.cleanup(keep_versions=3)  # it is not asked
    write(graph, 1)
    graph.set_retention({"*": {"keep_versions": 7}})
    graph.cleanup()


@pytest.mark.parametrize("automatic", [False, True])
def test_upkeep_goes_by_it_when_asked_to(graph, automatic, monkeypatch):
    monkeypatch.setattr(upkeep, "AUTO_CLEANUP_COMMITS", 8)
    monkeypatch.setattr("omnigraph.engine.upkeep.GRACE_MS", 0)
    graph.set_retention({"*": {"keep_versions": 3}}, automatic=automatic)
    for number in range(20):
        graph.mutate(f'query q() {{ insert P {{ k: "{number}" }} }}')
        graph._auto.wait()
    assert readable(graph) == (3 + 5 if automatic else 1 + 20)
    assert len(list(graph.export())) == 20


def test_processes_of_one_write_each_come_to_it_in_turn(graph, monkeypatch):
    monkeypatch.setattr(upkeep, "AUTO_CLEANUP_COMMITS", 4)
    monkeypatch.setattr("omnigraph.engine.upkeep.GRACE_MS", 0)
    graph.set_retention({"*": {"keep_versions": 2}}, automatic=True)
    for number in range(9):
        with Graph.open(graph.uri, durability="process") as other:
            other.mutate(f'query q() {{ insert P {{ k: "{number}" }} }}')
    assert readable(graph) < 6
    assert AUTO_CLEANUP_COMMITS > 100  # it is not worth it more often


def test_an_unreadable_one_stops_no_write(graph, monkeypatch):
    monkeypatch.setattr(upkeep, "AUTO_CLEANUP_COMMITS", 2)
    Path(graph.uri, "_refs").mkdir(exist_ok=True)
    Path(graph.uri, "_refs/retention.json").write_bytes(b"?")
    write(graph, 5)
    graph._auto.wait()
    assert readable(graph) == 6
