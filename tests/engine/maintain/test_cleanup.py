"""Cleanup: the past goes, and nothing that anybody may still ask for goes with it."""

from __future__ import annotations

import os
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest
from maintain_world import (
    SCHEMA,
    WRITES,
    At,
    StopAt,
    Stopped,
    add,
    age,
    make,
    names,
    reopened,
    stats,
    stepping,
)

from inside import core_of, store_of, table_of
from omnigraph import Graph, OpenMode
from omnigraph.errors import InputError, NotFoundError, StorageUnavailableError
from omnigraph.model.ports import UlidFactory, World
from omnigraph.model.steps import Step
from omnigraph.storage.objects.local import Presence

PEOPLE = ("ada", "bob", "cyd", "dan", "eve", "fay")


STEPS = (
    Step.CLEANUP_FORK_RECLAIMED,
    Step.CLEANUP_MANIFEST_PRUNED,
    Step.CLEANUP_VERSIONS_COLLECTED,
)


class Later:
    """A clock that runs ahead."""

    def __init__(self, **ahead):
        self._ahead_us = timedelta(**ahead) // timedelta(microseconds=1)

    def now_us(self):
        return time.time_ns() // 1000 + self._ahead_us


@pytest.fixture
def graph(tmp_path):
    with make(tmp_path / "g.omni") as graph:
        add(graph, *PEOPLE)
        yield graph


def readable(graph, branch="main"):
    """How many of the branch's snapshots can be read, newest first."""
    found = 0
    for commit in graph.commits(branch):
        try:
            names(graph, snapshot=commit.graph_commit_id)
        except NotFoundError:
            break
        found += 1
    return found


def table_versions(graph, key="node:Person"):
    entry = graph.snapshot().entries[key]
    return store_of(graph).tables.versions(entry.location, entry.branch)


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ({"keep_versions": 1}, 1),
        ({"keep_versions": 3}, 3),
        ({"keep_versions": 100}, 7),
        ({"older_than": timedelta(0)}, 1),
        ({"older_than": 0}, 1),
        ({"older_than": timedelta(hours=1)}, 7),
        ({"keep_versions": 2, "older_than": timedelta(hours=1)}, 7),
        ({"keep_versions": 2, "older_than": timedelta(0)}, 2),
    ],
    ids=str,
)
def test_a_snapshot_goes_only_if_every_bound_lets_it_go(graph, policy, kept):
    content, history = sorted(graph.export()), graph.commits()
    report = graph.cleanup(**policy)
    with reopened(graph) as fresh:
        assert readable(fresh) == kept
        assert sorted(fresh.export()) == content
        assert fresh.commits() == history, "the history is never shortened"
    assert stats(report, "node:Person").old_versions_removed == 7 - kept
    assert report.manifest.old_versions_removed == 7 - kept
    assert len(table_versions(graph)) == kept


def test_a_collected_snapshot_is_a_typed_error(graph):
    old = graph.commits()[3].graph_commit_id
    graph.cleanup(keep_versions=1)
    with pytest.raises(NotFoundError):
        names(graph, snapshot=old)


def test_a_preview_touches_nothing_and_tells_the_truth(graph):
    told = graph.cleanup(keep_versions=2, preview=True)
    assert readable(graph) == 7
    done = graph.cleanup(keep_versions=2)
    assert [one.to_json() for one in told.datasets] == [one.to_json() for one in done.datasets]
    assert told.bytes_removed == done.bytes_removed > 0


def test_a_read_only_handle_may_preview_but_not_collect(graph):
    with Graph.open(graph.uri, mode=OpenMode.READ_ONLY) as reader:
        assert reader.cleanup(keep_versions=1, preview=True).preview
        with pytest.raises(InputError):
            reader.cleanup(keep_versions=1)


def test_a_second_run_finds_nothing(graph):
    graph.cleanup(keep_versions=1)
    assert graph.cleanup(keep_versions=1).bytes_removed == 0


def test_writes_and_reads_go_on_afterwards(graph):
    warm = reopened(graph)
    assert names(warm) == list(PEOPLE)
    add(graph, "gus")
    graph.optimize()
    graph.cleanup(keep_versions=1, grace=0)
    assert names(warm) == [*PEOPLE, "gus"]
    add(warm, "hal")
    warm.mutate(WRITES, "age", params={"name": "ada", "age": 3})
    assert age(graph, "ada") == 3


@pytest.mark.parametrize("policy", [{}, {"keep_versions": 0}, {"older_than": -1}])
def test_a_policy_that_makes_no_sense_is_refused(graph, policy):
    with pytest.raises(InputError):
        graph.cleanup(**policy)


def test_few_versions_are_warned_about(graph):
    assert graph.cleanup(keep_versions=2, preview=True).warnings
    assert not graph.cleanup(keep_versions=3, preview=True).warnings


# --- what branches need ---


def test_branches_keep_what_they_show_and_inherit(graph):
    graph.create_branch("own")
    add(graph, "owen", branch="own")
    graph.create_branch("lazy")
    for name in ("gus", "hal", "ivy"):
        add(graph, name)
    graph.optimize()
    graph.cleanup(keep_versions=1)
    with reopened(graph) as fresh:
        assert names(fresh, branch="own") == sorted([*PEOPLE, "owen"])
        assert names(fresh, branch="lazy") == list(PEOPLE)
        add(fresh, "lea", branch="lazy")
        assert names(fresh, branch="lazy") == sorted([*PEOPLE, "lea"])


def test_branches_can_still_be_merged(graph):
    graph.create_branch("side")
    add(graph, "sid", branch="side")
    add(graph, "gus")
    graph.cleanup(keep_versions=1)
    assert graph.merge("side").outcome == "merged"
    add(graph, "sue", branch="side")
    add(graph, "hal")
    graph.cleanup(keep_versions=1)
    assert graph.merge("side").outcome == "merged"
    assert names(graph) == sorted([*PEOPLE, "sid", "gus", "sue", "hal"])


def test_a_branch_keeps_its_own_last_snapshots(graph):
    graph.create_branch("side")
    add(graph, "u1", "u2", "u3", branch="side")
    before = graph.commits("side")
    graph.cleanup(keep_versions=2)
    for commit in before[:2]:
        names(graph, snapshot=commit.graph_commit_id)
    with pytest.raises(NotFoundError):
        names(graph, snapshot=before[2].graph_commit_id)


# --- orphans ---


def lines(graph, key="node:Person"):
    return set(store_of(graph).tables.lines(graph.snapshot().entries[key].location))


def test_a_line_of_a_branch_that_is_gone_is_reclaimed(graph):
    location = graph.snapshot().entries["node:Person"].location
    tables, head = store_of(graph).tables, graph.snapshot().entries["node:Person"].version
    tables.fork(location, source_branch=None, version=head, branch_id="01GONE")
    tables.fork(location, source_branch="01GONE", version=head, branch_id="01GONECHILD")
    report = graph.cleanup(keep_versions=100)
    assert set(report.reclaimed) == {("node:Person", "01GONE"), ("node:Person", "01GONECHILD")}
    assert lines(graph) == set()
    assert graph.cleanup(keep_versions=100).reclaimed == ()


def test_a_line_that_its_live_branch_does_not_use_is_reclaimed(graph):
    branch = graph.create_branch("side")
    entry = graph.snapshot().entries["node:Person"]
    store_of(graph).tables.fork(
        entry.location, source_branch=None, version=entry.version, branch_id=branch.id
    )
    add_city = '{"type":"City","data":{"name":"Ulm"}}'
    graph.load(add_city, mode="append", branch="side")
    report = graph.cleanup(keep_versions=100)
    assert report.reclaimed == (("node:Person", branch.id),)
    assert lines(graph, "node:City") == {branch.id}
    assert names(graph, branch="side") == list(PEOPLE)


def test_a_line_that_a_writer_may_come_back_to_stays_while_others_are_there(graph):
    branch = graph.create_branch("side")
    entry = graph.snapshot().entries["node:Person"]
    store_of(graph).tables.fork(
        entry.location, source_branch=None, version=entry.version, branch_id=branch.id
    )
    with reopened(graph):
        assert graph.cleanup(keep_versions=100).reclaimed == ()
    with Graph.open(graph.uri, world=World(clock=Later(days=8))) as later:
        assert later.cleanup(keep_versions=100).reclaimed == (("node:Person", branch.id),)


def test_a_manifest_line_without_a_reference_is_reclaimed(graph):
    manifests = store_of(graph).manifests
    manifests.datasets.fork(manifests.fresh(None).opened, "01HALFMADE")
    report = graph.cleanup(keep_versions=100)
    assert report.reclaimed == (("__manifest", "01HALFMADE"),)
    assert "01HALFMADE" not in manifests.datasets.branch_ids()


def test_a_deleted_branch_leaves_no_line_of_any_life(graph):
    for name in ("sid", "sue"):
        graph.create_branch(name)
        add(graph, name, branch=name)
        graph.merge(name)
        graph.delete_branch(name)
    assert lines(graph) == set()
    graph.cleanup(keep_versions=1)
    assert names(graph) == [*PEOPLE, "sid", "sue"]


def test_a_line_that_another_stands_on_stays_as_long_as_that_one(graph):
    """Children go first; of a child that stays, because somebody may be about to use it, the line
    that it was made from stays too."""
    entry, tables = graph.snapshot().entries["node:Person"], store_of(graph).tables
    older, younger = (core_of(graph).world.ids.ulid() for _ in range(2))
    tables.fork(entry.location, source_branch=None, version=entry.version, branch_id=older)
    tables.fork(entry.location, source_branch=older, version=entry.version, branch_id=younger)
    tables.head(entry.location, younger).tags.create("held", (younger, entry.version))
    assert graph.cleanup(keep_versions=1).reclaimed == ()
    assert {older, younger} <= tables.lines(entry.location).keys()
    tables.head(entry.location, None).tags.delete("held")
    gone = graph.cleanup(keep_versions=1).reclaimed
    assert [line for _, line in gone] == [younger, older]


def test_many_branches_that_are_gone_cost_so_much_each(tmp_path):
    def reads(branches):
        with make(tmp_path / f"g{branches}.omni") as graph:
            for number in range(branches):
                graph.create_branch(f"b{number}")
                add(graph, f"p{number}", branch=f"b{number}")
            for number in range(0, branches, 2):
                graph.delete_branch(f"b{number}", force=True)
            objects, count = store_of(graph).objects, 0
            read = objects.read

            def counted(key):
                nonlocal count
                count += 1
                return read(key)

            for store in {id(one): one for one in (objects, store_of(graph).tables.store)}.values():
                store.read = counted
            gone = graph.cleanup(keep_versions=1).reclaimed
            assert len(gone) == branches // 2 * 3, "lines of two tables and of the manifest"
            return count

    few, many = reads(6), reads(24)
    assert many < 4.2 * few, (few, many)


def test_the_table_of_a_dropped_type_goes_with_its_last_snapshot(graph):
    location = graph.snapshot().entries["node:City"].location
    kept = graph.schema_source().replace("node City { name: String @key }\n", "")
    graph.apply_schema(kept, allow_data_loss=True)
    graph.cleanup(keep_versions=1)
    assert not (Path(graph.uri) / location / "_versions").exists()
    assert names(graph) == list(PEOPLE)


# --- others at work ---


def with_a_type_to_merge(graph):
    """A branch with a type of its own and rows of it."""
    graph.create_branch("side")
    graph.apply_schema(SCHEMA + "node Toy { name: String @key }", branch="side")
    graph.load('{"type":"Toy","data":{"name":"ball"}}', mode="append", branch="side")


def exported(graph):
    return {branch: sorted(graph.export(branch=branch)) for branch in graph.branches()}


def test_tables_that_a_dead_merge_or_apply_made_are_reclaimed(graph):
    with_a_type_to_merge(graph)
    uri, before, known = graph.uri, exported(graph), places(graph)
    graph.close()
    doll = SCHEMA + "node Doll { name: String @key }"
    for act in (lambda one: one.merge("side"), lambda one: one.apply_schema(doll)):
        world = World(steps=StopAt(Step.WRITE_STAGED, 1), durability="process")
        with Graph.open(uri, world=world) as dying, pytest.raises(Stopped):
            act(dying)
    with Graph.open(uri, durability="process") as fresh:
        left = places(fresh) - known
        assert len(left) == 2
        assert {line for _, line in fresh.cleanup(keep_versions=1).reclaimed} == left
        assert places(fresh) == known
        assert exported(fresh) == before
        fresh.merge("side")
        assert exported(fresh)["main"] == before["side"]


def places(graph):
    """The folders of all tables."""
    return {
        f"{kind}/{one.name}"
        for kind in ("nodes", "edges")
        for one in Path(graph.uri, kind).iterdir()
        if one.is_dir()
    }


class FullDisk:
    """No publish gets through."""

    def reach(self, step):
        if step is Step.PUBLISH_STAGED:
            raise OSError("no space left")


def test_a_table_that_an_unfinished_merge_made_stays_for_its_recovery(graph):
    with_a_type_to_merge(graph)
    add(graph, "gus", branch="side")  # a table moves, so that the merge can be finished
    uri, wanted = graph.uri, exported(graph)["side"]
    graph.close()
    world = World(steps=StopAt(Step.TABLES_APPLIED, 1), durability="process")
    # Its own witness cannot settle it, nor can who comes next.
    with Graph.open(uri, world=world) as dying:
        core_of(dying).recovery.resolve_doubt = _nothing
        with pytest.raises(Stopped):
            dying.merge("side")
    with Graph.open(uri, world=World(steps=FullDisk(), durability="process")) as hindered:
        assert hindered.cleanup(keep_versions=1).reclaimed == ()
    with Graph.open(uri, durability="process") as fresh:
        assert [one.recovery_kind for one in fresh.recoveries()] == ["RolledForward"]
        assert exported(fresh)["main"] == wanted


def _nothing(_sidecar, _outcome, _lease, cause):
    raise cause


def test_what_a_long_write_of_another_thread_made_stays(graph, monkeypatch):
    with_a_type_to_merge(graph)
    wanted = exported(graph)["side"]
    monkeypatch.setattr(Presence, "is_alone", lambda *_, **__: True)  # quiet for more than a minute
    reports = []

    def tidy():
        thread = threading.Thread(target=lambda: reports.append(busy.cleanup(keep_versions=1)))
        thread.start()
        thread.join()

    with stepping(graph, At(Step.WRITE_STAGED, tidy)) as busy:
        busy.merge("side")
        assert exported(busy)["main"] == wanted
    assert [one.reclaimed for one in reports] == [()]


def test_a_former_head_stays_for_its_readers_while_others_have_the_graph_open(graph):
    with reopened(graph) as other:
        graph.cleanup(keep_versions=1)
        assert readable(other) == 7
    with Graph.open(graph.uri, world=World(clock=Later(minutes=2))) as later, reopened(graph):
        later.cleanup(keep_versions=1)
        assert readable(later) == 1


def test_another_thread_at_work_counts_as_another(graph):
    thread = threading.Thread(target=names, args=(graph,))
    thread.start()
    thread.join()
    graph.cleanup(keep_versions=1)
    assert len(table_versions(graph)) == 7
    graph.cleanup(keep_versions=1, grace=0)
    assert len(table_versions(graph)) == 1


def test_what_an_unfinished_write_would_go_back_to_is_kept(graph):
    table = table_of(graph, "node:Person")
    head = table.version
    store_of(graph).tables.apply(table.stage_delete_ids(["ada"]))
    graph.cleanup(keep_versions=1)
    assert table_versions(graph) == (head, head + 1)


def test_an_unreadable_sidecar_does_not_stop_it(graph):
    before = graph.snapshot()
    store_of(graph).objects.put("__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV.json", b"not json")
    report = graph.cleanup(keep_versions=1)
    assert report.old_versions_removed
    assert readable(graph) == 1
    assert graph.snapshot() == before


def test_one_table_that_fails_does_not_stop_the_others(graph, monkeypatch):
    tables, person = store_of(graph).tables, graph.snapshot().entries["node:Person"].location
    collect = type(tables).collect_lines

    def failing(self, location, *how):
        if location == person:
            raise StorageUnavailableError("no", uri=location, reason="injected")
        return collect(self, location, *how)

    with monkeypatch.context() as patched:
        patched.setattr(type(tables), "collect_lines", failing)
        report = graph.cleanup(keep_versions=1)
    assert stats(report, "node:Person").error == "no"
    assert stats(report, "edge:Knows").old_versions_removed == 6
    assert stats(graph.cleanup(keep_versions=1), "node:Person").old_versions_removed == 6


def test_abandoned_files_go_when_they_are_old(graph):
    entry = graph.snapshot().entries["node:Person"]
    folder = Path(graph.uri) / entry.location / "data"
    known = set(folder.iterdir())
    table = table_of(graph, "node:Person")
    table.stage_append(table.read().slice(0, 1))
    (left,) = set(folder.iterdir()) - known
    graph.cleanup(keep_versions=1)
    assert left.exists()
    old = time.time() - 8 * 24 * 3600
    os.utime(left, (old, old))
    graph.cleanup(keep_versions=1)
    assert not left.exists()
    assert names(graph) == list(PEOPLE)


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("step", STEPS)
def test_a_killed_cleanup_is_finished_by_the_next(graph, step, nth):
    tables, entry = store_of(graph).tables, graph.snapshot().entries["node:Person"]
    graph.create_branch("side")
    add(graph, "sid", branch="side")
    for name in ("01GONE", "01GONETOO"):
        tables.fork(entry.location, source_branch=None, version=entry.version, branch_id=name)
    world = World(steps=StopAt(step, nth), durability="process")
    uri = graph.uri
    graph.close()
    with Graph.open(uri, world=world) as dying, pytest.raises(Stopped):
        dying.cleanup(keep_versions=2)
    with Graph.open(uri, durability="process") as fresh:
        assert names(fresh) == list(PEOPLE)
        assert names(fresh, branch="side") == sorted([*PEOPLE, "sid"])
        fresh.cleanup(keep_versions=2)
        assert readable(fresh) == 2
        assert lines(fresh) == {core_of(fresh).branch("side").id}
        assert fresh.cleanup(keep_versions=2).bytes_removed == 0
        add(fresh, "gus")
        assert names(fresh) == [*PEOPLE, "gus"]


def test_a_branch_that_another_process_is_making_is_not_taken_for_left_over(graph, monkeypatch):
    """Its fork has files for a moment before it has a reference, and then a name."""
    monkeypatch.setattr(Presence, "is_alone", lambda *_, **__: False)
    now, long_ago = (UlidFactory(clock).ulid() for clock in (World().clock.now_us, lambda: 0))
    for line in (now, long_ago):
        versions = Path(graph.uri, "__manifest/tree", line, "_versions")
        versions.mkdir(parents=True)
        (versions / "1.manifest").write_bytes(b"half")
    graph.cleanup(keep_versions=3)
    assert Path(graph.uri, "__manifest/tree", now).exists()
    assert not Path(graph.uri, "__manifest/tree", long_ago).exists()


def test_locks_of_deleted_branches_and_drafts_of_killed_writers_go(graph):
    locks, recovery = Path(graph.uri, "__locks"), Path(graph.uri, "__recovery")
    for number in range(3):
        graph.create_branch(f"b{number}")
        add(graph, "dan", branch=f"b{number}")
    graph.delete_branch("b0", force=True)
    graph.delete_branch("b1", force=True)
    assert len(list(locks.glob("01*.lock"))) == 3
    old, young = recovery / ".draft-old", recovery / ".draft-young"
    for draft in (old, young):
        draft.write_bytes(b"{")
    os.utime(old, (0, 0))
    graph.cleanup(keep_versions=3, preview=True)
    assert old.exists()
    graph.cleanup(keep_versions=3)
    assert not old.exists()
    assert young.exists(), "somebody may be writing it"
    assert len(list(locks.glob("01*.lock"))) == 1
    add(graph, "eve", branch="b2")
    graph.delete_branch("b2", force=True)
    graph.cleanup(keep_versions=3)
    left = sorted(path.name for path in locks.iterdir())
    assert left == ["main.lock", "present.lock", "~past.lock"]
