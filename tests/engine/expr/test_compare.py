"""Numbers of any two types compare by value, without loss: columns and constants."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from omnigraph.compiler.query.ir import CompareOp
from omnigraph.engine.expr.compare import compare

WHOLE = [-(2**63), -(2**53) - 1, -1, 0, 1, 25, 2**53, 2**53 + 1, 2**63 - 1]
REAL = [-math.inf, -(2.0**63), -1.5, -0.0, 0.5, 25.5, 2.0**53, 2.0**63, math.inf, math.nan]
# Python compares an int with a float exactly.
OPERATORS = {
    "=": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def expected(op, left, right):
    return [
        None if None in (a, b) else OPERATORS[op.value](a, b)
        for a, b in zip(left, right, strict=True)
    ]


@pytest.mark.parametrize("op", list(CompareOp))
@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([a for a in WHOLE for _ in REAL]), pa.array(REAL * len(WHOLE))),
        (pa.array([a for a in REAL for _ in WHOLE]), pa.array(WHOLE * len(REAL))),
        (
            pa.array([a for a in [0, 1, 2**64 - 1] for _ in WHOLE], pa.uint64()),
            pa.array(WHOLE * 3, pa.int64()),
        ),
    ],
    ids=["whole-real", "real-whole", "unsigned-signed"],
)
def test_numbers_of_two_types_compare_by_value(op, left, right):
    assert compare(op, left, right).to_pylist() == expected(op, left.to_pylist(), right.to_pylist())


COLUMNS = {
    "I8": pa.array([-128, -1, 0, 2, 3, 127, None], pa.int8()),
    "I32": pa.array([-(2**31), -1, 0, 2, 3, 2**31 - 1, None], pa.int32()),
    "I64": pa.array([*WHOLE, None], pa.int64()),
    "U64": pa.array([0, 1, 2, 3, 2**63, 2**64 - 1, None], pa.uint64()),
    "I32 without null": pa.array([-1, 0, 2, 3], pa.int32()),
    "F32": pa.array([-math.inf, -1.5, -0.0, 3.0, 2.0**24, math.inf, math.nan, None], pa.float32()),
    "F64": pa.array([*REAL, None], pa.float64()),
}
CONSTANTS = [
    *(pa.scalar(number, pa.int64()) for number in [*WHOLE, 2**24, 2**24 + 1, -129, 128, 2**31]),
    *(pa.scalar(number, pa.uint64()) for number in [0, 3, 2**63, 2**64 - 1]),
    *(pa.scalar(number, pa.float64()) for number in [*REAL, 2.5, 3.0, -129.5, 2.0**64]),
]


@pytest.mark.parametrize("op", list(CompareOp))
@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_compares_with_a_constant_of_any_type_from_both_sides(name, op):
    column = COLUMNS[name]
    for constant in CONSTANTS:
        value = constant.as_py()
        values, same = column.to_pylist(), [value] * len(column)
        for some in (column, pa.concat_arrays([column, column]).slice(1)):
            values, same = some.to_pylist(), [value] * len(some)
            assert compare(op, some, constant).to_pylist() == expected(op, values, same)
            assert compare(op, constant, some).to_pylist() == expected(op, same, values)


@pytest.mark.parametrize("op", list(CompareOp))
def test_nothing_compares_with_null(op):
    for kind in (pa.int64(), pa.float64(), pa.uint64()):
        for column in COLUMNS.values():
            found = compare(op, column, pa.scalar(None, kind))
            assert found.to_pylist() == [None] * len(column)


def test_null_compares_to_null():
    found = compare(CompareOp.LT, pa.array([1, None], pa.int32()), pa.scalar(1.5))
    assert found.to_pylist() == [True, None]
