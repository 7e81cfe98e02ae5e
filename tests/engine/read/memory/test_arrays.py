"""Columns and growing arrays say the same as lists."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.read.memory import arrays
from omnigraph.engine.read.memory.arrays import Bounds, Column, Growable


@pytest.fixture(autouse=True, scope="module")
def small_chunks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "CHUNK_ROWS", 4)
        patch.setattr(arrays, "PATCH_ROWS_MAX", 5)
        patch.setattr(arrays, "PATCH_RUNS_MAX", 99)
        yield


def chunks(column):
    return [column.chunk(number).to_pylist() for number in range(column.chunk_count)]


CHANGES = st.lists(
    st.tuples(st.integers(0, 12), st.one_of(st.none(), st.sampled_from([math.nan, -0.0, 1.5, 7.0])))
)


@pytest.mark.parametrize("runs", [0, 99])
@given(changes=CHANGES)
def test_a_patched_column_reads_like_a_list_that_was_changed(runs, changes):
    arrays.PATCH_RUNS_MAX = runs
    model = [float(number) for number in range(8)]
    column = Column.of(pa.array(model))
    for at, value in changes:
        at = min(at, len(model))
        model[at : at + 1] = [value]
        values = pa.array([value], pa.float64())
        earlier, before = column, chunks(column)
        column = column.patched(np.array([at]), values, len(model))
        parts = chunks(column)
        assert repr([*itertools.chain(*parts)]) == repr(model)
        assert repr(chunks(earlier)) == repr(before)
        if at % 2:  # now and then somebody needs it in one array
            assert repr(column.whole().to_pylist()) == repr(model)
            assert column.whole() is column.whole()
            assert repr(chunks(column)) == repr(parts)
        for number, part in enumerate(parts):
            numbers = [value for value in part if value is not None and not math.isnan(value)]
            told = column.bounds(number)
            assert told.least == min(numbers, default=None)
            assert told.most == max(numbers, default=None)
            assert told.nulls == part.count(None)
            assert told.has_nan == any(value is not None and math.isnan(value) for value in part)
        assert repr([column.value(n) for n in range(len(model))]) == repr(model)
    back = np.arange(len(model) - 1, -1, -1)
    assert repr(column.take(back).to_pylist()) == repr(model[::-1])
    assert repr(column.take(np.array([-1, 0])).to_pylist()) == repr([None, model[0]])


def test_a_chunk_without_changes_is_a_slice():
    base = pa.array(range(10))
    column = Column.of(base).patched(np.array([5, 10]), pa.array([50, 100]), 11)
    assert chunks(column) == [[0, 1, 2, 3], [4, 50, 6, 7], [8, 9, 100]]
    assert column.chunk(0).buffers()[1].address == base.buffers()[1].address
    assert column.chunk(1) is column.chunk(1)
    later = column.patched(np.array([0]), pa.array([9]), 11)
    assert later.chunk(1) is column.chunk(1)
    assert later.bounds(0).least == 1
    assert column.bounds(0).least == 0


@pytest.mark.parametrize(
    ("values", "least", "most"),
    [
        (pa.array(["b", "a", None]), "a", "b"),
        (pa.array([2**64 - 1, 0], pa.uint64()), 0, 2**64 - 1),
        (pa.array([True, None]), True, True),
        (pa.array([3, 1], pa.date32()), 1, 3),
        (pa.array([-(2**62)], pa.timestamp("us", tz="UTC")), -(2**62), -(2**62)),
        (pa.array([None], pa.int64()), None, None),
        (pa.array([math.nan]), None, None),
    ],
)
def test_bounds_of_every_ordered_type(values, least, most):
    told = Bounds.of(values)
    assert (told.least, told.most) == (least, most)


def test_lists_have_no_bounds():
    assert Bounds.of(pa.array([[1]])) is None
    assert Bounds.of(pa.array([[1.0]], pa.list_(pa.float32(), 1))) is None


def test_a_column_counts_the_buffers_behind_its_slices_once():
    values = pa.array(range(1000))
    assert Column.of(values.slice(10, 5)).nbytes == 8000
    column = Column.of(values)
    later = column.patched(np.array([0]), pa.array([1]), 1000)
    shared = column.buffers().keys() & later.buffers().keys()
    assert values.buffers()[1].address in shared


def test_two_children_of_one_array_do_not_see_each_other():
    parent = Growable(np.arange(3)).extended([7])
    left, right = parent.extended([1]), parent.extended([2])
    assert left.view.tolist() == [0, 1, 2, 7, 1]
    assert right.view.tolist() == [0, 1, 2, 7, 2]
    assert parent.view.tolist() == [0, 1, 2, 7]


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", None, "", "éé"]),
        pa.array([1, None, -3, 4], pa.int32()),
        pa.array([True, None, False, True]),
        pa.array([[1.0, 2.0], None, [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32(), 2)),
        pa.array([["x"], [], None, [None, "y"]], pa.list_(pa.string())),
        pa.array([0, None, 5, 7], pa.timestamp("ms", "UTC")),
        pa.array([b"x", None, b"", b"yy"], pa.large_binary()),
    ],
    ids=lambda values: str(values.type),
)
@given(at=st.lists(st.integers(-1, 3), max_size=6), first=st.integers(0, 2))
def test_few_values_are_what_many_would_be(values, at, first):
    column = Column.of(values.slice(first))
    places = np.asarray([min(place, len(values) - first - 1) for place in at], dtype=np.int64)
    listed = values.to_pylist()[first:]
    found = column.take(places)
    assert found.type == values.type
    assert found.to_pylist() == [None if place < 0 else listed[place] for place in places]
