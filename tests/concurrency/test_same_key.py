"""Two writers with one idempotency key at the same time: one commit, and both hear of it.

`OMNIGRAPH_SAME_KEY_ROUNDS=50` makes the long run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from itertools import product
from pathlib import Path

import pytest
from same_key_child import SCHEMA, submit

from omnigraph import Graph

ROUNDS = int(os.environ.get("OMNIGRAPH_SAME_KEY_ROUNDS", "3"))
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


def at_once(act, *handles):
    """The answers of all handles to the same call at the same time."""
    start, answers = threading.Barrier(len(handles)), []

    def go(handle):
        start.wait()
        answers.append(act(handle))

    threads = [threading.Thread(target=go, args=(handle,)) for handle in handles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == len(handles), "a submission failed"
    return answers


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
        answers = at_once(partial(submit, write=write, number=number), graph, other)
        assert answers[0] == answers[1]
        assert sorted(one.already_applied for one in answers) == [False, True]
    check(graph, write)


def test_two_threads_on_an_object_store(s3_root):
    with Graph.init(s3_root.uri, SCHEMA) as graph, Graph.open(s3_root.uri) as other:
        for write in ("insert", "load"):
            for number in range(ROUNDS):
                answers = at_once(partial(submit, write=write, number=number), graph, other)
                assert answers[0] == answers[1]
                assert sorted(one.already_applied for one in answers) == [False, True]
        check(graph, "insert", "load")


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
