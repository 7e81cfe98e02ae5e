"""Settling one unfinished write out of turn: for the writer that made it, or for a person.

A writer whose write failed after it was armed is its own witness: whatever recovery would do later
it does at once, under the lease. A person deals with what recovery alone would leave in place.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.errors import (
    ConflictError,
    LeaseUnavailableError,
    NotFoundError,
    OutcomeUnknownError,
    RecoveryRequiredError,
)
from omnigraph.model.graph import Snapshot
from omnigraph.model.limits import LEASE_WAIT_MS_MAX
from omnigraph.model.steps import Step
from omnigraph.storage.commit.audit import RecoveryRecord
from omnigraph.storage.commit.judge import Abort, RollForward
from omnigraph.storage.commit.outcome import Outcome
from omnigraph.storage.commit.recovery import Recovery, Resolution
from omnigraph.storage.commit.sidecar import Sidecar
from omnigraph.storage.objects.lease import Lease

logger = logging.getLogger(__name__)


# --- by the writer ---------------------------------------------------------------------------


def resolve_doubt(
    recovery: Recovery, sidecar: Sidecar, outcome: Outcome, lease: Lease, cause: BaseException
) -> Snapshot:
    """Something failed after arming. Settle it now if the store lets us: either the write is
    published after all, or all of it is undone; else say that we do not know."""
    store = recovery.store
    store.world.steps.reach(Step.WRITE_IN_DOUBT)
    # A conflict is a definite no: nothing of this write may stay. Everything else is decided
    # by what landed.
    how: Resolution = "roll-back" if isinstance(cause, ConflictError) else "auto"
    try:
        lost = _loss_of(lease)
        with _regained(recovery, sidecar.branch_id, lease) as held:
            landed = _settled(recovery, sidecar, held, how)
        if landed:
            # Whatever failed, it failed behind the publish: the caller gets what it asked for.
            outcome.land()
            if isinstance(cause, Exception):
                return store.manifests.at_commit(sidecar.graph_commit_id)
    except Exception as second:
        logger.warning("recovery is due", extra={"operation": sidecar.operation_id})
        if not isinstance(cause, Exception):
            raise cause from second  # its note says that the outcome is not known
        # Neither yes nor no was found out: nothing is deleted, and the caller can look it up.
        raise OutcomeUnknownError(
            f"commit {sidecar.graph_commit_id} may or may not have landed: {cause}",
            graph_commit_id=sidecar.graph_commit_id,
            operation_id=sidecar.operation_id,
            second_failure=str(second),
        ) from cause
    if not landed:
        outcome.come_to_nothing()
    if lost is not None and isinstance(cause, ConflictError):
        raise lost from cause  # what was in the way is the trace of whoever had the lease
    raise cause


def _settled(recovery: Recovery, sidecar: Sidecar, lease: Lease, how: Resolution) -> bool:
    """Settle our own sidecar, and whether the commit is in the history then."""
    verdict = recovery.settle(sidecar.operation_id, lease, how=how)
    assert how == "auto" or not isinstance(verdict, RollForward), "a definite no is never published"
    branch = recovery.branch_of(sidecar)
    if branch is None:
        return False
    # Asked of the history, not of the verdict: somebody else may have published it for us.
    landed = recovery.store.manifests.find_commit(branch, sidecar.graph_commit_id) is not None
    if verdict is None:
        # Somebody else settled the write while we were asleep; what we did since is not theirs.
        recovery.undo_late(sidecar, lease)
    return landed


@contextmanager
def _regained(recovery: Recovery, branch_id: str | None, lease: Lease) -> Iterator[Lease]:
    """The lease, taken again if it was lost: nobody settles anything without it."""
    if _loss_of(lease) is None:
        yield lease
        return
    # Another one may hold it and settle our write just now; then we find that done when we get it.
    lease.release()
    with recovery.store.leases.hold(branch_id, wait_ms=LEASE_WAIT_MS_MAX) as again:
        assert _loss_of(again) is None, "what was just taken is held"
        yield again


def _loss_of(lease: Lease) -> LeaseUnavailableError | None:
    try:
        lease.check()
    except LeaseUnavailableError as lost:
        return lost
    return None


# --- by a person -----------------------------------------------------------------------------


def resolve_by_hand(recovery: Recovery, operation_id: str, *, how: Resolution) -> RecoveryRecord:
    """Settle one unfinished write, or tell how it was settled before.

    `RecoveryRequiredError` if the write can neither be finished nor undone as asked; then its
    sidecar stays where it is.
    """
    # Only names that are there: an operation id is never taken as a path.
    if operation_id in recovery.sidecars.operation_ids():
        _settle(recovery, operation_id, how)
    for record in recovery.audit.records():
        if record.operation_id == operation_id:
            return record
    raise NotFoundError(
        f"no unfinished write and no recovery has the operation id '{operation_id}'",
        kind="operation",
        name=operation_id,
        hint="`omnigraph recovery list` shows them",
    )


def _settle(recovery: Recovery, operation_id: str, how: Resolution) -> None:
    sidecar = recovery.sidecars.read(operation_id)
    # What an unreadable sidecar belongs to is not known; main's lease keeps two people apart.
    branch_id = sidecar.branch_id if isinstance(sidecar, Sidecar) else None
    verdict = recovery.store.leases.holding(
        branch_id,
        lambda lease: recovery.settle(operation_id, lease, how=how),
        wait_ms=LEASE_WAIT_MS_MAX,
    )
    if isinstance(verdict, Abort):
        raise RecoveryRequiredError(
            f"the unfinished write '{operation_id}' cannot be settled: {verdict.reason}",
            operation_id=operation_id,
            tables=list(verdict.tables),
        )
