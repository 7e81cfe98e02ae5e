"""`backup` makes a whole graph of its own at another place, while others go on."""

from __future__ import annotations

import json
import shutil
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from histories import SCHEMA, insert, some_history, told, works
from omnigraph import Graph, OpenMode
from omnigraph.cli.main import entry
from omnigraph.engine.maintain.verify import verify_at
from omnigraph.errors import AlreadyExistsError, CorruptGraphError, InputError
from omnigraph.model.ports import World
from omnigraph.model.steps import Step


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mode", list(OpenMode))
def test_a_backup_answers_everything_when_the_original_is_gone(tmp_path, seed, mode):
    uri, dest = str(tmp_path / "g"), str(tmp_path / "away" / "copy")
    some_history(uri, seed)
    answers = told(uri)
    with Graph.open(uri, mode=mode) as graph:
        report = graph.backup(dest)
        branches = len(graph.branches())
    shutil.rmtree(uri)
    assert told(dest) == answers
    assert (report.branches, report.dest) == (branches, dest)
    files = [path for path in Path(dest).rglob("*") if path.is_file()]
    verified = verify_at(dest, deep=True)
    assert (verified.problems, verified.files_without_digest) == ((), 0)
    assert report.commits == verified.commits
    assert 0 < report.files <= len(files)
    works(dest)


def test_writers_and_cleanup_go_on_meanwhile(tmp_path):
    uri = str(tmp_path / "g")
    some_history(uri, 3)
    stop, failures = threading.Event(), []

    def disturb():
        try:
            with Graph.open(uri, maintenance=None, durability="process") as graph:
                n = 0
                while not stop.is_set():
                    n += 1
                    insert(graph, f"busy{n}")
                    graph.create_branch(f"busy{n}")
                    insert(graph, f"more{n}", f"busy{n}")
                    if n > 1:
                        graph.delete_branch(f"busy{n - 1}", force=True)
                    graph.cleanup(keep_versions=1, grace=timedelta(0))
        except Exception as cause:  # noqa: BLE001
            failures.append(cause)

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        with Graph.open(uri, maintenance=None, durability="process") as graph:
            for n in range(3):
                dest = str(tmp_path / f"copy{n}")
                before = graph.commits(limit=1)[0].graph_commit_id
                graph.backup(dest)
                with Graph.open(dest, mode=OpenMode.READ_ONLY) as copy:
                    ids = [one.graph_commit_id for one in copy.commits()]
                    assert before in ids
                    assert ids[0] in [one.graph_commit_id for one in graph.commits()]
                assert verify_at(dest, deep=True).problems == ()
                works(dest)
    finally:
        stop.set()
        thread.join()
    assert not failures
    with Graph.open(uri) as graph:
        graph.cleanup(keep_versions=1)  # nothing holds it back any more
    assert not list(Path(uri, "_refs").glob("holds/*"))


def test_cleanup_takes_nothing_while_a_backup_is_made(tmp_path):
    uri = str(tmp_path / "g")
    with Graph.init(uri, SCHEMA, maintenance=None) as graph:
        for n in range(6):
            insert(graph, f"a{n}")
    removed = []

    class Meddling:
        def reach(self, step):
            if step is Step.BACKUP_BEGUN:
                removed.append(None)
            elif step is Step.BACKUP_FILE_COPIED and len(removed) == 1:
                with Graph.open(uri, maintenance=None) as other:
                    report = other.cleanup(keep_versions=1, grace=timedelta(0))
                removed.append(report.old_versions_removed)

    with Graph.open(uri, world=World(steps=Meddling()), maintenance=None) as graph:
        report = graph.backup(tmp_path / "copy")
    assert removed == [None, 0]
    assert report.commits == 7
    assert verify_at(str(tmp_path / "copy"), deep=True).commits == 7


def test_a_hard_drop_takes_nothing_while_a_backup_is_made(tmp_path):
    uri, dropped = str(tmp_path / "g"), 0
    with Graph.init(uri, SCHEMA + "node Draft { title: String @key }", maintenance=None) as graph:
        lines = [json.dumps({"type": "Draft", "data": {"title": f"d{n}"}}) for n in range(3)]
        graph.load(lines, mode="append")
        before = graph.commits(limit=1)[0].graph_commit_id
    drafts = "query q() { match { $d: Draft } return { count($d) as n } }"

    class Meddling:
        def reach(self, step):
            nonlocal dropped
            if step is Step.BACKUP_FILE_COPIED and not dropped:
                dropped = 1
                with Graph.open(uri, maintenance=None) as other:
                    other.apply_schema(SCHEMA, allow_data_loss=True)

    with Graph.open(uri, world=World(steps=Meddling()), maintenance=None) as graph:
        graph.backup(tmp_path / "copy")
        assert dropped
        assert graph.query(drafts, snapshot=before).to_pylist()[0]["n"] == 3
        graph.cleanup(keep_versions=1, grace=timedelta(0))
        assert not list(Path(uri, "nodes").rglob("data/*.lance"))
    with Graph.open(tmp_path / "copy", maintenance=None) as copy:
        assert copy.query(drafts).to_pylist()[0]["n"] == 3
    assert verify_at(str(tmp_path / "copy"), deep=True).ok


def test_a_write_that_is_under_way_is_not_in_the_copy(tmp_path):
    uri, dest = str(tmp_path / "g"), str(tmp_path / "copy")
    with Graph.init(uri, SCHEMA, maintenance=None) as graph:
        insert(graph, "a")

    class CopiesMeanwhile:
        def reach(self, step):
            if step is Step.TABLES_APPLIED:
                with Graph.open(uri, mode=OpenMode.READ_ONLY) as other:
                    other.backup(dest)

    with Graph.open(uri, world=World(steps=CopiesMeanwhile()), maintenance=None) as graph:
        insert(graph, "b")
    with Graph.open(dest) as copy:
        assert len(list(copy.export())) == 1
        assert copy.pending_recoveries() == []
        insert(copy, "c")
    assert verify_at(dest, deep=True).ok


def test_a_damaged_file_is_not_copied(tmp_path):
    uri = str(tmp_path / "g")
    some_history(uri, 3)
    path = next(path for path in Path(uri, "nodes").rglob("data/*.lance") if path.is_file())
    body = path.read_bytes()
    path.write_bytes(body[:30] + bytes([body[30] ^ 1]) + body[31:])
    with Graph.open(uri) as graph, pytest.raises(CorruptGraphError) as refused:
        graph.backup(tmp_path / "copy")
    assert refused.value.facts["part"] == str(path.relative_to(uri))


def test_the_place_must_be_empty_and_apart(tmp_path):
    with Graph.init(tmp_path / "g", SCHEMA) as graph:
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "x").touch()
        with pytest.raises(AlreadyExistsError, match="is not empty"):
            graph.backup(tmp_path / "full")
        for dest in ("g", "g/inside", "."):
            with pytest.raises((InputError, AlreadyExistsError)):
                graph.backup(tmp_path / dest)
        (tmp_path / "empty").mkdir()
        graph.backup(tmp_path / "empty")
        with pytest.raises(AlreadyExistsError):
            graph.backup(tmp_path / "empty")


def test_the_command(tmp_path, capsys):
    uri, dest = str(tmp_path / "g"), str(tmp_path / "copy")
    some_history(uri, 1)
    assert entry(["backup", dest, "--store", uri, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dest"] == dest
    assert entry(["verify", dest]) == 0


@pytest.mark.s3
def test_to_an_object_store_and_back(tmp_path, s3_root, monkeypatch):
    for name, value in s3_root.environ.items():
        monkeypatch.setenv(name, value)
    uri, back = str(tmp_path / "g"), str(tmp_path / "back")
    some_history(uri, 3, steps=12)
    answers = told(uri)
    with Graph.open(uri) as graph:
        graph.backup(s3_root.uri)
    shutil.rmtree(uri)
    report = verify_at(s3_root.uri, deep=True)
    assert (report.problems, report.files_without_digest) == ((), 0)
    with Graph.open(s3_root.uri) as graph:
        graph.backup(back)
    assert told(back) == answers
    assert verify_at(back, deep=True).ok


def test_a_file_that_holds_only_dropped_columns_is_not_missed(tmp_path):
    uri = str(tmp_path / "g")
    more = SCHEMA.replace("age: I32?", "age: I32?  nick: String?  rank: I32 @default(3)")
    with Graph.init(uri, SCHEMA, maintenance=None, durability="process") as graph:
        insert(graph, "first")
        graph.create_branch("old")
        insert(graph, "lost", "old")
        graph.delete_branch("old", force=True)
        insert(graph, "second")
        graph.apply_schema(more)
        graph.apply_schema(SCHEMA.replace("I32", "I64"), allow_data_loss=True)
        graph.create_branch("side")
        insert(graph, "a")
        insert(graph, "b", "side")
        graph.create_tag("t", "side")
        insert(graph, "c", "side")
        graph.delete_branch("side", force=True)
        for name in "defg":
            insert(graph, name)
        graph.cleanup(keep_versions=4)
        insert(graph, "h")
        graph.cleanup(keep_versions=4)
        assert graph.verify(deep=True).problems == ()
        graph.backup(tmp_path / "copy")
    assert verify_at(str(tmp_path / "copy"), deep=True).problems == ()
