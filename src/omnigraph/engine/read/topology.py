"""The shape of one edge type at one version: both directions, kept in memory, moved by difference.

Endpoints are positions in the frames of the two node types. A topology belongs to the lineages of
those frames: within a lineage positions never change their meaning, so new node versions do not
disturb it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from omnigraph.engine.read.adjacency import (
    Csr,
    Hits,
    Small,
    Sparse,
    build_csr,
    by_row,
    folded,
    joined,
)
from omnigraph.engine.read.column import Growable, Mask, Positions

Direction = Literal["out", "in", "both"]

NEW_EDGES_MAX: Final = 16_384  # more than this and the compressed rows are built anew


@dataclass(slots=True)
class Topology:
    """Adjacency of one edge table version.

    `src` and `dst` are endpoint positions by edge position, -1 for edges that are no more (or whose
    node is unknown). Edges from `bulk` on are newer than the compressed rows.
    """

    src: Growable
    dst: Growable
    nodes_from: int
    nodes_to: int
    bulk: int
    gone: Mask | None = None  # by edge position below `bulk`: deleted since the rows were built
    _rows: dict[str, Csr] = field(default_factory=dict)
    _new: dict[str, Sparse] = field(default_factory=dict)
    _loops: Mask | None = None
    _bound: int | None = None
    _folds: dict[str, Positions] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def build(cls, src: Small, dst: Small, *, nodes_from: int, nodes_to: int) -> Topology:
        """From the endpoints of every edge; compressed rows follow when a direction is walked."""
        return cls(
            src=Growable(src),
            dst=Growable(dst),
            nodes_from=nodes_from,
            nodes_to=nodes_to,
            bulk=len(src),
        )

    def moved(self, src: Small, dst: Small, deleted: Positions) -> Topology | None:
        """The next version: edges added at the end, some deleted. None when a rebuild is due."""
        added = self.src.length - self.bulk + len(src)
        gone_before = 0 if self.gone is None else int(np.count_nonzero(self.gone))
        if added > NEW_EDGES_MAX or gone_before + len(deleted) > NEW_EDGES_MAX:
            return None
        gone = self.gone
        old = deleted[deleted < self.bulk]
        if len(old):
            gone = np.zeros(self.bulk, dtype=np.bool_) if gone is None else gone.copy()
            gone[old] = True
        moved = Topology(
            src=self.src.extended(src),
            dst=self.dst.extended(dst),
            nodes_from=self.nodes_from,
            nodes_to=self.nodes_to,
            bulk=self.bulk,
            gone=gone,
            _rows=dict(self._rows),
        )
        late = deleted[deleted >= self.bulk]
        if len(late) or self.dead_new:
            moved.dead_new = self.dead_new | frozenset(late.tolist())
        return moved

    dead_new: frozenset[int] = frozenset()  # edges at or beyond `bulk` that were deleted again

    @property
    def nbytes(self) -> int:
        total = self.src.view.nbytes + self.dst.view.nbytes
        total += sum(rows.nbytes for rows in self._rows.values())
        return total + (0 if self.gone is None else self.gone.nbytes)

    @property
    def edge_count(self) -> int:
        return self.src.length

    def compressed(self, side: str) -> Csr:
        """The compressed rows of one direction, built now if need be."""
        return self._csr(side)

    def adopt(self, side: str, rows: Csr) -> None:
        """Take compressed rows that were built elsewhere for these very edges."""
        with self._lock:
            self._rows[side] = rows

    @property
    def node_bound(self) -> int:
        """A number above every node position that an edge can lead to."""
        if self._bound is None:
            tops = (int(ends.view.max(initial=0)) + 1 for ends in (self.src, self.dst))
            self._bound = max(self.nodes_from, self.nodes_to, *tops)
        return self._bound

    # --- asking ---

    def neighbours(self, nodes: Positions, direction: Direction) -> Hits:
        """Each neighbour once per asking row; the edge of a hit is one of the parallel ones."""
        if direction == "both":
            hits = joined(self._folded(nodes, "out"), self._folded(nodes, "in"))
            return folded(by_row(hits))
        return self._folded(nodes, direction)

    def edges(self, nodes: Positions, direction: Direction) -> Hits:
        """Every edge of every node; an undirected self loop counts once."""
        if direction != "both":
            return self._all(nodes, direction)
        inward = self._all(nodes, "in")
        inward = inward.where(inward.targets != nodes[inward.rows])
        return joined(self._all(nodes, "out"), inward)

    def degree_sum(self, nodes: Positions, direction: Direction) -> int:
        """At least as many hits as a gather would give."""
        sides = ("out", "in") if direction == "both" else (direction,)
        total = 0
        for side in sides:
            total += int(self._csr(side).degrees(nodes).sum())
            recent = self._recent(side)
            if recent is not None:
                total += int(recent.degrees(nodes).sum())
        return total

    def counts(self, nodes: Positions, direction: Direction, *, per_edge: bool) -> Positions:
        """How many neighbours each node has, or how many edges."""
        plain = self.gone is None and self.src.length == self.bulk
        if direction != "both" and plain:
            rows = self._csr(direction)
            if per_edge or not rows.parallel:
                return rows.degrees(nodes)
            return self._neighbour_counts(direction)[np.minimum(nodes, len(rows.starts) - 1)]
        hits = self.edges(nodes, direction) if per_edge else self.neighbours(nodes, direction)
        return np.bincount(hits.rows, minlength=len(nodes))

    def _neighbour_counts(self, side: str) -> Positions:
        """By node, parallel edges folded; one more cell, 0, for nodes that came later."""
        rows = self._csr(side)
        with self._lock:
            known = self._folds.get(side)
            if known is None:
                nodes = len(rows.starts) - 1
                hits = folded(rows.gather(np.arange(nodes, dtype=np.int64)))
                known = self._folds[side] = np.bincount(hits.rows, minlength=nodes + 1)
            return known

    def has_any(self, nodes: Positions, direction: Direction) -> Mask:
        """Which nodes have a neighbour at all."""
        found = np.zeros(len(nodes), dtype=np.bool_)
        for side in ("out", "in") if direction == "both" else (direction,):
            if self.gone is None:
                found |= self._csr(side).degrees(nodes) > 0
            else:
                hits = self._alive(self._csr(side).gather(nodes))
                found[hits.rows] = True
            recent = self._recent(side)
            if recent is not None:
                found |= recent.degrees(nodes) > 0
        return found

    def loops(self) -> Mask:
        """By node position: has a self loop. Only asked where both ends are of one type."""
        with self._lock:
            if self._loops is None:
                src, dst = self.src.view, self.dst.view
                at = np.flatnonzero((src == dst) & (src >= 0))
                at = at[self._living(at)]
                size = max(self.nodes_from, int(src.max()) + 1 if len(src) else 0)
                loops = np.zeros(size, dtype=np.bool_)
                loops[src[at]] = True
                self._loops = loops
            return self._loops

    def has_loop(self, nodes: Positions) -> Mask:
        loops = self.loops()
        known = nodes < len(loops)
        found = np.zeros(len(nodes), dtype=np.bool_)
        found[known] = loops[nodes[known]]
        return found

    # --- inside ---

    def _living(self, edges: Positions) -> Mask:
        alive = np.ones(len(edges), dtype=np.bool_)
        if self.gone is not None:
            old = edges < self.bulk
            alive[old] = ~self.gone[edges[old]]
        if self.dead_new:
            alive &= ~np.isin(edges, np.fromiter(self.dead_new, dtype=np.int64))
        return alive

    def _alive(self, hits: Hits) -> Hits:
        if self.gone is None or not len(hits.edges):
            return hits
        dead = self.gone[hits.edges]
        return hits.where(~dead) if dead.any() else hits

    def _all(self, nodes: Positions, side: str) -> Hits:
        hits = self._alive(self._csr(side).gather(nodes))
        recent = self._recent(side)
        return hits if recent is None else joined(hits, recent.gather(nodes)[0])

    def _folded(self, nodes: Positions, side: str) -> Hits:
        rows = self._csr(side)
        hits = self._alive(rows.gather(nodes))
        if rows.parallel:
            hits = folded(hits)
        recent = self._recent(side)
        if recent is None:
            return hits
        extra, fresh = recent.gather(nodes)
        return joined(hits, folded(extra.where(fresh)))

    def _ends(self, side: str) -> tuple[Small, Small, int]:
        if side == "out":
            return self.src.view, self.dst.view, self.nodes_from
        return self.dst.view, self.src.view, self.nodes_to

    def _csr(self, side: str) -> Csr:
        with self._lock:
            known = self._rows.get(side)
            if known is None:
                near, far, nodes = self._ends(side)
                near, far = near[: self.bulk], far[: self.bulk]
                edges = np.flatnonzero((near >= 0) & (far >= 0)).astype(np.int32)
                known = build_csr(near[edges], far[edges], edges, nodes)
                self._rows[side] = known
            return known

    def _recent(self, side: str) -> Sparse | None:
        if self.src.length == self.bulk:
            return None
        rows = self._csr(side)
        with self._lock:
            known = self._new.get(side)
            if known is None:
                known = self._new[side] = self._sparse(rows, side)
            return known

    def _sparse(self, rows: Csr, side: str) -> Sparse:
        near, far, _ = self._ends(side)
        edges = np.arange(self.bulk, self.src.length, dtype=np.int64)
        sources = near[self.bulk :].astype(np.int64)
        targets = far[self.bulk :].astype(np.int64)
        keep = (sources >= 0) & (targets >= 0) & self._living(edges)
        sources, targets, edges = sources[keep], targets[keep], edges[keep]
        order = np.lexsort((edges, targets, sources))
        sources, targets, edges = sources[order], targets[order], edges[order]
        asked = np.unique(sources)
        old = self._alive(rows.gather(asked))
        width = 1 + max(int(targets.max()) if len(targets) else 0, int(old.targets.max(initial=0)))
        known = asked[old.rows] * width + old.targets
        return Sparse(sources, targets, edges, ~np.isin(sources * width + targets, known))
