"""Threads that share a handle wait for each other instead of refusing each other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from omnigraph import Graph

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
