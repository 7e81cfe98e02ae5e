"""Codes say which values are equal, also after they were moved."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.read.memory import arrays, codes
from omnigraph.engine.read.memory.arrays import Column
from omnigraph.engine.read.memory.codes import Coded

KINDS = {
    "text": (pa.string(), st.sampled_from([None, "", "a", "aa", "b", "é"])),
    "floats": (pa.float64(), st.sampled_from([None, 0.0, -0.0, math.nan, -math.nan, 1.5])),
    "numbers": (pa.int64(), st.one_of(st.none(), st.integers(0, 300))),
    "booleans": (pa.bool_(), st.sampled_from([None, True, False])),
    "lists": (pa.list_(pa.int64()), st.sampled_from([None, [], [1], [1, 2]])),
}


@pytest.fixture(autouse=True, scope="module")
def small_chunks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "CHUNK_ROWS", 4)
        patch.setattr(codes, "CHUNK_ROWS", 4)
        yield


def key(value):
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value + 0.0
    return str(value)


def assert_coded(coded, values, alive):
    numbers = coded.codes.whole().to_pylist()
    assert len(numbers) == len(values)
    assert coded.codes.whole().null_count == 0
    first = {}
    for at, (value, number, living) in enumerate(zip(values, numbers, alive, strict=True)):
        if not living:
            continue
        assert (number == -1) == (value is None)
        if value is not None:
            assert 0 <= number < coded.count
            first.setdefault(number, (at, key(value)))
            assert first[number][1] == key(value)
    assert len({said for _, said in first.values()}) == len(first)
    expected = [first.get(number, (-1,))[0] for number in range(coded.count)]
    assert coded.first.tolist() == expected
    living = [number for number, there in zip(numbers, alive, strict=True) if there]
    counts = [living.count(number) for number in [*range(coded.count), -1]]
    assert coded.sizes is None or coded.sizes.tolist() == counts


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_moved_codes_are_right_for_every_living_row(kind, data):
    dtype, value = KINDS[kind]
    values = data.draw(st.lists(value, max_size=12))
    alive = [data.draw(st.booleans()) for _ in values]
    column = Column.of(pa.array(values, dtype))
    coded = Coded.of(column, np.array(alive, dtype=bool))
    assert_coded(coded, values, alive)
    for _ in range(data.draw(st.integers(0, 4))):
        changed = data.draw(st.dictionaries(st.integers(0, max(0, len(values) - 1)), value))
        changed = {at: told for at, told in changed.items() if at < len(values) and alive[at]}
        added = data.draw(st.lists(value, max_size=5))
        changed |= dict(enumerate(added, start=len(values)))
        values += added
        alive += [True] * len(added)
        for at, told in changed.items():
            values[at] = told
        gone = data.draw(st.sets(st.integers(0, max(0, len(values) - 1)), max_size=2))
        gone &= {at for at, living in enumerate(alive) if living}
        for at in gone:
            alive[at] = False
        at = np.array(sorted(changed), dtype=np.int64)
        column = column.patched(at, pa.array([values[n] for n in at], dtype), len(values))
        every = np.array(sorted({*changed, *gone}), dtype=np.int64)
        mask = None if all(alive) else np.array(alive, dtype=bool)
        coded = coded.moved(column, every, mask) or Coded.of(column, mask)
        assert_coded(coded, values, alive)


@pytest.mark.parametrize("kept", [2, 3])
def test_how_many_rows_have_a_code_is_kept_for_few_codes_only(kept, monkeypatch):
    monkeypatch.setattr(codes, "SIZED_CODES_MAX", kept)
    coded = Coded.of(Column.of(pa.array(["a", "b", "a", None])), None)
    assert coded.sizes.tolist() == [2, 1, 1]
    column = coded.values.patched(np.array([1, 3]), pa.array(["c", "a"]), 4)
    moved = coded.moved(column, np.array([1, 3]), None)
    assert (moved.sizes is None) == (kept == 2)
    assert_coded(moved, ["a", "c", "a", "a"], [True] * 4)


def test_codes_are_as_narrow_as_their_number_allows():
    assert Coded.of(Column.of(pa.array(range(128))), None).codes.base.type == pa.int8()
    coded = Coded.of(Column.of(pa.array(range(129))), None)
    assert coded.codes.base.type == pa.int16()
    column = coded.values.patched(np.array([0]), pa.array([5]), 129)
    moved = coded.moved(column, np.array([0]), None)
    assert moved.first[0] == -1
    assert moved.codes.take(np.array([0, 5])).to_pylist() == [5, 5]


def test_new_values_widen_the_codes():
    coded = Coded.of(Column.of(pa.array(range(128))), None)
    column = coded.values.patched(np.array([128]), pa.array([1000]), 129)
    moved = coded.moved(column, np.array([128]), None)
    assert moved.codes.whole().to_pylist() == list(range(129))
    assert moved.codes.base.type == pa.int16()
