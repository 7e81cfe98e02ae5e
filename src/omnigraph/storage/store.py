"""The parts of an open graph that everything above works with, assembled in one place.

The commit protocol (`commit/`) stands on top of these parts. What it alone knows, the folder of
unfinished writes, comes in as a question: the manifest asks it to tell a crash from damage.
"""

from __future__ import annotations

import logging
from types import TracebackType

import msgspec

from omnigraph.errors import IntegrityError, NotFoundError, OmnigraphError, UnavailableError
from omnigraph.model.graph import Branch
from omnigraph.model.ports import ObjectStore, World
from omnigraph.storage.derived import DerivedFiles
from omnigraph.storage.manifest.history import History
from omnigraph.storage.manifest.legacy import OldSchemas
from omnigraph.storage.manifest.publisher import Publisher
from omnigraph.storage.manifest.refs import Refs
from omnigraph.storage.manifest.store import ManifestStore, Unfinished
from omnigraph.storage.objects.lease import Leases
from omnigraph.storage.objects.root import Root, dropped_mark
from omnigraph.storage.table.table import Tables

logger = logging.getLogger(__name__)


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """One graph's objects, tables, derived files, manifest, branches and leases."""

    root: Root
    world: World
    objects: ObjectStore
    tables: Tables
    derived: DerivedFiles
    manifests: ManifestStore
    publisher: Publisher
    refs: Refs
    history: History
    leases: Leases

    @classmethod
    def over(
        cls,
        root: Root,
        world: World,
        objects: ObjectStore,
        *,
        old_schemas: OldSchemas,
        unfinished: Unfinished,
    ) -> Store:
        """Put the parts together. Nothing is read yet: there may be no graph at the root."""
        tables = Tables(root, world)
        manifests = ManifestStore(
            root, world, objects, old_schemas=old_schemas, unfinished=unfinished
        )
        return cls(
            root=root,
            world=world,
            objects=objects,
            tables=tables,
            derived=tables.derived,
            manifests=manifests,
            publisher=Publisher(manifests, world),
            refs=Refs(manifests, tables, objects, world),
            history=History(manifests),
            leases=Leases(root, objects, world),
        )

    def drop_table(self, location: str) -> None:
        """Remove a table for good, with everything that it ever held."""
        assert "/" in location.strip("/"), "a table has a folder of its own below nodes or edges"
        # The mark comes first and stays: a later type of this name must not take the place, or old
        # snapshots would show its entities as theirs.
        self.objects.put_if_absent(dropped_mark(location), b"")
        self.tables.forget(location)
        self.objects.delete_prefix(location)
        self.derived.drop(location)

    def meanwhile(self, *branches: Branch) -> _Meanwhile:
        """Run the body; what fails because a branch was deleted under it says so."""
        return _Meanwhile(self.refs, branches)


class _Meanwhile(msgspec.Struct, frozen=True):
    """Something that is done on branches. No generator: every read passes two of these."""

    refs: Refs
    branches: tuple[Branch, ...]

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        cause: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(cause, NotFoundError | IntegrityError | UnavailableError):
            return
        for branch in self.branches:
            try:
                self.refs.require_alive(branch)
            except NotFoundError as gone:
                raise gone from cause
            except OmnigraphError as second:  # the first failure is what the caller hears of
                logger.debug("could not look again", extra={"why": second.message})
