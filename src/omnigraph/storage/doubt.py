"""A writer whose write failed after it was armed finds out what became of it, and settles it.

The writer is its own witness. Whatever recovery would do later it does at once, under the lease.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from omnigraph.errors import ConflictError, LeaseUnavailableError, OutcomeUnknownError
from omnigraph.model.graph import Snapshot
from omnigraph.model.limits import LEASE_WAIT_MS_MAX
from omnigraph.model.steps import Step
from omnigraph.storage.lease import Lease
from omnigraph.storage.outcome import Outcome
from omnigraph.storage.recovery import Recovery, Resolution, Rooms
from omnigraph.storage.sidecar import Sidecar

logger = logging.getLogger(__name__)


class Doubt:
    """Settles the writer's own sidecars."""

    def __init__(self, rooms: Rooms, recovery: Recovery) -> None:
        self._rooms = rooms
        self._recovery = recovery

    def resolved(
        self, sidecar: Sidecar, outcome: Outcome, lease: Lease, cause: BaseException
    ) -> Snapshot:
        """Something failed after arming. Settle it now if the store lets us: either the write is
        published after all, or all of it is undone; else say that we do not know."""
        self._rooms.world.steps.reach(Step.WRITE_IN_DOUBT)
        # A conflict is a definite no: nothing of this write may stay. Everything else is decided
        # by what landed.
        how: Resolution = "roll-back" if isinstance(cause, ConflictError) else "auto"
        try:
            lost = _loss_of(lease)
            with self._regained(sidecar.branch_id, lease) as held:
                landed = self._settled(sidecar, held, how)
            if landed:
                outcome.land()
                if isinstance(cause, Exception):
                    return self._rooms.manifests.at_commit(sidecar.graph_commit_id)
        except Exception as second:
            logger.warning("recovery is due", extra={"operation": sidecar.operation_id})
            if not isinstance(cause, Exception):
                raise cause from second  # its note says that the outcome is not known
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

    def _settled(self, sidecar: Sidecar, lease: Lease, how: Resolution) -> bool:
        """Settle our own sidecar, and whether the commit is in the history then."""
        verdict = self._recovery.settle(sidecar.operation_id, lease, how=how)
        branch = self._recovery.branch_of(sidecar)
        if branch is None:
            return False
        landed = self._rooms.manifests.find_commit(branch, sidecar.graph_commit_id) is not None
        if verdict is None:
            # Somebody else settled the write while we were asleep; what we did since is not theirs.
            self._recovery.undo_late(sidecar, lease)
        return landed

    @contextmanager
    def _regained(self, branch_id: str | None, lease: Lease) -> Iterator[Lease]:
        """The lease, taken again if it was lost: nobody settles anything without it."""
        if _loss_of(lease) is None:
            yield lease
            return
        lease.release()
        with self._rooms.leases.hold(branch_id, wait_ms=LEASE_WAIT_MS_MAX) as again:
            yield again


def _loss_of(lease: Lease) -> LeaseUnavailableError | None:
    try:
        lease.check()
    except LeaseUnavailableError as lost:
        return lost
    return None
