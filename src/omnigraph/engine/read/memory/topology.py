"""Who is next to whom: the edges of one table version, as arrays in memory or by lookups.

A *topology* keeps both directions of an edge type in memory and is moved to the next version by the
difference. Its ends are positions in the frames of the two node types; within a lineage of those
positions never change their meaning, so new node versions do not disturb it. *Lookups* ask the edge
table itself: for a few nodes, before a topology is worth building. Both give the same answers.

Entries are sorted by (source, target), so parallel edges stand beside each other and folding them
is one comparison with the entry before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final, Literal

import msgspec
import numpy as np

from omnigraph.engine.read.memory.arrays import (
    Growable,
    Mask,
    Positions,
    SmallPositions,
    distinct_sorted,
    equal_runs,
    spread,
)
from omnigraph.engine.read.memory.frame import CountedTable, Frame
from omnigraph.storage.lance import sql

Direction = Literal["out", "in", "both"]

NEW_EDGES_MAX: Final = 16_384  # more than this and the compressed rows are built anew
LOOKUP_NODES_MAX: Final = 1024  # nodes asked about at once; more are cheaper with a topology
LOOKUP_HOPS_MAX: Final = 6


class Hits(msgspec.Struct, frozen=True):
    """What a gather found: for every hit the row of the asker, the target and the edge."""

    rows: Positions
    targets: Positions
    edges: Positions

    def where(self, keep: Mask) -> Hits:
        return Hits(self.rows[keep], self.targets[keep], self.edges[keep])


class Csr(msgspec.Struct, frozen=True):
    """Compressed rows: the entries of node n are `starts[n]` to `starts[n + 1]`."""

    starts: Positions
    targets: SmallPositions
    edges: SmallPositions
    parallel: bool  # some pair of nodes has more than one edge

    @property
    def nbytes(self) -> int:
        return self.starts.nbytes + self.targets.nbytes + self.edges.nbytes

    def degrees(self, nodes: Positions) -> Positions:
        last = len(self.starts) - 1
        if len(nodes) and int(nodes.max()) >= last:  # nodes that came after this was built
            known = np.minimum(nodes, last - 1) if last else np.zeros_like(nodes)
            counts = self.starts[known + 1] - self.starts[known] if last else known
            return np.where(nodes < last, counts, 0)
        return self.starts[nodes + 1] - self.starts[nodes]

    def gather(self, nodes: Positions) -> Hits:
        """Every entry of every node, in the order of the nodes."""
        if len(nodes) == 1 and 0 <= int(nodes[0]) < len(self.starts) - 1:
            begin, end = int(self.starts[nodes[0]]), int(self.starts[nodes[0] + 1])
            return Hits(
                np.zeros(end - begin, dtype=np.int64),
                self.targets[begin:end].astype(np.int64),
                self.edges[begin:end].astype(np.int64),
            )
        counts = self.degrees(nodes)
        first = self.starts[np.minimum(nodes, len(self.starts) - 1)]
        rows, places = spread(first, counts)
        return Hits(
            rows, self.targets[places].astype(np.int64), self.edges[places].astype(np.int64)
        )


class Sparse(msgspec.Struct, frozen=True):
    """A few entries, sorted by (source, target); `fresh` marks pairs that the bulk lacks."""

    sources: Positions
    targets: Positions
    edges: Positions
    fresh: Mask

    def gather(self, nodes: Positions) -> tuple[Hits, Mask]:
        rows, places = spread(*equal_runs(self.sources, nodes))
        return Hits(rows, self.targets[places], self.edges[places]), self.fresh[places]

    def degrees(self, nodes: Positions) -> Positions:
        return equal_runs(self.sources, nodes)[1]


def build_csr(
    sources: SmallPositions, targets: SmallPositions, edges: SmallPositions, nodes: int
) -> Csr:
    """Compressed rows over `nodes` nodes from one entry per edge, in any order."""
    width = int(targets.max()) + 1 if len(targets) else 1
    keys = sources.astype(np.int64) * width + targets
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.zeros(nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(sources, minlength=nodes), out=starts[1:])
    parallel = bool(len(keys) > 1 and (keys[1:] == keys[:-1]).any())
    return Csr(starts, targets[order], edges[order], parallel)


def folded(hits: Hits) -> Hits:
    """One hit per (row, target); the hits must be sorted by them."""
    if len(hits.rows) < 2:
        return hits
    first = np.ones(len(hits.rows), dtype=np.bool_)
    first[1:] = (hits.rows[1:] != hits.rows[:-1]) | (hits.targets[1:] != hits.targets[:-1])
    return hits if first.all() else hits.where(first)


def joined(left: Hits, right: Hits) -> Hits:
    """Both, one after the other."""
    if not len(right.rows):
        return left
    if not len(left.rows):
        return right
    return Hits(
        np.concatenate([left.rows, right.rows]),
        np.concatenate([left.targets, right.targets]),
        np.concatenate([left.edges, right.edges]),
    )


def by_row(hits: Hits) -> Hits:
    """Sorted by (row, target, edge)."""
    order = np.lexsort((hits.edges, hits.targets, hits.rows))
    return hits.where(order)  # type: ignore[arg-type]  # an index array selects as a mask does


class Topology(msgspec.Struct):
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
    dead_new: frozenset[int] = frozenset()  # edges at or beyond `bulk` that were deleted again
    _rows: dict[str, Csr] = msgspec.field(default_factory=dict)
    _new: dict[str, Sparse] = msgspec.field(default_factory=dict)
    _loops: Mask | None = None
    _bound: int | None = None
    _folds: dict[str, Positions] = msgspec.field(default_factory=dict)
    _lock: threading.Lock = msgspec.field(default_factory=threading.Lock)

    @classmethod
    def build(
        cls, src: SmallPositions, dst: SmallPositions, *, nodes_from: int, nodes_to: int
    ) -> Topology:
        """From the endpoints of every edge; compressed rows follow when a direction is walked."""
        return cls(
            src=Growable(src),
            dst=Growable(dst),
            nodes_from=nodes_from,
            nodes_to=nodes_to,
            bulk=len(src),
        )

    def moved(
        self, src: SmallPositions, dst: SmallPositions, deleted: Positions
    ) -> Topology | None:
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
        late = deleted[deleted >= self.bulk]
        return Topology(
            src=self.src.extended(src),
            dst=self.dst.extended(dst),
            nodes_from=self.nodes_from,
            nodes_to=self.nodes_to,
            bulk=self.bulk,
            gone=gone,
            dead_new=self.dead_new | frozenset(late.tolist()),
            _rows=dict(self._rows),
        )

    @property
    def nbytes(self) -> int:
        total = self.src.view.nbytes + self.dst.view.nbytes
        total += sum(rows.nbytes for rows in self._rows.values())
        return total + (0 if self.gone is None else self.gone.nbytes)

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
            total += int(self.compressed(side).degrees(nodes).sum())
            recent = self._recent(side)
            if recent is not None:
                total += int(recent.degrees(nodes).sum())
        return total

    def counts(self, nodes: Positions, direction: Direction, *, per_edge: bool) -> Positions:
        """How many neighbours each node has, or how many edges."""
        plain = self.gone is None and self.src.length == self.bulk
        if direction != "both" and plain:
            rows = self.compressed(direction)
            if per_edge or not rows.parallel:
                return rows.degrees(nodes)
            return self._neighbour_counts(direction)[np.minimum(nodes, len(rows.starts) - 1)]
        hits = self.edges(nodes, direction) if per_edge else self.neighbours(nodes, direction)
        return np.bincount(hits.rows, minlength=len(nodes))

    def _neighbour_counts(self, side: str) -> Positions:
        """By node, parallel edges folded; one more cell, 0, for nodes that came later."""
        rows = self.compressed(side)
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
                found |= self.compressed(side).degrees(nodes) > 0
            else:
                hits = self._alive(self.compressed(side).gather(nodes))
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
        hits = self._alive(self.compressed(side).gather(nodes))
        recent = self._recent(side)
        return hits if recent is None else joined(hits, recent.gather(nodes)[0])

    def _folded(self, nodes: Positions, side: str) -> Hits:
        rows = self.compressed(side)
        hits = self._alive(rows.gather(nodes))
        if rows.parallel:
            hits = folded(hits)
        recent = self._recent(side)
        if recent is None:
            return hits
        extra, fresh = recent.gather(nodes)
        return joined(hits, folded(extra.where(fresh)))

    def _ends(self, side: str) -> tuple[SmallPositions, SmallPositions, int]:
        if side == "out":
            return self.src.view, self.dst.view, self.nodes_from
        return self.dst.view, self.src.view, self.nodes_to

    def compressed(self, side: str) -> Csr:
        """The compressed rows of one direction, built now if need be."""
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
        rows = self.compressed(side)
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
        asked = distinct_sorted(sources)
        old = self._alive(rows.gather(asked))
        width = 1 + max(int(targets.max()) if len(targets) else 0, int(old.targets.max(initial=0)))
        known = asked[old.rows] * width + old.targets
        return Sparse(sources, targets, edges, ~np.isin(sources * width + targets, known))


# --- lookups ---------------------------------------------------------------------------------


class TooMany(Exception):  # noqa: N818 - not an error: the caller takes the other way
    """The frontier has grown beyond what lookups are good for."""


class Lookups:
    """The edges of one table version, asked for by their ends."""

    def __init__(self, edges: CountedTable, sources: Frame, targets: Frame) -> None:
        self._edges = edges
        self._frames = {"src": sources, "dst": targets}

    @property
    def node_bound(self) -> int:
        return max(frame.length for frame in self._frames.values())

    def degree_sum(self, nodes: Positions, direction: Direction) -> int:
        """Unknown before looking: at least the nodes themselves."""
        return len(nodes) * (2 if direction == "both" else 1)

    def neighbours(self, nodes: Positions, direction: Direction) -> Hits:
        """Each neighbour once per asking row, sorted by row and neighbour."""
        if direction == "both":
            return folded(by_row(joined(self._found(nodes, "out"), self._found(nodes, "in"))))
        return folded(by_row(self._found(nodes, direction)))

    def has_loop(self, nodes: Positions) -> Mask:
        where = f"{self._asked(nodes, 'src')} AND {sql.column('src')} = {sql.column('dst')}"
        found = self._edges.read(["src"], where=where)
        looped = self._frames["src"].lookup_all(found["src"])
        return np.isin(nodes, looped)

    def _asked(self, nodes: Positions, side: str) -> str:
        wanted = distinct_sorted(nodes)
        if len(wanted) > LOOKUP_NODES_MAX:
            raise TooMany
        ids: Iterable[str] = self._frames[side].fetch("id", wanted).to_pylist()
        return sql.in_list(side, ids)

    def _found(self, nodes: Positions, direction: str) -> Hits:
        near, far = ("src", "dst") if direction == "out" else ("dst", "src")
        table = self._edges.read([near, far], where=self._asked(nodes, near))
        here = self._frames[near].lookup_all(table[near])
        there = self._frames[far].lookup_all(table[far])
        known = (here >= 0) & (there >= 0)
        here, there = here[known], there[known]
        # One asking row may stand for several rows of the table, and the other way round.
        order = np.argsort(here, kind="stable")
        rows, places = spread(*equal_runs(here[order], nodes))
        return Hits(rows, there[order][places], np.zeros(len(rows), dtype=np.int64))


Adjacency = Topology | Lookups
