"""What must be kept, decided from everything that anybody may still ask for.

A snapshot is kept if the policy says so, if it was the head a moment ago, or if a live branch needs
it: as its head, as the point it was made from, or as the base of a future merge. Everything that a
kept snapshot or an unfinished write pins is kept with it. The rest may go.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from omnigraph.engine.core import Core
from omnigraph.errors import CorruptGraphError, NotFoundError
from omnigraph.model.graph import Branch, Pin, Snapshot
from omnigraph.storage.commit.sidecar import Sidecar
from omnigraph.storage.layout import MANIFEST
from omnigraph.storage.manifest.history import Descent, bases_of_all
from omnigraph.storage.manifest.legacy import is_adopted
from omnigraph.storage.manifest.ref_files import Kept
from omnigraph.storage.manifest.rows import CommitRow
from omnigraph.storage.manifest.store import Known

Line = tuple[str, str | None]  # a table's location, and the Lance branch of it


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the past to keep: a version goes only if every given bound lets it go.

    `older_than_us` lets go what was made before that moment; `superseded_us` is the moment from
    which on former heads stay, because somebody may still be reading them.
    """

    keep_versions: int | None
    older_than_us: int | None
    superseded_us: int

    def keeps(self, *, rank: int, made_us: int, followed_us: int | None) -> bool:
        """Whether the version stays. `rank` counts from 0 at the head."""
        if followed_us is None or followed_us >= self.superseded_us:
            return True
        by_count = self.keep_versions is not None and rank < self.keep_versions
        by_age = self.older_than_us is not None and made_us >= self.older_than_us
        return by_count or by_age


class Retired(msgspec.Struct, frozen=True, kw_only=True):
    """Deleted branches: those that a merge may still need, those that no merge needs any more, and
    what was written down of commits that have no manifest. If that is damaged, `problem` says so
    and nothing is ended."""

    needed: tuple[Branch, ...] = ()
    ended: tuple[Branch, ...] = ()
    kept: Kept
    bases: frozenset[str] = frozenset()  # where merges of live branches start from
    problem: str | None = None


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What stays and what may go, as of one look at the graph."""

    unwanted: Mapping[str | None, tuple[int, ...]]  # manifest versions by branch id
    pins: Mapping[Line, frozenset[int]]
    table_keys: Mapping[str, str]  # location -> the name it goes by
    unreadable: tuple[str, ...]  # branches whose reference or history cannot be read
    blind: bool  # whether what some branch needs is not known, so that nothing may go
    retired: Retired

    def pinned(self, line: Line) -> frozenset[int]:
        return self.pins.get(line, frozenset())

    @property
    def lines(self) -> frozenset[Line]:
        return frozenset(self.pins)


class _Look(msgspec.Struct, frozen=True, kw_only=True):
    """One branch as it was seen: its head, and when each stored version was made and followed."""

    head: Snapshot
    versions: Mapping[int, tuple[int, int | None]]
    former: tuple[CommitRow, ...] = ()  # from before a migration, on another line; newest first


def survey(core: Core, policy: Policy) -> Survey:
    """Look at every live branch, every deleted one that may be needed, and every unfinished
    write."""
    looks: dict[Branch, _Look] = {}
    damaged: list[str] = []
    named = core.store.refs.list()
    lost = [ref.name for ref in core.store.refs.unreadable()]
    nameless = _nameless(core, named) if lost else []
    for branch in (*named, *nameless):
        try:
            looks[branch] = _look(core, branch)
        except (NotFoundError, CorruptGraphError):
            if branch in nameless or _is_live(core, branch):  # else it was just deleted
                damaged.append(branch.name)
    branches = tuple(looks)
    kept = {branch.id: _kept(look.versions, policy) for branch, look in looks.items()}
    retired = _put_aside(core)
    descent = Descent(core.store.manifests, (*looks, *retired.needed), kept=retired.kept)
    # One look at the history answers for every pair of branches.
    bases = bases_of_all((each.head.graph_commit_id for each in looks.values()), descent.parents)
    needed = [row for one in bases | _forks(looks) if (row := descent.row(one)) is not None]
    retired = _judged(core, replace(retired, bases=bases), branches, needed)
    for branch in retired.needed:
        looks[branch] = _look(core, branch)
        kept[branch.id] = {max(looks[branch].versions)}  # only what merges need: no policy
    for row in needed:
        if row.branch_id in kept:
            kept[row.branch_id].add(row.commit.graph_manifest_version)
    former = [row for row in needed if row.branch_id not in kept]
    former += (row for look in looks.values() for row in _kept_former(look, policy))
    heads = [look.head for look in looks.values()]
    pins = {
        entry.pin
        for snapshot in (
            *_snapshots(core, looks, kept, damaged),
            *_former_snapshots(core, former, damaged),
            *heads,
        )
        for entry in snapshot.datasets
    }
    return Survey(
        unwanted={
            branch.id: tuple(sorted(look.versions.keys() - kept[branch.id]))
            for branch, look in looks.items()
            if branch not in nameless
        },
        pins=_by_line(pins | _sidecar_pins(core)),
        table_keys={
            entry.location: entry.table_key for head in heads[::-1] for entry in head.datasets
        },
        unreadable=(*lost, *damaged),
        blind=bool(damaged),
        retired=retired,
    )


def _nameless(core: Core, named: Iterable[Branch]) -> list[Branch]:
    """Every manifest line that no readable reference names: what an unreadable one needs is among
    what these need."""
    manifests = core.store.manifests
    known = {branch.id for branch in (*named, *manifests.retired.branches())}
    return [
        Branch(
            name=f"the branch with id {line}",
            id=line,
            parent=None,
            fork_commit_id=None,
            created_by=None,
            created_at=0,
        )
        for line in core.store.tables.lines(MANIFEST)
        if line not in known
    ]


def _put_aside(core: Core) -> Retired:
    """The deleted branches that were put aside, all taken for needed."""
    files = core.store.manifests.retired
    branches = tuple(files.branches())
    try:
        return Retired(needed=branches, kept=files.descent())
    except CorruptGraphError as cause:  # space can be freed without it
        return Retired(needed=branches, kept={}, problem=cause.message)


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
        if still and branch.id not in owners:
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


def _look(core: Core, branch: Branch) -> _Look:
    manifests = core.store.manifests
    stored = manifests.datasets.versions(branch.id)
    known = manifests.fresh(branch.id)
    made = _made(
        (row for chunk in manifests.commit_chunks(known) for row in chunk),
        branch_id=branch.id,
        oldest=stored[0],
    )
    found: dict[int, tuple[int, int | None]] = {}
    followed: int | None = None
    for version in reversed([one for one in stored if one <= known.version]):
        # A version without a commit of its own (a migration, a fork's first) is as old as the next.
        at = made.get(version, followed if followed is not None else branch.created_at)
        found[version] = (at, followed)
        followed = at
    former = tuple(_former(core, branch, known)) if is_adopted(branch.id or "") else ()
    return _Look(head=known.snapshot(branch), versions=found, former=former)


def _former(core: Core, branch: Branch, known: Known) -> Iterator[CommitRow]:
    """The branch's own commits from before a migration: their manifests lie on the old line, which
    stays as long as the branch does."""
    for chunk in core.store.manifests.commit_chunks(known):
        for row in chunk:
            if row.commit.graph_branch == branch.name and row.branch_id != branch.id:
                yield row


def _kept_former(look: _Look, policy: Policy) -> Iterator[CommitRow]:
    followed = min(made for made, _ in look.versions.values())
    for rank, row in enumerate(look.former, start=len(look.versions)):
        made = row.commit.created_at
        if policy.keeps(rank=rank, made_us=made, followed_us=followed):
            yield row
        followed = made


def _former_snapshots(
    core: Core, rows: Iterable[CommitRow], damaged: list[str]
) -> Iterator[Snapshot]:
    for row in rows:
        try:
            yield core.store.manifests.at_commit(row.id)
        except NotFoundError:
            continue  # an earlier cleanup took it
        except CorruptGraphError:
            damaged.append(row.commit.graph_branch)


def _made(rows: Iterator[CommitRow], *, branch_id: str | None, oldest: int) -> dict[int, int]:
    made: dict[int, int] = {}
    for row in rows:
        if row.commit.graph_manifest_version < oldest:
            break
        if row.branch_id == branch_id:
            made[row.commit.graph_manifest_version] = row.commit.created_at
    return made


def _kept(versions: Mapping[int, tuple[int, int | None]], policy: Policy) -> set[int]:
    newest_first = sorted(versions, reverse=True)
    return {
        version
        for rank, version in enumerate(newest_first)
        if policy.keeps(rank=rank, made_us=versions[version][0], followed_us=versions[version][1])
    }


def _forks(looks: Iterable[Branch]) -> frozenset[str]:
    """Where the branches were made."""
    return frozenset(one.fork_commit_id for one in looks if one.fork_commit_id is not None)


def _snapshots(
    core: Core,
    looks: Mapping[Branch, _Look],
    kept: Mapping[str | None, set[int]],
    damaged: list[str],
) -> Iterator[Snapshot]:
    for branch in looks:
        for version in kept[branch.id]:
            try:
                yield core.store.manifests.at_version(branch, version)
            except NotFoundError:
                continue  # an earlier cleanup, or one that died, took it
            except CorruptGraphError:
                damaged.append(branch.name)


def _sidecar_pins(core: Core) -> set[Pin]:
    pins: set[Pin] = set()
    for sidecar in core.recovery.sidecars.pending():
        # An unreadable one can only be discarded, which needs nothing; whoever may still be at
        # work with it stands on heads, and what lies above every pin is never collected.
        effects = sidecar.effects if isinstance(sidecar, Sidecar) else ()
        for effect in effects:
            pins.add((effect.location, effect.branch, effect.expected_version))
    return pins
