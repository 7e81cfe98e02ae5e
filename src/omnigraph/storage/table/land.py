"""Moving the heads of tables: the only file that commits to them.

Danger: a commit has three outcomes. It landed; it did not, and never will; or the store did not
say. The last two are different errors, and nothing may be deleted after the third.
"""

from __future__ import annotations

import logging
import uuid
from typing import Any, Final

import msgspec
from lance import LanceOperation as Op
from lance.commit import CommitConflictError
from lance.dataset import Transaction
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
from omnigraph.storage.lance import pylance
from omnigraph.storage.lance.line import Lines
from omnigraph.storage.lance.pylance import is_conflict, is_refusal, reason_of, translated
from omnigraph.storage.table.stage import COMMIT_PROPERTY, Rewrites, StagedWrite
from omnigraph.storage.table.upkeep import on_version

logger = logging.getLogger(__name__)

_REBASED: Final = frozenset(
    {"index", "schema", "restore"}
)  # no guard fits in: look first, under the lease


def land(lines: Lines, write: StagedWrite) -> Any:
    """Commit a staged write on its pinned version and return the new dataset."""
    if isinstance(write.transaction, Rewrites):
        after, made = _compact(lines, write, write.transaction), None
    else:
        after, made = _commit(lines, write), write.transaction_uuid
    if int(after.version) != write.version_after:
        raise IntegrityError(
            f"'{write.table_key}' landed at version {after.version}, not {write.version_after}",
            table_key=write.table_key,
            expected=write.version_after,
            actual=int(after.version),
        )
    lines.sync(write.location, write.branch, after, since=write.pinned_version, uuid=made)
    lines.remember(write.location, write.branch, after)
    return after


def restore(
    lines: Lines, location: str, branch: str | None, version: int, *, commit_id: str
) -> Any:
    """Make the content of an older version the newest one again, in the name of a graph commit;
    whatever came after is buried."""
    head, _ = lines.whole_head(location, branch)
    since = int(head.version)
    with translated(lines.uri(location, branch), doing="restore table"):
        transaction = Transaction(
            since, Op.Restore(version), str(uuid.uuid4()), {COMMIT_PROPERTY: commit_id}
        )
        after = pylance.commit(head, transaction)
    # Lance moves a restore over whatever came in between, so the version is not certain.
    lines.sync(location, branch, after, since=since)
    lines.remember(location, branch, after)
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


def _commit(lines: Lines, write: StagedWrite) -> Any:
    dataset = lines.at(write.location, write.branch, write.pinned_version)
    if write.operation in _REBASED:
        _require_head(lines, write)
    draft = write.transaction
    assert draft.read_version == write.pinned_version, "a write lands on what it was made on"
    properties = {COMMIT_PROPERTY: write.commit_id} if write.commit_id is not None else {}
    transaction = Transaction(draft.read_version, draft.operation, draft.uuid, properties)
    try:
        return pylance.commit(dataset, transaction)
    except CommitConflictError as cause:
        landed = _already_landed(lines, write)
        if landed is not None:
            return landed
        raise _moved(lines, write) from cause
    except (OSError, ValueError) as cause:
        if is_refusal(cause):
            raise _refused(write, cause) from cause
        return _after_a_fault(lines, write, cause)


def _compact(lines: Lines, write: StagedWrite, rewrites: Rewrites) -> Any:
    """Compaction takes two versions: Lance first reserves fragment numbers, then rewrites.

    Index segments that it relies on take one more before it.
    """
    _require_head(lines, write)
    base = write.pinned_version
    if rewrites.first is not None:
        base = int(_commit(lines, _index_part(write, rewrites.first)).version)
    try:
        # Lance moves the handle it commits through, so it must be nobody else's.
        own = lines.own(write.location, write.branch, base)
        indexed = bool(own.describe_indices())
        decode: Any = RewriteResult  # its stub forgets `from_json`
        results = [
            decode.from_json(on_version(result, base, indexed=indexed))
            for result in rewrites.results
        ]
        Compaction.commit(own, results, {})
    except (OSError, ValueError) as cause:
        if is_conflict(cause):
            raise _moved(lines, write) from cause
        if is_refusal(cause):
            raise _refused(write, cause) from cause
        raise _unknown(lines, write, cause) from cause
    return lines.head(write.location, write.branch)


def _index_part(write: StagedWrite, transaction: Any) -> StagedWrite:
    return msgspec.structs.replace(
        write,
        operation="index",
        version_after=write.pinned_version + 1,
        transaction_uuid=transaction.uuid,
        transaction=transaction,
    )


def _require_head(lines: Lines, write: StagedWrite) -> None:
    if lines.head_version(write.location, write.branch) != write.pinned_version:
        raise _moved(lines, write)


def _already_landed(lines: Lines, write: StagedWrite) -> Any | None:
    """Our own write, if a lost answer made the client send it twice."""
    head = lines.head(write.location, write.branch)
    if int(head.version) < write.version_after:
        return None
    # By identity, not by number: another writer may own the version.
    if pylance.transaction(head, write.version_after).uuid != write.transaction_uuid:
        return None
    return lines.at(write.location, write.branch, write.version_after)


def _after_a_fault(lines: Lines, write: StagedWrite, cause: Exception) -> Any:
    """The store failed in the middle: find out whether the write landed all the same."""
    local = lines.root.local_path is not None
    try:
        landed = _already_landed(lines, write)
    except OmnigraphError as second:
        if isinstance(second, CorruptGraphError) and local:
            raise  # a damaged version stands where ours belongs, so ours did not land
        raise _unknown(lines, write, cause) from cause
    if landed is not None:
        logger.warning("landed despite a fault", extra={"table": write.table_key})
        return landed
    if not local:
        # A request that we gave up on may still be on its way to the server.
        raise _unknown(lines, write, cause) from cause
    uri = lines.uri(write.location, write.branch)
    reason = reason_of(cause)
    raise StorageUnavailableError(
        f"cannot commit to table '{uri}': {reason}", uri=uri, reason=reason
    ) from cause


def _moved(lines: Lines, write: StagedWrite) -> ExpectedVersionMismatchError:
    return ExpectedVersionMismatchError(
        table_key=write.table_key,
        expected=write.pinned_version,
        actual=lines.head_version(write.location, write.branch),
    )


def _refused(write: StagedWrite, cause: BaseException) -> ConflictError:
    """A definite no. The writer undoes what landed before it, so that nothing of it stays."""
    return ConflictError(
        f"the change of '{write.table_key}' was refused: {reason_of(cause)}",
        hint="nothing was written; try again, and report this if it happens again",
        table_key=write.table_key,
    )


def _unknown(lines: Lines, write: StagedWrite, cause: BaseException) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"the store failed while '{write.table_key}' was being committed: {reason_of(cause)}",
        graph_commit_id=write.commit_id,
        table_key=write.table_key,
        uri=lines.uri(write.location, write.branch),
    )
