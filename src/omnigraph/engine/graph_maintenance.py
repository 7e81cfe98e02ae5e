"""The part of `Graph` that keeps it fast and small."""

from __future__ import annotations

from omnigraph.engine.core import Core
from omnigraph.engine.maintain.cleanup import Age, Cleanup, CleanupReport, cleanup
from omnigraph.engine.maintain.health import HealthReport, health
from omnigraph.engine.maintain.optimize import (
    OptimizeReport,
    Progress,
    Work,
    ensure_indices,
    optimize,
)
from omnigraph.engine.maintain.repair import Orders, RepairReport, repair
from omnigraph.model.graph import MAIN
from omnigraph.model.limits import MAINTENANCE_CONCURRENCY
from omnigraph.storage.presence import Presence


class MaintenanceCalls:
    """Mixed into `Graph`."""

    _presence: Presence

    def _opened(self) -> Core:
        raise AssertionError("Graph says what is open")

    def ensure_indices(
        self, branch: str = MAIN, *, concurrency: int = MAINTENANCE_CONCURRENCY
    ) -> OptimizeReport:
        """Build the indexes that the schema declares and extend them over new rows, as one
        commit. Those that cannot be built yet are in `pending_indexes` with the reason."""
        return ensure_indices(self._opened(), branch, Work(concurrency=concurrency))

    def optimize(
        self,
        branch: str = MAIN,
        *,
        concurrency: int = MAINTENANCE_CONCURRENCY,
        progress: Progress | None = None,
    ) -> OptimizeReport:
        """Fold small fragments, bring indexes up to date and mend damaged ones, as one commit.

        Readers and writers go on meanwhile. Refused while an unfinished write cannot be settled.
        """
        return optimize(self._opened(), branch, Work(concurrency=concurrency, progress=progress))

    def cleanup(
        self,
        keep_versions: int | None = None,
        older_than: Age | None = None,
        *,
        preview: bool = False,
        grace: Age | None = None,
        concurrency: int = MAINTENANCE_CONCURRENCY,
    ) -> CleanupReport:
        """Collect what no branch, no snapshot within the retention and no unfinished write needs.

        A snapshot goes only if it is neither among the newest `keep_versions` of its branch nor
        younger than `older_than` (a timedelta, or seconds). With `preview` nothing is touched and
        the report says what would go. `grace` is how long former heads stay for their readers:
        none if nobody else has the graph open, else a minute.
        """
        how = Cleanup(
            keep_versions=keep_versions,
            older_than=older_than,
            preview=preview,
            grace=grace,
            concurrency=concurrency,
        )
        return cleanup(self._opened(), self._presence, how)

    def repair(
        self,
        confirm: bool = False,  # noqa: FBT001, FBT002 - the API fixes all three
        force: bool = False,  # noqa: FBT001, FBT002
        restore: bool = False,  # noqa: FBT001, FBT002
        *,
        branch: str = MAIN,
    ) -> RepairReport:
        """Explain tables that moved past what is published.

        `confirm` publishes those where only maintenance happened, and undoes writes of ours that
        were given up. `force` publishes all others too, as long as columns, ids and edge ends
        hold; `restore` puts every one of them back to what is published. Without `confirm` the
        report only says how things stand.
        """
        orders = Orders(confirm=confirm, force=force, restore=restore)
        return repair(self._opened(), branch, orders)

    def health(self, branch: str = MAIN) -> HealthReport:
        """Fragments, index coverage, versions, bytes and unfinished writes, with advice."""
        return health(self._opened(), branch)
