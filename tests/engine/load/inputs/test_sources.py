"""Files as they come: packed, in partition folders, in other encodings, spelled in other ways."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json

import pyarrow as pa
import pytest
from pyarrow import orc, parquet
from twins import bulk_load, ndjson, node

from omnigraph import Graph, Source
from omnigraph.errors import (
    ConstraintViolationError,
    InputError,
    OmnigraphError,
    RecordError,
)
from omnigraph.model.machine import local_path
from omnigraph.storage.objects.root import Root

DAY = dt.date(2020, 1, 31)
SCHEMA = """
node P {
  k: String @key
  n: I32?
  day: Date?
  text: String?
  @range(n, 0..10)
}
"""


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


@pytest.fixture
def graph(tmp_path):
    uri = str(tmp_path / "g")
    Graph.init(uri, SCHEMA, durability="process").close()
    return uri


def rows(uri):
    with Graph.open(uri) as graph:
        data = graph.query(
            "query all() { match { $p: P } return { $p.k as k, $p.n as n, $p.day as day, "
            "$p.text as text } }"
        ).to_pylist()
    return {one["k"]: (one["n"], one["day"], one["text"]) for one in data}


def keys(uri):
    return {key: facts[0] for key, facts in rows(uri).items()}


# --- packed files -----------------------------------------------------------------------------

PACKINGS = {".gz": gzip.compress, ".GZ": gzip.compress, ".bz2": bz2.compress, ".zst": zstd}


@pytest.mark.parametrize("suffix", PACKINGS)
@pytest.mark.parametrize("kind", ["csv", "json", "graph"])
def test_packed_files_are_unpacked(tmp_path, graph, suffix, kind):
    pack = PACKINGS[suffix]
    name = {"csv": "x.csv", "json": "x.json", "graph": "x.jsonl"}[kind]
    path = tmp_path / f"{name}{suffix}"
    parts = {
        "csv": [b"k,n\na,1\n", b"b,2\n"],
        "json": [b'{"k":"a","n":1}\n', b'{"k":"b","n":2}'],
        "graph": [
            ndjson([node("P", k="a", n=1)]).encode(),
            ndjson([node("P", k="b", n=2)]).encode(),
        ],
    }[kind]
    path.write_bytes(b"".join(pack(part) for part in parts))  # several members in a row
    bulk_load(graph, str(path) if kind == "graph" else {"P": str(path)}, mode="append")
    assert keys(graph) == {"a": 1, "b": 2}


@pytest.mark.parametrize("suffix", [".zip", ".XZ", ".snappy"])
@pytest.mark.parametrize("typed", [True, False])
def test_what_cannot_be_unpacked_is_named(tmp_path, graph, suffix, typed):
    path = tmp_path / f"x.json{suffix}"
    path.write_bytes(b"PK whatever")
    with pytest.raises(InputError, match=f"cannot unpack '{path}'"):
        bulk_load(graph, {"P": str(path)} if typed else str(path), mode="append")


@pytest.mark.parametrize("name", ["x.csv.gz", "x.json.bz2", "x.csv.zst"])
def test_broken_packed_files_say_so(tmp_path, graph, name):
    path = tmp_path / name
    path.write_bytes(b"not packed at all, although the name says so")
    with pytest.raises(RecordError, match="x\\."):
        bulk_load(graph, {"P": str(path)}, mode="append")


# --- partition folders ------------------------------------------------------------------------


def write_part(path, table, kind):
    path.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "parquet":
            parquet.write_table(table, path)
        case "orc":
            orc.write_table(table, str(path))
        case "json":
            path.write_text("".join(json.dumps(one) + "\n" for one in table.to_pylist()))
        case "csv":
            lines = [",".join(table.column_names)]
            lines += [",".join(map(str, one.values())) for one in table.to_pylist()]
            path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("kind", ["parquet", "orc", "json", "csv"])
def test_partition_folders_are_columns(tmp_path, graph, kind):
    root = tmp_path / "table"
    for key, folders in {
        "a": "day=2020-01-31/n=3",
        "b": "day=2020-01-31/n=__HIVE_DEFAULT_PARTITION__",
        "c": "day=__HIVE_DEFAULT_PARTITION__/n=4",
    }.items():
        write_part(root / folders / f"part.{kind}", pa.table({"k": [key]}), kind)
    write_part(root / "plain" / f"part.{kind}", pa.table({"k": ["d"]}), kind)
    bulk_load(graph, {"P": str(root)}, mode="append")
    assert {key: facts[:2] for key, facts in rows(graph).items()} == {
        "a": (3, DAY),
        "b": (None, DAY),
        "c": (4, None),
        "d": (None, None),
    }


@pytest.mark.parametrize("kind", ["parquet", "json"])
def test_partition_values_are_unescaped_and_can_be_mapped(tmp_path, graph, kind):
    root = tmp_path / "table"
    path = root / "the%20note=a%2Fb%3D%C3%A9" / f"part.{kind}"
    write_part(path, pa.table({"k": ["a"]}), kind)
    source = {"parquet": Source.parquet, "json": Source.json}[kind]
    bulk_load(graph, {"P": source(str(root), {"text": "the note"})}, mode="append")
    assert rows(graph)["a"][2] == "a/b=é"


@pytest.mark.parametrize("pattern", ["n=*/part.parquet", "n=3", "n=3/part.parquet", "*"])
def test_partitions_count_however_the_files_are_named(tmp_path, graph, pattern):
    write_part(tmp_path / "t" / "n=3" / "part.parquet", pa.table({"k": ["a"]}), "parquet")
    bulk_load(graph, {"P": Source.parquet(str(tmp_path / "t" / pattern))}, mode="append")
    assert keys(graph) == {"a": 3}


def test_folders_above_that_mean_nothing_to_the_type_are_left_alone(tmp_path, graph):
    write_part(tmp_path / "run=7" / "n=3" / "x.parquet", pa.table({"k": ["a"]}), "parquet")
    write_part(tmp_path / "run=7" / "n=4" / "y.csv", pa.table({"k": ["b"], "n": [9]}), "csv")
    bulk_load(graph, {"P": str(tmp_path / "run=7" / "n=3" / "x.parquet")}, mode="append")
    bulk_load(graph, {"P": str(tmp_path / "run=7" / "n=4" / "y.csv")}, mode="append")
    assert keys(graph) == {"a": 3, "b": 9}


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
@pytest.mark.parametrize(
    ("folder", "told"),
    [
        ("n=3", "column 'n' is in the file and in the name of its folder"),
        ("color=red", "unknown column 'color'"),
    ],
)
def test_partitions_that_do_not_fit_are_refused(tmp_path, graph, kind, folder, told):
    write_part(tmp_path / "t" / folder / f"p.{kind}", pa.table({"k": ["a"], "n": [3]}), kind)
    with pytest.raises(InputError, match=told):
        bulk_load(graph, {"P": str(tmp_path / "t")}, mode="append")


def test_a_partition_value_of_the_wrong_type_is_a_violation_of_every_row(tmp_path, graph):
    write_part(tmp_path / "t" / "n=many" / "p.json", pa.table({"k": ["a", "b"]}), "json")
    with pytest.raises(ConstraintViolationError) as refused:
        bulk_load(graph, {"P": str(tmp_path / "t")}, mode="append")
    assert refused.value.total == 2


# --- places of CSV rows -----------------------------------------------------------------------


@pytest.mark.parametrize("block", [64, 8 << 20])
@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_rows_of_csv_files_have_their_own_numbers(tmp_path, graph, monkeypatch, block, header, end):
    monkeypatch.setattr("omnigraph.engine.load.inputs.tables._BLOCK_BYTES", block)
    lines = [f"key{i},{i % 10}" for i in range(1, 101)]
    lines[1] += ",extra"
    lines[2] = "bad,99"
    lines[39] = "late,98"
    lines[60] = "short"
    lines[98] += ",extra"
    lines[99] = "last,97"
    path = tmp_path / "x.csv"
    path.write_bytes(end.join([*(["k,n"] if header else []), *lines, ""]).encode())
    source = Source.csv(path) if header else Source.csv(path, header=["k", "n"])
    with pytest.raises(RecordError) as refused:
        bulk_load(graph, {"P": source}, mode="append")
    places = [one["place"].removeprefix(f"{path} row ") for one in refused.value.offenders]
    assert places == ["2", "3", "40", "61", "99", "100"]


# --- encodings --------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_marks_tell_the_encoding(tmp_path, graph, encoding):
    path = tmp_path / "x.csv"
    path.write_bytes("k,text\na,caf\u00e9 \U0001d11e\n".encode(encoding))
    bulk_load(graph, {"P": str(path)}, mode="append")
    assert rows(graph)["a"][2] == "caf\u00e9 \U0001d11e"


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16-le", "cp1252"])
@pytest.mark.parametrize("packed", [False, True])
def test_other_encodings_can_be_named(tmp_path, graph, encoding, packed):
    path = tmp_path / ("x.csv.gz" if packed else "x.csv")
    content = "k,text\na,caf\u00e9\n".encode(encoding)
    path.write_bytes(gzip.compress(content) if packed else content)
    bulk_load(graph, {"P": Source.csv(path, encoding=encoding)}, mode="append")
    assert rows(graph)["a"][2] == "caf\u00e9"


def test_bytes_that_are_no_text_are_problems_of_their_rows(tmp_path, graph):
    path = tmp_path / "x.csv"
    path.write_bytes(b"k,text\na,fine\nb,caf\xe9\nc,\xff\n")
    with pytest.raises(RecordError, match="row 2: column 'text' is not UTF-8 text") as refused:
        bulk_load(graph, {"P": str(path)}, mode="append")
    assert "encoding=" in refused.value.hint
    report = bulk_load(graph, {"P": str(path)}, mode="append", on_error="quarantine")
    assert (list(rows(graph)), report.rejected) == (["a"], {"record": 2})


@pytest.mark.parametrize(
    ("content", "options", "told"),
    [
        (b"k,n,n\na,1,2\n", {}, "row 1: two columns are named 'n'"),
        (b"a,1,2\n", {"header": ["k", "n", "n"]}, "row 1: two columns are named 'n'"),
        ("k,n\na,1\n".encode("utf-16-le"), {}, "row 1: the names of the columns are not text"),
        (b'"' + b"k" * 200_000 + b'",n\na,1\n', {}, "row 1: cannot read the names"),
        ("k,n\na,1\n".encode("utf-16")[:-1], {}, "cannot read on"),
        (b"k,n\na,1\n", {"encoding": "utf-16"}, "cannot read on"),
    ],
)
def test_csv_files_that_make_no_sense_are_refused_by_name(tmp_path, graph, content, options, told):
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(OmnigraphError, match=told) as refused:
        bulk_load(graph, {"P": Source.csv(path, **options)}, mode="append")
    assert isinstance(refused.value, InputError)
    assert str(path) in str(refused.value)


def test_an_encoding_that_nobody_knows_is_refused_at_once():
    with pytest.raises(InputError, match="unknown encoding 'klingon'"):
        Source.csv("x.csv", encoding="klingon")


@pytest.mark.parametrize("typed", [True, False])
def test_wide_lines_of_json_are_refused_by_name(tmp_path, graph, typed):
    path = tmp_path / "x.jsonl"
    path.write_bytes('{"k":"a"}\n'.encode("utf-16"))
    with pytest.raises(InputError, match=f"{path}: UTF-16"):
        bulk_load(graph, {"P": str(path)} if typed else str(path), mode="append")


# --- addresses --------------------------------------------------------------------------------


def test_file_addresses_in_every_spelling(tmp_path, graph):
    folder = tmp_path / "50% #1"
    folder.mkdir()
    for number, spelled in enumerate(["file:{}", "file://{}", "file://localhost{}"]):
        path = folder / f"x{number}.jsonl"
        path.write_text(ndjson([node("P", k=f"a{number}", n=number), node("P", k="bad", n=99)]))
        address = spelled.format(str(path).replace("%", "%25"))
        bulk_load(
            "file:" + graph,
            address,
            mode="merge",
            on_error="quarantine",
            quarantine=f"{tmp_path}/q",
        )
    assert keys(graph) == {"a0": 0, "a1": 1, "a2": 2}


@pytest.mark.parametrize(
    ("address", "path"),
    [
        ("/a/b", "/a/b"),
        ("a/b", "a/b"),
        ("file:/a/b", "/a/b"),
        ("FILE:///a%20b", "/a b"),
        ("file:a/b", "a/b"),
        ("s3://a/b", None),
        ("hdfs://x/y", None),
    ],
)
def test_which_addresses_lie_on_this_machine(address, path):
    assert local_path(address) == path
    if path is not None and path.startswith("/"):
        assert Root.parse(address, {}).local_path == path


def test_a_folder_tells_its_format_by_its_files(tmp_path, graph):
    write_part(tmp_path / "t" / "x.csv.part" / "a.CSV", pa.table({"k": ["a"], "n": [1]}), "csv")
    write_part(tmp_path / "t" / "b.csv", pa.table({"k": ["b"], "n": [2]}), "csv")
    (tmp_path / "t" / "_SUCCESS").write_text("")
    bulk_load(graph, {"P": f"file:{tmp_path}/t"}, mode="append")
    assert keys(graph) == {"a": 1, "b": 2}
