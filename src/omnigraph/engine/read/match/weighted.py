"""The lightest way between two nodes: the least sum of a property of its edges.

Distances are corrected from the source on until nothing gets shorter, all nodes of a round at once;
what is farther away than the targets is left alone. Then the way is recovered from its end, along
edges that a distance rests on: of equally light ways one with the fewest edges, and of these the
one whose nodes come first.
"""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import pc
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.match.joint import Joint
from omnigraph.engine.read.memory.arrays import NO_POSITIONS, Mask, Positions, distinct_sorted
from omnigraph.engine.read.memory.compressed import Hits
from omnigraph.engine.read.memory.frames import Frames
from omnigraph.engine.read.memory.topology import Direction
from omnigraph.errors import InputError

Floats = npt.NDArray[np.float64]


class Steps(msgspec.Struct, frozen=True):
    """One way a pair, as the nodes on it from the first to the last, one pair after the other."""

    counts: Positions  # of nodes; 0 for a pair that nothing joins
    nodes: Positions


def first_of(frames: Frames, hits: Hits, rows: int) -> Positions:
    """For each row the first of its targets, of which it has one or more, by id and then type."""
    counts = np.bincount(hits.rows, minlength=rows)
    assert counts.all(), "every row has a target"
    found = np.empty(rows, dtype=np.int64)
    alone = counts[hits.rows] == 1
    found[hits.rows[alone]] = hits.targets[alone]
    tied = hits.where(~alone)
    if len(tied.rows):
        order = np.lexsort((frames.ranks(tied.targets), tied.rows))
        rows_in_order = tied.rows[order]
        first = np.unique(rows_in_order, return_index=True)[1]
        found[rows_in_order[first]] = tied.targets[order][first]
    return found


def weights_of(run: Run, way: ir.Way) -> Floats:
    """The weight of every edge of the way's types; infinite for one that has none."""
    assert way.weight is not None, "there are weights"
    found = [np.empty(0)]
    for leg in way.legs:
        frame = run.frame("edge", leg.edge_type)
        values = pc.cast(frame.column(way.weight).whole(), "float64", safe=False)
        weights = pc.fill_null(values, np.inf).to_numpy(zero_copy_only=False)
        living = frame.living().positions()
        wrong = living[~(weights[living] >= 0)]
        if len(wrong):
            which = min(frame.fetch("id", wrong).to_pylist())
            raise InputError(
                f"shortest: the {way.weight} of an edge is 0 or more, which that of "
                f"{leg.edge_type} '{which}' is not",
                hint="leave such edges out, or correct their weights",
            )
        found.append(weights)
    return np.concatenate(found)


class _Weighing(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the searches of one way share."""

    run: Run
    graph: Joint
    weights: Floats
    direction: Direction

    @property
    def back(self) -> Direction:
        return "both" if self.direction == "both" else "in"

    def edges(self, nodes: Positions, direction: Direction) -> tuple[Hits, Floats]:
        """The edges of some nodes, without those that cannot be walked, and their weights."""
        self.run.budget.reserve(self.graph.degree_sum(nodes, direction), 4)
        hits = self.graph.edges(nodes, direction)
        if hits.edges is None:
            return Hits(NO_POSITIONS, NO_POSITIONS), np.empty(0)
        weights = self.weights[hits.edges]
        walkable = np.isfinite(weights)
        return hits.where(walkable), weights[walkable]

    def distances(self, source: int, targets: Positions | None) -> Floats:
        """How far it is to every node that is not farther away than the targets, or to all."""
        far = np.full(self.graph.node_bound, np.inf)
        far[source] = 0.0
        nodes = np.asarray([source], dtype=np.int64)
        while len(nodes):
            hits, weights = self.edges(nodes, self.direction)
            with np.errstate(over="ignore"):
                found = far[nodes][hits.rows] + weights
            if np.isinf(found).any():
                raise InputError(
                    "shortest: the weights of a way add up to more than an F64 can hold",
                    hint="use smaller weights",
                )
            nearer = found < far[hits.targets]
            np.minimum.at(far, hits.targets[nearer], found[nearer])
            nodes = distinct_sorted(hits.targets[nearer])
            if targets is not None:
                nodes = nodes[far[nodes] <= far[targets].max()]
        return far

    def layers(self, source: int, target: int, far: Floats) -> dict[int, int] | None:
        """How many edges lead from the source to each node of a lightest way; None if none do."""
        if not np.isfinite(far[target]):
            return None
        on_way, last = self._between(source, target, far)
        depths = {source: 0}
        nodes, depth = np.asarray([source], dtype=np.int64), 0
        while target not in depths:
            assert depth <= last, "the way is not longer than it was backwards"
            depth += 1
            hits, weights = self.edges(nodes, self.direction)
            tight = far[nodes][hits.rows] + weights == far[hits.targets]
            found = distinct_sorted(hits.targets[tight & on_way[hits.targets]])
            nodes = np.asarray([n for n in found.tolist() if n not in depths], dtype=np.int64)
            depths.update(dict.fromkeys(nodes.tolist(), depth))
        return depths

    def _between(self, source: int, target: int, far: Floats) -> tuple[Mask, int]:
        """The nodes from which a lightest way leads to the target in no more edges than from the
        source, and how many these are."""
        seen = np.zeros(len(far), dtype=np.bool_)
        nodes, depth = np.asarray([target], dtype=np.int64), 0
        seen[nodes] = True
        while not seen[source]:
            assert len(nodes), "the distance rests on a way"
            hits, weights = self.edges(nodes, self.back)
            tight = far[hits.targets] + weights == far[nodes][hits.rows]
            nodes = distinct_sorted(hits.targets[tight])
            nodes = nodes[~seen[nodes]]
            seen[nodes] = True
            depth += 1
        return seen, depth

    def way(self, target: int, depths: dict[int, int], far: Floats) -> list[int]:
        """The nodes from the source to the target."""
        found = [target]
        while depths[found[-1]]:
            here = np.asarray([found[-1]], dtype=np.int64)
            hits, weights = self.edges(here, self.back)
            tight = far[hits.targets] + weights == far[here[0]]
            before = np.asarray(
                [depths.get(n, -1) == depths[found[-1]] - 1 for n in hits.targets.tolist()],
                dtype=np.bool_,
            )
            hits = hits.where(tight & before)
            found.append(int(first_of(self.graph.nodes, hits, 1)[0]))
        return found[::-1]


def lightest(run: Run, graph: Joint, way: ir.Way, sources: Positions, targets: Positions) -> Steps:
    """The lightest way from each source to the target beside it."""
    weighing = _weighing(run, graph, way)
    found: list[list[int]] = [[] for _ in range(len(sources))]
    for source in distinct_sorted(sources).tolist():
        rows = np.flatnonzero(sources == source)
        far = weighing.distances(source, targets[rows])
        for row in rows.tolist():
            target = int(targets[row])
            depths = weighing.layers(source, target, far)
            if depths is not None:
                found[row] = weighing.way(target, depths, far)
    counts = np.asarray([len(nodes) for nodes in found], dtype=np.int64)
    nodes = [node for nodes in found for node in nodes]
    return Steps(counts, np.asarray(nodes, dtype=np.int64))


def lengths_from(run: Run, graph: Joint, way: ir.Way, source: int) -> tuple[Positions, Floats]:
    """Every node that can be reached, and the length of the lightest way there."""
    far = _weighing(run, graph, way).distances(source, None)
    found = np.flatnonzero(np.isfinite(far))
    return found, far[found]


def _weighing(run: Run, graph: Joint, way: ir.Way) -> _Weighing:
    return _Weighing(
        run=run,
        graph=graph,
        weights=weights_of(run, way),
        direction="both" if way.undirected else "out",
    )
