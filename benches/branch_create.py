"""What making a branch costs in a graph of 1 and of 200 tables, after 0 and 300 commits.

Raw is what it cannot avoid: one Lance branch of one dataset and one small file put in place.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import pyarrow as pa

from measure import Measure, side_by_side
from omnigraph.compiler.schema import OldSchemas
from omnigraph.model.graph import Changeset, Lineage, SchemaRecord, TableEntry, TableUpdate
from omnigraph.model.ports import World
from omnigraph.storage.commit.sidecar import Sidecars
from omnigraph.storage.manifest.publisher import Publisher
from omnigraph.storage.manifest.ref_files import MAIN_BRANCH
from omnigraph.storage.manifest.refs import Refs
from omnigraph.storage.manifest.store import ManifestStore
from omnigraph.storage.objects.root import Root, open_store

TABLES, HISTORY = (1, 200), (0, 300)


class NoForks:
    def drop_branch(self, location: str, branch_id: str) -> None:
        """Nothing is forked here."""


def graph(folder: Path, tables: int, commits: int) -> Refs:
    """A manifest alone with so many tables and so long a history."""
    world = World(durability="process")
    root = Root.parse(str(folder), {})
    store = open_store(root, world)
    manifests = ManifestStore(
        root, world, store, old_schemas=OldSchemas(), unfinished=Sidecars(store).follows
    )
    keys = [f"node:T{number:03}" for number in range(tables)]

    def lineage() -> Lineage:
        return Lineage(commit_id=world.ids.ulid(), actor_id=None, created_at=0)

    manifests.create(
        schema=SchemaRecord(source="", ir="{}", hash=""),
        entries=[TableEntry(table_key=key, location=key, version=1) for key in keys],
        genesis=lineage(),
    )
    publisher = Publisher(manifests, world)
    for version in range(2, commits + 2):
        moved = TableUpdate(table_key=keys[0], version=version, branch=None, row_count=0)
        publisher.publish(MAIN_BRANCH, Changeset(updates=(moved,), lineage=lineage()))
    return Refs(manifests, NoForks(), store, world)


def raw_branch(folder: Path) -> Callable[[], None]:
    """A Lance branch and a file, as plainly as can be."""
    dataset = lance.write_dataset(pa.table({"id": ["a"]}), str(folder), enable_stable_row_ids=True)
    made: list[str] = []

    def create() -> None:
        made.append(f"b{len(made)}")
        dataset.create_branch(made[-1])
        draft = folder / "draft"
        draft.write_bytes(b"{}")
        os.replace(draft, folder / f"{made[-1]}.json")

    return create


def run(folder: Path, *, rounds: int) -> Iterator[Measure]:
    """Every case, one after the other."""
    for tables in TABLES:
        for commits in HISTORY:
            refs = graph(folder / f"graph-{tables}-{commits}", tables, commits)
            numbers = iter(range(rounds + 1))
            yield side_by_side(
                f"{tables} tables, after {commits} commits",
                ours=lambda r=refs, n=numbers: r.create(f"branch {next(n)}", actor_id=None),
                raw=raw_branch(folder / f"raw-{tables}-{commits}"),
                rounds=rounds,
            )
