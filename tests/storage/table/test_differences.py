"""Runs of rows, as version files tell them and as a scan finds them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from table_bench import PLACE, Bench, compacted, people

from omnigraph.storage.lance import pylance
from omnigraph.storage.table import differences
from omnigraph.storage.table.differences import Places
from omnigraph.storage.table.schema_change import AddedColumn, ColumnChanges


@pytest.fixture
def bench(local_root):
    return Bench(local_root)


def rows_of(table, runs):
    """Every row as (row id, place, stamp)."""
    return sorted(
        (int(a) + n, int(b) + n, int(stamp))
        for a, b, rows, stamp in zip(runs.ids, runs.addresses, runs.rows, runs.stamps, strict=True)
        for n in range(int(rows))
    )


def both_ways(table, monkeypatch):
    """All rows of a table as the notes tell them; the scan must find the same."""
    places = Places(fragments=list(table.fragment_ids), addresses=[])
    told = differences.runs_at(table._pinned, places)
    with monkeypatch.context() as patch:
        patch.setattr(pylance, "row_notes", lambda *_: {})
        scanned = differences.runs_at(table._pinned, places)
    assert rows_of(table, told) == rows_of(table, scanned)
    return told


def lived(bench):
    """A table that was changed in every way, and forked."""
    bench.append(*(f"r{n:03}" for n in range(300)))
    yield bench.now()
    bench.land(bench.now().stage_change(people("r007", "r001", "new", age=2)))
    bench.land(bench.now().stage_delete_ids([f"r{n:03}" for n in range(40, 300, 3)]))
    yield bench.now()
    bench.land(bench.now().stage_change(people(*(f"r{n:03}" for n in range(0, 40, 2)), age=3)))
    bench.land(compacted(bench.now()))
    yield bench.now()
    bench.land(bench.now().stage_delete_ids(["r004", "r041"]))
    bench.tables.fork(PLACE, source_branch=None, version=bench.version, branch_id="01BRANCH")
    bench.branch = "01BRANCH"
    bench.land(bench.now().stage_change(people("r005", "mine", age=4)))
    yield bench.now()  # one fragment has its deletions in the folder that it was forked from
    bench.land(compacted(bench.now()))
    yield bench.now()


def test_version_files_tell_the_rows_that_a_scan_finds(bench, monkeypatch):
    for table in lived(bench):
        both_ways(table, monkeypatch)


def test_loaded_rows_are_one_run_however_many(bench, monkeypatch):
    bench.append(*(f"r{n:04}" for n in range(2000)))
    bench.append(*(f"s{n:04}" for n in range(2000)))
    bench.land(compacted(bench.now()))
    assert len(both_ways(bench.now(), monkeypatch).ids) <= 2


FILLED = ColumnChanges(added=[AddedColumn(field=pa.field("rank", pa.int64()), value="age + 1")])


@pytest.mark.parametrize("change", ["compaction", "columns"])
def test_where_no_row_changed_none_is_read(bench, change):
    bench.append(*(f"r{n:04}" for n in range(5000)))
    bench.append("one", "two")
    before = bench.now()
    bench.land(compacted(before) if change == "compaction" else before.stage_schema(FILLED))
    bench.land(
        bench.now().stage_change(
            people("r0007", age=9)
            if change == "compaction"
            else bench.now().read(columns=None, where="id = 'r0007'")
        )
    )
    meter = bench.tables.meter
    seen = meter.total.rows
    mine, theirs = bench.now().differing_rows(
        before, shared=before.version, columns=["id"], older_columns=["id"]
    )
    assert (mine["id"].to_pylist(), theirs["id"].to_pylist()) == (["r0007"], ["r0007"])
    assert meter.total.rows - seen < 10


@pytest.mark.parametrize("value", ["7", None])
def test_columns_that_touch_rows_make_each_a_difference(bench, value):
    bench.append("a", "b")
    bench.append("c")
    before = bench.now()
    bench.land(before.stage_delete_ids(["b"]))
    bench.land(
        bench.now().stage_schema(
            ColumnChanges(
                dropped=["age"],
                added=[AddedColumn(field=pa.field("age", pa.int32()), value=value)],
                touches_rows=True,
            )
        )
    )
    mine, theirs = bench.now().differing_rows(
        before, shared=before.version, columns=["id", "age"], older_columns=["id", "age"]
    )
    assert sorted(mine["id"].to_pylist()) == ["a", "c"]
    assert sorted(theirs["id"].to_pylist()) == ["a", "b", "c"]
    assert set(mine["age"].to_pylist()) == {None if value is None else 7}
