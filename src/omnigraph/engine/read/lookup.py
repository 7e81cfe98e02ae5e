"""Neighbours by lookups in the edge table: for a few nodes, before an adjacency is worth building.

Answers exactly as `Topology` does; storage uses its index on `src` or `dst` where it has one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from omnigraph.engine.read.adjacency import Hits, by_row, folded, joined
from omnigraph.engine.read.column import Mask, Positions, one_array
from omnigraph.engine.read.frame import Frame
from omnigraph.engine.read.source import Source
from omnigraph.engine.read.topology import Direction
from omnigraph.storage import sql

IDS_MAX: Final = 1024  # nodes asked about at once; more are cheaper with an adjacency
HOPS_MAX: Final = 6


class TooMany(Exception):  # noqa: N818 - not an error: the caller takes the other way
    """The frontier has grown beyond what lookups are good for."""


class Lookups:
    """The edges of one table version, asked for by their ends."""

    def __init__(self, edges: Source, sources: Frame, targets: Frame) -> None:
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
        looped = self._frames["src"].lookup_all(one_array(found["src"]))
        return np.isin(nodes, looped)

    def _asked(self, nodes: Positions, side: str) -> str:
        wanted = np.unique(nodes)
        if len(wanted) > IDS_MAX:
            raise TooMany
        ids: Iterable[str] = self._frames[side].fetch("id", wanted).to_pylist()
        return sql.in_list(side, ids)

    def _found(self, nodes: Positions, direction: str) -> Hits:
        near, far = ("src", "dst") if direction == "out" else ("dst", "src")
        table = self._edges.read([near, far], where=self._asked(nodes, near))
        here = self._frames[near].lookup_all(one_array(table[near]))
        there = self._frames[far].lookup_all(one_array(table[far]))
        known = (here >= 0) & (there >= 0)
        here, there = here[known], there[known]
        # One asking row may stand for several rows of the table, and the other way round.
        order = np.argsort(here, kind="stable")
        first = np.searchsorted(here[order], nodes, side="left")
        counts = np.searchsorted(here[order], nodes, side="right") - first
        rows = np.repeat(np.arange(len(nodes), dtype=np.int64), counts)
        ends = np.cumsum(counts)
        total = int(ends[-1]) if len(ends) else 0
        flat = np.arange(total, dtype=np.int64) + np.repeat(first - (ends - counts), counts)
        found = there[order][flat]
        return Hits(rows, found, np.zeros(total, dtype=np.int64))
