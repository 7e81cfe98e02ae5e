"""Several processes branch, write and merge at once, and a schema moves under writers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from omnigraph import Graph

SCHEMA = """
node P { k: String @key  v: I32? }
edge E: P -> P
"""
PROCESSES, ROUNDS, WRITES = 3, 5, 15


def start(uri: str, name: str, script: str, count: int) -> subprocess.Popen:
    child = Path(__file__).with_name(script)
    command = [sys.executable, str(child), uri, name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def told_by(workers: list[subprocess.Popen]) -> set[str]:
    """The keys that the workers were told are safe."""
    told: set[str] = set()
    for worker in workers:
        out, errors = worker.communicate(timeout=180)
        assert worker.returncode == 0, errors.decode()
        told |= set(out.decode().split())
    return told


def test_everything_that_was_merged_is_there_once(tmp_path):
    uri = str(tmp_path / "g.omni")
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        workers = [
            start(uri, f"w{number}", "merge_child.py", ROUNDS) for number in range(PROCESSES)
        ]
        for number in range(WRITES):
            graph.mutate(f'query q() {{ insert P {{ k: "main-{number}", v: {number} }} }}')
        told = {f"main-{number}" for number in range(WRITES)}
        told |= told_by(workers)
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
        assert graph.apply_schema(SCHEMA.replace("v: I32?", "v: I64?")).applied
        for name in left:
            assert graph.schema_source(name) == SCHEMA
            assert graph.merge(name).outcome == "already_up_to_date"
            graph.delete_branch(name)
        assert len(list(graph.export())) == len(records)


def test_a_schema_moves_under_writers_and_loses_nothing(tmp_path):
    uri = str(tmp_path / "g.omni")
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        workers = [start(uri, f"w{number}", "insert_child.py", WRITES) for number in range(2)]
        text = SCHEMA
        while any(worker.poll() is None for worker in workers) or text == SCHEMA:
            size = len(graph.commits())
            text = SCHEMA.replace("v: I32?", f"v: I32?  n{size}: I32 @default({size})")
            assert graph.apply_schema(text).applied
        told = told_by(workers)
        graph.refresh()
        assert graph.schema_source() == text
        records = [json.loads(line) for line in graph.export()]
        rows = {record["data"]["k"]: record["data"] for record in records if "type" in record}
        assert rows.keys() == told
        assert {row[f"n{size}"] for row in rows.values()} == {size}
        assert len(records) == 2 * len(told)
        applies = [c for c in graph.commits() if c.properties.get("writer_kind") == "SchemaApply"]
        assert len(graph.commits()) == 1 + len(told) + len(applies)
