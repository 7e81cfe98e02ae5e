"""Who is next to whom: the edges of one table version, as arrays in memory or by lookups.

A *topology* keeps both directions of an edge type in memory and is moved to the next version by the
difference. Its ends are positions in the frames of the two node types; within a lineage of those
positions never change their meaning, so new node versions do not disturb it. What it was built from
is its *bulk*, which versions share; what came and went since are a few edges beside it. *Lookups*
ask the edge table itself: for a few nodes, before a topology is worth building. Both give the same
answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any, Final, Literal

import msgspec
import numpy as np

from omnigraph.engine.arrow import ArrowTable, as_mask, flat, pc
from omnigraph.engine.read.memory.arrays import (
    NO_POSITIONS,
    Growable,
    Mask,
    Positions,
    SmallPositions,
    distinct_sorted,
    equal_runs,
    spread,
)
from omnigraph.engine.read.memory.compressed import (
    Checkpoint,
    Csr,
    Hits,
    build_csr,
    by_row,
    folded,
    joined,
    no_checkpoint,
)
from omnigraph.engine.read.memory.counted import CountedTable
from omnigraph.engine.read.memory.frame import Frame
from omnigraph.engine.read.memory.prints import Prints
from omnigraph.storage.lance import sql

Direction = Literal["out", "in", "both"]
Side = Literal["out", "in"]
End = Literal["src", "dst"]
SIDES: Final[tuple[Side, ...]] = ("out", "in")
ENDS: Final[tuple[End, ...]] = ("src", "dst")
_SIDES: Final[Mapping[Direction, tuple[Side, ...]]] = {
    "out": ("out",),
    "in": ("in",),
    "both": SIDES,
}
# The end that a walk in this direction starts from, and the one it leads to.
_ENDS: Final[Mapping[Side, tuple[End, End]]] = {"out": ("src", "dst"), "in": ("dst", "src")}

NEW_EDGES_MAX: Final = 16_384  # more than this and the compressed rows are built anew
LOOKUP_NODES_MAX: Final = 1024  # nodes asked about at once; more are cheaper with a topology
LOOKUP_HOPS_MAX: Final = 6
_GONE_BY_HAND_MAX: Final = 4096  # of more edges, a mask says which are gone


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


class Bulk:
    """The edges that a topology was built from, shared by all its versions and threads.

    `ends` gives their endpoint positions by edge position (-1 for a node that is unknown), `rows`
    the compressed rows of a direction if they are stored; others are built when first asked for.
    """

    def __init__(
        self,
        count: int,
        nodes: tuple[int, int],
        *,
        ends: Callable[[End], SmallPositions],
        rows: Callable[[Side], Csr | None] = lambda _: None,
    ) -> None:
        self.count = count
        self.nodes = nodes  # how many there were: source nodes, target nodes
        self._stored_ends = ends
        self._stored_rows = rows
        self._ends: dict[End, SmallPositions] = {}
        self._rows: dict[Side, Csr] = {}
        self._built: list[Any] = []
        # One for each direction: who walks the one does not wait for the other to be built.
        self._building: Mapping[Side, threading.Lock] = {side: threading.Lock() for side in SIDES}

    @classmethod
    def of(cls, src: SmallPositions, dst: SmallPositions, nodes: tuple[int, int]) -> Bulk:
        bulk = cls(len(src), nodes, ends=lambda end: src if end == "src" else dst)
        for end in ENDS:
            bulk.ends(end)
        return bulk

    def ends(self, end: End) -> SmallPositions:
        """The node at this end of every edge."""
        known = self._ends.get(end)
        if known is None:
            known = self._ends[end] = self._stored_ends(end)
        return known

    def rows(self, side: Side, checkpoint: Checkpoint = no_checkpoint) -> Csr:
        """The compressed rows of one direction, built now if need be."""
        known = self._rows.get(side)
        if known is not None:
            return known
        with self._building[side]:
            known = self._rows.get(side) or self._stored_rows(side)
            if known is None:
                known = self.sorted_anew(side, checkpoint)
                self._built += [known.starts, known.targets, known.edges]
            self._rows[side] = known
            return known

    def sorted_anew(self, side: Side, checkpoint: Checkpoint = no_checkpoint) -> Csr:
        """The compressed rows, made from the ends and not kept."""
        near, far = map(self.ends, _ENDS[side])
        return build_csr(near, far, self.nodes[SIDES.index(side)], checkpoint)

    @property
    def some_rows(self) -> Csr:
        """The rows of a direction that is there already, if one is."""
        return next(iter(self._rows.values()), None) or self.rows("out")

    def buffers(self) -> dict[int, int]:
        """What is held in memory; the pages of a mapped file are the operating system's."""
        held = [*self._built, *(array for array in self._ends.values() if not _is_mapped(array))]
        return {array.ctypes.data: array.nbytes for array in held}


def _is_mapped(array: Any) -> bool:
    """Whether the memory is that of a file."""
    base = array
    while isinstance(base, np.ndarray):
        if base.base is None:
            return False
        base = base.base
    return True


class Topology(msgspec.Struct):
    """Adjacency of one edge table version.

    Edges from the count of the bulk on came after it; `gone` are those deleted since, ascending.
    """

    bulk: Bulk
    new_src: Growable
    new_dst: Growable
    gone: Positions
    _gone_mask: Mask | None = None
    _new: dict[Side, Sparse] = msgspec.field(default_factory=dict)
    _looped: Positions | None = None
    _folds: dict[Side, Positions] = msgspec.field(default_factory=dict)
    _whole: dict[End, SmallPositions] = msgspec.field(default_factory=dict)
    _lock: threading.RLock = msgspec.field(default_factory=threading.RLock)

    @classmethod
    def of(cls, bulk: Bulk) -> Topology:
        empty = np.empty(0, dtype=np.int32)
        return cls(bulk, Growable(empty), Growable(empty), NO_POSITIONS)

    def moved(
        self, src: SmallPositions, dst: SmallPositions, deleted: Positions
    ) -> Topology | None:
        """The next version: edges added at the end, some deleted. None when a rebuild is due."""
        if not self.has_room(added=len(src), deleted=len(deleted)):
            return None
        gone = distinct_sorted(np.concatenate([self.gone, deleted]))
        new = self.new_src.extended(src), self.new_dst.extended(dst)
        return Topology(self.bulk, *new, gone)

    def has_room(self, *, added: int, deleted: int) -> bool:
        """Whether so many more edges may stand beside the bulk."""
        return max(len(self.gone) + deleted, self.new_src.length + added) <= NEW_EDGES_MAX

    @property
    def length(self) -> int:
        """How many edge positions there are, deleted ones too."""
        return self.bulk.count + self.new_src.length

    @property
    def nbytes(self) -> int:
        return sum(self.buffers().values())

    def buffers(self) -> dict[int, int]:
        """What is held in memory, by address: versions share most of it."""
        own: list[Any] = [*self._folds.values(), *self._whole.values()]
        own += [] if self._gone_mask is None else [self._gone_mask]
        return {**self.bulk.buffers(), **{array.ctypes.data: array.nbytes for array in own}}

    @property
    def node_bound(self) -> int:
        """A number above every node position that an edge can lead to."""
        tops = (int(new.view.max(initial=-1)) + 1 for new in (self.new_src, self.new_dst))
        return max(*self.bulk.nodes, *tops)

    @property
    def has_unknown_ends(self) -> bool:
        """Whether there may be an edge that leads to or from a node that is not there."""
        if len(self.bulk.some_rows.targets) < self.bulk.count:
            return True
        return any((new.view < 0).any() for new in (self.new_src, self.new_dst))

    def ends(self, end: End) -> SmallPositions:
        """The positions of the nodes at one end of all edges, by edge position; -1 if unknown."""
        if not self.new_src.length:
            return self.bulk.ends(end)
        with self._lock:
            if end not in self._whole:
                self._whole[end] = np.concatenate([self.bulk.ends(end), self._new_ends(end)])
            return self._whole[end]

    def ends_at(self, end: End, edges: Positions) -> Positions:
        """The same for some edges."""
        new = edges >= self.bulk.count
        if not new.any():
            return self.bulk.ends(end)[edges].astype(np.int64)
        found = np.empty(len(edges), dtype=np.int64)
        found[~new] = self.bulk.ends(end)[edges[~new]]
        found[new] = self._new_ends(end)[edges[new] - self.bulk.count]
        return found

    # --- asking ---

    def neighbours(self, nodes: Positions, direction: Direction) -> Hits:
        """Each neighbour once per asking row; which edge leads there is not told."""
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
        if not len(self.gone):
            return self._degrees(nodes, direction) > 0
        return self.counts(nodes, direction, per_edge=True) > 0

    def counts(
        self, nodes: Positions | range, direction: Direction, *, per_edge: bool
    ) -> Positions:
        """How many neighbours each node has, or how many edges."""
        if isinstance(nodes, range):
            if direction != "both" and not (self.new_src.length or len(self.gone)):
                rows = self.bulk.rows(direction)
                if per_edge or not rows.parallel:
                    return rows.degrees_of_run(nodes.start, nodes.stop)
            nodes = np.arange(nodes.start, nodes.stop, dtype=np.int64)
        if direction == "both":
            hits = self.edges(nodes, direction) if per_edge else self.neighbours(nodes, direction)
            return np.bincount(hits.rows, minlength=len(nodes))
        rows = self.bulk.rows(direction)
        if per_edge or not rows.parallel:
            found = rows.degrees(nodes)
        else:
            found = self._neighbour_counts(direction)[np.minimum(nodes, rows.nodes)]
        return self._recounted(found, nodes, direction, per_edge=per_edge)

    def has_loop(self, nodes: Positions) -> Mask:
        """Which nodes have a self loop. Only asked where both ends are of one type."""
        with self._lock:
            if self._looped is None:
                self._looped = self._loops()
        return np.isin(nodes, self._looped)

    # --- inside ---

    def _new_ends(self, end: End) -> SmallPositions:
        new: SmallPositions = (self.new_src if end == "src" else self.new_dst).view
        return new

    def _loops(self) -> Positions:
        new = self.new_src.view
        new = new[(new == self.new_dst.view) & (new >= 0)]
        found: Positions = np.concatenate([self.bulk.some_rows.looped, new]).astype(np.int64)
        if not len(self.gone):
            return found
        hits = self._hits(found, "out", fold=False)
        living: Positions = found[hits.rows[hits.targets == found[hits.rows]]]
        return living

    def _degrees(self, nodes: Positions, direction: Direction) -> Positions:
        """Edges by node; a deleted one may still count."""
        parts = [self.bulk.rows(side).degrees(nodes) for side in _SIDES[direction]]
        if self.new_src.length:
            parts += [self._recent(side).degrees(nodes) for side in _SIDES[direction]]
        return reduce(np.add, parts)

    def _recounted(
        self, found: Positions, nodes: Positions, side: Side, *, per_edge: bool
    ) -> Positions:
        """The counts of the bulk made right for the nodes whose edges came or went since."""
        near = _ENDS[side][0]
        touched = np.concatenate([self.ends_at(near, self.gone), self._new_ends(near)])
        if not len(touched):
            return found
        at = np.flatnonzero(np.isin(nodes, touched))
        hits = self._hits(nodes[at], side, fold=not per_edge)
        found[at] = np.bincount(hits.rows, minlength=len(at))
        return found

    def _neighbour_counts(self, side: Side) -> Positions:
        """By node, parallel edges folded; one more cell, 0, for nodes that came later."""
        rows = self.bulk.rows(side)
        with self._lock:
            known = self._folds.get(side)
            if known is None:
                hits = folded(rows.gather(np.arange(rows.nodes, dtype=np.int64), with_edges=False))
                known = self._folds[side] = np.bincount(hits.rows, minlength=rows.nodes + 1)
            return known

    def _living(self, edges: Positions) -> Mask:
        if not len(self.gone):
            return np.ones(len(edges), dtype=np.bool_)
        if len(edges) <= _GONE_BY_HAND_MAX:
            return np.isin(edges, self.gone, invert=True)
        with self._lock:
            if self._gone_mask is None:
                self._gone_mask = np.zeros(self.length, dtype=np.bool_)
                self._gone_mask[self.gone] = True
        return ~self._gone_mask[edges]

    def _hits(self, nodes: Positions, side: Side, *, fold: bool) -> Hits:
        """Every edge of every node in one direction, or with `fold` every neighbour."""
        rows = self.bulk.rows(side)
        hits = rows.gather(nodes, with_edges=not fold or len(self.gone) > 0)
        if len(self.gone):
            hits = self._alive(hits)
        if fold and rows.parallel:
            hits = folded(hits)
        if not self.new_src.length:
            return hits
        extra, fresh = self._recent(side).gather(nodes)
        return joined(hits, folded(extra.where(fresh)) if fold else extra)

    def _alive(self, hits: Hits) -> Hits:
        assert hits.edges is not None, "they were gathered"
        living = self._living(hits.edges)
        return hits if living.all() else hits.where(living)

    def _recent(self, side: Side) -> Sparse:
        rows = self.bulk.rows(side)
        with self._lock:
            known = self._new.get(side)
            if known is None:
                known = self._new[side] = self._sparse(rows, side)
            return known

    def _sparse(self, rows: Csr, side: Side) -> Sparse:
        near, far = map(self._new_ends, _ENDS[side])
        edges = np.arange(self.bulk.count, self.length, dtype=np.int64)
        sources, targets = near.astype(np.int64), far.astype(np.int64)
        order = np.lexsort((edges, targets, sources))
        order = order[((sources >= 0) & (targets >= 0) & self._living(edges))[order]]
        sources, targets, edges = sources[order], targets[order], edges[order]
        asked = distinct_sorted(sources)
        old = rows.gather(asked, with_edges=len(self.gone) > 0)
        if len(self.gone):
            old = self._alive(old)
        width = 1 + max(int(targets.max(initial=0)), int(old.targets.max(initial=0)))
        known = asked[old.rows] * width + old.targets
        return Sparse(sources, targets, edges, ~np.isin(sources * width + targets, known))


# --- lookups ---------------------------------------------------------------------------------


class TooMany(Exception):  # noqa: N818 - not an error: the caller takes the other way
    """The frontier has grown beyond what lookups are good for."""


class Lookups:
    """The edges of one table version, asked for by their ends."""

    def __init__(
        self,
        edges: CountedTable,
        sources: Frame,
        targets: Frame,
        prints: Callable[[End], Prints | None] = lambda _: None,
    ) -> None:
        self._edges = edges
        self._frames: Mapping[End, Frame] = {"src": sources, "dst": targets}
        self._prints = prints

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
        here, found = self._read(nodes, "src")
        return np.isin(nodes, here[as_mask(pc.equal(found["src"], found["dst"]))])

    def _read(self, nodes: Positions, end: End) -> tuple[Positions, ArrowTable]:
        """The edges that have one of the nodes at this end: which one, and both ends."""
        wanted = distinct_sorted(nodes)
        if len(wanted) > LOOKUP_NODES_MAX:
            raise TooMany
        ids = self._frames[end].fetch("id", wanted)
        prints = self._prints(end)
        meant = None if prints is None else prints.meant(ids)
        if meant is None:
            found = self._edges.read(ENDS, where=sql.in_list(end, ids.to_pylist()))
        else:
            found = self._edges.take(meant, ENDS)
            found = found.filter(pc.is_in(found[end], value_set=ids))
        # Every edge has one of the ids that were asked for.
        return wanted[np.asarray(pc.index_in(flat(found[end]), value_set=ids))], found

    def _found(self, nodes: Positions, side: Side) -> Hits:
        near, far = _ENDS[side]
        here, table = self._read(nodes, near)
        there = self._frames[far].lookup_all(table[far])
        known = there >= 0
        here, there = here[known], there[known]
        # One asking row may stand for several rows of the table, and the other way round.
        order = np.argsort(here, kind="stable")
        rows, places = spread(*equal_runs(here[order], nodes))
        return Hits(rows, there[order][places])


Adjacency = Topology | Lookups
