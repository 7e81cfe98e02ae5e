"""One run of a query: what it may use, what it records of itself for `explain`, and what its
operators share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic, perf_counter
from types import TracebackType
from typing import Any, Final, TypeGuard

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, DataType, pa
from omnigraph.engine.expr.evaluate import Constants
from omnigraph.engine.read.memory.cache import Caches
from omnigraph.engine.read.memory.frame import Frame
from omnigraph.engine.read.memory.frames import Frames, Table
from omnigraph.engine.read.memory.topology import End, Lookups, Topology
from omnigraph.errors import LimitExceededError, TimeLimitError, UnavailableError
from omnigraph.model.graph import Snapshot, TableEntry
from omnigraph.model.limits import QUERY_MEMORY_BYTES_MAX, QUERY_TIME_MS_MAX
from omnigraph.model.ports import TextEmbedder
from omnigraph.model.schema import Catalog, EdgeType, EntityKind, NodeType, Scalar
from omnigraph.results.rows import Step
from omnigraph.storage.lance.columns import value_type

ROW_BYTES: Final = 8  # one position


def sort_keys(plan: ir.Stage) -> list[tuple[ir.Expr, bool]]:
    """What rows are ordered by, and whether descending: the orderings, then the tie break."""
    keys = [(ordering.expr, ordering.descending) for ordering in plan.orderings]
    return keys + [(expr, False) for expr in plan.tie_break]


class ReadLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one query may use."""

    memory_bytes: int = QUERY_MEMORY_BYTES_MAX
    time_ms: int = QUERY_TIME_MS_MAX
    # Whether nobody waits for the answer any more; asked between steps. None: somebody does.
    is_given_up: Callable[[], bool] | None = None


class Budget:
    """Asked before memory is taken and between steps."""

    def __init__(self, limits: ReadLimits) -> None:
        self._limits = limits
        self._ends = monotonic() + limits.time_ms / 1000

    def check_time(self) -> None:
        if self._limits.is_given_up is not None and self._limits.is_given_up():
            raise UnavailableError("the query was given up: nobody waits for its answer")
        if monotonic() > self._ends:
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


# --- what is recorded -------------------------------------------------------------------------


class Trace:
    """Records steps when asked to, and costs next to nothing otherwise."""

    def __init__(self, *, recording: bool) -> None:
        self.recording = recording
        self.root = Step("query")
        self.stack = [self.root]

    def step(self, name: str, detail: str = "", estimate: int | None = None) -> _Running:
        """The step, while it runs."""
        return _Running(self, Step(name, detail, estimate), 0.0)


class _Running(msgspec.Struct):
    """A step that runs: it is timed if somebody records, and a limit that is met in it says so."""

    # A struct and no generator: a lookup takes four steps, and they were a tenth of its time.
    trace: Trace
    step: Step
    began: float

    def __enter__(self) -> Step:
        if self.trace.recording:
            self.trace.stack[-1].children.append(self.step)
            self.trace.stack.append(self.step)
            self.began = perf_counter()
        return self.step

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        step = self.step
        if self.trace.recording:
            step.took_ms = round((perf_counter() - self.began) * 1000, 3)
            self.trace.stack.pop()
        if error is None:
            return
        # The innermost step is the one that is named.
        if isinstance(error, LimitExceededError | TimeLimitError) and "step" not in error.facts:
            error.facts["step"] = f"{step.name} {step.detail}".strip()
            more = f": {error.hint}" if error.hint else ""
            error.advise(f"in the step `{error.facts['step']}`{more}")


# --- what is shared ---------------------------------------------------------------------------


class Run(msgspec.Struct, kw_only=True):
    """Everything the operators of one query share."""

    caches: Caches
    snapshot: Snapshot
    catalog: Catalog
    variables: Mapping[str, ir.Variable]
    constants: Constants
    budget: Budget
    trace: Trace
    # How often a block inside an expression matches for each row of a relation; see `match.match`.
    count_inner: Callable[[Run, Any, ir.BlockValue], npt.NDArray[np.int64]]
    # The paths between the nodes of two columns of positions; see `match.paths`.
    find_paths: Callable[[Run, ir.Way, npt.NDArray[np.int64], npt.NDArray[np.int64]], Any]
    # Of texts that are looked for by their vectors; None: the one that the environment names
    embedder: TextEmbedder | None = None
    # Values that come with rows, by the variable of their stage or list, then by column
    rows: dict[str, Mapping[str, Array]] = msgspec.field(default_factory=dict)
    # By variable: what a pushed scan gave
    scanned: dict[str, Frame] = msgspec.field(default_factory=dict)
    # By a column and what is searched for in it: what was found
    hits: dict[Any, Any] = msgspec.field(default_factory=dict)
    # By the row numbers of the match
    fused: dict[ir.Expr, Array] = msgspec.field(default_factory=dict)
    _frames: dict[str, Frame] = msgspec.field(default_factory=dict)
    _topologies: dict[str, Topology] = msgspec.field(default_factory=dict)
    _unions: dict[tuple[str, tuple[str, ...]], Frames] = msgspec.field(default_factory=dict)

    def entry(self, kind: str, type_name: str) -> TableEntry:
        return self.snapshot.entries[f"{kind}:{type_name}"]

    def entry_of(self, var: str) -> TableEntry:
        """The table of a variable of one type."""
        variable = self.variables[var]
        (name,) = variable.types  # its entities are in one table
        return self.entry(variable.kind, name)

    def row_count_of(self, var: str) -> int:
        """How many entities a variable could be, about."""
        variable = self.variables[var]
        return sum(self.entry(variable.kind, name).row_count for name in variable.types)

    def frame(self, kind: str, type_name: str) -> Frame:
        key = f"{kind}:{type_name}"
        found = self._frames.get(key)
        if found is None:
            found = self._frames[key] = self.caches.frame(self.snapshot.entries[key])
        return found

    def has_frame(self, entry: TableEntry) -> bool:
        """Whether the table is in memory."""
        found = self.caches.known_frame(entry)
        if found is not None:
            self._frames[entry.table_key] = found
        return found is not None

    def frames(self, kind: EntityKind, types: tuple[str, ...]) -> Frames:
        """The frames of these types, which are by name, one after the other."""
        found = self._unions.get((kind, types))
        if found is None:
            found = self._unions[kind, types] = self._union(kind, types)
        return found

    def _union(self, kind: EntityKind, types: tuple[str, ...]) -> Frames:
        kinds: dict[str, DataType] = {"id": pa.string()}
        tables = []
        for name in types:
            entity = self.catalog.nodes[name] if kind == "node" else self.catalog.edges[name]
            for prop in entity.properties:
                kinds.setdefault(prop.name, value_type(prop.type))
            columns = {prop.name: self._column(entity, prop.name) for prop in entity.properties}
            frame = self.frame(kind, name)
            tables.append(Table(type_name=name, frame=frame, columns={"id": "id", **columns}))
        return Frames(tables, kinds)

    def frames_of(self, var: str) -> Frames:
        """The frames whose positions the variable holds, also if it is only one."""
        variable = self.variables[var]
        return self.frames(variable.kind, variable.types)

    def frame_of(self, var: str) -> Frame:
        """The frame whose positions the variable, which is of one type, holds."""
        found = self.rows_of(var)
        assert isinstance(found, Frame), "its entities are in several frames"
        return found

    def entity_of(self, var: str) -> NodeType | EdgeType:
        """The type of the variable, which is one."""
        variable = self.variables[var]
        assert not variable.is_open, "its entities are of several types"
        if variable.kind == "node":
            return self.catalog.nodes[variable.type_name]
        return self.catalog.edges[variable.type_name]

    def rows_of(self, var: str) -> Frame | Frames:
        """What the variable holds positions of."""
        found = self.scanned.get(var)
        if found is not None:
            return found
        variable = self.variables[var]
        types = variable.types
        return self.frame(variable.kind, types[0]) if len(types) == 1 else self.frames_of(var)

    def stored(self, var: str, prop: str) -> str:
        """The column that holds a property: a single String key is the id, stored twice."""
        variable = self.variables[var]
        if variable.kind == "node" and len(variable.types) == 1:
            return self._column(self.catalog.nodes[variable.types[0]], prop)
        return prop  # each of several frames knows its own

    def _column(self, entity: NodeType | EdgeType, prop: str) -> str:
        if isinstance(entity, NodeType) and entity.key == (prop,):
            return "id" if entity.by_name[prop].type.scalar is Scalar.STRING else prop
        return prop

    def names_entity(self, expr: ir.Expr) -> TypeGuard[ir.IdRef | ir.PropertyRef | ir.Position]:
        """Whether different entities differ in the expression: the id, or a single String key."""
        if isinstance(expr, ir.IdRef):
            return not self.variables[expr.var].is_open  # types may share an id
        if isinstance(expr, ir.Position):
            return True
        return isinstance(expr, ir.PropertyRef) and self.stored(expr.var, expr.prop) == "id"

    def topology(self, edge_type: str) -> Topology:
        found = self._topologies.get(edge_type)
        if found is None:
            found = self._topologies[edge_type] = self.caches.topology(
                *self._edges(edge_type), self.budget.check_time
            )
        return found

    def lookups(self, edge_type: str) -> Lookups | None:
        """Lookups in the edge table, where they are better than building a topology now."""
        if self._knows_topology(edge_type):
            return None
        return self.caches.lookups(*self._edges(edge_type))

    def begin_lookups(self, edge_type: str, end: End) -> None:
        """Begin to make what the first of such lookups by this end would wait for."""
        if not self._knows_topology(edge_type):
            self.caches.begin_lookups(*self._edges(edge_type), end)

    def _knows_topology(self, edge_type: str) -> bool:
        if edge_type not in self._topologies:
            known = self.caches.known_topology(*self._edges(edge_type))
            if known is None:
                return False
            self._topologies[edge_type] = known
        return True

    def _edges(self, edge_type: str) -> tuple[TableEntry, Frame, Frame]:
        edge = self.catalog.edges[edge_type]
        sources, targets = self.frame("node", edge.from_type), self.frame("node", edge.to_type)
        return self.entry("edge", edge_type), sources, targets
