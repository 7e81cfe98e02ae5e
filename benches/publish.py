"""What a publish costs: 1 and 10 tables, after 0, 100 and 1,000 commits, with and without fsync.

Raw is what nobody who commits one Lance version can avoid: writing the same rows as one fragment
and committing it, unsynced, to a dataset of one fragment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from lance.dataset import LanceDataset, LanceOperation
from lance.fragment import write_fragments

from measure import Measure, side_by_side
from omnigraph.compiler.schema import OldSchemas
from omnigraph.model.graph import Changeset, Lineage, SchemaRecord, TableEntry, TableUpdate
from omnigraph.model.ports import Durability, World
from omnigraph.storage.commit.sidecar import Sidecars
from omnigraph.storage.manifest.publisher import Publisher
from omnigraph.storage.manifest.ref_files import MAIN_BRANCH
from omnigraph.storage.manifest.rows import tail_table
from omnigraph.storage.manifest.store import ManifestStore
from omnigraph.storage.objects.root import Root, open_store

TABLES, HISTORY, TABLES_IN_GRAPH = (1, 10), (0, 100, 1000), 20
SCHEMA = SchemaRecord(source="node T { name: String @key }\n" * 20, ir="{}", hash="sha256:0")


class Bench:
    """A graph that is a manifest alone."""

    def __init__(self, folder: Path, durability: Durability) -> None:
        self.world = World(durability=durability)
        root = Root.parse(str(folder), {})
        objects = open_store(root, self.world)
        self.manifests = ManifestStore(
            root,
            self.world,
            objects,
            old_schemas=OldSchemas(),
            unfinished=Sidecars(objects).follows,
        )
        self.publisher = Publisher(self.manifests, self.world)
        self.keys = [f"node:T{number:02}" for number in range(TABLES_IN_GRAPH)]
        self.manifests.create(
            schema=SCHEMA,
            entries=[
                TableEntry(table_key=key, location=f"nodes/{key[5:]}", version=1)
                for key in self.keys
            ],
            genesis=self.lineage(),
        )

    def lineage(self) -> Lineage:
        return Lineage(
            commit_id=self.world.ids.ulid(), actor_id="bench", created_at=self.world.clock.now_us()
        )

    def publish(self, tables: int) -> None:
        """As a writer does it: look at the head, then move so many tables by a version."""
        entries = self.manifests.head(MAIN_BRANCH).entries
        self.publisher.publish(
            MAIN_BRANCH,
            Changeset(
                updates=tuple(
                    TableUpdate(
                        table_key=key, version=entries[key].version + 1, branch=None, row_count=1
                    )
                    for key in self.keys[:tables]
                ),
                lineage=self.lineage(),
            ),
        )


def raw_commit(bench: Bench, folder: Path) -> Callable[[], None]:
    """Overwrite a dataset with rows like the manifest's, as plainly as Lance can."""
    rows = tail_table(bench.manifests.fresh(None).tail)
    uri = str(folder)
    created = write_fragments(rows, uri, mode="create", return_transaction=True)
    handles = [LanceDataset.commit(uri, created, enable_stable_row_ids=True)]

    def commit() -> None:
        fragments = write_fragments(rows, handles[-1], mode="append")
        operation = LanceOperation.Overwrite(rows.schema, list(fragments))
        read = handles[-1].version
        handles[-1] = LanceDataset.commit(handles[-1], operation, read_version=read, max_retries=0)

    return commit


def run(folder: Path, *, rounds: int) -> Iterator[Measure]:
    """Every case, one after the other."""
    durabilities: tuple[Durability, ...] = ("process", "power")
    for durability in durabilities:
        bench = Bench(folder / f"graph-{durability}", durability)
        commits = 0
        for history in HISTORY:
            while commits < history:
                bench.publish(1)
                commits += 1
            for tables in TABLES:
                name = f"{durability}, {tables} tables, after {history} commits"
                raw = raw_commit(bench, folder / f"raw-{durability}-{history}-{tables}")
                yield side_by_side(
                    name, ours=partial(bench.publish, tables), raw=raw, rounds=rounds
                )
                commits += rounds + 1
