"""Several processes branch, write and merge at once; a schema moves when they are done."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.errors import ConflictError

SCHEMA = """
node P { k: String @key  v: I32? }
edge E: P -> P
"""
PROCESSES, ROUNDS, WRITES = 3, 5, 15


def start(uri: str, name: str) -> subprocess.Popen:
    child = Path(__file__).with_name("merge_child.py")
    command = [sys.executable, str(child), uri, name, str(ROUNDS)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_everything_that_was_merged_is_there_once(tmp_path):
    uri = str(tmp_path / "g.omni")
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        workers = [start(uri, f"w{number}") for number in range(PROCESSES)]
        for number in range(WRITES):
            graph.mutate(f'query q() {{ insert P {{ k: "main-{number}", v: {number} }} }}')
        told = {f"main-{number}" for number in range(WRITES)}
        for worker in workers:
            out, errors = worker.communicate(timeout=180)
            assert worker.returncode == 0, errors.decode()
            told |= set(out.decode().split())
        graph.refresh()
        records = [json.loads(line) for line in graph.export()]
        keys = [record["data"]["k"] for record in records if "type" in record]
        assert sorted(keys) == sorted(told)
        loops = [(record["from"], record["to"]) for record in records if "edge" in record]
        assert sorted(loops) == sorted((key, key) for key in told if key.startswith("w"))
        commits = graph.commits()
        merges = [one for one in commits if one.merged_parent_commit_id is not None]
        assert len(merges) == PROCESSES * ROUNDS
        assert len(commits) == 1 + WRITES + PROCESSES * ROUNDS
        left = [name for name in graph.branches() if name != "main"]
        assert len(left) == PROCESSES * (ROUNDS // 2)
        with pytest.raises(ConflictError, match="w0/1"):
            graph.apply_schema(SCHEMA.replace("v: I32?", "v: I64?"))
        for name in left:
            assert graph.merge(name).outcome == "already_up_to_date"
            graph.delete_branch(name)
        assert graph.apply_schema(SCHEMA.replace("v: I32?", "v: I64?")).applied
        assert len(list(graph.export())) == len(records)
