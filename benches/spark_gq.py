"""`.gq` on Spark, beside joins written by hand and beside the engine in process.

    python benches/spark_gq.py FOLDER [--sides spark hand once local] [--master local[2,4]]
                               [--heap 512m] [--partitions N]

FOLDER is one that `read.py --keep` has left: a graph, and its people and friendships as Parquet.
`spark` asks through `pipeline.query`, with the driver's heap as given (in local mode it is the
executors' too) and no more than so much data in the driver's Python; `hand` runs the same question
as DataFrame joins over the Parquet files in a session of the same size, and `once` with the same
meaning too: two people who know each other twice are one pair; `local` is `Graph.query` without
limits. `--partitions` sets `spark.sql.shuffle.partitions` for the joins by hand. Every side is a
process of its own and answers each question twice: `first` and `again`, in seconds, with the
processor seconds of the whole process tree in `cpu`. `shuffled` are the bytes that Spark's stages
wrote for each other. Answers are compared. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pipeline import Memory, children

SIDES = ("spark", "hand", "once", "local")
PYTHON_BYTES = 512 << 20  # that the driver may add to what it has when the session is there
HOPS = 7
QUESTIONS = {
    "2 hops with a filter": "match { $p: Person { city: $city }  $p knows $m  $m knows $q  "
    "$q.age > 60 } return { count($q) as n }",
    "edges by age": "match { $p: Person  $p knows $q } return { $p.age, count($q) as n }",
    "shortest path": "match { $a: Person { name: $start }  $b: Person { name: $target } } "
    "return { length(shortest($a, $b, knows)) as hops }",
    "text, best 10": "match { $p: Person } return { $p.name } "
    "order { bm25($p.bio, $words) } limit 10",
}
TYPES = dict.fromkeys(("city", "start", "target", "words"), "String")


def parameters(folder: Path) -> dict[str, str]:
    """The same for every side; the target is a few hops from the start."""
    nodes = json.loads((folder / "graph.json").read_text())["nodes"]
    # Where the edges of a person lead to follows from how `read_data` makes them.
    person = 17 % nodes
    inverse = pow(7_919, -1, nodes)
    here = person
    for hop in range(HOPS):
        here = (here * inverse % nodes * 104_729 + hop % 3) % nodes
    name = "person-{:09d}".format
    return {"city": "c007", "start": name(person), "target": name(here), "words": "w0042 w1234"}


def asked(name: str, given: dict[str, str]) -> tuple[str, dict[str, str]]:
    used = {one: value for one, value in given.items() if f"${one}" in QUESTIONS[name]}
    declared = ", ".join(f"${one}: {TYPES[one]}" for one in used)
    return f"query q({declared}) {{ {QUESTIONS[name]} }}", used


# --- the sides -----------------------------------------------------------------------------------


def session(master: str, heap: str, partitions: int | None = None) -> Any:
    from omnigraph import pipeline

    config = {"spark.driver.memory": heap}
    if partitions is not None:
        config["spark.sql.shuffle.partitions"] = str(partitions)
    spark = pipeline.session(master=master, config=config)
    spark.range(1).count()
    return spark


def on_spark(spark: Any, folder: Path, given: dict[str, str]) -> dict[str, Callable[[], Any]]:
    from omnigraph.pipeline.gq.run import planned

    def ask(name: str) -> Any:
        source, params = asked(name, given)
        uri = str(folder / "graph.omni")
        state: Any = {"params": params, "branch": "main", "snapshot": None}
        return rows_of(planned(spark, uri, source, None, **state).result().to_pylist())

    return {name: partial(ask, name) for name in QUESTIONS}


def by_hand(
    spark: Any, folder: Path, given: dict[str, str], *, once: bool
) -> dict[str, Callable[[], Any]]:
    from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

    people = spark.read.parquet(str(folder / "person.parquet"))
    knows = spark.read.parquet(str(folder / "knows.parquet"))

    def hops() -> Any:
        start = people.where(F.col("city") == given["city"]).select("name")
        one = start.join(knows, start["name"] == knows["a"]).select("a", F.col("b").alias("m"))
        one = one.distinct() if once else one
        two = knows.select(F.col("a").alias("a2"), F.col("b").alias("q"))
        ends = people.where("age > 60").select(F.col("name").alias("end"))
        both = one.join(two, F.col("m") == F.col("a2")).select("a", "m", "q")
        both = both.distinct() if once else both
        found = both.join(ends, F.col("q") == F.col("end"))
        return [[found.count()]]

    def by_age() -> Any:
        ages = people.select("name", "age")
        pairs = knows.select("a", "b").distinct() if once else knows
        found = pairs.join(ages, F.col("a") == F.col("name")).groupBy("age").count()
        return [list(row) for row in found.orderBy("age").collect()]

    def shortest() -> Any:
        pairs = knows.select("a", "b").localCheckpoint()
        here = spark.createDataFrame([(given["start"],)], "n string")
        seen = here
        for depth in range(100):
            if not here.where(F.col("n") == given["target"]).isEmpty():
                return [[depth]]
            onward = pairs.join(F.broadcast(here), F.col("a") == F.col("n"))
            onward = onward.select(F.col("b").alias("n")).distinct()
            here = onward.join(seen, "n", "left_anti").localCheckpoint()
            seen = seen.unionAll(here)
        return [[None]]

    return {"2 hops with a filter": hops, "edges by age": by_age, "shortest path": shortest}


def in_process(folder: Path, given: dict[str, str]) -> dict[str, Callable[[], Any]]:
    from omnigraph import Graph

    graph = Graph.open(str(folder / "graph.omni"), "read-only")

    def ask(name: str) -> Any:
        source, params = asked(name, given)
        return rows_of(graph.query(source, params=params).to_pylist())

    return {name: partial(ask, name) for name in QUESTIONS}


def rows_of(rows: list[dict[str, Any]]) -> list[list[Any]]:
    return [list(row.values()) for row in rows]


# --- measuring -----------------------------------------------------------------------------------


def processor_seconds() -> float:
    """Of this process and all below it."""
    ticks = 0
    for pid in (os.getpid(), *(pid for pid, *_ in children(os.getpid()))):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def shuffled_bytes(spark: Any, group: str) -> int:
    context = spark.sparkContext
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()  # noqa: SLF001
    total = 0
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            if tracker.getStageInfo(stage) is not None:
                total += store.lastStageAttempt(stage).shuffleWriteBytes()
    return total


def measure(side: str, folder: Path, chosen: argparse.Namespace) -> dict[str, Any]:
    """What one side answers, and what it takes."""
    given = parameters(folder)
    spark = None
    if side == "local":
        ways = in_process(folder, given)
    else:
        spark = session(chosen.master, chosen.heap, None if side == "spark" else chosen.partitions)
        if side == "spark":
            ways = on_spark(spark, folder, given)
            limit_python()
        else:
            ways = by_hand(spark, folder, given, once=side == "once")
    found: dict[str, Any] = {}
    with Memory() as memory:
        for name, ask in ways.items():
            if name not in chosen.questions:
                continue
            found[name] = figures = {}
            for turn in ("first", "again")[: chosen.turns]:
                if spark is not None:
                    spark.sparkContext.setJobGroup(f"{name} {turn}", name)
                began, cpu = time.perf_counter(), processor_seconds()
                figures["answer"] = ask()
                figures[turn] = round(time.perf_counter() - began, 2)
                figures[f"cpu {turn}"] = round(processor_seconds() - cpu, 2)
                if spark is not None:
                    figures["shuffled"] = shuffled_bytes(spark, f"{name} {turn}")
                print(side, name, turn, figures[turn], figures[f"cpu {turn}"], file=sys.stderr)
    figures = {"driver_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}
    return {**found, "memory": figures | {"jvm_mb": memory.jvm_mb, "worker_mb": memory.worker_mb}}


def limit_python() -> None:
    """Let this process have so much more data than it has now, and fail where it wants more."""
    held = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (held + PYTHON_BYTES, held + PYTHON_BYTES))


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Measure .gq on Spark.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--questions", nargs="+", default=list(QUESTIONS))
    parser.add_argument("--master", default="local[2,4]")
    parser.add_argument("--heap", default="512m")
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--turns", type=int, choices=(1, 2), default=2)
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args(words)
    if chosen.alone:
        print(json.dumps(measure(chosen.sides[0], chosen.folder, chosen)))
        return
    found = {}
    for side in chosen.sides:
        command = [sys.executable, __file__, *words, "--sides", side, "--alone"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        found[side] = json.loads(done.stdout.splitlines()[-1])
    for name in chosen.questions:
        told = [one[name].pop("answer") for one in found.values() if name in one]
        assert all(one == told[0] for one in told), (name, told)
    print(json.dumps({"folder": chosen.folder.name, "heap": chosen.heap, **found}, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
