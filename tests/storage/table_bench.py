"""One table that tests move write by write, as the manifest would."""

from __future__ import annotations

import os

import pyarrow as pa

from omnigraph.model.graph import TableEntry
from omnigraph.model.ports import World
from omnigraph.storage.lance.columns import PRIMARY_KEY
from omnigraph.storage.objects.root import Root
from omnigraph.storage.table.index import IndexSpec
from omnigraph.storage.table.table import Tables
from omnigraph.storage.table.upkeep import Upkeep

BY_ID = IndexSpec(name="id_idx", column="id", kind="btree")
BY_TEXT = IndexSpec(name="bio_idx", column="bio", kind="btree")
PLACE = "nodes/0123456789abcdef"
SMALL = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata=PRIMARY_KEY),
        pa.field("age", pa.int64()),
        pa.field("bio", pa.string()),
    ]
)


WIDE = SMALL.append(pa.field("spot", pa.list_(pa.float32(), 4)))


class WatchedDisk:
    """Remembers what was synced; a file must be whole when its turn comes."""

    def __init__(self):
        self.files, self.folders = [], []

    def fsync_file(self, path):
        assert os.path.isfile(path)
        self.files.append(path)

    def fsync_folder(self, path):
        assert os.path.isdir(path)
        self.folders.append(path)


def people(*ids, age=1):
    columns = {"id": list(ids), "age": [age] * len(ids), "bio": [f"story of {one}" for one in ids]}
    return pa.table(columns, schema=SMALL)


def upkept(table, *specs, **options):
    """What upkeep would do to the table, staged; None if there is nothing to do."""
    plan = table.plan_upkeep(specs, Upkeep(**options))
    work = table.finish_upkeep(plan, [table.run_upkeep_task(task) for task in plan.tasks])
    return table.stage_upkeep(work)


def compacted(table):
    """The compaction of all fragments as a write; None if there is nothing to do."""
    staged = upkept(table)
    return None if staged is None else staged.write


def indexed(table, *specs):
    """The indexes that the specs ask for as a write; None if they are all there."""
    staged = upkept(table, *specs, compact=False)
    return None if staged is None else staged.write


def delete_where(table, where):
    return table.stage_delete_ids(table.read(columns=["id"], where=where)["id"].to_pylist())


class Bench:
    def __init__(self, place, *, world=None, schema=SMALL):
        self.root = Root.parse(place.uri, place.environ)
        self.tables = Tables(self.root, world or World(durability="process"))
        self.version = self.tables.create(PLACE, schema)
        self.branch = None

    def entry(self, version=None):
        return TableEntry(
            table_key="node:Person",
            location=PLACE,
            version=version or self.version,
            branch=self.branch,
        )

    def now(self, version=None):
        return self.tables.open(self.entry(version))

    def land(self, write):
        update = self.tables.apply(write)
        self.version = update.version
        assert update.row_count == self.now().count()
        return update

    def append(self, *ids, age=1):
        return self.land(self.now().stage_append(people(*ids, age=age)))

    def ids(self):
        return sorted(self.now().read(columns=["id"])["id"].to_pylist())

    def rows(self):
        return sorted(self.now().read().to_pylist(), key=lambda row: row["id"])

    @property
    def place(self):
        return f"{PLACE}/tree/{self.branch}" if self.branch else PLACE

    @property
    def folder(self):
        return self.root.child(self.place)

    def index(self, *specs):
        write = indexed(self.now(), *specs)
        if write is not None:
            self.land(write)

    def agree(self, ids):
        """A lookup through the index finds what a scan finds."""
        everything = self.now().read(columns=["id"])["id"].to_pylist()
        for one in ids:
            found = self.now().read(columns=["id"], where=f"id = '{one}'")["id"].to_pylist()
            assert found == [known for known in everything if known == one]
