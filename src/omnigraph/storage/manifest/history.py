"""Commits and who descends from whom: one branch's line, ancestors, the bases of merges.

A commit has up to two parents: the one it follows and the one it merged. *Common ancestors* of two
commits are the commits that both contain (a commit contains itself). The *best* of them are those
that no other common ancestor contains; a merge starts from them. After branches have merged each
other to and fro there can be several. The first half answers from parents alone and is pure; the
second reads the parents from the manifests of many branches.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

import msgspec

from omnigraph.errors import CorruptGraphError
from omnigraph.model.graph import Branch, Commit
from omnigraph.model.limits import MERGE_BASE_ROUNDS_MAX
from omnigraph.storage.manifest.ref_files import Kept
from omnigraph.storage.manifest.rows import CommitRow
from omnigraph.storage.manifest.store import ManifestStore

# The parents of a commit, or None if nobody knows the commit any more.
Parents = Callable[[str], tuple[str, ...] | None]


class Bases(msgspec.Struct, frozen=True, kw_only=True):
    """Where a merge starts from.

    `best` are the best common ancestors, sorted. `unknown` are commits that one of the sides
    merged and nobody knows any more: better ancestors may lie behind them, so that `best` can be
    too old. Empty is the rule. If a commit that only common ancestors lead to is not known, `best`
    may have an older one besides; what that one shares with the others is unknown, then.
    """

    best: tuple[str, ...]
    unknown: frozenset[str] = frozenset()


def contained(
    starts: Iterable[str], parents: Parents, *, but: Collection[str] = frozenset()
) -> set[str]:
    """The commits, and all that lies behind them, `but` for these and what lies behind those."""
    found = set(starts).difference(but)
    waiting = list(found)
    while waiting:
        for parent in parents(waiting.pop()) or ():
            if parent not in found and parent not in but:
                found.add(parent)
                waiting.append(parent)
    return found


def best_common(ours: Iterable[str], theirs: Iterable[str], parents: Parents) -> Bases:
    """The best common ancestors of two commits, or of two groups that each stand for one commit
    with these parents."""
    mine, others = contained(ours, parents), contained(theirs, parents)
    common = mine & others
    # Whatever a common ancestor contains is common too, so only its parents need a look.
    behind = {parent for one in common for parent in parents(one) or ()}
    # What lies behind a common ancestor is common and not best, known or not.
    unknown = {one for one in mine | others if parents(one) is None} - behind
    best = common - behind
    assert best or not common, "a history without a newest commit goes round in circles"
    return Bases(best=tuple(sorted(best - unknown)), unknown=frozenset(unknown))


def maximal(commits: Collection[str], parents: Parents) -> tuple[str, ...]:
    """Those of the commits that no other of them contains, sorted."""
    behind = contained((each for one in commits for each in parents(one) or ()), parents)
    return tuple(sorted(set(commits) - behind))


def contracted(
    left: Mapping[str, tuple[str, ...]],
    going: Mapping[str, tuple[str, ...]],
    *,
    bases: Collection[str],
) -> dict[str, tuple[str, ...]]:
    """What has to be remembered of the commits that go, so that those left still contain the same:
    each that is a parent of one left, with the nearest ones behind it that stay known.

    Bases of merges are remembered too. Their snapshots should be there; if one is not, a merge has
    to find that out rather than start from an older commit.
    """
    every = {**going, **left}
    named = {parent for parents in left.values() for parent in parents}
    named = ((named | set(bases)) - left.keys()) & going.keys()
    found: dict[str, tuple[str, ...]] = {}
    for one in sorted(named):
        nearest: set[str] = set()
        seen, waiting = {one}, [one]
        while waiting:
            for parent in going[waiting.pop()]:
                if parent in left or parent in named or parent not in going:
                    nearest.add(parent)
                elif parent not in seen:
                    seen.add(parent)
                    waiting.append(parent)
        found[one] = maximal(nearest, every.get)
    return found


# --- all pairs at once -----------------------------------------------------------------------


def bases_of_all(heads: Iterable[str], parents: Parents) -> frozenset[str]:
    """The best common ancestors of every two of the heads, of every two of those, and so on.

    The bases of bases are what a merge with several of them has to compare those with. No commit
    outside can become the base of a merge later on: new commits stand on the heads, and whatever
    two heads share lies behind a commit that is in here already.
    """
    marks = sorted(set(heads))
    found: frozenset[str] = frozenset()
    for _ in range(MERGE_BASE_ROUNDS_MAX):
        found = _bases_of(marks, parents)
        more = found.difference(marks)
        if not more:
            break
        marks += sorted(more)
    return found


def _bases_of(marks: Collection[str], parents: Parents) -> frozenset[str]:
    """The best common ancestors of every two of the marked commits, by one walk.

    Each commit gets a set of bits: the marked commits that contain it. It is the best for a pair
    of them if none of its children has both bits.
    """
    order, children = _children_first(marks, parents)
    bit = {mark: 1 << number for number, mark in enumerate(marks)}
    holders: dict[str, int] = {}
    found: set[str] = set()
    for one in order:
        cliques = {holders[child] for child in children.get(one, ())}
        mine = bit.get(one, 0)
        for clique in cliques:
            mine |= clique
        holders[one] = mine
        if mine & (mine - 1) and mine not in cliques and _leaves_a_pair(mine, cliques):
            found.add(one)
    return frozenset(found)


def _leaves_a_pair(whole: int, cliques: Collection[int]) -> bool:
    """Whether two bits of the whole are together in none of the cliques."""
    for bit in _bits(whole):
        together = bit
        for clique in cliques:
            if clique & bit:
                together |= clique
        if together != whole:
            return True
    return False


def _bits(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest
        number ^= lowest


def _children_first(
    heads: Iterable[str], parents: Parents
) -> tuple[list[str], Mapping[str, list[str]]]:
    """Everything that the heads contain, each commit after all of its children."""
    children: dict[str, list[str]] = {}
    every = contained(heads, parents)
    for one in every:
        for parent in parents(one) or ():
            children.setdefault(parent, []).append(one)
    open_children = {one: len(children.get(one, ())) for one in every}
    ready = [one for one in every if not open_children[one]]
    order: list[str] = []
    while ready:
        one = ready.pop()
        order.append(one)
        for parent in parents(one) or ():
            open_children[parent] -= 1
            if not open_children[parent]:
                ready.append(parent)
    assert len(order) == len(every), "a history that goes round in circles"
    return order, children


# --- read from the manifests of many branches ------------------------------------------------


class History:
    """The commits of a graph. Reads only as far back as the question needs."""

    def __init__(self, manifests: ManifestStore) -> None:
        self._manifests = manifests

    def commits(
        self, start: Branch | Commit, *, actor: str | None = None, limit: int | None = None
    ) -> list[Commit]:
        """The line of a branch or from a commit, newest first; the last is the genesis commit.

        A merge's other parent is named by its commit but not walked into. `actor` keeps only that
        actor's commits, `limit` stops after so many of them (None = all).
        """
        line = self.line(start)
        wanted = (one for one in line if actor in (None, one.actor_id))
        return list(islice(wanted, limit if limit is None else min(limit, sys.maxsize)))

    def line(self, start: Branch | Commit) -> Iterator[Commit]:
        """The head of the branch, or the commit, and those before it along first parents."""
        if isinstance(start, Branch):
            yield from self._manifests.line(self._manifests.fresh(start.id))
            return
        descent = self.descent()
        row = descent.row(start.graph_commit_id)
        while row is not None:
            yield row.commit
            parent = row.commit.parent_commit_id
            row = None if parent is None else descent.row(parent)

    def commit(self, commit_id: str) -> Commit:
        """The commit of any live branch, or of a deleted one that a live one has merged;
        `NotFoundError` if nobody knows it."""
        return self._manifests.commit(commit_id)

    def descent(self, *, first: Sequence[Branch] = ()) -> Descent:
        """Who descends from whom, read as far as it is asked for; the first branches' lines first.

        A branch's own manifest knows every commit of its line, so that others have to be read only
        for what was merged from them.
        """
        return Descent(self._manifests, chain(first, self._others(first)))

    def _others(self, first: Sequence[Branch]) -> Iterator[Branch]:
        seen = {branch.id for branch in first}
        yield from (branch for branch in self._manifests.refs.all() if branch.id not in seen)
        # After the live ones: a branch that is deleted meanwhile is in one of the two listings.
        yield from (one for one in self._manifests.retired.branches() if one.id not in seen)


class Descent:
    """Commits by id over many branches, each branch read backwards as far as needed.

    Commits that only a deleted branch had are answered from what was written down of them, or from
    `kept` if the caller has that already. If that record is damaged they are unknown, and `damage`
    says why.
    """

    def __init__(
        self, manifests: ManifestStore, branches: Iterable[Branch], *, kept: Kept | None = None
    ) -> None:
        self._manifests = manifests
        self._known: dict[str, CommitRow] = {}
        self._parents: dict[str, tuple[str, ...]] = {}  # asked for several times in one walk
        self._chunks = manifests.every_chunk(branches)
        self._kept = kept
        self._given = kept is not None
        self.damage: CorruptGraphError | None = None

    def row(self, commit_id: str) -> CommitRow | None:
        """The commit, or None if no branch has it."""
        while commit_id not in self._known:
            chunk = next(self._chunks, None)
            if chunk is None:
                return None
            self._learn(chunk)
        return self._known[commit_id]

    def rows(self) -> Mapping[str, CommitRow]:
        """Every commit of the branches."""
        for chunk in self._chunks:
            self._learn(chunk)
        return self._known

    def _learn(self, chunk: Iterable[CommitRow]) -> None:
        for row in chunk:
            self._known[row.id] = row
            self._parents[row.id] = parents_of(row)

    def parents(self, commit_id: str) -> tuple[str, ...] | None:
        """The parents of the commit; None if nobody knows it."""
        known = self._parents.get(commit_id)
        if known is not None:
            return known
        if self._kept is None:
            self._kept = self._written_down()
        if commit_id in self._kept:
            return self._kept[commit_id]
        if self.row(commit_id) is not None:
            return self._parents[commit_id]
        if not self._given:
            # A branch that was deleted while we read was written down before it went.
            self._kept = self._written_down()
        return self._kept.get(commit_id)

    def _written_down(self) -> Kept:
        try:
            return self._manifests.retired.descent()
        except CorruptGraphError as cause:
            self.damage = cause
            return {}


def parents_of(row: CommitRow) -> tuple[str, ...]:
    """The commit that it followed, then the one that it merged."""
    both = (row.commit.parent_commit_id, row.commit.merged_parent_commit_id)
    return tuple(parent for parent in both if parent is not None)


# --- when a branch goes ----------------------------------------------------------------------


class Farewell(msgspec.Struct, frozen=True, kw_only=True):
    """What has to stay of a branch that is deleted.

    `needed`: it holds the base of a merge that the others may still make, or what a tag names.
    `kept`: its commits that the others contain, each with its parents.
    """

    needed: bool = False
    kept: Mapping[str, tuple[str, ...]]
    commits: Mapping[str, Commit] = msgspec.field(default_factory=dict)


def farewell(
    manifests: ManifestStore, going: Branch, others: Iterable[Branch], *, tagged: Collection[str]
) -> Farewell:
    """Look at what the branches that stay have merged of the one that goes, and at what tags name
    of it."""
    known = manifests.fresh(going.id)
    if known.tail.head.branch_id != going.id:
        return Farewell(kept={})  # it has no commit of its own
    staying = tuple(others)
    retired = tuple(each for each in manifests.retired.branches() if each.id != going.id)
    left = Descent(manifests, (*staying, *retired)).rows()
    facts = {**manifests.retired.descent(), **{one: parents_of(row) for one, row in left.items()}}
    gone = {row.id: row for chunk in manifests.commit_chunks(known) for row in chunk}
    every = {**{one: parents_of(row) for one, row in gone.items()}, **facts}
    merged = {parent for parents in facts.values() for parent in parents} - facts.keys()
    heads = [manifests.last_known(branch.id).tail.head.id for branch in staying]
    bases = bases_of_all(heads, every.get)
    kept = {
        one: every[one]
        for one in contained(merged & gone.keys(), every.get)
        if one in gone and one not in facts
    }
    return Farewell(
        # A base that no other manifest knows counts too: migrated branches have commits of an
        # older id.
        needed=any(
            one in gone and (gone[one].branch_id == going.id or one not in left)
            for one in bases.union(tagged)
        )
        or any(each.parent in (going.name, None) for each in retired),
        kept=kept,
        commits={one: gone[one].commit for one in kept},
    )
