"""Canonical ids: what the key values of a row give, and other spellings of it."""

import pyarrow as pa
import pytest

from omnigraph.engine.rows.columns import from_fitted
from omnigraph.engine.rows.keys import canonical_id, canonical_ids, respelled_id, respelled_ids
from omnigraph.model.schema import NodeType, Property, PropertyType, Scalar


def kind(scalar, **more):
    return PropertyType(scalar=scalar, **more)


def node(*properties, key=()):
    return NodeType(
        name="T", properties=tuple(Property(name=n, type=t) for n, t in properties), key=key
    )


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
    assert respelled_ids(keyed, pa.array([written, written]), {}).to_pylist() == [canonical] * 2
