"""Equality in groups and the total order, over values whose bits or types mislead Arrow."""

from __future__ import annotations

import math
import random
import struct
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.expr import order
from omnigraph.engine.expr.order import (
    Key,
    Piece,
    Window,
    equal_codes,
    order_rows,
    ordered_codes,
)
from omnigraph.engine.read.memory.arrays import Bounds

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


@pytest.mark.parametrize("range_max", [order.NEAR_RANGE_MAX, 0])
@pytest.mark.parametrize(
    ("kind", "least"),
    [
        (pa.int8(), -128),
        (pa.int32(), 2**31 - 256),
        (pa.int64(), -(2**63)),
        (pa.uint64(), 2**64 - 256),
        (pa.date32(), 19_000),
        (pa.timestamp("ms", "UTC"), 1_700_000_000_000),
    ],
)
def test_numbers_near_each_other_have_equal_codes_where_they_are_equal(
    kind, least, range_max, monkeypatch
):
    monkeypatch.setattr(order, "NEAR_RANGE_MAX", range_max)
    draw = random.Random(7)
    numbers = [None if draw.random() < 0.1 else least + draw.randrange(256) for _ in range(600)]
    raw = pa.array(numbers, kind if pa.types.is_integer(kind) else None)
    values = raw if raw.type == kind else raw.cast(pa.int32() if kind == pa.date32() else raw.type)
    codes = equal_codes(values.cast(kind).slice(3))
    by_value = {}
    for number, code in zip(numbers[3:], codes.tolist(), strict=True):
        assert by_value.setdefault(number, code) == code
    assert by_value.pop(None) == -1
    assert len(set(by_value.values())) == len(by_value)
    assert -1 not in by_value.values()


@pytest.mark.parametrize("padded_max", [order._PADDED_MAX, -1])
def test_codes_follow_the_order(rungs, padded_max, monkeypatch):
    monkeypatch.setattr(order, "_PADDED_MAX", padded_max)
    values, places = rungs
    codes = ordered_codes(values)
    _, ranks = np.unique(codes, return_inverse=True)
    assert ranks.tolist() == places.tolist()


# Thresholds that lead to each way: everything sorted, selected from all rows, by a bound that a
# sample tells, and in parts.
WAYS = {
    "sorted": {"TOP_ROWS_MIN": 1 << 60, "FEW_TEXTS_MAX": 0},
    "sorted by Python": {"TOP_ROWS_MIN": 1 << 60, "FEW_TEXTS_MAX": 1 << 60},
    "selected": {"TOP_ROWS_MIN": 1, "SAMPLE_ROWS": 1 << 60},
    "selected in parts": {"TOP_ROWS_MIN": 1, "SAMPLE_ROWS": 1 << 60, "PART_ROWS": 5},
    "sampled": {"TOP_ROWS_MIN": 1, "SAMPLE_ROWS": 6, "PART_ROWS": 7, "COUNTED_RANGE_MAX": 1},
}


@pytest.fixture(params=list(WAYS))
def way(request, monkeypatch):
    for name, value in WAYS[request.param].items():
        monkeypatch.setattr(order, name, value)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("wanted", [0, 1, 7, 20, None])
@pytest.mark.usefixtures("way")
def test_every_way_gives_the_first_rows_by_rung_and_row_number(rungs, descending, wanted):
    values, places = rungs
    sign = -1 if descending else 1
    expected = sorted(range(len(values)), key=lambda row: (sign * places[row], row))
    for part, length in ((values, len(values)), (values.slice(5), len(values) - 5)):
        skipped = len(values) - length
        found = order_rows([Key.of(part, descending=descending)], length, Window(limit=wanted))
        rows = [row - skipped for row in expected if row >= skipped]
        assert found.tolist() == rows[:wanted]


def in_pieces(values, descending, asked):
    """A key whose rows are known in pieces of five; notes the pieces that are looked at."""
    cuts = [values.slice(first, 5) for first in range(0, len(values), 5)]

    def look(number):
        asked.append(number)
        return cuts[number]

    pieces = [
        Piece(len(cut), partial(look, number), partial(Bounds.of, cut))
        for number, cut in enumerate(cuts)
    ]
    whole = Key.of(values, descending=descending)
    return Key(whole.whole, whole.at, descending, pieces)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("wanted", [1, 7])
@pytest.mark.parametrize("arranged", ["shuffled", "ascending"])
@pytest.mark.usefixtures("way")
def test_pieces_are_passed_by_and_the_answer_stays(rungs, descending, wanted, arranged):
    values, places = rungs
    if arranged == "ascending":
        rows = np.argsort(places, kind="stable")
        values, places = values.take(pa.array(rows)), places[rows]
    sign = -1 if descending else 1
    expected = sorted(range(len(values)), key=lambda row: (sign * places[row], row))
    key = in_pieces(values, descending, [])
    found = order_rows([key], len(values), Window(limit=wanted))
    assert found.tolist() == expected[:wanted]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.usefixtures("way")
def test_a_piece_of_equal_values_does_not_stand_for_those_that_were_passed_by(descending):
    best, worst = (9, 1) if descending else (1, 9)
    values = pa.array([worst] * 5 + [best] * 5 + [worst] * 5)
    names = Key.of(pa.array(list(range(15))), descending=False)
    found = order_rows([in_pieces(values, descending, []), names], 15, Window(limit=3))
    assert found.tolist() == [5, 6, 7]


@pytest.mark.usefixtures("way")
def test_where_a_key_is_equal_everywhere_the_next_one_decides():
    keys = [
        Key.of(pa.array([4.0] * 12), descending=True),
        Key.of(pa.array(list(range(12, 0, -1))), descending=False),
    ]
    assert order_rows(keys, 12, Window(limit=3)).tolist() == [11, 10, 9]


@pytest.mark.parametrize(
    ("values", "descending", "wanted", "looked_at"),
    [
        (range(100), False, 3, [0]),
        (range(100), True, 3, [19]),
        (range(100), True, 7, [18, 19]),
        ([0] * 5 + [1] * 95, False, 3, [0]),
        ([0] * 5 + [None] * 5 + [1] * 90, False, 3, [1]),
        ([0.0] * 5 + [math.nan] * 5 + [1.0] * 90, True, 3, [1]),
        ([7] * 100, True, 3, list(range(20))),
    ],
)  # fmt: skip
def test_pieces_that_hold_none_of_the_first_are_not_looked_at(
    values, descending, wanted, looked_at, monkeypatch
):
    monkeypatch.setattr(order, "TOP_ROWS_MIN", 1)
    asked = []
    key = in_pieces(pa.array(values), descending, asked)
    order_rows([key], 100, Window(limit=wanted))
    assert asked == looked_at


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.usefixtures("way")
def test_all_keys_decide_in_every_way(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 400))
    names = rng.permutation(list(LADDERS))[: int(rng.integers(1, 4))]
    keys, weights = [], []
    for name in names:
        kind, ladder = LADDERS[name]
        rung = rng.integers(0, len(ladder), count)
        if rng.random() < 0.3:
            rung[:] = rung[0]  # all equal
        values = pa.array([ladder[at][int(rng.integers(len(ladder[at])))] for at in rung], kind)
        keys.append(Key.of(values, descending=bool(rng.random() < 0.5)))
        weights.append(-rung if keys[-1].descending else rung)
    expected = sorted(range(count), key=lambda row: (*(weight[row] for weight in weights), row))
    for limit in (0, 1, 5, count // 3, None):
        for offset in (0, 3):
            window = Window(offset=offset, limit=limit)
            end = None if limit is None else offset + limit
            assert order_rows(keys, count, window).tolist() == expected[offset:end]


def test_a_selection_asks_later_keys_for_the_rows_at_the_edge_only():
    numbers, letters = pa.array(np.arange(20_000) // 100), pa.array(["x"] * 20_000)
    asked = []

    def some(rows):
        asked.append(len(rows))
        return letters.take(pa.array(rows))

    def refused():
        raise AssertionError("the whole second key is not needed")

    keys = [Key.of(numbers, descending=False), Key(refused, some, descending=False)]
    assert order_rows(keys, 20_000, Window(limit=150)).tolist() == list(range(150))
    assert asked == [100, 150]


def test_text_that_grows_towards_the_end_is_selected_by_a_bound(monkeypatch):
    values = pa.array([f"{number:06}" for number in range(50_000)])
    seen = []
    select = order._divided_texts
    monkeypatch.setattr(
        order,
        "_divided_texts",
        lambda texts, **how: seen.append(len(texts)) or select(texts, **how),
    )
    found = order_rows([Key.of(values, descending=True)], len(values), Window(limit=3))
    assert found.tolist() == [49_999, 49_998, 49_997]
    assert seen[0] < 1000


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

    key = Key.of(values, descending=descending)
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
        Key.of(numbers, descending=True),
        Key.of(letters, descending=False),
    ]
    found = [rows[at] for at in order_rows(keys, len(rows), Window())]
    assert found == sorted(rows, key=lambda row: (row[0] is None, -(row[0] or 0), row[1]))
