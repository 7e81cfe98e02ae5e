"""Processes that write to one table: every acknowledged row is there once, and nobody starves."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.model.graph import TableEntry
from omnigraph.model.ports import World
from omnigraph.storage.lance.columns import PRIMARY_KEY
from omnigraph.storage.objects.root import Root
from omnigraph.storage.table.table import Tables

PLACE = "nodes/feed"
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata=PRIMARY_KEY),
        pa.field("n", pa.int64()),
    ]
)

WRITER = """
import json, sys
import pyarrow as pa
from omnigraph.errors import ExpectedVersionMismatchError
from omnigraph.model.graph import TableEntry
from omnigraph.model.ports import World
from omnigraph.storage.objects.lease import Leases
from omnigraph.storage.objects.root import Root, open_store
from omnigraph.storage.table.table import Tables

uri, place, me, rounds, leased = sys.argv[1:]
world = World(durability="process")
root = Root.parse(uri, {})
tables = Tables(root, world)
leases = Leases(root, open_store(root, world), world)
landed, refused = [], 0


def write(number):
    version = tables.head_version(place, None)
    entry = TableEntry(table_key="node:Feed", location=place, version=version)
    table = tables.open(entry)
    counter = table.read(columns=["n"], where="id = 'counter'")["n"].to_pylist()[0]
    rows = {"id": ["counter", f"{me}-{number}"], "n": [counter + 1, number]}
    tables.apply(table.stage_change(pa.table(rows, schema=table.schema)))


for number in range(int(rounds)):
    while True:
        try:
            if leased == "leased":
                with leases.hold(None, wait_ms=60_000):
                    write(number)
            else:
                write(number)
            break
        except ExpectedVersionMismatchError:
            refused += 1
    landed.append(f"{me}-{number}")
sys.stdout.write(json.dumps({"landed": landed, "refused": refused}))
"""


@pytest.mark.parametrize("leased", ["leased", "unleased"])
def test_processes_that_count_together_lose_no_step(local_root, leased):
    tables = Tables(Root.parse(local_root.uri, {}), World(durability="process"))
    version = tables.create(PLACE, SCHEMA)
    first = tables.open(TableEntry(table_key="node:Feed", location=PLACE, version=version))
    tables.apply(first.stage_append(pa.table({"id": ["counter"], "n": [0]}, schema=SCHEMA)))

    rounds, names = 8, ["a", "b", "c"]
    source = str(Path(__file__).parents[2] / "src")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, local_root.uri, PLACE, name, str(rounds), leased],
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": source},
        )
        for name in names
    ]
    reports = [json.loads(writer.communicate()[0]) for writer in writers]

    head = tables.head_version(PLACE, None)
    table = tables.open(TableEntry(table_key="node:Feed", location=PLACE, version=head))
    rows = {row["id"]: row["n"] for row in table.read().to_pylist()}
    expected = {one for report in reports for one in report["landed"]}
    assert len(expected) == rounds * len(names)
    assert table.count() == len(rows) == len(expected) + 1
    assert rows.keys() == expected | {"counter"}
    assert rows["counter"] == len(expected)
    assert head == version + 1 + len(expected)
    if leased == "leased":
        assert [report["refused"] for report in reports] == [0, 0, 0]
