"""Upkeep that runs by itself: small fragments are compacted before reads suffer from them.

It looks at what a write left behind, and works in a thread of its own beside readers and writers.
It never fails anything: what goes wrong is logged, and the next write looks again.
"""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import msgspec

from omnigraph.engine.core import Core, OpenMode
from omnigraph.engine.maintain.optimize import Work, optimize
from omnigraph.errors import OmnigraphError
from omnigraph.model.graph import Snapshot, TableEntry
from omnigraph.model.limits import AUTO_FRAGMENTS_MAX

logger = logging.getLogger(__name__)


class MaintenancePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When a table is looked after without being asked.

    More small fragments than this are compacted, and the indexes of keys and ends extended over
    them. Full-text and vector indexes are left to `optimize`.
    """

    small_fragments_max: int = AUTO_FRAGMENTS_MAX


DEFAULT_POLICY: Final = MaintenancePolicy()


class AutoMaintenance:
    """Watches the writes of one open graph. One table set of one branch is worked on at a time."""

    def __init__(self, core: Core, policy: MaintenancePolicy | None) -> None:
        self._core = core
        self._policy = policy if core.mode is OpenMode.READ_WRITE else None
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._running: Future[None] | None = None
        self._seen: dict[str, TableEntry] = {}
        self._closed = False

    def notice(self, after: Snapshot | None) -> None:
        """A write has landed: start upkeep if one of its tables needs it. Never raises."""
        if self._policy is None or after is None or self._is_busy():
            return
        try:
            due = self._due(after, self._policy)
        except OmnigraphError as cause:
            logger.warning("upkeep looked in vain", extra={"why": cause.message})
            return
        if due:
            self._start(after.branch.name, due)

    def wait(self) -> None:
        """Until the upkeep that is running is done."""
        running = self._running
        if running is not None:
            running.result()

    def close(self) -> None:
        """Finish what is running; start nothing more."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=True)

    def _is_busy(self) -> bool:
        return self._running is not None and not self._running.done()

    def _due(self, after: Snapshot, policy: MaintenancePolicy) -> frozenset[str]:
        due: set[str] = set()
        for key, entry in after.entries.items():
            if self._seen.get(key) == entry or not after.branch.owns(entry.branch):
                continue
            self._seen[key] = entry
            fragmentation = self._core.store.tables.open(entry).fragmentation()
            if fragmentation.small_fragments > policy.small_fragments_max:
                due.add(key)
        return frozenset(due)

    def _start(self, branch: str, due: frozenset[str]) -> None:
        with self._lock:
            if self._closed or self._is_busy():
                return
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="upkeep")
            self._running = self._pool.submit(self._run, branch, due)

    def _run(self, branch: str, due: frozenset[str]) -> None:
        try:
            report = optimize(self._core, branch, Work(depth="tail", keys=due, concurrency=1))
        except Exception as cause:  # noqa: BLE001 - upkeep is a favour: it must not break anything
            logger.warning("upkeep failed", extra={"branch": branch, "why": str(cause)})
            return
        removed = sum(one.fragments_removed for one in report.datasets)
        logger.debug("upkeep done", extra={"branch": branch, "fragments_removed": removed})
