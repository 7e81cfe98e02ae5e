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
from omnigraph.model.graph import Commit, SchemaRecord, TableEntry
from omnigraph.model.limits import INTERNAL_SCHEMA_VERSION
from omnigraph.model.requests import FORMER_KEY_PROPERTY, KEY_PROPERTY, key_of
from omnigraph.storage.layout import is_line, is_location

STAMP_KEY: Final = "omnigraph:internal_schema_version"
MIGRATED_KEY: Final = "omnigraph:migrated_at"  # the first manifest version of our format
PRIMARY_KEY: Final = "lance-schema:unenforced-primary-key"
HEAD_ID: Final = "graph_head"
SCHEMA_ID: Final = "schema"

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


def version_id(table_key: str, version: int) -> str:
    """The key of a version row."""
    return f"{table_key}${version:020d}"


def tombstone_id(table_key: str, version: int) -> str:
    """The key of a tombstone row."""
    return f"{table_key}$tombstone${version:020d}"


# --- writing ---------------------------------------------------------------------------------


def tail_table(tail: Tail) -> pa.Table:
    """The tail as the rows of one fragment."""
    rows: list[Row] = [_schema_row(tail.schema)]
    for entry in tail.entries.values():
        rows += (_registration_row(entry), _version_row(entry))
    rows += (_tombstone_row(key, version) for key, version in sorted(tail.tombstones.items()))
    rows += (_commit_row(row) for row in tail.commits)
    rows.append(_head_row(tail))
    return to_table(rows)


def commits_table(commits: Iterable[CommitRow]) -> pa.Table:
    """Commits as the rows of a history fragment."""
    return to_table([_commit_row(row) for row in commits])


def to_table(rows: Sequence[Row]) -> pa.Table:
    """Rows as Arrow data; a missing column is null."""
    columns = [[row.get(name) for row in rows] for name in ROW_SCHEMA.names]
    arrays = [
        pa.array(values, type=column.type)
        for values, column in zip(columns, ROW_SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=ROW_SCHEMA)


def _schema_row(schema: SchemaRecord) -> Row:
    return {
        "object_id": SCHEMA_ID,
        "object_type": "schema",
        "table_key": "",
        "metadata": _json({"source": schema.source, "ir": schema.ir, "hash": schema.hash}),
    }


def _registration_row(entry: TableEntry) -> Row:
    return {
        "object_id": entry.table_key,
        "object_type": "table",
        "location": entry.location,
        "table_key": entry.table_key,
    }


def _version_row(entry: TableEntry) -> Row:
    return {
        "object_id": version_id(entry.table_key, entry.version),
        "object_type": "table_version",
        "table_key": entry.table_key,
        "table_version": entry.version,
        "table_branch": entry.branch,
        "row_count": entry.row_count,
    }


def _tombstone_row(table_key: str, version: int) -> Row:
    return {
        "object_id": tombstone_id(table_key, version),
        "object_type": "table_tombstone",
        "table_key": table_key,
        "table_version": version,
    }


def _commit_row(row: CommitRow) -> Row:
    commit = row.commit
    facts: dict[str, Any] = {
        "graph_branch": commit.graph_branch,
        "parent_commit_id": commit.parent_commit_id,
        "merged_parent_commit_id": commit.merged_parent_commit_id,
        "actor_id": commit.actor_id,
        "publish_id": row.publish_id,
    }
    facts = {name: value for name, value in facts.items() if value is not None}
    if commit.properties:
        facts["properties"] = dict(commit.properties)
    return {
        "object_id": commit.graph_commit_id,
        "object_type": "graph_commit",
        "table_key": "",
        "table_version": commit.graph_manifest_version,
        "table_branch": row.branch_id,
        "metadata": _json({**facts, "created_at": commit.created_at}),
    }


def _head_row(tail: Tail) -> Row:
    facts = {"head_commit_id": tail.head.id, "sealed_through": tail.sealed_through}
    return {
        "object_id": HEAD_ID,
        "object_type": "graph_head",
        "table_key": "",
        "metadata": _json({name: value for name, value in facts.items() if value is not None}),
    }


def _json(value: Mapping[str, Any]) -> str:
    return orjson.dumps(value).decode()


# --- reading ---------------------------------------------------------------------------------


def holds_head(rows: pa.Table) -> bool:
    """Whether the fragment's rows are a tail."""
    return HEAD_ID in rows.column("object_id").to_pylist()


def holds_schema(rows: pa.Table) -> bool:
    """Whether the rows are of our layout: no other keeps the schema in a row."""
    return SCHEMA_ID in rows.column("object_id").to_pylist()


def read_tail(rows: pa.Table) -> Tail:
    """The meaning of a tail's rows; `CorruptGraphError` names the row that makes no sense."""
    by_kind = _by_kind(rows)
    head = _one(by_kind, "graph_head", HEAD_ID)
    schema = _one(by_kind, "schema", SCHEMA_ID)
    commits = tuple(
        sorted(
            (read_commit(row) for row in by_kind.get("graph_commit", ())),
            key=lambda row: row.commit.graph_manifest_version,
        )
    )
    facts = read_facts(head)
    if not commits or commits[-1].id != facts.get("head_commit_id"):
        raise corrupt(HEAD_ID, f"the head commit '{facts.get('head_commit_id')}' has no row")
    return Tail(
        schema=_read_schema(schema),
        entries=read_entries(by_kind),
        tombstones=read_tombstones(by_kind),
        commits=commits,
        sealed_through=facts.get("sealed_through"),
    )


def read_entries(by_kind: Mapping[str, Sequence[Row]]) -> dict[str, TableEntry]:
    """The live tables: highest version per key, minus those with a tombstone at or above it."""
    locations = {row["table_key"]: _location(row) for row in by_kind.get("table", ())}
    tombstones = read_tombstones(by_kind)
    newest: dict[str, Row] = {}
    for row in by_kind.get("table_version", ()):
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
                created_at=int(facts["created_at"]),
                properties=dict(facts.get("properties") or {}),
            ),
            branch_id=_line(row),
            publish_id=facts.get("publish_id"),
        )
    except (KeyError, TypeError, ValueError) as cause:
        raise corrupt(row["object_id"], f"not a commit ({cause!r})") from cause


def read_commits(rows: pa.Table) -> tuple[CommitRow, ...]:
    """Every commit among the rows, in their order."""
    return tuple(read_commit(row) for row in rows.to_pylist() if _is(row, "graph_commit"))


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


def _by_kind(rows: pa.Table) -> dict[str, list[Row]]:
    by_kind: dict[str, list[Row]] = {}
    seen: set[str] = set()
    for row in rows.to_pylist():
        if row["object_id"] in seen:
            raise corrupt(row["object_id"], "the key is there twice")
        if row["object_type"] not in _KINDS:
            raise corrupt(row["object_id"], f"unknown kind '{row['object_type']}'")
        seen.add(row["object_id"])
        by_kind.setdefault(row["object_type"], []).append(row)
    return by_kind


_KINDS: Final = frozenset(
    {"table", "table_version", "table_tombstone", "graph_commit", "graph_head", "schema"}
)


def _is(row: Row, kind: str) -> bool:
    return bool(row["object_type"] == kind)


def _one(by_kind: Mapping[str, Sequence[Row]], kind: str, object_id: str) -> Row:
    rows = by_kind.get(kind, ())
    if len(rows) != 1:
        raise corrupt(object_id, f"there are {len(rows)} rows of kind '{kind}' instead of one")
    return rows[0]


def read_tombstones(by_kind: Mapping[str, Sequence[Row]]) -> dict[str, int]:
    """The highest tombstone of each table that has one."""
    newest: dict[str, int] = {}
    for row in by_kind.get("table_tombstone", ()):
        key = row["table_key"]
        newest[key] = max(newest.get(key, 0), _need(row, "table_version"))
    return newest


def _read_schema(row: Row) -> SchemaRecord:
    facts = read_facts(row)
    try:
        return SchemaRecord(source=facts["source"], ir=facts["ir"], hash=facts["hash"])
    except KeyError as cause:
        raise corrupt(row["object_id"], f"no {cause}") from cause


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
