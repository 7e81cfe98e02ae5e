"""Loads described in files, and what a report says about them."""

from __future__ import annotations

import json
from html.parser import HTMLParser

import pytest
from twins import ndjson, node

from omnigraph import Graph
from omnigraph.engine.check.findings import Offender
from omnigraph.engine.load.report import PipelineReport, StepTime
from omnigraph.errors import InputError, NotFoundError
from omnigraph.pipeline.loads import load_job

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


def test_a_job_file_names_graph_sources_and_rules(job):
    report = load_job(None, job)
    assert (report.nodes, report.edges) == ({"Person": 3}, {"Knows": 2})
    assert report.rejected == {"record": 1}
    assert report.quarantine == str(job.parent / "bad")
    assert load_job(None, job).status == "already_loaded"


@pytest.mark.parametrize("key", ["4711", "2026-11-15"])
def test_a_key_may_look_like_a_number_or_a_day(job, key):
    job.write_text(job.read_text().replace("nightly-1", key))
    assert load_job(None, job).commit.properties["idempotency_key"] == key


def test_what_the_caller_says_wins_over_the_file(job, tmp_path):
    other = str(tmp_path / "other")
    Graph.init(other, SCHEMA, durability="process").close()
    report = load_job(None, job, uri=other, actor="ann", mode="append", idempotency_key="again")
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
    "graph: [\n": "is not YAML",
    "just text": "must be a mapping",
}


@pytest.mark.parametrize("text", BAD_JOBS)
def test_a_job_that_makes_no_sense_is_refused(tmp_path, text):
    path = tmp_path / "load.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=BAD_JOBS[text]):
        load_job(None, path)


def test_a_missing_job_file_is_named(tmp_path):
    with pytest.raises(NotFoundError, match="nowhere"):
        load_job(None, tmp_path / "nowhere.yaml")


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
