"""Questions about who descends from whom, answered from parents alone. Pure: no I/O.

A commit has up to two parents: the one it follows and the one it merged. *Common ancestors* of two
commits are the commits that both contain (a commit contains itself). The *best* of them are those
that no other common ancestor contains; a merge starts from them. After branches have merged each
other to and fro there can be several.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from omnigraph.model.limits import MERGE_BASE_ROUNDS_MAX

# The parents of a commit, or None if nobody knows the commit any more.
Parents = Callable[[str], tuple[str, ...] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bases:
    """Where a merge starts from.

    `best` are the best common ancestors, sorted. `unknown` are commits that one of the sides
    merged and nobody knows any more: better ancestors may lie behind them, so that `best` can be
    too old. Empty is the rule. If a commit that only common ancestors lead to is not known, `best`
    may have an older one besides; what that one shares with the others is unknown, then.
    """

    best: tuple[str, ...]
    unknown: frozenset[str] = frozenset()


def contained(starts: Iterable[str], parents: Parents) -> set[str]:
    """The commits, and all that lies behind them."""
    found = set(starts)
    waiting = list(found)
    while waiting:
        for parent in parents(waiting.pop()) or ():
            if parent not in found:
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
