"""What a commit costs, beside the raw Lance commits that it needs.

    python benches/write.py [earlier commits ...]        default: 0 1000

For each number of earlier commits and each durability: a keyed insert, a node with an edge, and a
batch of 1,000 rows; median and 99th percentile in milliseconds, and the ratio of the median to the
same number of bare `write_fragments` + `commit` calls on tables of the same shape, measured in turn
with them. Each figure comes as it is and after `optimize`. Prints JSON; `run()` gives the value.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
from lance.fragment import write_fragments

from omnigraph import Graph

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person { since: Date? }
"""
INSERT = "query q($n: String) { insert Person { name: $n, age: 5 } }"
PAIR = """query q($n: String) {
    insert Person { name: $n, age: 5 }
    insert Knows { from: "base7", to: $n }
}"""
BASE_ROWS, BATCH_ROWS, ROUNDS = 1_000, 1_000, 40
ROW = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("age", pa.int32())])


class RawTables:
    """Bare Lance tables that take one appended row a commit, as many of them as asked for."""

    def __init__(self, folder: Path, count: int) -> None:
        rows = _rows([f"base{n}" for n in range(BASE_ROWS)])
        self._tables = [
            lance.write_dataset(rows, str(folder / f"raw{n}"), enable_stable_row_ids=True)
            for n in range(count)
        ]

    def commit(self, ids: list[str]) -> None:
        for at, table in enumerate(self._tables):
            fragments = write_fragments(_rows(ids), table)
            operation = lance.LanceOperation.Append(fragments)
            version = table.version
            self._tables[at] = lance.LanceDataset.commit(table, operation, read_version=version)


def _rows(ids: list[str]) -> pa.Table:
    return pa.Table.from_arrays([pa.array(ids), pa.array([5] * len(ids), pa.int32())], schema=ROW)


class Scenario:
    """One kind of write: what we do, and how many tables move (one of them is the manifest)."""

    def __init__(self, name: str, tables: int, act: Callable[[Graph, int], Any]) -> None:
        self.name, self.tables, self.act = name, tables, act
        self.rows = BATCH_ROWS if name == "batch" else 1


def _load(graph: Graph, number: int) -> None:
    lines = (
        json.dumps({"type": "Person", "data": {"name": f"batch{number}-{n}", "age": 5}})
        for n in range(BATCH_ROWS)
    )
    graph.load(lines, mode="merge")


SCENARIOS = (
    Scenario("insert", 2, lambda graph, n: graph.mutate(INSERT, params={"n": f"one{n}"})),
    Scenario("node+edge", 3, lambda graph, n: graph.mutate(PAIR, params={"n": f"pair{n}"})),
    Scenario("batch", 2, _load),
)


def _milliseconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1000


def _figures(graph: Graph, scenario: Scenario, folder: Path, start: int) -> dict[str, float]:
    raw = RawTables(Path(tempfile.mkdtemp(dir=folder)), scenario.tables)
    ours, bare = [], []
    for n in range(start, start + ROUNDS):
        ours.append(_milliseconds(lambda n=n: scenario.act(graph, n)))
        ids = [f"raw{n}-{row}" for row in range(scenario.rows)]
        bare.append(_milliseconds(lambda ids=ids: raw.commit(ids)))
    p50, bare_p50 = statistics.median(ours), statistics.median(bare)
    return {
        "p50_ms": round(p50, 2),
        "p99_ms": round(sorted(ours)[int(len(ours) * 0.99)], 2),
        "bare_lance_p50_ms": round(bare_p50, 2),
        "ratio": round(p50 / bare_p50, 2),
    }


def measure(earlier: int, durability: str) -> dict[str, Any]:
    """All scenarios on one graph with that many commits behind it, then again after `optimize`."""
    with tempfile.TemporaryDirectory(prefix="omnigraph-write-") as name:
        folder = Path(name)
        graph = Graph.init(folder / "g", SCHEMA, durability=durability)
        base = ({"type": "Person", "data": {"name": f"base{n}"}} for n in range(BASE_ROWS))
        graph.load(map(json.dumps, base), mode="append")
        for n in range(earlier):
            graph.mutate(PAIR, params={"n": f"earlier{n}"})
        figures: dict[str, Any] = {}
        for phase, start in (("as it is", 0), ("optimized", ROUNDS)):
            if phase == "optimized":
                graph.optimize()
            figures[phase] = {s.name: _figures(graph, s, folder, start) for s in SCENARIOS}
        graph.close()
        return figures


def run(earlier: tuple[int, ...] = (0, 1_000)) -> dict[str, Any]:
    return {
        f"after {count} commits, durability {durability}": measure(count, durability)
        for count in earlier
        for durability in ("power", "process")
    }


if __name__ == "__main__":
    chosen = tuple(int(word) for word in sys.argv[1:]) or (0, 1_000)
    print(json.dumps(run(chosen), indent=2))
