"""Optimize: fewer fragments, whole indexes, the same content, and nobody in the way."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import lance
import pytest
from maintain_world import (
    SCHEMA,
    WRITES,
    At,
    add,
    age,
    fragments,
    make,
    names,
    reopened,
    stats,
    stepping,
)

from inside import core_of, store_of, table_of
from omnigraph import Graph
from omnigraph.engine.maintain import optimize as optimizing
from omnigraph.engine.maintain.optimize import MaintenancePolicy, Work, optimize
from omnigraph.errors import ConflictError, StorageUnavailableError
from omnigraph.model.steps import Step
from omnigraph.storage.table.index import IndexBuild, IndexSpec, tasks
from omnigraph.storage.table.upkeep import run_at

PEOPLE = ("ada", "bob", "cyd", "dan", "eve")


@pytest.fixture
def graph(tmp_path):
    with make(tmp_path / "g.omni") as graph:
        add(graph, *PEOPLE)
        yield graph


def indexes(graph, key="node:Person", branch="main"):
    return table_of(graph, key, branch).indexes()


def test_it_folds_and_indexes_all_tables_in_one_commit(graph):
    before, commits = sorted(graph.export()), len(graph.commits())
    report = graph.optimize()
    assert len(graph.commits()) == commits + 1
    assert report.commit == graph.commits()[0]
    people = stats(report, "node:Person")
    assert (people.committed, people.fragments_removed, people.fragments_added) == (True, 5, 1)
    assert people.published_dataset_version == people.lance_head_version
    assert fragments(graph) == fragments(graph, "edge:Knows") == 1
    assert {one.name for one in indexes(graph)} == {
        "id_btree",
        "name_btree",
        "bio_btree",
    }
    assert {one.name for one in indexes(graph, "edge:Knows")} == {
        "id_btree",
        "src_btree",
        "dst_btree",
    }
    assert all(one.rows_unindexed == 0 for one in indexes(graph))
    assert sorted(graph.export()) == before
    assert [age(graph, name) for name in PEOPLE] == [1] * 5


def test_a_full_text_index_of_an_earlier_version_goes(graph):
    before = sorted(graph.export())
    place = Path(graph.uri) / graph.snapshot().entries["node:Person"].location
    lance.dataset(str(place)).create_scalar_index("bio", "INVERTED", name="bio_inverted")
    graph.repair(confirm=True)
    assert "bio_inverted" in {one.name for one in indexes(graph)}
    assert sorted(graph.export()) == before
    graph.optimize()
    assert {one.name for one in indexes(graph)} == {"id_btree", "name_btree", "bio_btree"}
    assert sorted(graph.export()) == before
    assert not any(one.committed for one in graph.optimize().datasets)


def test_an_empty_table_is_left_alone(graph):
    city = stats(graph.optimize(), "node:City")
    assert (city.committed, city.skipped, city.pending_indexes) == (False, None, ())


def test_a_second_run_finds_nothing_and_makes_no_version(graph):
    graph.optimize()
    before = graph.snapshot()
    report = graph.optimize()
    assert report.commit is None
    assert not any(one.committed for one in report.datasets)
    assert graph.snapshot() == before


def test_an_index_that_cannot_be_built_is_told_with_its_reason(graph):
    pending = stats(graph.optimize(), "node:Person").pending_indexes
    assert [(one.property, one.reason) for one in pending] == [("spot", "no row has a vector yet")]
    graph.load('{"type":"Person","data":{"name":"vic","spot":[1.0,2.0]}}', mode="merge")
    report = graph.ensure_indices()
    assert report.pending_indexes == {}
    assert "spot_vector" in {one.name for one in indexes(graph)}


def test_ensure_indices_folds_nothing(graph):
    report = graph.ensure_indices()
    assert stats(report, "node:Person").committed
    assert fragments(graph) == len(PEOPLE)
    assert graph.commits()[0].properties["writer_kind"] == "EnsureIndices"


def test_deleted_rows_are_worked_off(graph):
    graph.optimize()
    graph.mutate(WRITES, "drop", params={"name": "bob"})
    table = table_of(graph, "node:Person")
    assert table.fragmentation().deleted == 1
    graph.optimize()
    assert table_of(graph, "node:Person").fragmentation().deleted == 0
    assert names(graph) == ["ada", "cyd", "dan", "eve"]


def test_rows_keep_their_identity(graph):
    def row_ids():
        table = table_of(graph, "node:Person")
        rows = table.read(columns=["id"], with_row_id=True).to_pylist()
        return {row["id"]: row["_rowid"] for row in rows}

    before = row_ids()
    graph.optimize()
    assert row_ids() == before
    since = graph.commits()[1].graph_commit_id
    assert list(graph.diff(since, "main").changes) == []


def test_blobs_survive_folding(tmp_path):
    schema = "node File { name: String @key  body: Blob? }"
    with Graph.init(str(tmp_path / "g.omni"), schema, durability="process") as graph:
        for name in "abc":
            body = "base64:" + {"a": "QUFB", "b": "QkJC", "c": "Q0ND"}[name]
            line = f'{{"type":"File","data":{{"name":"{name}","body":"{body}"}}}}'
            graph.load(line, mode="append")
        before = sorted(graph.export())
        assert stats(graph.optimize(), "node:File").fragments_added == 1
        assert sorted(graph.export()) == before
        reader = graph.read_blob("node", "File", "b", "body")
        assert bytes(reader.read_range(0, reader.size)) == b"BBB"


# --- side by side with others ---


def test_a_write_that_lands_meanwhile_is_kept_and_the_folding_too(graph):
    other = reopened(graph)
    worker = stepping(graph, At(Step.WRITE_STAGED, lambda: add(other, "fay")))
    report = worker.optimize()
    assert stats(report, "node:Person").fragments_removed == 5
    assert names(reopened(graph)) == sorted([*PEOPLE, "fay"])
    assert fragments(reopened(graph)) == 2


def test_a_fragment_that_changed_meanwhile_is_left_out(graph):
    other = reopened(graph)

    def change():
        other.mutate(WRITES, "age", params={"name": "ada", "age": 7})

    report = stepping(graph, At(Step.WRITE_STAGED, change)).optimize()
    assert stats(report, "node:Person").fragments_removed == 0
    table = table_of(reopened(graph), "node:Person")
    stored = set((Path(graph.uri) / table.entry.location / "data").iterdir())
    assert len(stored) == len(PEOPLE) + 1, "what did not fit is gone"
    assert age(reopened(graph), "ada") == 7
    reopened(graph).optimize()
    assert [age(reopened(graph), name) for name in PEOPLE] == [7, 1, 1, 1, 1]


@pytest.mark.parametrize("write", ["drop", "age"])
def test_the_first_index_comes_although_rows_go_and_change_all_the_time(tmp_path, write):
    people = [f"p{number:02}" for number in range(20)]
    with make(tmp_path / "g.omni", maintenance=None) as graph:
        add(graph, *people)
        params = {"name": people[-1]} | ({"age": 7} if write == "age" else {})
        other = reopened(graph)
        step = At(Step.WRITE_STAGED, lambda: other.mutate(WRITES, write, params=params))
        worker = core_of(stepping(graph, step))
        report = optimize(worker, "main", Work(depth="tail"))
        assert stats(report, "node:Person").committed
        now = reopened(graph)
        assert {one.name for one in indexes(now)} >= {"id_btree", "name_btree"}
        assert fragments(now) < len(people)
        assert not now.recoveries()
        left = [7] if write == "age" else [None]
        assert [age(now, name) for name in people] == [1] * 19 + left
        assert stats(now.optimize(), "node:Person").committed
        assert [age(now, name) for name in people] == [1] * 19 + left


def test_a_refused_folding_leaves_nothing_behind(graph, monkeypatch):
    def refuse(*_, **__):
        raise OSError("Not supported: not by this build")

    def files():
        tables = (Path(graph.uri) / folder for folder in ("nodes", "edges"))
        return {path for folder in tables for path in folder.rglob("*") if path.is_file()}

    graph.ensure_indices()
    before, commits = files(), graph.commits()
    monkeypatch.setattr("omnigraph.storage.table.table.Compaction.commit", refuse)
    with pytest.raises(ConflictError, match="refused"):
        graph.optimize()
    assert graph.commits() == commits
    assert not graph.pending_recoveries()
    assert files() == before
    monkeypatch.undo()
    assert stats(graph.optimize(), "node:Person").fragments_removed == 5


def test_a_strict_write_goes_on_when_only_maintenance_came_between(graph):
    other = reopened(graph)
    writer = stepping(graph, At(Step.WRITE_STAGED, lambda: other.optimize()))
    writer.mutate(WRITES, "age", params={"name": "bob", "age": 9})
    assert age(reopened(graph), "bob") == 9
    assert names(reopened(graph)) == list(PEOPLE)


def test_two_that_do_the_same_do_it_once(graph):
    other = reopened(graph)
    worker = stepping(graph, At(Step.WRITE_STAGED, lambda: other.optimize()))
    assert worker.optimize().commit is None
    assert fragments(reopened(graph)) == 1


# --- branches ---


def test_a_branch_folds_its_own_tables_and_leaves_inherited_ones(graph):
    graph.create_branch("side")
    graph.load('{"type":"Person","data":{"name":"fay"}}', mode="append", branch="side")
    report = graph.optimize("side")
    assert stats(report, "node:Person").committed
    assert stats(report, "edge:Knows").skipped == "inherited_from_parent"
    assert fragments(graph, branch="side") == 1
    assert fragments(graph) == len(PEOPLE)
    assert names(graph, branch="side") == sorted([*PEOPLE, "fay"])
    assert graph.merge("side").outcome == "fast_forward"
    assert names(graph) == sorted([*PEOPLE, "fay"])


# --- what stands in the way ---


def test_drift_is_skipped_and_told(graph):
    drift(graph)
    person = stats(graph.optimize(), "node:Person")
    assert person.skipped == "drift_needs_repair"
    assert person.lance_head_version == person.published_dataset_version + 1
    assert stats(graph.optimize(), "edge:Knows").skipped is None


def drift(graph):
    table = table_of(graph, "node:Person")
    store_of(graph).tables.apply(table.stage_delete_ids(["ada"]))


def test_a_sidecar_that_cannot_be_settled_refuses_it(graph):
    store_of(graph).objects.put("__recovery/01ARZ3NDEKTSV4RRFFQ69G5FAV.json", b"not json")
    with pytest.raises(ConflictError, match="clean recovery state"):
        graph.optimize()


@pytest.mark.parametrize("damage", ["zeros", "gone"])
def test_a_damaged_index_costs_no_answer_and_is_mended(graph, damage):
    graph.optimize()
    place = Path(graph.uri) / graph.snapshot().entries["node:Person"].dataset_path / "_indices"
    for file in place.rglob("*.lance"):
        file.write_bytes(b"\0" * file.stat().st_size) if damage == "zeros" else file.unlink()
    with reopened(graph) as fresh:
        assert age(fresh, "cyd") == 1
        fresh.mutate(WRITES, "age", params={"name": "cyd", "age": 5})
        assert stats(fresh.optimize(), "node:Person").committed
    with reopened(graph) as healed:
        assert age(healed, "cyd") == 5
        table = table_of(healed, "node:Person")
        found = table._pinned.dataset.scanner(filter="id = 'cyd'", use_scalar_index=True)
        assert found.to_table().num_rows == 1


def test_a_mutation_that_is_prepared_again_leaves_no_rows_of_the_first_time(graph):
    with reopened(graph) as other:
        stepping(graph, At(Step.WRITE_STAGED, other.optimize)).mutate(
            WRITES, "add", params={"name": "fay"}
        )
    assert names(graph) == [*PEOPLE, "fay"]
    entry = graph.snapshot("main").entries["node:Person"]
    stored = {path.name for path in (Path(graph.uri) / entry.location / "data").iterdir()}
    known = {
        file.path
        for version in store_of(graph).tables.versions(entry.location, None)
        for one in lance.dataset(f"{graph.uri}/{entry.location}", version=version).get_fragments()
        for file in one.metadata.files
    }
    assert stored == known


# --- the long part in pieces, each carried out by somebody who has only an address ---


ADD = """
query add($name: String, $bio: String, $spot: Vector(2)) {
  insert Person { name: $name, bio: $bio, spot: $spot }
  insert Knows { from: $name, to: $name }
}
query spoken($word: String) {
  match { $p: Person  search($p.bio, $word) } return { $p.name } order { $p.name asc }
}
query near($spot: Vector(2)) {
  match { $p: Person } return { $p.name } order { nearest($p.spot, $spot) } limit 2
}
query named($name: String) { match { $p: Person { name: $name } } return { $p.bio } }
"""
BIOS = ("long walks", "short walks", "long talks", "no talks", "walks and talks", "silence")


def grown(path) -> Graph:
    graph = Graph.init(str(path), SCHEMA, durability="process")
    for number, bio in enumerate(BIOS):
        params = {"name": f"p{number}", "bio": bio, "spot": [1.0, float(number)]}
        graph.mutate(ADD, "add", params=params)
    return graph


def elsewhere(seen):
    """What an executor does: nothing but values go there and come back."""

    def run(table, wanted):
        folder, options = table._pinned.dataset.uri, {}
        seen.extend(wanted)
        packed = [pickle.dumps((folder, options, table.version, task)) for task in wanted]
        return [pickle.loads(pickle.dumps(run_at(*pickle.loads(one)))) for one in packed]

    return run


def answers(graph):
    return (
        sorted(graph.export()),
        [graph.query(ADD, "spoken", params={"word": w}).to_pylist() for w in ("walks", "talks")],
        graph.query(ADD, "near", params={"spot": [1.0, 3.1]}).to_pylist(),
        [graph.query(ADD, "named", params={"name": n}).to_pylist() for n in ("p0", "p5", "p9")],
    )


def coverage(graph, key):
    found = table_of(graph, key, "main").indexes()
    return {one.name: (one.segments, one.rows_indexed, one.rows_unindexed) for one in found}


def index_folders(graph, key):
    entry = graph.snapshot("main").entries[key]
    return list((Path(graph.uri) / entry.location / "_indices").iterdir())


def test_pieces_built_elsewhere_come_to_the_same_as_segments_built_here(tmp_path):
    seen: list[object] = []
    with grown(tmp_path / "here") as here, grown(tmp_path / "there") as there:
        before = answers(there)
        here.optimize()
        optimize(core_of(there), "main", Work(run_tasks=elsewhere(seen), index_task_rows=2))
        assert answers(there) == before
        assert answers(there)[1:] == answers(here)[1:]  # edges have ids of their own
        for key in ("node:Person", "edge:Knows"):
            assert coverage(there, key) == coverage(here, key)
            # The pieces themselves are gone.
            assert len(index_folders(there, key)) == len(index_folders(here, key))
    pieces = [one.spec.name for one in seen if isinstance(one, IndexBuild)]
    assert pieces.count("bio_btree") == 3
    assert pieces.count("src_btree") == 3
    assert pieces.count("spot_vector") == 1
    assert any(isinstance(one, str) for one in seen)


@pytest.mark.parametrize(
    ("kind", "rows_max", "runs"),
    [
        ("btree", None, ((0, 1, 2, 5),)),
        ("btree", 10, ((0, 1), (2,), (5,))),
        ("btree", 1, ((0,), (1,), (2,), (5,))),
        ("btree", 1_000, ((0, 1, 2, 5),)),
        ("vector", 1, ((0, 1, 2, 5),)),
    ],
)
def test_a_segment_is_cut_between_fragments(kind, rows_max, runs):
    spec = IndexSpec(name=f"a_{kind}", column="a", kind=kind)
    wanted = IndexBuild(spec=spec, fragments=(0, 1, 2, 5))
    sizes = {0: 4, 1: 6, 2: 50, 5: 3, 7: 1}
    assert tuple(one.fragments for one in tasks(wanted, sizes, rows_max=rows_max)) == runs


# --- upkeep by itself: tables stay compact, nobody waits, and it never fails a write ---


EAGER = MaintenancePolicy(small_fragments_max=4)
MANY = tuple(f"p{number:02}" for number in range(40))


def test_many_small_commits_leave_few_fragments(tmp_path):
    with make(tmp_path / "g.omni", maintenance=EAGER) as graph:
        for name in MANY:
            add(graph, name)
            graph._auto.wait()
        assert fragments(graph) <= 8
        assert fragments(graph, "edge:Knows") <= 8
        assert names(graph) == list(MANY)
        table = table_of(graph, "node:Person")
        assert {one.name for one in table.indexes()} >= {"id_btree", "name_btree"}
        assert all(one.segments <= 4 for one in table.indexes())


def test_it_works_beside_the_writer(tmp_path):
    with make(tmp_path / "g.omni", maintenance=EAGER) as graph:
        add(graph, *MANY)
        assert names(graph) == list(MANY)
    with reopened(graph) as fresh:
        assert names(fresh) == list(MANY)
        kinds = [commit.properties.get("writer_kind") for commit in fresh.commits()]
        assert kinds.count("Mutation") == len(MANY)
        assert "Optimize" in kinds


def test_each_row_is_rewritten_a_few_times_only(tmp_path):
    with make(tmp_path / "g.omni", maintenance=None) as graph:
        lines = (f'{{"type":"Person","data":{{"name":"q{number}"}}}}' for number in range(1000))
        graph.load(lines, mode="append")
        add(graph, *MANY[:6])
        big = table_of(graph, "node:Person").fragment_ids[0]
        uri = graph.uri
    with reopened(graph, maintenance=EAGER) as graph:
        add(graph, "zoe")
        graph._auto.wait()
        table = table_of(graph, "node:Person")
        assert table.fragment_ids[0] == big, "the big fragment was left alone"
        assert len(table.fragment_ids) == 2
        assert age(graph, "zoe") == 1
        assert graph.uri == uri


def test_it_can_be_turned_off(tmp_path):
    with make(tmp_path / "g.omni", maintenance=None) as graph:
        add(graph, *MANY[:10])
        assert fragments(graph) == 10
        assert len(graph.commits()) == 11


@pytest.mark.parametrize("fault", [StorageUnavailableError("no", uri="", reason=""), ValueError()])
def test_its_failure_is_only_logged(tmp_path, monkeypatch, caplog, fault):
    def failing(*_):
        raise fault

    monkeypatch.setattr(optimizing, "optimize", failing)
    with caplog.at_level(logging.WARNING), make(tmp_path / "g", maintenance=EAGER) as graph:
        add(graph, *MANY[:10])
        graph._auto.wait()
        assert names(graph) == list(MANY[:10])
    assert "upkeep failed" in caplog.text


@pytest.mark.parametrize("parent", ["main", "side"])
def test_optimizing_a_branch_builds_the_indexes_that_it_inherited_anew(tmp_path, parent):
    """Lance would move them into the folder of the branch and look for them in their old one."""
    with Graph.init(tmp_path / "g", "node P { k: String @key  n: I32? @index }") as graph:
        graph.load([{"type": "P", "data": {"k": f"k{n}", "n": n}} for n in range(9)], mode="append")
        if parent != "main":
            graph.create_branch(parent)
            graph.mutate('query q() { insert P { k: "z", n: 1 } }', branch=parent)
        graph.optimize(branch=parent)
        graph.create_branch("work", from_branch=parent)
        for key in ("k1", "k2"):
            graph.mutate(f'query q() {{ delete P where k = "{key}" }}', branch="work")
        graph.optimize(branch="work")
        assert graph.verify(deep=True).problems == ()
        assert graph.optimize(branch="work").commit is None, "there is nothing left to do"
        found = graph.query('match { $p: P { k: "k3" } } return { $p.n }', branch="work")
        assert found.scalar() == 3
