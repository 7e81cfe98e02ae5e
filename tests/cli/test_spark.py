"""Loads and exports that the command line sends to Spark."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from omnigraph import Graph
from omnigraph.cli.call import is_no_interrupt_of_py4j
from omnigraph.cli.main import entry

pytestmark = pytest.mark.spark

SCHEMA = """node Person {
    name: String @key
    age: I32?
}
edge Knows: Person -> Person
"""


@pytest.fixture
def desk(tmp_path, capsys, monkeypatch, spark):
    """A folder with an empty graph, and a way to run commands on it and read their JSON.

    The commands find the session that the suite has started.
    """
    monkeypatch.setenv("OMNIGRAPH_HOME", str(tmp_path / "home"))
    uri = str(tmp_path / "g.omni")
    Graph.init(uri, SCHEMA).close()

    def run(*words, code=0):
        capsys.readouterr()
        assert entry([*map(str, words), "--json", "--quiet"]) == code
        out, err = capsys.readouterr()
        return json.loads(out if code == 0 else err.splitlines()[-1])

    run.folder, run.uri = tmp_path, uri
    return run


def people(uri):
    with Graph.open(uri) as graph:
        source = (
            "query q() { match { $p: Person } return { $p.name, $p.age } order { $p.name asc } }"
        )
        return [(row["p.name"], row["p.age"]) for row in graph.query(source).to_pylist()]


def test_graph_lines_travel_through_spark_in_one_commit(desk):
    data = desk.folder / "d.jsonl"
    data.write_text(
        '{"type":"Person","data":{"name":"Ada","age":36}}\n'
        '{"type":"Person","data":{"name":"Grace"}}\n'
        '{"edge":"Knows","from":"Ada","to":"Grace"}\n'
    )
    done = desk("load", "--engine", "spark", "--mode", "append", "--data", data, desk.uri)
    assert (done["status"], done["total_entities"]) == ("loaded", 3)
    assert people(desk.uri) == [("Ada", 36), ("Grace", None)]
    out = desk.folder / "out"
    desk("export", "--format", "parquet", "--out", out, desk.uri)
    assert sorted(path.name for path in out.rglob("*") if path.is_dir()) == [
        "Knows",
        "Person",
        "edges",
        "nodes",
    ]


def test_rows_of_one_type_come_from_a_table_file(desk):
    data = desk.folder / "people.csv"
    data.write_text("name,age\nAda,36\nAlan,41\n")
    words = ("load", "--type", "Person", "--mode", "append", "--data", data, desk.uri)
    assert desk(*words)["total_entities"] == 2
    assert people(desk.uri) == [("Ada", 36), ("Alan", 41)]


def test_bad_records_can_be_put_aside(desk):
    data = desk.folder / "d.jsonl"
    data.write_text('{"type":"Person","data":{"name":"Ada"}}\n{"type":"Robot","data":{}}\n')
    words = ("load", "--engine", "spark", "--mode", "append", "--data", data, desk.uri)
    refused = desk(*words, code=1)
    assert "Robot" in refused["error"]
    assert people(desk.uri) == []
    done = desk(*words, "--quarantine", desk.folder / "bad")
    assert (done["total_entities"], done["rejected_total"]) == (1, 1)
    assert people(desk.uri) == [("Ada", None)]


def test_a_load_with_a_key_happens_once(desk):
    data = desk.folder / "d.jsonl"
    data.write_text('{"type":"Person","data":{"name":"Ada"}}\n')
    words = ("load", "--mode", "append", "--idempotency-key", "k1", "--data", data, desk.uri)
    assert desk(*words, "--engine", "spark")["status"] == "loaded"
    assert desk(*words, "--engine", "spark")["status"] == "already_loaded"


def test_a_job_file_describes_a_whole_load(desk):
    (desk.folder / "people.csv").write_text("who,years\nAda,36\nAlan,41\n")
    (desk.folder / "knows.jsonl").write_text('{"edge":"Knows","from":"Ada","to":"Alan"}\n')
    job = desk.folder / "job.yaml"
    job.write_text(
        f"graph: {desk.uri}\n"
        "mode: append\n"
        "sources:\n"
        "  - { type: Person, csv: people.csv, columns: { name: who, age: years } }\n"
        "  - { ndjson: knows.jsonl }\n"
    )
    assert desk("load", "--job", job)["total_entities"] == 3
    assert people(desk.uri) == [("Ada", 36), ("Alan", 41)]
    again = desk("load", "--job", job, "--mode", "merge", "--branch", "b", "--from", "main")
    assert (again["mode"], again["branch"], again["branch_created"]) == ("merge", "b", True)


def test_missing_vectors_are_made_with_embed(desk, monkeypatch):
    monkeypatch.setenv("OMNIGRAPH_EMBEDDINGS_MOCK", "1")
    uri = str(desk.folder / "notes.omni")
    schema = 'node Note { slug: String @key text: String vec: Vector(4) @embed("text") }'
    Graph.init(uri, schema).close()
    data = desk.folder / "notes.jsonl"
    data.write_text('{"type": "Note", "data": {"slug": "a", "text": "hello"}}\n')
    refused = desk("load", uri, "--data", data, "--mode", "append", code=1)
    assert refused["code"] == "constraint-violation"
    report = desk("load", uri, "--data", data, "--mode", "append", "--embed")
    assert (report["total_entities"], report["vectors"]) == (1, 1)


@pytest.mark.parametrize(
    ("raised", "place", "printed"),
    [
        (KeyboardInterrupt(), "lib/py4j/java_gateway.py", False),
        (BrokenPipeError(), "lib/py4j/clientserver.py", False),
        (BrokenPipeError(), "program.py", True),
    ],
)
def test_what_py4j_logs_because_of_ctrl_c_is_not_printed(raised, place, printed):
    raised.__context__ = KeyboardInterrupt()  # it was raised while that was being handled
    told = (type(raised), raised, None)
    record = logging.LogRecord("py4j.clientserver", logging.ERROR, place, 1, "text", (), told)
    assert is_no_interrupt_of_py4j(record) is printed


@pytest.mark.slow
def test_ctrl_c_in_the_middle_of_a_load_tells_one_line_and_commits_nothing(desk):
    data = desk.folder / "many.jsonl"
    with data.open("w") as out:
        for number in range(400_000):
            out.write(f'{{"type":"Person","data":{{"name":"p{number}","age":{number % 90}}}}}\n')
    words = ["load", "--engine", "spark", "--mode", "append", "--data", str(data), desk.uri]
    with subprocess.Popen(
        [sys.executable, "-m", "omnigraph", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as load:
        written = Path(desk.uri) / "nodes"
        while load.poll() is None and not any(written.glob("*/data/*")):
            time.sleep(0.02)
        load.send_signal(signal.SIGINT)
        _, err = load.communicate(timeout=120)
    assert (load.returncode, [line for line in err.splitlines() if line]) == (
        130,
        [
            f"omnigraph load → {desk.uri} (direct, local)",
            "starting Spark on this machine …",
            "interrupted; nothing was written",
        ],
    )
    with Graph.open(desk.uri) as graph:
        assert len(graph.commits()) == 1
        assert graph.pending_recoveries() == []
        assert graph.verify().ok
    assert not list(Path(desk.uri).parent.glob("*staging*"))


def test_a_query_on_spark_prints_what_it_prints_in_process(desk):
    with Graph.open(desk.uri) as graph:
        lines = [{"type": "Person", "data": {"name": f"p{n}", "age": n}} for n in range(5)]
        graph.load(lines, mode="append")
    text = "match { $p: Person  $p.age > 1 } return { $p.name, $p.age } order { $p.age desc }"
    words = ("query", desk.uri, "-e", text)
    here = desk(*words)
    assert here["row_count"] == 3
    assert desk(*words, "--engine", "auto") == here
    assert desk(*words, "--engine", "spark") == here
