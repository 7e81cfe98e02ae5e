"""Answering a query: a plan, its parameters and a snapshot in, a result out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from omnigraph.compiler.query import CompiledQuery, ir
from omnigraph.engine.arrow import Array, ArrowTable, pa
from omnigraph.engine.expr.evaluate import Constants
from omnigraph.engine.read.context import Budget, ReadLimits, Run, Trace
from omnigraph.engine.read.match.match import count_inner
from omnigraph.engine.read.match.paths import find_paths
from omnigraph.engine.read.match.relation import Later, Relation
from omnigraph.engine.read.memory.arrays import Positions
from omnigraph.engine.read.memory.cache import Caches
from omnigraph.engine.read.memory.counted import ReadCost
from omnigraph.engine.read.stages import answered
from omnigraph.engine.read.union import united
from omnigraph.model.graph import Snapshot
from omnigraph.model.limits import TOPOLOGY_FILE_EDGES_MIN
from omnigraph.model.ports import TextEmbedder
from omnigraph.model.schema import Catalog
from omnigraph.results.rows import Explanation, QueryResult
from omnigraph.storage.table.table import Tables

FOLLOWED_QUERIES_MAX: Final = 1_024
NO_LIMITS: Final = ReadLimits()  # but those that every query has


class GivenRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows that a plan without a match is asked about: so many, the ids of their entities by
    variable, and columns of `ir.GIVEN`."""

    count: int
    entities: Mapping[str, Sequence[str | None]]
    values: Mapping[str, Array] = msgspec.field(default_factory=dict)


class Reader:
    """Runs read plans. One per open graph; safe to use from many threads."""

    def __init__(
        self,
        tables: Tables,
        *,
        cache_bytes: int | None = None,
        embedder: TextEmbedder | None = None,
    ) -> None:
        self._tables, self._embedder = tables, embedder
        self._caches = Caches(tables, budget_bytes=cache_bytes)
        # A commit, and the queries that have found their tables at it.
        self._followed: tuple[str, set[int]] = ("", set())

    def cache_bytes(self) -> dict[str, int]:
        """How much is kept in memory of each kind of thing."""
        return self._caches.bytes_by_kind()

    def close(self) -> None:
        """Stop what is being built and drop everything kept in memory."""
        self._caches.close()

    def store_topologies(self, snapshot: Snapshot, catalog: Catalog) -> None:
        """Leave the topologies of big edge types in files, for this process and the next.

        They are built from what is stored, not moved from what is known here: the positions of a
        file are those of tables that were just read.
        """
        caches = Caches(self._tables)
        try:
            for edge in catalog.edges.values():
                entry = snapshot.entries[f"edge:{edge.name}"]
                if entry.row_count >= TOPOLOGY_FILE_EDGES_MIN:
                    sources = caches.frame(snapshot.entries[f"node:{edge.from_type}"])
                    targets = caches.frame(snapshot.entries[f"node:{edge.to_type}"])
                    caches.topology(entry, sources, targets)
        finally:
            caches.close()

    @contextmanager
    def reading(self, snapshot: Snapshot, catalog: Catalog) -> Iterator[Run]:
        """What reading on a snapshot shares, without a query."""
        with self._caches.query():
            constants = Constants(params={}, now_ms=0)
            trace = Trace(recording=False)
            yield self._run(None, constants, snapshot, catalog, NO_LIMITS, trace)

    def run(
        self,
        query: CompiledQuery,
        *,
        params: Mapping[str, Any],
        snapshot: Snapshot,
        catalog: Catalog,
        now_ms: int,
        limits: ReadLimits | None = None,
        explain: bool = False,
    ) -> QueryResult:
        """Answer a read query on the snapshot. `params` are bound values (`bind_params`)."""
        plan = query.plan
        assert not isinstance(plan, ir.MutationPlan), "a mutation is no read"
        trace = Trace(recording=explain)
        before = self._caches.cost.since(ReadCost()) if explain else None
        constants = Constants(params=params, now_ms=now_ms)
        run = self._run(plan, constants, snapshot, catalog, limits or NO_LIMITS, trace)
        with self._caches.query():
            self._follow(query, snapshot)
            result = united(run, plan) if isinstance(plan, ir.UnionPlan) else answered(run, plan)
        if before is not None:
            trace.root.rows = result.row_count
            cost = self._caches.cost.since(before)
            result.explanation = Explanation(
                root=trace.root, reads=cost.reads, rows_read=cost.rows, columns_read=cost.by_table()
            )
        return result

    def _follow(self, query: CompiledQuery, snapshot: Snapshot) -> None:
        """Bring the tables of a query up to a commit together: one after the other, the reads of
        the differences would add up."""
        commit, known = self._followed
        if commit != snapshot.graph_commit_id or len(known) >= FOLLOWED_QUERIES_MAX:
            known = set()
            self._followed = (snapshot.graph_commit_id, known)
        if id(query) not in known:
            known.add(id(query))
            reads = [f"{one.kind}:{one.type_name}" for one in query.operation.reads]
            self._caches.follow([snapshot.entries[key] for key in reads])

    def rows(
        self, plan: ir.ReadPlan, *, constants: Constants, snapshot: Snapshot, catalog: Catalog
    ) -> ArrowTable:
        """All rows of a plan that is a part of a mutation."""
        trace = Trace(recording=False)
        run = self._run(plan, constants, snapshot, catalog, NO_LIMITS, trace)
        with self._caches.query():
            return answered(run, plan).to_arrow()

    def about(
        self,
        plan: ir.ReadPlan,
        given: GivenRows,
        *,
        constants: Constants,
        snapshot: Snapshot,
        catalog: Catalog,
    ) -> ArrowTable:
        """What a plan without a match says of the rows. They keep their order, unless they are
        grouped."""
        trace = Trace(recording=False)
        run = self._run(plan, constants, snapshot, catalog, NO_LIMITS, trace)
        with self._caches.query():
            positions: dict[str | int, Positions | Later] = {
                var: run.frame_of(var).lookup_all(pa.array(ids, pa.string()))
                for var, ids in given.entities.items()
            }
            run.rows[ir.GIVEN] = given.values
            return answered(
                run, plan, Relation(given.count, positions).numbered(ir.GIVEN)
            ).to_arrow()

    def _run(
        self,
        plan: ir.QueryPlan | None,
        constants: Constants,
        snapshot: Snapshot,
        catalog: Catalog,
        limits: ReadLimits,
        trace: Trace,
    ) -> Run:
        return Run(
            caches=self._caches,
            snapshot=snapshot,
            catalog=catalog,
            variables=plan.variables if isinstance(plan, ir.ReadPlan) else {},
            constants=constants,
            budget=Budget(limits),
            trace=trace,
            count_inner=count_inner,
            find_paths=find_paths,
            embedder=self._embedder,
        )
