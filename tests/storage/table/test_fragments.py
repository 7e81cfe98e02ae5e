"""Rows by their number in a fragment: the same in every version that has the data file."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from table_bench import Bench, people, upkept


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def bench(request):
    return Bench(request.getfixturevalue(f"{request.param}_root"))


def values_of(table, number, bytes_max=1 << 20):
    return pa.concat_arrays(table.stored_values(number, "bio", bytes_max=bytes_max))


def by_row(table):
    """What every living row holds, told by way of fragments, and told by a scan."""
    told = {}
    for number in table.column_files("bio"):
        rows, values = table.fragment_rows(number), values_of(table, number)
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
    assert values_of(after, number).equals(values_of(before, number))
    assert after.fragment_rows(number).alive.tolist() == [True, False, True, True]
    assert before.fragment_rows(number).alive is None


def test_a_column_that_has_no_file_is_left_out(bench):
    bench.append("a")
    numbers = bench.now().column_files("bio")
    assert np.array_equal([one.rows for one in numbers.values()], [1])


@pytest.mark.parametrize("bytes_max", [1, 40, 100, 1 << 20])
def test_values_come_in_arrays_of_so_many_bytes_or_one_row(bench, bytes_max):
    bench.append(*(f"p{n}" for n in range(9)))
    (number,) = bench.now().column_files("bio")
    some = list(bench.now().stored_values(number, "bio", bytes_max=bytes_max))
    assert all(len(one) == 1 or one.nbytes <= bytes_max for one in some)
    assert pa.concat_arrays(some).equals(values_of(bench.now(), number))


@pytest.mark.parametrize(
    ("there", "used"),
    [
        ([(0, 6)], [(0, 6)]),
        ([(0, 2), (2, 5), (5, 6)], [(0, 2), (2, 5), (5, 6)]),
        ([(0, 2), (0, 5), (2, 5), (5, 6)], [(0, 5), (5, 6)]),  # two versions cut elsewhere
        ([(0, 6), (0, 2)], [(0, 6)]),
        ([(0, 2), (5, 6)], []),
        ([(2, 6)], []),
        ([(0, 5)], []),
        ([(0, 5), (5, 9)], []),
        ([(0, 0), (0, 5)], []),
    ],
)
def test_files_count_where_they_tell_of_each_row_once(bench, there, used):
    bench.append(*"abcdef")
    (file,) = bench.now().column_files("bio").values()
    for rows in there:
        bench.now().put_derived(file, "k", rows, {}, None)
    found = bench.now().derived("bio", "k")
    assert [(one.first, one.last) for one in found.get(file.fragment, ())] == used
    missing = bench.now().underived("bio", "k", rows_min=1)
    assert missing == ([] if used else [file])
