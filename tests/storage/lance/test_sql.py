"""Literals: what SQL text means to Lance, which columns a type has."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_bench import Bench

from omnigraph.model.schema import EdgeType, NodeType, Property, PropertyType, Scalar
from omnigraph.storage.lance import sql
from omnigraph.storage.lance.columns import PRIMARY_KEY, arrow_schema

VALUES = {
    "text": (
        pa.string(),
        ["", "plain", "it's", 'say "hi"', "back`tick", "ünïcödé 🐟", "a\nb", "%_"],
    ),
    "i32": (pa.int32(), [0, -1, 2**31 - 1, -(2**31)]),
    "i64": (pa.int64(), [0, 2**53 + 1, 2**63 - 1, -(2**63)]),
    "u32": (pa.uint32(), [0, 2**32 - 1]),
    "u64": (pa.uint64(), [0, 2**63, 2**64 - 1]),
    "f32": (pa.float32(), [0.5, -2.25, 2.0**100]),
    "f64": (pa.float64(), [0.1, -0.0, 1e308, 5e-324, math.inf, -math.inf]),
    "flag": (pa.bool_(), [True, False]),
    "day": (pa.date32(), [date(1970, 1, 1), date(2026, 2, 28), date(1900, 1, 1)]),
    "moment": (
        pa.timestamp("ms", tz="UTC"),
        [
            datetime(1970, 1, 1, tzinfo=UTC),
            datetime(2026, 7, 1, 12, 30, 15, 123_000, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC),
        ],
    ),
}


# Words that SQL keeps for itself, and one in mixed case.
NAMES = dict(
    zip(
        VALUES,
        ["select", "order", "group", "from", "where", "limit", "TheNumber", "true", "date", "case"],
        strict=True,
    )
)


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """A table with one column per kind, whose name needs quoting, and all values in rows."""

    class Here:
        uri, environ = str(tmp_path_factory.mktemp("words") / "g"), {}

    fields = [pa.field(NAMES[name], kind) for name, (kind, _) in VALUES.items()]
    schema = pa.schema([pa.field("id", pa.string(), nullable=False, metadata=PRIMARY_KEY), *fields])
    bench = Bench(Here, schema=schema)
    rows = [
        {"id": f"{name}-{at}", NAMES[name]: value}
        for name, (_, values) in VALUES.items()
        for at, value in enumerate(values)
    ]
    bench.land(bench.now().stage_append(pa.Table.from_pylist(rows, schema=schema)))
    return bench.now()


@pytest.mark.parametrize(
    ("name", "at"), [(name, at) for name in VALUES for at in range(len(VALUES[name][1]))]
)
def test_a_literal_finds_exactly_its_own_rows(typed, name, at):
    values = VALUES[name][1]
    where = f"{sql.column(NAMES[name])} = {sql.literal(values[at])}"
    expected = [f"{name}-{n}" for n, value in enumerate(values) if value == values[at]]
    assert typed.read(columns=["id"], where=where)["id"].to_pylist() == expected


@pytest.mark.parametrize("name", VALUES)
def test_a_list_of_literals_finds_all_of_them(typed, name):
    values = VALUES[name][1]
    where = sql.in_list(NAMES[name], [*values[1:], None])
    found = typed.read(columns=["id"], where=where)["id"].to_pylist()
    assert found == [f"{name}-{n}" for n in range(1, len(values))]


def test_an_empty_list_finds_nothing(typed):
    assert typed.count(sql.in_list("id", [])) == 0
    assert typed.count(sql.in_list("id", [None])) == 0


def test_times_of_other_zones_are_compared_in_utc():
    there = datetime(2026, 7, 1, 14, 0, tzinfo=timezone(timedelta(hours=2)))
    assert sql.literal(there) == sql.literal(datetime(2026, 7, 1, 12, 0, tzinfo=UTC))


@given(text=st.text(max_size=20))
def test_any_text_is_one_literal(typed, text):
    assert typed.count(f"{sql.literal(text)} = {sql.literal(text)}") == typed.count()
    assert typed.read(columns=["id"], where=sql.in_list("id", [text])).num_rows == 0


def test_conditions_are_joined_only_if_there_are_any():
    assert sql.all_of() is None
    assert sql.all_of(None, "a = 1") == "a = 1"
    assert sql.all_of("a = 1 OR b = 2", "c = 3") == "(a = 1 OR b = 2) AND (c = 3)"


def prop(name, scalar, **options):
    return Property(name=name, type=PropertyType(scalar=scalar, **options))


def test_a_node_has_its_id_then_its_properties():
    node = NodeType(
        name="Doc",
        properties=(
            prop("title", Scalar.STRING),
            prop("pages", Scalar.U32, nullable=True),
            prop("seen", Scalar.DATETIME, nullable=True),
            prop("born", Scalar.DATE, nullable=True),
            prop("words", Scalar.STRING, is_list=True, nullable=True),
            prop("near", Scalar.VECTOR, dimension=3, nullable=True),
        ),
    )
    schema = arrow_schema(node)
    assert schema.field("id").metadata == PRIMARY_KEY
    assert [(one.name, one.type, one.nullable) for one in schema] == [
        ("id", pa.string(), False),
        ("title", pa.string(), False),
        ("pages", pa.uint32(), True),
        ("seen", pa.timestamp("ms", tz="UTC"), True),
        ("born", pa.date32(), True),
        ("words", pa.list_(pa.string()), True),
        ("near", pa.list_(pa.float32(), 3), True),
    ]


def test_an_edge_has_its_endpoints_before_its_properties():
    edge = EdgeType(
        name="Knows", from_type="P", to_type="P", properties=(prop("since", Scalar.I32),)
    )
    assert arrow_schema(edge).names == ["id", "src", "dst", "since"]
    assert not any(arrow_schema(edge).field(name).nullable for name in ("id", "src", "dst"))


def test_every_scalar_makes_a_table(local_root):
    properties = tuple(
        prop(
            f"p_{scalar.value}",
            scalar,
            nullable=True,
            dimension=4 if scalar is Scalar.VECTOR else None,
        )
        for scalar in Scalar
    )
    lists = tuple(
        prop(
            f"l_{scalar.value}",
            scalar,
            nullable=True,
            is_list=True,
            dimension=4 if scalar is Scalar.VECTOR else None,
        )
        for scalar in Scalar
        if scalar is not Scalar.BLOB
    )
    schema = arrow_schema(NodeType(name="All", properties=properties + lists))
    bench = Bench(local_root, schema=schema)
    columns = [
        pa.array(["a"])
        if one.name == "id"
        else pa.ExtensionArray.from_storage(one.type, pa.nulls(1, one.type.storage_type))
        if isinstance(one.type, pa.ExtensionType)
        else pa.nulls(1, one.type)
        for one in schema
    ]
    bench.land(bench.now().stage_append(pa.table(columns, schema=schema)))
    (row,) = bench.now().read().to_pylist()
    assert row.pop("id") == "a"
    assert set(row.values()) == {None}
