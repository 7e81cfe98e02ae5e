"""Killed at any step, a relocation is before or after and a backup is no graph; both are simply
begun again."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from harness import Reached

from omnigraph import Graph, OpenMode, relocate
from omnigraph.engine.maintain.verify import verify_at
from omnigraph.errors import CorruptGraphError, NotFoundError
from omnigraph.model.ports import World
from omnigraph.model.steps import Step

CHILD = Path(__file__).with_name("moving_child.py")
KILLED = -9
RELOCATE = (Step.RELOCATE_VERSION_REWRITTEN, Step.RELOCATE_DONE)
BACKUP = tuple(step for step in Step if step.startswith("backup."))


def made(uri):
    with Graph.init(uri, "node P { name: String @key }", durability="process") as graph:
        graph.mutate('query q() { insert P { name: "a" } }')
        graph.create_branch("dev")
        graph.mutate('query q() { insert P { name: "b" } }', branch="dev")
        graph.create_branch("deeper", "dev")
        graph.mutate('query q() { insert P { name: "c" } }', branch="deeper")
    return told(uri)


def told(uri):
    with Graph.open(uri, mode=OpenMode.READ_ONLY) as graph:
        return {
            (branch, commit.graph_commit_id): sorted(graph.export(snapshot=commit.graph_commit_id))
            for branch in graph.branches()
            for commit in graph.commits(branch)
        }


def killed(what, uri, dest, step, nth):
    command = [sys.executable, str(CHILD), what, str(uri), str(dest), str(step), str(nth)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, KILLED), done.stderr
    return done.returncode == KILLED


@pytest.mark.parametrize(("step", "nth"), [(RELOCATE[0], 1), (RELOCATE[0], 4), (RELOCATE[1], 1)])
def test_a_killed_relocation_is_before_or_after_and_is_finished_by_the_next(tmp_path, step, nth):
    answers = made(tmp_path / "g")
    copy = tmp_path / "copy"
    shutil.move(tmp_path / "g", copy)
    assert killed("relocate", copy, "-", step, nth)
    if step is Step.RELOCATE_DONE:
        assert told(copy) == answers
    else:
        with pytest.raises(CorruptGraphError, match="was moved or copied"):
            Graph.open(copy)
    relocate(copy)
    assert told(copy) == answers
    assert verify_at(str(copy), deep=True).ok


def test_every_step_of_a_relocation_is_known(tmp_path):
    made(tmp_path / "g")
    shutil.move(tmp_path / "g", tmp_path / "h")
    reached = Reached()
    report = relocate(tmp_path / "h", world=World(steps=reached))
    assert {step for step, _ in reached.steps} == set(RELOCATE)
    assert len(reached.steps) == report.versions_rewritten + 1


@pytest.mark.parametrize("step", BACKUP)
def test_a_killed_backup_is_no_graph_and_is_made_again(tmp_path, step):
    answers = made(tmp_path / "g")
    dest = tmp_path / "copy"
    assert killed("backup", tmp_path / "g", dest, step, 1)
    if step is Step.BACKUP_DONE:
        assert told(dest) == answers
        return
    for open_it in (Graph.open, relocate):
        with pytest.raises(NotFoundError, match="only a backup that did not finish"):
            open_it(dest)
    with Graph.open(tmp_path / "g") as graph:
        graph.backup(dest)
    assert told(dest) == answers == told(tmp_path / "g")
    assert verify_at(str(dest), deep=True).ok
    assert not list((dest / "_refs").glob("holds/*"))
