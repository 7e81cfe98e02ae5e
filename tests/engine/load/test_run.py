"""Loads in process: every kind of source, bad records put aside, more rows than memory holds."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from functools import partial

import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from omnigraph import Graph, Source
from omnigraph.engine.load import run
from omnigraph.engine.runner import Inline
from omnigraph.errors import (
    ConstraintViolationError,
    IdempotencyKeyReusedError,
    InputError,
    NotFoundError,
    RecordError,
)

SCHEMA = """
node Person { name: String @key  age: I32?  email: String? @unique }
node Note { text: String }
edge Knows: Person -> Person { since: I32? }
"""
PEOPLE = pa.table({"name": ["a", "b", "c"], "age": pa.array([1, None, 3], pa.int64())})
KNOWS = pa.table({"from": ["a", "b"], "to": ["b", "c"], "since": pa.array([7, None], pa.int32())})


@pytest.fixture
def graph(tmp_path):
    with Graph.init(tmp_path / "g", SCHEMA, durability="process") as made:
        yield made


def held(graph, branch="main"):
    rows = [json.loads(line) for line in graph.export(branch=branch)]
    nodes = sorted(
        (row["data"]["name"], row["data"].get("age")) for row in rows if row.get("type") == "Person"
    )
    ends = sorted(
        (row["from"], row["to"], row["data"].get("since")) for row in rows if "edge" in row
    )
    return nodes, ends


def person(number, age):
    return json.dumps({"type": "Person", "data": {"name": f"p{number}", "age": age}})


def files_of(folder, form):
    """Both tables as files of one format, and as `Graph.load` takes them."""
    found = {}
    for name, table in (("Person", PEOPLE), ("Knows", KNOWS)):
        path = folder / f"{name}.{form}"
        if form == "parquet":
            parquet.write_table(table, path)
        elif form == "csv":
            csv.write_csv(table, path)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        found[name] = path
    return found


@pytest.mark.parametrize("form", ["parquet", "csv", "json", "arrow", "source"])
def test_tables_of_every_form_are_the_same_load(graph, tmp_path, form):
    match form:
        case "arrow":
            data = {"Person": PEOPLE, "knows": KNOWS}
        case "source":
            renamed = PEOPLE.rename_columns(["who", "age"])
            data = {"Person": Source.arrow(renamed, {"name": "who"}), "Knows": KNOWS}
        case _:
            data = files_of(tmp_path, form)
    result = graph.load(data, mode="append")
    assert (result.nodes, result.edges) == ({"Person": 3}, {"Knows": 2})
    assert held(graph) == (
        [("a", 1), ("b", None), ("c", 3)],
        [("a", "b", 7), ("b", "c", None)],
    )


def test_several_files_and_folders_of_lines_are_one_load(graph, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "1.jsonl").write_text('{"type":"Person","data":{"name":"a"}}\n')
    with gzip.open(folder / "2.jsonl.gz", "wt") as file:
        file.write(
            '{"type":"Person","data":{"name":"b"}}\n\n{"edge":"Knows","from":"a","to":"x"}\n'
        )
    with pytest.raises(ConstraintViolationError, match=r"2\.jsonl\.gz:3: .*'x'"):
        graph.load([folder], mode="append")
    (folder / "3.jsonl").write_text('{"type":"Person","data":{"name":"x"}}\n')
    assert graph.load([folder], mode="append").total_entities == 4


@pytest.mark.parametrize(
    ("data", "error", "told"),
    [
        ({"Nobody": PEOPLE}, NotFoundError, "unknown type 'Nobody'"),
        ({"Person": PEOPLE.append_column("odd", PEOPLE["age"])}, InputError, "odd"),
        ({"Person": 5}, InputError, "source of 'Person': cannot read int"),
        ({"Person": pa.table({"name": ["a", None]})}, ConstraintViolationError, "Person row 2: "),
        ({"Person": Source.table("t")}, InputError, "the table 't' can only be read with Spark"),
        ({"Knows": KNOWS}, ConstraintViolationError, "Knows row 1: "),
    ],
)
def test_tables_that_cannot_be_loaded_are_refused_by_name_and_row(graph, data, error, told):
    with pytest.raises(error, match=told):
        graph.load(data, mode="append")
    assert len(graph.commits()) == 1


def test_bad_records_are_put_aside_and_the_rest_is_loaded(graph, tmp_path):
    lines = [
        '{"type":"Person","data":{"name":"a","email":"x"}}',
        '{"type":"Person","data":{"name":"b","email":"x"}}',
        "{broken",
        '{"type":"Person","data":{"name":"c","age":"old"}}',
        '{"edge":"Knows","from":"a","to":"b"}',
        '{"type":"Person","data":{"name":"d"}}',
    ]
    result = graph.load("\n".join(lines), mode="append", on_error="quarantine")
    assert (result.nodes, result.edges) == ({"Person": 2}, {"Knows": 0})
    assert sum(result.rejected.values()) == 4
    assert result.to_json()["quarantine"] == f"{graph.uri}.quarantine"
    (written,) = {path.parent for path in (tmp_path / "g.quarantine").iterdir()}
    told = [
        json.loads(x)
        for path in sorted(written.iterdir())
        for x in path.read_text().split("\n")
        if x
    ]
    assert sorted(one["place"] for one in told) == [f"line {n}" for n in (2, 3, 4, 5)]
    with pytest.raises(InputError, match="of no use"):
        graph.load("", mode="append", quarantine=tmp_path)


def test_what_is_put_aside_of_the_permissive_form_is_written_down_whole(graph, tmp_path):
    lines = [
        person(1, 1),
        person(2, "two"),
        '{"type": "Nobody", "data": {"name": "x"}}',
        '{"type": "Person", broken',
        person(3, 3),
    ]
    folder = tmp_path / "bad"
    report = graph.load(
        "\n".join(lines), mode="append", strict=False, on_error="quarantine", quarantine=folder
    )
    assert report.nodes == {"Person": 2}  # a value that does not fit is null in this form
    (file,) = folder.iterdir()
    aside = [json.loads(line) for line in file.read_text().splitlines()]
    assert [one["place"] for one in aside] == ["record 3", "record 4"]
    assert json.loads(aside[0]["record"]) == json.loads(lines[2])
    assert aside[1]["record"] == "\n".join(lines[3:])
    assert aside[1]["reason"].endswith("nothing behind it was read")


def test_a_keyed_load_of_tables_lands_once(graph):
    first = graph.load({"Person": PEOPLE}, mode="append", idempotency_key="k")
    again = graph.load({"Person": PEOPLE}, mode="append", idempotency_key="k")
    assert (again, again.already_applied) == (first, True)
    with pytest.raises(IdempotencyKeyReusedError):
        graph.load({"Person": PEOPLE.slice(1)}, mode="append", idempotency_key="k")


@pytest.mark.parametrize("held_bytes", [1, 2_000, 20_000])
def test_rows_that_memory_cannot_hold_are_written_while_they_are_read(
    graph, tmp_path, monkeypatch, held_bytes
):
    """With little memory some tasks hold their rows and some write them; all land as one."""
    monkeypatch.setattr(run, "Inline", partial(Inline, held_bytes=held_bytes))
    monkeypatch.setattr("omnigraph.engine.load.order.SPLIT_CHUNK_BYTES", 2_000)
    lines = [
        json.dumps({"type": "Person", "data": {"name": f"p{n}", "age": n}}) for n in range(200)
    ]
    lines += [json.dumps({"edge": "Knows", "from": f"p{n}", "to": "p0"}) for n in range(9)]
    assert graph.load("\n".join(lines), mode="append").total_entities == 209
    assert len(held(graph)[0]) == 200
    again = [
        json.dumps({"type": "Person", "data": {"name": f"p{n}", "age": -n}}) for n in range(99)
    ]
    graph.create_branch("b")
    assert (
        graph.load("\n".join([*again, lines[150]]), mode="merge", branch="b").total_entities == 100
    )
    ages = dict(held(graph, "b")[0])
    assert [ages["p7"], ages["p98"], ages["p99"], ages["p150"]] == [-7, -98, 99, 150]
    with pytest.raises(RecordError, match="line 101: "):
        graph.load("\n".join([*lines[:100], "{"]), mode="overwrite")
    assert graph.load("\n".join(lines[:120]), mode="overwrite").nodes == {"Person": 120}
    assert len(held(graph)[0]) == 120
    staging = tmp_path / "g" / "__staging"
    assert not staging.exists() or not list(staging.iterdir())


@pytest.mark.parametrize("flushed_bytes", [4_000, 9_000])
def test_a_task_that_wrote_while_it_read_lands_its_last_rows_too(
    graph, tmp_path, monkeypatch, flushed_bytes
):
    """Also where a task may hold exactly as much as it writes at once."""
    monkeypatch.setattr(run, "Inline", partial(Inline, held_bytes=4_000))
    monkeypatch.setattr("omnigraph.engine.load.stage.STAGE_FLUSH_BYTES", flushed_bytes)
    monkeypatch.setattr("omnigraph.engine.load.inputs.sources.SPLIT_CHUNK_BYTES", 1_000)
    packed = tmp_path / "people.jsonl.gz"  # one task: it cannot be entered in the middle
    lines = (json.dumps({"type": "Person", "data": {"name": f"p{n}"}}) + "\n" for n in range(500))
    packed.write_bytes(gzip.compress("".join(lines).encode()))
    assert graph.load(packed, mode="append").nodes == {"Person": 500}
    assert len(held(graph)[0]) == 500


_FAR = 300_000_000_000  # seconds to the year 11476, which as milliseconds is in 1979
_DAY = 2_932_897  # the first one behind the year 9999


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("at", pa.array([0, _FAR]).cast(pa.timestamp("s"))),
        ("at", pa.array([0, _DAY], pa.int32()).cast(pa.date32())),
        ("day", pa.array([0, _DAY], pa.int32()).cast(pa.date32())),
        ("day", pa.array([0, _DAY * 86_400]).cast(pa.timestamp("s"))),
        ("day", pa.array([0, 1]).cast(pa.timestamp("ns"))),
        ("days", pa.array([[0], [1]]).cast(pa.list_(pa.timestamp("ns")))),
        ("ats", pa.array([[0], [0, _FAR]]).cast(pa.list_(pa.timestamp("s")))),
        ("days", pa.array([None, [_DAY]], pa.list_(pa.int32())).cast(pa.list_(pa.date32()))),
        ("spot", pa.array([None, [1e39, 1]], pa.list_(pa.float64(), 2))),
    ],
)
def test_a_value_of_a_table_that_a_type_does_not_have_is_refused_with_its_row(
    tmp_path, name, values
):
    schema = """node N {
        k: String @key  at: DateTime?  day: Date?  ats: [DateTime]?  days: [Date]?  spot: Vector(2)?
    }"""
    with Graph.init(tmp_path / "g", schema, durability="process") as graph:
        data = {"N": pa.table({"k": ["a", "b"], name: values})}
        with pytest.raises(ConstraintViolationError, match=rf"^N row 2: N: field '{name}' expects"):
            graph.load(data, mode="append")
        report = graph.load(data, mode="append", on_error="quarantine")
        assert (report.nodes, report.rejected) == ({"N": 1}, {"type": 1})


@pytest.mark.parametrize("odd", ["\v", "\f", "\xa0"])
def test_a_line_is_blank_if_json_calls_it_so(graph, tmp_path, odd):
    assert graph.load("\n".join([person(1, 1), " \t\r", person(2, 2)]), mode="append").nodes
    with pytest.raises(RecordError, match="line 2: "):
        graph.load("\n".join([person(3, 3), odd, person(4, 4)]), mode="append")
    path = tmp_path / "people.json"
    path.write_text(f'{{"name": "c"}}\n{odd}\n', encoding="utf-8")
    with pytest.raises(RecordError, match=":2: "):
        graph.load({"Person": path}, mode="append")


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_load_of_which_memory_holds_a_part_is_checked_again_when_the_graph_moved_on(
    graph, monkeypatch, mode
):
    monkeypatch.setattr(run, "Inline", partial(Inline, held_bytes=20_000))
    monkeypatch.setattr("omnigraph.engine.load.order.SPLIT_CHUNK_BYTES", 2_000)
    stage_writes, others = run._LoadRun._staged_writes, iter([person("other", 1)])

    def behind_another(self, *prepared):
        staged = stage_writes(self, *prepared)
        for other in others:
            with Graph.open(graph.uri) as another:
                another.load(other, mode="append")
        return staged

    monkeypatch.setattr(run._LoadRun, "_staged_writes", behind_another)
    lines = [person(n, n) for n in range(200)] + [person("x" * 5_000, 0)]
    assert graph.load("\n".join(lines), mode=mode).nodes == {"Person": 201}
    assert len(held(graph)[0]) == 202


def test_rows_with_blobs_of_which_memory_holds_a_part_are_merged(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "Inline", partial(Inline, held_bytes=10_000))
    monkeypatch.setattr("omnigraph.engine.load.order.SPLIT_CHUNK_BYTES", 2_000)
    names = [f"f{n}" for n in range(60)] + ["f" * 5_000]

    def files(content):
        data = [{"name": name, "bytes": f"base64:{content}"} for name in names]
        return "\n".join(json.dumps({"type": "File", "data": one}) for one in data)

    schema = "node File { name: String @key  bytes: Blob? }"
    with Graph.init(tmp_path / "g", schema, durability="process") as graph:
        graph.load(files("AQID"), mode="append")
        assert graph.load(files("AQIE"), mode="merge").nodes == {"File": 61}
        found = {graph.read_blob("node", "File", name, "bytes").read() for name in names}
    assert found == {b"\x01\x02\x04"}


def test_a_small_load_makes_no_file_but_those_of_its_commit(graph, tmp_path):
    graph.create_branch("b")
    graph.load({"Person": PEOPLE}, mode="append", branch="b")
    assert not (tmp_path / "g" / "__staging").exists()
    forks = {path.parent.parent.name for path in (tmp_path / "g").glob("**/tree/*")}
    assert len(forks - {"__manifest"}) == 1, (
        "only the table that is written has a line of the branch's own"
    )


def test_nothing_of_spark_is_imported_for_a_load_in_process(tmp_path):
    parquet.write_table(PEOPLE, tmp_path / "p.parquet")
    code = (
        "import sys; from omnigraph import Graph\n"
        f"g = Graph.init({str(tmp_path / 'g')!r}, {SCHEMA!r})\n"
        f"g.load({{'Person': {str(tmp_path / 'p.parquet')!r}}}, mode='append')\n"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_source_of_anything_but_an_arrow_table_is_refused():
    with pytest.raises(InputError, match="table must be a pyarrow Table, got int"):
        Source.arrow(5)
