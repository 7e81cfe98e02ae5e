"""Lines of tables and of the manifest that no live branch has any more.

They come from a branch that was deleted (or never came to be) while its writer or its deletion
died, and from a first write on a branch that made its line and then failed. Each is looked at again
under the lease of the branch it belongs to, children go before what they stand on, and whatever
somebody may be about to use stays until it is old.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from omnigraph.engine.core import Core
from omnigraph.engine.maintain.retention import Survey
from omnigraph.errors import NotFoundError, OmnigraphError
from omnigraph.model.graph import Branch
from omnigraph.model.limits import GRACE_MS, LEASE_WAIT_MS_MAX
from omnigraph.model.steps import Step
from omnigraph.storage.ancestry import contracted
from omnigraph.storage.descent import Descent, parents_of
from omnigraph.storage.forks import Line
from omnigraph.storage.layout import MANIFEST, dropped_mark
from omnigraph.storage.lease import Lease
from omnigraph.storage.local_store import collect_drafts
from omnigraph.storage.retired import Kept

logger = logging.getLogger(__name__)

_FOLDERS = ("nodes", "edges")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaim:
    """What counts as abandoned: nothing younger than `before_us` that somebody may still use."""

    before_us: int
    preview: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaimed:
    """What went, as (table or `__manifest`, line), and what could not."""

    reclaimed: tuple[tuple[str, str], ...] = ()
    failures: tuple[tuple[str, str], ...] = ()


def reclaim(core: Core, found: Survey, how: Reclaim) -> Reclaimed:
    """Drop every line that nobody needs, whatever the retention."""
    if found.unreadable:
        return Reclaimed()  # what an unreadable branch needs is not known: next time
    done: list[tuple[str, str]] = []
    failures: list[tuple[str, str]] = []
    for location in _locations(core, found):
        owner = found.table_keys.get(location, location)
        try:
            done += ((owner, line) for line in _reclaim_table(core, found, location, how))
        except OmnigraphError as cause:
            logger.warning("not reclaimed", extra={"table": owner, "why": cause.message})
            failures.append((owner, cause.message))
    try:
        done += ((MANIFEST, line) for line in _reclaim_manifest(core, how))
    except OmnigraphError as cause:
        failures.append((MANIFEST, cause.message))
    if not how.preview:
        _reclaim_control_files(core, how)
    return Reclaimed(reclaimed=tuple(done), failures=tuple(failures))


def _reclaim_control_files(core: Core, how: Reclaim) -> None:
    """Locks of branches that are gone, and what killed writers left half written: a few bytes
    each, but one for every branch there ever was."""
    living = {branch.id for branch in core.rooms.refs.list() if branch.id is not None}
    locks = core.rooms.leases.collect(living)
    drafts = 0
    if core.root.local_path is not None:
        # A live draft is there for milliseconds, also of a thread of our own.
        quiet_us = core.world.clock.now_us() - GRACE_MS * 1000
        before_us = min(how.before_us, quiet_us)
        drafts = collect_drafts(Path(core.root.local_path), before_us=before_us)
    if locks or drafts:
        core.world.steps.reach(Step.CLEANUP_CONTROL_FILES_REMOVED)
        logger.info("removed control files", extra={"locks": locks, "drafts": drafts})


def end_retired(core: Core, found: Survey) -> None:
    """Let go of deleted branches that no merge needs any more: from here on they are orphans.

    Who descends from whom outlasts them, so it is written down first, and no more of it than the
    commits left refer to.
    """
    retired, files = found.retired, core.rooms.manifests.retired
    if found.unreadable or retired.problem is not None:
        return  # what an unreadable branch has merged is not known: next time
    if not (retired.ended or retired.kept):
        return
    staying = (*core.rooms.refs.list(), *retired.needed)
    left = _parents(core, staying)
    going = {**retired.kept, **_parents(core, retired.ended)}
    forgotten = {one: going[one] for one in going.keys() - left.keys()}
    short = contracted(left, forgotten, bases=retired.bases)

    def changed(now: Kept) -> Kept:
        # What others wrote down since the survey is none of ours, and a commit that a branch has
        # stays, because that branch may be on its way out.
        return {
            **{one: now[one] for one in now if one not in retired.kept or one in left},
            **short,
        }

    files.change_descent(changed)
    core.world.steps.reach(Step.CLEANUP_DESCENT_KEPT)
    for branch in retired.ended:
        assert branch.id is not None, "main is never retired"
        files.end(branch.id)
        core.world.steps.reach(Step.CLEANUP_RETIRED_ENDED)


def _parents(core: Core, branches: Iterable[Branch]) -> dict[str, tuple[str, ...]]:
    rows = Descent(core.rooms.manifests, branches).rows()
    return {one: parents_of(row) for one, row in rows.items()}


def _locations(core: Core, found: Survey) -> list[str]:
    stored = {
        "/".join(key.split("/")[:2])
        for folder in _FOLDERS
        for key in core.store.list_keys(folder)
        if key.count("/") > 1
    }
    return sorted(stored | found.table_keys.keys())


# --- tables ----------------------------------------------------------------------------------


def _reclaim_table(core: Core, found: Survey, location: str, how: Reclaim) -> list[str]:
    if not any(location == at for at, _ in found.lines):
        return _reclaim_whole(core, location, how)
    lines = core.rooms.tables.lines(location)
    needed = {branch for at, branch in found.lines if at == location and branch is not None}
    needed |= _ancestors(needed, lines)
    order = children_first(lines.keys() - needed, lines)
    return [line for line in order if _drop_line(core, location, line, lines[line], how)]


def _reclaim_whole(core: Core, location: str, how: Reclaim) -> list[str]:
    """A table that no kept snapshot knows: of a type that is gone, or of one being made."""
    tables = core.rooms.tables
    try:
        written_us = tables.last_written_us(location)
    except NotFoundError:
        written_us = 0
    if written_us > how.before_us:
        return []
    if not how.preview:
        # The place is never used again, so that nothing old can be taken for something new.
        core.store.put_if_absent(dropped_mark(location), b"")
        tables.forget(location)
        core.store.delete_prefix(location)
        core.world.steps.reach(Step.CLEANUP_FORK_RECLAIMED)
    return [location]


def _drop_line(core: Core, location: str, line: str, facts: Line, how: Reclaim) -> bool:
    owner_id = line.partition("__")[0]

    def is_needed() -> bool:
        manifests = core.rooms.manifests
        owner = manifests.refs.of_id(owner_id) or manifests.retired.of_id(owner_id)
        if owner is None:
            return False
        entries = manifests.head(owner).datasets
        if any((entry.location, entry.branch) == (location, line) for entry in entries):
            return True
        # A writer makes its line, prepares without the lease, and comes back to use it.
        return facts.created_at is None or facts.created_at > how.before_us

    def drop(_: Lease) -> bool:
        if is_needed():
            return False
        core.rooms.tables.drop_branch(location, line)
        core.world.steps.reach(Step.CLEANUP_FORK_RECLAIMED)
        return True

    if how.preview:
        return not is_needed()
    # A line of a migrated graph has the name of its branch, and names may hold what paths must not.
    name = quote(owner_id, safe="")
    return core.rooms.leases.holding(name, drop, wait_ms=LEASE_WAIT_MS_MAX)


def _ancestors(needed: Iterable[str], lines: Mapping[str, Line]) -> set[str]:
    """The lines that needed ones stand on."""
    found: set[str] = set()
    for line in needed:
        parent = lines[line].parent if line in lines else None
        while parent is not None and parent not in found:
            found.add(parent)
            parent = lines[parent].parent if parent in lines else None
    return found


def children_first(names: Iterable[str], lines: Mapping[str, Line]) -> list[str]:
    """Lines in an order in which each comes before the one it was made from."""

    def depth(name: str) -> int:
        steps, parent = 0, lines[name].parent
        while parent is not None and steps <= len(lines):
            steps, parent = steps + 1, lines[parent].parent if parent in lines else None
        return steps

    return sorted(names, key=lambda name: (-depth(name), name))


# --- the manifest ----------------------------------------------------------------------------


def _reclaim_manifest(core: Core, how: Reclaim) -> list[str]:
    datasets = core.rooms.manifests.datasets
    lines = core.rooms.tables.lines(MANIFEST)
    standing = (*core.rooms.refs.list(), *core.rooms.manifests.retired.branches())
    live = {branch.id for branch in standing if branch.id is not None}
    needed = live | _ancestors(live, lines)
    gone: list[str] = []
    for line in children_first(lines.keys() - needed, lines):
        made_us = lines[line].created_at
        # A branch is forked first and gets its name then: a young one may be about to.
        if made_us is not None and made_us > how.before_us:
            continue
        # In this order: a branch that is being deleted is retired before it loses its name.
        if core.rooms.manifests.refs.of_id(line) or core.rooms.manifests.retired.of_id(line):
            continue
        if not how.preview:
            datasets.drop(line)
            core.world.steps.reach(Step.CLEANUP_FORK_RECLAIMED)
        gone.append(line)
    return gone
