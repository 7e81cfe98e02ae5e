"""Shortest ways between pairs of nodes: how long they are, and one of them as nodes and edges.

A pair is searched from both of its ends, a layer of the smaller side at a time, until the sides
meet; many pairs go side by side, each as far as it has to. Then the way is recovered from its end:
the node before is the first by id (and type) of all that lie on a shortest way, so that the answer
depends on nothing but the graph. No more ways than one are ever built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Final, Literal

import msgspec
import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, int64_array, pa
from omnigraph.engine.expr.order import row_keys
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.match.joint import Joint, Walkable, joint
from omnigraph.engine.read.match.weighted import Steps, first_of, lightest, weights_of
from omnigraph.engine.read.memory.arrays import (
    NO_POSITIONS,
    Mask,
    Positions,
    distinct_sorted,
    spread,
)
from omnigraph.engine.read.memory.compressed import Hits
from omnigraph.engine.read.memory.frames import Frames
from omnigraph.engine.read.memory.topology import Direction

PAIRS_AT_ONCE: Final = 1024  # pairs that are searched side by side

Checkpoint = Callable[[int], None]  # called with the number of pairs about to be held
_BACK: Final[dict[Direction, Direction]] = {"out": "in", "in": "out", "both": "both"}


# --- one side of a search ----------------------------------------------------------------------


class _Side:
    """What was reached from one end of each pair. A pair and a node travel as one number."""

    def __init__(self, ends: Positions, size: int, direction: Direction) -> None:
        self.size = size
        self.direction = direction
        self.keys: Positions = np.arange(len(ends), dtype=np.int64) * size + ends  # ascending
        self.depths: Positions = np.zeros(len(ends), dtype=np.int64)
        self.frontier = self.keys
        self.depth: Positions = np.zeros(len(ends), dtype=np.int64)  # of each pair's last layer

    def widths(self) -> Positions:
        """How many nodes the last layer of each pair has."""
        return np.bincount(self.frontier // self.size, minlength=len(self.depth))

    def advance(self, adjacency: Walkable, pairs: Mask, checkpoint: Checkpoint) -> Positions:
        """One layer more for these pairs: what is new in it. Other pairs stay as they are."""
        chosen = pairs[self.frontier // self.size]
        found = onward(adjacency, self.frontier[chosen], self.size, self.direction, checkpoint)
        found = found[self.depths_of(found) < 0]
        self.depth[pairs] += 1
        self.frontier = np.sort(np.concatenate([self.frontier[~chosen], found]))
        depths = self.depth[found // self.size]
        order = np.argsort(np.concatenate([self.keys, found]), kind="stable")
        self.keys = np.concatenate([self.keys, found])[order]
        self.depths = np.concatenate([self.depths, depths])[order]
        checkpoint(len(self.keys))
        return found

    def depths_of(self, keys: Positions) -> Positions:
        """How many hops each was away; -1 for what was not reached."""
        at = np.minimum(np.searchsorted(self.keys, keys), max(len(self.keys) - 1, 0))
        return np.where(self.keys[at] == keys, self.depths[at], -1)

    def leave(self, pairs: Mask) -> None:
        """Go on with these pairs only."""
        self.frontier = self.frontier[pairs[self.frontier // self.size]]


def onward(
    adjacency: Walkable, keys: Positions, size: int, direction: Direction, checkpoint: Checkpoint
) -> Positions:
    """Every neighbour of every node, for its pair, each once."""
    who, nodes = np.divmod(keys, size)
    checkpoint(adjacency.degree_sum(nodes, direction))
    hits = adjacency.neighbours(nodes, direction)
    return distinct_sorted(who[hits.rows] * size + hits.targets)


class _Search(msgspec.Struct, frozen=True, kw_only=True):
    """Where the two sides of each pair met."""

    hops: Positions  # -1 for a pair that nothing joins
    ahead: _Side
    behind: _Side
    met: Positions  # keys of nodes that are half-way on a shortest way


def _searched(
    adjacency: Walkable,
    sources: Positions,
    targets: Positions,
    *,
    direction: Direction,
    max_hops: int,
    checkpoint: Checkpoint,
) -> _Search:
    tops = (int(ends.max(initial=0)) + 1 for ends in (sources, targets))
    size = max(adjacency.node_bound, *tops)
    ahead = _Side(sources, size, direction)
    behind = _Side(targets, size, _BACK[direction])
    hops = np.where(sources == targets, 0, -1)
    met = [ahead.keys[hops == 0]]
    looking = hops < 0
    while True:
        wide_ahead, wide_behind = ahead.widths(), behind.widths()
        looking &= (wide_ahead > 0) & (wide_behind > 0)
        looking &= ahead.depth + behind.depth < max_hops
        ahead.leave(looking)
        behind.leave(looking)
        if not looking.any():
            break
        forward = looking & (wide_ahead <= wide_behind)
        for side, other, pairs in ((ahead, behind, forward), (behind, ahead, looking & ~forward)):
            if not pairs.any():
                continue
            found = side.advance(adjacency, pairs, checkpoint)
            # What the other side knows of a new node is its last layer: an earlier one would have
            # been met before.
            common = found[other.depths_of(found) >= 0]
            done = distinct_sorted(common // size)
            hops[done] = ahead.depth[done] + behind.depth[done]
            looking[done] = False
            met.append(common)
    return _Search(hops=hops, ahead=ahead, behind=behind, met=np.concatenate(met))


def distances(
    adjacency: Walkable,
    sources: Positions,
    targets: Positions,
    *,
    direction: Direction,
    max_hops: int,
    checkpoint: Checkpoint,
) -> Positions:
    """How many hops it is from each source to the target beside it; -1 for more than so many."""
    found = [NO_POSITIONS]
    for first in range(0, len(sources), PAIRS_AT_ONCE):
        some = slice(first, first + PAIRS_AT_ONCE)
        search = _searched(
            adjacency,
            sources[some],
            targets[some],
            direction=direction,
            max_hops=max_hops,
            checkpoint=checkpoint,
        )
        found.append(search.hops)
    return np.concatenate(found)


# --- the way itself ----------------------------------------------------------------------------


def _recovered(
    adjacency: Joint, search: _Search, targets: Positions, checkpoint: Checkpoint
) -> Steps:
    ahead, behind, size = search.ahead, search.behind, search.ahead.size
    second_half = _on_the_way(adjacency, search, checkpoint)
    hops = search.hops
    counts = hops + 1
    firsts = np.cumsum(counts) - counts
    found = np.empty(int(counts.sum()), dtype=np.int64)
    here = targets.copy()
    there = np.flatnonzero(hops >= 0)
    found[firsts[there] + hops[there]] = here[there]
    for back in range(1, int(hops.max(initial=0)) + 1):
        pairs = np.flatnonzero(hops >= back)
        depth = hops[pairs] - back  # of the node before
        hits = adjacency.neighbours(here[pairs], behind.direction)
        keys = pairs[hits.rows] * size + hits.targets
        met_at = ahead.depth[pairs]
        late = (depth >= met_at)[hits.rows]
        fits = np.where(
            late,
            (behind.depths_of(keys) == back) & np.isin(keys, second_half),
            ahead.depths_of(keys) == depth[hits.rows],
        )
        chosen = first_of(adjacency.nodes, hits.where(fits), len(pairs))
        here[pairs] = chosen
        found[firsts[pairs] + depth] = chosen
    return Steps(counts, found)


def _on_the_way(adjacency: Walkable, search: _Search, checkpoint: Checkpoint) -> Positions:
    """The nodes between where the sides met and the end, ascending keys."""
    behind, size = search.behind, search.ahead.size
    layer = distinct_sorted(search.met)
    found = [layer]
    while len(layer):
        depths = behind.depths_of(layer)
        layer, depths = layer[depths > 0], depths[depths > 0]
        left = np.zeros(len(behind.depth), dtype=np.int64)
        left[layer // size] = depths
        layer = onward(adjacency, layer, size, search.ahead.direction, checkpoint)
        known = behind.depths_of(layer)
        layer = layer[(known >= 0) & (known == left[layer // size] - 1)]
        found.append(layer)
    return distinct_sorted(np.concatenate(found))


def hops_from(
    run: Run, graph: Joint, source: int, *, undirected: bool
) -> tuple[Positions, Positions]:
    """Every node that can be reached, and in how many hops."""
    ends = np.asarray([source], dtype=np.int64)
    side = _Side(ends, graph.node_bound, "both" if undirected else "out")
    everyone = np.ones(1, dtype=np.bool_)
    while len(side.frontier):
        side.advance(graph, everyone, lambda held: run.budget.reserve(held, 3))
    return side.keys, side.depths


# --- what expressions ask ----------------------------------------------------------------------


class Paths(msgspec.Struct, frozen=True, kw_only=True):
    """The path of each row: nodes and edges one row after the other, made when asked for."""

    there: Mask
    counts: Positions  # of edges, by row; 0 where there is no path
    nodes: Callable[[], Positions]
    edges: Callable[[Positions], Positions]  # from the nodes
    node_frames: Frames
    edge_frames: Frames

    def part(self, part: Literal["length", "nodes", "edges"]) -> Array:
        if part == "length":
            if self.there.all():
                return int64_array(self.counts)
            return pa.array(self.counts, mask=~self.there)
        nodes = self.nodes()
        if part == "nodes":
            ids = self.node_frames.fetch("id", nodes)
            return _lists(np.where(self.there, self.counts + 1, 0), ids, self.there)
        return _lists(self.counts, self.edge_frames.fetch("id", self.edges(nodes)), self.there)


def _lists(counts: Positions, items: Array, there: Mask) -> Array:
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    missing = None if there.all() else np.append(~there, np.False_)
    return pa.ListArray.from_arrays(pa.array(ends, mask=missing), items)


def find_paths(run: Run, way: ir.Way, sources: Positions, targets: Positions) -> Paths:
    """The path that the way means for each row of two variables; none where one of them is null."""
    types = {*run.variables[way.src].types, *run.variables[way.dst].types}
    graph = joint(run, way.legs, frozenset(types), None)
    known = np.flatnonzero((sources >= 0) & (targets >= 0))
    one = graph.nodes.placed(sources[known], run.frames_of(way.src))
    other = graph.nodes.placed(targets[known], run.frames_of(way.dst))
    _, first, back = np.unique(row_keys([one, other]), return_index=True, return_inverse=True)
    one, other = one[first], other[first]
    found = [_ways(run, graph, way, one[some], other[some]) for some in _batches(len(one))]
    counts = np.concatenate([NO_POSITIONS, *(part for part, _ in found)])[back]
    run.budget.reserve(int(counts.sum()), 2)
    rows = np.zeros(len(sources), dtype=np.int64)
    rows[known] = counts
    there = rows > 0

    @cache
    def nodes() -> Positions:
        made = [steps() for _, steps in found]
        every = np.concatenate([NO_POSITIONS, *(steps.counts for steps in made)])
        flat = np.concatenate([NO_POSITIONS, *(steps.nodes for steps in made)])
        _, places = spread((np.cumsum(every) - every)[back], counts)
        return flat[places]

    return Paths(
        there=there,
        counts=np.where(there, rows - 1, 0),
        nodes=nodes,
        edges=lambda on_way: _edges_between(run, graph, way, on_way, rows[there]),
        node_frames=graph.nodes,
        edge_frames=run.frames("edge", tuple(leg.edge_type for leg in way.legs)),
    )


def _batches(count: int) -> Iterator[slice]:
    for first in range(0, count, PAIRS_AT_ONCE):
        yield slice(first, first + PAIRS_AT_ONCE)


def _direction(way: ir.Way) -> Direction:
    return "both" if way.undirected else "out"


def _ways(
    run: Run, graph: Joint, way: ir.Way, sources: Positions, targets: Positions
) -> tuple[Positions, Callable[[], Steps]]:
    """How many nodes the way between each pair has, 0 for none, and the ways themselves."""
    if way.weight is not None:
        light = lightest(run, graph, way, sources, targets)
        return light.counts, lambda: light

    def checkpoint(held: int) -> None:
        run.budget.reserve(held, 3)

    search = _searched(
        graph,
        sources,
        targets,
        direction=_direction(way),
        max_hops=way.max_hops,
        checkpoint=checkpoint,
    )
    # One hop less than the walk needs is made up for by a self loop at the end.
    again = (search.hops >= 0) & (search.hops + 1 == way.min_hops)

    def steps() -> Steps:
        plain = _recovered(graph, search, targets, checkpoint)
        ends = np.cumsum(plain.counts)[again]
        return Steps(plain.counts + again, np.insert(plain.nodes, ends, targets[again]))

    return search.hops + 1 + again, steps


def _edges_between(
    run: Run,
    graph: Joint,
    way: ir.Way,
    nodes: Positions,
    counts: Positions,
) -> Positions:
    """The edge from each node of the paths to the next: the lightest, then the first by id."""
    last = np.zeros(len(nodes), dtype=np.bool_)
    last[np.cumsum(counts) - 1] = True
    at = np.flatnonzero(~last)
    direction = _direction(way)
    run.budget.reserve(graph.degree_sum(nodes[at], direction), 3)
    hits = graph.edges(nodes[at], direction)
    hits = hits.where(hits.targets == nodes[at + 1][hits.rows])
    assert hits.edges is not None, "edges were asked for"
    if way.weight is not None:
        weights = weights_of(run, way)[hits.edges]
        least = np.full(len(at), np.inf)
        np.minimum.at(least, hits.rows, weights)
        hits = hits.where(weights == least[hits.rows])
    assert hits.edges is not None, "and are still there"
    frames = run.frames("edge", tuple(leg.edge_type for leg in way.legs))
    return first_of(frames, Hits(hits.rows, hits.edges), len(at))
