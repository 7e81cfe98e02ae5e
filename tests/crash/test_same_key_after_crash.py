"""A keyed request whose process dies, at any step, and is submitted again: it happened once."""

from __future__ import annotations

import pytest
from harness import Crash, CrashAt, Reached, content, world
from stories import PAIR, SCHEMA, SEED

from omnigraph import Graph
from omnigraph.model.steps import Step

NOTES = '{"type":"Company","data":{"name":"new"}}\n{"edge":"WorksAt","from":"bob","to":"new"}'


def _branch(graph: Graph) -> None:
    graph.create_branch("dev")
    graph.mutate(PAIR, "pair", branch="dev")


WRITES = {
    "mutation": lambda graph: graph.mutate(PAIR, "pair", actor="ann", idempotency_key="k"),
    "load": lambda graph: graph.load(NOTES, mode="append", actor="ann", idempotency_key="k"),
    "merge": lambda graph: graph.merge("dev", actor="ann", delete_branch=True, idempotency_key="k"),
    "schema": lambda graph: graph.apply_schema(
        SCHEMA + "\nnode Tag { name: String @key }", actor="ann", idempotency_key="k"
    ),
}


def _seeded(uri: str, name: str) -> None:
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        graph.load(SEED, mode="append")
        if name == "merge":
            _branch(graph)


@pytest.mark.parametrize("name", WRITES)
def test_a_request_that_died_and_came_again_happened_once(tmp_path, name):
    write = WRITES[name]
    calm = str(tmp_path / "calm.omni")
    _seeded(calm, name)
    reached = Reached()
    with Graph.open(calm, world=world(reached), maintenance=None) as graph:
        first = write(graph)
    expected = content(calm)
    steps = [(step, nth) for step, nth in reached.steps if nth == 1]
    assert (Step.WRITE_PUBLISHED, 1) in steps
    for step, nth in steps:
        uri = str(tmp_path / f"{step.value}.omni")
        _seeded(uri, name)
        crash = CrashAt(step, nth)
        with pytest.raises(Crash):
            write(Graph.open(uri, world=world(crash), maintenance=None))
        with Graph.open(uri, durability="process") as graph:
            again = write(graph)
            keyed = [c for c in graph.commits() if c.properties.get("idempotency_key") == "k"]
            assert [c.graph_commit_id for c in keyed] == [again.commit.graph_commit_id], step
            assert write(graph) == again
        assert content(uri) == expected, step
        # Half a write that is taken back leaves a commit, and then no merge is a fast-forward.
        free = {"commit", "actor_id", "already_applied", "graph_manifest_version", "uri", "outcome"}
        free.add("ids")  # an edge's is made anew in each of these graphs
        told, wanted = again.to_json(), first.to_json()
        assert {n: v for n, v in told.items() if n not in free} == {
            n: v for n, v in wanted.items() if n not in free
        }, step
