"""The change feed as a stream: every commit's changes once, and on from where a query stopped."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from omnigraph import Graph, pipeline

pytestmark = pytest.mark.spark

SCHEMA = "node Person { name: String @key age: I32? }\nedge Knows: Person -> Person"


@pytest.fixture
def graph(tmp_path):
    with Graph.init(str(tmp_path / "graph"), SCHEMA, durability="process") as opened:
        yield opened


def put(graph, **ages):
    lines = [json.dumps({"type": "Person", "data": {"name": n, "age": a}}) for n, a in ages.items()]
    return graph.load("\n".join(lines), mode="merge").commit.graph_commit_id


def taken(spark, graph, tmp_path, **options):
    """What one run of the query saw, as (kind, name, age) by commit, since its last run."""
    batches = []
    reader = spark.readStream.format("omnigraph").option("type", "Person")
    reader = reader.option("readChanges", "true").options(**options)
    query = (
        reader.load(graph.uri)
        .writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda frame, _: batches.extend(frame.collect()))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    return sorted((row["_change_type"], row["name"], row["age"]) for row in batches)


def test_a_query_sees_each_change_once_across_restarts(spark, graph, tmp_path):
    pipeline.register(spark)
    put(graph, ann=1, bob=2)
    assert taken(spark, graph, tmp_path) == [("insert", "ann", 1), ("insert", "bob", 2)]
    assert taken(spark, graph, tmp_path) == []
    put(graph, ann=5, cid=3)
    graph.mutate('query gone() { delete Person where name = "bob" }')
    assert taken(spark, graph, tmp_path) == [
        ("delete", "bob", 2),
        ("insert", "cid", 3),
        ("update", "ann", 5),
    ]


def test_a_query_can_start_behind_a_commit(spark, graph, tmp_path):
    pipeline.register(spark)
    first = put(graph, ann=1)
    put(graph, bob=2)
    assert taken(spark, graph, tmp_path, start=first) == [("insert", "bob", 2)]


@pytest.mark.parametrize("changes", ["true", "false"])
def test_a_type_without_rows_has_none(spark, graph, changes):
    pipeline.register(spark)
    reader = spark.read.format("omnigraph").option("type", "Person").option("readChanges", changes)
    assert reader.load(graph.uri).collect() == []


def test_a_stream_of_what_is_no_change_feed_is_refused(spark, graph):
    pipeline.register(spark)
    reader = spark.readStream.format("omnigraph").option("type", "Person")
    with pytest.raises(PySparkException, match="is the change feed of a type"):
        reader.load(graph.uri).writeStream.format("noop").start().processAllAvailable()


def test_a_stream_that_is_no_change_feed_is_refused_with_a_hint(spark, graph, tmp_path):
    pipeline.register(spark)
    rows = spark.readStream.format("omnigraph").option("type", "Person").load(graph.uri)
    query = rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match=r'add .option\("readChanges", "true"\)'):
        query.foreachBatch(lambda *_: None).trigger(availableNow=True).start().awaitTermination(120)
