"""A graph that is a manifest alone: its tables are only named, which keeps the tests fast."""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.compiler.schema import OldSchemas
from omnigraph.model.graph import Changeset, Lineage, SchemaRecord, TableEntry, TableUpdate
from omnigraph.model.ports import World
from omnigraph.storage.commit.sidecar import Sidecars
from omnigraph.storage.manifest.history import History
from omnigraph.storage.manifest.publisher import Publisher
from omnigraph.storage.manifest.ref_files import MAIN_BRANCH
from omnigraph.storage.manifest.refs import Refs
from omnigraph.storage.manifest.store import ManifestStore
from omnigraph.storage.objects.root import Root, open_store

SCHEMA = SchemaRecord(source="node Person { name: String }", ir='{"nodes":[]}', hash="sha256:0")
FAST = World(durability="process")


class DroppedForks:
    """Stands where the tables are and remembers which forks were dropped."""

    def __init__(self):
        self.dropped = []

    def drop_branch(self, location, branch_id):
        self.dropped.append((location, branch_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """Every part of the authority over one place."""

    world: World
    store: object
    root: Root
    manifests: ManifestStore
    publisher: Publisher
    forks: DroppedForks
    refs: Refs
    history: History

    @classmethod
    def over(cls, place, world=FAST):
        root = Root.parse(place.uri, place.environ)
        store = open_store(root, world)
        unfinished = Sidecars(store).follows
        manifests = ManifestStore(
            root, world, store, old_schemas=OldSchemas(), unfinished=unfinished
        )
        forks = DroppedForks()
        refs = Refs(manifests, forks, store, world)
        return cls(
            world=world,
            store=store,
            root=root,
            manifests=manifests,
            publisher=Publisher(manifests, world),
            forks=forks,
            refs=refs,
            history=History(manifests),
        )

    @classmethod
    def created(cls, place, world=FAST, tables=("node:Person", "edge:Knows")):
        authority = cls.over(place, world)
        authority.manifests.create(
            schema=SCHEMA,
            entries=[
                TableEntry(table_key=key, location=f"nodes/{number:016x}", version=1)
                for number, key in enumerate(tables)
            ],
            genesis=authority.lineage(),
        )
        return authority

    def lineage(self, *, commit_id=None, actor=None, merged=None, properties=None):
        return Lineage(
            commit_id=commit_id or self.world.ids.ulid(),
            actor_id=actor,
            created_at=self.world.clock.now_us(),
            merged_parent_commit_id=merged,
            properties=properties or {},
        )

    def head(self, branch=MAIN_BRANCH):
        return self.manifests.head(branch)

    def publish(self, *updates, branch=MAIN_BRANCH, expects=(), lineage=None, **rest):
        return self.publisher.publish(
            branch,
            Changeset(
                updates=updates, expects=tuple(expects), lineage=lineage or self.lineage(), **rest
            ),
        )

    def advance(self, table_key="node:Person", branch=MAIN_BRANCH, **rest):
        """Publish the next version of one table, as a writer would."""
        entry = self.head(branch).entries[table_key]
        return self.publish(
            update(table_key, entry.version + 1, branch=branch.id), branch=branch, **rest
        )


def update(table_key, version, *, branch=None, rows=0):
    return TableUpdate(table_key=table_key, version=version, branch=branch, row_count=rows)
