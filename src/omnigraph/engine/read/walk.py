"""Walking several hops: breadth first, from many nodes at once.

The relation is defined from the source side: a target counts at its smallest depth, if that depth
is within the bounds; the source itself is not found again through a cycle; and a self loop on the
target, met one hop after the target was reached, gives it once more if it has not counted yet.
Walking backwards gives exactly the same pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Protocol

import numpy as np

from omnigraph.engine.read.adjacency import Hits
from omnigraph.engine.read.column import Mask, Positions
from omnigraph.engine.read.topology import Direction

_BITMAP_CELLS_MAX: Final = 1 << 26
_REVERSED: Final[Mapping[Direction, Direction]] = {"out": "in", "in": "out", "both": "both"}
_NOTHING: Final[Positions] = np.empty(0, dtype=np.int64)

Checkpoint = Callable[[int], None]  # called with the number of pairs about to be held


class Adjacency(Protocol):
    """Who is next to whom: a topology, or lookups in the edge table."""

    @property
    def node_bound(self) -> int: ...

    def degree_sum(self, nodes: Positions, direction: Direction) -> int: ...

    def neighbours(self, nodes: Positions, direction: Direction) -> Hits: ...

    def has_loop(self, nodes: Positions) -> Mask: ...


def reach(
    topology: Adjacency,
    starts: Positions,
    *,
    direction: Direction,
    backwards: bool,
    min_hops: int,
    max_hops: int,
    checkpoint: Checkpoint,
) -> tuple[Positions, Positions]:
    """Pairs (index into `starts`, node at the other end), sorted, each once.

    `starts` are distinct. With `backwards` they are the far ends, and the nodes found are sources.
    """
    side: Direction = _REVERSED[direction] if backwards else direction
    size = max(topology.node_bound, int(starts.max(initial=0)) + 1)
    seen = _Seen(len(starts), size)

    def looped(keys: Positions) -> Positions:
        """Of pairs one hop too near to count, those whose target has a self loop."""
        who, nodes = np.divmod(keys, size)
        return keys[topology.has_loop(starts[who] if backwards else nodes)]

    keys = np.arange(len(starts), dtype=np.int64) * size + starts
    seen.add(keys)
    found = [looped(keys)] if min_hops == 1 else []
    for depth in range(1, max_hops + 1):
        who, nodes = np.divmod(keys, size)
        checkpoint(topology.degree_sum(nodes, side))
        hits = topology.neighbours(nodes, side)
        keys = np.unique(who[hits.rows] * size + hits.targets)
        keys = keys[seen.lacks(keys)]
        if not len(keys):
            break
        seen.add(keys)
        if depth >= min_hops:
            found.append(keys)
        elif depth + 1 == min_hops:
            found.append(looped(keys))
    pairs = np.divmod(np.sort(np.concatenate([_NOTHING, *found])), size)
    return pairs[0], pairs[1]


class _Seen:
    """A set of pair keys: a bitmap when that is small, sorted keys otherwise."""

    def __init__(self, starts: int, size: int) -> None:
        cells = starts * size
        self._bits = np.zeros(cells, dtype=np.bool_) if cells <= _BITMAP_CELLS_MAX else None
        self._keys: Positions = np.empty(0, dtype=np.int64)

    def add(self, keys: Positions) -> None:
        if self._bits is not None:
            self._bits[keys] = True
        else:
            self._keys = np.union1d(self._keys, keys)

    def lacks(self, keys: Positions) -> Mask:
        if self._bits is not None:
            return ~self._bits[keys]
        return np.isin(keys, self._keys, invert=True)
