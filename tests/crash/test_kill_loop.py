"""A writer that is killed again and again at random moments never breaks a promise."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from harness import assert_settled, history

from omnigraph import Graph

SCHEMA = "node Person { name: String @key }\nedge Knows: Person -> Person"
KILLS = int(os.environ.get("OMNIGRAPH_TEST_KILLS", "12"))
PAIRS = """
query people() { match { $p: Person } return { $p.name } }
query pairs() { match { $p: Person $p knows $r } return { $p.name } }
"""


def run_and_kill(uri: str, log: Path, first: int, chance: random.Random) -> None:
    child = Path(__file__).with_name("kill_child.py")
    with subprocess.Popen(
        [sys.executable, str(child), uri, str(log), str(first)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", process.stderr.read().decode()
        time.sleep(chance.uniform(0.0, 0.08))
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)


def test_no_acknowledged_pair_is_lost_and_no_half_pair_is_seen(tmp_path, record_property):
    uri, log = str(tmp_path / "g.omni"), tmp_path / "acknowledged"
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        graph.load('{"type":"Person","data":{"name":"root"}}', mode="append")
    chance, slowest = random.Random(20261115), 0.0
    for kill in range(KILLS):
        run_and_kill(uri, log, 10_000 * (kill + 1), chance)
        began = time.perf_counter()
        graph = Graph.open(uri, durability="process")
        slowest = max(slowest, time.perf_counter() - began)
        with graph:
            people = {row["p.name"] for row in graph.query(PAIRS, "people").to_pylist()}
            pairs = {row["p.name"] for row in graph.query(PAIRS, "pairs").to_pylist()}
        acknowledged = set(log.read_text().split()) if log.exists() else set()
        assert acknowledged <= people, "an acknowledged pair is lost"
        assert people - {"root"} == pairs, "half a pair is visible"
        assert len(people - acknowledged) <= kill + 2, "more landed than was ever tried"
        history(uri)
        assert_settled(uri)
    record_property("slowest_reopen_s", round(slowest, 3))
