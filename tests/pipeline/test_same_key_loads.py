"""Bulk loads with one idempotency key: one commit, also when they are submitted at the same time.

`OMNIGRAPH_SAME_KEY_ROUNDS=50` makes the long run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
import twins
from pyspark.sql import SparkSession
from twins import bulk_load, edge, ndjson, node

from omnigraph import Graph, Source, pipeline
from omnigraph.engine.load.inputs.sources import declared
from omnigraph.engine.load.order import checked_order
from omnigraph.engine.load.run import run_load
from omnigraph.engine.runner import Inline
from omnigraph.errors import IdempotencyKeyReusedError, InvalidNameError
from omnigraph.model.ports import World
from omnigraph.model.steps import Step

ASKED = os.environ.get("OMNIGRAPH_SAME_KEY_ROUNDS")
ROUNDS, SPARK_ROUNDS = (int(ASKED), int(ASKED)) if ASKED else (3, 1)
SCHEMA = "node P { text: String }\nnode K { k: String @key  n: I32? }\nedge E: K -> K"
LINES = [
    *(node("P", text=f"t{i}") for i in range(20)),
    *(node("K", k=f"k{i}", n=i) for i in range(5)),
    *(edge("E", "k0", f"k{i}") for i in range(5)),
]
ONCE = {"P": 20, "K": 5, "E": 5}


@pytest.fixture
def uri(tmp_path):
    uri = str(tmp_path / "graph")
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        graph.load(ndjson([node("K", k="k0", n=-1)]), mode="append")
    (tmp_path / "in.jsonl").write_text(ndjson(LINES))
    return uri


def counts(uri):
    with Graph.open(uri) as graph:
        records = [json.loads(line) for line in graph.export()]
    return Counter(record.get("type") or record["edge"] for record in records)


def keyed(uri):
    with Graph.open(uri) as graph:
        return Counter(c.properties.get("idempotency_key") for c in graph.commits())


def data_files(uri):
    return {path for path in Path(uri).rglob("data/*.lance") if "__manifest" not in path.parts}


def order(uri, path, key="job", **options):
    facts = {"on_error": "fail", "quarantine": None, **options}
    return checked_order(
        uri=uri, sources=str(path), mode="merge", idempotency_key=key, branch="main", **facts
    )


class Rival:
    """Submits the same load when another is staged and about to take the lease."""

    def __init__(self, order):
        self.order, self.report = order, None

    def reach(self, step):
        if step is Step.WRITE_STAGED and self.report is None:
            staged = data_files(self.order.uri)
            self.report = run_load(
                Inline(held_bytes=0), self.order, listener=None, world=World(durability="process")
            )
            self.files = data_files(self.order.uri) - staged


@pytest.mark.parametrize("quarantined", [False, True])
def test_the_load_that_comes_second_at_the_last_moment_leaves_nothing(uri, tmp_path, quarantined):
    path, aside = tmp_path / "in.jsonl", tmp_path / "aside"
    options = {}
    if quarantined:
        path.write_text(ndjson([*LINES, "{broken", edge("E", "k0", "nobody")]))
        options = {"on_error": "quarantine", "quarantine": aside}
    before = data_files(uri)
    rival = Rival(order(uri, path, **options))
    report = run_load(Inline(held_bytes=0), rival.order, listener=None, world=World(steps=rival))
    first = rival.report
    assert (first.status, report.status) == ("loaded", "already_loaded")
    assert report.already_applied
    told = ("nodes", "edges", "updated", "rejected", "quarantine", "commit", "actor_id")
    assert [getattr(report, name) for name in told] == [getattr(first, name) for name in told]
    assert first.updated == {"K": 1}
    assert counts(uri) == ONCE
    assert keyed(uri)["job"] == 1
    assert data_files(uri) == before | rival.files  # the second one took its own files away
    written = [line for file in aside.glob("*") for line in file.read_text().splitlines()]
    assert len(written) == (2 if quarantined else 0)
    again = data_files(uri)
    bulk_load(uri, str(path), mode="merge", idempotency_key="job")
    assert data_files(uri) == again


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_two_threads_with_one_key(uri, tmp_path, mode):
    for number in range(ROUNDS):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(ndjson([node("P", text=f"r{number}")]))
        start, reports = threading.Barrier(2), []

        def go(path=path, number=number, start=start, reports=reports):
            start.wait()
            reports.append(bulk_load(uri, str(path), mode=mode, idempotency_key=f"r{number}"))

        threads = [threading.Thread(target=go) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(one.status for one in reports) == ["already_loaded", "loaded"]
        assert reports[0].commit == reports[1].commit
        assert reports[0].nodes == reports[1].nodes == {"P": 1}
    assert counts(uri)["P"] == ROUNDS
    assert {f"r{n}": 1 for n in range(ROUNDS)}.items() <= keyed(uri).items()


DRIVER = """
import sys
sys.path.insert(0, {folder!r})
from twins import bulk_load
print("ready", flush=True)
for line in sys.stdin:
    path, key = line.split()
    report = bulk_load({uri!r}, path, mode="append", idempotency_key=key)
    print(report.status, report.commit.graph_commit_id, flush=True)
"""


def test_two_drivers_with_one_key(uri, tmp_path):
    program = DRIVER.format(folder=str(Path(twins.__file__).parent), uri=uri)
    drivers = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    assert [one.stdout.readline() for one in drivers] == ["ready\n"] * 2
    for number in range(ROUNDS):
        path = tmp_path / f"{number}.jsonl"
        path.write_text(ndjson([node("P", text=f"r{number}")]))
        for one in drivers:
            one.stdin.write(f"{path} r{number}\n")
            one.stdin.flush()
        answers = [one.stdout.readline().split() for one in drivers]
        assert sorted(status for status, _ in answers) == ["already_loaded", "loaded"]
        assert answers[0][1] == answers[1][1]
    for one in drivers:
        one.stdin.close()
        assert one.wait() == 0
        one.stdout.close()
    assert counts(uri)["P"] == ROUNDS


@pytest.mark.spark
def test_two_submissions_to_one_spark_session(spark: SparkSession, uri, tmp_path):
    for number in range(SPARK_ROUNDS):
        path, reports = tmp_path / f"{number}.jsonl", []
        path.write_text(ndjson([node("P", text=f"r{number}")]))

        def go(path=path, number=number, reports=reports):
            key = f"r{number}"
            reports.append(pipeline.load(spark, uri, path, mode="append", idempotency_key=key))

        threads = [threading.Thread(target=go) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(one.status for one in reports) == ["already_loaded", "loaded"]
        assert reports[0].commit == reports[1].commit
    assert {f"r{n}": 1 for n in range(SPARK_ROUNDS)}.items() <= keyed(uri).items()
    assert counts(uri)["P"] == SPARK_ROUNDS


@pytest.mark.spark
def test_a_dataframe_is_known_by_its_columns(spark: SparkSession, uri):
    frame = spark.createDataFrame([("a",)], "text string")
    options = {"mode": "append", "idempotency_key": "k"}
    first = pipeline.load(spark, uri, {"P": frame}, **options)
    again = pipeline.load(spark, uri, {"P": spark.sql("select 'b' text")}, **options)
    assert (again.status, again.commit) == ("already_loaded", first.commit)
    with pytest.raises(IdempotencyKeyReusedError):
        pipeline.load(spark, uri, {"P": frame.withColumnRenamed("text", "t")}, **options)


def test_a_load_is_known_by_what_it_declares(uri, tmp_path):
    path, other = tmp_path / "in.jsonl", tmp_path / "other.jsonl"
    other.write_text(ndjson([node("P", text="x")]))
    first = bulk_load(uri, str(path), mode="merge", idempotency_key="k")
    for sources, mode in ((str(path), "append"), (str(other), "merge"), ({"P": path}, "merge")):
        with pytest.raises(IdempotencyKeyReusedError):
            bulk_load(uri, sources, mode=mode, idempotency_key="k")
    path.unlink()  # a repetition reads nothing
    for sources in (path, f"file:{path}", os.path.relpath(path)):
        again = bulk_load(uri, sources, mode="merge", idempotency_key="k")
        assert (again.status, again.commit) == ("already_loaded", first.commit)
    with pytest.raises(InvalidNameError):
        bulk_load(uri, str(other), mode="append", idempotency_key="")
    assert counts(uri) == ONCE


def test_what_is_declared_of_sources():
    columns = {"text": "t"}
    given = [
        "a.jsonl",
        ["a.jsonl", "b.jsonl"],
        {"P": "a.csv"},
        {"P": Source.csv("a.csv")},
        {"P": Source.csv("a.csv", columns)},
        {"P": Source.csv("a.csv", delimiter=";")},
        {"P": Source.parquet("a.csv")},
        {"P": Source.table("a.csv")},
        {"K": Source.table("a.csv")},
    ]
    told = [json.dumps(declared(one), default=dict) for one in given]
    assert len(set(told)) == len(told)
