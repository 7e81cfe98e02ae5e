"""Stamps in few runs: what changed is never missed, and little else is taken for changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_bench import Bench, compacted

from omnigraph.storage.lance.stamps import FINENESS, Run, coarser, decode, encode, shortened

runs = st.lists(
    st.builds(Run, rows=st.integers(1, 10**6) | st.integers(1, 3), version=st.integers(1, 400)),
    max_size=60,
)


def by_row(found):
    return [run.version for run in found for _ in range(run.rows)]


@given(st.lists(st.builds(Run, rows=st.integers(1, 5), version=st.integers(1, 30)), max_size=40))
def test_no_stamp_is_lowered_and_no_row_lost(found):
    before, after = by_row(found), by_row(coarser(found))
    assert len(before) == len(after)
    assert all(old <= new <= max(before) for old, new in zip(before, after, strict=True))


@given(runs, st.integers(0, 400))
def test_a_difference_reads_at_most_a_quarter_more(found, since):
    def changed(each):
        return sum(run.rows for run in each if run.version > since)

    assert changed(found) <= changed(coarser(found)) <= changed(found) * (1 + 1 / FINENESS)


@given(runs)
def test_lances_bytes_are_read_and_written(found):
    assert decode(encode(found)) == found


@pytest.mark.parametrize("commits", [100, 1_000, 10_000, 100_000])
def test_runs_grow_like_the_digits_of_a_number(commits):
    loaded = Run(rows=10**6, version=1)
    found = coarser([loaded, *(Run(rows=1, version=2 + one) for one in range(commits))])
    assert found[0] == loaded  # a bulk load keeps its own stamp
    assert len(found) <= 20 + 4 * commits.bit_length()


@pytest.mark.parametrize(
    "note",
    [b"\x0a", b"\x0a\x02\x08\x01", b"\x12\x00", b"\xff\xff", encode([Run(rows=1, version=1)])[:-1]],
)
def test_what_is_not_understood_stays_as_it_is(note):
    assert decode(note) is None
    assert shortened(note) == note


def test_the_version_file_of_a_folded_table_stays_small(local_root):
    bench = Bench(local_root)

    def size():
        newest = min(Path(bench.folder, "_versions").glob("*.manifest"))
        return os.path.getsize(newest)

    sizes = []
    for _ in range(2):
        for number in range(100):
            bench.append(f"{bench.version}-{number}")
        bench.land(compacted(bench.now()))
        sizes.append(size())
    assert sizes[1] - sizes[0] < 500  # a run for each commit would be a thousand bytes more
    # Lance itself reads what we wrote.
    read = bench.now().read(columns=["_row_last_updated_at_version"])
    stamps = read["_row_last_updated_at_version"].to_pylist()
    assert stamps == sorted(stamps)
    assert len(set(stamps)) < 50
