"""The part of `Graph` that looks after it: indexes, cleanup, repair, copies, unfinished writes."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from omnigraph.engine.maintain.optimize import (
    AutoMaintenance,
    OptimizeReport,
    Progress,
    Work,
    optimize,
)
from omnigraph.engine.read.run import Reader
from omnigraph.engine.timeline import Timeline
from omnigraph.errors import OmnigraphError
from omnigraph.model.graph import MAIN
from omnigraph.model.limits import GRACE_MS, MAINTENANCE_CONCURRENCY
from omnigraph.model.machine import Later
from omnigraph.storage.commit.audit import RecoveryRecord
from omnigraph.storage.commit.recovery import Resolution
from omnigraph.storage.commit.sidecar import Sidecar, UnreadableSidecar

if TYPE_CHECKING:
    from omnigraph.engine.maintain import backup as copying
    from omnigraph.engine.maintain import cleanup as cleaning
    from omnigraph.engine.maintain import health as checkup
    from omnigraph.engine.maintain import repair as repairing
    from omnigraph.engine.maintain import stored_retention as keeping
    from omnigraph.engine.maintain import verify as verifying
    from omnigraph.engine.write import filling
else:
    cleaning = Later("omnigraph.engine.maintain.cleanup")
    keeping = Later("omnigraph.engine.maintain.stored_retention")
    checkup = Later("omnigraph.engine.maintain.health")
    repairing = Later("omnigraph.engine.maintain.repair")
    copying = Later("omnigraph.engine.maintain.backup")
    verifying = Later("omnigraph.engine.maintain.verify")
    filling = Later("omnigraph.engine.write.filling")

logger = logging.getLogger(__name__)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since a graph was opened, and the bytes that reading keeps, by kind."""

    commit_retries: int  # tries that somebody else's commit made void
    recoveries: int  # unfinished writes of others that were settled
    cache_bytes: Mapping[str, int]


class Upkeep(Timeline):
    """What keeps an open graph whole, small and fast."""

    _reader: Reader
    _auto: AutoMaintenance
    _stores_topologies: bool

    # --- maintenance -------------------------------------------------------------------------

    def ensure_indices(
        self, branch: str = MAIN, *, concurrency: int = MAINTENANCE_CONCURRENCY
    ) -> OptimizeReport:
        """Build the indexes that the schema declares and extend them over new rows, as one
        commit. Those that cannot be built yet are in `pending_indexes` with the reason.

        Examples:
            >>> _ = graph.ensure_indices()
        """
        core = self._allowed("ensure_indices")
        return optimize(core, branch, Work(depth="indexes", concurrency=concurrency))

    def optimize(
        self,
        branch: str = MAIN,
        *,
        concurrency: int = MAINTENANCE_CONCURRENCY,
        progress: Progress | None = None,
    ) -> OptimizeReport:
        """Compact small fragments, bring indexes up to date and mend damaged ones, as one commit.

        Readers and writers go on meanwhile. Refused while an unfinished write cannot be settled.
        A graph that was opened with an `embedder` first gets the `@embed` vectors that are missing.

        Examples:
            >>> _ = graph.optimize()
        """
        core, how = self._allowed("optimize"), Work(concurrency=concurrency, progress=progress)
        if core.world.embedder is not None:
            filling.fill_vectors(core, branch=branch, then=self._auto.notice)
        report = optimize(core, branch, how)
        self._store_topologies(branch)
        return report

    def _store_topologies(self, branch: str) -> None:
        if not self._stores_topologies:
            return
        try:
            target = self._core.snapshot(branch, None)
            with self._core.store.meanwhile(target.branch):
                self._reader.store_topologies(target, self._core.catalog(target))
        except OmnigraphError as cause:  # what was asked for is done; this only saves time
            logger.warning("topologies not stored", extra={"why": cause.message})

    def retention(self) -> keeping.Retention:
        """How much of the past each branch keeps, as `set_retention` has stored it.

        Examples:
            >>> graph.retention().automatic
            False
        """
        return keeping.stored(self._allowed("retention"))

    def set_retention(
        self, rules: Mapping[str, Mapping[str, Any]], *, automatic: bool = False
    ) -> keeping.Retention:
        """Store with the graph how much of the past its branches keep, in place of what it was.

        `rules` has the bounds of `cleanup` (`keep_versions`, `older_than`) by pattern of branch
        names (`*`, `release/*`, a name); of those that fit a branch the longest counts, and one
        that none fits keeps everything. `cleanup()` without bounds goes by it; with `automatic`
        upkeep does so by itself now and then. Heads, tags and bases of merges stay in any case.

        Examples:
            >>> graph.set_retention({"*": {"keep_versions": 100}}, automatic=True).automatic
            True
        """
        return keeping.store(self._allowed("set_retention"), rules, automatic=automatic)

    def _tidy(self) -> None:
        if keeping.stored(self._core).automatic:
            # Somebody in this very process may be reading a former head.
            how = cleaning.Cleanup(grace=GRACE_MS / 1000, concurrency=1)
            cleaning.cleanup(self._core, self._presence, how)

    def cleanup(
        self,
        keep_versions: int | None = None,
        older_than: keeping.Age | None = None,
        *,
        preview: bool = False,
        grace: keeping.Age | None = None,
        concurrency: int = MAINTENANCE_CONCURRENCY,
    ) -> cleaning.CleanupReport:
        """Collect what no branch, no snapshot within the retention and no unfinished write needs.

        A snapshot goes only if it is neither among the newest `keep_versions` of its branch nor
        younger than `older_than` (a timedelta, or seconds); without either, the graph's own
        retention decides (`set_retention`). With `preview` nothing is touched and
        the report says what would go. `grace` is how long former heads stay for their readers:
        none if nobody else has the graph open, else a minute.

        Examples:
            >>> _ = graph.cleanup(keep_versions=10, preview=True)
        """
        how = cleaning.Cleanup(
            keep_versions=keep_versions,
            older_than=older_than,
            preview=preview,
            grace=grace,
            concurrency=concurrency,
        )
        return cleaning.cleanup(self._allowed("cleanup"), self._presence, how)

    def repair(
        self,
        confirm: bool = False,  # noqa: FBT001, FBT002 - the API fixes all three
        force: bool = False,  # noqa: FBT001, FBT002
        restore: bool = False,  # noqa: FBT001, FBT002
        *,
        branch: str = MAIN,
    ) -> repairing.RepairReport:
        """Explain tables that moved past what is published.

        `confirm` publishes those where only maintenance happened, and undoes writes of ours that
        were given up. `force` publishes all others too, as long as columns, ids and edge ends
        hold; `restore` puts every one of them back to what is published. Without `confirm` the
        report only says how things stand.

        Examples:
            >>> _ = graph.repair()
        """
        wanted = repairing.Orders(confirm=confirm, force=force, restore=restore)
        return repairing.repair(self._allowed("repair"), branch, wanted)

    def health(self, branch: str = MAIN) -> checkup.HealthReport:
        """Fragments, index coverage, versions, bytes and unfinished writes, with advice.

        Examples:
            >>> graph.health().healthy
            True
        """
        return checkup.health(self._told_by("health", branch), branch)

    def verify(
        self,
        deep: bool = False,  # noqa: FBT001, FBT002
        *,
        progress: verifying.Progress | None = None,
    ) -> verifying.VerifyReport:
        """Compare files, sizes, digests and row counts of all branches, tags and kept commits with
        what was promised; `deep` also reads all rows of every branch and tag. Changes nothing.
        `progress` is called with what is looked at, how far it is, and how much there is.

        Examples:
            >>> graph.verify(deep=True).ok
            True
        """
        return verifying.verify(self._allowed("verify"), deep=deep, progress=progress)

    def backup(
        self, dest: str | os.PathLike[str], *, progress: copying.Progress | None = None
    ) -> copying.BackupReport:
        """Copy the graph as it is now, with all branches, tags and kept history, to an empty place:
        a folder or an object store. Others may go on writing; cleanup waits. The copy is a graph
        of its own.

        Examples:
            >>> _ = graph.backup(folder / "copy.omni")
            >>> Graph.open(folder / "copy.omni").query(NAMES).row_count
            3
        """
        return copying.backup(self._allowed("backup"), dest, progress=progress)

    def figures(self) -> Figures:
        """What this handle has done and keeps, for those who watch it.

        Examples:
            >>> graph.figures().commit_retries
            0
        """
        core = self._allowed("figures")
        return Figures(
            commit_retries=core.writer.prepared_again,
            recoveries=core.recovery.carried_out,
            cache_bytes=self._reader.cache_bytes(),
        )

    # --- recovery ----------------------------------------------------------------------------

    def recoveries(self) -> list[RecoveryRecord]:
        """Every recovery action so far that can be read, oldest first.

        Examples:
            >>> graph.recoveries()
            []
        """
        return self._allowed("recoveries").recovery.audit.records()

    def recovery_log_problems(self) -> list[str]:
        """What of the record of recoveries cannot be read, in words; nothing hangs on it."""
        return self._allowed("recovery_log_problems").recovery.audit.problems()

    def clear_recovery_log(self) -> None:
        """Take the record of recoveries away, for one that is damaged; a new one is begun."""
        core = self._allowed("clear_recovery_log")
        core.require_writable()
        core.recovery.audit.remove()

    def pending_recoveries(self) -> list[Sidecar | UnreadableSidecar]:
        """Unfinished writes that are still waiting.

        Examples:
            >>> graph.pending_recoveries()
            []
        """
        return list(self._allowed("pending_recoveries").recovery.sidecars.pending())

    def resolve_recovery(self, operation_id: str, how: Resolution = "auto") -> RecoveryRecord:
        """Settle one unfinished write by hand: finish or undo it, "roll-back" or "discard" it."""
        return self._allowed("resolve_recovery").resolve(operation_id, how)
