"""A person deals with an unfinished write that recovery alone would leave in place."""

from __future__ import annotations

from omnigraph.engine.core import Core
from omnigraph.errors import NotFoundError, RecoveryRequiredError
from omnigraph.model.limits import LEASE_WAIT_MS_MAX
from omnigraph.storage.audit import RecoveryRecord
from omnigraph.storage.judge import Abort
from omnigraph.storage.recovery import Resolution
from omnigraph.storage.sidecar import Sidecar


def resolve_recovery(core: Core, operation_id: str, *, how: Resolution) -> RecoveryRecord:
    """Settle one unfinished write, or tell how it was settled before.

    `RecoveryRequiredError` if the write can neither be finished nor undone as asked; then its
    sidecar stays where it is.
    """
    core.require_writable()
    # Only names that are there: an operation id is never taken as a path.
    if operation_id in core.rooms.sidecars.operation_ids():
        _settle(core, operation_id, how)
    for record in core.rooms.audit.records():
        if record.operation_id == operation_id:
            return record
    raise NotFoundError(
        f"no unfinished write and no recovery has the operation id '{operation_id}'",
        kind="operation",
        name=operation_id,
        hint="`omnigraph recovery list` shows them",
    )


def _settle(core: Core, operation_id: str, how: Resolution) -> None:
    sidecar = core.rooms.sidecars.read(operation_id)
    branch_id = sidecar.branch_id if isinstance(sidecar, Sidecar) else None
    verdict = core.rooms.leases.holding(
        branch_id,
        lambda lease: core.writer.recovery.settle(operation_id, lease, how=how),
        wait_ms=LEASE_WAIT_MS_MAX,
    )
    if isinstance(verdict, Abort):
        raise RecoveryRequiredError(
            f"the unfinished write '{operation_id}' cannot be settled: {verdict.reason}",
            operation_id=operation_id,
            tables=list(verdict.tables),
        )
