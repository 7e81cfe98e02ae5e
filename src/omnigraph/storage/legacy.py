"""Graphs of the formats v1 to v3, read as if they were v4. Nothing here writes.

Those kept lineage in two datasets of its own and the schema in files beside the manifest; a graph
branch was a Lance branch that carried the user's name for it. Migration writes what this module
reads, and read-only opens of old graphs live on it directly.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import lance
import orjson
import pyarrow as pa

from omnigraph.errors import CorruptGraphError
from omnigraph.model.graph import MAIN, Branch, Commit, SchemaRecord, TableEntry
from omnigraph.model.ports import ObjectStore
from omnigraph.storage.faults import as_ours, is_missing
from omnigraph.storage.layout import branch_folder
from omnigraph.storage.manifest_rows import CommitRow, Row, Tail, read_entries, read_tombstones
from omnigraph.storage.objects import Root

COMMITS: Final = "_graph_commits.lance"
ACTORS: Final = "_graph_commit_actors.lance"
RUNS: Final = "_graph_runs.lance"
SOURCE_FILE: Final = "_schema.pg"
IR_FILE: Final = "_schema.ir.json"
STATE_FILE: Final = "__schema_state.json"
STAGING: Final = ".staging"
SCHEMA_FILES: Final = (SOURCE_FILE, IR_FILE, STATE_FILE)
SCHEMA_LOCK_BRANCH: Final = "__schema_apply_lock__"
RUN_PREFIX: Final = "__run__"
_ADOPTED: Final = re.compile(r"v4-[0-9A-HJKMNP-TV-Z]{26}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OldBranch:
    """A Lance branch of an old manifest, as Lance describes it."""

    name: str
    parent: str | None  # None = main
    parent_version: int
    created_at: int  # microseconds


def adopted_id(ulid: str) -> str:
    """The id of the branch that goes on from an old one; no old branch was named like this."""
    return f"v4-{ulid}"


def old_branches(listed: Mapping[str, Mapping[str, Any]], *, stamp: int) -> list[OldBranch]:
    """The user's branches among those that Lance lists: locks are not, nor runs before v3, nor what
    a migration that was cut short has made."""
    return [
        OldBranch(
            name=name,
            parent=facts["parent_branch"],
            parent_version=int(facts["parent_version"]),
            created_at=int(facts["create_at"]) * 1_000_000,
        )
        for name, facts in sorted(listed.items())
        if name != SCHEMA_LOCK_BRANCH
        and not _ADOPTED.fullmatch(name)
        and (stamp >= 3 or not name.startswith(RUN_PREFIX))
    ]


class LegacyGraph:
    """Reads the parts that the old formats kept outside the manifest."""

    def __init__(self, root: Root, store: ObjectStore) -> None:
        self._root = root
        self._store = store

    def tail(self, rows: pa.Table, *, branch_id: str | None, version: int) -> Tail:
        """What a v4 tail would say of this version of an old manifest."""
        kinds = _by_kind(rows)
        entries = read_entries(kinds)
        schema = self.schema(frozenset(entries))
        commits = [row for row in self.commits(branch_id) if _version(row) <= version]
        return Tail(
            schema=schema,
            entries=entries,
            tombstones={
                key: gone for key, gone in read_tombstones(kinds).items() if key not in entries
            },
            commits=tuple(commits) or (_missing_genesis(schema),),
        )

    def branch(self, old: OldBranch) -> Branch:
        """The v4 branch that an old one becomes: its Lance name is its id."""
        line = self.commits(old.parent)
        before = [row for row in line if _version(row) <= old.parent_version]
        return Branch(
            name=old.name,
            id=old.name,
            parent=old.parent or MAIN,
            fork_commit_id=before[-1].id if before else None,
            created_by=None,
            created_at=old.created_at,
        )

    # --- lineage -----------------------------------------------------------------------------

    def commits(self, branch_id: str | None) -> list[CommitRow]:
        """The branch's commits and those before its fork, oldest first."""
        rows = self._rows(COMMITS, branch_id)
        if rows is None and branch_id is not None:
            # The commit branch is made after the manifest's: a crash between leaves it out.
            rows = self._rows(COMMITS, None)
        actors = self._actors(branch_id)
        found = [_commit(row, actors) for row in rows or ()]
        return sorted(found, key=lambda row: (_version(row), row.commit.created_at, row.id))

    def _actors(self, branch_id: str | None) -> dict[str, str]:
        actors: dict[str, str] = {}
        for line in (None, branch_id) if branch_id is not None else (None,):
            for row in self._rows(ACTORS, line) or ():
                actors[row["graph_commit_id"]] = row["actor_id"]
        return actors

    def _rows(self, location: str, branch_id: str | None) -> list[dict[str, Any]] | None:
        uri = self._root.child(branch_folder(location, branch_id))
        try:
            dataset = lance.dataset(uri, storage_options=self._root.storage_options)
            rows: list[dict[str, Any]] = dataset.to_table().to_pylist()
        except (OSError, ValueError, pa.ArrowException) as cause:
            if is_missing(cause):
                return None
            raise as_ours(cause, uri=uri, doing="read") from cause
        return rows

    # --- schema ------------------------------------------------------------------------------

    def schema(self, table_keys: frozenset[str]) -> SchemaRecord:
        """The accepted schema. `table_keys` decide whether an unfinished change had happened."""
        live = self._schema_files("")
        staged = self._schema_files(STAGING)
        if live is None and staged is None:
            raise CorruptGraphError(
                f"'{SOURCE_FILE}' is missing: without it the graph has no schema", part=SOURCE_FILE
            )
        chosen = _choose(live, staged, table_keys)
        if chosen is None:
            raise CorruptGraphError(
                "a schema change was cut short and it cannot be told whether it happened",
                hint="finish it with the OmniGraph release that began it",
                part=SOURCE_FILE + STAGING,
            )
        return chosen

    def _schema_files(self, suffix: str) -> SchemaRecord | None:
        source, ir, state = (self._text(name + suffix) for name in SCHEMA_FILES)
        if suffix:  # a twin that was renamed already is read under its final name
            source, ir, state = (
                text if text is not None else self._text(name)
                for text, name in zip((source, ir, state), SCHEMA_FILES, strict=True)
            )
            if all(self._store.read(name + suffix) is None for name in SCHEMA_FILES):
                return None
        if source is None or ir is None:
            return None
        compact = _compact(ir)
        return SchemaRecord(source=source, ir=compact, hash=_hash(compact, state))

    def _text(self, key: str) -> str | None:
        found = self._store.read(key)
        return found.body.decode() if found is not None else None


def _choose(
    live: SchemaRecord | None, staged: SchemaRecord | None, table_keys: frozenset[str]
) -> SchemaRecord | None:
    """The schema that the manifest was written under, or None if both would do."""
    if live is None or staged is None:
        return live or staged
    if live.hash == staged.hash:
        return live
    old, new = _table_keys(live), _table_keys(staged)
    if old == new:
        return None
    if table_keys == new:
        return staged
    return live if table_keys == old else None


def _table_keys(schema: SchemaRecord) -> frozenset[str]:
    body = orjson.loads(schema.ir)
    nodes = (f"node:{each['name']}" for each in body.get("nodes", ()))
    edges = (f"edge:{each['name']}" for each in body.get("edges", ()))
    return frozenset((*nodes, *edges))


def _hash(compact: str, state: str | None) -> str:
    if state is None:
        return f"sha256:{hashlib.sha256(compact.encode()).hexdigest()}"
    try:
        return str(orjson.loads(state)["schema_ir_hash"])
    except (orjson.JSONDecodeError, KeyError, TypeError) as cause:
        raise CorruptGraphError(f"'{STATE_FILE}' is damaged: {cause!r}", part=STATE_FILE) from cause


def _compact(ir: str) -> str:
    """The IR as we keep it: the old file had white space for people."""
    try:
        return orjson.dumps(orjson.loads(ir)).decode()
    except orjson.JSONDecodeError as cause:
        raise CorruptGraphError(f"'{IR_FILE}' is no JSON: {cause}", part=IR_FILE) from cause


def _version(row: CommitRow) -> int:
    return row.commit.graph_manifest_version


def _commit(row: Mapping[str, Any], actors: Mapping[str, str]) -> CommitRow:
    branch_id = row["manifest_branch"]
    return CommitRow(
        commit=Commit(
            graph_commit_id=row["graph_commit_id"],
            parent_commit_id=row["parent_commit_id"],
            merged_parent_commit_id=row["merged_parent_commit_id"],
            graph_branch=branch_id or MAIN,
            graph_manifest_version=int(row["manifest_version"]),
            actor_id=actors.get(row["graph_commit_id"]),
            created_at=_microseconds(row["created_at"]),
        ),
        branch_id=branch_id if branch_id != MAIN else None,
    )


def _microseconds(moment: Any) -> int:
    if isinstance(moment, int):
        return moment
    scalar = pa.scalar(moment, pa.timestamp("us"))
    return int(scalar.cast(pa.int64()).as_py())


def _missing_genesis(schema: SchemaRecord) -> CommitRow:
    """A first commit for a graph that has none; every branch and every run makes the same."""
    digest = hashlib.sha256(f"genesis:{schema.hash}".encode()).hexdigest().upper()
    return CommitRow(
        commit=Commit(
            graph_commit_id="0" * 10 + digest[:16],
            parent_commit_id=None,
            merged_parent_commit_id=None,
            graph_branch=MAIN,
            graph_manifest_version=1,
            actor_id=None,
            created_at=0,
        ),
        branch_id=None,
    )


def old_entries(rows: pa.Table) -> dict[str, TableEntry]:
    """The tables that an old manifest's rows make up."""
    return read_entries(_by_kind(rows))


def _by_kind(rows: pa.Table) -> dict[str, list[Row]]:
    # Before v2 nothing kept a row from being written twice; equal rows do no harm.
    by_kind: dict[str, list[Row]] = {}
    for row in rows.to_pylist():
        by_kind.setdefault(row["object_type"], []).append(row)
    return by_kind
