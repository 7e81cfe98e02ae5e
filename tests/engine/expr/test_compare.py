"""Numbers of any two types compare by value, without loss."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest

from omnigraph.compiler.query.ir import CompareOp
from omnigraph.engine.expr.compare import compare

WHOLE = [-(2**63), -(2**53) - 1, -1, 0, 1, 25, 2**53, 2**53 + 1, 2**63 - 1]
REAL = [-math.inf, -(2.0**63), -1.5, -0.0, 0.5, 25.5, 2.0**53, 2.0**63, math.inf, math.nan]


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
    # Python compares an int with a float exactly.
    operators = {
        "=": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }
    expected = [
        operators[op.value](a, b) for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)
    ]
    assert compare(op, left, right).to_pylist() == expected


def test_null_compares_to_null():
    found = compare(CompareOp.LT, pa.array([1, None], pa.int32()), pa.scalar(1.5))
    assert found.to_pylist() == [True, None]
