"""Graph algorithms over plain arrays: nodes are 0 to n - 1, an edge is a pair of them.

All of them are whole-array steps of NumPy over the ends of all edges. None depends on the order of
the edges; what is added up is added in the order of the nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from omnigraph.engine.read.memory.arrays import Positions, spread

Floats = npt.NDArray[np.float64]
Checkpoint = Callable[[int], None]  # called with the number of rows about to be held

WEDGES_AT_ONCE: Final = 1 << 22  # pairs of edges that are looked at together


def pagerank(
    count: int,
    src: Positions,
    dst: Positions,
    weights: Floats | None,
    *,
    damping: float,
    tolerance: float,
    rounds_max: int,
    checkpoint: Checkpoint,
) -> tuple[Floats, bool]:
    """The rank of every node, which sum to 1, and whether they settled.

    What a node without edges out has goes to all nodes alike. Rounds end when the ranks change by
    less than `tolerance` a node.
    """
    if not count:
        return np.zeros(0), True
    src, dst, weights = _in_order(count, src, dst, weights)
    out = np.bincount(src, weights=weights, minlength=count)
    share = np.divide(1.0, out, out=np.zeros(count), where=out > 0)
    nowhere = out == 0
    rank = np.full(count, 1.0 / count)
    for _ in range(rounds_max):
        checkpoint(len(src))
        given = (rank * share)[src]
        given = given if weights is None else given * weights
        found = np.bincount(dst, weights=given, minlength=count)
        found = damping * (found + rank[nowhere].sum() / count) + (1.0 - damping) / count
        change = float(np.abs(found - rank).sum())
        rank = found
        if change < tolerance * count:
            return rank, True
    return rank, False


def _in_order(
    count: int, src: Positions, dst: Positions, weights: Floats | None
) -> tuple[Positions, Positions, Floats | None]:
    """The edges by their ends, so that sums are the same however they were stored."""
    keys = src * count + dst
    if weights is not None:
        order = np.lexsort((weights, keys))
        return src[order], dst[order], weights[order]
    keys.sort()
    return keys // count, keys % count, None


def components(count: int, src: Positions, dst: Positions, checkpoint: Checkpoint) -> Positions:
    """For every node the smallest node of its component, directions aside."""
    least = np.arange(count, dtype=np.int64)
    while True:
        checkpoint(len(src))
        one, other = least[src], least[dst]
        differ = one != other
        if not differ.any():
            return least
        src, dst, one, other = src[differ], dst[differ], one[differ], other[differ]
        # Hang the greater root below the smaller one, then let everyone look at their root.
        np.minimum.at(least, np.maximum(one, other), np.minimum(one, other))
        while True:
            root = least[least]
            if np.array_equal(root, least):
                break
            least = root


def simple(count: int, src: Positions, dst: Positions) -> tuple[Positions, Positions]:
    """The pairs of different nodes that an edge joins, each once, the smaller node first."""
    low, high = np.minimum(src, dst), np.maximum(src, dst)
    keys = np.unique((low * count + high)[low != high])
    return keys // max(count, 1), keys % max(count, 1)


def triangles(count: int, src: Positions, dst: Positions, checkpoint: Checkpoint) -> Positions:
    """How many triangles every node is a corner of, directions and parallel edges aside."""
    low, high = simple(count, src, dst)
    degrees = np.bincount(low, minlength=count) + np.bincount(high, minlength=count)
    # Each edge from the node of fewer edges to that of more: then no node has many edges out.
    rank = np.empty(count, dtype=np.int64)
    rank[np.lexsort((np.arange(count), degrees))] = np.arange(count, dtype=np.int64)
    near = np.minimum(rank[low], rank[high])
    far = np.maximum(rank[low], rank[high])
    keys = np.sort(near * count + far)
    near, far = keys // max(count, 1), keys % max(count, 1)
    sizes = np.bincount(near, minlength=count)
    starts = np.cumsum(sizes) - sizes
    found = np.zeros(count, dtype=np.int64)
    for some in _slices(sizes[far], WEDGES_AT_ONCE):
        checkpoint(int(sizes[far[some]].sum()))
        rows, places = spread(starts[far[some]], sizes[far[some]])
        one, middle, last = near[some][rows], far[some][rows], far[places]
        wanted = one * count + last
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        closed = keys[at] == wanted
        for corner in (one, middle, last):
            found += np.bincount(corner[closed], minlength=count)
    return found[rank]


def _slices(sizes: Positions, most: int) -> Iterator[slice]:
    """Runs of rows whose sizes sum to about as much."""
    ends = np.cumsum(sizes)
    first = 0
    while first < len(sizes):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + most, side="right")))
        yield slice(first, last)
        first = last


def communities(
    count: int, src: Positions, dst: Positions, *, rounds_max: int, checkpoint: Checkpoint
) -> Positions:
    """A label for every node, by label propagation: each takes the label that most of its edges
    lead to, until all have such a one.

    A node keeps its label if that is among the most frequent, else takes the smallest of them. One
    half of the nodes moves at a time, another half each round, so that neighbours do not swap their
    labels for ever; the halves follow from the number of the node and of the round alone.
    """
    two_way = src != dst
    near = np.concatenate([src[two_way], dst[two_way]])
    far = np.concatenate([dst[two_way], src[two_way]])
    label = np.arange(count, dtype=np.int64)
    still = 0
    for turn in range(rounds_max):
        checkpoint(len(near))
        chosen = _half(count, turn)[near]
        pairs, votes = np.unique(near[chosen] * count + label[far[chosen]], return_counts=True)
        node, wanted = pairs // max(count, 1), pairs % max(count, 1)
        most = np.zeros(count, dtype=np.int64)
        np.maximum.at(most, node, votes)
        best = votes == most[node]
        content = np.zeros(count, dtype=np.bool_)
        content[node[best & (wanted == label[node])]] = True
        movers = best & ~content[node]
        first = np.unique(node[movers], return_index=True)[1]
        label[node[movers][first]] = wanted[movers][first]
        still = 0 if len(first) else still + 1
        if still == 2 * _SETTLED_ROUNDS:
            break
    return label


_SETTLED_ROUNDS: Final = 8  # rounds of both halves without a move


def _half(count: int, turn: int) -> npt.NDArray[np.bool_]:
    mixed = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= np.uint64((turn // 2 * 0xD1B54A32D192ED03) & ((1 << 64) - 1))
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    picked: npt.NDArray[np.bool_] = (mixed >> np.uint64(63)).astype(np.bool_)
    return picked if turn % 2 == 0 else ~picked
