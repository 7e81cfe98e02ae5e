"""Crashing at a named step, and looking at what is left."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from omnigraph import Graph
from omnigraph.engine.core import OpenMode, open_core
from omnigraph.model.ports import World
from omnigraph.model.steps import Step

sys.path.insert(0, str(Path(__file__).parent))


class Crash(BaseException):
    """The process is gone. Not an `Exception`: nothing may catch it and go on."""


class Reached:
    """Remembers which steps were reached, and how often. Tables move in threads side by side."""

    def __init__(self) -> None:
        self.steps: list[tuple[Step, int]] = []
        self._seen: Counter[Step] = Counter()
        self._lock = threading.Lock()

    def reach(self, step: Step) -> None:
        with self._lock:
            self._seen[step] += 1
            self.steps.append((step, self._seen[step]))


class CrashAt:
    """Crashes when a step is reached for the nth time; afterwards every further step crashes too,
    so that no other thread of the dead process goes on."""

    def __init__(self, step: Step, nth: int = 1, *, kill: bool = False) -> None:
        self._step, self._nth, self._kill = step, nth, kill
        self._seen = 0
        self._lock = threading.Lock()
        self.happened = False

    def reach(self, step: Step) -> None:
        with self._lock:
            if step is self._step:
                self._seen += 1
            if self.happened or (step is self._step and self._seen == self._nth):
                self.happened = True
                if self._kill:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise Crash(step)


class FailAt:
    """Raises an ordinary error when a step is reached for the nth time, once."""

    def __init__(self, step: Step, nth: int = 1) -> None:
        self._step, self._left = step, nth

    def reach(self, step: Step) -> None:
        if step is self._step:
            self._left -= 1
            if self._left == 0:
                raise OSError(f"injected failure at {step}")


class InterruptAt:
    """Raises KeyboardInterrupt when a step is reached for the nth time, and once more at the next
    `then`, if there is one."""

    def __init__(self, step: Step, nth: int = 1, *, then: Step | None = None) -> None:
        self._step, self._left, self._then = step, nth, then

    def reach(self, step: Step) -> None:
        if self._left == 0:
            if step is self._then:
                self._then = None
                raise KeyboardInterrupt(step)
            return
        if step is self._step:
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt(step)


def world(steps: Any) -> World:
    return World(steps=steps, durability="process", derived_rows_min=1)


def content(uri: str) -> dict[str, Any]:
    """Everything a user can see: the entities of every branch and tag, without the ids that we
    made up."""
    with Graph.open(uri, mode=OpenMode.READ_ONLY) as graph:
        tags = {f"tag {tag.name}": tag.name for tag in graph.tags()}
        refs = {name: name for name in graph.branches()} | tags
        return {
            word: sorted(_without_made_ids(line) for line in graph.export(snapshot=ref))
            for word, ref in refs.items()
        }


def _without_made_ids(line: str) -> str:
    head, found, rest = line.partition('"id":"01')
    return head + '"id":"…' + rest[24:] if found else line


def assert_settled(uri: str) -> None:
    """Nothing is pending, and every table's head is what the manifest says."""
    core = open_core(uri, mode=OpenMode.READ_ONLY)
    assert core.recovery.sidecars.operation_ids() == ()
    for branch in core.store.refs.list():
        for entry in core.store.manifests.head(branch).datasets:
            if branch.owns(entry.branch):
                head = core.store.tables.head_version(entry.location, entry.branch)
                assert head == entry.version, f"{entry.table_key} of {branch.name} has drifted"


def history(uri: str, branch: str = "main") -> list[str]:
    with Graph.open(uri, mode=OpenMode.READ_ONLY) as graph:
        commits = graph.commits(branch)
    ids = [commit.graph_commit_id for commit in commits]
    assert len(set(ids)) == len(ids), "a commit is in the history twice"
    for commit, parent in pairwise(commits):
        assert commit.parent_commit_id == parent.graph_commit_id, "the history is broken"
    return ids
