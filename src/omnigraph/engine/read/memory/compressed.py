"""Compressed rows: the neighbours of every node in one direction, one after the other.

Entries are sorted by (source, target), so parallel edges stand beside each other and folding them
is one comparison with the entry before. Rows are sorted in two steps. Edges are dealt to blocks of
neighbouring sources first; then each block is sorted by itself, as numbers that hold source, target
and place at once. Beside the result this takes a byte per edge, and about 50 bytes per edge of the
blocks that are being sorted, one for each core: 1% of all edges at a time, unless a single node has
more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import pa
from omnigraph.engine.read.memory.arrays import (
    NO_POSITIONS,
    Mask,
    Positions,
    SmallPositions,
    spread,
)

SLICE_EDGES: Final = 1 << 20  # dealt to blocks at once
BLOCK_EDGES: Final = 1 << 17  # about as many are sorted at once
_BLOCK_BITS_MAX: Final = 7  # block numbers and one more for unknown ends fit a byte
_KEY_BITS: Final = 64

_T = TypeVar("_T")
Checkpoint = Callable[[], None]  # called between slices; raises to give up


def no_checkpoint() -> None:
    """Nothing to ask: carry on."""


def side_by_side(work: Callable[[_T], None], items: Iterable[_T], checkpoint: Checkpoint) -> None:
    """Do the work for every item, as many at once as there are cores."""
    todo = list(items)
    threads = min(len(todo), int(pa.cpu_count()))
    if threads < 2:
        for item in todo:
            checkpoint()
            work(item)
        return
    # The executor waits for what runs when a checkpoint raises, and drops what has not begun.
    with ThreadPoolExecutor(threads, thread_name_prefix="rows") as pool:
        try:
            for done in [pool.submit(work, item) for item in todo]:
                checkpoint()
                done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class Hits(msgspec.Struct, frozen=True):
    """What a gather found: for every hit the row of the asker, the target, and the edge if edges
    were asked for."""

    rows: Positions
    targets: Positions
    edges: Positions | None = None

    def where(self, keep: Mask | Positions) -> Hits:
        """The hits that a mask keeps, or those at some places, in their order."""
        edges = None if self.edges is None else self.edges[keep]
        return Hits(self.rows[keep], self.targets[keep], edges)


NO_HITS: Final = Hits(NO_POSITIONS, NO_POSITIONS, NO_POSITIONS)


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
    edges = [part.edges for part in some if part.edges is not None]
    return Hits(
        np.concatenate([part.rows for part in some]),
        np.concatenate([part.targets for part in some]),
        np.concatenate(edges) if len(edges) == len(some) else None,
    )


def by_row(hits: Hits) -> Hits:
    """Sorted by (row, target)."""
    return hits.where(np.lexsort((hits.targets, hits.rows)))


class Csr(msgspec.Struct, frozen=True):
    """The entries of node n are `starts[n]` to `starts[n + 1]`."""

    starts: npt.NDArray[Any]  # 32 bits where that is enough
    targets: SmallPositions
    get_edges: Callable[[], SmallPositions]
    looped: SmallPositions  # sources of edges that lead to a node of the same number
    parallel: bool  # some pair of nodes has more than one edge

    @property
    def edges(self) -> SmallPositions:
        """The edge of each entry; of a stored topology read when first asked for."""
        return self.get_edges()

    @property
    def nodes(self) -> int:
        return len(self.starts) - 1

    def degrees(self, nodes: Positions) -> Positions:
        after = nodes + 1
        if len(nodes) and int(nodes.max()) >= self.nodes:  # nodes that came after this was built
            after, nodes = np.minimum(after, self.nodes), np.minimum(nodes, self.nodes)
        found: Positions = (self.starts[after] - self.starts[nodes]).astype(np.int64)
        return found

    def degrees_of_run(self, first: int, last: int) -> Positions:
        """The same for all nodes from the first to the one before the last."""
        known = min(last, self.nodes)
        found = np.zeros(last - first, dtype=np.int64)
        if first < known:
            ends = self.starts[first : known + 1]
            np.subtract(ends[1:], ends[:-1], out=found[: known - first], casting="unsafe")
        return found

    def gather(self, nodes: Positions, *, with_edges: bool) -> Hits:
        """Every entry of every node, in the order of the nodes."""
        if len(nodes) == 1 and 0 <= int(nodes[0]) < self.nodes:
            begin, end = int(self.starts[nodes[0]]), int(self.starts[nodes[0] + 1])
            return Hits(
                np.zeros(end - begin, dtype=np.int64),
                self.targets[begin:end].astype(np.int64),
                self.edges[begin:end].astype(np.int64) if with_edges else None,
            )
        counts = self.degrees(nodes)
        rows, places = spread(self.starts[np.minimum(nodes, self.nodes)], counts)
        edges = self.edges[places].astype(np.int64) if with_edges else None
        return Hits(rows, self.targets[places].astype(np.int64), edges)


def build_csr(
    sources: SmallPositions,
    targets: SmallPositions,
    nodes: int,
    checkpoint: Checkpoint = no_checkpoint,
) -> Csr:
    """Compressed rows over `nodes` nodes from the ends of every edge; -1 is an unknown end, and the
    edge is left out."""
    assert len(sources) == len(targets), "an edge has two ends"
    assert not len(sources) or int(sources.max()) < nodes, "sources are positions of known nodes"
    return _Sorting(sources, targets, nodes, checkpoint).rows()


class _Sorting:
    """One build of compressed rows."""

    def __init__(
        self, sources: SmallPositions, targets: SmallPositions, nodes: int, checkpoint: Checkpoint
    ) -> None:
        self._sources = sources
        self._targets = targets
        self._nodes = nodes
        self._checkpoint = checkpoint
        count = len(sources)
        bits = max(nodes - 1, 0).bit_length()
        # A block is so many neighbouring sources that it holds about `BLOCK_EDGES` edges.
        self._shift = bits - min(bits, _BLOCK_BITS_MAX, (count // BLOCK_EDGES).bit_length())
        self._blocks = (max(nodes - 1, 0) >> self._shift) + 1
        self._target_bits = int(targets.max(initial=0)).bit_length()
        self._firsts = range(0, count, SLICE_EDGES)
        self._starts = np.zeros(nodes + 1, dtype=np.int32 if count < 1 << 31 else np.int64)
        self._parallel = False
        self._looped: dict[int, SmallPositions] = {}

    def rows(self) -> Csr:
        edges, ends = self._dealt()
        targets = np.empty(len(edges), dtype=np.int32)

        def sort(block: int) -> None:
            first, last = int(ends[block]), int(ends[block + 1])
            self._sort(block, first, edges[first:last], targets[first:last])

        side_by_side(sort, range(self._blocks), self._checkpoint)
        looped = [self._looped[block] for block in sorted(self._looped)]
        return Csr(
            self._starts,
            targets,
            lambda: edges,
            np.concatenate([np.empty(0, np.int32), *looped]),
            self._parallel,
        )

    def _dealt(self) -> tuple[SmallPositions, Positions]:
        """The edges with known ends by block, ascending inside; and where each block ends."""
        numbers = np.empty(len(self._sources), dtype=np.uint8)
        counts = np.zeros((len(self._firsts), self._blocks + 1), dtype=np.int64)

        def count(first: int) -> None:
            part = slice(first, first + SLICE_EDGES)
            sources, targets = self._sources[part], self._targets[part]
            numbers[part] = sources >> self._shift
            numbers[part][(sources < 0) | (targets < 0)] = self._blocks
            counts[first // SLICE_EDGES] = np.bincount(numbers[part], minlength=self._blocks + 1)

        side_by_side(count, self._firsts, self._checkpoint)
        ends = np.concatenate([[0], np.cumsum(counts.sum(axis=0))])
        edges = np.empty(int(ends[self._blocks]), dtype=np.int32)
        # Where the edges of a slice begin within each block: after those of the slices before.
        begins = ends[:-1] + np.cumsum(counts, axis=0) - counts

        def deal(first: int) -> None:
            order = np.argsort(numbers[first : first + SLICE_EDGES], kind="stable")
            order += first
            done = 0
            for block, count in enumerate(counts[first // SLICE_EDGES, : self._blocks].tolist()):
                begin = int(begins[first // SLICE_EDGES, block])
                edges[begin : begin + count] = order[done : done + count]
                done += count

        side_by_side(deal, self._firsts, self._checkpoint)
        return edges, ends

    def _sort(self, block: int, first: int, edges: SmallPositions, into: SmallPositions) -> None:
        """Sort one block in place, and tell where its nodes start."""
        base = block << self._shift
        last = min(base + (1 << self._shift), self._nodes)
        place_bits = len(edges).bit_length()
        pairs = (self._sources[edges] - base).astype(np.uint64)
        pairs <<= np.uint64(self._target_bits)
        pairs |= self._targets[edges].astype(np.uint64)
        if self._shift + self._target_bits + place_bits <= _KEY_BITS:
            pairs <<= np.uint64(place_bits)
            pairs |= np.arange(len(edges), dtype=np.uint64)
            pairs.sort()
            order = (pairs & np.uint64((1 << place_bits) - 1)).astype(np.int64)
            pairs >>= np.uint64(place_bits)
        else:
            order = np.argsort(pairs, kind="stable")
            pairs = pairs[order]
        edges[:] = edges[order]
        into[:] = pairs & np.uint64((1 << self._target_bits) - 1)
        if (pairs[1:] == pairs[:-1]).any():
            self._parallel = True
        sources = (pairs >> np.uint64(self._target_bits)).astype(np.int64)
        counts = np.bincount(sources, minlength=last - base)
        # Blocks write to cells of their own: threads do not meet.
        self._starts[base + 1 : last + 1] = first + np.cumsum(counts)
        looped = into[into == sources + base]
        if len(looped):
            self._looped[block] = looped
