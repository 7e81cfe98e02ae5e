"""Equality in groups and the total order, over values whose bits or types mislead Arrow."""

from __future__ import annotations

import math
import random
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.expr import order
from omnigraph.engine.expr.order import (
    Key,
    Window,
    equal_codes,
    first_rows,
    order_rows,
    ordered_codes,
    sortable,
)

# Infinity minus infinity has another NaN than a loaded file.
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0001))[0]

# Ascending; what shares a place is equal.
LADDERS = {
    "real": (pa.float64(), [[None], [-math.inf], [-1.5], [0.0, -0.0], [5e-324], [math.inf],
                            [math.nan, OTHER_NAN]]),
    "whole": (pa.int64(), [[None], [-(2**63)], [-1], [0], [2**63 - 1]]),
    "unsigned": (pa.uint64(), [[None], [0], [2**63 - 1], [2**63], [2**64 - 1]]),
    "truth": (pa.bool_(), [[None], [False], [True]]),
    "text": (pa.string(), [[None], [""], ["A"], ["a"], ["a\x00"], ["aa"], ["é"], ["日"], ["🙂"]]),
    "texts": (pa.list_(pa.string()), [[None], [[]], [[""]], [["a"]], [["a", "a"]], [["b"]],
                                      [["b"] * 300]]),
    "reals": (pa.list_(pa.float64()), [[None], [[]], [[-math.inf]], [[0.0], [-0.0]],
                                       [[0.0, 1.0], [-0.0, 1.0]], [[2.0]],
                                       [[math.nan], [OTHER_NAN]], [[math.nan, 0.0]]]),
    "vector": (pa.list_(pa.float32(), 2), [[None], [[0.0, 1.0], [-0.0, 1.0]], [[1.0, 0.0]]]),
}  # fmt: skip
RUNGS = [
    (kind, [(rung, value) for rung, values in enumerate(ladder) for value in values])
    for kind, ladder in LADDERS.values()
]


@pytest.fixture(params=RUNGS, ids=list(LADDERS))
def rungs(request):
    """Values, shuffled and repeated, and the rung of each."""
    kind, steps = request.param
    mixed = [
        steps[at] for at in np.random.default_rng(7).permutation(np.repeat(range(len(steps)), 3))
    ]
    return pa.array([value for _, value in mixed], kind), np.array([rung for rung, _ in mixed])


@pytest.mark.parametrize("padded_max", [order._PADDED_MAX, -1])
def test_equal_values_have_equal_codes_and_null_none(rungs, padded_max, monkeypatch):
    monkeypatch.setattr(order, "_PADDED_MAX", padded_max)
    values, places = rungs
    codes = equal_codes(values)
    for one, place in zip(codes, places, strict=True):
        assert (codes == one).tolist() == (places == place).tolist()
    assert ((codes == -1) == values.is_null().to_numpy(zero_copy_only=False)).all()


@pytest.mark.parametrize("padded_max", [order._PADDED_MAX, -1])
def test_codes_and_sort_keys_follow_the_order(rungs, padded_max, monkeypatch):
    monkeypatch.setattr(order, "_PADDED_MAX", padded_max)
    values, places = rungs
    codes = ordered_codes(values)
    _, ranks = np.unique(codes, return_inverse=True)
    assert ranks.tolist() == places.tolist()
    for descending in (False, True):
        keys = sortable(values, descending=descending)
        found = places[np.lexsort(keys[::-1])]
        assert found.tolist() == sorted(places.tolist(), reverse=descending)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("wanted", [0, 1, 3, 7])
def test_the_first_rows_of_a_big_answer_are_those_of_the_whole(
    rungs, descending, wanted, monkeypatch
):
    monkeypatch.setattr(order, "TOP_ROWS_MIN", 1)
    values, _ = rungs

    keys = [Key(lambda rows: values.take(pa.array(rows)), descending)]
    whole = order_rows(keys, len(values), Window())
    assert order_rows(keys, len(values), Window(limit=wanted)).tolist() == whole.tolist()[:wanted]
    assert len(first_rows(values, descending=descending, wanted=wanted)) >= wanted


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    "values",
    [
        pa.array([3, None, 1, 3, None, 2]),
        pa.array([1.5, math.nan, None, -0.5, math.inf]),
        pa.array(["b", None, "a", "é", "B"]),
        pa.array([True, None, False, True]),
        pa.array([2**63, 0, None, 5], pa.uint64()),
    ],
    ids=["whole", "real", "text", "bool", "unsigned"],
)
def test_nulls_come_first_ascending_and_last_descending(values, descending):
    def weight(value):
        if value is None:
            return (0, 0)
        if isinstance(value, float) and math.isnan(value):
            return (2, 0)
        return (1, value.encode() if isinstance(value, str) else value)

    key = Key(lambda rows: values.take(pa.array(rows)), descending)
    found = values.take(pa.array(order_rows([key], len(values), Window()))).to_pylist()
    expected = sorted(values.to_pylist(), key=weight, reverse=descending)
    assert repr(found) == repr(expected)


@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.sampled_from("abc")), max_size=40
    )
)
def test_later_keys_decide_among_ties_only(rows):
    numbers, letters = pa.array([a for a, _ in rows], pa.int64()), pa.array([b for _, b in rows])
    keys = [
        Key(lambda at: numbers.take(pa.array(at)), descending=True),
        Key(lambda at: letters.take(pa.array(at)), descending=False),
    ]
    found = [rows[at] for at in order_rows(keys, len(rows), Window())]
    assert found == sorted(rows, key=lambda row: (row[0] is None, -(row[0] or 0), row[1]))


@pytest.mark.parametrize("descending", [False, True])
def test_the_first_rows_hold_the_best_and_all_their_ties(descending):
    rng = random.Random(5)
    for values in (
        [rng.choice([None, *range(50)]) for _ in range(6000)],
        [rng.choice([None, "x", "y", "zz", *map(str, range(500))]) for _ in range(6000)],
    ):
        found = first_rows(pa.array(values), descending=descending, wanted=20)
        order = sorted(
            range(len(values)),
            key=lambda row: (values[row] is not None, values[row] or type(values[0] or "")()),
            reverse=descending,
        )
        assert set(order[:20]) <= set(found.tolist())
        assert len(found) < len(values)
