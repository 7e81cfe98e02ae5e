"""`cleanup`: throw away what nobody can ask for any more.

First lines of tables that no branch has, then manifest versions, then table versions. The manifest
goes before the tables, so that an old snapshot is either whole or not there; a cleanup that dies is
finished by the next one. One table's fault never stops the others.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from omnigraph.engine.arguments import AGE_OR_NONE, FLAG, INT, require
from omnigraph.engine.core import Core
from omnigraph.engine.maintain.retention import Policy, Survey, is_held, side_by_side, survey
from omnigraph.engine.maintain.stored_retention import EVERY, Age, Bounds, Retention, age_us, stored
from omnigraph.errors import InputError, NotFoundError, OmnigraphError
from omnigraph.model.graph import Branch
from omnigraph.model.limits import (
    GRACE_MS,
    LEASE_WAIT_MS_MAX,
    MAINTENANCE_CONCURRENCY,
    RECOVERY_FLOOR_VERSIONS,
    STAGED_SAFE_AGE_MS,
)
from omnigraph.model.ports import ulid_us
from omnigraph.model.steps import Step
from omnigraph.model.structs import JsonStruct
from omnigraph.storage.lance.collect import How, Outcome, children_first
from omnigraph.storage.lance.line import Line as Fork
from omnigraph.storage.manifest.history import Descent, contracted, parents_of
from omnigraph.storage.manifest.ref_files import Kept
from omnigraph.storage.manifest.rows import CommitRow
from omnigraph.storage.objects.lease import PAST, Lease, stop_if_asked
from omnigraph.storage.objects.local import Presence, collect_drafts
from omnigraph.storage.objects.root import DESCENT, MANIFEST, stored_tables

logger = logging.getLogger(__name__)

_UNREADABLE = "cannot be read: what it may need was kept"
_COPIED = "the backup that is being made"


class CleanupStats(JsonStruct, frozen=True, kw_only=True):
    """What went of one table, over all its branches; `error` if something could not."""

    type_key: str
    bytes_removed: int = 0
    old_versions_removed: int = 0
    error: str | None = None

    def after(self, outcome: Outcome) -> CleanupStats:
        done = outcome.done.values()
        return replace(
            self,
            bytes_removed=self.bytes_removed + sum(one.bytes for one in done),
            old_versions_removed=self.old_versions_removed + sum(one.versions for one in done),
            error=next((one.message for one in outcome.problems.values()), self.error),
        )


class CleanupReport(msgspec.Struct, frozen=True, kw_only=True):
    """What went, or with `preview` what would go."""

    uri: str
    preview: bool
    keep_versions: int | None
    older_than: timedelta | None
    retention: Retention
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
            "retention": self.retention.to_json()["branches"],
            "datasets": [one.to_json() for one in self.datasets],
            "manifest": self.manifest.to_json(),
            "reclaimed": [{"owner": owner, "line": line} for owner, line in self.reclaimed],
            "failures": [{"owner": owner, "error": why} for owner, why in self.failures],
            "warnings": list(self.warnings),
        }


class Cleanup(msgspec.Struct, frozen=True, kw_only=True):
    """What to keep, without a bound what the graph itself says, and how to go about it."""

    keep_versions: int | None = None
    older_than: Age | None = None
    preview: bool = False
    grace: Age | None = None  # None = none if nobody else is there, else a minute
    concurrency: int = MAINTENANCE_CONCURRENCY


def cleanup(core: Core, presence: Presence, how: Cleanup) -> CleanupReport:
    """Collect what lies beyond the retention and what was left behind."""
    _require_sound(how)
    retention = _retention(core, how)
    if not how.preview:
        core.require_writable()
        core.recover()
    now = core.world.clock.now_us()
    # A long write of another thread was quiet since its call, and made what only it knows.
    alone = presence.is_alone(quiet_ms=GRACE_MS) and not core.writer.others_write
    grace_us = 0 if alone else GRACE_MS * 1000
    if how.grace is not None:
        grace_us = age_us("grace", how.grace)
    policy = Policy(retention=retention, now_us=now, superseded_us=now - grace_us)
    safe_us = now if alone else now - STAGED_SAFE_AGE_MS * 1000

    def let_go(_: Lease | None) -> _LetGo:
        return _let_go(core, policy, before_us=safe_us, preview=how.preview)

    if how.preview:
        gone = let_go(None)
    else:
        # Nobody may name something in the past between the look at what is named and the end of
        # what is not: whoever makes a tag or brings a branch back holds this lease too.
        gone = core.store.leases.holding(PAST, let_go, wait_ms=LEASE_WAIT_MS_MAX)
    found = gone.found
    unread = [
        (name, "all was kept for it" if name == _COPIED else _UNREADABLE)
        for name in found.unreadable
    ]
    if found.retired.problem is not None:
        unread.append((DESCENT, found.retired.problem))
    return CleanupReport(
        uri=core.root.uri,
        preview=how.preview,
        keep_versions=how.keep_versions,
        older_than=Bounds.of(None, how.older_than).older_than,
        retention=retention,
        datasets=_collect_tables(core, found, how, alone=alone),
        manifest=gone.manifest,
        reclaimed=gone.reclaimed,
        failures=(*unread, *gone.failures),
        warnings=tuple(_warnings(retention)),
    )


class _LetGo(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, and what has ended of it: only files are left to collect."""

    found: Survey
    reclaimed: tuple[tuple[str, str], ...]
    failures: tuple[tuple[str, str], ...]
    manifest: CleanupStats


def _let_go(core: Core, policy: Policy, *, before_us: int, preview: bool) -> _LetGo:
    """Look at everything, then end what nobody needs: deleted branches, lines, old snapshots."""
    found = survey(core, policy)
    held = is_held(core, policy.now_us, sweep=not preview)
    if found.blind or held:
        # Whatever might go could be what a branch or tag that cannot be read, or a copy, stands on.
        found = replace(found, unwanted={}, table_keys={})
    if held:
        found = replace(found, unreadable=(*found.unreadable, _COPIED))
    if not preview:
        end_retired(core, found)
    reclaimed, failures = _Reclaim(
        core=core, found=found, before_us=before_us, preview=preview
    ).all()
    manifest = _prune_manifest(core, found, preview=preview)
    return _LetGo(
        found=found,
        reclaimed=tuple(reclaimed),
        failures=tuple(failures),
        manifest=manifest,
    )


def _warnings(retention: Retention) -> Iterator[str]:
    for pattern, bounds in retention.branches.items():
        if bounds.keep_versions is not None and bounds.keep_versions < RECOVERY_FLOOR_VERSIONS:
            floor = f"the recovery floor of {RECOVERY_FLOOR_VERSIONS}"
            where = "" if pattern == EVERY else f" of the branches '{pattern}'"
            yield f"keep_versions {bounds.keep_versions}{where} is below {floor}"


def _retention(core: Core, how: Cleanup) -> Retention:
    """The bounds that were given, for every branch, or those that the graph carries."""
    bounds = Bounds.of(how.keep_versions, how.older_than)
    if bounds != Bounds():
        return Retention(branches={EVERY: bounds})
    found = stored(core)
    if not found.branches:
        raise InputError(
            "cleanup requires at least one of keep_versions or older_than",
            hint="the graph carries no retention of its own either: see `omnigraph retention set`",
        )
    return found


def _require_sound(how: Cleanup) -> None:
    require(AGE_OR_NONE, older_than=how.older_than, grace=how.grace)
    require(FLAG, preview=how.preview)
    require(INT, concurrency=how.concurrency)


# --- collecting ------------------------------------------------------------------------------


def _prune_manifest(core: Core, found: Survey, *, preview: bool) -> CleanupStats:
    stop_if_asked()
    stats = CleanupStats(type_key=MANIFEST)
    how = How(
        preview=preview,
        threads=side_by_side(core),
        reached=partial(core.world.steps.reach, Step.CLEANUP_MANIFEST_PRUNED),
    )
    try:
        return stats.after(core.store.manifests.datasets.drop_versions(found.unwanted, how))
    except OmnigraphError as cause:
        return replace(stats, error=cause.message)


def _collect_tables(
    core: Core, found: Survey, how: Cleanup, *, alone: bool
) -> tuple[CleanupStats, ...]:
    """Every line of every table, the tables side by side."""
    locations = sorted(found.table_keys, key=lambda location: found.table_keys[location])
    lines: dict[str, list[str | None]] = {location: [None] for location in locations}
    for location, branch in found.pins:
        if location in lines and branch is not None:
            lines[location].append(branch)
    threads = side_by_side(core, how.concurrency)
    each = How(
        preview=how.preview,
        threads=threads,
        reached=partial(core.world.steps.reach, Step.CLEANUP_VERSIONS_COLLECTED),
    )

    def unwanted(location: str, line: str | None, stored: Sequence[int]) -> list[int]:
        pinned = found.pinned((location, line))
        # What lies above every pin is a write that is being made, or drift: none of ours.
        ceiling = max(pinned) if pinned else stored[-1]
        return [version for version in stored if version < ceiling and version not in pinned]

    def one(location: str) -> CleanupStats:
        stats, tables = CleanupStats(type_key=found.table_keys[location]), core.store.tables
        try:
            for line in lines[location] if alone and not how.preview else ():
                # Nobody else is here, so what a transaction showed is of one that died.
                tables.drop_shown(location, line)
            choose = partial(unwanted, location)
            stats = stats.after(tables.collect_lines(location, lines[location], choose, each))
        except OmnigraphError as cause:
            stats = replace(stats, error=cause.message)
        if stats.error is not None:
            logger.warning("not collected", extra={"table": stats.type_key, "why": stats.error})
        return _collect_derived(core, location, stats, preview=how.preview)

    with ThreadPoolExecutor(threads, thread_name_prefix="cleanup") as pool:
        return tuple(pool.map(one, locations))


def _collect_derived(
    core: Core, location: str, stats: CleanupStats, *, preview: bool
) -> CleanupStats:
    """What was made of data files that are gone: the versions that named them went before."""
    try:
        size = core.store.derived.collect(location, preview=preview)
    except OmnigraphError as cause:
        return replace(stats, error=cause.message)
    return replace(stats, bytes_removed=stats.bytes_removed + size)


# --- deleted branches -------------------------------------------------------------------------


def end_retired(core: Core, found: Survey) -> None:
    """Let go of deleted branches that no merge needs any more: from here on they are orphans.

    Who descends from whom outlasts them, so it is written down first, and no more of it than the
    commits left refer to.
    """
    retired, files = found.retired, core.store.manifests.retired
    if found.unreadable or retired.problem is not None:
        return  # what an unreadable branch has merged is not known: next time
    if not (retired.ended or retired.kept):
        return
    staying = (*core.store.refs.list(), *retired.needed)
    left = _parents(_rows(core, staying))
    ended = _rows(core, retired.ended)
    going = {**retired.kept, **_parents(ended)}
    forgotten = {one: going[one] for one in going.keys() - left.keys()}
    short = contracted(left, forgotten, bases=retired.bases)

    def changed(now: Kept) -> Kept:
        # What others wrote down since the survey is none of ours, and a commit that a branch has
        # stays, because that branch may be on its way out.
        return {
            **{one: now[one] for one in now if one not in retired.kept or one in left},
            **short,
        }

    files.change_descent(changed, {one: row.commit for one, row in ended.items()})
    core.world.steps.reach(Step.CLEANUP_DESCENT_KEPT)
    for branch in retired.ended:
        assert branch.id is not None, "main is never retired"
        files.end(branch.id)
        core.world.steps.reach(Step.CLEANUP_RETIRED_ENDED)


def _rows(core: Core, branches: Iterable[Branch]) -> Mapping[str, CommitRow]:
    return Descent(core.store.manifests, branches).rows()


def _parents(rows: Mapping[str, CommitRow]) -> dict[str, tuple[str, ...]]:
    return {one: parents_of(row) for one, row in rows.items()}


# --- what nobody refers to ---------------------------------------------------------------------

# Lines of tables and of the manifest that no live branch has any more. They come from a branch
# that was deleted (or never came to be) while its writer or its deletion died, and from a first
# write on a branch that made its line and then failed. Each is looked at again under the lease of
# the branch it belongs to, children go before what they stand on, and whatever somebody may be
# about to use stays until it is old.


class _Reclaim(msgspec.Struct, frozen=True, kw_only=True):
    """Dropping every line that nobody needs, whatever the retention: nothing younger than
    `before_us` that somebody may still use."""

    core: Core
    found: Survey
    before_us: int
    preview: bool

    def all(self) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """What went, as (table or `__manifest`, line), and what could not, with the reason."""
        done: list[tuple[str, str]] = []
        failures: list[tuple[str, str]] = []
        if self.found.unreadable:
            return done, failures  # what an unreadable branch needs is not known: next time
        locations = {*stored_tables(self.core.store.objects), *self.found.table_keys}
        owners = {at: self.found.table_keys.get(at, at) for at in sorted(locations)}
        for location, owner in {**owners, MANIFEST: MANIFEST}.items():
            stop_if_asked()
            try:
                gone = self._manifest() if location == MANIFEST else self._table(location)
                done += ((owner, line) for line in gone)
            except OmnigraphError as cause:
                logger.warning("not reclaimed", extra={"table": owner, "why": cause.message})
                failures.append((owner, cause.message))
        if not self.preview:
            self._control_files()
        return done, failures

    def _control_files(self) -> None:
        """Locks of branches that are gone, and what killed writers left half written: a few bytes
        each, but one for every branch there ever was."""
        core = self.core
        living = {branch.id for branch in core.store.refs.list() if branch.id is not None}
        locks = core.store.leases.collect(living)
        drafts = 0
        if core.root.local_path is not None:
            # A live draft is there for milliseconds, also of a thread of our own.
            quiet_us = core.world.clock.now_us() - GRACE_MS * 1000
            before_us = min(self.before_us, quiet_us)
            drafts = collect_drafts(Path(core.root.local_path), before_us=before_us)
        if locks or drafts:
            core.world.steps.reach(Step.CLEANUP_CONTROL_FILES_REMOVED)
            logger.info("removed control files", extra={"locks": locks, "drafts": drafts})

    def _table(self, location: str) -> list[str]:
        needed = {branch for at, branch in self.found.pins if at == location}
        if not needed:
            return self._whole_table(location)
        lines = self.core.store.tables.lines(location)
        order = unneeded_lines({branch for branch in needed if branch is not None}, lines)
        if not order:
            return []  # as of most tables: the branches need not be looked up for them
        # Danger: looked up after the lines. A branch is there before any line of its own is, so
        # that a line without one here has none; whoever brings one back waits for us.
        owners = {branch.id: branch for branch in self.core.store.refs.list()}

        def drop(line: str) -> bool:
            owner = owners.get(line.partition("__")[0])
            return self._drop_line(location, line, lines[line], owner)

        return self._fallen(location, lines, order, drop)

    def _fallen(
        self,
        location: str,
        lines: Mapping[str, Fork],
        order: Iterable[str],
        drop: Callable[[str], bool],
    ) -> list[str]:
        """Drop lines one by one, but none that another stands on; which ones went."""
        standing = Counter(line.parent for line in lines.values())
        standing.update(self.core.store.tables.tagged(location).keys())
        gone: list[str] = []
        for name in order:
            stop_if_asked()
            if not standing[name] and drop(name):
                standing[lines[name].parent] -= 1
                gone.append(name)
        return gone

    def _whole_table(self, location: str) -> list[str]:
        """A table that no kept snapshot knows: of a type that is gone, or of one being made."""
        try:
            written_us = self.core.store.tables.last_written_us(location)
        except NotFoundError:
            written_us = 0
        if written_us > self.before_us:
            return []
        if not self.preview:
            self.core.store.drop_table(location)
            self.core.world.steps.reach(Step.CLEANUP_FORK_RECLAIMED)
        return [location]

    def _drop_line(self, location: str, line: str, facts: Fork, seen: Branch | None) -> bool:
        core, owner_id = self.core, line.partition("__")[0]

        def is_needed() -> bool:
            manifests, refs = core.store.manifests, core.store.manifests.refs
            alive = seen if seen is None or refs.is_alive(seen) else refs.of_id(owner_id)
            owner = alive or manifests.retired.of_id(owner_id)
            if owner is None:
                return False
            entries = manifests.head(owner).datasets
            if any((entry.location, entry.branch) == (location, line) for entry in entries):
                return True
            # A writer makes its line, prepares without the lease, and comes back to use it.
            return facts.created_at is None or facts.created_at > self.before_us

        def drop(_: Lease) -> bool:
            if is_needed():
                return False
            core.store.tables.drop_branch(location, line, is_leaf=True)
            core.world.steps.reach(Step.CLEANUP_FORK_RECLAIMED)
            return True

        if self.preview:
            return not is_needed()
        # A line of a migrated graph has the name of its branch, and names may hold what paths must
        # not.
        name = quote(owner_id, safe="")
        return core.store.leases.holding(name, drop, wait_ms=LEASE_WAIT_MS_MAX)

    def _manifest(self) -> list[str]:
        manifests = self.core.store.manifests
        lines = self.core.store.tables.lines(MANIFEST)
        # In this order: a branch that is being deleted is retired before it loses its name.
        standing = (*self.core.store.refs.list(), *manifests.retired.branches())
        live = {branch.id for branch in standing if branch.id is not None}

        def drop(line: str) -> bool:
            # A branch is forked first and gets its name then: a young one may be about to. The age
            # of a fork that has files but no reference yet is told by its id.
            made_us = lines[line].created_at or ulid_us(line)
            if made_us is not None and made_us > self.before_us:
                return False
            if not self.preview:
                manifests.datasets.drop(line, is_leaf=True)
                self.core.world.steps.reach(Step.CLEANUP_FORK_RECLAIMED)
            return True

        return self._fallen(MANIFEST, lines, unneeded_lines(live, lines), drop)


def unneeded_lines(needed: Iterable[str], lines: Mapping[str, Fork]) -> list[str]:
    """The lines that no needed one stands on, in an order in which each comes before the one it
    was made from."""
    standing = set(needed)
    order = [
        line
        for line in children_first({name: one.parent for name, one in lines.items()})
        if line is not None
    ]
    for name in order:
        parent = lines[name].parent
        if name in standing and parent is not None:
            standing.add(parent)
    return [name for name in order if name not in standing]
