"""How long `Graph.load` takes: many nodes with a vector each and ten times as many edges.

    python benches/load.py [--nodes N] [--peers] [--only parquet,arrow,ndjson,file]

The call alone is timed, not the making of the data. Prints a line a source: seconds, seconds of
CPU, and the highest memory of the process. `json` is `json.loads` over the same lines, and
`--peers` adds kuzu's and ladybug's COPY of the same Parquet files, if they are installed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = """
node Person {
    name: String @key
    age: I32
    city: String?
    embedding: Vector(32)
}
edge Knows: Person -> Person {
    since: I32
}
"""
DIMENSION = 32
EDGES_A_NODE = 10
PEERS = ("kuzu", "ladybug")
SOURCES = ("json", "ndjson", "file", "parquet", "arrow")


def people(count: int) -> pa.Table:
    chance = np.random.default_rng(7)
    vectors = chance.random(count * DIMENSION, dtype=np.float32).round(4)
    return pa.table(
        {
            "name": [f"person-{n}" for n in range(count)],
            "age": pa.array(chance.integers(1, 99, count), pa.int32()),
            "city": [f"city-{n % 100}" for n in range(count)],
            "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors), DIMENSION),
        }
    )


def knows(nodes: int) -> pa.Table:
    chance = np.random.default_rng(8)
    count = nodes * EDGES_A_NODE
    ends = chance.integers(0, nodes, (2, count))
    names = pa.array([f"person-{n}" for n in range(nodes)])
    return pa.table(
        {
            "from": names.take(pa.array(ends[0])),
            "to": names.take(pa.array(ends[1])),
            "since": pa.array(chance.integers(1950, 2025, count), pa.int32()),
        }
    )


def make(folder: Path, nodes: int) -> None:
    """The same rows as Parquet and as lines."""
    some, edges = people(nodes), knows(nodes)
    pq.write_table(some, folder / "people.parquet")
    pq.write_table(edges, folder / "knows.parquet")
    with (folder / "graph.jsonl").open("w") as file:
        for batch in some.to_batches(max_chunksize=10_000):
            for row in batch.to_pylist():
                row["embedding"] = [round(x, 4) for x in row["embedding"]]
                file.write(json.dumps({"type": "Person", "data": row}) + "\n")
        for batch in edges.to_batches(max_chunksize=100_000):
            for row in batch.to_pylist():
                line = {"edge": "Knows", "from": row["from"], "to": row["to"]}
                file.write(json.dumps({**line, "data": {"since": row["since"]}}) + "\n")


def load(folder: Path, source: str) -> int:
    """Load in this process; how many entities there were."""
    from omnigraph import Graph

    if source == "json":
        lines = (folder / "graph.jsonl").read_bytes().splitlines()
        return timed(source, lambda: sum(1 for line in lines if json.loads(line)))
    data = {
        "file": lambda: folder / "graph.jsonl",
        "ndjson": lambda: (folder / "graph.jsonl").read_text(),
        "parquet": lambda: {
            "Person": folder / "people.parquet",
            "Knows": folder / "knows.parquet",
        },
        "arrow": lambda: {
            "Person": pq.read_table(folder / "people.parquet"),
            "Knows": pq.read_table(folder / "knows.parquet"),
        },
    }[source]()
    with tempfile.TemporaryDirectory(dir=folder) as made:
        graph = Graph.init(Path(made) / "g", SCHEMA)
        warm = json.dumps(
            {"type": "Person", "data": {"name": "x", "age": 1, "embedding": [0] * 32}}
        )
        graph.load(warm, mode="append")
        return timed(source, lambda: graph.load(data, mode="append").total_entities)


def peer(folder: Path, name: str) -> int:
    """The same rows into another graph database, by its own COPY."""
    found = importlib.import_module({"ladybug": "real_ladybug"}.get(name, name))
    with tempfile.TemporaryDirectory(dir=folder) as made:
        conn = found.Connection(found.Database(f"{made}/k"))
        conn.execute(
            "CREATE NODE TABLE Person(name STRING, age INT32, city STRING, "
            f"embedding FLOAT[{DIMENSION}], PRIMARY KEY(name))"
        )
        conn.execute("CREATE REL TABLE Knows(FROM Person TO Person, since INT32)")

        def copy() -> int:
            conn.execute(f"COPY Person FROM '{folder}/people.parquet'")
            conn.execute(f"COPY Knows FROM '{folder}/knows.parquet'")
            return 0

        return timed(name, copy)


def timed(name: str, work) -> int:
    started, cpu = time.perf_counter(), time.process_time()
    count = work()
    seconds, busy = time.perf_counter() - started, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{name:>8}  {seconds:7.2f} s  {busy:7.2f} s CPU  {peak:6d} MB  {count:,}", flush=True)
    return count


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--only", default=",".join(SOURCES))
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--data", type=Path, help="a folder for the data, kept for the next run")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        peer(args.data, args.one) if args.one in PEERS else load(args.data, args.one)
        return
    with tempfile.TemporaryDirectory(prefix="omnigraph-load-") as made:
        folder = args.data or Path(made)
        folder.mkdir(exist_ok=True)
        if not (folder / "graph.jsonl").exists():
            make(folder, args.nodes)
        names = [*args.only.split(","), *(PEERS if args.peers else [])]
        for name in names:  # each in a process of its own, so that memory is its own
            command = [sys.executable, __file__, "--data", str(folder), "--one", name]
            subprocess.run(command, check=False, env=os.environ)


if __name__ == "__main__":
    main()
