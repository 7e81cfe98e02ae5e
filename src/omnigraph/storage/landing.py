"""Making tables and moving their heads: the only file that commits to tables."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from glob import escape, glob
from typing import Any, Final

import lance
import pyarrow as pa
from lance import LanceOperation as Op
from lance.commit import CommitConflictError
from lance.dataset import Transaction
from lance.fragment import write_fragments
from lance.optimize import Compaction, RewriteResult

from omnigraph.errors import (
    ConflictError,
    CorruptGraphError,
    ExpectedVersionMismatchError,
    IntegrityError,
    OmnigraphError,
    OutcomeUnknownError,
    StorageUnavailableError,
)
from omnigraph.model.graph import TableEntry
from omnigraph.storage.compaction import on_version
from omnigraph.storage.faults import is_damage, is_refusal, reason_of, translated
from omnigraph.storage.handles import Handles
from omnigraph.storage.staged import COMMIT_PROPERTY, Rewrites, StagedWrite
from omnigraph.storage.torn import newest_whole, remove_torn

logger = logging.getLogger(__name__)

_STORAGE_VERSION: Final = "2.2"
_U64_MAX: Final = (1 << 64) - 1
_REBASED: Final = frozenset(
    {"index", "schema", "restore"}
)  # no guard fits in: look first, under the lease


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionTransaction:
    """What made one version of a table. `uuid` is None where Lance cannot tell."""

    version: int
    uuid: str | None
    operation: str
    read_version: int | None = None  # the version it was made on
    properties: Mapping[str, str] = field(default_factory=dict)


def create(uri: str, schema: pa.Schema, storage_options: Mapping[str, str]) -> Any:
    """Make an empty dataset as the house wants them; OSError if one is there or wins the race."""
    options = dict(storage_options) or None
    draft = write_fragments(
        schema.empty_table(),
        uri,
        schema=schema,
        mode="create",
        return_transaction=True,
        data_storage_version=_STORAGE_VERSION,
        enable_stable_row_ids=True,
        storage_options=options,
    )
    # With retries a late racer would replace the winner's table.
    return lance.LanceDataset.commit(
        uri,
        draft,
        max_retries=0,
        enable_stable_row_ids=True,
        enable_v2_manifest_paths=True,
        storage_options=options,
    )


def land(handles: Handles, write: StagedWrite) -> Any:
    """Commit a staged write on its pinned version and return the new dataset."""
    if isinstance(write.transaction, Rewrites):
        after = _compact(handles, write, write.transaction)
    else:
        after = _commit(handles, write)
    if int(after.version) != write.version_after:
        raise IntegrityError(
            f"'{write.table_key}' landed at version {after.version}, not {write.version_after}",
            table_key=write.table_key,
            expected=write.version_after,
            actual=int(after.version),
        )
    _settle(handles, write.location, write.branch, (write.pinned_version, after))
    return after


def restore(
    handles: Handles, location: str, branch: str | None, version: int, *, commit_id: str
) -> Any:
    """Make the content of an older version the newest one again, in the name of a graph commit;
    whatever came after is buried."""
    uri = handles.uri(location, branch)
    head = handles.whole_head(location, branch)
    with translated(uri, doing="restore table"):
        transaction = Transaction(
            int(head.version), Op.Restore(version), str(uuid.uuid4()), {COMMIT_PROPERTY: commit_id}
        )
        after = lance.LanceDataset.commit(head, transaction, max_retries=0)
    _settle(handles, location, branch, (int(head.version), after))
    return after


def staged_restore(entry: TableEntry, *, over: int) -> StagedWrite:
    """The content of a published version as a write that lands on `over` alone."""
    assert over > entry.version, "there is nothing to bury"
    name = str(uuid.uuid4())
    return StagedWrite(
        table_key=entry.table_key,
        location=entry.location,
        branch=entry.branch,
        pinned_version=over,
        version_after=over + 1,
        transaction_uuid=name,
        operation="restore",
        row_count_after=entry.row_count,
        transaction=Transaction(over, Op.Restore(entry.version), name, {}),
    )


def clear_torn(handles: Handles, location: str, branch: str | None, *, above: int) -> bool:
    """Take away what a power cut left of the version after `above`; False if nothing was there.

    Only for recovery, which holds the sidecar of the write that the torn version belongs to.
    """
    if handles.root.local_path is None:
        return False
    folder = handles.versions_folder(location, branch)
    found = newest_whole(folder)
    if not found.torn or found.version is None or found.version < above:
        return False  # nothing torn, or a published version is: that is damage, and stays
    gone = remove_torn(folder)
    logger.warning("removed torn versions", extra={"table": location, "versions": gone})
    return True


def transactions(
    handles: Handles, location: str, branch: str | None, *, after: int, upto: int
) -> list[VersionTransaction]:
    """What made the versions in (after, upto], oldest first."""
    if upto <= after:
        return []
    dataset = handles.whole_head(location, branch)
    with translated(handles.uri(location, branch), doing="read history of table"):
        return [_transaction(dataset, version) for version in range(after + 1, upto + 1)]


def _settle(handles: Handles, location: str, branch: str | None, span: tuple[int, Any]) -> None:
    """Make the versions after `span[0]` survive a power cut, and keep the new handle."""
    since, dataset = span
    if handles.flusher.active:
        folder = handles.uri(location, branch)
        paths: list[str] = []
        for version in range(since + 1, int(dataset.version) + 1):
            paths.append(f"{folder}/_versions/{_U64_MAX - version}.manifest")
            made = _transaction(dataset, version)
            if made.uuid is not None:
                paths.append(f"{folder}/_transactions/{made.read_version}-{made.uuid}.txn")
            else:
                # A compaction that moved indexes does not tell its name.
                for read in range(since, version):
                    paths.extend(glob(f"{escape(folder)}/_transactions/{read}-*.txn"))
        handles.flusher.flush(paths)
    handles.remember(location, branch, dataset)


def _commit(handles: Handles, write: StagedWrite) -> Any:
    dataset = handles.at(write.location, write.branch, write.pinned_version)
    if write.operation in _REBASED:
        _require_head(handles, write)
    draft = write.transaction
    properties = {COMMIT_PROPERTY: write.commit_id} if write.commit_id is not None else {}
    transaction = Transaction(draft.read_version, draft.operation, draft.uuid, properties)
    try:
        return lance.LanceDataset.commit(dataset, transaction, max_retries=0)
    except CommitConflictError as cause:
        landed = _already_landed(handles, write)
        if landed is not None:
            return landed
        raise _moved(handles, write) from cause
    except (OSError, ValueError) as cause:
        if is_refusal(cause):
            raise _refused(write, cause) from cause
        return _after_a_fault(handles, write, cause)


def _compact(handles: Handles, write: StagedWrite, rewrites: Rewrites) -> Any:
    """Compaction takes two versions: Lance first reserves fragment numbers, then rewrites.

    Index segments that it relies on take one more before it.
    """
    _require_head(handles, write)
    base = write.pinned_version
    if rewrites.first is not None:
        base = int(_commit(handles, _index_part(write, rewrites.first)).version)
    try:
        # Lance moves the handle it commits through, so it must be nobody else's.
        own = handles.unshared(write.location, write.branch, base)
        indexed = bool(own.describe_indices())
        decode: Any = RewriteResult  # its stub forgets `from_json`
        results = [
            decode.from_json(on_version(result, base, indexed=indexed))
            for result in rewrites.results
        ]
        Compaction.commit(own, results, {})
    except (OSError, ValueError) as cause:
        if _is_conflict(cause):
            raise _moved(handles, write) from cause
        if is_refusal(cause):
            raise _refused(write, cause) from cause
        raise _unknown(handles, write, cause) from cause
    return handles.head(write.location, write.branch)


def _is_conflict(cause: BaseException) -> bool:
    """Whether the library says, in one of its ways, that somebody else was there before."""
    text = str(cause).lower()
    return "conflict" in text or "incompatible transaction" in text


def _index_part(write: StagedWrite, transaction: Any) -> StagedWrite:
    return replace(
        write,
        operation="index",
        version_after=write.pinned_version + 1,
        transaction_uuid=transaction.uuid,
        transaction=transaction,
    )


def _require_head(handles: Handles, write: StagedWrite) -> None:
    if int(handles.head(write.location, write.branch).version) != write.pinned_version:
        raise _moved(handles, write)


def _already_landed(handles: Handles, write: StagedWrite) -> Any | None:
    """Our own write, if a lost answer made the client send it twice."""
    head = handles.head(write.location, write.branch)
    if int(head.version) < write.version_after:
        return None
    if _transaction(head, write.version_after).uuid != write.transaction_uuid:
        return None
    return handles.at(write.location, write.branch, write.version_after)


def _after_a_fault(handles: Handles, write: StagedWrite, cause: Exception) -> Any:
    """The store failed in the middle: find out whether the write landed all the same."""
    try:
        landed = _already_landed(handles, write)
    except OmnigraphError as second:
        if isinstance(second, CorruptGraphError) and handles.root.local_path is not None:
            raise  # a damaged version stands where ours belongs, so ours did not land
        raise _unknown(handles, write, cause) from cause
    if landed is not None:
        logger.warning("landed despite a fault", extra={"table": write.table_key})
        return landed
    if handles.root.local_path is None:
        # A request that we gave up on may still be on its way to the server.
        raise _unknown(handles, write, cause) from cause
    uri = handles.uri(write.location, write.branch)
    reason = reason_of(cause)
    raise StorageUnavailableError(
        f"cannot commit to table '{uri}': {reason}", uri=uri, reason=reason
    ) from cause


def _moved(handles: Handles, write: StagedWrite) -> ExpectedVersionMismatchError:
    return ExpectedVersionMismatchError(
        table_key=write.table_key,
        expected=write.pinned_version,
        actual=int(handles.head(write.location, write.branch).version),
    )


def _refused(write: StagedWrite, cause: BaseException) -> ConflictError:
    """A definite no. The writer undoes what landed before it, so that nothing of it stays."""
    return ConflictError(
        f"the change of '{write.table_key}' was refused: {reason_of(cause)}",
        hint="nothing was written; try again, and report this if it happens again",
        table_key=write.table_key,
    )


def _unknown(handles: Handles, write: StagedWrite, cause: BaseException) -> OutcomeUnknownError:
    uri = handles.uri(write.location, write.branch)
    return OutcomeUnknownError(
        f"the store failed while '{write.table_key}' was being committed: {reason_of(cause)}",
        graph_commit_id=write.commit_id,
        table_key=write.table_key,
        uri=uri,
    )


def _transaction(dataset: Any, version: int) -> VersionTransaction:
    try:
        made = dataset.read_transaction(version)
    except TypeError:
        # The library cannot show a compaction that also moved indexes.
        return VersionTransaction(version=version, uuid=None, operation="Rewrite")
    except (OSError, ValueError) as cause:
        if not is_damage(cause):
            raise
        # Synced together with its version: this one was never acknowledged.
        return VersionTransaction(version=version, uuid=None, operation="Unreadable")
    if made is None:
        return VersionTransaction(version=version, uuid=None, operation="Unknown")
    name = type(made.operation).__name__
    return VersionTransaction(
        version=version,
        uuid=made.uuid,
        operation="ReserveFragments" if name == "BaseOperation" else name,
        read_version=int(made.read_version),
        properties=dict(made.transaction_properties or {}),
    )
