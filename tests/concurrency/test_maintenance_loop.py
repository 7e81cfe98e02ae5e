"""Optimize and cleanup in a loop, while other processes write, read the past, branch and merge."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import NotFoundError

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: Date? }
"""
ALL = "query all() { match { $p: Person } return { $p.name, $p.age } }"
ROLES = ("write", "write", "read", "branch")


@pytest.mark.parametrize(
    "seconds", [6, pytest.param(120, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_nobody_notices_maintenance(tmp_path, seconds):
    uri, stop = str(tmp_path / "g.omni"), tmp_path / "stop"
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        graph.load('{"type":"Person","data":{"name":"root","age":0}}', mode="append")
        children = [start(uri, role, number, stop) for number, role in enumerate(ROLES)]
        try:
            until = None
            while until is None or time.monotonic() < until:
                graph.optimize()
                graph.cleanup(keep_versions=5)
                if until is None and len(list(tmp_path.glob("*-is-here"))) == len(ROLES):
                    until = time.monotonic() + seconds
            stop.touch()
            found = [json.loads(child.communicate(timeout=120)[0]) for child in children]
        finally:
            for child in children:
                child.kill()
        errors = [one["error"] for one in found if "error" in one]
        assert not errors, errors[0]
        expected = {"root": 0}
        for one in found:
            expected |= one["ages"]
        rows = graph.query(ALL).to_pylist()
        assert {row["p.name"]: row["p.age"] for row in rows} == expected
        assert len(rows) == len(expected) > len(ROLES)
    with Graph.open(uri, durability="process") as graph:
        graph.optimize()
        graph.cleanup(keep_versions=5)
        assert readable(graph) >= 5
        assert len(graph.query(ALL).to_pylist()) == len(expected)
        assert graph.health().pending_recoveries == ()


def start(uri, role, number, stop):
    child = Path(__file__).with_name("maintenance_child.py")
    words = [sys.executable, str(child), uri, role, str(number), str(stop)]
    return subprocess.Popen(words, stdout=subprocess.PIPE)


def readable(graph):
    found = 0
    for commit in graph.commits():
        try:
            graph.query(ALL, snapshot=commit.graph_commit_id)
        except NotFoundError:
            break
        found += 1
    return found
