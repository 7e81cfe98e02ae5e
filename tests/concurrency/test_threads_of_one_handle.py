"""Threads that share a handle wait for each other instead of refusing each other."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from omnigraph import Graph
from omnigraph.errors import InputError

SCHEMA = "node Counter { name: String @key  n: I32 }"
QUERIES = """
query put($name: String, $n: I32) { insert Counter { name: $name, n: $n } }
query set($name: String, $n: I32) { update Counter set { n: $n } where name = $name }
query all() { match { $c: Counter } return { $c.name, $c.n } }
"""


def test_updates_and_inserts_of_many_threads_all_land(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="process") as graph:
        for name in range(4):
            graph.mutate(QUERIES, "put", params={"name": f"c{name}", "n": 0})

        def work(thread: int) -> None:
            for step in range(1, 6):
                graph.mutate(QUERIES, "set", params={"name": f"c{thread}", "n": step})
                name = f"new-{thread}-{step}"
                graph.mutate(QUERIES, "put", params={"name": name, "n": step})

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(work, range(4)))
        rows = {row["c.name"]: row["c.n"] for row in graph.query(QUERIES, "all").to_pylist()}
        assert len(graph.commits()) == 1 + 4 + 4 * 10
    assert {name: n for name, n in rows.items() if name.startswith("c")} == dict.fromkeys(
        ["c0", "c1", "c2", "c3"], 5
    )
    assert len(rows) == 4 + 20


def test_a_branch_is_made_and_written_while_others_read(tmp_path):
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="process", maintenance=None) as graph:
        graph.mutate(QUERIES, "put", params={"name": "a", "n": 1})
        done = threading.Event()

        def read() -> int:
            rounds = 0
            while not done.is_set():
                assert graph.query(QUERIES, "all").to_pylist() == [{"c.name": "a", "c.n": 1}]
                assert len(graph.commits()) == 2
                rounds += 1
            return rounds

        with ThreadPoolExecutor(2) as threads:
            reading = [threads.submit(read) for _ in range(2)]
            try:
                for number in range(20):
                    graph.create_branch(f"b{number}")
                    put = {"name": "b", "n": number}
                    graph.mutate(QUERIES, "put", params=put, branch=f"b{number}")
            finally:
                done.set()
            assert all(one.result() for one in reading)


PAIR_SCHEMA = SCHEMA + " node Other { name: String @key }"
BOTH = "\n".join(
    [
        '{"type":"Counter","data":{"name":"%s","n":1}}',
        '{"type":"Other","data":{"name":"%s"}}',
    ]
)


def test_closed_handles_keep_no_threads(tmp_path):
    uri, kept, counts = tmp_path / "g.omni", [], []
    Graph.init(uri, PAIR_SCHEMA, durability="process").close()
    for number in range(8):
        graph = Graph.open(uri, durability="process")
        graph.load(BOTH % (number, number), mode="append")
        graph.close()
        graph.close()
        kept.append(graph)
        counts.append(threading.active_count())
    assert counts[-1] <= counts[0]


def test_closing_waits_for_a_write_in_progress(tmp_path):
    graph = Graph.init(tmp_path / "g.omni", PAIR_SCHEMA, durability="process")
    publisher = graph._core.rooms.publisher
    real, at_work = publisher.publish, threading.Event()

    def slow(branch, changeset):
        at_work.set()
        time.sleep(0.3)
        return real(branch, changeset)

    publisher.publish = slow
    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(graph.load, BOTH % ("a", "a"), mode="append")
        assert at_work.wait(30)
        graph.close()
        assert writing.done() or writing.result(5)
        assert writing.result().commit is not None
    with pytest.raises(InputError, match="closed"):
        graph.load(BOTH % ("b", "b"), mode="append")
