"""Loads, exports and streams through a real session: what only Spark can show."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from twins import Twins, content, edge, ndjson, node

from omnigraph import Graph, Source, pipeline
from omnigraph.engine.load import run as loads
from omnigraph.engine.load import stage
from omnigraph.errors import AlreadyExistsError, InputError, KeyConflictError

pytestmark = pytest.mark.spark
cloudpickle.register_pickle_by_value(sys.modules[__name__])

SCHEMA = """
node Person { name: String @key  age: I32?  email: String? @unique  pic: Blob?  vec: Vector(2)? }
edge Knows: Person -> Person { since: Date? }
"""


def people(count: int, first: int = 0) -> list:
    return [
        node(
            "Person",
            name=f"p{i}",
            age=i % 90,
            **({"pic": "base64:aGk=", "vec": [i, 0]} if i % 7 == 0 else {}),
        )
        for i in range(first, first + count)
    ]


def knows(count: int) -> list:
    return [
        edge("Knows", f"p{i}", f"p{(i * 7) % count}", id=f"k{i}", since="2020-02-02")
        for i in range(count)
    ]


@pytest.fixture
def graph(tmp_path):
    uri = str(tmp_path / "graph")
    Graph.init(uri, SCHEMA, durability="process").close()
    return uri


def held(uri: str, branch: str = "main") -> list:
    with Graph.open(uri) as graph:
        return content(graph, branch)


def test_many_files_of_all_types_become_one_commit_equal_to_the_in_process_one(
    spark, tmp_path, monkeypatch
):
    twins = Twins(tmp_path, SCHEMA)
    folder = tmp_path / "input"
    folder.mkdir()
    lines = people(300) + knows(300)
    for part in range(3):
        (folder / f"{part}.jsonl").write_text(ndjson(lines[part::3]))
    monkeypatch.setattr(
        "omnigraph.engine.load.inputs.sources.plan_splits.__kwdefaults__", {"split_bytes": 9_000}
    )
    twins.local.load(ndjson(lines), mode="append")
    heard = []
    report = pipeline.load(
        spark, twins.bulk_uri, folder, mode="append", progress=heard.append, durability="process"
    )
    mine, theirs = twins.contents()
    assert theirs == mine
    assert (report.nodes, report.edges, report.records) == ({"Person": 300}, {"Knows": 300}, 600)
    assert {tick.stage for tick in heard} >= {"stage", "check", "commit"}
    with Graph.open(twins.bulk_uri) as graph:
        assert len(graph.commits()) == 2


def test_a_dataframe_and_a_view_load_like_files(spark, graph):
    frame = spark.createDataFrame([(f"p{i}", i) for i in range(50)], "full string, years int")
    spark.createDataFrame(
        [("p1", "p2"), ("p2", "p3")], "a string, b string"
    ).createOrReplaceTempView("pairs")
    report = pipeline.load(
        spark,
        graph,
        {
            "Person": Source.dataframe(frame, columns={"name": "full", "age": "years"}),
            "Knows": Source.table("pairs", columns={"from": "a", "to": "b"}),
        },
        mode="append",
    )
    assert (report.nodes, report.edges) == ({"Person": 50}, {"Knows": 2})
    with pytest.raises(InputError, match="unknown column 'full'"):
        pipeline.load(spark, graph, {"Person": frame}, mode="append")


@pytest.mark.parametrize("how", ["ndjson", "gzip", "parquet"])
def test_what_is_exported_loads_back_exactly(spark, graph, tmp_path, how):
    path = tmp_path / "in.jsonl"
    path.write_text(ndjson(people(40) + knows(40)))
    pipeline.load(spark, graph, path, mode="append")
    form = "parquet" if how == "parquet" else "ndjson"
    packing = {"compression": "gzip"} if how == "gzip" else {}
    out = tmp_path / "out"
    report = pipeline.export(spark, graph, out, format=form, **packing)
    assert (report.nodes, report.edges) == ({"Person": 40}, {"Knows": 40})
    if how == "ndjson":
        with Graph.open(graph) as local:
            files = out.rglob("*.jsonl")
            written = [line for file in files for line in file.read_text().splitlines()]
            assert sorted(written) == sorted(local.export())
    again = str(tmp_path / "again")
    Graph.init(again, SCHEMA).close()
    sources = (
        {"Person": str(out / "nodes" / "Person"), "Knows": str(out / "edges" / "Knows")}
        if how == "parquet"
        else out
    )
    pipeline.load(spark, again, sources, mode="overwrite")
    assert held(again) == held(graph)
    with pytest.raises(AlreadyExistsError):
        pipeline.export(spark, graph, out)
    with pytest.raises(InputError, match="unknown export type"):
        pipeline.export(spark, graph, tmp_path / "x", types=["Nobody"])


def test_an_export_is_of_one_commit(spark, graph, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_text(ndjson(people(3)))
    first = pipeline.load(spark, graph, path, mode="append").commit
    path.write_text(ndjson(people(3, 3)))
    pipeline.load(spark, graph, path, mode="append")
    old = pipeline.export(spark, graph, tmp_path / "old", snapshot=first.graph_commit_id)
    assert old.nodes == {"Person": 3}
    assert old.commit == first


# --- the data source --------------------------------------------------------------------------


def test_a_type_is_read_at_any_commit_with_the_columns_and_rows_asked_for(spark, graph, tmp_path):
    pipeline.register(spark)
    path = tmp_path / "in.jsonl"
    path.write_text(ndjson(people(30) + knows(30)))
    first = pipeline.load(spark, graph, path, mode="append").commit
    path.write_text(ndjson([node("Person", name="p1", age=77), node("Person", name="new")]))
    second = pipeline.load(spark, graph, path, mode="merge").commit

    def read(**options):
        reader = spark.read.format("omnigraph").option("type", "Person")
        for name, value in options.items():
            reader = reader.option(name, value)
        return reader.load(graph)

    assert read().count() == 31
    assert read(snapshot=first.graph_commit_id).count() == 30
    assert {row.id for row in read(where="age = 77").collect()} == {"p1"}
    frame = read()
    assert (frame.where("age = 77").count(), frame.count()) == (1, 31)
    ends = spark.read.format("omnigraph").schema("src string, dst string").option("type", "Knows")
    assert {(row.src, row.dst) for row in ends.load(graph).where("src = 'p2'").collect()} == {
        ("p2", "p14")
    }
    changes = read(readChanges="true", start=first.graph_commit_id, end=second.graph_commit_id)
    assert {(row._change_type, row.id) for row in changes.collect()} == {
        ("update", "p1"),
        ("insert", "new"),
    }
    blob = read(where="id = 'p7'").select("pic", "vec").collect()[0]
    assert (bytes(blob.pic), blob.vec) == (b"hi", [7.0, 0.0])


def test_a_dataframe_of_one_type_is_written_as_one_commit_or_refused(spark, graph):
    pipeline.register(spark)
    frame = spark.createDataFrame([("x", 1), ("y", 2)], "name string, age int")
    writer = frame.write.format("omnigraph").option("type", "Person").option("actor", "ann")
    writer.mode("append").save(graph)
    with Graph.open(graph) as opened:
        assert opened.commits()[0].actor_id == "ann"
    with pytest.raises(PySparkException, match="already exists"):
        frame.write.format("omnigraph").option("type", "Person").mode("append").save(graph)
    merged = frame.selectExpr("name", "age + 1 as age").write.format("omnigraph")
    merged.option("type", "Person").option("mode", "merge").mode("append").save(graph)
    assert [json.loads(row)["data"]["age"] for row in held(graph)] == [2, 3]
    one = spark.createDataFrame([("z",)], "name string")
    one.write.format("omnigraph").option("type", "Person").mode("overwrite").save(graph)
    assert len(held(graph)) == 1


# --- streams ----------------------------------------------------------------------------------


def put(folder: Path, name: str, lines: list) -> None:
    (folder / f".{name}").write_text(ndjson(lines))
    (folder / f".{name}").rename(folder / f"{name}.jsonl")


def run_stream(spark, graph, folder, tmp_path, **options):
    query = pipeline.stream(
        spark,
        graph,
        folder,
        mode="append",
        checkpoint=tmp_path / "checkpoint",
        name="feed",
        trigger={"availableNow": True},
        files_per_batch=1,
        **options,
    )
    query.awaitTermination()
    return query


def test_every_micro_batch_is_one_commit_and_lands_once(spark, graph, tmp_path):
    folder = tmp_path / "incoming"
    folder.mkdir()
    put(folder, "1", people(10))
    put(folder, "2", people(10, 10) + knows(10))
    run_stream(spark, graph, folder, tmp_path)
    assert len(held(graph)) == 30
    # Spark forgets that the second batch was done, as if it had died before writing that down.
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink(missing_ok=True)
    put(folder, "3", people(5, 20))
    run_stream(spark, graph, folder, tmp_path)
    assert len(held(graph)) == 35
    with Graph.open(graph) as opened:
        batches = [commit.properties.get("stream_batch") for commit in opened.commits()]
    assert batches == ["2", "1", "0", None]


def test_bad_records_of_a_stream_are_put_aside(spark, graph, tmp_path):
    folder = tmp_path / "incoming"
    folder.mkdir()
    put(folder, "1", [*people(3), "{broken", edge("Knows", "p0", "nobody")])
    run_stream(spark, graph, folder, tmp_path, quarantine=tmp_path / "bad")
    assert len(held(graph)) == 3
    lines = [x for f in (tmp_path / "bad").glob("*") for x in f.read_text().splitlines()]
    assert {json.loads(line)["kind"] for line in lines} == {"record", "endpoint"}


# --- trouble ----------------------------------------------------------------------------------


def fails_first(run_stage, marker: str, how: str):
    def run(job, task):
        answer = run_stage(job, task)
        try:
            Path(f"{marker}-{task.number}").touch(exist_ok=False)
        except FileExistsError:
            return answer
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("lost after writing")

    return run


@pytest.mark.parametrize("how", ["raised", "killed"])
def test_tasks_that_die_after_writing_leave_no_row_twice(spark, graph, tmp_path, monkeypatch, how):
    path = tmp_path / "in.jsonl"
    path.write_text(ndjson(people(200) + knows(200)))
    monkeypatch.setattr(
        "omnigraph.engine.load.inputs.sources.plan_splits.__kwdefaults__", {"split_bytes": 8_000}
    )
    monkeypatch.setattr(
        "omnigraph.engine.load.intake.run_stage",
        fails_first(stage.run_stage, str(tmp_path / "died"), how),
    )
    pipeline.load(spark, graph, path, mode="append")
    rows = held(graph)
    assert len(rows) == len(set(rows)) == 400
    assert list(tmp_path.glob("died-*"))


def test_two_loads_and_a_mutation_loop_share_one_history(spark, graph, tmp_path):
    paths = []
    for number in range(2):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(ndjson(people(50, 1000 * (number + 1))))
        paths.append(path)
    errors: list[BaseException] = []

    def bulk(path):
        try:
            pipeline.load(spark, graph, path, mode="merge")
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=bulk, args=(path,)) for path in paths]
    source = "query add($n: String) { insert Person { name: $n } }"
    with Graph.open(graph) as opened:
        for thread in threads:
            thread.start()
        for number in range(10):
            opened.mutate(source, params={"n": f"m{number}"})
        for thread in threads:
            thread.join()
        opened.refresh()
        assert errors == []
        assert len(opened.commits()) == 1 + 10 + 2
        assert len(content(opened)) == 110


def test_a_strict_insert_meets_a_concurrent_one(spark, graph, tmp_path, monkeypatch):
    path = tmp_path / "in.jsonl"
    path.write_text(ndjson(people(3)))
    checks = loads.run_checks

    def somebody_is_faster(*args, **kwargs):
        answers = checks(*args, **kwargs)
        monkeypatch.setattr(loads, "run_checks", checks)
        with Graph.open(graph) as other:
            other.load(ndjson(people(1)), mode="append")
        return answers

    monkeypatch.setattr(loads, "run_checks", somebody_is_faster)
    with pytest.raises(KeyConflictError, match="p0"):
        pipeline.load(spark, graph, path, mode="append")
    assert len(held(graph)) == 1
