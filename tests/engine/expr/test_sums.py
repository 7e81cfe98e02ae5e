"""Sums by group are those of exact arithmetic, rounded once."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest

from omnigraph.engine.expr import sums
from omnigraph.engine.expr.sums import (
    fewer,
    float_part,
    float_total,
    integer_part,
    integer_sums,
    rounded,
)

AWKWARD = [0.0, -0.0, 5e-324, -5e-324, 2.2e-308, 1e-200, 0.1, -0.1, 1 / 3, 1.0, 2.0**53, 1e16]
AWKWARD += [1e300, -1e300, 1e308, -1e308, 1.7976931348623157e308, -1.7976931348623157e308]
SPECIAL = [math.inf, -math.inf, math.nan]


def float_sums(parts, groups):
    return rounded(float_total(parts, groups), groups)


def expected(values):
    odd = [value for value in values if not math.isfinite(value)]
    if odd:
        return sum(odd)
    total = sum(map(Fraction, values))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def same(found, wanted):
    return found == wanted or (math.isnan(found) and math.isnan(wanted))


def draw(rng):
    kind = rng.randrange(5)
    if kind == 0:
        return rng.choice(AWKWARD)
    if kind == 1:
        return rng.choice(SPECIAL) if rng.random() < 0.02 else rng.choice(AWKWARD)
    if kind == 2:
        return math.ldexp(rng.uniform(-1, 1), rng.randrange(-1080, 1020))
    return rng.uniform(-1e3, 1e3) if kind == 3 else float(rng.randrange(-100, 100))


@pytest.mark.parametrize("value", [-215.12345678901235, -8.166676624630198e25, 215.12345678901235])
def test_the_sum_of_one_number_is_this_number(value):
    assert float_sums([float_part(None, np.array([value]), 1)], 1).tolist() == [value]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("added_max", [1, 512])
def test_float_sums_are_the_exact_sums_rounded_once(seed, added_max, monkeypatch):
    monkeypatch.setattr(sums, "_ADDED_MAX", added_max)
    rng = random.Random(seed)
    monkeypatch.setattr(sums, "BLOCK_ROWS", rng.choice([1, 7, 1 << 15]))
    values = [draw(rng) for _ in range(rng.randrange(200))]
    codes = [rng.randrange(4) for _ in values]
    wanted = [expected([v for v, c in zip(values, codes, strict=True) if c == g]) for g in range(5)]
    for piece in (1, 3, 50, 1000):
        parts = [
            float_part(
                np.array(codes[at : at + piece], dtype=np.int8),
                np.array(values[at : at + piece], dtype=np.float64),
                5,
            )
            for at in range(0, len(values), piece)
        ]
        rng.shuffle(parts)
        found = float_sums(parts, 5).tolist()
        assert all(map(same, found, wanted)), (found, wanted)
    (whole,) = float_sums([float_part(None, np.array(values, dtype=np.float64), 1)], 1).tolist()
    assert same(whole, expected(values))


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([1e308, -1e308, 1.0], 1.0),
        ([1e308, 1e308, -1e308], 1e308),
        ([1e308, 1e308], math.inf),
        ([2.0**53, 1.0, 1.0], 2.0**53 + 2),
        ([2.0**53, 1.0, 2.0**-60], 2.0**53 + 2),  # a tie but for the last
        ([5e-324] * 3, 1.5e-323),
        ([-0.0], 0.0),
        ([], 0.0),
    ],
)
def test_the_sum_of_awkward_floats(values, total):
    for codes in (None, np.zeros(len(values), dtype=np.int8)):
        part = float_part(codes, np.array(values, dtype=np.float64), 1)
        (found,) = float_sums([part], 1).tolist()
        assert found == total
        assert math.copysign(1, found) == math.copysign(1, total)


@pytest.mark.parametrize("seed", range(60))
def test_fewer_values_have_the_same_exact_sums(seed):
    rng = random.Random(seed)
    rows, groups = rng.choice([0, 1, 5, 400]), rng.choice([1, 2, 40])
    values = np.array([draw(rng) for _ in range(rows)], dtype=np.float64)
    codes = np.array([rng.randrange(groups) for _ in range(rows)], dtype=np.int64)
    told, kept = fewer(codes, values, groups)
    found = float_sums([float_part(codes[kept], told[kept], groups)], groups).tolist()
    wanted = float_sums([float_part(codes, values, groups)], groups).tolist()
    assert all(map(same, found, wanted)), (found, wanted)
    assert not told[~kept].any()


@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e300])
def test_many_usual_floats_become_a_few(scale):
    values = np.random.default_rng(1).random(10_000) * scale
    _, kept = fewer(np.arange(10_000) % 3, values, 3)
    assert kept.sum() <= 12


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint64])
@pytest.mark.parametrize("seed", range(5))
def test_whole_sums_do_not_overflow(kind, seed):
    rng = random.Random(seed)
    ends = np.iinfo(kind)
    values = [rng.choice([ends.min, ends.max, 0, 1, ends.max - 1]) for _ in range(100)]
    codes = np.array([rng.randrange(3) for _ in values], dtype=np.int8)
    parts = [
        integer_part(codes[at : at + 30], np.array(values[at : at + 30], dtype=kind), 3)
        for at in range(0, 100, 30)
    ]
    wanted = [sum(v for v, c in zip(values, codes, strict=True) if c == g) for g in range(3)]
    assert integer_sums(parts, 3).tolist() == wanted
    assert integer_sums([integer_part(None, np.array(values, dtype=kind), 1)], 1)[0] == sum(values)
