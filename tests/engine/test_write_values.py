"""Values, columns and canonical ids: what fits into a column, and what is refused and why."""

import datetime as dt
import math

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.write.columns import BLOB_CELL, batch_schema, column, column_type, from_fitted
from omnigraph.engine.write.keys import canonical_id, canonical_ids, respelled_id, respelled_ids
from omnigraph.engine.write.values import BlobCell, Misfit, fit
from omnigraph.model.schema import EdgeType, NodeType, Property, PropertyType, Scalar
from omnigraph.storage.arrow_schema import arrow_schema
from omnigraph.storage.blobs import seal


def kind(scalar, **more):
    return PropertyType(scalar=scalar, **more)


def node(*properties, key=()):
    return NodeType(
        name="T", properties=tuple(Property(name=n, type=t) for n, t in properties), key=key
    )


FITS = [
    (Scalar.STRING, "", ""),
    (Scalar.BOOL, True, True),
    (Scalar.I32, 2**31 - 1, 2**31 - 1),
    (Scalar.I64, "-9223372036854775808", -(2**63)),
    (Scalar.U64, 2**64 - 1, 2**64 - 1),
    (Scalar.U64, "18446744073709551615", 2**64 - 1),
    (Scalar.F64, 3, 3.0),
    (Scalar.F64, "-Infinity", -math.inf),
    (Scalar.F32, 16777217, 16777216.0),
    (Scalar.DATE, "1970-01-02", 1),
    (Scalar.DATE, dt.date(1969, 12, 31), -1),
    (Scalar.DATE, 19723, 19723),
    (Scalar.DATETIME, "1970-01-01T00:00:00.5Z", 500),
    (Scalar.DATETIME, "1970-01-01T01:00:00+01:00", 0),
    (Scalar.DATETIME, "1970-01-01T00:00:01", 1000),
    (Scalar.DATETIME, "1969-12-31T23:59:59.9999Z", -1),
    (Scalar.DATETIME, 1704067200000, 1704067200000),
    (Scalar.BLOB, "base64:AQID", BlobCell(data=b"\x01\x02\x03")),
    (Scalar.BLOB, "base64:", BlobCell(data=b"")),
    (Scalar.BLOB, "s3://bucket/key", BlobCell(uri="s3://bucket/key")),
]


FITS += [(Scalar.I32, 1.0, 1), (Scalar.U64, -0.0, 0)]


@pytest.mark.parametrize(("scalar", "value", "fitted"), FITS)
def test_a_value_of_the_right_kind_fits(scalar, value, fitted):
    assert fit(value, kind(scalar)) == fitted


MISFITS = [
    (Scalar.STRING, 7, "expects String,"),
    (Scalar.STRING, "\ud800", "lone surrogate"),
    (Scalar.BOOL, 1, "expects Bool,"),
    (Scalar.I32, "30", "expects Int32 (I32),"),
    (Scalar.I32, True, "expects Int32 (I32),"),
    (Scalar.I32, 1.5, "expects Int32 (I32),"),
    (Scalar.I64, 2.0**60, "expects Int64 (I64),"),
    (Scalar.I32, math.nan, "expects Int32 (I32),"),
    (Scalar.I32, 2**31, "Int32 range"),
    (Scalar.U32, -1, "UInt32 range"),
    (Scalar.U64, "18446744073709551616", "UInt64 range"),
    (Scalar.F32, 1e39, "Float32 range"),
    (Scalar.F32, "x", "expects Float32 (F32),"),
    (Scalar.F32, 10**400, "Float32 range"),
    (Scalar.F64, "1.5", "expects Float64 (F64),"),
    (Scalar.F64, 10**400, "Float64 range"),
    (Scalar.DATE, "2023-02-29", "no day of the calendar"),
    (Scalar.DATE, "2024-1-1", "expects Date,"),
    (Scalar.DATE, 10**8, "years 1 to 9999"),
    (Scalar.DATETIME, "2024-01-01", "expects DateTime,"),
    (Scalar.DATETIME, "2024-01-01T25:00:00Z", "no moment"),
    (Scalar.DATETIME, 10**17, "years 1 to 9999"),
    (Scalar.BLOB, "base64:!!", "not valid base64"),
    (Scalar.BLOB, "readme.txt", "URI"),
    (Scalar.BLOB, "https://example.com/x", "URI"),
    (Scalar.BLOB, "file:///" + "x" * 70_000, "longer than"),
]


@pytest.mark.parametrize(("scalar", "value", "words"), MISFITS)
def test_a_value_of_the_wrong_kind_says_why(scalar, value, words):
    misfit = fit(value, kind(scalar))
    assert isinstance(misfit, Misfit)
    assert words in misfit.message


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ([1.0], "1 numbers"),
        ([1.0, "x"], "an item 'x'"),
        ([1.0, math.inf], "not finite"),
        ("1,2", "expects Vector(2)"),
    ],
)
def test_a_vector_has_its_length_and_finite_numbers(value, words):
    assert words in fit(value, kind(Scalar.VECTOR, dimension=2)).message


def test_a_list_holds_no_nulls_and_nothing_foreign():
    texts = kind(Scalar.STRING, is_list=True)
    assert fit(["a", "b"], texts) == ["a", "b"]
    assert "null or invalid item 7 at position 1" in fit(["a", 7], texts).message
    assert "null or invalid item" in fit([None], texts).message
    assert "expects [String]," in fit("a", texts).message


def test_permissive_scalars_become_null_while_lists_are_judged():
    ages, problems = column([1, "old", None], kind(Scalar.I32), strict=False)
    assert (ages.to_pylist(), problems) == ([1, None, None], [])
    _, problems = column([["a", 7]], kind(Scalar.STRING, is_list=True), strict=False)
    assert [problem.row for problem in problems] == [0]


MIXED = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**65), 2**65),
    st.floats(),
    st.text(max_size=5),
    st.dates().map(str),
    st.datetimes(min_value=dt.datetime(1, 1, 2)).map(lambda m: m.isoformat() + "Z"),
    st.datetimes().map(lambda m: m.isoformat()),
    st.sampled_from(["0000-01-01", "NaN", "12", "base64:AQ==", "file:///x"]),
    st.lists(st.one_of(st.integers(-5, 5), st.floats(width=32)), max_size=3),
    st.lists(st.text(max_size=2), max_size=2),
)
SAME_KIND = st.one_of(
    st.lists(st.integers(-(2**40), 2**40)),
    st.lists(st.floats()),
    st.lists(st.dates().map(str)),
    st.lists(st.datetimes().map(lambda m: m.isoformat(timespec="milliseconds") + "+02:00")),
    st.lists(st.lists(st.floats(allow_nan=False, width=32), min_size=2, max_size=2)),
    st.lists(st.lists(st.text(max_size=2))),
    st.lists(st.text()),
    st.lists(st.booleans()),
)
KINDS = [kind(scalar) for scalar in Scalar if scalar is not Scalar.VECTOR] + [
    kind(Scalar.VECTOR, dimension=2),
    kind(Scalar.STRING, is_list=True),
    kind(Scalar.I32, is_list=True),
    kind(Scalar.DATE, is_list=True),
]


@settings(max_examples=150, deadline=None)
@given(values=st.one_of(st.lists(MIXED), SAME_KIND), which=st.sampled_from(KINDS))
def test_a_column_gives_the_verdict_of_each_cell(values, which):
    array, problems = column(values, which, strict=True)
    fitted = [fit(value, which) for value in values]
    assert [p.row for p in problems] == [
        row for row, cell in enumerate(fitted) if isinstance(cell, Misfit)
    ]
    alone = from_fitted([None if isinstance(c, Misfit) else c for c in fitted], which)
    # NaN is not equal to itself, hence the texts.
    assert str(array.to_pylist()) == str(alone.to_pylist())
    assert array.type == column_type(which)


def test_columns_of_the_write_path_are_those_of_the_table():
    properties = [(f"p{n}", which) for n, which in enumerate(KINDS)]
    edge = EdgeType(
        name="E",
        properties=tuple(Property(name=n, type=t) for n, t in properties),
        from_type="T",
        to_type="T",
    )
    for entity in (node(*properties), edge):
        ours, stored = batch_schema(entity), arrow_schema(entity)
        assert ours.names == stored.names
        for field in ours:
            if field.type != BLOB_CELL:
                assert field.type == stored.field(field.name).type
        assert seal(ours.empty_table(), stored).schema == stored


IDS = [
    (Scalar.STRING, "Zoë", "Zoë"),
    (Scalar.BOOL, True, "true"),
    (Scalar.U64, 2**64 - 1, "18446744073709551615"),
    (Scalar.I32, -5, "-5"),
    (Scalar.DATE, 19723, "19723"),
    (Scalar.DATETIME, 1704067200000, "1704067200000"),
    (Scalar.F32, 16777216.0, "16777216"),
    (Scalar.F64, 0.1, "0.1"),
    (Scalar.F64, -0.0, "0"),
    (Scalar.F64, 1e21, "1000000000000000000000"),
]


@pytest.mark.parametrize(("scalar", "value", "expected"), IDS)
def test_one_key_value_is_the_id_as_text(scalar, value, expected):
    keyed = node(("k", kind(scalar)), key=("k",))
    assert canonical_id(keyed, {"k": value}) == expected
    table = pa.table({"k": from_fitted([value, None], kind(scalar))})
    assert canonical_ids(keyed, table).to_pylist() == [expected, None]
    assert respelled_id(keyed, expected) == expected


def test_several_key_values_are_a_json_array_in_identity_order():
    keyed = node(
        ("tenant", kind(Scalar.STRING)), ("slot", kind(Scalar.U32)), key=("slot", "tenant")
    )
    expected = '["7","ac\\"me"]'
    assert canonical_id(keyed, {"tenant": 'ac"me', "slot": 7}) == expected
    table = pa.table({"tenant": ['ac"me', None], "slot": pa.array([7, 8], pa.uint32())})
    assert canonical_ids(keyed, table).to_pylist() == [expected, None]


@pytest.mark.parametrize(
    ("scalar", "written", "canonical"),
    [
        (Scalar.U32, "00042", "42"),
        (Scalar.DATE, "2024-01-01", "19723"),
        (Scalar.DATETIME, "2024-01-01T00:00:00Z", "1704067200000"),
        (Scalar.F32, "16777217", "16777216"),
        (Scalar.BOOL, "true", "true"),
        (Scalar.U32, "not a number", "not a number"),
        (Scalar.DATE, "nan", "nan"),
        (Scalar.STRING, "007", "007"),
    ],
)
def test_other_spellings_of_an_id_become_canonical(scalar, written, canonical):
    keyed = node(("k", kind(scalar)), key=("k",))
    assert respelled_id(keyed, written) == canonical
    assert respelled_ids(keyed, pa.array([written, written])).to_pylist() == [canonical] * 2
