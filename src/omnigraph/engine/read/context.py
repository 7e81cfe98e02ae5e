"""One run of a plan: the snapshot, the constants, the budgets and the record of what was done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array
from omnigraph.engine.embed import Embedder
from omnigraph.engine.expr.evaluate import Constants
from omnigraph.engine.read.cache import Caches
from omnigraph.engine.read.column import Positions
from omnigraph.engine.read.explain import Trace
from omnigraph.engine.read.frame import Frame
from omnigraph.engine.read.lookup import Lookups
from omnigraph.engine.read.topology import Topology
from omnigraph.errors import LimitExceededError, TimeLimitError
from omnigraph.model.graph import Snapshot, TableEntry
from omnigraph.model.limits import QUERY_MEMORY_BYTES_MAX, QUERY_TIME_MS_MAX
from omnigraph.model.schema import Catalog, Scalar

ROW_BYTES: Final = 8  # one position
ROW_NUMBER: Final = "#n"  # a column of a relation: the number of the row in the whole match


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
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


@dataclass(slots=True, kw_only=True)
class Run:
    """Everything the operators of one query share."""

    caches: Caches
    snapshot: Snapshot
    catalog: Catalog
    variables: Mapping[str, ir.Variable]
    constants: Constants
    embedder: Callable[[], Embedder]
    budget: Budget
    trace: Trace
    monotonic: Callable[[], float] = time.perf_counter
    slices: dict[str, Frame] = field(default_factory=dict)  # frames of scanned rows only, by var
    fixed: dict[ir.Expr, Array] = field(default_factory=dict)  # by ROW_NUMBER: seen all rows
    _frames: dict[str, Frame] = field(default_factory=dict)
    _topologies: dict[str, Topology] = field(default_factory=dict)

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
        sliced = self.slices.get(var)
        if sliced is not None:
            return sliced
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
