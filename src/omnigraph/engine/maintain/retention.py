"""What must be kept, decided from everything that anybody may still ask for.

A snapshot is kept if the policy says so, if it was the head a moment ago, or if a live branch needs
it: as its head, as the point it was made from, or as the base of a future merge; and if a tag names
it. Everything that a kept snapshot or an unfinished write pins is kept with it. The rest may go.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain

import msgspec
import orjson
from msgspec.structs import replace

from omnigraph.engine.core import Core
from omnigraph.engine.maintain.stored_retention import Retention
from omnigraph.errors import CorruptGraphError, NotFoundError
from omnigraph.model.graph import Branch, Pin, Snapshot
from omnigraph.model.limits import MAINTENANCE_CONCURRENCY
from omnigraph.storage.commit.sidecar import Sidecar
from omnigraph.storage.manifest.history import Descent, bases_of_all
from omnigraph.storage.manifest.legacy import is_adopted
from omnigraph.storage.manifest.ref_files import MAIN_BRANCH, Kept
from omnigraph.storage.manifest.rows import CommitRow
from omnigraph.storage.objects.root import HOLDS, MANIFEST

Line = tuple[str, str | None]  # a table's location, and the Lance branch of it


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the past to keep, seen from a moment.

    `superseded_us` is the moment from which on former heads stay, because somebody may still be
    reading them. Only a cleanup takes deleted branches: with `deleted_stay` all of them stay.
    """

    retention: Retention
    now_us: int
    superseded_us: int
    deleted_stay: bool = False

    def keeps_deleted(self, branch: Branch, deleted_us: int | None) -> bool:
        """Whether a deleted branch stays for whoever wants it back: as long as `older_than` says
        of snapshots."""
        if self.deleted_stay:
            return True
        age_us = self.retention.bounds(branch.name).older_than_us
        return age_us is not None and deleted_us is not None and deleted_us >= self.now_us - age_us

    def kept(self, branch: Branch, versions: Iterable[_Version]) -> Iterator[_Version]:
        """Those of a branch's versions, newest first, that stay."""
        bounds = self.retention.bounds(branch.name)
        count, age_us = bounds.keep_versions, bounds.older_than_us
        followed_us: int | None = None
        for rank, version in enumerate(versions):
            by_count = count is not None and rank < count
            by_age = age_us is not None and version.made_us >= self.now_us - age_us
            unbound = count is None and age_us is None
            recent = followed_us is None or followed_us >= self.superseded_us
            if recent or unbound or by_count or by_age:
                yield version
            followed_us = version.made_us


class Retired(msgspec.Struct, frozen=True, kw_only=True):
    """Deleted branches: those that a merge may still need, those that no merge needs any more, and
    what was written down of commits that have no manifest. If that is damaged, `problem` says so
    and nothing is ended."""

    needed: tuple[Branch, ...] = ()
    young: tuple[Branch, ...] = ()  # of those needed the ones that somebody may want back
    ended: tuple[Branch, ...] = ()
    kept: Kept
    bases: frozenset[str] = frozenset()  # where merges of live branches start from
    problem: str | None = None


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What stays and what may go, as of one look at the graph."""

    unwanted: Mapping[str | None, tuple[int, ...]]  # manifest versions by branch id
    pins: Mapping[Line, frozenset[int]]
    table_keys: Mapping[str, str]  # location -> the name it goes by
    unreadable: tuple[str, ...]  # branches and tags that cannot be read, or their history
    blind: bool  # whether what some branch needs is not known, so that nothing may go
    retired: Retired

    def pinned(self, line: Line) -> frozenset[int]:
        return self.pins.get(line, frozenset())


class _Version(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a branch's manifest. That of a `former` commit, from before a migration, lies
    on the old line, which stays as long as the branch does."""

    number: int
    made_us: int
    former: CommitRow | None = None


class _Look(msgspec.Struct, frozen=True, kw_only=True):
    """One branch as it was seen: its head, and its versions, newest first."""

    head: Snapshot
    versions: tuple[_Version, ...]

    @property
    def stored(self) -> frozenset[int]:
        """The versions on the branch's own line."""
        return frozenset(one.number for one in self.versions if one.former is None)


def side_by_side(core: Core, most: int = MAINTENANCE_CONCURRENCY) -> int:
    """How many lines to look at at once. A disk answers at once, so that more than there are cores
    would only wait for Python's lock; an object store lets each of them wait."""
    if core.root.local_path is not None:
        most = min(most, os.cpu_count() or 1)
    return max(1, most)


def is_held(core: Core, now_us: int, *, sweep: bool) -> bool:
    """Whether a copy of the graph is being made, which needs the past as it is. A hold that lapsed
    is of a process that died; `sweep` takes it away."""
    objects, held = core.store.objects, False
    for key in objects.list_keys(HOLDS):
        stored = objects.read(key)
        try:
            lapsed = stored is None or int(orjson.loads(stored.body)["until_us"]) < now_us
        except (ValueError, KeyError, TypeError):
            lapsed = True
        if lapsed and sweep:
            objects.delete(key)
        held = held or not lapsed
    return held


def survey(core: Core, policy: Policy) -> Survey:
    """Look at every live branch, every deleted one that may be needed, and every unfinished
    write."""
    damaged: list[str] = []
    named, unread = core.store.refs.look()
    lost = [ref.name for ref in unread]
    # What a tag that cannot be read names may be any commit.
    obscure = [f"tag {tag.name}" for tag in core.store.manifests.tags.unreadable()]
    nameless = _nameless(core, named) if lost else []
    looks = _looks(core, named, nameless, damaged)
    branches = tuple(looks)
    kept = {branch.id: _numbers(policy, branch, look) for branch, look in looks.items()}
    retired = _put_aside(core, policy)
    descent = Descent(core.store.manifests, (*looks, *retired.needed), kept=retired.kept)
    # One look at the history answers for every pair of branches.
    heads_of_young = (core.store.manifests.fresh(one.id).tail.head.id for one in retired.young)
    marks = (*(each.head.graph_commit_id for each in looks.values()), *heads_of_young)
    bases = bases_of_all(marks, descent.parents)
    standing = (*looks, *retired.young)
    forks = {branch.fork_commit_id for branch in standing if branch.fork_commit_id is not None}
    tagged = {tag.graph_commit_id for tag in core.store.manifests.tags.all()}
    needed = [row for one in bases | forks | tagged if (row := descent.row(one)) is not None]
    retired = _judged(core, replace(retired, bases=bases), branches, needed)
    for branch in retired.needed:
        looks[branch] = _look(core, branch)
        kept[branch.id] = {max(looks[branch].stored)}  # only what merges need: no policy
        if branch in retired.young:
            kept[branch.id] |= _numbers(policy, branch, looks[branch])
    for row in needed:
        if row.branch_id in kept:
            kept[row.branch_id].add(row.commit.graph_manifest_version)
    former = [row for row in needed if row.branch_id not in kept]
    former += (
        one.former
        for branch, look in looks.items()
        for one in policy.kept(branch, look.versions)
        if one.former is not None
    )
    heads = [look.head for look in looks.values()]
    snapshots = (*_readable(core, looks, kept, former, damaged), *heads)
    pins = {entry.pin for snapshot in snapshots for entry in snapshot.datasets}
    return Survey(
        unwanted={
            branch.id: tuple(sorted(look.stored - kept[branch.id]))
            for branch, look in looks.items()
            if branch not in nameless
        },
        pins=_by_line(pins | _sidecar_pins(core, heads)),
        table_keys={
            entry.location: entry.table_key for head in heads[::-1] for entry in head.datasets
        },
        unreadable=(*lost, *damaged, *obscure),
        blind=bool(damaged or obscure),
        retired=retired,
    )


def _looks(
    core: Core, named: Sequence[Branch], nameless: Sequence[Branch], damaged: list[str]
) -> dict[Branch, _Look]:
    """Each branch as it is; the names of those that cannot be read are told."""
    every = (*named, *nameless)
    looks: dict[Branch, _Look] = {}
    with ThreadPoolExecutor(side_by_side(core), thread_name_prefix="survey") as pool:
        for branch, look in zip(every, pool.map(partial(_tried, core), every), strict=True):
            if look is not None:
                looks[branch] = look
            elif branch in nameless or _is_live(core, branch):  # else it was just deleted
                damaged.append(branch.name)
    return looks


def _numbers(policy: Policy, branch: Branch, look: _Look) -> set[int]:
    """The versions on the branch's own line that the policy keeps."""
    return {one.number for one in policy.kept(branch, look.versions) if one.former is None}


def _nameless(core: Core, named: Iterable[Branch]) -> list[Branch]:
    """Every manifest line that no readable reference names: what an unreadable one needs is among
    what these need."""
    manifests = core.store.manifests
    known = {branch.id for branch in (*named, *manifests.retired.branches())}
    return [
        replace(MAIN_BRANCH, name=f"the branch with id {line}", id=line)
        for line in core.store.tables.lines(MANIFEST)
        if line not in known
    ]


def _put_aside(core: Core, policy: Policy) -> Retired:
    """The deleted branches that were put aside, all taken for needed."""
    files = core.store.manifests.retired
    branches = tuple(files.branches())
    young = tuple(
        branch
        for branch in branches
        if (one := files.retirement(branch)) is not None
        and policy.keeps_deleted(branch, one.deleted_at)
        and _is_whole(core, branch)
    )
    try:
        return Retired(needed=branches, young=young, kept=files.descent())
    except CorruptGraphError as cause:  # space can be freed without it
        return Retired(needed=branches, young=young, kept={}, problem=cause.message)


def _judged(
    core: Core, retired: Retired, live_branches: Iterable[Branch], needed_rows: Sequence[CommitRow]
) -> Retired:
    """The deleted branches by whether a base of a merge is theirs, or known by them alone."""
    if retired.problem is not None:
        return replace(retired, needed=tuple(b for b in retired.needed if _is_whole(core, b)))
    if not retired.needed:
        return retired
    manifests = core.store.manifests
    live = {branch.id for branch in core.store.refs.list()}
    owners = {row.branch_id for row in needed_rows}
    known = Descent(manifests, live_branches, kept=retired.kept).rows()
    lonely = [row.id for row in needed_rows if row.id not in known]
    needed: list[Branch] = []
    ended: list[Branch] = []
    for branch in retired.needed:
        # One that is live too was retired by a deletion that did not come to its end.
        still = branch.id not in live and _is_whole(core, branch)
        if still and branch.id not in owners and branch not in retired.young:
            tail = manifests.fresh(branch.id)
            still = any(manifests.find_row(tail, one) is not None for one in lonely)
        (needed if still else ended).append(branch)
    return replace(retired, needed=tuple(needed), ended=tuple(ended))


def _is_whole(core: Core, branch: Branch) -> bool:
    try:
        core.store.manifests.fresh(branch.id)
    except (NotFoundError, CorruptGraphError):
        return False
    return True


def _by_line(pins: Collection[Pin]) -> dict[Line, frozenset[int]]:
    found: dict[Line, set[int]] = {}
    for location, branch, version in pins:
        found.setdefault((location, branch), set()).add(version)
    return {line: frozenset(versions) for line, versions in found.items()}


def _is_live(core: Core, branch: Branch) -> bool:
    living = core.store.manifests.refs.find(branch.name)
    return living is not None and living.id == branch.id


def _tried(core: Core, branch: Branch) -> _Look | None:
    try:
        return _look(core, branch)
    except (NotFoundError, CorruptGraphError):
        return None


def _look(core: Core, branch: Branch) -> _Look:
    manifests = core.store.manifests
    known = manifests.fresh(branch.id)
    stored = manifests.datasets.kept(known.opened)
    adopted = is_adopted(branch.id or "")  # it may have commits from before a migration
    made: dict[int, int] = {}
    former: list[_Version] = []
    for row in chain.from_iterable(manifests.commit_chunks(known)):
        number, made_us = row.commit.graph_manifest_version, row.commit.created_us
        if number < stored[0] and not adopted:
            break
        if row.branch_id == branch.id:
            made[number] = made_us
        elif adopted and row.commit.graph_branch == branch.name:
            former.append(_Version(number=number, made_us=made_us, former=row))
    found: list[_Version] = []
    for number in reversed(stored):
        # A version without a commit of its own (a migration, a fork's first) is as old as the next.
        next_us = found[-1].made_us if found else branch.created_at
        found.append(_Version(number=number, made_us=made.get(number, next_us)))
    return _Look(head=known.snapshot(branch), versions=(*found, *former))


def _readable(
    core: Core,
    looks: Iterable[Branch],
    kept: Mapping[str | None, set[int]],
    former: Iterable[CommitRow],
    damaged: list[str],
) -> Iterator[Snapshot]:
    """The snapshots that are there; the names of branches that have a damaged one are told."""
    manifests = core.store.manifests
    asked: list[tuple[str, Callable[[], Snapshot]]] = [
        (branch.name, partial(manifests.at_version, branch, version))
        for branch in looks
        for version in kept[branch.id]
    ]
    asked += [(row.commit.graph_branch, partial(manifests.at_commit, row.id)) for row in former]
    for name, read in asked:
        try:
            yield read()
        except NotFoundError:
            continue  # an earlier cleanup, or one that died, took it
        except CorruptGraphError:
            damaged.append(name)


def _sidecar_pins(core: Core, heads: Iterable[Snapshot]) -> set[Pin]:
    """What unfinished writes stand on, and what they would show if they were finished."""
    pins: set[Pin] = set()
    known = {head.branch.id: head.entries for head in heads}
    for sidecar in core.recovery.sidecars.pending():
        if not isinstance(sidecar, Sidecar):
            # An unreadable one can only be discarded, which needs nothing; whoever may still be at
            # work with it stands on heads, and what lies above every pin is never collected.
            continue
        for effect in sidecar.effects:
            pins.add((effect.location, effect.branch, effect.expected_version))
        # A new type's table was filled before the sidecar, and no snapshot has it yet.
        entries = known.get(sidecar.branch_id, {})
        places = {key: entry.location for key, entry in entries.items()}
        places |= {new.table_key: new.location for new in sidecar.registrations}
        for update in sidecar.repoints:
            if update.table_key in places:
                pins.add((places[update.table_key], update.branch, update.version))
    return pins
