"""`cleanup`: throw away what nobody can ask for any more.

First lines of tables that no branch has, then manifest versions, then table versions. The manifest
goes before the tables, so that an old snapshot is either whole or not there; a cleanup that dies is
finished by the next one. One table's fault never stops the others.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from omnigraph.engine.core import Core
from omnigraph.engine.maintain.orphans import Reclaim, end_retired, reclaim
from omnigraph.engine.maintain.retention import Policy, Survey, survey
from omnigraph.errors import InputError, NotFoundError, OmnigraphError
from omnigraph.model.limits import (
    GRACE_MS,
    MAINTENANCE_CONCURRENCY,
    RECOVERY_FLOOR_VERSIONS,
    STAGED_SAFE_AGE_MS,
)
from omnigraph.model.steps import Step
from omnigraph.storage.layout import DESCENT, MANIFEST
from omnigraph.storage.presence import Presence
from omnigraph.storage.retention import Collected

logger = logging.getLogger(__name__)

Age = timedelta | int | float
_UNREADABLE = "cannot be read: what it may need was kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupStats:
    """What went of one table, over all its branches; `error` if something could not."""

    type_key: str
    bytes_removed: int = 0
    old_versions_removed: int = 0
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "type_key": self.type_key,
            "bytes_removed": self.bytes_removed,
            "old_versions_removed": self.old_versions_removed,
        }
        return body if self.error is None else {**body, "error": self.error}

    def plus(self, more: Collected) -> CleanupStats:
        return replace(
            self,
            bytes_removed=self.bytes_removed + more.bytes,
            old_versions_removed=self.old_versions_removed + more.versions,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupReport:
    """What went, or with `preview` what would go."""

    uri: str
    preview: bool
    keep_versions: int | None
    older_than: timedelta | None
    datasets: tuple[CleanupStats, ...]
    manifest: CleanupStats
    reclaimed: tuple[tuple[str, str], ...] = ()  # (table, line) that no branch had
    failures: tuple[tuple[str, str], ...] = ()  # (table or branch, why)
    warnings: tuple[str, ...] = ()

    @property
    def bytes_removed(self) -> int:
        return sum(one.bytes_removed for one in (*self.datasets, self.manifest))

    @property
    def old_versions_removed(self) -> int:
        return sum(one.old_versions_removed for one in self.datasets)

    def to_json(self) -> dict[str, Any]:
        seconds = None if self.older_than is None else int(self.older_than.total_seconds())
        return {
            "uri": self.uri,
            "preview": self.preview,
            "keep_versions": self.keep_versions,
            "older_than_secs": seconds,
            "datasets": [one.to_json() for one in self.datasets],
            "manifest": self.manifest.to_json(),
            "reclaimed": [{"owner": owner, "line": line} for owner, line in self.reclaimed],
            "failures": [{"owner": owner, "error": why} for owner, why in self.failures],
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanup:
    """What to keep, and how to go about it."""

    keep_versions: int | None = None
    older_than: Age | None = None
    preview: bool = False
    grace: Age | None = None  # None = none if nobody else is there, else a minute
    staged_safe_age: Age | None = None  # None = a week
    concurrency: int = MAINTENANCE_CONCURRENCY


def cleanup(core: Core, presence: Presence, how: Cleanup) -> CleanupReport:
    """Collect what lies beyond the retention and what was left behind."""
    _require_policy(how)
    if not how.preview:
        core.require_writable()
        core.recover()
    now = core.world.clock.now_us()
    alone = presence.is_alone(quiet_ms=GRACE_MS)
    policy = Policy(
        keep_versions=how.keep_versions,
        older_than_us=None if how.older_than is None else now - _us(how.older_than),
        superseded_us=now - _grace_us(how, alone=alone),
    )
    safe_us = now if alone else now - _safe_age_us(how)
    found = survey(core, policy)
    if found.blind:
        # Whatever might go could be what a branch that cannot be read stands on.
        found = replace(found, unwanted={}, table_keys={})
    if not how.preview:
        end_retired(core, found)
    orphans = reclaim(core, found, Reclaim(before_us=safe_us, preview=how.preview))
    manifest = _prune_manifest(core, found, preview=how.preview)
    return CleanupReport(
        uri=core.root.uri,
        preview=how.preview,
        keep_versions=how.keep_versions,
        older_than=None if how.older_than is None else timedelta(microseconds=_us(how.older_than)),
        datasets=_collect_tables(core, found, how),
        manifest=manifest,
        reclaimed=orphans.reclaimed,
        failures=(*_unread(found), *orphans.failures),
        warnings=tuple(_warnings(how)),
    )


def _unread(found: Survey) -> Iterable[tuple[str, str]]:
    yield from ((name, _UNREADABLE) for name in found.unreadable)
    if found.retired.problem is not None:
        yield DESCENT, found.retired.problem


def _require_policy(how: Cleanup) -> None:
    if how.keep_versions is None and how.older_than is None:
        raise InputError("cleanup requires at least one of keep_versions or older_than")
    if how.keep_versions is not None and how.keep_versions < 1:
        raise InputError(f"keep_versions is {how.keep_versions}", hint="keep at least 1")
    if how.older_than is not None and _us(how.older_than) < 0:
        raise InputError("older_than is negative")


def _warnings(how: Cleanup) -> Iterable[str]:
    if how.keep_versions is not None and how.keep_versions < RECOVERY_FLOOR_VERSIONS:
        yield (
            f"keep_versions {how.keep_versions} is below the recovery floor of "
            f"{RECOVERY_FLOOR_VERSIONS}"
        )


def _us(age: Age) -> int:
    seconds = age.total_seconds() if isinstance(age, timedelta) else age
    return round(seconds * 1_000_000)


def _grace_us(how: Cleanup, *, alone: bool) -> int:
    if how.grace is not None:
        return _us(how.grace)
    return 0 if alone else GRACE_MS * 1000


def _safe_age_us(how: Cleanup) -> int:
    return STAGED_SAFE_AGE_MS * 1000 if how.staged_safe_age is None else _us(how.staged_safe_age)


# --- collecting ------------------------------------------------------------------------------


def _prune_manifest(core: Core, found: Survey, *, preview: bool) -> CleanupStats:
    stats = CleanupStats(type_key=MANIFEST)
    for branch_id, versions in found.unwanted.items():
        try:
            removed, size = core.rooms.manifests.datasets.drop_versions(
                branch_id, versions, preview=preview
            )
            stats = stats.plus(Collected(versions=removed, bytes=size))
        except OmnigraphError as cause:
            stats = replace(stats, error=cause.message)
        if not preview:
            core.world.steps.reach(Step.CLEANUP_MANIFEST_PRUNED)
    return stats


def _collect_tables(core: Core, found: Survey, how: Cleanup) -> tuple[CleanupStats, ...]:
    locations = sorted(found.table_keys, key=lambda location: found.table_keys[location])
    lines: Mapping[str, list[str | None]] = {location: [None] for location in locations}
    for location, branch in sorted(found.lines, key=str):
        if location in lines and branch is not None:
            lines[location].append(branch)

    def one(location: str) -> CleanupStats:
        stats = CleanupStats(type_key=found.table_keys[location])
        for branch in lines[location]:
            try:
                collected = _collect_line(core, found, (location, branch), preview=how.preview)
                stats = stats.plus(collected)
            except OmnigraphError as cause:
                if isinstance(cause, NotFoundError) and branch is not None:
                    continue  # the branch was deleted meanwhile
                logger.warning(
                    "not collected", extra={"table": stats.type_key, "why": cause.message}
                )
                stats = replace(stats, error=cause.message)
        return stats

    with ThreadPoolExecutor(max(1, how.concurrency), thread_name_prefix="cleanup") as pool:
        return tuple(pool.map(one, locations))


def _collect_line(
    core: Core, found: Survey, line: tuple[str, str | None], *, preview: bool
) -> Collected:
    tables = core.rooms.tables
    pinned = found.pinned(line)
    stored = tables.versions(*line)
    # What lies above every pin is a write that is being made, or drift: none of ours.
    ceiling = max(pinned) if pinned else stored[-1]
    unwanted = [version for version in stored if version < ceiling and version not in pinned]
    if preview:
        return tables.preview_collect(*line, unwanted)
    collected = tables.collect(*line, unwanted)
    core.world.steps.reach(Step.CLEANUP_VERSIONS_COLLECTED)
    return collected
