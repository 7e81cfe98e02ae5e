"""Row ids are read from a version file as Lance itself reads them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance.fragment import RowIdSequence

from omnigraph.storage.lance import row_ids

ids = st.one_of(
    st.lists(st.integers(0, 60), unique=True, max_size=40),
    st.lists(st.integers(0, 1 << 40), unique=True, max_size=20),
    st.lists(st.integers(0, 70_000), unique=True, max_size=30).map(sorted),
    st.builds(
        lambda first, count, holes: sorted({*range(first, first + count)} - set(holes)),
        st.integers(0, 1 << 33),
        st.integers(1, 300),
        st.lists(st.integers(0, 300), max_size=10),
    ),
    st.builds(lambda step: list(range(5, 900, step)), st.integers(1, 9)),
)


def told(note):
    """The row ids of a note, one by one."""
    first, rows = row_ids.decode(note)
    return [int(a) + n for a, count in zip(first, rows, strict=True) for n in range(int(count))]


@given(ids)
def test_the_runs_are_the_row_ids_that_lance_was_given(given_ids):
    meta = json.loads(RowIdSequence(given_ids).to_inline_metadata().json())
    note = bytes(meta["Inline"] if "Inline" in meta else meta["inline"])
    if given_ids:
        assert told(note) == given_ids
        first, rows = row_ids.decode(note)
        # A run is as long as it can be within a segment: no two lists of Lance's touch.
        assert len(first) <= 1 + np.count_nonzero(np.diff(given_ids) != 1)
        assert rows.min() > 0


@pytest.mark.parametrize("note", [b"\x0a", b"\x12\x00", b"\xff\xff", b"\x0a\x02\x08\x01"])
def test_what_is_not_understood_is_not_guessed(note):
    assert row_ids.decode(note) is None
