"""Loads described in files, and what a report says about them."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from twins import bulk_load, ndjson, node

from omnigraph import Graph, pipeline
from omnigraph.engine.check.findings import Offender
from omnigraph.engine.load.report import PipelineReport, StepTime
from omnigraph.errors import InputError, NotFoundError
from omnigraph.pipeline.loads import job_arguments

SCHEMA = """
node Person { name: String @key  age: I32? }
edge Knows: Person -> Person
"""
JOB = """
graph: {graph}
mode: merge
idempotency_key: nightly-1
quarantine: bad
sources:
  - more/*.jsonl
  - type: Person
    csv: people.csv
    columns: {{name: full, age: years}}
    options: {{delimiter: ";"}}
  - type: Knows
    json: knows.json
    columns: {{from: a, to: b}}
"""


@pytest.fixture
def job(tmp_path):
    graph = tmp_path / "graph"
    Graph.init(str(graph), SCHEMA, durability="process").close()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "1.jsonl").write_text(ndjson([node("Person", name="x"), "{broken"]))
    (tmp_path / "people.csv").write_text("full;years\ny;3\nz;\n")
    (tmp_path / "knows.json").write_text('{"a":"x","b":"y"}\n{"a":"y","b":"z"}\n')
    path = tmp_path / "load.yaml"
    path.write_text(JOB.format(graph=graph))
    return path


def load_here(job, **given):
    """The load that a job describes, in process."""
    return bulk_load(**job_arguments(job, **given))


def test_a_job_file_names_graph_sources_and_rules(job):
    report = load_here(job)
    assert (report.nodes, report.edges) == ({"Person": 3}, {"Knows": 2})
    assert report.rejected == {"record": 1}
    assert report.quarantine == str(job.parent / "bad")
    assert load_here(job).status == "already_loaded"


@pytest.mark.parametrize("key", ["4711", "2026-11-15"])
def test_a_key_may_look_like_a_number_or_a_day(job, key):
    job.write_text(job.read_text().replace("nightly-1", key))
    assert load_here(job).commit.properties["idempotency_key"] == key


def test_what_the_caller_says_wins_over_the_file(job, tmp_path):
    other = str(tmp_path / "other")
    Graph.init(other, SCHEMA, durability="process").close()
    report = load_here(job, uri=other, actor="ann", mode="append", idempotency_key="again")
    assert (report.uri, report.actor_id, report.mode) == (other, "ann", "append")


BAD_JOBS = {
    "mode: append\n": "names no graph",
    "graph: g\nsources: [a]\n": "has no mode",
    "graph: g\nmode: append\n": "no sources",
    "graph: g\nmode: append\nsources: [{type: T}]\n": "exactly one of",
    "graph: g\nmode: append\nsources: [{type: T, csv: a, options: {sep: x}}]\n": "key 'sep'",
    "graph: g\nmode: append\nsources: [{type: T, json: a, options: {x: y}}]\n": "only csv",
    "graph: g\nmode: append\nshources: [a]\n": "unknown key 'shources'",
    "graph: g\nmode: append\nembed: openai\nsources: [a]\n": "true or false",
    "graph: g\nmode: append\nsources: [a]\nidempotency_key: [a]\n": "must be text, got list",
    "graph: [\n": "is not valid YAML",
    "graph: 2026-13-45\n": "is not valid YAML",  # no such day
    "graph: a\ngraph: b\n": "'graph' comes twice",
    "just text": "must be a mapping",
}


@pytest.mark.parametrize("text", BAD_JOBS)
def test_a_job_that_makes_no_sense_is_refused(tmp_path, text):
    path = tmp_path / "load.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=BAD_JOBS[text]):
        load_here(path)


@pytest.mark.spark
def test_a_job_runs_on_spark(spark, job):
    assert pipeline.load_job(spark, job).nodes == {"Person": 3}
    assert pipeline.load_job(spark, job, progress=False).status == "already_loaded"


# call -> the argument that the error must name
WRONG = {
    "load": ("uri", lambda spark: pipeline.load(spark, 5, "a.jsonl", mode="append")),
    "load message": (
        "message",
        lambda spark: pipeline.load(spark, "g", "a.jsonl", mode="append", message=5),
    ),
    "load nowhere": ("spark", lambda _: pipeline.load(None, "g", "a.jsonl", mode="append")),
    "load progress": (
        "progress",
        lambda spark: pipeline.load(spark, "g", "a.jsonl", mode="append", progress=5),
    ),
    "load embed": (
        "embed",
        lambda spark: pipeline.load(spark, "g", "a.jsonl", mode="append", embed="openai"),
    ),
    "register": ("spark", lambda _: pipeline.register(None)),
    "job": ("job", lambda spark: pipeline.load_job(spark, 5)),
    "job uri": (
        "uri",
        lambda spark: pipeline.load_job(spark, {"mode": "append", "sources": ["a"]}, uri=5),
    ),
    "export": ("uri", lambda spark: pipeline.export(spark, None, "out")),
    "export out": ("out", lambda spark: pipeline.export(spark, "g", 5)),
    "export types": ("types", lambda spark: pipeline.export(spark, "g", "out", types="Person")),
    "optimize": ("uri", lambda spark: pipeline.optimize(spark, b"g")),
    "optimize rows": (
        "index_task_rows",
        lambda spark: pipeline.optimize(spark, "g", index_task_rows="2"),
    ),
    "stream": ("uri", lambda spark: pipeline.stream(spark, 5, "in", mode="append", checkpoint="c")),
    "export compression": (
        "compression",
        lambda spark: pipeline.export(spark, "g", "out", compression=5),
    ),
    "optimize listener": ("listener", lambda spark: pipeline.optimize(spark, "g", listener=5)),
    "stream branch": (
        "branch",
        lambda spark: pipeline.stream(spark, "g", "in", mode="append", checkpoint="c", branch=5),
    ),
    "stream checkpoint": (
        "checkpoint",
        lambda spark: pipeline.stream(spark, "g", "in", mode="append", checkpoint=5),
    ),
    "session": ("config", lambda _: pipeline.session(config=5)),
}


@pytest.mark.spark
@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_named_before_anything_is_done(spark, case):
    argument, call = WRONG[case]
    with pytest.raises(InputError) as caught:
        call(spark)
    assert caught.value.argument == argument


@pytest.mark.spark
def test_an_unknown_durability_is_refused(spark, job):
    with pytest.raises(InputError, match="unknown durability 'bogus'"):
        pipeline.load_job(spark, job, durability="bogus")


def test_a_missing_job_file_is_named(tmp_path):
    with pytest.raises(NotFoundError, match="nowhere"):
        load_here(tmp_path / "nowhere.yaml")


REPORT = PipelineReport(
    status="loaded",
    uri="g",
    branch="main",
    mode="merge",
    nodes={"Person": 1200},
    edges={"Knows": 3},
    updated={"Person": 200},
    rejected={"range": 2},
    offenders=(Offender(place="a.jsonl:7", kind="range", message="<too old>"),),
    quarantine="bad",
    files=2,
    records=1205,
    steps=(StepTime(name="stage", seconds=2.0, tasks=4, records=1205),),
)


def test_the_report_says_the_same_in_every_form():
    as_json = json.loads(json.dumps(REPORT.to_json()))
    assert as_json["total_entities"] == 1203
    assert as_json["nodes"] == [{"name": "Person", "entities_loaded": 1200}]
    assert as_json["steps"] == [{"name": "stage", "seconds": 2.0, "tasks": 4, "records": 1205}]
    text = REPORT.to_text()
    for words in ("1,200", "(200 updated)", "a.jsonl:7: <too old>", "range 2", "602 records/s"):
        assert words in text
    page = REPORT.to_html()
    HTMLParser().feed(page)
    assert "&lt;too old&gt;" in page
    assert "<too old>" not in page
