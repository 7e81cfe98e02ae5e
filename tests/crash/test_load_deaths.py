"""The driver dies at every step of a bulk load: afterwards the graph is as before or as after."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from twins import bulk_load, content, edge, ndjson, node

from omnigraph import Graph
from omnigraph.model.steps import Step

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""
BASE = [node("Person", name="a", age=1), node("Person", name="b"), edge("Knows", "a", "b", id="k")]
LOAD = [node("Person", name="a", age=2), node("Person", name="c"), edge("Knows", "c", "a", id="l")]

# Runs a load without a JVM and kills itself right after the named step.
PROGRAM = """
import os, signal, sys
from omnigraph.model.ports import World
from omnigraph.engine.load.order import checked_order
from omnigraph.engine.load.run import run_load
from omnigraph.engine.runner import Inline

class Deadly:
    def reach(self, step):
        if step.value == sys.argv[3]:
            os.kill(os.getpid(), signal.SIGKILL)

order = checked_order(
    uri=sys.argv[1], sources=sys.argv[2], mode="merge", branch="main", from_branch=None, actor=None,
    on_error="fail", quarantine=None, idempotency_key="job", message=None,
)
run_load(Inline(held_bytes=0), order, listener=None, world=World(steps=Deadly()))
"""
STEPS = [
    Step.WRITE_STAGED,
    Step.WRITE_LEASED,
    Step.SIDECAR_WRITTEN,
    Step.TABLE_APPLIED,
    Step.TABLES_APPLIED,
    Step.PUBLISHED,
    Step.WRITE_PUBLISHED,
    Step.SIDECAR_DELETED,
]


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_killed_driver_leaves_the_graph_before_or_after_and_the_job_can_be_repeated(
    tmp_path: Path, step: Step
):
    uri, path = str(tmp_path / "graph"), tmp_path / "in.jsonl"
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        graph.load(ndjson(BASE), mode="append")
        before = content(graph)
    path.write_text(ndjson(LOAD))
    died = subprocess.run(
        [sys.executable, "-c", PROGRAM, uri, str(path), step.value], check=False, timeout=120
    )
    assert died.returncode == -9
    with Graph.open(uri) as graph:
        seen = content(graph)
        assert graph.pending_recoveries() == []
    bulk_load(uri, str(path), mode="merge", idempotency_key="job")
    with Graph.open(uri) as graph:
        after = content(graph)
        landed = [c for c in graph.commits() if c.properties.get("idempotency_key") == "job"]
    assert seen in (before, after)
    assert len(after) == 5
    assert len(landed) == 1
