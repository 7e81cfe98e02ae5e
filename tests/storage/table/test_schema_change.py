"""Columns that are renamed, dropped and added in one staged step."""

from __future__ import annotations

import pyarrow as pa
import pytest
from table_bench import BY_ID, BY_TEXT, PLACE, SMALL, Bench, people

from omnigraph.storage.table.schema_change import AddedColumn, ColumnChanges


@pytest.fixture
def bench(local_root):
    return Bench(local_root)


def column(name, kind, value=None):
    return AddedColumn(field=pa.field(name, kind), value=value)


def test_columns_are_renamed_dropped_and_added_in_one_write(bench):
    bench.append("a", "b")
    bench.index(BY_ID, BY_TEXT)
    before = bench.version
    bench.land(
        bench.now().stage_schema(
            ColumnChanges(
                renamed={"bio": "story"},
                dropped=["age"],
                added=[column("city", pa.string()), column("rank", pa.int32(), "CAST(7 AS INT)")],
            )
        )
    )
    assert bench.version == before + 2  # the columns, then the files that fill them
    assert bench.rows() == [
        {"id": "a", "story": "story of a", "rank": 7, "city": None},
        {"id": "b", "story": "story of b", "rank": 7, "city": None},
    ]
    assert [one.name for one in bench.now().indexes()] == ["bio_idx", "id_idx"]
    assert bench.now().schema.field("id").metadata == SMALL.field("id").metadata


def test_a_new_column_never_shows_the_values_of_a_dropped_one(bench):
    bench.append("a")
    for name in ("one", "two", "three"):
        changes = ColumnChanges(added=[column(name, pa.string(), f"'{name}'")])
        bench.land(bench.now().stage_schema(changes))
        bench.land(bench.now().stage_schema(ColumnChanges(dropped=[name])))
    bench.land(bench.now().stage_schema(ColumnChanges(added=[column("last", pa.string())])))
    assert bench.rows() == [{"id": "a", "age": 1, "bio": "story of a", "last": None}]


def test_a_list_after_a_dropped_column_stands_in_nobodys_way(bench):
    """Numbers have a gap then, and the list's is no longer its place."""
    bench.append("a")
    for changes in (
        ColumnChanges(added=[column("many", pa.list_(pa.string()), "make_array(bio)")]),
        ColumnChanges(dropped=["age"], added=[column("rank", pa.int64(), "1")]),
        ColumnChanges(added=[column("last", pa.string())]),
    ):
        bench.land(bench.now().stage_schema(changes))
    assert bench.rows() == [
        {"id": "a", "bio": "story of a", "many": ["story of a"], "rank": 1, "last": None}
    ]


def test_older_versions_keep_their_columns(bench):
    bench.append("a")
    since = bench.version
    bench.land(bench.now().stage_schema(ColumnChanges(dropped=["bio"])))
    assert bench.now().schema.names == ["id", "age"]
    assert bench.now(since).read()["bio"].to_pylist() == ["story of a"]


def test_rows_can_be_written_after_columns_changed(bench):
    bench.append("a")
    bench.land(bench.now().stage_schema(ColumnChanges(added=[column("city", pa.string())])))
    rows = people("a", "b").append_column("city", pa.array(["Ulm", "Rom"]))
    bench.land(bench.now().stage_change(rows))
    assert [row["city"] for row in bench.rows()] == ["Ulm", "Rom"]


def test_columns_change_on_a_fork_alone(bench):
    bench.append("a")
    base = bench.version
    bench.tables.fork(PLACE, source_branch=None, version=base, branch_id="01FORK")
    bench.branch = "01FORK"
    bench.append("b")
    changes = ColumnChanges(renamed={"bio": "story"}, added=[column("n", pa.int64(), "age + 1")])
    bench.land(bench.now().stage_schema(changes))
    assert [(row["id"], row["story"], row["n"]) for row in bench.rows()] == [
        ("a", "story of a", 2),
        ("b", "story of b", 2),
    ]
    bench.branch = None
    assert bench.now(base).schema.names == ["id", "age", "bio"]


def test_an_empty_table_takes_new_columns(bench):
    changes = ColumnChanges(added=[column("n", pa.int64(), "1"), column("m", pa.string())])
    bench.land(bench.now().stage_schema(changes))
    assert set(bench.now().schema.names) == {"id", "age", "bio", "n", "m"}
    rows = people("a").append_column("n", pa.array([5])).append_column("m", pa.array(["x"]))
    bench.land(bench.now().stage_append(rows))
    assert bench.rows()[0]["n"] == 5


def test_no_column_changes_are_no_write(bench):
    assert bench.now().stage_schema(ColumnChanges()) is None
