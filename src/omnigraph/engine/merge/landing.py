"""A merge that was worked out becomes staged writes: columns and rows of the target's tables.

A table keeps its place when its type gets another name. A type that only the source has gets a
table of its own on the target, filled before anything is announced, so that a crash leaves a
dataset that nobody refers to; a branch may instead share a version of main's line.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from omnigraph.engine.check.bucket import TableChange
from omnigraph.engine.check.rules import Entity
from omnigraph.engine.core import Core
from omnigraph.engine.evolve import created
from omnigraph.engine.merge.schemas import Sight
from omnigraph.model.graph import (
    Registration,
    SchemaRecord,
    Snapshot,
    TableEntry,
    TableUpdate,
    Tombstone,
)
from omnigraph.storage.commit.prepared import Prepared
from omnigraph.storage.commit.writer import WriteContext
from omnigraph.storage.lance.columns import seal
from omnigraph.storage.table.stage import StagedWrite


class Landing(msgspec.Struct, frozen=True, kw_only=True):
    """What the target takes over: changed rows by type, and tables of the source to point to."""

    sight: Sight
    target: Snapshot
    changes: Mapping[str, TableChange]
    shared: Mapping[str, TableEntry] = msgspec.field(default_factory=dict)

    def prepared(self, context: WriteContext) -> Prepared:
        """All of it staged, under the merged schema."""
        types = list(self.sight.schema.types())
        fates = context.each(lambda entity: self._fate(entity, context), types)
        entries = self.target.entries
        places = {one.table_key: one.location for one in fates}
        # A key that goes on at its place is no news; any other is ended, and perhaps begun again.
        same = {key for key, entry in entries.items() if places.get(key) == entry.location}
        schema = SchemaRecord.of(self.sight.schema)
        return Prepared(
            staged=tuple(one.staged for one in fates if one.staged is not None),
            repoints=tuple(
                TableUpdate.pointing_to(one.entry)
                for one in fates
                if one.staged is None and (one.entry != entries.get(one.table_key))
            ),
            registrations=tuple(
                Registration(table_key=one.table_key, location=one.location)
                for one in fates
                if one.table_key not in same
            ),
            tombstones=tuple(
                Tombstone(table_key=key, version=entry.version)
                for key, entry in sorted(entries.items())
                if key not in same
            ),
            schema=None if schema == self.target.schema else schema,
            relied_on=frozenset(entries),
        )

    def _fate(self, entity: Entity, context: WriteContext) -> _Fate:
        key = entity.table_key
        change = self.changes.get(key)
        twin = self.sight.twin(self.target, entity)
        if key in self.shared:
            return _Fate(entry=replace(self.shared[key], table_key=key))
        if twin is None:
            return _Fate(entry=_filled(self.sight.core, entity, change))
        entry = replace(self.target.entries[twin.table_key], table_key=key)
        columns = self.sight.evolution(twin, entity, self.target).columns
        some = change is not None and not change.is_empty
        if columns.is_empty and not some:
            return _Fate(entry=entry)
        table = context.writable(twin.table_key, renamed=key)
        if change is None or not some:
            return _Fate(entry=entry, staged=table.stage_schema(columns))
        deleted = sorted(change.deleted)
        return _Fate(entry=entry, staged=table.stage_evolution(columns, change.rows, deleted))


class _Fate(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of one table."""

    entry: TableEntry
    staged: StagedWrite | None = None

    @property
    def table_key(self) -> str:
        return self.entry.table_key

    @property
    def location(self) -> str:
        return self.entry.location


def _filled(core: Core, entity: Entity, change: TableChange | None) -> TableEntry:
    """A new table with the rows; nobody refers to it before the merge is published."""
    entry = created(core, entity)
    if change is None or not change.rows.num_rows:
        return entry
    table = core.store.tables.open(entry)
    staged = table.stage_append(seal(change.rows, table.schema))
    assert staged is not None, "rows were given"
    made = core.store.tables.apply(staged)
    return replace(entry, version=made.version, row_count=made.row_count)
