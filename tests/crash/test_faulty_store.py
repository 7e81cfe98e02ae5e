"""A store that fails, forgets to answer, or lists late never makes the outcome wrong."""

from __future__ import annotations

import pytest
from harness import content, history
from stories import PAIR, SCHEMA, SEED

from omnigraph import Graph
from omnigraph.engine.core import OpenMode, assemble
from omnigraph.errors import OmnigraphError, OutcomeUnknownError, StorageUnavailableError
from omnigraph.model.ports import World
from omnigraph.storage.objects.root import Root, open_store


class Faulty:
    """The real store with one verb that misbehaves, once or for ever."""

    def __init__(self, store, *, verb, prefix, how, times) -> None:
        self._store, self._verb, self._prefix = store, verb, prefix
        self._how, self._left = how, times

    def __getattr__(self, name):
        real = getattr(self._store, name)
        if name != self._verb:
            return real

        def faulty(key, *args, **kwargs):
            if not key.startswith(self._prefix) or self._left <= 0:
                return real(key, *args, **kwargs)
            self._left -= 1
            if self._how == "lists late":
                return []
            if self._how == "loses the answer":
                real(key, *args, **kwargs)
            raise StorageUnavailableError("injected", uri=key, reason="injected")

        return faulty


CASES = [
    ("put_if_absent", "__recovery", "fails", 1),
    ("put_if_absent", "__recovery", "loses the answer", 1),
    ("delete", "__recovery", "fails", 1),
    ("delete", "__recovery", "fails", 99),
    ("delete", "__recovery", "loses the answer", 1),
    ("list_keys", "__recovery", "fails", 1),
    ("list_keys", "__recovery", "lists late", 3),
    ("read", "_refs", "fails", 1),
]


def open_faulty(uri, **fault):
    root, world = Root.parse(uri, {}), World(durability="process")
    store = Faulty(open_store(root, world), **fault)
    return Graph(assemble(root, world, OpenMode.READ_WRITE, objects=store))


@pytest.mark.parametrize(("verb", "prefix", "how", "times"), CASES)
def test_the_caller_knows_or_is_told_that_nobody_knows(tmp_path, verb, prefix, how, times):
    uri = str(tmp_path / "g.omni")
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        graph.load(SEED, mode="overwrite")
    before = content(uri)
    with open_faulty(uri, verb=verb, prefix=prefix, how=how, times=times) as graph:
        try:
            commit = graph.mutate(PAIR, "pair").commit
        except OutcomeUnknownError as unknown:
            commit, outcome = unknown.graph_commit_id, "unknown"
        except OmnigraphError:
            outcome = "refused"
        else:
            outcome, commit = "landed", commit.graph_commit_id
    Graph.open(uri, durability="process").close()
    landed = content(uri) != before
    assert outcome == "unknown" or landed == (outcome == "landed")
    if outcome == "landed":
        assert commit in history(uri)
    with Graph.open(uri, durability="process") as graph:
        graph.mutate(PAIR, "after")
