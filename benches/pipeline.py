"""What a bulk load costs, beside Spark writing the same rows as Parquet.

    python benches/pipeline.py [--nodes N] [--edges M] [--master local[2,4]] [--keep FOLDER]

Generates N nodes and M edges as graph NDJSON, then measures: the start of a session, the load with
every check, a merge of some of it, an export, and Spark's own `read.json -> write.parquet` of the
same rows. Memory is the largest resident set of driver, JVM and workers. With kuzu installed its
`COPY` of the same rows is measured too. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omnigraph import Graph, pipeline

SCHEMA = """
node Person {
  name: String @key
  age: I32
  email: String?
  score: F64?
  @range(age, 0..150)
}
edge Knows: Person -> Person { since: I32 }
"""
FILES = 8
DRIVER_HEAP = "2g"


def generate(folder: Path, nodes: int, edges: int) -> None:
    """The graph as NDJSON; endpoints are spread by a multiplicative step, so no file is sorted."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in range(FILES):
        with (folder / f"nodes-{part}.jsonl").open("w") as out:
            for i in range(part, nodes, FILES):
                out.write(
                    f'{{"type":"Person","data":{{"name":"person-{i:09d}","age":{i % 100},'
                    f'"email":"p{i}@example.org","score":{i * 0.5}}}}}\n'
                )
        with (folder / f"edges-{part}.jsonl").open("w") as out:
            for i in range(part, edges, FILES):
                source, target = i * 7_919 % nodes, i * 104_729 % nodes
                out.write(
                    f'{{"edge":"Knows","from":"person-{source:09d}","to":"person-{target:09d}",'
                    f'"data":{{"since":{1990 + i % 30}}}}}\n'
                )


class Memory:
    """The largest resident set of this process and all its children, looked at twice a second."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self.jvm_mb = self.worker_mb = 0

    def __enter__(self) -> Memory:
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            for _, name, megabytes in children(os.getpid()):
                if "java" in name:
                    self.jvm_mb = max(self.jvm_mb, megabytes)
                else:
                    self.worker_mb = max(self.worker_mb, megabytes)


def children(root: int) -> Iterator[tuple[int, str, int]]:
    """Every process below one: its number, its name and its megabytes."""
    parents: dict[int, int] = {}
    facts: dict[int, tuple[str, int]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            name, _, rest = (entry / "stat").read_text().partition(") ")
            fields = rest.split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
        pages = int(fields[21])
        facts[int(entry.name)] = (name, pages * resource.getpagesize() // 2**20)
    for pid, fact in facts.items():
        above = pid
        while above in parents and above != root:
            above = parents[above]
        if above == root and pid != root:
            yield (pid, *fact)


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    answer = work()
    return time.perf_counter() - began, answer


def run(folder: Path, *, nodes: int, edges: int, master: str) -> dict[str, Any]:
    """Every measurement, as one value."""
    data, uri = folder / "ndjson", str(folder / "graph")
    generate(data, nodes, edges)
    records = nodes + edges
    begun, spark = timed(
        lambda: pipeline.session(master=master, config={"spark.driver.memory": DRIVER_HEAP})
    )
    spark.range(1).count()
    Graph.init(uri, SCHEMA).close()
    with Memory() as memory:
        load_seconds, report = timed(lambda: pipeline.load(spark, uri, data, mode="append"))
    parquet_seconds, _ = timed(lambda: _spark_to_parquet(spark, data, folder))
    merge_seconds, _ = timed(
        lambda: pipeline.load(spark, uri, data / "nodes-0.jsonl", mode="merge")
    )
    export_seconds, _ = timed(
        lambda: pipeline.export(spark, uri, folder / "export", format="parquet")
    )
    result = {
        "nodes": nodes,
        "edges": edges,
        "master": master,
        "driver_heap": DRIVER_HEAP,
        "session_seconds": round(begun, 2),
        "load_seconds": round(load_seconds, 2),
        "load_records_per_second": round(records / load_seconds),
        "load_steps": {step.name: round(step.seconds, 2) for step in report.steps},
        "spark_parquet_seconds": round(parquet_seconds, 2),
        "load_over_parquet": round(load_seconds / parquet_seconds, 2),
        "merge_seconds": round(merge_seconds, 2),
        "merge_records": nodes // FILES,
        "export_parquet_seconds": round(export_seconds, 2),
        "driver_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "jvm_mb": memory.jvm_mb,
        "worker_mb": memory.worker_mb,
    }
    if find_spec("kuzu") is not None:
        result["kuzu_copy_seconds"] = round(timed(lambda: _kuzu(folder))[0], 2)
    return result


def _spark_to_parquet(spark: Any, data: Path, folder: Path) -> None:
    person = "type string, data struct<name string, age int, email string, score double>"
    knows = "edge string, `from` string, `to` string, data struct<since int>"
    for name, schema in (("nodes", person), ("edges", knows)):
        frame = spark.read.schema(schema).json(f"{data}/{name}-*.jsonl")
        frame.write.mode("overwrite").parquet(str(folder / "parquet" / name))


def _kuzu(folder: Path) -> None:
    """`COPY` from the Parquet files of our export, which hold the same rows."""
    import kuzu

    connection = kuzu.Connection(kuzu.Database(str(folder / "kuzu")))
    connection.execute(
        "CREATE NODE TABLE Person(id STRING, name STRING, age INT32, email STRING, score DOUBLE, "
        "PRIMARY KEY(id))"
    )
    connection.execute("CREATE REL TABLE Knows(FROM Person TO Person, since INT32)")
    nodes = f"'{folder}/export/nodes/Person/*.parquet'"
    edges = f"'{folder}/export/edges/Knows/*.parquet'"
    connection.execute(f"COPY Person FROM {nodes}")
    connection.execute(f"COPY Knows FROM (LOAD FROM {edges} RETURN src, dst, since)")


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Measure bulk loads.")
    parser.add_argument("--nodes", type=int, default=500_000)
    parser.add_argument("--edges", type=int, default=2_000_000)
    parser.add_argument("--master", default="local[2,4]")
    parser.add_argument("--keep", type=Path, help="folder to work in and leave behind")
    chosen = parser.parse_args(words)
    facts = {"nodes": chosen.nodes, "edges": chosen.edges, "master": chosen.master}
    if chosen.keep is not None:
        result = run(chosen.keep, **facts)
    else:
        with tempfile.TemporaryDirectory(prefix="omnigraph-pipeline-") as folder:
            result = run(Path(folder), **facts)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
