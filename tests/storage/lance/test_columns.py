"""DateTime columns of tables that the reference system made."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.model.graph import TableEntry
from omnigraph.model.ports import World
from omnigraph.storage.lance.columns import (
    as_stored,
    standard,
    standard_schema,
    stored_condition,
)
from omnigraph.storage.objects.root import Root
from omnigraph.storage.table.table import Tables

ASKED = "seen > timestamp '2024-01-01 00:00:00.122'"
MOMENT = pa.timestamp("ms", tz="UTC")
# Milliseconds that are no whole days, on both sides of the epoch.
NUMBERS = [0, 1_704_067_200_123, None, -5, 253_402_300_799_999]


def theirs():
    days = pa.array(NUMBERS, pa.int64()).view(pa.date64())
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2, 3, 4, 5], pa.int32()), days)
    return pa.table({"id": list("abcde"), "seen": days, "all": lists, "n": range(5)})


def numbers(table):
    return table["seen"].cast(pa.int64()).to_pylist()


def test_reading_gives_our_type_and_keeps_every_millisecond():
    ours = standard(theirs())
    assert ours.schema.field("seen").type == MOMENT
    assert ours.schema.field("all").type.value_type == MOMENT
    assert numbers(ours) == NUMBERS
    assert ours["all"].cast(pa.list_(pa.int64())).to_pylist()[0] == NUMBERS[:2]
    assert standard(theirs().to_reader()).read_all() == ours


def test_writing_gives_back_the_very_same():
    ours = standard(theirs())
    assert as_stored(ours, theirs().schema) == theirs()
    assert as_stored(ours.to_reader(), theirs().schema).read_all() == theirs()
    some = ["seen", "id"]
    assert as_stored(ours.select(some), theirs().schema) == theirs().select(some)


def test_tables_of_ours_are_not_touched():
    ours = standard(theirs())
    given = ours.schema
    assert standard_schema(given) is given
    assert standard(ours) is ours
    assert as_stored(ours, given) is ours
    assert stored_condition(ASKED, given) == ASKED


def test_only_moments_are_asked_for_in_another_way():
    text = "id = 'timestamp ''2024-01-01 00:00:00'''"
    told = stored_condition(f"{ASKED} AND {text}", theirs().schema)
    assert told == f"seen > arrow_cast(1704067200122, 'Date64') AND {text}"


def test_a_table_of_the_reference_takes_rows_and_gives_them_back(tmp_path):
    tables = Tables(Root.parse(str(tmp_path), {}), World(durability="process"))
    version = tables.create("nodes/0123456789abcdef", theirs().schema)
    entry = TableEntry(table_key="node:T", location="nodes/0123456789abcdef", version=version)
    written = tables.apply(tables.open(entry).stage_append(standard(theirs())))
    table = tables.open(
        TableEntry(table_key="node:T", location=entry.location, version=written.version)
    )
    assert table.schema.field("seen").type == MOMENT
    assert table.read() == standard(theirs())
    assert table.read(where=ASKED, columns=["id"])["id"].to_pylist() == ["b", "e"]
    assert table.count(ASKED) == 2
