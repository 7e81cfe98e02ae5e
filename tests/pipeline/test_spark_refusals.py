"""On a real Spark: refusals are whole, typed and told once, and leave nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from test_twins import BASE, CASES, SCHEMA
from twins import Twins, edge, ndjson, node, verdict_of

from omnigraph import Graph, Source, pipeline
from omnigraph.engine.load import intake
from omnigraph.errors import InputError, OmnigraphError, SparkUnavailableError
from omnigraph.pipeline.sessions import _reason

pytestmark = pytest.mark.spark


def data_files(uri: str) -> list[str]:
    return sorted(
        str(path)
        for path in Path(uri).rglob("*")
        if path.is_file() and ("__staging" in path.parts or path.parent.name == "data")
        if "__manifest" not in path.parts
    )


@pytest.fixture
def twins(tmp_path):
    twins = Twins(tmp_path, SCHEMA)
    twins.load(BASE, "overwrite")
    return twins


def test_everything_is_told_at_once_as_in_process(spark, twins, tmp_path):
    mode, lines = CASES["every kind at once, backwards"]
    lines = [*lines, *(edge("Knows", "a", f"missing{i}") for i in range(150))]
    path = twins.write(ndjson(lines))
    before = data_files(twins.bulk_uri)
    with pytest.raises(OmnigraphError) as in_process:
        twins.local.load(ndjson(lines), mode=mode)
    with pytest.raises(OmnigraphError) as on_spark:
        pipeline.load(spark, twins.bulk_uri, str(path), mode=mode)
    assert verdict_of(on_spark.value, str(path)) == verdict_of(in_process.value)
    assert on_spark.value.total == 12 + 150
    assert data_files(twins.bulk_uri) == before


def test_a_file_that_makes_no_sense_is_refused_once_and_nothing_stays(spark, twins, tmp_path):
    good, bad = tmp_path / "1.csv", tmp_path / "2.csv"
    good.write_text("name,age\np,1\nq,2\n")
    bad.write_text("name,age,age\nr,1,2\n")
    before = data_files(twins.bulk_uri)
    with pytest.raises(InputError, match=r"2\.csv row 1: two columns are named 'age'"):
        pipeline.load(spark, twins.bulk_uri, {"Person": Source.csv([good, bad])}, mode="append")
    assert data_files(twins.bulk_uri) == before


def test_a_job_that_spark_gives_up_leaves_nothing(spark, twins, tmp_path, monkeypatch):
    good = twins.write(ndjson([node("Person", name=f"p{i}") for i in range(20)]))
    doomed = twins.write(ndjson([node("Person", name="q")]))
    run_stage = intake.run_stage

    def dying(job, task):
        answer = run_stage(job, task)
        if task.source.address == str(doomed):
            raise RuntimeError("out of memory")
        return answer

    monkeypatch.setattr(intake, "run_stage", dying)
    before = data_files(twins.bulk_uri)
    with pytest.raises(SparkUnavailableError, match="out of memory"):
        pipeline.load(spark, twins.bulk_uri, [str(good), str(doomed)], mode="append")
    assert data_files(twins.bulk_uri) == before


def test_sql_reaches_a_type_in_the_spelling_of_spark(spark, twins):
    pipeline.register(spark)
    options = f"type 'Person', path 'file:{twins.bulk_uri}'"
    spark.sql(f"CREATE TEMPORARY VIEW people_view USING omnigraph OPTIONS ({options})")
    spark.sql(f"CREATE TABLE people_table USING omnigraph OPTIONS ({options})")
    try:
        for source in ("people_view", f"people_table WITH ({options})"):
            rows = spark.sql(f"SELECT name FROM {source} ORDER BY name").collect()
            assert [row.name for row in rows] == ["a", "b", "c"]
        with pytest.raises(PySparkException, match="Spark forgets the options of CREATE TABLE"):
            spark.sql("SELECT name FROM people_table").collect()
    finally:
        spark.sql("DROP TABLE people_table")
        spark.sql("DROP VIEW people_view")
    with Graph.open(twins.bulk_uri) as graph:  # dropping a table takes nothing from the graph
        assert len(graph.query("query p() { match { $p: Person } return { $p.name } }")) == 3


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: org.apache.spark.SparkException: Could not parse Master URL: 'nowhere'
\tat org.apache.spark.SparkContext$.x(SparkContext.scala:3242)""",
            "org.apache.spark.SparkException: Could not parse Master URL: 'nowhere'",
        ),
        (
            """An error occurred while calling o1.x.
: java.io.IOException: it broke
Caused by: java.net.ConnectException: Connection refused""",
            "java.net.ConnectException: Connection refused",
        ),
        (
            """An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.
: java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.""",
            "no master took the application",
        ),
        ("[CANNOT_START] plain words", "[CANNOT_START] plain words"),
    ],
)
def test_why_spark_did_not_start_is_told(output, reason):
    assert _reason(output.splitlines()) == reason
