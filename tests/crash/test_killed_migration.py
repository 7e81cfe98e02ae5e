"""A process that migrates a graph of the reference system and is killed, at every kind of step."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph import Graph, OpenMode
from omnigraph.model.steps import Step
from reference_graphs import BRANCHED, check_recorded, past, unpacked

pytestmark = pytest.mark.xdist_group("reference-graphs")

EVERY_DAY = (Step.MIGRATION_REF_WRITTEN, Step.MIGRATION_STAMPED, Step.MIGRATION_OLD_FILE_REMOVED)
STEPS = [
    pytest.param(step, id=step.value, marks=() if step in EVERY_DAY else pytest.mark.slow)
    for step in Step
    if step.value.startswith("migration.") and step is not Step.MIGRATION_LEFTOVER_REMOVED
]


def killed(reference, step):
    child = str(Path(__file__).parent / "migrating_child.py")
    done = subprocess.run(
        [sys.executable, child, reference.uri, step], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def check(reference, schema, before):
    with Graph.open(reference.uri, mode=OpenMode.READ_ONLY) as graph:
        check_recorded(graph, reference, schema=schema)
    with Graph.open(reference.uri) as graph:
        check_recorded(graph, reference, schema=schema)
        assert past(graph, reference) == before
        graph.mutate('query a() { insert Org { name: "after" } }', branch="feature")
    assert not (reference.root / "_schema.pg").exists()


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", BRANCHED)
def test_a_killed_migration_is_finished_by_the_next_open(tmp_path, name, step):
    with unpacked(name, tmp_path) as reference:
        schema = reference.schema
        with Graph.open(reference.uri, mode=OpenMode.READ_ONLY) as graph:
            before = past(graph, reference)
        killed(reference, step)
        check(reference, schema, before)


@pytest.mark.slow
@pytest.mark.parametrize("name", BRANCHED)
def test_a_migration_is_killed_again_and_again(tmp_path, name):
    """Each run clears away what the one before it had built."""
    with unpacked(name, tmp_path) as reference:
        schema = reference.schema
        with Graph.open(reference.uri, mode=OpenMode.READ_ONLY) as graph:
            before = past(graph, reference)
        killed(reference, Step.MIGRATION_COMPARED)
        killed(reference, Step.MIGRATION_LEFTOVER_REMOVED)
        killed(reference, Step.MIGRATION_REF_WRITTEN)
        killed(reference, Step.MIGRATION_STAMPED)
        killed(reference, Step.MIGRATION_LINE_DROPPED)
        killed(reference, Step.MIGRATION_OLD_FILE_REMOVED)
        check(reference, schema, before)
