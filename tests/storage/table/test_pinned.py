"""Lookups over many small fragments: the same answers as a full scan, at a cost that stays flat."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import NARROW_FRAGMENTS_MIN, NARROW_ROWS_MAX
from omnigraph.model.ports import World
from omnigraph.model.schema import NodeType, Property, PropertyType, Scalar
from omnigraph.storage.lance.columns import arrow_schema
from omnigraph.storage.objects.root import Root
from omnigraph.storage.table.table import Tables

SCHEMA = arrow_schema(
    NodeType(
        name="T",
        properties=(Property(name="n", type=PropertyType(scalar=Scalar.I32, nullable=True)),),
    )
)
LOCATION = "nodes/t"


class OneTable:
    """A table and its newest version."""

    def __init__(self, folder):
        self.tables = Tables(Root.parse(str(folder), {}), World(durability="process"))
        self.version = self.tables.create(LOCATION, SCHEMA)

    @property
    def table(self):
        entry = TableEntry(table_key="node:T", location=LOCATION, version=self.version)
        return self.tables.open(entry)

    def land(self, staged):
        if staged is not None:
            self.version = self.tables.apply(staged).version

    def rows(self, pairs):
        ids, numbers = [p[0] for p in pairs], [p[1] for p in pairs]
        return pa.Table.from_arrays([pa.array(ids), pa.array(numbers, pa.int32())], schema=SCHEMA)


@pytest.fixture
def one(tmp_path):
    return OneTable(tmp_path)


IDS = [f"k{n}" for n in range(12)]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["upsert", "delete", "overwrite"]),
        st.dictionaries(st.sampled_from(IDS), st.integers(0, 3), min_size=1, max_size=3),
    ),
    min_size=NARROW_FRAGMENTS_MIN,
    max_size=3 * NARROW_FRAGMENTS_MIN,
)


@settings(max_examples=15)
@given(steps=STEPS)
def test_a_lookup_answers_as_a_scan_of_everything_does(tmp_path_factory, steps):
    one = OneTable(tmp_path_factory.mktemp("narrow"))
    model = {}
    for verb, content in steps:
        rows = one.rows(list(content.items()))
        if verb == "delete":
            one.land(one.table.stage_delete_ids(list(content)))
            model = {key: n for key, n in model.items() if key not in content}
        elif verb == "overwrite" and len(content) == 3:
            one.land(one.table.stage_overwrite(rows))
            model = dict(content)
        else:
            one.land(one.table.stage_change(rows))
            model |= content
        found = one.table.lookup("id", IDS[:6], ["id", "n"]).to_pylist()
        assert {r["id"]: r["n"] for r in found} == {k: model[k] for k in IDS[:6] if k in model}
        twos = one.table.lookup("n", [2], ["id"])["id"].to_pylist()
        assert sorted(twos) == sorted(key for key, n in model.items() if n == 2)


def test_the_cost_of_a_lookup_does_not_grow_with_commits(one):
    def cost():
        before = one.tables.meter.total
        assert one.table.locate(["first", "absent"]).num_rows == 1
        after = one.tables.meter.total
        return after.scans - before.scans, after.rows - before.rows

    one.land(one.table.stage_append(one.rows([("first", 1)])))
    costs = set()
    for n in range(40):
        one.land(one.table.stage_append(one.rows([(f"x{n}", n)])))
        if n >= NARROW_FRAGMENTS_MIN:
            costs.add(cost())
    assert costs == {(1, 1)}


def test_an_absent_value_costs_no_scan_at_all(one):
    for n in range(NARROW_FRAGMENTS_MIN):
        one.land(one.table.stage_append(one.rows([(f"x{n}", n)])))
    before = one.tables.meter.total.scans
    assert one.table.locate(["absent"]).num_rows == 0
    assert one.table.locate(["absent"]).schema.names == ["id", "_rowid", "_rowaddr"]
    assert one.tables.meter.total.scans == before


def test_another_process_reads_what_it_did_not_write_itself(one, tmp_path):
    for n in range(NARROW_FRAGMENTS_MIN + 1):
        one.land(one.table.stage_append(one.rows([(f"x{n}", n)])))
    other = Tables(Root.parse(str(tmp_path), {}), World(durability="process"))
    entry = TableEntry(table_key="node:T", location=LOCATION, version=one.version)
    for _ in range(2):
        assert other.open(entry).locate(["x3", "absent"])["id"].to_pylist() == ["x3"]


def test_big_fragments_are_always_looked_at(one):
    one.land(one.table.stage_append(one.rows([(f"b{n}", n) for n in range(NARROW_ROWS_MAX + 1)])))
    for n in range(NARROW_FRAGMENTS_MIN):
        one.land(one.table.stage_append(one.rows([(f"x{n}", n)])))
    assert one.table.locate(["b7", "x2", "no"])["id"].to_pylist() == ["b7", "x2"]
