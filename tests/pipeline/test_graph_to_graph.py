"""From one graph into another by its change feed: every row once, whenever the driver dies and
whatever happens to the schema on the way."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from omnigraph import Graph

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = "node P { k: String @key  b: I32? }"
WIDER = "node P { k: String @key  b: I32?  c: String? }"

PROGRAM = """
import os, signal, sys
from omnigraph import pipeline
from omnigraph.pipeline import streams

source, target, checkpoint, dies, columns = sys.argv[1:6]
spark = pipeline.session(master="local[1,4]", config={
    "omnigraph.jvm.profile": "quick", "spark.driver.memory": "512m",
    "spark.sql.shuffle.partitions": "1",
})
commit_batch = streams.commit_batch

def commit_and_die(plan, batch, frame):
    if dies == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    commit_batch(plan, batch, frame)
    if dies == "after":
        os.kill(os.getpid(), signal.SIGKILL)

streams.commit_batch = commit_and_die
pipeline.register(spark)
reader = spark.readStream.format("omnigraph").option("type", "P").option("readChanges", "true")
changes = reader.load(source).where("_change_type = 'insert'").select(*columns.split(","))
query = pipeline.stream(
    spark, target, {"P": changes}, mode="append", checkpoint=checkpoint,
    trigger={"availableNow": True},
)
query.awaitTermination()
"""


def run(folder, *, dies="never", columns="k,b"):
    """One life of the driver."""
    places = [str(folder / name) for name in ("source", "target", "points")]
    command = [sys.executable, "-c", PROGRAM, *places, dies, columns]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=200)
    assert (done.returncode == 0) == (dies == "never"), done.stderr[-3000:]


def put(graph, *keys, **more):
    graph.load([{"type": "P", "data": {"k": k, "b": len(k), **more}} for k in keys], mode="append")


def rows(graph):
    found = [json.loads(line)["data"] for line in graph.export()]
    return sorted((one["k"], one.get("b"), one.get("c")) for one in found)


@pytest.mark.timeout(600)
def test_each_row_arrives_once_across_deaths_of_the_driver_and_a_new_schema(tmp_path):
    Graph.init(str(tmp_path / "target"), WIDER, durability="process").close()
    with Graph.init(str(tmp_path / "source"), SCHEMA, durability="process") as source:
        put(source, "a", "bb")
        run(tmp_path, dies="after")  # the graph has the batch, Spark does not know
        put(source, "ccc")
        run(tmp_path)  # Spark 4.3 ends behind the batch that it repeats
        run(tmp_path, dies="before")
        source.apply_schema(WIDER)
        put(source, "e", c="new")
        for _ in range(3):  # nothing is left to do in the last
            run(tmp_path, columns="k,b,c")
        expected = rows(source)
    with Graph.open(str(tmp_path / "target")) as target:
        assert rows(target) == expected
        streamed = [one.properties for one in target.commits() if "stream" in one.properties]
    numbers = [int(one["stream_batch"]) for one in streamed]
    assert sorted(numbers) == list(range(len(numbers)))
    assert len({one["stream"] for one in streamed}) == 1
