"""Files of one type: column mappings, casts, every format, and what is wrong with them."""

from __future__ import annotations

import datetime as dt
import decimal
import json

import pyarrow as pa
import pytest
from pyarrow import csv, orc, parquet
from twins import Twins, bulk_load, content, edge, ndjson, node

from omnigraph import Graph, Source
from omnigraph.compiler.schema import compile_schema
from omnigraph.engine.load.inputs.sources import Mapped, plan_columns
from omnigraph.engine.load.inputs.tabular import fitted_column
from omnigraph.errors import ConstraintViolationError, InputError, NotFoundError, RecordError
from omnigraph.model.schema import PropertyType, Scalar

SCHEMA = """
node Person {
  name: String @key
  age: I32?
  big: U64?
  score: F32?
  ok: Bool?
  born: Date?
  seen: DateTime?
  tags: [String]?
  vec: Vector(2)?
  pic: Blob?
  level: I32 @default(1)
}
edge Knows: Person -> Person { since: I32? }
"""
ROWS = [
    {
        "name": f"p{i}",
        "age": None if i % 3 == 0 else i,
        "big": 2**64 - 1 - i,
        "score": i / 2,
        "ok": i % 2 == 0,
        "born": dt.date(2000, 1, 1 + i),
        "seen": dt.datetime(2020, 1, 1, 12, 0, i, 123000, tzinfo=dt.UTC),
        "tags": ["a", f"t{i}"],
        "vec": [i, 0.5],
        "level": i,
    }
    for i in range(1, 9)
]
TABLE = pa.Table.from_pylist(
    ROWS,
    schema=pa.schema(
        {
            "name": pa.string(),
            "age": pa.int64(),
            "big": pa.uint64(),
            "score": pa.float64(),
            "ok": pa.bool_(),
            "born": pa.date32(),
            "seen": pa.timestamp("us", tz="UTC"),
            "tags": pa.list_(pa.string()),
            "vec": pa.list_(pa.float64()),
            "level": pa.int16(),
        }
    ),
)
EDGES = pa.table({"from": [f"p{i}" for i in range(1, 8)], "to": ["p1"] * 7, "since": range(7)})


def plain(rows):
    """Rows as text only, as CSV has them."""
    return pa.table(
        {
            name: [
                None if v is None else v if isinstance(v, str) else text(v)
                for v in rows[name].to_pylist()
            ]
            for name in rows.column_names
        }
    )


def text(value):
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    return json.dumps(value) if isinstance(value, list | bool) else str(value)


def write(folder, form):
    folder.mkdir()
    match form:
        case "parquet":
            parquet.write_table(TABLE, folder / "p.parquet", row_group_size=3)
            parquet.write_table(EDGES, folder / "k.parquet")
        case "orc":
            orc.write_table(TABLE.drop(["big"]), folder / "p.orc")
            orc.write_table(EDGES, folder / "k.orc")
        case "csv":
            csv.write_csv(plain(TABLE), folder / "p.csv")
            csv.write_csv(EDGES, folder / "k.csv")
        case "json":
            lines = [json.dumps(row, default=text) for row in ROWS]
            (folder / "p.json").write_text("\n".join(lines))
            lines = [json.dumps(row) for row in EDGES.to_pylist()]
            (folder / "k.json").write_text("\n".join(lines))
    return {"Person": str(next(folder.glob("p.*"))), "Knows": str(next(folder.glob("k.*")))}


@pytest.mark.parametrize("form", ["parquet", "orc", "csv", "json"])
@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_every_format_gives_the_content_of_graph_ndjson(tmp_path, form, mode):
    twins = Twins(tmp_path, SCHEMA)
    lines = [
        node(
            "Person",
            **{k: v for k, v in row.items() if v is not None and (form, k) != ("orc", "big")},
        )
        for row in json.loads(json.dumps(ROWS, default=text))
    ]
    lines += [edge("Knows", r["from"], r["to"], since=r["since"]) for r in EDGES.to_pylist()]
    twins.local.load(ndjson(lines), mode=mode)
    report = bulk_load(twins.bulk_uri, write(tmp_path / "in", form), mode=mode)
    assert (report.nodes, report.edges) == ({"Person": 8}, {"Knows": 7})
    mine, theirs = twins.contents()
    assert theirs == mine


def test_columns_are_renamed_and_cast_in_either_direction(tmp_path):
    twins = Twins(tmp_path, SCHEMA)
    parquet.write_table(
        pa.table({"full": ["x", "y"], "years": ["3", None], "junk": [1, 2], "level": [1.0, 2.0]}),
        tmp_path / "p.parquet",
    )
    (tmp_path / "k.csv").write_text("a;b\nx;y\n")
    bulk_load(
        twins.bulk_uri,
        {
            "Person": Source.parquet(
                tmp_path / "p.parquet", columns={"name": "full", "age": "years"}
            ),
            "Knows": Source.csv(
                tmp_path / "k.csv", columns={"a": "from", "b": "to"}, delimiter=";"
            ),
        },
        mode="append",
    )
    with Graph.open(twins.bulk_uri) as graph:
        rows = [json.loads(line) for line in graph.export()]
    assert [(r["data"]["id"], r["data"]["age"], r["data"]["level"]) for r in rows[:2]] == [
        ("x", 3, 1),
        ("y", None, 2),
    ]
    assert (rows[2]["from"], rows[2]["to"]) == ("x", "y")


CATALOG = compile_schema(SCHEMA)
BAD_MAPPINGS = [
    (["name", "shoe"], {}, {}, "unknown column 'shoe'"),
    (["full"], {"name": "nope"}, {}, "no column 'nope'"),
    (["full"], {"title": "full"}, {}, "no property 'title'"),
    (["age"], {}, {}, "required 'name'"),
    (["name", "x"], {"age": "x", "key": "x"}, {}, None),
    (["name", "x"], {"name": "x", "key": "name"}, {}, "mapped twice"),
    (["name"], {}, {"name": "Vector"}, "cannot cast to 'Vector'"),
    (["name"], {}, {"shoe": "String"}, "no property 'shoe' to cast"),
]


@pytest.mark.parametrize(("available", "columns", "casts", "refusal"), BAD_MAPPINGS)
def test_a_mapping_that_cannot_work_is_refused_by_name(available, columns, casts, refusal):
    person = CATALOG.nodes["Person"]
    mapped = Mapped(columns=columns, casts=casts)
    if refusal is None:
        assert plan_columns(person, available, mapped, place="p").takes == {"age": "x", "name": "x"}
        return
    with pytest.raises(InputError, match=refusal):
        plan_columns(person, available, mapped, place="p")


# source values, schema type, expected values, rows that do not fit
COLUMNS = [
    (pa.array(["1", "+2", " 3", "x", None]), "I32", [1, 2, 3, None, None], [3]),
    (pa.array([1.0, 2.5, None]), "I64", [1, None, None], [1]),
    (pa.array([2**40]), "I32", [None], [0]),
    (pa.array([-1, 1]), "U32", [None, 1], [0]),
    (pa.array([decimal.Decimal(3), decimal.Decimal("3.5")]), "I32", [3, None], [1]),
    (pa.array(["1.5", "NaN?", None]), "F64", [1.5, None, None], [1]),
    (pa.array([1e39, 1.0]), "F32", [None, 1.0], [0]),
    (pa.array(["true", "NO", "maybe"]), "Bool", [True, False, None], [2]),
    (pa.array(["a"]).dictionary_encode(), "String", ["a"], []),
    (pa.array([5]), "String", [None], [0]),
    (pa.array(["2020-01-02", "2020-13-01"]), "Date", [dt.date(2020, 1, 2), None], [1]),
    (
        pa.array([dt.datetime(2020, 1, 2), dt.datetime(2020, 1, 2, 3)]),
        "Date",
        [dt.date(2020, 1, 2), None],
        [1],
    ),
    (
        pa.array([1_577_836_800_123_456_789], pa.timestamp("ns")),
        "DateTime",
        [dt.datetime(2020, 1, 1, 0, 0, 0, 123000, tzinfo=dt.UTC)],
        [],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("values", "scalar", "expected", "misfits"), COLUMNS)
def test_columns_are_read_as_the_schema_says(values, scalar, expected, misfits):
    column, problems = fitted_column(values, PropertyType(scalar=Scalar(scalar), nullable=True))
    assert column.to_pylist() == expected
    assert [problem.row for problem in problems] == misfits


def test_bad_rows_are_named_by_file_and_row(tmp_path):
    twins = Twins(tmp_path, SCHEMA)
    path = tmp_path / "p.csv"
    path.write_text('name,age\n"a\nb",1\nc,old\nd,1,2\n,5\n')
    with pytest.raises(RecordError) as refused:
        bulk_load(twins.bulk_uri, {"Person": str(path)}, mode="append")
    assert [(o["place"], o["kind"]) for o in refused.value.offenders] == [
        (f"{path} row 2", "type"),
        (f"{path} row 3", "record"),
        (f"{path} row 4", "required"),
    ]


@pytest.mark.parametrize("row", ["a", "a,1,2"])
def test_a_file_of_nothing_but_bad_rows_is_refused(tmp_path, row):
    twins = Twins(tmp_path, SCHEMA)
    path = tmp_path / "p.csv"
    path.write_text(f"name,age\n{row}\n{row}\n")
    with pytest.raises(RecordError, match="expected 2 columns") as refused:
        bulk_load(twins.bulk_uri, {"Person": str(path)}, mode="append")
    places = [(o["place"], o["kind"]) for o in refused.value.offenders]
    assert places == [(f"{path} row 1", "record"), (f"{path} row 2", "record")]


@pytest.mark.parametrize("content_", [b"not parquet at all", b""])
def test_a_file_that_is_not_what_it_says_is_refused(tmp_path, content_):
    twins = Twins(tmp_path, SCHEMA)
    (tmp_path / "p.parquet").write_bytes(content_)
    with pytest.raises(InputError, match=r"p\.parquet"):
        bulk_load(twins.bulk_uri, {"Person": str(tmp_path / "p.parquet")}, mode="append")


def test_an_unknown_type_or_format_is_refused(tmp_path):
    twins = Twins(tmp_path, SCHEMA)
    (tmp_path / "p.dat").write_text("x")
    with pytest.raises(NotFoundError, match="unknown type 'Persona'"):
        bulk_load(twins.bulk_uri, {"Persona": "x.parquet"}, mode="append")
    with pytest.raises(InputError, match="cannot tell the format"):
        bulk_load(twins.bulk_uri, {"Person": str(tmp_path / "p.dat")}, mode="append")


def test_missing_ends_and_latin_text_are_offenders(tmp_path):
    twins = Twins(tmp_path, SCHEMA)
    bulk_load(twins.bulk_uri, str(twins.write(ndjson([node("Person", name="a")]))), mode="append")
    (tmp_path / "k.json").write_text('{"from":"a","to":null}\n{"from":"a","to":"a"}\n')
    with pytest.raises(ConstraintViolationError, match="'to'"):
        bulk_load(twins.bulk_uri, {"Knows": str(tmp_path / "k.json")}, mode="append")
    (tmp_path / "p.csv").write_bytes("name\nJos\xe9\n".encode("latin-1"))
    with pytest.raises(RecordError, match="row 1: column 'name' is not UTF-8 text"):
        bulk_load(twins.bulk_uri, {"Person": str(tmp_path / "p.csv")}, mode="append")
    with Graph.open(twins.bulk_uri) as graph:
        assert len(content(graph)) == 1


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_two_columns_of_one_name_are_refused(tmp_path, form):
    twins = Twins(tmp_path, SCHEMA)
    table = pa.Table.from_arrays([pa.array(["a"]), *[pa.array([1])] * 2], ["name", "age", "age"])
    path = tmp_path / "p.parquet"
    parquet.write_table(table, path)
    with pytest.raises(InputError, match="two columns are named 'age'"):
        bulk_load(
            twins.bulk_uri, {"Person": table if form == "arrow" else str(path)}, mode="append"
        )
