"""One run of a query: what its operators share, and what it may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array
from omnigraph.engine.embed.embedder import Embedder
from omnigraph.engine.expr.evaluate import Constants
from omnigraph.engine.read.explain import Trace
from omnigraph.engine.read.memory.arrays import Positions
from omnigraph.engine.read.memory.cache import Caches
from omnigraph.engine.read.memory.frame import Frame
from omnigraph.engine.read.memory.topology import Lookups, Topology
from omnigraph.errors import LimitExceededError, TimeLimitError
from omnigraph.model.graph import Snapshot, TableEntry
from omnigraph.model.limits import QUERY_MEMORY_BYTES_MAX, QUERY_TIME_MS_MAX
from omnigraph.model.schema import Catalog, Scalar

ROW_BYTES: Final = 8  # one position


def sort_keys(plan: ir.ReadPlan) -> list[tuple[ir.Expr, bool]]:
    """What rows are ordered by, and whether descending: the orderings, then the tie break."""
    keys = [(ordering.expr, ordering.descending) for ordering in plan.orderings]
    return keys + [(expr, False) for expr in plan.tie_break]


class ReadLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one query may use."""

    memory_bytes: int = QUERY_MEMORY_BYTES_MAX
    time_ms: int = QUERY_TIME_MS_MAX


class Budget:
    """Asked before memory is taken and between steps."""

    def __init__(self, limits: ReadLimits, monotonic: Callable[[], float]) -> None:
        self._limits = limits
        self._monotonic = monotonic
        self._ends = monotonic() + limits.time_ms / 1000

    def check_time(self) -> None:
        if self._monotonic() > self._ends:
            raise TimeLimitError(
                f"the query used more than {self._limits.time_ms} ms",
                hint="narrow the match, or raise the time limit",
                limit_ms=self._limits.time_ms,
            )

    def reserve(self, rows: int, columns: int = 1) -> None:
        """About to hold so many rows of so many variables."""
        self.check_time()
        wanted = rows * max(1, columns) * ROW_BYTES
        if wanted > self._limits.memory_bytes:
            raise LimitExceededError(
                resource="query memory (bytes)",
                limit=self._limits.memory_bytes,
                actual=wanted,
                hint="narrow the match, or raise the memory limit",
            )


class Run(msgspec.Struct, kw_only=True):
    """Everything the operators of one query share."""

    caches: Caches
    snapshot: Snapshot
    catalog: Catalog
    variables: Mapping[str, ir.Variable]
    constants: Constants
    embedder: Callable[[], Embedder]
    budget: Budget
    trace: Trace
    # By variable: what a pushed scan gave
    scanned: dict[str, Frame] = msgspec.field(default_factory=dict)
    # By the row numbers of the match
    fused: dict[ir.Expr, Array] = msgspec.field(default_factory=dict)
    _frames: dict[str, Frame] = msgspec.field(default_factory=dict)
    _topologies: dict[str, Topology] = msgspec.field(default_factory=dict)

    def entry(self, kind: str, type_name: str) -> TableEntry:
        return self.snapshot.entries[f"{kind}:{type_name}"]

    def entry_of(self, var: str) -> TableEntry:
        variable = self.variables[var]
        return self.entry(variable.kind, variable.type_name)

    def frame(self, kind: str, type_name: str) -> Frame:
        key = f"{kind}:{type_name}"
        found = self._frames.get(key)
        if found is None:
            found = self._frames[key] = self.caches.frame(self.snapshot.entries[key])
        return found

    def frame_of(self, var: str) -> Frame:
        """The frame whose positions the variable holds."""
        if var in self.scanned:
            return self.scanned[var]
        variable = self.variables[var]
        return self.frame(variable.kind, variable.type_name)

    def stored(self, var: str, prop: str) -> str:
        """The column that holds a property: a single String key is the id, stored twice."""
        variable = self.variables[var]
        if variable.kind == "node":
            node = self.catalog.nodes[variable.type_name]
            if node.key == (prop,) and node.by_name[prop].type.scalar is Scalar.STRING:
                return "id"
        return prop

    def topology(self, edge_type: str) -> Topology:
        found = self._topologies.get(edge_type)
        if found is None:
            edge = self.catalog.edges[edge_type]
            found = self.caches.topology(
                self.entry("edge", edge_type),
                self.frame("node", edge.from_type),
                self.frame("node", edge.to_type),
            )
            self._topologies[edge_type] = found
        return found

    def lookups(self, edge_type: str) -> Lookups | None:
        """Lookups in the edge table, where they are better than building a topology now."""
        if edge_type in self._topologies:
            return None
        edge = self.catalog.edges[edge_type]
        return self.caches.lookups(
            self.entry("edge", edge_type),
            self.frame("node", edge.from_type),
            self.frame("node", edge.to_type),
        )

    def endpoint(self, var: str, positions: Positions, side: str) -> Array:
        """The node ids at one end of the edges at these positions."""
        edge = self.catalog.edges[self.variables[var].type_name]
        topology = self.topology(edge.name)
        ends = (topology.src if side == "src" else topology.dst).view
        nodes = self.frame("node", edge.from_type if side == "src" else edge.to_type)
        there = positions >= 0
        at = np.full(len(positions), -1, dtype=np.int64)
        at[there] = ends[positions[there]]
        return nodes.fetch("id", at)
