"""The history drawn as text: a lane for each line of commits, parting and meeting. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol


class Drawn(Protocol):
    """What the drawing needs to know of a commit."""

    @property
    def graph_commit_id(self) -> str: ...
    @property
    def parent_commit_id(self) -> str | None: ...
    @property
    def merged_parent_commit_id(self) -> str | None: ...
    @property
    def created_at(self) -> int: ...


def in_order(commits: Iterable[Drawn]) -> list[Drawn]:
    """Newest first, and no commit before one that came from it, whatever the clocks said."""
    known = {one.graph_commit_id: one for one in commits}
    children = dict.fromkeys(known, 0)
    for one in known.values():
        for parent in _parents(one, known):
            children[parent] += 1
    ready = [_rank(one) for one in known.values() if not children[one.graph_commit_id]]
    heapq.heapify(ready)
    ordered: list[Drawn] = []
    while ready:
        one = known[heapq.heappop(ready)[1]]
        ordered.append(one)
        for parent in _parents(one, known):
            children[parent] -= 1
            if not children[parent]:
                heapq.heappush(ready, _rank(known[parent]))
    return ordered


def _rank(one: Drawn) -> tuple[int, str]:
    return -one.created_at, one.graph_commit_id


def _parents(one: Drawn, known: Mapping[str, Drawn]) -> list[str]:
    """Its parents that are drawn; commits of a deleted branch are not."""
    both = (one.parent_commit_id, one.merged_parent_commit_id)
    return [parent for parent in dict.fromkeys(both) if parent is not None and parent in known]


def draw(commits: Sequence[Drawn], labels: Mapping[str, str]) -> Iterator[str]:
    """A line a commit with its label, and lines between where lanes part or meet.

    `commits` stand in the order of `in_order`.
    """
    known = {one.graph_commit_id: one for one in commits}
    lanes: list[str] = []  # the commit that each lane waits for
    for one in commits:
        here = one.graph_commit_id
        if here not in lanes:
            lanes.append(here)
        at = lanes.index(here)
        for extra in reversed([n for n in range(at + 1, len(lanes)) if lanes[n] == here]):
            yield _joining(len(lanes), into=at, extra=extra)
            del lanes[extra]
        yield f"{_row(len(lanes), at)} {labels[here]}"
        parents = _parents(one, known)
        lanes[at : at + 1] = parents[:1]
        if len(parents) > 1:
            lanes.insert(at + 1, parents[1])
            yield _parting(len(lanes), at)


def _row(count: int, at: int) -> str:
    return " ".join("*" if lane == at else "|" for lane in range(count))


def _parting(count: int, at: int) -> str:
    """A lane begins to the right of another; all that follow move over."""
    kept = " ".join("|" for _ in range(at + 1))
    return kept + "\\" + " \\" * (count - at - 2)


def _joining(count: int, *, into: int, extra: int) -> str:
    """A lane ends in one to its left, passing below those in between; all that follow move over."""
    kept = " ".join("|" for _ in range(into + 1))
    return kept + "_|" * (extra - into - 1) + "/" + " /" * (count - extra - 1)
