"""Graphs that the reference system wrote, releases up to 0.8, read as if they were ours.

Up to 0.7 (stamps 1 to 3) lineage was in two datasets of its own; 0.8 (stamp 4) put it into the
manifest. The schema was in files beside it, one for the whole graph, and a graph branch was a Lance
branch that carried the user's name for it. Nothing here writes: migration writes what this module
reads, and read-only opens of old graphs live on it directly. What is missing or makes no sense is
`CorruptGraphError`, never an empty answer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol
from urllib.parse import quote

import orjson
import pyarrow as pa

from omnigraph.errors import CorruptGraphError, OmnigraphError
from omnigraph.model.graph import MAIN, Branch, Commit, Lineage, SchemaRecord, TableEntry
from omnigraph.model.ports import ObjectStore
from omnigraph.model.schema import Catalog, PropertyType
from omnigraph.storage.lance import pylance
from omnigraph.storage.lance.columns import property_type, standard_schema
from omnigraph.storage.lance.line import Line
from omnigraph.storage.manifest.dataset import ManifestDatasets, Opened
from omnigraph.storage.manifest.ref_files import MAIN_BRANCH
from omnigraph.storage.manifest.rows import (
    CommitRow,
    Row,
    Tail,
    by_kind,
    corrupt,
    new_commit,
    read_commit,
    read_entries,
    read_facts,
    read_tombstones,
)
from omnigraph.storage.objects.root import MANIFEST, RECOVERY, Root, branch_folder

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
LINEAGE_STAMP: Final = 4  # from here on commits are rows of the manifest
_COMMIT_TABLES_STAMP: Final = 3  # from here on the two commit datasets are always there
_STATE_FIELDS: Final = frozenset({"format_version", "schema_ir_hash", "schema_identity_version"})
_ADOPTED: Final = re.compile(r"v4-[0-9A-HJKMNP-TV-Z]{26}")


class OldSchemas(Protocol):
    """What the compiler says of the schemas of old graphs."""

    def read(self, ir: str, source: str) -> Catalog:
        """What an IR and its source mean together; `CorruptGraphError` if they do not agree."""
        ...

    def recall(self, newest: Catalog, tables: Mapping[str, Mapping[str, PropertyType]]) -> Catalog:
        """The schema that tables with such columns were written under."""
        ...


def adopted_id(ulid: str) -> str:
    """The id of a line that migration makes beside an old one; no old branch was named so."""
    return f"v4-{ulid}"


def is_adopted(line: str) -> bool:
    """Whether a migration made the Lance branch."""
    return _ADOPTED.fullmatch(line) is not None


class LegacyGraph:
    """Reads a graph of an old format, from its manifest and what was kept beside it."""

    def __init__(
        self, root: Root, store: ObjectStore, datasets: ManifestDatasets, schemas: OldSchemas
    ) -> None:
        self._root = root
        self._store = store
        self._datasets = datasets
        self._schemas = schemas

    def tail(self, opened: Opened) -> Tail:
        """What a tail of ours would say of the newest version of an old line."""
        kinds = by_kind(self._datasets.all_rows(opened), old=True)
        entries = read_entries(kinds)
        schema = self.schema(frozenset(entries))
        commits = self._commits(opened, kinds)
        self._check_newest(opened, commits)
        return Tail(
            schema=schema,
            entries=entries,
            tombstones={
                key: gone for key, gone in read_tombstones(kinds).items() if key not in entries
            },
            commits=tuple(_upto(commits, opened.version)) or (_missing_genesis(schema),),
        )

    def branches(self, stamp: int) -> dict[str, Line]:
        """The user's branches among those that Lance lists: locks are not, nor runs before v3, nor
        what a migration that was cut short has made."""
        return {
            name: line
            for name, line in sorted(self._datasets.branch_ids().items())
            if name != SCHEMA_LOCK_BRANCH
            and not is_adopted(name)
            and (stamp >= 3 or not name.startswith(RUN_PREFIX))
        }

    def branch(self, name: str, old: Line) -> Branch:
        """The branch of ours that an old one is: its Lance name is its id."""
        parent = self._datasets.open_latest(old.parent)
        line = self._commits(parent, by_kind(self._datasets.all_rows(parent), old=True))
        before = _upto(line, old.parent_version)
        return Branch(
            name=name,
            id=name,
            parent=old.parent or MAIN,
            fork_commit_id=before[-1].id if before else None,
            created_by=None,
            created_at=old.created_at or 0,
        )

    def entries(self, opened: Opened) -> dict[str, TableEntry]:
        """The tables that a version of an old format is made of."""
        return read_entries(by_kind(self._datasets.all_rows(opened), old=True))

    # --- lineage -----------------------------------------------------------------------------

    def _commits(self, opened: Opened, kinds: Mapping[str, list[Row]]) -> list[CommitRow]:
        """The line's commits and those before its fork, oldest first."""
        if opened.stamp >= LINEAGE_STAMP:
            found = _inline_commits(opened.branch_id, kinds)
        else:
            found = self._commit_table(opened.branch_id, opened.stamp)
        return sorted(found, key=lambda row: (_version(row), row.commit.created_us, row.id))

    def _commit_table(self, branch_id: str | None, stamp: int) -> list[CommitRow]:
        rows = self._rows(COMMITS, branch_id)
        if rows is None and branch_id is not None:
            # The commit branch is made after the manifest's: a crash between leaves it out.
            old = self.branches(stamp).get(branch_id)
            if old is None:
                raise CorruptGraphError(
                    f"branch '{branch_id}' has no Lance reference", part=MANIFEST
                )
            return _upto(self._commit_table(old.parent, stamp), old.parent_version)
        actors = self._rows(ACTORS, None)
        if (rows is None or actors is None) and (
            stamp >= _COMMIT_TABLES_STAMP or rows is not actors
        ):
            gone = COMMITS if rows is None else ACTORS
            raise CorruptGraphError(f"'{gone}' is missing", part=gone)
        names = {row["graph_commit_id"]: row["actor_id"] for row in actors or ()}
        return [_commit(row, names) for row in rows or ()]

    def _check_newest(self, opened: Opened, commits: Sequence[CommitRow]) -> None:
        """A commit of a manifest version that is not there was acknowledged: its file is lost."""
        last = max((_version(row) for row in commits), default=0)
        # Or a later version was begun, and nothing tells that it did not come to be: neither an
        # unfinished write of that release nor a migration of ours.
        if last <= opened.version and (
            not self._datasets.attempts(opened)
            or self._store.list_keys(RECOVERY)
            or self.is_being_migrated()
        ):
            return
        # A writer of that release may have gone on since we opened the line.
        if self._datasets.newest(opened).version == opened.version:
            part = branch_folder(MANIFEST, opened.branch_id)
            raise CorruptGraphError(
                f"version {opened.version} is the newest of '{part}', but a later one was made: "
                "its file is missing",
                hint="put it back from a copy, or open the graph with the release that wrote it",
                part=part,
            )

    def is_being_migrated(self) -> bool:
        """Whether a migration has begun and not come to its stamp."""
        return any(is_adopted(line) for line in self._datasets.branch_ids())

    def _rows(self, location: str, branch_id: str | None) -> list[dict[str, Any]] | None:
        """All rows of a line; None if the line was never made."""
        folder = branch_folder(location, branch_id)
        if not self._store.list_keys(f"{folder}/_versions"):
            reference = f"{location}/_refs/branches/{quote(branch_id or '', safe='')}.json"
            if branch_id is not None and self._store.read(reference) is not None:
                raise CorruptGraphError(f"'{folder}' has no versions", part=folder)
            return None
        with reading(self._root, folder):
            dataset = dataset_at(self._root, folder)
            rows: list[dict[str, Any]] = dataset.to_table().to_pylist()
            own = dataset.read_transaction(dataset.version)
        begun = self._store.keys_beginning(f"{folder}/_transactions/{dataset.version}-")
        lost = [key for key in begun if own is None or own.uuid not in key]
        if lost and not self._store.list_keys(RECOVERY):
            raise CorruptGraphError(
                f"version {dataset.version} is the newest of '{folder}', but a later one was made: "
                "its file is missing",
                part=folder,
            )
        return rows

    # --- schema ------------------------------------------------------------------------------

    def schema(self, table_keys: frozenset[str]) -> SchemaRecord:
        """The accepted schema, as we would store it. `table_keys` decide whether an unfinished
        change had happened."""
        live = [self._text(name) for name in SCHEMA_FILES]
        twins = [self._text(name + STAGING) for name in SCHEMA_FILES]
        if all(twin is None for twin in twins):
            chosen: SchemaRecord | None = _record(live)
        else:
            # In the middle of the renames the twins have it all. One that was renamed already is
            # read under its final name.
            staged = [
                self._text(name) if twin is None else twin
                for twin, name in zip(twins, SCHEMA_FILES, strict=True)
            ]
            before = None if None in live else _record(live)
            chosen = _choose(before, _record(staged), table_keys)
        if chosen is None:
            raise CorruptGraphError(
                "a schema change was cut short and it cannot be told whether it happened",
                hint="finish it with the OmniGraph release that began it",
                part=SOURCE_FILE + STAGING,
            )
        catalog = self._schemas.read(chosen.ir, chosen.source)
        if chosen.hash != _hash(chosen.ir):
            raise CorruptGraphError(
                f"'{STATE_FILE}' names another schema than '{IR_FILE}' holds",
                part=STATE_FILE,
                expected=chosen.hash,
                actual=_hash(chosen.ir),
            )
        return SchemaRecord(source=chosen.source, ir=catalog.ir, hash=catalog.hash)

    def schema_of_past(
        self, newest: SchemaRecord, entries: Mapping[str, TableEntry]
    ) -> SchemaRecord:
        """The schema of a version of the past. One was kept for the whole graph, the newest; what
        there was before it was changed is told by the columns of the tables."""
        catalog = self._schemas.read(newest.ir, newest.source)
        tables = {entry.table_key: self._columns(entry) for entry in entries.values()}
        then = self._schemas.recall(catalog, tables)
        return (
            newest
            if then is catalog
            else SchemaRecord(source=then.source, ir=then.ir, hash=then.hash)
        )

    def _columns(self, entry: TableEntry) -> dict[str, PropertyType]:
        folder = branch_folder(entry.location, entry.branch)
        try:
            dataset = dataset_at(self._root, folder, version=entry.version)
        except BaseException as cause:
            if not pylance.is_foreign(cause):
                raise
            if pylance.is_missing(cause):
                return {}  # cleaned up: nobody can read it whatever its columns were
            raise _fault(cause, self._root, folder) from cause
        hidden = {"id", "src", "dst"} if entry.table_key.startswith("edge:") else {"id"}
        found = ((one.name, property_type(one)) for one in standard_schema(dataset.schema))
        return {name: kind for name, kind in found if kind is not None and name not in hidden}

    def _text(self, key: str) -> str | None:
        found = self._store.read(key)
        try:
            return found.body.decode() if found is not None else None
        except UnicodeDecodeError as cause:
            raise CorruptGraphError(f"'{key}' is no text: {cause}", part=key) from cause


def dataset_at(root: Root, folder: str, *, version: int | None = None) -> Any:
    """A dataset of an old graph, at its newest version if none is named."""
    return pylance.opened(root.child(folder), root.storage_options, version=version)


def reading(root: Root, folder: str) -> AbstractContextManager[None]:
    """Run the body, which reads a dataset of which files are there."""
    return pylance.told_by(lambda cause: _fault(cause, root, folder))


def _fault(cause: BaseException, root: Root, folder: str) -> OmnigraphError:
    """What is wrong with the dataset. A store that does not answer raises OSError; whatever else is
    said is said about the bytes."""
    if (
        isinstance(cause, OSError)
        and not pylance.is_missing(cause)
        and not pylance.is_damage(cause)
    ):
        return pylance.as_ours(cause, uri=root.child(folder), doing="read")
    reason = pylance.reason_of(cause)
    return CorruptGraphError(
        f"a file of '{folder}' is missing or damaged: {reason}", part=folder, reason=reason
    )


def _record(texts: Sequence[str | None]) -> SchemaRecord:
    """What the three files say together."""
    for text, name in zip(texts, SCHEMA_FILES, strict=True):
        if text is None:
            raise CorruptGraphError(
                f"'{name}' is missing: without it the graph has no schema", part=name
            )
    source, ir, state = (text or "" for text in texts)
    return SchemaRecord(source=source, ir=_compact(ir), hash=_state_hash(state))


def _choose(
    live: SchemaRecord | None, staged: SchemaRecord, table_keys: frozenset[str]
) -> SchemaRecord | None:
    """The schema that the manifest was written under, or None if both would do."""
    if live is None:
        return staged
    if live.hash == staged.hash:
        return live
    old, new = _table_keys(live), _table_keys(staged)
    if old == new:
        return None
    if table_keys == new:
        return staged
    return live if table_keys == old else None


def _table_keys(schema: SchemaRecord) -> frozenset[str]:
    try:
        body = orjson.loads(schema.ir)
        nodes = [f"node:{each['name']}" for each in body["nodes"]]
        edges = [f"edge:{each['name']}" for each in body["edges"]]
    except (KeyError, TypeError) as cause:
        raise CorruptGraphError(f"'{IR_FILE}' is no schema: {cause!r}", part=IR_FILE) from cause
    return frozenset((*nodes, *edges))


def _hash(compact: str) -> str:
    return f"sha256:{hashlib.sha256(compact.encode()).hexdigest()}"


def _state_hash(state: str) -> str:
    try:
        body = orjson.loads(state)
        unknown = sorted(body.keys() - _STATE_FIELDS)
        versions = (body["format_version"], body["schema_identity_version"])
        found = str(body["schema_ir_hash"])
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as cause:
        raise CorruptGraphError(f"'{STATE_FILE}' is damaged: {cause!r}", part=STATE_FILE) from cause
    if unknown or versions != (1, 1):
        told = f"the field '{unknown[0]}'" if unknown else f"the versions {versions}"
        raise CorruptGraphError(f"'{STATE_FILE}' has {told}, not known here", part=STATE_FILE)
    return found


def _compact(ir: str) -> str:
    """The IR as it is hashed: the file has white space for people."""
    try:
        return orjson.dumps(orjson.loads(ir)).decode()
    except orjson.JSONDecodeError as cause:
        raise CorruptGraphError(f"'{IR_FILE}' is no JSON: {cause}", part=IR_FILE) from cause


def _version(row: CommitRow) -> int:
    return row.commit.graph_manifest_version


def _upto(rows: Iterable[CommitRow], version: int | None) -> list[CommitRow]:
    return [row for row in rows if _version(row) <= (version or 0)]


def _inline_commits(branch_id: str | None, kinds: Mapping[str, list[Row]]) -> list[CommitRow]:
    """The commits that 0.8 keeps in the manifest; the line's head row must name the newest."""
    found = [
        read_commit(row, branch=row["table_branch"] or MAIN)
        for row in kinds.get("graph_commit", ())
    ]
    name = branch_id or MAIN
    own = [row for row in found if row.branch_id == branch_id]
    heads = {row["object_id"]: read_facts(row) for row in kinds.get("graph_head", ())}
    head = heads.get(f"graph_head:{name}")
    if head is None and (own or branch_id is None):
        raise corrupt(f"graph_head:{name}", "the row is missing")
    if head is not None:
        newest = max(own, key=_version, default=None)
        if newest is None or newest.id != head.get("head_commit_id"):
            raise corrupt(
                f"graph_head:{name}", f"the head commit '{head.get('head_commit_id')}' has no row"
            )
    return found


def _commit(row: Mapping[str, Any], actors: Mapping[str, str]) -> CommitRow:
    branch_id = row["manifest_branch"]
    moment: Any = pa.scalar(row["created_at"], pa.timestamp("us"))  # a number counts microseconds
    return CommitRow(
        commit=Commit(
            graph_commit_id=row["graph_commit_id"],
            parent_commit_id=row["parent_commit_id"],
            merged_parent_commit_id=row["merged_parent_commit_id"],
            graph_branch=branch_id or MAIN,
            graph_manifest_version=int(row["manifest_version"]),
            actor_id=actors.get(row["graph_commit_id"]),
            created_us=int(moment.value),
        ),
        branch_id=branch_id if branch_id != MAIN else None,
    )


def _missing_genesis(schema: SchemaRecord) -> CommitRow:
    """A first commit for a graph that has none; every branch and every run makes the same."""
    digest = hashlib.sha256(f"genesis:{schema.hash}".encode()).hexdigest().upper()
    lineage = Lineage(commit_id="0" * 10 + digest[:16], actor_id=None, created_at=0)
    return new_commit(lineage, MAIN_BRANCH, parent=None, version=1)
