"""`__manifest` as a Lance dataset: open, read, commit, fork. What rows mean is not known here.

Every commit is an overwrite that keeps the history's fragments and replaces the tail. Lance refuses
an overwrite if anything at all was committed since the version it was made from, so exactly one of
two racing commits gets through.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, partial
from typing import Any, Final

import msgspec
import pyarrow as pa
from lance.commit import CommitConflictError
from lance.dataset import LanceOperation, Transaction
from lance.fragment import write_fragments

from omnigraph.errors import AlreadyExistsError, CorruptGraphError, NotFoundError, OmnigraphError
from omnigraph.model.limits import INTERNAL_SCHEMA_VERSION
from omnigraph.model.ports import ObjectStore, World
from omnigraph.model.steps import Step
from omnigraph.storage.lance import pylance, sql
from omnigraph.storage.lance.collect import How, Outcome
from omnigraph.storage.lance.digests import Written, as_properties
from omnigraph.storage.lance.files import data_paths, is_there, remove_torn
from omnigraph.storage.lance.line import Line, Lines
from omnigraph.storage.manifest.rows import HEAD_ID, MIGRATED_KEY, ROW_SCHEMA, SCHEMA_ID, STAMP_KEY
from omnigraph.storage.objects.root import INIT_CLAIM, MANIFEST, Root, branch_folder

_FOLDERS_KNOWN_MAX: Final = 1_024
FIRST_STAMP: Final = 4  # what our first landing wrote; the reference's 0.8 has it too


_NOTHING: Final = Written(fragments=[])


class LostRaceError(Exception):
    """Another commit took the version: look again. It never leaves `storage/manifest`."""


class Opened(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One version of the manifest of one branch: a sealed read handle."""

    branch_id: str | None
    version: int
    dataset: Any
    folder_mark: int  # local disk: when the versions folder last changed, seen before opening
    torn: tuple[int, ...] = ()  # local disk: versions above it that are not whole

    @property
    def stamp(self) -> int:
        """The internal schema version it was written under; without a stamp it is 1."""
        metadata = self.dataset.schema.metadata or {}
        text = metadata.get(STAMP_KEY.encode(), b"1").decode()
        if not text.isdigit():
            raise CorruptGraphError(
                f"the internal schema stamp '{text}' is no number", part=MANIFEST, stamp=text
            )
        return int(text)

    @property
    def migrated_at(self) -> int | None:
        """The first version of our format, if the graph was older once."""
        found = (self.dataset.schema.metadata or {}).get(MIGRATED_KEY.encode())
        return None if found is None else int(found)

    @property
    def fragments(self) -> Sequence[Any]:
        return tuple(self.dataset.get_fragments())


class ManifestDatasets:
    """`__manifest` and its branches, on the lines that tables stand on too."""

    def __init__(self, root: Root, world: World, store: ObjectStore) -> None:
        self._root = root
        self._world = world
        self._store = store
        # A migrated branch goes on as another line, so that its last commit may name a version
        # that its old line never had.
        self._lines = Lines(root, world, store, opening="open the graph", owed=False)
        self._folder = lru_cache(_FOLDERS_KNOWN_MAX)(partial(self._lines.versions_folder, MANIFEST))

    # --- opening -----------------------------------------------------------------------------

    def open_latest(self, branch_id: str | None) -> Opened:
        """The newest whole version, and which ones above it are torn."""
        mark = self._folder_mark(branch_id)
        with self._opening(branch_id):
            dataset, torn = self._lines.whole_head(MANIFEST, branch_id)
            self._lines.sound(MANIFEST, branch_id, dataset)
        return Opened(
            branch_id=branch_id,
            version=int(dataset.version),
            dataset=dataset,
            folder_mark=mark,
            torn=torn,
        )

    def open_version(self, branch_id: str | None, version: int) -> Opened:
        """Exactly this version."""
        with self._opening(branch_id, version):
            dataset = self._lines.own(MANIFEST, branch_id, version)
            self._lines.sound(MANIFEST, branch_id, dataset)
        return Opened(branch_id=branch_id, version=version, dataset=dataset, folder_mark=-1)

    def newest(self, known: Opened) -> Opened:
        """The newest version; `known` itself if nothing has happened since.

        On local disk that is two `stat` calls: the file of the next version, and the folder (whose
        time changes if old versions were cleaned up around us). On an object store it is one
        listing, and version files sort newest first.
        """
        folder = self._folder(known.branch_id)
        if folder is not None:
            unchanged = _mark(folder) == known.folder_mark
            if unchanged and not is_there(folder, known.version + 1):
                return known
            return self.open_latest(known.branch_id)
        uri = self._lines.uri(MANIFEST, known.branch_id)
        with self._opening(known.branch_id), pylance.translated(uri, doing="read"):
            latest = known.dataset.latest_version
        return known if latest == known.version else self.open_version(known.branch_id, latest)

    def attempts(self, opened: Opened) -> list[str]:
        """The keys of what a later version was begun with: it is there, or its write has a sidecar,
        or its file was lost."""
        with self._opening(opened.branch_id, opened.version):
            return self._lines.attempts(MANIFEST, opened.branch_id, opened.version)

    def forget_attempts(self, opened: Opened) -> None:
        """Take away what is left of a publish that did not land, while its sidecar explains it."""
        if opened.torn:
            self.remove_torn(opened.branch_id)
        for key in self.attempts(opened):
            self._store.delete(key)

    # --- reading -----------------------------------------------------------------------------

    def tail(self, opened: Opened) -> tuple[pa.Table, Any] | None:
        """The rows of the tail and its fragment; None if the version is not of our layout."""
        ours = opened.stamp == INTERNAL_SCHEMA_VERSION
        if not ours and opened.stamp != FIRST_STAMP:
            return None
        if ours and not set(ROW_SCHEMA.names) <= set(opened.dataset.schema.names):
            raise self.damaged(opened.branch_id, opened.version, reason="it lacks columns")
        with self._reading(opened):
            for fragment in reversed(opened.fragments):
                rows = fragment.to_table()
                keys = rows.column("object_id").to_pylist()
                if HEAD_ID in keys:
                    return rows, fragment
                ours = ours or SCHEMA_ID in keys  # no other layout keeps the schema in a row
        if ours:
            raise CorruptGraphError("the manifest has no head row", part=MANIFEST)
        return None

    def all_rows(self, opened: Opened) -> pa.Table:
        """Every row, for formats without a tail."""
        with self._reading(opened):
            rows: pa.Table = opened.dataset.to_table()
            return rows

    def commit_rows(self, opened: Opened, fragment: Any, commit_id: str | None = None) -> pa.Table:
        """The commit rows of one fragment, or only the one of that id."""
        which = "" if commit_id is None else f" AND object_id = {sql.literal(commit_id)}"
        with self._reading(opened):
            rows: pa.Table = fragment.to_table(filter="object_type = 'graph_commit'" + which)
            return rows

    def newest_metadata(self, opened: Opened, fragment: Any, rows_max: int) -> pa.Table:
        """The metadata column of the newest rows of a history fragment, oldest first."""
        skipped = max(0, int(fragment.metadata.physical_rows) - rows_max)
        with self._reading(opened):
            rows: pa.Table = fragment.scanner(
                columns=["metadata"], offset=skipped, limit=rows_max
            ).to_table()
            return rows

    # --- writing -----------------------------------------------------------------------------

    def create(self, rows: pa.Table) -> Opened:
        """Make version 1 of main; `AlreadyExistsError` if there is a manifest."""
        uri, options = self._lines.uri(MANIFEST, None), self._root.storage_options
        try:
            draft = pylance.drafted(uri, rows, options)
            told = self._keep_data(None, draft.operation.fragments)
            self._world.steps.reach(Step.PUBLISH_STAGED)
            named = Transaction(
                draft.read_version, draft.operation, draft.uuid, as_properties(told)
            )
            made = pylance.commit_first(uri, named, options)
        except (OSError, ValueError) as cause:
            if not pylance.is_taken(cause):
                raise pylance.unavailable(cause, uri=self._root.uri, doing="write") from cause
            raise AlreadyExistsError(
                f"graph already initialized at '{self._root.uri}'",
                kind="graph",
                name=self._root.uri,
            ) from cause
        self._lines.sync(MANIFEST, None, made, since=0, uuid=draft.uuid)
        self._world.steps.reach(Step.PUBLISHED)
        return self.open_latest(None)

    def replace_tail(
        self, opened: Opened, *, kept: Sequence[Any], sealed: pa.Table | None, tail: pa.Table
    ) -> Opened:
        """Commit the next version: the kept fragments, then newly sealed rows, then the new tail.

        Raises `LostRaceError` if another commit was faster, whatever it did; any other error means
        that we do not know.
        """
        new: list[Any] = []
        told: dict[str, str] = {}
        for rows in (sealed, tail):  # the tail comes last: readers look there first
            if rows is not None:
                made = self._write(opened, rows)
                new, told = [*new, *made.fragments], {**told, **made.digests}
        self._world.steps.reach(Step.PUBLISH_STAGED)
        # Lance moves an append, an update or a delete on top of what came in between if it can.
        # An overwrite it never moves, so that exactly the version we have read is followed.
        assert new, "a publish writes at least a tail"
        fragments = [*(one.metadata for one in kept), *new]
        operation = LanceOperation.Overwrite(_stamped(opened.dataset.schema), fragments)
        return self._commit(opened, operation, Written(fragments=new, digests=told))

    def overwrite(self, opened: Opened, rows: pa.Table) -> Opened:
        """Commit the next version with these rows and their schema only."""
        made = self._write(opened, rows, mode="overwrite")
        self._world.steps.reach(Step.PUBLISH_STAGED)
        return self._commit(opened, LanceOperation.Overwrite(rows.schema, made.fragments), made)

    def restamp(self, opened: Opened) -> Opened:
        """Commit the next version: the same rows under our stamp."""
        fragments = [one.metadata for one in opened.fragments]
        schema = _stamped(opened.dataset.schema)
        return self._commit(opened, LanceOperation.Overwrite(schema, fragments))

    def _write(self, opened: Opened, rows: pa.Table, mode: str = "append") -> Written:
        with pylance.told_by(lambda cause: self._unavailable(cause, opened.branch_id)):
            fragments = list(write_fragments(rows, opened.dataset, mode=mode))
        return Written(fragments=fragments, digests=self._keep_data(opened.branch_id, fragments))

    def _commit(self, opened: Opened, operation: Any, new: Written = _NOTHING) -> Opened:
        """Danger: this makes a change visible. Whatever it relies on is on disk by now."""
        branch_id, name = opened.branch_id, str(uuid.uuid4())
        told = as_properties(new.digests)
        transaction = Transaction(opened.version, operation, name, told)
        try:
            dataset = pylance.commit(opened.dataset, transaction)
        except CommitConflictError as cause:
            self._discard(branch_id, new.fragments)
            raise LostRaceError(pylance.reason_of(cause)) from cause
        except (OSError, ValueError, RuntimeError) as cause:
            folder = self._lines.versions_folder(MANIFEST, branch_id)
            if folder is None or is_there(folder, opened.version + 1):
                raise
            # On local disk a version whose file is not there did not land and never will.
            raise self._unavailable(cause, branch_id) from cause
        if dataset.version != opened.version + 1:
            raise CorruptGraphError(
                f"a manifest commit landed at version {dataset.version} instead of "
                f"{opened.version + 1}: something else writes to the manifest",
                part=MANIFEST,
            )
        self._lines.sync(MANIFEST, branch_id, dataset, since=opened.version, uuid=name)
        self._world.steps.reach(Step.PUBLISHED)
        # A commit that lands between ours and this look has the next version's file, and the
        # probe asks for that first: the mark can only hide what it does not decide.
        mark = self._folder_mark(branch_id)
        return Opened(
            branch_id=branch_id, version=int(dataset.version), dataset=dataset, folder_mark=mark
        )

    def _discard(self, branch_id: str | None, fragments: Sequence[Any]) -> None:
        """Remove the files of a lost race. On an object store a repeated request may be told that
        it lost against itself: there the files stay until cleanup."""
        if self._root.local_path is None:
            return
        for fragment in fragments:
            for file in fragment.files:
                self._store.delete(f"{branch_folder(MANIFEST, branch_id)}/data/{file.path}")

    # --- branches and old versions -----------------------------------------------------------

    def fork(self, opened: Opened, branch_id: str) -> None:
        """Make a Lance branch at exactly the opened version."""
        self._lines.fork(
            MANIFEST, source_branch=opened.branch_id, version=opened.version, branch_id=branch_id
        )

    def drop(self, branch_id: str, *, is_leaf: bool = False) -> None:
        """Remove a Lance branch, whatever a crash left of it; a missing one is fine. `is_leaf`: no
        other was made from it, as the caller knows."""
        self._lines.drop_branch(MANIFEST, branch_id, is_leaf=is_leaf)

    def branch_ids(self) -> dict[str, Line]:
        """Every Lance branch of the manifest with what it was made from."""
        return self._lines.branches(MANIFEST)

    def versions(self, branch_id: str | None) -> tuple[int, ...]:
        """Every version of the branch's manifest that is still kept, oldest first."""
        with self._opening(branch_id):
            return self._lines.versions(MANIFEST, branch_id)

    def kept(self, opened: Opened) -> tuple[int, ...]:
        """Every version up to the opened one that is still kept, oldest first."""
        found = self.versions(opened.branch_id)
        return tuple(one for one in found if one <= opened.version) or found

    def drop_versions(self, unwanted: Mapping[str | None, Sequence[int]], how: How) -> Outcome:
        """Remove these versions, by branch id, and the files that nothing needs any more, or only
        look. The newest of a branch is never removed, nor one that a branch starts from."""
        lines = [branch_id for branch_id, versions in unwanted.items() if versions]
        if not lines:
            return Outcome()
        with self._opening(None):
            return self._lines.collect_lines(MANIFEST, lines, lambda line, _: unwanted[line], how)

    def remove_torn(self, branch_id: str | None) -> bool:
        """Free version numbers that a power cut left with half a file; False if there are none.

        Only for a publish: whoever publishes has looked under the lease before arming, so what is
        torn now belongs to the sidecar that this publish is made for.
        """
        folder = self._lines.versions_folder(MANIFEST, branch_id)
        return folder is not None and bool(remove_torn(folder))

    # --- what is wrong -----------------------------------------------------------------------

    def damaged(self, branch_id: str | None, version: int, *, reason: str) -> CorruptGraphError:
        """What is said about a version that is lost or not whole although it was acknowledged."""
        return self._lines.damaged(MANIFEST, branch_id, version, reason=reason)

    @contextmanager
    def _opening(self, branch_id: str | None, version: int | None = None) -> Iterator[None]:
        """Run the body; a version that is not there is told as people know it."""
        try:
            yield
        except NotFoundError as cause:
            raise self._absent(cause, branch_id, version) from cause

    def _reading(self, opened: Opened) -> AbstractContextManager[None]:
        return pylance.told_by(lambda cause: self._unreadable(cause, opened))

    def _unreadable(self, cause: BaseException, opened: Opened) -> OmnigraphError:
        """Files of a version that is still there must be there; of a cleaned one they are gone."""
        fault = self._lines.unreadable(
            (MANIFEST, opened.branch_id),
            opened.dataset,
            cause,
            doing="read",
            named=f"manifest version {opened.version}",
            is_damaged=pylance.is_damaged_version,
        )
        if isinstance(fault, NotFoundError):
            return self._absent(fault, opened.branch_id, opened.version)
        return fault

    def _absent(
        self, cause: NotFoundError, branch_id: str | None, version: int | None
    ) -> OmnigraphError:
        reason = str(cause.facts.get("reason", cause.message))
        if version is not None:
            return NotFoundError(
                f"manifest version {version} is not kept any more",
                kind="manifest version",
                name=str(version),
                hint="cleanup removes versions beyond the retention that was asked for",
                reason=reason,
            )
        # An init that died leaves its claim: without one, a manifest that was begun had been made.
        # To take its place for empty would let an init remove every table.
        begun = branch_id is None and self._store.keys_beginning(f"{MANIFEST}/_transactions/")
        if begun and self._store.read(INIT_CLAIM) is None:
            return CorruptGraphError.at(
                f"{MANIFEST}/_versions", doing="open the graph", reason=reason
            )
        if branch_id is not None:
            return NotFoundError(
                f"the branch with id '{branch_id}' is not there any more",
                kind="branch",
                name=branch_id,
                reason=reason,
            )
        return NotFoundError(
            f"there is no graph at '{self._root.uri}'",
            kind="graph",
            name=self._root.uri,
            hint="make one with `Graph.init` or `omnigraph init`",
            reason=reason,
        )

    def _unavailable(self, cause: BaseException, branch_id: str | None) -> OmnigraphError:
        return pylance.unavailable(cause, uri=self._lines.uri(MANIFEST, branch_id), doing="write")

    def _folder_mark(self, branch_id: str | None) -> int:
        folder = self._lines.versions_folder(MANIFEST, branch_id)
        return -1 if folder is None else _mark(folder)

    def _keep_data(self, branch_id: str | None, fragments: Sequence[Any]) -> dict[str, str]:
        folder = self._lines.uri(MANIFEST, branch_id)
        return self._lines.flusher.keep(folder, data_paths(folder, fragments))


def _mark(folder: str) -> int:
    """When a folder was last changed; -1 if it cannot be told."""
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return -1


def _stamped(schema: pa.Schema) -> pa.Schema:
    metadata: dict[bytes, bytes] = dict(schema.metadata or {})
    metadata[STAMP_KEY.encode()] = str(INTERNAL_SCHEMA_VERSION).encode()
    return schema.with_metadata(metadata)
