"""Columns and growing arrays say the same as lists."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.read.memory.arrays import Column, Growable


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 99)), max_size=30))
def test_a_patched_column_reads_like_a_list_that_was_changed(changes):
    column, model = Column.of(pa.array(list(range(8)))), list(range(8))
    for at, value in changes:
        at = min(at, len(model))
        model[at : at + 1] = [value]
        column = column.patched(np.array([at]), pa.array([value]), len(model))
        assert column.whole().to_pylist() == model
    back = np.arange(len(model) - 1, -1, -1)
    assert column.take(back).to_pylist() == model[::-1]
    assert column.take(np.array([-1, 0])).to_pylist() == [None, model[0]]


def test_two_children_of_one_array_do_not_see_each_other():
    parent = Growable(np.arange(3)).extended([7])
    left, right = parent.extended([1]), parent.extended([2])
    assert left.view.tolist() == [0, 1, 2, 7, 1]
    assert right.view.tolist() == [0, 1, 2, 7, 2]
    assert parent.view.tolist() == [0, 1, 2, 7]
