"""Threads that share a handle wait for each other instead of refusing each other."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from lance import LanceDataset

from inside import store_of
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


def test_no_thread_meets_the_lock_that_making_a_branch_puts_on_a_handle(tmp_path, monkeypatch):
    """The library locks the handle while it makes a branch from it; who uses it then is refused."""
    made_from = []
    real = LanceDataset.create_branch

    def watched(dataset, *args, **options):
        made_from.append(dataset)
        return real(dataset, *args, **options)

    monkeypatch.setattr(LanceDataset, "create_branch", watched)
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="process", maintenance=None) as graph:
        graph.mutate(QUERIES, "put", params={"name": "a", "n": 1})
        graph.create_branch("b")
        graph.mutate(QUERIES, "put", params={"name": "b", "n": 1}, branch="b")
        store = store_of(graph)
        heads = [store.manifests.last_known(one.id).opened.dataset for one in store.refs.list()]
        pins = {entry.pin for one in ("main", "b") for entry in graph.snapshot(one).datasets}
        shared = [*heads, *(store.tables.at(*pin) for pin in pins)]
        assert len(made_from) == 2, "one of the manifest, one of the table"
        assert not {id(one) for one in made_from} & {id(one) for one in shared}


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
    publisher = store_of(graph).publisher
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
