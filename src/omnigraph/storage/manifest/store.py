"""The authority: which version of each table makes up the graph, on every branch.

`ManifestStore` reads. A warm store pays a probe for "nothing new" and one small fragment for
"something new", however long the history is. Only `publisher.py` and `migrations.py` write.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from omnigraph.errors import CorruptGraphError, NotFoundError, UpgradeRequiredError
from omnigraph.model.graph import Branch, Commit, Lineage, SchemaRecord, Snapshot, TableEntry
from omnigraph.model.limits import (
    IDEMPOTENCY_COMMITS_MAX,
    INTERNAL_SCHEMA_VERSION,
    MANIFEST_CHUNKS_CACHED_MAX,
    MANIFEST_SNAPSHOTS_CACHED_MAX,
)
from omnigraph.model.ports import ObjectStore, World
from omnigraph.model.structs import Recent
from omnigraph.storage.manifest.dataset import FIRST_STAMP, ManifestDatasets, Opened
from omnigraph.storage.manifest.legacy import LegacyGraph, OldSchemas
from omnigraph.storage.manifest.ref_files import MAIN_BRANCH, RefFiles, RetiredFiles, ref_key
from omnigraph.storage.manifest.rows import (
    CommitRow,
    Tail,
    new_commit,
    read_commits,
    read_keys,
    read_tail,
    tail_table,
)
from omnigraph.storage.manifest.tags import TagFiles
from omnigraph.storage.objects.root import MANIFEST, Root, branch_folder

logger = logging.getLogger(__name__)

_RELEASES: Final = {5: "0.9 to 0.10", 6: "0.9 to 0.10"}

# Whether a write that was begun on the branch, to follow this commit, has not been finished: it
# tells what a crash left from what was damaged.
Unfinished = Callable[[str | None, str], bool]


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one version of one branch's manifest."""

    opened: Opened
    tail: Tail
    tail_fragment: Any  # None: the version is of an old format, which has no tail

    @property
    def current(self) -> bool:
        """Whether it is of the format that we write."""
        return self.tail_fragment is not None

    @property
    def version(self) -> int:
        return self.opened.version

    @property
    def sealed(self) -> tuple[Any, ...]:
        """The fragments that hold older commits, newest first."""
        if not self.current:
            return ()
        tail_id = self.tail_fragment.fragment_id
        others = (one for one in self.opened.fragments if one.fragment_id != tail_id)
        return tuple(sorted(others, key=lambda one: -int(one.fragment_id)))

    def snapshot(self, branch: Branch) -> Snapshot:
        """The graph as it is in this version."""
        return Snapshot(
            branch=branch,
            manifest_version=self.version,
            head=self.tail.head.commit,
            schema=self.tail.schema,
            entries=self.tail.entries,
        )


class ManifestStore:
    """Snapshots and commits of every branch, read from `__manifest`. Safe to share by threads."""

    def __init__(
        self,
        root: Root,
        world: World,
        store: ObjectStore,
        *,
        old_schemas: OldSchemas,
        unfinished: Unfinished,
    ) -> None:
        self.root = root
        self.store = store
        self.old_schemas = old_schemas
        self.unfinished = unfinished
        self.datasets = ManifestDatasets(root, world, store)
        self.legacy = LegacyGraph(root, store, self.datasets, old_schemas)
        self.refs = RefFiles(store, self._inherited)
        self.retired = RetiredFiles(store)
        self.tags = TagFiles(store)
        self._lock = threading.Lock()
        self._heads: dict[str | None, Known] = {}
        self._past: Recent[tuple[str | None, int], Known] = Recent(MANIFEST_SNAPSHOTS_CACHED_MAX)
        self._chunks: Recent[str, tuple[CommitRow, ...]] = Recent(MANIFEST_CHUNKS_CACHED_MAX)
        self._keys: Recent[str, frozenset[str]] = Recent(MANIFEST_CHUNKS_CACHED_MAX)

    # --- making ------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Whether there is a graph, whole or damaged."""
        try:
            self.fresh(None)
        except NotFoundError:
            return False
        except CorruptGraphError:
            return True
        return True

    def create(
        self, *, schema: SchemaRecord, entries: Iterable[TableEntry], genesis: Lineage
    ) -> Snapshot:
        """Make the manifest with its genesis commit; `AlreadyExistsError` if there is one."""
        tail = Tail(
            schema=schema,
            entries={one.table_key: one for one in sorted(entries, key=lambda one: one.table_key)},
            commits=(new_commit(genesis, MAIN_BRANCH, parent=None, version=1),),
        )
        known = self.remember(self.datasets.create(tail_table(tail)), tail)
        return known.snapshot(MAIN_BRANCH)

    # --- snapshots ---------------------------------------------------------------------------

    def head(self, branch: Branch) -> Snapshot:
        """The newest snapshot of the branch; reads only what is new."""
        return self.fresh(branch.id).snapshot(branch)

    def at_version(self, branch: Branch, manifest_version: int) -> Snapshot:
        """The branch as of that manifest version; versions before its fork are its parent's."""
        head = self.fresh(branch.id)
        # The last commit of the line up to that version: its branch owns the version.
        rows = (row for chunk in self.commit_chunks(head) for row in chunk)
        upto = (row for row in rows if row.commit.graph_manifest_version <= manifest_version)
        row = next(upto, None)
        if row is None or manifest_version > head.version:
            raise NotFoundError(
                f"branch '{branch.name}' has no manifest version {manifest_version}",
                kind="manifest version",
                name=str(manifest_version),
            )
        return self._at(row, manifest_version).snapshot(branch)

    def at_commit(self, commit_id: str) -> Snapshot:
        """The graph right after that commit, whichever live branch knows it."""
        return self.at_row(self.commit_row(commit_id))

    def at_row(self, row: CommitRow) -> Snapshot:
        """The same of a commit that was looked up already."""
        # A branch from before a migration has another id now, but still its name.
        owner = (
            self.refs.of_id(row.branch_id)
            or self.retired.of_id(row.branch_id)
            or self.refs.find(row.commit.graph_branch)
            or self.retired.of_name(row.commit.graph_branch)
        )
        if owner is None:
            raise _of_deleted_branch(row.commit)
        return self._at(row, row.commit.graph_manifest_version).snapshot(owner)

    def is_kept(self, row: CommitRow) -> bool:
        """Whether the disk still has the graph as it was at the commit; no cache is asked."""
        try:
            self.datasets.open_version(row.branch_id, row.commit.graph_manifest_version)
        except NotFoundError:
            return False
        return True

    # --- commits -----------------------------------------------------------------------------

    def find_commit(self, branch: Branch, commit_id: str) -> Commit | None:
        """The commit if it is in the branch's history, else None; looks at the newest state."""
        row = self.find_row(self.fresh(branch.id), commit_id)
        return row.commit if row is not None else None

    def commit(self, commit_id: str) -> Commit:
        """The commit of any live branch, or of a deleted one that a live one has merged;
        `NotFoundError` if nobody knows it."""
        row = self._row_of_any(commit_id)
        if row is not None:
            return row.commit
        written = self.retired.commits().get(commit_id)
        if written is None:
            raise _of_no_branch(commit_id)
        return written

    def commit_row(self, commit_id: str) -> CommitRow:
        """The commit of any live branch, main first, or of a deleted one that is still needed;
        `NotFoundError` if none has it."""
        row = self._row_of_any(commit_id)
        if row is not None:
            return row
        written = self.retired.commits().get(commit_id)
        raise _of_no_branch(commit_id) if written is None else _of_deleted_branch(written)

    def _row_of_any(self, commit_id: str) -> CommitRow | None:
        damaged: list[CorruptGraphError] = []
        for known in self._heads_of(chain(self.refs.all(), self.retired.branches()), damaged):
            row = self.find_row(known, commit_id)
            if row is not None:
                return row
        if damaged:
            raise damaged[0]  # it may be there
        return None

    def commit_chunks(self, known: Known) -> Iterator[tuple[CommitRow, ...]]:
        """Every commit of a branch in chunks, newest first; later chunks are read when asked."""
        yield tuple(reversed(known.tail.commits))
        for fragment in known.sealed:
            yield tuple(reversed(self.chunk(known, fragment)))

    def line(self, known: Known) -> Iterator[Commit]:
        """The commits from the head along first parents, down to the genesis commit."""
        return (row.commit for row in self.line_rows(known, known.tail.head.commit))

    def line_rows(self, known: Known, start: Commit) -> Iterator[CommitRow]:
        """The same from any commit of the branch's history, with what is noted beside each."""
        expected: str | None = start.graph_commit_id
        for chunk in self.commit_chunks(known):
            for row in chunk:
                if row.id == expected:
                    yield row
                    expected = row.commit.parent_commit_id
                    if expected is None:
                        return

    def every_chunk(self, branches: Iterable[Branch]) -> Iterator[tuple[CommitRow, ...]]:
        """The commits of the branches in chunks, branch by branch; each is read when asked for."""
        read: set[str] = set()
        for known in self._heads_of(branches, []):
            yield known.tail.commits
            for fragment in known.sealed:
                path = fragment.metadata.files[0].path
                if path not in read:  # branches share the history before their fork
                    read.add(path)
                    yield self.chunk(known, fragment)

    def _heads_of(
        self, branches: Iterable[Branch], damaged: list[CorruptGraphError]
    ) -> Iterator[Known]:
        """What can be read of the branches; a damaged one is told and stops none of the others."""
        for branch in branches:
            try:
                yield self.fresh(branch.id)
            except CorruptGraphError as cause:
                logger.warning(
                    "skipped a damaged branch", extra={"branch": branch.name, "why": cause.message}
                )
                damaged.append(cause)
            except NotFoundError:
                if branch.id is None:
                    raise
                continue  # deleted since it was listed

    def find_row(self, known: Known, commit_id: str) -> CommitRow | None:
        """The commit if it is in the history as of the known version."""
        row = known.tail.find(commit_id)
        through = known.tail.sealed_through
        if row is not None or through is None or commit_id > through:
            return row
        for fragment in known.sealed:
            rows = read_commits(self.datasets.commit_rows(known.opened, fragment, commit_id))
            if rows:
                return rows[0]
        return None

    def chunk(self, known: Known, fragment: Any) -> tuple[CommitRow, ...]:
        """The commits of one history fragment, oldest first."""
        path = fragment.metadata.files[0].path  # unique for ever, on every branch
        rows = self._chunks.get(path)
        if rows is None:
            rows = read_commits(self.datasets.commit_rows(known.opened, fragment))
            self._chunks.put(path, rows)
        return rows

    def keys(self, known: Known, fragment: Any) -> frozenset[str]:
        """The idempotency keys of the newest commits of one history fragment."""
        path = fragment.metadata.files[0].path
        found = self._keys.get(path)
        if found is None:
            # Never fewer rows than any branch could ask for: a fragment may be an older part of one
            # branch's history and a newer part of another's.
            rows = self.datasets.newest_metadata(known.opened, fragment, IDEMPOTENCY_COMMITS_MAX)
            found = read_keys(rows)
            self._keys.put(path, found)
        return found

    # --- what is known -----------------------------------------------------------------------

    def fresh(self, branch_id: str | None) -> Known:
        """The newest version, after a probe."""
        known = self._heads.get(branch_id)
        if known is None:
            return self._keep(self._first_look(branch_id))
        opened = self.datasets.newest(known.opened)
        if opened.version < known.version:
            # Cleanup never takes the newest version, and numbers only grow.
            raise self.datasets.damaged(branch_id, known.version, reason="it was the newest")
        if opened.version == known.version and not opened.torn:
            return known
        return self._keep(self._read_sound(opened))

    def _first_look(self, branch_id: str | None) -> Known:
        """The newest version, when nothing is known yet that it could be compared with."""
        try:
            opened = self.datasets.open_latest(branch_id)
        except NotFoundError as cause:
            branch = None if branch_id is None else self.refs.of_id(branch_id)
            if branch is None:
                raise
            # Either the folder went or the id in the reference is not what was written there.
            folder = f"{branch_folder(MANIFEST, branch_id)}/_versions"
            reason = f"{cause}, although '{ref_key(branch.name)}' names it"
            raise CorruptGraphError.at(folder, doing="open the branch", reason=reason) from cause
        known = self._read_sound(opened)
        # Nothing explains a stamp that was cut short.
        stamped = opened.stamp == INTERNAL_SCHEMA_VERSION
        if not stamped or not self.datasets.attempts(opened) or self._explained(known):
            return known
        # The sidecar goes after the version has come, so the order of these looks matters.
        again = self.datasets.open_latest(branch_id)
        if again.version > opened.version:
            return self._read_sound(again)
        missing = opened.version + 1
        raise self.datasets.damaged(branch_id, missing, reason="it was begun and is not there")

    def _read_sound(self, opened: Opened) -> Known:
        """Read a version. A torn one above it is damage, unless its write was never acknowledged:
        then its sidecar is still there, because it is deleted only after the version is synced."""
        known = self._read(opened)
        if not opened.torn:
            return known
        if len(opened.torn) == 1 and self._explained(known):
            logger.warning("read around a torn version", extra={"versions": opened.torn})
            return known
        again = self.datasets.open_latest(opened.branch_id)
        if again.version > opened.version and not again.torn:
            return self._read(again)  # recovery was at work between our two looks
        raise self.datasets.damaged(opened.branch_id, opened.torn[0], reason="it is not whole")

    def forget_attempt(self, branch_id: str | None, *, parent_commit_id: str) -> None:
        """Take away what is left of a publish that did not land, under its branch's lease and while
        its sidecar is there; what follows another version than it would have is not its own."""
        try:
            known = self._read(self.datasets.open_latest(branch_id))
        except (NotFoundError, CorruptGraphError):
            return  # nothing can be told apart here, so nothing is taken away
        if known.tail.head.id == parent_commit_id:
            self.datasets.forget_attempts(known.opened)

    def _explained(self, known: Known) -> bool:
        """Whether an unfinished write, or a migration, follows this very version."""
        if not known.current:
            return self.legacy.is_being_migrated()
        return self.unfinished(known.opened.branch_id, known.tail.head.id)

    def last_known(self, branch_id: str | None) -> Known:
        """What was newest when we last looked: free, and maybe outdated."""
        return self._heads.get(branch_id) or self.fresh(branch_id)

    def remember(self, opened: Opened, tail: Tail) -> Known:
        """A version that we have just written ourselves."""
        fragment = max(opened.fragments, key=lambda one: int(one.fragment_id))
        return self._keep(Known(opened=opened, tail=tail, tail_fragment=fragment))

    def forget(self, branch_id: str | None) -> None:
        """Drop what is known of a branch, for one that is gone."""
        with self._lock:
            self._heads.pop(branch_id, None)

    def _keep(self, known: Known) -> Known:
        with self._lock:
            held = self._heads.get(known.opened.branch_id)
            # A slower thread must not put an older version back.
            if held is None or held.version <= known.version:
                self._heads[known.opened.branch_id] = known
        return known

    def _at(self, row: CommitRow, version: int) -> Known:
        """A version at or after the commit and before the next one."""
        branch_id = row.branch_id
        held = self._heads.get(branch_id)
        if held is not None and held.version == version:
            return held
        known = self._past.get((branch_id, version))
        if known is not None:
            return known
        try:
            known = self._read_past(self.datasets.open_version(branch_id, version), row)
        except NotFoundError as cause:
            raise not_kept(row.id, version) from cause
        self._past.put((branch_id, version), known)
        return known

    def _read(self, opened: Opened) -> Known:
        return self.read_ours(opened) or Known(
            opened=opened, tail=self.legacy.tail(opened), tail_fragment=None
        )

    def read_ours(self, opened: Opened) -> Known | None:
        """What a version of our own layout says; None for one of an older layout."""
        check_stamp(opened)
        found = self.datasets.tail(opened)
        if found is None:
            return None
        rows, fragment = found
        return Known(opened=opened, tail=read_tail(rows), tail_fragment=fragment)

    # --- old formats -------------------------------------------------------------------------

    def _read_past(self, opened: Opened, row: CommitRow) -> Known:
        """A version of the past, which may be older than a migration."""
        known = self.read_ours(opened)
        if known is not None:
            return known
        newest = self._schema_holder().tail
        entries = self.legacy.entries(opened)
        tail = replace(
            newest,
            schema=self.legacy.schema_of_past(newest.schema, entries),
            entries=entries,
            tombstones={},
            commits=(row,),
            sealed_through=None,
        )
        return Known(opened=opened, tail=tail, tail_fragment=None)

    def _schema_holder(self) -> Known:
        """What has the schema of all old versions: their formats kept one, for the whole graph."""
        main = self.fresh(None)
        at = main.opened.migrated_at
        if at is None:
            return main
        try:
            return self._read(self.datasets.open_version(None, at))
        except NotFoundError:  # cleaned up: the schema of now is the best that is left
            return main

    def _inherited(self) -> Mapping[str, Branch] | None:
        """The branches of a graph that has not been migrated yet; None if it has been."""
        if self.last_known(None).current:
            return None
        main = self.fresh(None)  # somebody may have migrated it since we looked
        if main.current:
            return None
        listed = self.legacy.branches(main.opened.stamp)
        return {name: self.legacy.branch(name, old) for name, old in listed.items()}


def _of_no_branch(commit_id: str) -> NotFoundError:
    return NotFoundError(
        f"commit '{commit_id}' is not in the history of any branch",
        kind="commit",
        name=commit_id,
        hint="a deleted branch takes along its commits that nobody has merged",
    )


def _of_deleted_branch(commit: Commit) -> NotFoundError:
    """The commit is known, and what the graph was then went with its branch."""
    return NotFoundError(
        f"commit '{commit.graph_commit_id}' was made on branch '{commit.graph_branch}', "
        "which is deleted",
        kind="commit",
        name=commit.graph_commit_id,
        hint="a tag keeps what a commit was when its branch goes",
    )


def not_kept(commit_id: str, version: int) -> NotFoundError:
    """The commit is known, and cleanup has taken what the graph was then."""
    return NotFoundError(
        f"the graph as it was at commit '{commit_id}' is not kept any more",
        hint="cleanup removed it; --keep and --older-than say what it leaves",
        kind="commit",
        name=commit_id,
        manifest_version=version,
    )


def check_stamp(opened: Opened) -> None:
    """`UpgradeRequiredError` if a release wrote it that we cannot read after."""
    stamp = opened.stamp
    if stamp == INTERNAL_SCHEMA_VERSION or 1 <= stamp <= FIRST_STAMP:
        return
    if stamp == 0:
        raise CorruptGraphError("there never was an internal schema version 0", part=MANIFEST)
    told = f"the graph has internal schema version {stamp}"
    hint = None
    if stamp > INTERNAL_SCHEMA_VERSION:
        told += f", this OmniGraph knows up to {INTERNAL_SCHEMA_VERSION}: upgrade omnigraph first"
    else:
        release = _RELEASES.get(stamp, "a later release than 0.10")
        told += f", which the reference system writes ({release}) and this OmniGraph cannot read"
        hint = "export the graph with that release and load the file into a new graph here"
    raise UpgradeRequiredError(told, hint=hint, found=stamp, known=INTERNAL_SCHEMA_VERSION)
