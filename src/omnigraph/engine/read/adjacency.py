"""Who is next to whom, as arrays: compressed rows for the bulk, sorted triples for what is new.

Entries are sorted by (source, target), so parallel edges stand beside each other and folding them
is one comparison with the entry before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from omnigraph.engine.read.column import Mask, Positions

Small = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Hits:
    """What a gather found: for every hit the row of the asker, the target and the edge."""

    rows: Positions
    targets: Positions
    edges: Positions

    def where(self, keep: Mask) -> Hits:
        return Hits(self.rows[keep], self.targets[keep], self.edges[keep])


@dataclass(frozen=True, slots=True)
class Csr:
    """Compressed rows: the entries of node n are `starts[n]` to `starts[n + 1]`."""

    starts: Positions
    targets: Small
    edges: Small
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
        rows, flat = _spread(first, counts)
        return Hits(rows, self.targets[flat].astype(np.int64), self.edges[flat].astype(np.int64))


@dataclass(frozen=True, slots=True)
class Sparse:
    """A few entries, sorted by (source, target); `fresh` marks pairs that the bulk lacks."""

    sources: Positions
    targets: Positions
    edges: Positions
    fresh: Mask

    @property
    def nbytes(self) -> int:
        return self.sources.nbytes * 3 + self.fresh.nbytes

    def gather(self, nodes: Positions) -> tuple[Hits, Mask]:
        first = np.searchsorted(self.sources, nodes, side="left")
        counts = np.searchsorted(self.sources, nodes, side="right") - first
        rows, flat = _spread(first, counts)
        return Hits(rows, self.targets[flat], self.edges[flat]), self.fresh[flat]

    def degrees(self, nodes: Positions) -> Positions:
        first = np.searchsorted(self.sources, nodes, side="left")
        return np.asarray(np.searchsorted(self.sources, nodes, side="right") - first)


def _spread(first: Positions, counts: Positions) -> tuple[Positions, Positions]:
    """For runs `first[i] … first[i] + counts[i] - 1`: the run number and the place, run by run."""
    rows = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    flat = np.arange(total, dtype=np.int64) + np.repeat(first - (ends - counts), counts)
    return rows, flat


def build_csr(sources: Small, targets: Small, edges: Small, nodes: int) -> Csr:
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
