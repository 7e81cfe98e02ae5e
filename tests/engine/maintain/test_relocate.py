"""A moved or copied graph says so, and `relocate` makes it whole: every branch and every commit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import obstore
import pytest
from obstore.store import LocalStore

import omnigraph
from histories import SCHEMA, insert, some_history, told, works
from omnigraph import Graph, OpenMode, relocate
from omnigraph.cli.main import entry
from omnigraph.engine.maintain.verify import verify_at
from omnigraph.errors import ConflictError, CorruptGraphError, NotFoundError
from omnigraph.model.ports import World
from omnigraph.model.steps import Step
from omnigraph.storage.objects.root import Root, open_store


@pytest.fixture
def moved(tmp_path):
    """A copy of a graph whose original is gone, and what the original answered."""
    uri = str(tmp_path / "made here")
    some_history(uri, 3)
    answers = told(uri)
    shutil.copytree(uri, tmp_path / "copy")
    shutil.rmtree(uri)
    return str(tmp_path / "copy"), answers


@pytest.mark.parametrize("seed", range(8))
def test_a_copy_is_refused_and_then_answers_everything(tmp_path, seed):
    uri, copy = str(tmp_path / "a"), str(tmp_path / "another, longer place" / "b")
    some_history(uri, seed)
    answers = told(uri)
    shutil.copytree(uri, copy)
    if seed % 2:
        shutil.rmtree(uri)
    for mode in OpenMode:
        with pytest.raises(CorruptGraphError, match="was moved or copied") as refused:
            Graph.open(copy, mode=mode)
        assert f"omnigraph relocate {copy}" in refused.value.hint
    report = relocate(copy)
    assert report.versions_rewritten > 0
    assert report.made_at == uri
    shutil.rmtree(uri, ignore_errors=True)
    assert told(copy) == answers
    assert verify_at(copy, deep=True).problems == ()
    works(copy)


def test_at_home_nothing_changes(tmp_path):
    uri = str(tmp_path / "g")
    some_history(uri, 1)
    before = {path: path.stat().st_mtime_ns for path in Path(uri).rglob("*")}
    assert omnigraph.relocate(uri).versions_rewritten == 0
    assert {path: path.stat().st_mtime_ns for path in Path(uri).rglob("*")} == before


def test_a_graph_without_branches_is_at_home_everywhere(tmp_path):
    with Graph.init(tmp_path / "g", SCHEMA) as graph:
        insert(graph, "a")
    shutil.move(tmp_path / "g", tmp_path / "h")
    with Graph.open(tmp_path / "h") as graph:
        insert(graph, "b")
        assert len(list(graph.export())) == 2
    assert relocate(tmp_path / "h").versions_rewritten == 0


def test_back_and_forth(moved, tmp_path):
    copy, answers = moved
    relocate(copy)
    shutil.move(copy, tmp_path / "third")
    relocate(tmp_path / "third")
    shutil.move(tmp_path / "third", copy)
    with pytest.raises(CorruptGraphError):
        Graph.open(copy)
    relocate(copy)
    assert told(copy) == answers


class Died(BaseException):
    pass


class DiesAt:
    def __init__(self, count):
        self.left = count

    def reach(self, step):
        if step in (Step.RELOCATE_VERSION_REWRITTEN, Step.RELOCATE_DONE):
            self.left -= 1
            if not self.left:
                raise Died


def test_a_relocation_that_dies_at_any_step_is_before_or_after_and_is_finished_by_the_next(moved):
    copy, answers = moved
    deaths = 0
    while True:
        deaths += 1
        try:
            relocate(copy, world=World(steps=DiesAt(1)))
        except Died:
            try:
                Graph.open(copy).close()
            except CorruptGraphError as refused:
                assert "relocate" in refused.hint  # noqa: PT017
            else:
                break
        else:
            break
    assert deaths > 3
    relocate(copy)
    assert told(copy) == answers


def test_it_is_refused_while_somebody_has_the_graph_open(tmp_path):
    uri = str(tmp_path / "g")
    some_history(uri, 3)
    with Graph.open(uri):
        shutil.move(uri, tmp_path / "h")
        with pytest.raises(ConflictError, match="in use"):
            relocate(tmp_path / "h")
    assert relocate(tmp_path / "h").versions_rewritten


def test_a_copy_that_lacks_a_part_is_refused_and_stays_as_it_is(moved):
    copy, _ = moved
    line = next(Path(copy, "__manifest/tree").iterdir())
    with_child = [p for p in Path(copy, "__manifest/tree").iterdir() if p != line]
    assert with_child
    shutil.rmtree(Path(copy, "__manifest/_versions"))
    before = {path: path.read_bytes() for path in Path(copy).rglob("*") if path.is_file()}
    with pytest.raises(NotFoundError):
        relocate(copy)
    assert {p: p.read_bytes() for p in Path(copy).rglob("*") if p.is_file()} == before


def test_the_command(moved, capsys):
    copy, _ = moved
    assert entry(["branch", "list", "--store", copy]) == 1
    assert f"omnigraph relocate {copy}" in capsys.readouterr().err
    assert entry(["relocate", copy]) == 0
    assert "rewrote" in capsys.readouterr().out
    assert entry(["relocate", copy, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["versions_rewritten"] == 0


def test_a_place_without_a_graph_is_said_so(tmp_path):
    with pytest.raises(NotFoundError, match="there is no graph"):
        relocate(tmp_path)


@pytest.mark.s3
def test_a_graph_that_was_copied_to_and_within_an_object_store(tmp_path, s3_root, monkeypatch):
    for name, value in s3_root.environ.items():
        monkeypatch.setenv(name, value)
    uri = str(tmp_path / "g")
    some_history(uri, 3, steps=12)
    answers = told(uri)
    source = LocalStore(uri)
    target = open_store(Root.parse(s3_root.uri, s3_root.environ), World())
    for page in obstore.list(source):
        for meta in page:
            target.put(meta["path"], bytes(obstore.get(source, meta["path"]).bytes()))
    with pytest.raises(CorruptGraphError, match="was moved or copied"):
        Graph.open(s3_root.uri)
    shutil.rmtree(uri)
    assert relocate(s3_root.uri).made_at == uri
    with Graph.open(s3_root.uri) as graph:
        for branch in graph.branches():
            assert sorted(graph.export(branch=branch)) == answers[branch]
            insert(graph, f"new on {branch}", branch)
    assert verify_at(s3_root.uri, deep=True).ok
