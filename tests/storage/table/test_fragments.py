"""Rows by their number in a fragment: the same in every version that has the data file."""

from __future__ import annotations

import numpy as np
import pytest
from table_bench import Bench, people, upkept


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def bench(request):
    return Bench(request.getfixturevalue(f"{request.param}_root"))


def by_row(table):
    """What every living row holds, told by way of fragments, and told by a scan."""
    told = {}
    for number in table.column_files("bio"):
        rows, values = table.fragment_rows(number), table.stored_values(number, "bio")
        assert len(rows.row_ids) == len(values)
        for at in range(len(values)):
            if rows.alive is None or rows.alive[at]:
                told[int(rows.row_ids[at])] = values[at].as_py()
    seen = table.read(columns=["bio"], with_row_id=True)
    return told, dict(zip(seen["_rowid"].to_pylist(), seen["bio"].to_pylist(), strict=True))


def test_fragments_tell_what_a_scan_tells(bench):
    bench.append(*"abcd")
    bench.append(*"ef")
    told, seen = by_row(bench.now())
    assert told == seen
    assert len(told) == 6
    bench.land(bench.now().stage_change(people("b", "z", age=2), delete_ids=["e"]))
    told, seen = by_row(bench.now())
    assert told == seen
    assert len(told) == 6
    bench.land(upkept(bench.now()).write)
    assert len(bench.now().column_files("bio")) == 1
    told, seen = by_row(bench.now())
    assert told == seen
    assert len(told) == 6


def test_the_values_of_deleted_rows_are_still_told(bench):
    bench.append(*"abcd")
    before = bench.now()
    bench.land(before.stage_delete_ids(["b"]))
    after = bench.now()
    assert before.column_files("bio") == after.column_files("bio")
    (number,) = after.column_files("bio")
    assert after.stored_values(number, "bio").equals(before.stored_values(number, "bio"))
    assert after.fragment_rows(number).alive.tolist() == [True, False, True, True]
    assert before.fragment_rows(number).alive is None


def test_a_column_that_has_no_file_is_left_out(bench):
    bench.append("a")
    numbers = bench.now().column_files("bio")
    assert np.array_equal([one.rows for one in numbers.values()], [1])
