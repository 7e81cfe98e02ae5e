"""`__manifest` as a Lance dataset: open, read, commit, fork. What rows mean is not known here.

Every commit is an overwrite that keeps the history's fragments and replaces the tail. Lance refuses
an overwrite if anything at all was committed since the version it was made from, so exactly one of
two racing commits gets through.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import lance
import pyarrow as pa
from lance import Session  # type: ignore[attr-defined]
from lance.commit import CommitConflictError
from lance.dataset import LanceDataset, LanceOperation, Transaction
from lance.fragment import write_fragments

from omnigraph.errors import (
    AlreadyExistsError,
    CorruptGraphError,
    NotFoundError,
    OmnigraphError,
    StorageUnavailableError,
)
from omnigraph.model.limits import INTERNAL_SCHEMA_VERSION
from omnigraph.model.ports import ObjectStore, World
from omnigraph.model.steps import Step
from omnigraph.storage.damage import blamed, require_home
from omnigraph.storage.durable import Flusher
from omnigraph.storage.faults import (
    corrupt,
    is_damaged_version,
    is_foreign,
    is_missing,
    reason_of,
    steadily,
)
from omnigraph.storage.layout import INIT_CLAIM, MANIFEST, branch_folder
from omnigraph.storage.manifest_rows import ROW_SCHEMA, STAMP_KEY, holds_head, holds_schema
from omnigraph.storage.objects import Root
from omnigraph.storage.torn import (
    hinted_torn,
    is_whole,
    newest_whole,
    remove_torn,
    version_file,
)

FIRST_STAMP: Final = 4  # what our first landing wrote; the reference's 0.8 has it too


class LostRaceError(Exception):
    """Another commit took the version: look again. It never leaves this room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
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
    def fragments(self) -> Sequence[Any]:
        return tuple(self.dataset.get_fragments())


class ManifestDatasets:
    """The one place that speaks to Lance about `__manifest`."""

    def __init__(self, root: Root, world: World, store: ObjectStore) -> None:
        self._root = root
        self._world = world
        self._store = store
        self._flusher = Flusher(root, world)
        self._session = Session()

    # --- opening -----------------------------------------------------------------------------

    def open_latest(self, branch_id: str | None) -> Opened:
        """The newest version, found by a listing."""
        mark = self._folder_mark(branch_id)
        with self._opening(branch_id):
            dataset, torn = self._latest(branch_id)
        return Opened(
            branch_id=branch_id,
            version=dataset.version,
            dataset=dataset,
            folder_mark=mark,
            torn=torn,
        )

    def open_version(self, branch_id: str | None, version: int) -> Opened:
        """Exactly this version."""
        with self._opening(branch_id, version):
            dataset = self._dataset(branch_id, version)
        return Opened(branch_id=branch_id, version=version, dataset=dataset, folder_mark=-1)

    def newest(self, known: Opened) -> Opened:
        """The newest version; `known` itself if nothing has happened since.

        On local disk that is two `stat` calls: the file of the next version, and the folder (whose
        time changes if old versions were cleaned up around us). On an object store it is one
        listing, and version files sort newest first.
        """
        folder = self._versions_folder(known.branch_id)
        if folder is not None:
            following = os.path.join(folder, version_file(known.version + 1))
            unchanged = self._folder_mark(known.branch_id) == known.folder_mark
            if unchanged and not os.path.exists(following):
                return known
            return self.open_latest(known.branch_id)
        with self._opening(known.branch_id):
            latest = known.dataset.latest_version
        return known if latest == known.version else self.open_version(known.branch_id, latest)

    def is_followed(self, opened: Opened) -> bool:
        """Whether a later version was begun: Lance writes down the transaction first.

        That version is there, or its write has a sidecar, or its file was lost.
        """
        return bool(self._attempts(opened))

    def forget_attempts(self, opened: Opened) -> None:
        """Take away what is left of a publish that did not land, while its sidecar explains it."""
        folder = self._versions_folder(opened.branch_id)
        if folder is not None and opened.torn:
            remove_torn(folder)
        for key in self._attempts(opened):
            self._store.delete(key)

    def _attempts(self, opened: Opened) -> list[str]:
        """The transactions that were made on this version, but for the one that made it."""
        folder = branch_folder(MANIFEST, opened.branch_id)
        found = self._store.keys_beginning(f"{folder}/_transactions/{opened.version}-")
        if found:
            # A fork's first version has the number of the one it was made from.
            with self._opening(opened.branch_id, opened.version):
                own = self._unshared(opened).read_transaction(opened.version)
            found = [key for key in found if own is None or own.uuid not in key]
        return list(found)

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
                if holds_head(rows):
                    return rows, fragment
                ours = ours or holds_schema(rows)
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
        which = "" if commit_id is None else f" AND object_id = '{_escaped(commit_id)}'"
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
        uri = self._root.child(MANIFEST)
        options = self._root.storage_options
        try:
            staged: Any = write_fragments(
                rows, uri, mode="create", return_transaction=True, storage_options=options
            )
            self._flush_data(None, staged.operation.fragments)
            self._world.steps.reach(Step.PUBLISH_STAGED)
            LanceDataset.commit(
                uri,
                staged,
                enable_stable_row_ids=True,
                storage_options=options,
                max_retries=0,
            )
        except (OSError, ValueError) as cause:
            raise self._create_failed(cause) from cause
        self._flush_commit(None, read_version=0, number=1, transaction=staged.uuid)
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
        for rows in (sealed, tail):  # the tail comes last: readers look there first
            if rows is not None:
                new += self._write(opened, rows)
        self._world.steps.reach(Step.PUBLISH_STAGED)
        # Lance moves an append, an update or a delete on top of what came in between if it can.
        # An overwrite it never moves, so that exactly the version we have read is followed.
        fragments = [*(one.metadata for one in kept), *new]
        operation = LanceOperation.Overwrite(_stamped(opened.dataset.schema), fragments)
        return self._commit(opened, operation, new)

    def overwrite(self, opened: Opened, rows: pa.Table) -> Opened:
        """Commit the next version with these rows and their schema only."""
        fragments = self._write(opened, rows, mode="overwrite")
        self._world.steps.reach(Step.PUBLISH_STAGED)
        return self._commit(opened, LanceOperation.Overwrite(rows.schema, fragments), fragments)

    def restamp(self, opened: Opened) -> Opened:
        """Commit the next version: the same rows under our stamp."""
        fragments = [one.metadata for one in opened.fragments]
        schema = _stamped(opened.dataset.schema)
        return self._commit(opened, LanceOperation.Overwrite(schema, fragments))

    def _write(self, opened: Opened, rows: pa.Table, mode: str = "append") -> list[Any]:
        with self._writing(opened.branch_id):
            fragments = list(write_fragments(rows, opened.dataset, mode=mode))
        self._flush_data(opened.branch_id, fragments)
        return fragments

    def _commit(self, opened: Opened, operation: Any, new: Sequence[Any] = ()) -> Opened:
        transaction = Transaction(
            read_version=opened.version, operation=operation, uuid=str(uuid.uuid4())
        )
        try:
            dataset = LanceDataset.commit(opened.dataset, transaction, max_retries=0)
        except CommitConflictError as cause:
            self._discard(opened.branch_id, new)
            raise LostRaceError(reason_of(cause)) from cause
        except (OSError, ValueError, RuntimeError) as cause:
            folder = self._versions_folder(opened.branch_id)
            following = version_file(opened.version + 1)
            if folder is None or os.path.exists(os.path.join(folder, following)):
                raise
            # On local disk a version whose file is not there did not land and never will.
            raise self._unavailable(cause, opened.branch_id, "write") from cause
        if dataset.version != opened.version + 1:
            raise CorruptGraphError(
                f"a manifest commit landed at version {dataset.version} instead of "
                f"{opened.version + 1}: something else writes to the manifest",
                part=MANIFEST,
            )
        self._flush_commit(
            opened.branch_id,
            read_version=opened.version,
            number=dataset.version,
            transaction=transaction.uuid,
        )
        self._world.steps.reach(Step.PUBLISHED)
        return self._committed(opened.branch_id, dataset)

    def _discard(self, branch_id: str | None, fragments: Sequence[Any]) -> None:
        """Remove the files of a lost race. On an object store a repeated request may be told that
        it lost against itself: there the files stay until cleanup."""
        if self._root.local_path is None:
            return
        for fragment in fragments:
            for file in fragment.files:
                self._store.delete(f"{branch_folder(MANIFEST, branch_id)}/data/{file.path}")

    def _committed(self, branch_id: str | None, dataset: Any) -> Opened:
        # A commit that lands between ours and this look has the next version's file, and the
        # probe asks for that first: the mark can only hide what it does not decide.
        mark = self._folder_mark(branch_id)
        return Opened(
            branch_id=branch_id, version=dataset.version, dataset=dataset, folder_mark=mark
        )

    # --- branches ----------------------------------------------------------------------------

    def fork(self, opened: Opened, branch_id: str) -> None:
        """Make a Lance branch at exactly the opened version."""
        with self._writing(branch_id):
            self._unshared(opened).create_branch(branch_id)
        if self._root.local_path is not None:
            folder = self._local(branch_folder(MANIFEST, branch_id))
            self._flusher.flush_tree(folder)
            self._flusher.flush([self._local(f"{MANIFEST}/_refs/branches/{branch_id}.json")])

    def drop(self, branch_id: str) -> None:
        """Remove a Lance branch, whatever a crash left of it; a missing one is fine."""
        with self._opening(None):
            main, _ = self._latest(None)
            others = steadily(lambda: _delete_listed(main, branch_id))
        # Names from before a migration nest: the folder of `a` holds the folder of `a/b`.
        if not any(name.startswith(f"{branch_id}/") for name in others):
            self._store.delete_prefix(branch_folder(MANIFEST, branch_id))

    def branch_ids(self) -> dict[str, dict[str, Any]]:
        """Every Lance branch of the manifest with what Lance says about it."""
        with self._opening(None):
            main, _ = self._latest(None)
            return dict(steadily(main.branches.list))

    # --- retention ---------------------------------------------------------------------------

    def versions(self, branch_id: str | None) -> list[int]:
        """Every version of the branch's manifest that is still kept, oldest first."""
        with self._opening(branch_id):
            listed = self._dataset(branch_id, None).version_refs()
        return sorted(int(one["version"]) for one in listed)

    def drop_versions(
        self, branch_id: str | None, versions: Sequence[int], *, preview: bool = False
    ) -> tuple[int, int]:
        """Remove these versions and the files that only they use, or only look; how many versions
        and bytes that is. The newest is never removed, nor one that a branch was made from."""
        if not versions:
            return 0, 0
        old = sorted(versions)
        with self._opening(branch_id):
            newest = self._dataset(branch_id, None)
            if preview:
                told = steadily(lambda: newest.explain_cleanup_old_versions(versions=old)).stats
            else:
                told = steadily(lambda: newest.cleanup_old_versions(versions=old))
        return int(told.old_versions), int(told.bytes_removed)

    def remove_torn(self, branch_id: str | None) -> bool:
        """Free version numbers that a power cut left with half a file; False if there are none.

        Only for a publish: whoever publishes has looked under the lease before arming, so what is
        torn now belongs to the sidecar that this publish is made for.
        """
        folder = self._versions_folder(branch_id)
        return folder is not None and bool(remove_torn(folder))

    # --- details -----------------------------------------------------------------------------

    def _latest(self, branch_id: str | None) -> tuple[Any, tuple[int, ...]]:
        """The newest whole version, and the versions above it that are not whole."""
        folder = self._versions_folder(branch_id)
        if folder is None:
            return self._dataset(branch_id, None), ()
        try:
            if not hinted_torn(folder):
                dataset = self._dataset(branch_id, None)
                if is_whole(folder, dataset.version):
                    return dataset, ()
        except BaseException as cause:
            if not is_foreign(cause) or not newest_whole(folder).torn:
                raise
        found = newest_whole(folder)
        if found.version is None and not found.torn:
            return self._dataset(branch_id, None), ()  # all of it went meanwhile, as a branch does
        if found.version is None:
            raise self.damaged(branch_id, found.torn[0], reason="it is not whole")
        return self._dataset(branch_id, found.version), found.torn

    def damaged(self, branch_id: str | None, version: int, *, reason: str) -> CorruptGraphError:
        """What is said about a version that is lost or not whole although it was acknowledged."""
        folder = branch_folder(MANIFEST, branch_id)
        return corrupt(
            f"{folder}/_versions/{version_file(version)}", doing="open the graph", reason=reason
        )

    def _dataset(self, branch_id: str | None, version: int | None) -> Any:
        dataset = lance.dataset(
            self._root.child(branch_folder(MANIFEST, branch_id)),
            version=version,
            storage_options=self._root.storage_options,
            session=self._session,
        )
        _ = dataset.schema  # Lance reads it only now, and panics over a type it does not know
        if branch_id is not None:
            require_home(dataset, self._root, branch_folder(MANIFEST, branch_id))
        return dataset

    def _unshared(self, opened: Opened) -> Any:
        """A handle of one's own: the few calls that lock theirs would fail other threads'."""
        return self._dataset(opened.branch_id, opened.version)

    @contextmanager
    def _opening(self, branch_id: str | None, version: int | None = None) -> Iterator[None]:
        try:
            yield
        except BaseException as cause:
            if not is_foreign(cause):
                raise
            if is_missing(cause):
                raise self._absent(cause, branch_id, version) from cause
            if is_damaged_version(cause):
                raise self._broken(cause, branch_id, version) from cause
            raise self._unavailable(cause, branch_id, "read") from cause

    @contextmanager
    def _reading(self, opened: Opened) -> Iterator[None]:
        try:
            yield
        except BaseException as cause:
            if not is_foreign(cause):
                raise
            raise self._unreadable(cause, opened) from cause

    @contextmanager
    def _writing(self, branch_id: str | None) -> Iterator[None]:
        try:
            yield
        except BaseException as cause:
            if not is_foreign(cause):
                raise
            raise self._unavailable(cause, branch_id, "write") from cause

    def _unreadable(self, cause: BaseException, opened: Opened) -> OmnigraphError:
        """Files of a version that is still there must be there; of a cleaned one they are gone."""
        if not is_missing(cause) and not is_damaged_version(cause):
            return self._unavailable(cause, opened.branch_id, "read")
        folder = branch_folder(MANIFEST, opened.branch_id)
        if self._store.read(f"{folder}/_versions/{version_file(opened.version)}") is None:
            return self._absent(cause, opened.branch_id, opened.version)
        root = self._root.local_path
        part = blamed(opened.dataset, self._local(folder), root) if root is not None else None
        return corrupt(
            part or folder, doing=f"read manifest version {opened.version}", reason=reason_of(cause)
        )

    def _absent(
        self, cause: BaseException, branch_id: str | None, version: int | None
    ) -> OmnigraphError:
        reason = reason_of(cause)
        if version is not None:
            return NotFoundError(
                f"manifest version {version} is not kept any more",
                kind="manifest version",
                name=str(version),
                hint="cleanup removes versions beyond the retention that was asked for",
                reason=reason,
            )
        if branch_id is None and self._was_made():
            return corrupt(f"{MANIFEST}/_versions", doing="open the graph", reason=reason)
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
            hint="make one with `omnigraph init`",
            reason=reason,
        )

    def _was_made(self) -> bool:
        """Whether a manifest that is not there had been: an init that died leaves its claim. To
        take its place for empty would let an init remove every table."""
        begun = self._store.keys_beginning(f"{MANIFEST}/_transactions/")
        return bool(begun) and self._store.read(INIT_CLAIM) is None

    def _broken(
        self, cause: BaseException, branch_id: str | None, version: int | None
    ) -> CorruptGraphError:
        name = "" if version is None else f"/{version_file(version)}"
        part = f"{branch_folder(MANIFEST, branch_id)}/_versions{name}"
        return corrupt(part, doing="open the graph", reason=reason_of(cause))

    def _unavailable(
        self, cause: BaseException, branch_id: str | None, doing: str
    ) -> OmnigraphError:
        uri = self._root.child(branch_folder(MANIFEST, branch_id))
        reason = reason_of(cause)
        return StorageUnavailableError(f"cannot {doing} '{uri}': {reason}", uri=uri, reason=reason)

    def _create_failed(self, cause: Exception) -> OmnigraphError:
        uri = self._root.uri
        conflict = isinstance(cause, CommitConflictError) or "already exists" in str(cause).lower()
        if conflict:
            return AlreadyExistsError(
                f"graph already initialized at '{uri}'", kind="graph", name=uri
            )
        reason = reason_of(cause)
        return StorageUnavailableError(f"cannot write '{uri}': {reason}", uri=uri, reason=reason)

    def _local(self, location: str) -> str:
        assert self._root.local_path is not None, "only local graphs have paths"
        return os.path.join(self._root.local_path, *location.split("/"))

    def _versions_folder(self, branch_id: str | None) -> str | None:
        if self._root.local_path is None:
            return None
        return os.path.join(self._local(branch_folder(MANIFEST, branch_id)), "_versions")

    def _folder_mark(self, branch_id: str | None) -> int:
        folder = self._versions_folder(branch_id)
        if folder is None:
            return -1
        try:
            return os.stat(folder).st_mtime_ns
        except OSError:
            return -1

    def _flush_data(self, branch_id: str | None, fragments: Sequence[Any]) -> None:
        if self._flusher.active:
            folder = self._local(branch_folder(MANIFEST, branch_id))
            self._flusher.flush(
                os.path.join(folder, "data", file.path)
                for fragment in fragments
                for file in fragment.files
            )

    def _flush_commit(
        self, branch_id: str | None, *, read_version: int, number: int, transaction: str
    ) -> None:
        if self._flusher.active:
            folder = self._local(branch_folder(MANIFEST, branch_id))
            self._flusher.flush(
                [
                    os.path.join(folder, "_transactions", f"{read_version}-{transaction}.txn"),
                    os.path.join(folder, "_versions", version_file(number)),
                ]
            )


def _stamped(schema: pa.Schema) -> pa.Schema:
    metadata: dict[bytes, bytes] = dict(schema.metadata or {})
    metadata[STAMP_KEY.encode()] = str(INTERNAL_SCHEMA_VERSION).encode()
    return schema.with_metadata(metadata)


def _delete_listed(main: Any, branch_id: str) -> set[str]:
    """Delete the branch if Lance lists it; the names of all others."""
    listed = set(main.branches.list())
    if branch_id in listed:
        main.branches.delete(branch_id)
    return listed - {branch_id}


def _escaped(text: str) -> str:
    return text.replace("'", "''")
