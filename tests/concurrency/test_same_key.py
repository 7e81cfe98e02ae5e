"""Two writers with one idempotency key at the same time: one commit, and both hear of it.

`OMNIGRAPH_SAME_KEY_ROUNDS=50` makes the long run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
from same_key_child import SCHEMA, submit

from omnigraph import Graph

ROUNDS = int(os.environ.get("OMNIGRAPH_SAME_KEY_ROUNDS", "4"))
WRITES = ("insert", "update", "load", "merge")


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="process") as graph:
        graph.load('{"type":"P","data":{"k":"p"}}', mode="append")
        yield graph


def prepared(graph, write, number):
    if write == "merge":
        graph.create_branch(f"b{number}")
        line = f'{{"type":"N","data":{{"text":"{write}-{number}"}}}}'
        graph.load(line, mode="append", branch=f"b{number}")


def check(graph, *writes):
    """Every key has one commit; what an insert, a load or a merge brings is there once."""
    keys = Counter(c.properties.get("idempotency_key") for c in graph.commits())
    wanted = [f"{write}-{number}" for write in writes for number in range(ROUNDS)]
    assert {key: keys[key] for key in wanted} == dict.fromkeys(wanted, 1)
    texts = graph.query("query q() { match { $n: N } return { $n.text as text } }")
    found = Counter(row["text"] for row in texts.to_pylist())
    assert found == {key: 1 for key in wanted if not key.startswith("update")}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("shared", [True, False], ids=["one handle", "two handles"])
def test_two_threads(graph, write, shared):
    other = graph if shared else Graph.open(graph.uri, durability="process")
    for number in range(ROUNDS):
        prepared(graph, write, number)
        start = threading.Barrier(2)
        answers = []

        def go(handle, number=number, start=start, answers=answers):
            start.wait()
            answers.append(submit(handle, write, number))

        threads = [threading.Thread(target=go, args=(handle,)) for handle in (graph, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 2, "a submission failed"
        assert answers[0] == answers[1]
        assert sorted(one.already_applied for one in answers) == [False, True]
    check(graph, write)


def test_two_processes(graph):
    child = str(Path(__file__).with_name("same_key_child.py"))
    processes = [
        subprocess.Popen(
            [sys.executable, child, graph.uri],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    assert [one.stdout.readline() for one in processes] == ["ready\n"] * 2
    for write, number in product(WRITES, range(ROUNDS)):
        prepared(graph, write, number)
        for one in processes:
            one.stdin.write(f"{write} {number}\n")
            one.stdin.flush()
        answers = [one.stdout.readline().split() for one in processes]
        assert answers[0][0] == answers[1][0]
        assert sorted(applied for _, applied in answers) == ["0", "1"]
    for one in processes:
        one.stdin.close()
        assert one.wait() == 0
        one.stdout.close()
    check(graph, *WRITES)
