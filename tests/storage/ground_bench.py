"""One table that tests move write by write, as the manifest would."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.model.graph import TableEntry
from omnigraph.model.ports import World
from omnigraph.storage.arrow_schema import PRIMARY_KEY
from omnigraph.storage.objects import Root
from omnigraph.storage.table import Tables

PLACE = "nodes/0123456789abcdef"
SMALL = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False, metadata=PRIMARY_KEY),
        pa.field("age", pa.int64()),
        pa.field("bio", pa.string()),
    ]
)


def people(*ids, age=1):
    columns = {"id": list(ids), "age": [age] * len(ids), "bio": [f"story of {one}" for one in ids]}
    return pa.table(columns, schema=SMALL)


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
    def folder(self):
        place = f"{PLACE}/tree/{self.branch}" if self.branch else PLACE
        return self.root.child(place)
