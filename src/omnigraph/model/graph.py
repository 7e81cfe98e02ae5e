"""What a graph is at one moment, how it got there, and what one publish adds to it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from omnigraph.model.schema import Catalog, Identities
from omnigraph.model.structs import JsonStruct, html_block, html_table

MAIN = "main"
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
LOAD_MODES: Final = ("append", "merge", "overwrite")
# Location, branch of the table, version: together they name one version of one table.
Pin = tuple[str, str | None, int]


class TableEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One table of a snapshot: where it is and which version of it counts.

    `location` is the folder below the graph root; `branch` is the Lance branch that owns the
    version (None = the dataset's own main line). Version numbers repeat between branches, so a pin
    is always all three.
    """

    table_key: str
    location: str
    version: int
    branch: str | None = None
    row_count: int = 0

    @property
    def pin(self) -> Pin:
        """What the snapshot counts on: two entries with one pin hold the same rows."""
        return self.location, self.branch, self.version

    # The names users see.
    @property
    def entity_kind(self) -> str:
        return self.table_key.partition(":")[0]

    @property
    def type_name(self) -> str:
        return self.table_key.partition(":")[2]

    @property
    def type_key(self) -> str:
        return self.table_key

    @property
    def dataset_path(self) -> str:
        return self.location

    @property
    def published_dataset_version(self) -> int:
        return self.version

    @property
    def native_dataset_branch(self) -> str | None:
        return self.branch

    @property
    def entity_count(self) -> int:
        return self.row_count


class PendingEntry(TableEntry, frozen=True, kw_only=True):
    """A table with changes that are not committed: a version that is in no history, which only the
    transaction that made it can see. It `stands_on` a version of the table's line."""

    stands_on: int


class SchemaRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The schema a snapshot was written under."""

    source: str
    ir: str
    hash: str
    identities: Identities = msgspec.field(default_factory=Identities)

    @classmethod
    def of(cls, catalog: Catalog) -> SchemaRecord:
        return cls(
            source=catalog.source,
            ir=catalog.ir,
            hash=catalog.hash,
            identities=catalog.identities,
        )

    @property
    def fingerprint(self) -> str:
        """Equal for schemas under which the same rows mean the same. The hash alone is not: a
        property may have been dropped and made again under its name."""
        if self.identities.is_empty:
            return self.hash
        told = msgspec.json.encode(self.identities, order="sorted")
        return f"{self.hash}+{hashlib.sha256(told).hexdigest()}"


class TypeCounts(JsonStruct, frozen=True, kw_only=True):
    """How many entities a change brings, replaces and removes."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def plus(self, more: TypeCounts) -> TypeCounts:
        return TypeCounts(
            inserted=self.inserted + more.inserted,
            updated=self.updated + more.updated,
            deleted=self.deleted + more.deleted,
        )


UNCHANGED: Final = TypeCounts()
# What the writer of a commit says in its properties.
WRITER_KIND_PROPERTY: Final = "writer_kind"
MESSAGE_PROPERTY: Final = "message"
COUNTS_PROPERTY: Final = "counts"


def counts_property(by_key: Iterable[tuple[str, TypeCounts]]) -> dict[str, str]:
    """The property from which `Commit.counts` reads: the changes of all tables, by kind."""
    totals: dict[str, TypeCounts] = {}
    for table_key, counts in by_key:
        kind = "nodes" if table_key.startswith("node:") else "edges"
        totals[kind] = totals.get(kind, UNCHANGED).plus(counts)
    told = {kind: one.to_json() for kind, one in sorted(totals.items()) if one != UNCHANGED}
    return {COUNTS_PROPERTY: msgspec.json.encode(told).decode()} if told else {}


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of the history. `created_us` counts microseconds since the epoch."""

    graph_commit_id: str
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    graph_branch: str
    graph_manifest_version: int
    actor_id: str | None
    created_us: int
    # Load id, stream batch, message…
    properties: Mapping[str, str] = msgspec.field(default_factory=dict)

    @property
    def created_at(self) -> datetime:
        """When it was made, in UTC."""
        return EPOCH + timedelta(microseconds=self.created_us)

    @property
    def message(self) -> str | None:
        """What its writer had to say about it."""
        return self.properties.get(MESSAGE_PROPERTY)

    @property
    def writer_kind(self) -> str | None:
        """What made it, as `WriterKind` says it; None for commits of older formats, and for those
        that take half a write back."""
        return self.properties.get(WRITER_KIND_PROPERTY)

    @property
    def counts(self) -> Mapping[str, TypeCounts]:
        """How many "nodes" and "edges" it changed; empty if none, or if it does not say."""
        told = self.properties.get(COUNTS_PROPERTY, "{}")
        try:
            return msgspec.json.decode(told, type=dict[str, TypeCounts])
        except msgspec.MsgspecError:  # of another release: it says nothing that we understand
            return {}

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = asdict(self)
        properties = body.pop("properties")
        body["created_at"] = body.pop("created_us")
        if self.message is not None:
            body["message"] = self.message
        return {**body, "properties": dict(properties)} if properties else body


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A named line of history. `id` is opaque and never reused; Lance branches carry it."""

    name: str
    id: str | None  # None = main
    parent: str | None
    fork_commit_id: str | None
    created_by: str | None
    created_at: int

    def line(self, life: int = 1) -> str:
        """The name of the branch's own line of a table. A table that the branch gave up for its
        parent's and then writes again gets a new life: the old line may still be referred to."""
        assert self.id is not None, "main has no line of its own"
        return self.id if life == 1 else f"{self.id}__{life}"

    def life(self, table_branch: str | None) -> int:
        """Which life of its own lines a table's Lance branch is; 0 if it is not the branch's."""
        if self.id is None or not self.owns(table_branch):
            return 0
        number = (table_branch or "").removeprefix(self.id).removeprefix("__")
        return int(number) if number.isdecimal() else 1

    def owns(self, table_branch: str | None) -> bool:
        """Whether a table's Lance branch is this branch's own, so that it may be written."""
        if self.id is None or table_branch is None:
            return self.id is None and table_branch is None
        return table_branch == self.id or table_branch.startswith(f"{self.id}__")


class DeletedBranch(msgspec.Struct, frozen=True, kw_only=True):
    """A branch that was deleted and can be brought back until cleanup takes it."""

    branch: Branch
    head: Commit
    deleted_us: int | None  # None = by a release that did not say
    deleted_by: str | None

    @property
    def name(self) -> str:
        return self.branch.name

    @property
    def head_commit_id(self) -> str:
        return self.head.graph_commit_id

    @property
    def deleted_at(self) -> datetime | None:
        """When it was deleted, in UTC."""
        return None if self.deleted_us is None else EPOCH + timedelta(microseconds=self.deleted_us)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "branch_id": self.branch.id,
            "head_commit_id": self.head_commit_id,
            "deleted_at": self.deleted_us,
            "actor_id": self.deleted_by,
        }


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """A name for one commit, for good: it never moves, and cleanup keeps what it names."""

    name: str
    graph_commit_id: str = msgspec.field(name="commit_id")  # as its file says it
    branch_id: str | None  # of the branch that made the commit; None = main
    message: str | None
    created_by: str | None
    created_us: int = msgspec.field(name="created_at")

    @property
    def created_at(self) -> datetime:
        """When the tag was made, in UTC."""
        return EPOCH + timedelta(microseconds=self.created_us)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "graph_commit_id": self.graph_commit_id,
            "message": self.message,
            "actor_id": self.created_by,
            "created_at": self.created_us,
        }


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The whole graph at one manifest version of one branch. It never changes."""

    branch: Branch
    manifest_version: int
    head: Commit
    schema: SchemaRecord
    entries: Mapping[str, TableEntry]  # by table key, sorted

    @property
    def graph_branch(self) -> str:
        return self.branch.name

    @property
    def graph_manifest_version(self) -> int:
        return self.manifest_version

    @property
    def graph_commit_id(self) -> str:
        return self.head.graph_commit_id

    @property
    def datasets(self) -> tuple[TableEntry, ...]:
        return tuple(self.entries.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "graph_branch": self.graph_branch,
            "graph_manifest_version": self.manifest_version,
            "graph_commit_id": self.graph_commit_id,
            "datasets": [
                {
                    "entity_kind": entry.entity_kind,
                    "type_name": entry.type_name,
                    "type_key": entry.table_key,
                    "dataset_path": entry.location,
                    "published_dataset_version": entry.version,
                    **({"native_dataset_branch": entry.branch} if entry.branch else {}),
                    "entity_count": entry.row_count,
                }
                for entry in self.datasets
            ],
        }

    def _repr_html_(self) -> str:
        """For notebooks: the datasets that make up the graph."""
        rows = [
            (
                one.entity_kind,
                one.type_name,
                one.entity_count,
                one.version,
                one.branch,
                one.location,
            )
            for one in self.datasets
        ]
        return html_block(
            f"{self.graph_branch} at commit {self.graph_commit_id}",
            html_table(("kind", "type", "entities", "version", "dataset branch", "path"), rows),
        )


def type_words(type_key: str) -> str:
    """`node:Person` for people; `__manifest` stays what it is."""
    kind, sign, name = type_key.partition(":")
    return f"{kind} type '{name}'" if sign else type_key


# --- what one publish says, and what it relies on ----------------------------------------------


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
