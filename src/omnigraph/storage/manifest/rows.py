"""The rows of `__manifest`: what they look like on disk and what they mean. Pure, no I/O.

One fragment, the *tail*, holds everything that a snapshot needs: the schema, one registration and
one version row per table, tombstones, the newest commits and the head. All other fragments hold
older commits and nothing else, so no read of a snapshot grows with history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import CorruptGraphError
from omnigraph.model.graph import Branch, Commit, Lineage, SchemaRecord, TableEntry
from omnigraph.model.limits import INTERNAL_SCHEMA_VERSION
from omnigraph.model.requests import FORMER_KEY_PROPERTY, KEY_PROPERTY, key_of
from omnigraph.model.schema import Identities
from omnigraph.storage.objects.root import is_line, is_location

STAMP_KEY: Final = "omnigraph:internal_schema_version"
MIGRATED_KEY: Final = "omnigraph:migrated_at"  # the first manifest version of our format
PRIMARY_KEY: Final = "lance-schema:unenforced-primary-key"
HEAD_ID: Final = "graph_head"
SCHEMA_ID: Final = "schema"
_OLD_KINDS: Final = frozenset(
    {"table", "table_version", "table_tombstone", "graph_commit", "graph_head"}
)
_KINDS: Final = _OLD_KINDS | {"schema"}

_OBJECT_ID = pa.field("object_id", pa.string(), nullable=False, metadata={PRIMARY_KEY: "true"})
# Schema texts are rewritten with every commit and compress well.
_METADATA = pa.field("metadata", pa.string(), metadata={"lance-encoding:compression": "zstd"})

ROW_SCHEMA: Final = pa.schema(
    [
        _OBJECT_ID,
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        _METADATA,
        pa.field("base_objects", pa.list_(pa.string())),
        pa.field("table_key", pa.string(), nullable=False),
        pa.field("table_version", pa.uint64()),
        pa.field("table_branch", pa.string()),
        pa.field("row_count", pa.uint64()),
    ],
    metadata={STAMP_KEY: str(INTERNAL_SCHEMA_VERSION)},
)

Row = dict[str, Any]


class CommitRow(msgspec.Struct, frozen=True, kw_only=True):
    """A commit, the manifest branch that owns its version, and the publish call that wrote it."""

    commit: Commit
    branch_id: str | None
    publish_id: str | None = None

    @property
    def id(self) -> str:
        return self.commit.graph_commit_id


class Tail(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a snapshot needs, and the newest commits (oldest first, the head last).

    `sealed_through` is the greatest commit id outside the tail: a greater id is in the tail or
    nowhere.
    """

    schema: SchemaRecord
    entries: Mapping[str, TableEntry]
    tombstones: Mapping[str, int] = msgspec.field(default_factory=dict)
    commits: tuple[CommitRow, ...]
    sealed_through: str | None = None

    @property
    def head(self) -> CommitRow:
        return self.commits[-1]

    def find(self, commit_id: str) -> CommitRow | None:
        """The commit among the newest ones, or None."""
        return next((row for row in self.commits if row.id == commit_id), None)

    def version_of(self, table_key: str) -> int:
        """The published version; of a dropped table its tombstone's; 0 of an unknown one."""
        entry = self.entries.get(table_key)
        return entry.version if entry is not None else self.tombstones.get(table_key, 0)


# --- writing ---------------------------------------------------------------------------------


def new_commit(
    lineage: Lineage,
    branch: Branch,
    *,
    parent: str | None,
    version: int,
    publish_id: str | None = None,
) -> CommitRow:
    """The commit to be, which makes that manifest version of the branch."""
    return CommitRow(
        commit=Commit(
            graph_commit_id=lineage.commit_id,
            parent_commit_id=parent,
            merged_parent_commit_id=lineage.merged_parent_commit_id,
            graph_branch=branch.name,
            graph_manifest_version=version,
            actor_id=lineage.actor_id,
            created_us=lineage.created_at,
            properties=dict(lineage.properties),
        ),
        branch_id=branch.id,
        publish_id=publish_id,
    )


def tail_table(tail: Tail) -> pa.Table:
    """The tail as the rows of one fragment."""
    schema = tail.schema
    told = _facts(
        source=schema.source,
        ir=schema.ir,
        hash=schema.hash,
        identities=None if schema.identities.is_empty else msgspec.to_builtins(schema.identities),
    )
    rows = [_row(SCHEMA_ID, "schema", metadata=told)]
    for key, entry in tail.entries.items():
        rows.append(_row(key, "table", table_key=key, location=entry.location))
        rows.append(
            _row(
                f"{key}${entry.version:020d}",
                "table_version",
                table_key=key,
                table_version=entry.version,
                table_branch=entry.branch,
                row_count=entry.row_count,
            )
        )
    for key, version in sorted(tail.tombstones.items()):
        object_id = f"{key}$tombstone${version:020d}"
        rows.append(_row(object_id, "table_tombstone", table_key=key, table_version=version))
    rows += (_commit_row(row) for row in tail.commits)
    told = _facts(head_commit_id=tail.head.id, sealed_through=tail.sealed_through)
    rows.append(_row(HEAD_ID, "graph_head", metadata=told))
    return pa.Table.from_pylist(rows, schema=ROW_SCHEMA)


def commits_table(commits: Iterable[CommitRow]) -> pa.Table:
    """Commits as the rows of a history fragment."""
    return pa.Table.from_pylist([_commit_row(row) for row in commits], schema=ROW_SCHEMA)


def _commit_row(row: CommitRow) -> Row:
    commit = row.commit
    return _row(
        row.id,
        "graph_commit",
        table_version=commit.graph_manifest_version,
        table_branch=row.branch_id,
        metadata=_facts(
            graph_branch=commit.graph_branch,
            parent_commit_id=commit.parent_commit_id,
            merged_parent_commit_id=commit.merged_parent_commit_id,
            actor_id=commit.actor_id,
            publish_id=row.publish_id,
            properties=dict(commit.properties) or None,
            created_at=commit.created_us,
        ),
    )


def _row(object_id: str, object_type: str, *, table_key: str = "", **cells: Any) -> Row:
    """A row; a column that is not named is null."""
    return {"object_id": object_id, "object_type": object_type, "table_key": table_key, **cells}


def _facts(**facts: Any) -> str:
    """The facts that there are, as a JSON object."""
    told = {name: value for name, value in facts.items() if value is not None}
    return orjson.dumps(told).decode()


# --- reading ---------------------------------------------------------------------------------


def read_tail(rows: pa.Table) -> Tail:
    """The meaning of a tail's rows; `CorruptGraphError` names the row that makes no sense."""
    kinds = by_kind(rows)
    head = _one(kinds, "graph_head", HEAD_ID)
    schema = _one(kinds, "schema", SCHEMA_ID)
    commits = tuple(
        sorted(
            (read_commit(row) for row in kinds.get("graph_commit", ())),
            key=lambda row: row.commit.graph_manifest_version,
        )
    )
    facts = read_facts(head)
    if not commits or commits[-1].id != facts.get("head_commit_id"):
        raise corrupt(HEAD_ID, f"the head commit '{facts.get('head_commit_id')}' has no row")
    return Tail(
        schema=_read_schema(schema),
        entries=read_entries(kinds),
        tombstones=read_tombstones(kinds),
        commits=commits,
        sealed_through=facts.get("sealed_through"),
    )


def by_kind(rows: pa.Table, *, old: bool = False) -> dict[str, list[Row]]:
    """The rows by what they are, each key once. In `old` formats no row holds a schema, and before
    v2 nothing kept a row from being written twice; equal rows do no harm."""
    kinds: dict[str, list[Row]] = {}
    seen: set[str] = set()
    for row in rows.to_pylist():
        if row["object_id"] in seen and not old:
            raise corrupt(row["object_id"], "the key is there twice")
        if row["object_type"] not in (_OLD_KINDS if old else _KINDS):
            raise corrupt(row["object_id"], f"unknown kind '{row['object_type']}'")
        seen.add(row["object_id"])
        kinds.setdefault(row["object_type"], []).append(row)
    return kinds


def read_entries(kinds: Mapping[str, Sequence[Row]]) -> dict[str, TableEntry]:
    """The live tables: highest version per key, minus those with a tombstone at or above it."""
    locations = {row["table_key"]: _location(row) for row in kinds.get("table", ())}
    tombstones = read_tombstones(kinds)
    newest: dict[str, Row] = {}
    for row in kinds.get("table_version", ()):
        known = newest.get(row["table_key"])
        if known is None or _need(row, "table_version") >= known["table_version"]:
            newest[row["table_key"]] = row
    entries: dict[str, TableEntry] = {}
    for key in sorted(newest):
        row = newest[key]
        if tombstones.get(key, 0) >= _need(row, "table_version"):
            continue
        if key not in locations:
            raise corrupt(row["object_id"], f"table '{key}' has a version but no location")
        entries[key] = TableEntry(
            table_key=key,
            location=locations[key],
            version=row["table_version"],
            branch=_line(row),
            row_count=row["row_count"] or 0,
        )
    return entries


def read_commit(row: Row, *, branch: str | None = None) -> CommitRow:
    """The commit that a `graph_commit` row holds; `branch` names it where the row does not."""
    facts = read_facts(row)
    if branch is not None:
        facts = {"graph_branch": branch, **facts}
    try:
        return CommitRow(
            commit=Commit(
                graph_commit_id=row["object_id"],
                parent_commit_id=facts.get("parent_commit_id"),
                merged_parent_commit_id=facts.get("merged_parent_commit_id"),
                graph_branch=facts["graph_branch"],
                graph_manifest_version=_need(row, "table_version"),
                actor_id=facts.get("actor_id"),
                created_us=int(facts["created_at"]),
                properties=dict(facts.get("properties") or {}),
            ),
            branch_id=_line(row),
            publish_id=facts.get("publish_id"),
        )
    except (KeyError, TypeError, ValueError) as cause:
        raise corrupt(row["object_id"], f"not a commit ({cause!r})") from cause


def read_commits(rows: pa.Table) -> tuple[CommitRow, ...]:
    """Every commit among the rows, in their order."""
    found = (row for row in rows.to_pylist() if row["object_type"] == "graph_commit")
    return tuple(read_commit(row) for row in found)


def read_keys(rows: pa.Table) -> frozenset[str]:
    """The idempotency keys in the metadata of commit rows; only rows that have one are parsed."""
    told: Any = rows.column("metadata")
    marked = pc.or_(
        pc.match_substring(told, f'"{KEY_PROPERTY}":'),
        pc.match_substring(told, f'"{FORMER_KEY_PROPERTY}":'),
    )
    properties = (orjson.loads(text).get("properties") for text in told.filter(marked).to_pylist())
    keys = (key_of(one) for one in properties if one)
    return frozenset(key for key in keys if key is not None)


def _location(row: Row) -> str:
    location = _need(row, "location")
    if not is_location(location):
        raise corrupt(row["object_id"], f"'{location}' is no place of a table")
    return str(location)


def _line(row: Row) -> str | None:
    line: str | None = row["table_branch"]
    if not is_line(line):
        raise corrupt(row["object_id"], f"'{line}' is no branch of a table")
    return line


def _one(kinds: Mapping[str, Sequence[Row]], kind: str, object_id: str) -> Row:
    rows = kinds.get(kind, ())
    if len(rows) != 1:
        raise corrupt(object_id, f"there are {len(rows)} rows of kind '{kind}' instead of one")
    return rows[0]


def read_tombstones(kinds: Mapping[str, Sequence[Row]]) -> dict[str, int]:
    """The highest tombstone of each table that has one."""
    newest: dict[str, int] = {}
    for row in kinds.get("table_tombstone", ()):
        key = row["table_key"]
        newest[key] = max(newest.get(key, 0), _need(row, "table_version"))
    return newest


def _read_schema(row: Row) -> SchemaRecord:
    facts = read_facts(row)
    try:
        return SchemaRecord(
            source=facts["source"],
            ir=facts["ir"],
            hash=facts["hash"],
            identities=msgspec.convert(facts.get("identities", {}), Identities),
        )
    except KeyError as cause:
        raise corrupt(row["object_id"], f"no {cause}") from cause
    except msgspec.ValidationError as cause:
        raise corrupt(row["object_id"], f"its identities make no sense ({cause})") from cause


def read_facts(row: Row) -> dict[str, Any]:
    """The JSON object in the row's metadata."""
    try:
        facts = orjson.loads(row["metadata"] or "")
    except orjson.JSONDecodeError as cause:
        raise corrupt(row["object_id"], f"its metadata is no JSON ({cause})") from cause
    if not isinstance(facts, dict):
        raise corrupt(row["object_id"], "its metadata is no JSON object")
    return facts


def _need(row: Row, column: str) -> Any:
    if row[column] is None:
        raise corrupt(row["object_id"], f"{column} is null")
    return row[column]


def corrupt(object_id: str, reason: str) -> CorruptGraphError:
    """The error for a row that makes no sense."""
    return CorruptGraphError(
        f"manifest row '{object_id}': {reason}", part="__manifest", row=object_id
    )
