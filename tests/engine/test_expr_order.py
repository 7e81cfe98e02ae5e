"""Equality in groups and the total order, over values whose bits or types mislead Arrow."""

from __future__ import annotations

import math
import struct

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.expr import order
from omnigraph.engine.expr.order import equal_codes, ordered_codes, sortable
from omnigraph.engine.read import sort
from omnigraph.engine.read.sort import Key, first_rows, order_rows

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
    monkeypatch.setattr(sort, "TOP_ROWS_MIN", 1)
    values, _ = rungs

    class First:
        def __init__(self, count):
            self.wanted = count

        def of(self, count):
            return slice(0, count if self.wanted is None else self.wanted)

    keys = [Key(lambda rows: values.take(pa.array(rows)), descending)]
    whole = order_rows(keys, len(values), First(None))
    assert order_rows(keys, len(values), First(wanted)).tolist() == whole.tolist()[:wanted]
    assert len(first_rows(values, descending=descending, wanted=wanted)) >= wanted
