"""One damaged thing is told by its name and stops nothing else."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from maintain_world import SCHEMA, add, make, names, reopened
from msgspec.structs import replace

from inside import core_of
from omnigraph import Graph, OpenMode
from omnigraph.cli.main import entry
from omnigraph.errors import (
    CorruptGraphError,
    NotFoundError,
    OmnigraphError,
    RecoveryRequiredError,
)
from omnigraph.model.ports import World
from omnigraph.model.steps import Step
from omnigraph.storage.lance.files import version_file
from omnigraph.storage.manifest.ref_files import ref_key

REF = "_refs/branches/b.json"


class Died(BaseException):
    """The process is gone: nothing may catch it and go on."""


class DieAt:
    def __init__(self, step: Step) -> None:
        self._step, self._dead = step, False

    def reach(self, step: Step) -> None:
        self._dead = self._dead or step is self._step
        if self._dead:
            raise Died


@pytest.fixture
def graph(tmp_path):
    with make(tmp_path / "g.omni", maintenance=None) as graph:
        add(graph, "ada", "bob")
        graph.create_branch("b")
        add(graph, "eve", branch="b")
        graph.create_branch("other")
        yield graph


def path(graph: Graph, *parts: str) -> Path:
    return Path(graph.uri, *parts)


def left_unfinished(graph: Graph, step: Step = Step.TABLES_APPLIED, **where) -> None:
    """A write dies at the step; its sidecar stays."""
    world = World(steps=DieAt(step), durability="process")
    dying = Graph.open(graph.uri, world=world, maintenance=None)
    with pytest.raises(Died):
        add(dying, "late", **where)


# --- references ------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"", b"{", b'{"format_version":1,"id":"../x"}'])
def test_an_unreadable_reference_stops_nothing_but_its_branch(graph, body):
    path(graph, REF).write_bytes(body)
    with reopened(graph) as fresh:
        assert fresh.branches() == ["main", "other"]
        assert [one.name for one in fresh.unreadable_branches()] == ["b"]
        with pytest.raises(CorruptGraphError) as caught:
            names(fresh, branch="b")
        assert caught.value.part == REF
        add(fresh, "zoe", branch="other")
        fresh.diff("main", "other")
        fresh.merge("other", delete_branch=True)
        fresh.apply_schema(SCHEMA + "node Town { name: String @key }\n")
        fresh.optimize()
        report = fresh.cleanup(keep_versions=1)
        assert "b" in dict(report.failures)
        assert not report.reclaimed
        assert any("'b'" in line for line in fresh.health().damage)


def test_what_an_unreadable_branch_needs_survives_cleanup(graph):
    before = names(graph, branch="b")
    whole = path(graph, REF).read_bytes()
    path(graph, REF).write_bytes(whole[:30])
    with reopened(graph) as fresh:
        add(fresh, "x1", "x2", "x3")
        fresh.cleanup(keep_versions=1)
    path(graph, REF).write_bytes(whole)
    with reopened(graph) as fresh:
        assert names(fresh, branch="b") == before


def test_an_unreadable_branch_is_not_taken_for_absent(graph):
    body = path(graph, REF).read_bytes()
    graph.delete_branch("other", force=True)
    path(graph, REF).write_bytes(body[:-20])
    with pytest.raises(CorruptGraphError, match="'b' cannot be read"):
        graph.diff("main", "b")
    # What this drops for good is that branch's data too, so it stays until the branch is known.
    graph.apply_schema("node Other { name: String @key }", allow_data_loss=True)
    path(graph, REF).write_bytes(body)
    assert names(graph, branch="b") == ["ada", "bob", "eve"]


@pytest.mark.parametrize(
    "damage", [lambda body: body[:-1], lambda body: bytes(len(body)), lambda body: body[:-30]]
)
def test_a_damaged_deletion_file_is_damage_whatever_the_library_calls_it(graph, damage):
    people = [f'{{"type":"Person","data":{{"name":"p{number}"}}}}' for number in range(9)]
    graph.load("\n".join(people), mode="append")
    before = graph.commits(limit=1)[0].graph_commit_id
    graph.mutate('query d() { delete Person where name = "p3" }')
    (file,) = path(graph, "nodes").glob("*/_deletions/*.arrow")
    file.write_bytes(damage(file.read_bytes()))
    with reopened(graph) as again, pytest.raises(CorruptGraphError, match="_deletions") as raised:
        list(again.export())
    assert not raised.value.retryable
    with reopened(graph) as again, pytest.raises(CorruptGraphError, match="nodes/"):
        again.diff(before, "main")


def test_a_damaged_reference_of_a_table_is_no_outage_to_health(graph):
    for file in path(graph, "nodes").glob("*/_refs/branches/*.json"):
        file.write_bytes(file.read_bytes()[:-9])
    add(graph, "x1", "x2", "x3")
    with reopened(graph) as again:
        assert any("nodes/" in line for line in again.health().damage)


def test_a_version_that_says_it_is_another_is_damage(graph):
    versions = sorted(path(graph, "nodes").glob("*/_versions/*.manifest"))
    newest, older = versions[:2] if versions[0].parent == versions[1].parent else versions[1:3]
    newest.write_bytes(older.read_bytes())
    with reopened(graph) as again, pytest.raises(CorruptGraphError, match=newest.name):
        list(again.export())


@pytest.mark.parametrize("column", [b"row_count", b"location", b"metadata"])
def test_a_column_of_the_manifest_with_another_name_is_damage(graph, column):
    newest = min(path(graph, "__manifest/_versions").glob("*.manifest"))
    newest.write_bytes(newest.read_bytes().replace(column, b"x" + column[1:]))
    with pytest.raises(CorruptGraphError):
        names(reopened(graph))


@pytest.mark.parametrize("folder", ["__manifest", "nodes/*"])
def test_a_column_of_a_type_that_is_none_is_damage(graph, folder):
    for newest in {min(one.glob("*")) for one in path(graph).glob(f"{folder}/_versions")}:
        body = newest.read_bytes()
        newest.write_bytes(body.replace(b"uint64", b"ujnt64").replace(b"int32", b"ijt32"))
    with pytest.raises(CorruptGraphError):
        list(reopened(graph).export())


def test_a_folder_in_the_place_of_a_reference_is_damage(graph):
    path(graph, REF).unlink()
    path(graph, REF).mkdir()
    with reopened(graph) as again, pytest.raises(CorruptGraphError, match=REF):
        names(again, branch="b")


def test_an_unreadable_branch_is_listed_and_deleted_by_the_command_line(graph, capsys):
    path(graph, REF).write_bytes(b"{")
    assert entry(["branch", "list", "--store", graph.uri, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert (listed["branches"], listed["unreadable"][0]["name"]) == (["main", "other"], "b")
    assert entry(["branch", "delete", "b", "--store", graph.uri, "--yes", "--json"]) == 1
    refused = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (refused["code"], refused["retryable"]) == ("corrupt-graph", False)
    assert entry(["branch", "delete", "b", "--force", "--store", graph.uri, "--yes"]) == 0
    assert not path(graph, REF).exists()
    with reopened(graph) as fresh:
        assert fresh.branches() == ["main", "other"]
        assert fresh.create_branch("b").name == "b"


# --- the record of recoveries ----------------------------------------------------------------


def emptied(audit: Path) -> None:
    for file in (audit / "data").iterdir():
        file.write_bytes(b"")


def torn(audit: Path) -> None:
    newest = min(file for file in (audit / "_versions").iterdir() if file.suffix == ".manifest")
    newest.write_bytes(b"junk")


def a_file(audit: Path) -> None:
    shutil.rmtree(audit)
    audit.write_text("junk")


def an_empty_folder(audit: Path) -> None:
    shutil.rmtree(audit)
    (audit / "_versions").mkdir(parents=True)


@pytest.mark.parametrize("damage", [emptied, torn, a_file, an_empty_folder])
def test_a_damaged_record_of_recoveries_stops_nothing(graph, damage):
    left_unfinished(graph)
    reopened(graph).close()
    left_unfinished(graph)
    damage(path(graph, "_graph_commit_recoveries.lance"))
    with reopened(graph) as fresh:
        assert not fresh.pending_recoveries()
        assert [one.recovery_kind for one in fresh.recoveries()][-1] == "RolledForward"
        add(fresh, "zoe")
        fresh.cleanup(keep_versions=1)
        if damage is not an_empty_folder:  # there a table can be made anew
            assert fresh.recovery_log_problems()
            assert not fresh.health().healthy
        fresh.clear_recovery_log()
        assert not fresh.recovery_log_problems()
        assert [one.recovery_kind for one in fresh.recoveries()][-1] == "RolledForward"
    left_unfinished(graph)
    with reopened(graph) as fresh:
        assert len(fresh.recoveries()) >= 1
        assert not fresh.recovery_log_problems()


@pytest.mark.parametrize("damage", [emptied, a_file])
def test_an_unfinished_write_can_be_discarded_beside_a_damaged_record(graph, damage, capsys):
    left_unfinished(graph)
    reopened(graph).close()
    damage(path(graph, "_graph_commit_recoveries.lance"))
    junk = path(graph, "__recovery", "01JUNK.json")
    junk.write_text("{")
    words = ["recovery", "resolve", "01JUNK", "--discard", "--yes", "--json"]
    assert entry([*words, "--store", graph.uri]) == 0
    assert json.loads(capsys.readouterr().out)["recovery_kind"] == "Discarded"
    assert not junk.exists()


# --- names -----------------------------------------------------------------------------------


def sidecar_of(graph: Graph) -> tuple[Path, dict]:
    left_unfinished(graph, Step.SIDECAR_WRITTEN)
    (file,) = path(graph, "__recovery").glob("*.json")
    return file, json.loads(file.read_text())


BAD_SIDECARS = {
    "branch_id": lambda body: body.update(branch_id="../../../evil"),
    "branch_id that is no text": lambda body: body.update(branch_id={"a": 1}),
    "table_path": lambda body: body["tables"][0].update(table_path="../../../evil"),
    "absolute table_path": lambda body: body["tables"][0].update(table_path="/evil"),
    "table_branch": lambda body: body["tables"][0].update(table_branch="../evil"),
    "registration": lambda body: body.update(
        additional_registrations=[{"table_key": "node:X", "table_path": "../evil"}]
    ),
    "operation_id": lambda body: body.update(operation_id="../evil"),
}


@pytest.mark.parametrize("change", BAD_SIDECARS.values(), ids=BAD_SIDECARS.keys())
def test_a_sidecar_never_leads_out_of_the_graph(graph, change, tmp_path):
    file, body = sidecar_of(graph)
    change(body)
    file.write_text(json.dumps(body))
    around = everything(tmp_path.parent, graph)
    with reopened(graph) as fresh:
        assert [type(one).__name__ for one in fresh.pending_recoveries()] == ["UnreadableSidecar"]
        add(fresh, "zoe", branch="other")
        fresh.cleanup(keep_versions=3)
    assert everything(tmp_path.parent, graph) == around


def everything(folder: Path, graph: Graph) -> list[str]:
    """Every file around the graph, the graph's own apart."""
    found = (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
    return sorted(one for one in found if not one.startswith(f"{graph.uri}/"))


# --- reading ---------------------------------------------------------------------------------


def data_file(graph: Graph, table: str = "node:Person") -> Path:
    return next(path(graph, graph.snapshot().entries[table].location, "data").iterdir())


def test_an_export_that_meets_damage_raises_one_of_our_errors(graph, tmp_path, capsys):
    file = data_file(graph)
    file.write_bytes(file.read_bytes()[:-40])
    with (
        reopened(graph, mode=OpenMode.READ_ONLY) as fresh,
        pytest.raises(CorruptGraphError) as caught,
    ):
        list(fresh.export())
    assert caught.value.part == os.path.relpath(file, graph.uri)
    target = tmp_path / "out.ndjson"
    assert entry(["export", graph.uri, "--out", str(target), "--json"]) == 1
    told = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (told["code"], told["retryable"]) == ("corrupt-graph", False)
    assert not target.exists()


def test_a_blob_elsewhere_that_is_gone_is_no_damage_and_stops_no_export(tmp_path):
    gone = tmp_path / "gone"
    with Graph.init(str(tmp_path / "g.omni"), "node D { k: String @key  f: Blob? }") as graph:
        graph.load(f'{{"type":"D","data":{{"k":"a","f":"{gone.as_uri()}"}}}}', mode="append")
        graph.load('{"type":"D","data":{"k":"b","f":"base64:aGk="}}', mode="append")
        told = [json.loads(line)["data"]["f"] for line in graph.export()]
        assert told == [gone.as_uri(), "base64:aGk="]
        with pytest.raises(NotFoundError):
            graph.read_blob("node", "D", "a", "f").read()
        gone.write_bytes(b"back")
        assert graph.read_blob("node", "D", "a", "f").read() == b"back"


def test_a_version_file_that_would_make_the_library_panic_is_damage(graph, capfd):
    entry_of = graph.snapshot().entries["node:Person"]
    file = path(graph, entry_of.location, "_versions", version_file(entry_of.version))
    body = bytearray(file.read_bytes())
    body[3] ^= 1
    file.write_bytes(body)
    query = "query q() { match { $p: Person } return { $p.name } }"
    assert entry(["query", "--store", graph.uri, "-e", query]) == 1
    told = capfd.readouterr().err
    assert os.path.relpath(file, graph.uri) in told
    assert "panicked" not in told
    assert "Traceback" not in told


def test_a_damaged_main_leaves_the_other_branches_usable(graph):
    version = graph.snapshot().manifest_version
    file = path(graph, "__manifest", "_versions", version_file(version))
    file.write_bytes(file.read_bytes()[:-1])
    with reopened(graph) as fresh:
        for read in (lambda: names(fresh), lambda: fresh.commits(), lambda: add(fresh, "zoe")):
            with pytest.raises(CorruptGraphError) as caught:
                read()
            assert caught.value.part == os.path.relpath(file, graph.uri)
        assert names(fresh, branch="b") == ["ada", "bob", "eve"]
        add(fresh, "zoe", branch="b")
        assert "main" in dict(fresh.cleanup(keep_versions=1).failures)
    with pytest.raises(OmnigraphError):
        Graph.init(graph.uri, SCHEMA)


def test_a_damaged_table_refuses_its_own_writes_and_no_others(graph):
    entry_of = graph.snapshot().entries["node:Person"]
    file = path(graph, entry_of.location, "_versions", version_file(entry_of.version))
    file.write_bytes(file.read_bytes()[:-1])
    with reopened(graph) as fresh:
        with pytest.raises(CorruptGraphError):
            add(fresh, "zoe")
        fresh.load('{"type":"City","data":{"name":"Bonn"}}', mode="append")
        assert any("node:Person" in line for line in fresh.health().damage)
        report = fresh.cleanup(keep_versions=1)
        assert [one.type_key for one in report.datasets if one.error] == ["node:Person"]
    assert file.exists()


def test_a_damaged_table_with_an_unfinished_write_keeps_its_sidecar_and_opens(graph):
    left_unfinished(graph, Step.TABLE_APPLIED)
    entry_of = graph.snapshot().entries["edge:Knows"]
    folder = path(graph, entry_of.location, "_versions")
    for file in folder.glob("*.manifest"):
        file.write_bytes(file.read_bytes()[:-1])
    with reopened(graph) as fresh:
        assert len(fresh.pending_recoveries()) == 1
        fresh.load('{"type":"City","data":{"name":"Bonn"}}', mode="append")
        with pytest.raises((CorruptGraphError, RecoveryRequiredError)):
            add(fresh, "zoe")
        fresh.cleanup(keep_versions=1)
        (waiting,) = fresh.pending_recoveries()
        assert fresh.resolve_recovery(waiting.operation_id, "discard").recovery_kind == "Discarded"


@pytest.mark.parametrize("part", ["nodes", "edges", "__manifest"])
def test_what_a_power_cut_tore_is_undone_or_finished_by_its_sidecar(graph, part):
    """The newest version of a table or of the manifest is torn, and the write never told."""
    step = Step.WRITE_PUBLISHED if part == "__manifest" else Step.TABLES_APPLIED
    before = names(graph)
    place = (
        "__manifest"
        if part == "__manifest"
        else next(
            entry_of.location
            for key, entry_of in graph.snapshot().entries.items()
            if entry_of.location.startswith(part) and key != "node:City"
        )
    )
    left_unfinished(graph, step)
    newest = min(path(graph, place, "_versions").glob("*.manifest"))
    newest.write_bytes(newest.read_bytes()[:-1])
    with reopened(graph, mode=OpenMode.READ_ONLY) as reader:
        assert names(reader) == before
    with reopened(graph) as fresh:
        assert names(fresh) == ([*before, "late"] if part == "__manifest" else before)
        assert not fresh.pending_recoveries()
        add(fresh, "zoe")
    with reopened(graph) as fresh:
        assert "zoe" in names(fresh)


@pytest.mark.parametrize("original", ["gone", "still there"])
def test_a_moved_or_copied_graph_never_reads_the_files_of_the_original(graph, tmp_path, original):
    graph.close()
    made_at, elsewhere = graph.uri, tmp_path / "elsewhere.omni"
    shutil.copytree(made_at, elsewhere)
    if original == "gone":
        shutil.rmtree(made_at)
    for mode in OpenMode:
        with pytest.raises(CorruptGraphError) as caught:
            Graph.open(str(elsewhere), mode=mode)
        assert "moved or copied" in str(caught.value)
        assert str(caught.value.facts["made_at"]).startswith(made_at)
        assert not caught.value.retryable


def test_a_graph_is_at_home_where_a_link_leads_to_it(graph, tmp_path):
    graph.close()
    shutil.move(graph.uri, tmp_path / "moved.omni")
    os.symlink(tmp_path / "moved.omni", graph.uri)
    for uri in (graph.uri, str(tmp_path / "moved.omni")):
        with Graph.open(uri, mode=OpenMode.READ_ONLY) as moved:
            assert list(moved.export(branch="b"))


def test_the_reference_key_of_the_tests_is_right():
    assert ref_key("b") == REF


def test_a_schema_that_cannot_be_understood_is_told_with_the_manifest(graph):
    core = core_of(graph)
    head = core.head()
    harmed = replace(head, schema=replace(head.schema, ir='{"nodes": 1}'))
    with pytest.raises(CorruptGraphError, match="cannot read the schema: '__manifest'") as refused:
        core.catalog(harmed)
    assert refused.value.facts["part"] == "__manifest"
