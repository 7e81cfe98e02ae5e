"""What one publish says, and what it relies on."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from omnigraph.model.graph import SchemaRecord, TableEntry

LOAD_MODES: Final = ("append", "merge", "overwrite")


class WriterKind(StrEnum):
    """Who writes; the sidecar names it and recovery judges by it."""

    MUTATION = "Mutation"
    LOAD = "Load"
    SCHEMA_APPLY = "SchemaApply"
    BRANCH_MERGE = "BranchMerge"
    ENSURE_INDICES = "EnsureIndices"
    OPTIMIZE = "Optimize"
    REPAIR = "Repair"


class TableUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """The table is now at this version."""

    table_key: str
    version: int
    branch: str | None
    row_count: int

    @classmethod
    def pointing_to(cls, entry: TableEntry) -> TableUpdate:
        """The table is where the entry says, without moving."""
        return cls(
            table_key=entry.table_key,
            version=entry.version,
            branch=entry.branch,
            row_count=entry.row_count,
        )


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """A new table key at a location (a new type, or a renamed one at its old location)."""

    table_key: str
    location: str = msgspec.field(name="table_path")  # as sidecars say it


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """The table key is gone as of this table version."""

    table_key: str
    version: int = msgspec.field(name="tombstone_version")  # as sidecars say it


class Lineage(msgspec.Struct, frozen=True, kw_only=True):
    """The commit to be. Its parent is the branch head at publish time, under the lease."""

    commit_id: str
    actor_id: str | None
    created_at: int
    merged_parent_commit_id: str | None = None
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)


class TableIs(msgspec.Struct, frozen=True, kw_only=True):
    """The write relied on the table being at exactly this version (0 = not there)."""

    table_key: str
    version: int
    branch: str | None = None


class HeadIs(msgspec.Struct, frozen=True, kw_only=True):
    """The write relied on this commit being the branch head."""

    commit_id: str


Expectation = TableIs | HeadIs


class Changeset(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one publish makes visible at once, with what must still hold."""

    updates: tuple[TableUpdate, ...] = ()
    registrations: tuple[Registration, ...] = ()
    tombstones: tuple[Tombstone, ...] = ()
    schema: SchemaRecord | None = None
    lineage: Lineage | None = None
    expects: tuple[Expectation, ...] = ()
