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
from collections.abc import Iterable, Mapping
from functools import reduce
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
_SIDES: Final[Mapping[Direction, tuple[Literal["out", "in"], ...]]] = {
    "out": ("out",),
    "in": ("in",),
    "both": ("out", "in"),
}

NEW_EDGES_MAX: Final = 16_384  # more than this and the compressed rows are built anew
LOOKUP_NODES_MAX: Final = 1024  # nodes asked about at once; more are cheaper with a topology
LOOKUP_HOPS_MAX: Final = 6


class Hits(msgspec.Struct, frozen=True):
    """What a gather found: for every hit the row of the asker, the target and the edge."""

    rows: Positions
    targets: Positions
    edges: Positions

    def where(self, keep: Mask | Positions) -> Hits:
        """The hits that a mask keeps, or those at some places, in their order."""
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
        after = nodes + 1
        if len(nodes) and int(nodes.max()) >= last:  # nodes that came after this was built
            after, nodes = np.minimum(after, last), np.minimum(nodes, last)
        return self.starts[after] - self.starts[nodes]

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


def joined(*parts: Hits) -> Hits:
    """All of them, one after the other."""
    some = [part for part in parts if len(part.rows)]
    if len(some) < 2:
        return some[0] if some else parts[0]
    return Hits(
        np.concatenate([part.rows for part in some]),
        np.concatenate([part.targets for part in some]),
        np.concatenate([part.edges for part in some]),
    )


def by_row(hits: Hits) -> Hits:
    """Sorted by (row, target, edge)."""
    return hits.where(np.lexsort((hits.edges, hits.targets, hits.rows)))


class Topology(msgspec.Struct):
    """Adjacency of one edge table version.

    `src` and `dst` are endpoint positions by edge position, -1 for edges whose node is unknown.
    Edges from `bulk` on are newer than the compressed rows.
    """

    src: Growable
    dst: Growable
    nodes_from: int
    nodes_to: int
    bulk: int
    gone: Mask | None = None  # by edge position: deleted since the rows were built; None: no edge
    _rows: dict[str, Csr] = msgspec.field(default_factory=dict)
    _new: dict[str, Sparse] = msgspec.field(default_factory=dict)
    _looped: Positions | None = None
    _bound: int | None = None
    _folds: dict[str, Positions] = msgspec.field(default_factory=dict)
    _lock: threading.Lock = msgspec.field(default_factory=threading.Lock)

    @classmethod
    def build(
        cls, src: SmallPositions, dst: SmallPositions, *, nodes_from: int, nodes_to: int
    ) -> Topology:
        """From the endpoints of every edge; compressed rows follow when a direction is walked."""
        return cls(Growable(src), Growable(dst), nodes_from, nodes_to, bulk=len(src))

    def moved(
        self, src: SmallPositions, dst: SmallPositions, deleted: Positions
    ) -> Topology | None:
        """The next version: edges added at the end, some deleted. None when a rebuild is due."""
        before = self.src.length
        gone = self.gone
        if gone is not None or len(deleted):
            gone = np.zeros(before + len(src), dtype=np.bool_)
            gone[:before] = False if self.gone is None else self.gone
            gone[deleted] = True
            if np.count_nonzero(gone) > NEW_EDGES_MAX:
                return None
        if before - self.bulk + len(src) > NEW_EDGES_MAX:
            return None
        return Topology(
            self.src.extended(src),
            self.dst.extended(dst),
            self.nodes_from,
            self.nodes_to,
            self.bulk,
            gone=gone,
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
        found = [self._hits(nodes, side, fold=True) for side in _SIDES[direction]]
        return found[0] if len(found) == 1 else folded(by_row(joined(*found)))

    def edges(self, nodes: Positions, direction: Direction) -> Hits:
        """Every edge of every node; an undirected self loop counts once."""
        found = [self._hits(nodes, side, fold=False) for side in _SIDES[direction]]
        if len(found) == 1:
            return found[0]
        outward, inward = found
        return joined(outward, inward.where(inward.targets != nodes[inward.rows]))

    def degree_sum(self, nodes: Positions, direction: Direction) -> int:
        """At least as many hits as a gather would give."""
        return int(self._degrees(nodes, direction).sum())

    def has_any(self, nodes: Positions, direction: Direction) -> Mask:
        """Which nodes have a neighbour at all."""
        if self.gone is None:
            return self._degrees(nodes, direction) > 0
        return self.counts(nodes, direction, per_edge=True) > 0

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

    def has_loop(self, nodes: Positions) -> Mask:
        """Which nodes have a self loop. Only asked where both ends are of one type."""
        with self._lock:
            if self._looped is None:
                src = self.src.view
                at = np.flatnonzero((src == self.dst.view) & (src >= 0))
                self._looped = src[at[self._living(at)]].astype(np.int64)
        return np.isin(nodes, self._looped)

    # --- inside ---

    def _degrees(self, nodes: Positions, direction: Direction) -> Positions:
        """Edges by node; a deleted one may still count."""
        parts = [self.compressed(side).degrees(nodes) for side in _SIDES[direction]]
        if self.src.length > self.bulk:
            parts += [self._recent(side).degrees(nodes) for side in _SIDES[direction]]
        return reduce(np.add, parts)

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

    def _living(self, edges: Positions) -> Mask:
        return np.ones(len(edges), dtype=np.bool_) if self.gone is None else ~self.gone[edges]

    def _alive(self, hits: Hits) -> Hits:
        living = self._living(hits.edges)
        return hits if living.all() else hits.where(living)

    def _hits(self, nodes: Positions, side: str, *, fold: bool) -> Hits:
        """Every edge of every node in one direction, or with `fold` every neighbour."""
        rows = self.compressed(side)
        hits = self._alive(rows.gather(nodes))
        if fold and rows.parallel:
            hits = folded(hits)
        if self.src.length == self.bulk:
            return hits
        extra, fresh = self._recent(side).gather(nodes)
        return joined(hits, folded(extra.where(fresh)) if fold else extra)

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

    def _recent(self, side: str) -> Sparse:
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
        order = np.lexsort((edges, targets, sources))
        order = order[((sources >= 0) & (targets >= 0) & self._living(edges))[order]]
        sources, targets, edges = sources[order], targets[order], edges[order]
        asked = distinct_sorted(sources)
        old = self._alive(rows.gather(asked))
        width = 1 + max(int(targets.max(initial=0)), int(old.targets.max(initial=0)))
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
        return len(nodes) * len(_SIDES[direction])

    def neighbours(self, nodes: Positions, direction: Direction) -> Hits:
        """Each neighbour once per asking row, sorted by row and neighbour."""
        return folded(by_row(joined(*(self._found(nodes, side) for side in _SIDES[direction]))))

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
