"""The door of the reading room: a plan, its parameters and a snapshot in, a result out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from omnigraph.compiler.query import CompiledQuery, ir
from omnigraph.engine.embed import Embedder, environment_embedder
from omnigraph.engine.read.aggregate import GroupScope, distinct_rows, grouped
from omnigraph.engine.read.arrow import Array, ArrowTable, pa
from omnigraph.engine.read.cache import Caches
from omnigraph.engine.read.column import Positions
from omnigraph.engine.read.context import Budget, ReadLimits, Run
from omnigraph.engine.read.counters import Counters, ReadCost
from omnigraph.engine.read.evaluate import Constants
from omnigraph.engine.read.explain import Explanation, Trace
from omnigraph.engine.read.match import match
from omnigraph.engine.read.relation import Relation
from omnigraph.engine.read.result import QueryResult, table_of
from omnigraph.engine.read.scope import RowScope
from omnigraph.engine.read.sort import first_rows, sort_rows
from omnigraph.errors import InputError
from omnigraph.model.graph import Snapshot
from omnigraph.model.limits import READ_CACHE_BYTES_MAX
from omnigraph.model.schema import Catalog
from omnigraph.storage.arrow_schema import value_type
from omnigraph.storage.table import Tables


class Reader:
    """Runs read plans. One per open graph; safe to use from many threads."""

    def __init__(
        self,
        tables: Tables,
        *,
        embedder: Callable[[], Embedder] = environment_embedder,
        cache_bytes: int = READ_CACHE_BYTES_MAX,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._caches = Caches(tables, budget_bytes=cache_bytes)
        self._embedder = embedder
        self._monotonic = monotonic

    def close(self) -> None:
        """Let go of everything kept in memory."""
        self._caches.clear()

    @property
    def counters(self) -> Counters:
        return self._caches.counters

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
        assert isinstance(plan, ir.ReadPlan), "mutations go through another door"
        trace = Trace(recording=explain)
        before = self.counters.total() if explain else ReadCost()
        run = Run(
            caches=self._caches,
            snapshot=snapshot,
            catalog=catalog,
            variables=plan.variables,
            constants=Constants(params=params, now_ms=now_ms),
            embedder=self._embedder,
            budget=Budget(limits or ReadLimits(), self._monotonic),
            trace=trace,
        )
        result = _Answer(run, plan).result()
        if explain:
            trace.root.rows = result.row_count
            cost = self.counters.total().since(before)
            result.explanation = Explanation(root=trace.root, rows_read=cost.rows, reads=cost.reads)
        self._caches.trim_if_grown()
        return result


class _Answer:
    """The steps after the match: group, project, distinct, order, offset, limit."""

    def __init__(self, run: Run, plan: ir.ReadPlan) -> None:
        self._run = run
        self._plan = plan
        self._schema = pa.schema(
            [
                pa.field(column.name, value_type(column.type), nullable=column.nullable)
                for column in plan.columns
            ]
        )
        self._limit = _count(run, plan.limit, "limit")
        self._offset = _count(run, plan.offset, "offset") or 0

    def result(self) -> QueryResult:
        plan, run = self._plan, self._run
        with run.trace.step("match") as step:
            relation = match(run, plan.match)
            step.rows = relation.count
        if plan.grouping is not None:
            with run.trace.step("group") as step:
                groups = grouped(run, plan.grouping, relation)
                step.rows = groups.count
            return self._finished(self._in_order(groups, groups.count), groups.values)
        if plan.distinct:
            return self._finished_distinct(RowScope(run, relation))
        relation = self._ordered(relation)
        return self._streamed(relation)

    # --- rows ---

    def _ordered(self, relation: Relation) -> Relation:
        """The rows that will be shown, in order."""
        plan, run = self._plan, self._run
        with run.trace.step("order") as step:
            wanted = None if self._limit is None else self._limit + self._offset
            for rank in plan.orderings:
                if rank.rank:
                    scored = RowScope(run, relation).values(rank.expr).is_valid()
                    relation = relation.where(scored.to_numpy(zero_copy_only=False))
            keys = [(one.expr, one.descending) for one in plan.orderings]
            if not keys and wanted is None:
                relation = _in_storage_order(relation, plan.tie_break)
            elif wanted == 0:
                relation = relation.take(np.empty(0, dtype=np.int64))
            else:
                keys += [(expr, False) for expr in plan.tie_break]
                relation = self._sorted(relation, keys, wanted)
            rows = _window(relation.count, self._offset, self._limit)
            if len(rows) != relation.count:
                relation = relation.take(rows)
            step.rows = relation.count
        return relation

    def _sorted(
        self, relation: Relation, keys: Sequence[tuple[ir.Expr, bool]], wanted: int | None
    ) -> Relation:
        if wanted is not None and wanted < relation.count and not _has_fusion(keys):
            expr, descending = keys[0]
            values = RowScope(self._run, relation).values(expr)
            rows = first_rows(values, descending=descending, wanted=wanted)
            if len(rows) < relation.count:
                relation = relation.take(rows)
        scope = RowScope(self._run, relation)
        order = sort_rows(
            [(scope.values(expr), descending) for expr, descending in keys], relation.count
        )
        return relation.take(order)

    def _streamed(self, relation: Relation) -> QueryResult:
        """Projections are made when they are asked for, unless a rank needs to see all rows."""
        run, plan, schema = self._run, self._plan, self._schema

        def make(first: int, last: int) -> ArrowTable:
            rows = relation
            if last - first != relation.count:
                rows = relation.take(np.arange(first, last, dtype=np.int64))
            scope = RowScope(run, rows)
            return table_of(schema, [scope.values(one.expr) for one in plan.projections])

        if relation.count <= 4096 or any(_is_search(one.expr) for one in plan.projections):
            with run.trace.step("project") as step:
                table = self._projected(relation)
                step.rows = relation.count
            return self._made(table)
        return QueryResult(
            schema=schema,
            row_count=relation.count,
            graph_commit_id=run.snapshot.graph_commit_id,
            make=make,
        )

    def _projected(self, relation: Relation) -> ArrowTable:
        scope = RowScope(self._run, relation)
        return table_of(self._schema, [scope.values(one.expr) for one in self._plan.projections])

    # --- groups and distinct rows ---

    def _in_order(self, scope: GroupScope, count: int) -> Positions:
        keys = [(scope.values(one.expr), one.descending) for one in self._plan.orderings]
        keys += [(scope.values(expr), False) for expr in self._plan.tie_break]
        with self._run.trace.step("order") as step:
            wanted = None if self._limit is None else self._limit + self._offset
            rows = np.arange(count, dtype=np.int64)
            if keys and wanted is not None:
                rows = first_rows(keys[0][0], descending=keys[0][1], wanted=wanted)
            chosen = pa.array(rows)
            order = sort_rows([(values.take(chosen), down) for values, down in keys], len(rows))
            shown = rows[order][_window(len(rows), self._offset, self._limit)]
            step.rows = len(shown)
        return shown

    def _finished(self, rows: Positions, values: Callable[[ir.Expr], Array]) -> QueryResult:
        chosen = pa.array(rows)
        arrays = [values(one.expr).take(chosen) for one in self._plan.projections]
        return self._made(table_of(self._schema, arrays))

    def _finished_distinct(self, scope: RowScope) -> QueryResult:
        columns = [scope.values(one.expr) for one in self._plan.projections]
        rows = distinct_rows(columns, scope.count)
        columns = [column.take(pa.array(rows)) for column in columns]
        keys = []
        for one in self._plan.orderings:
            assert one.column is not None, "under distinct every ordering is a column"
            keys.append((columns[one.column], one.descending))
        keys += [(column, False) for column in columns if not pa.types.is_nested(column.type)]
        order = sort_rows(keys, len(rows))[_window(len(rows), self._offset, self._limit)]
        return self._made(
            table_of(self._schema, [column.take(pa.array(order)) for column in columns])
        )

    def _made(self, table: ArrowTable) -> QueryResult:
        return QueryResult(
            schema=self._schema,
            row_count=table.num_rows,
            graph_commit_id=self._run.snapshot.graph_commit_id,
            make=lambda first, last: table.slice(first, last - first),
        )


def _count(run: Run, expr: ir.Literal | ir.Param | None, word: str) -> int | None:
    if expr is None:
        return None
    value = run.constants.value(expr)
    if value is None:
        return None
    if value < 0:
        raise InputError(f"{word} must be 0 or more, got {value}")
    return int(value)


def _window(count: int, offset: int, limit: int | None) -> Positions:
    last = count if limit is None else min(count, offset + limit)
    return np.arange(min(offset, count), max(last, min(offset, count)), dtype=np.int64)


def _is_search(expr: ir.Expr) -> bool:
    return any(
        isinstance(part, ir.TextMatch | ir.Bm25 | ir.Nearest | ir.Rrf) for part in ir.walk(expr)
    )


def _has_fusion(keys: Sequence[tuple[ir.Expr, bool]]) -> bool:
    """Fused ranks look at all rows, so rows may not go before all keys are known."""
    return any(isinstance(part, ir.Rrf) for expr, _ in keys for part in ir.walk(expr))


def _in_storage_order(relation: Relation, tie_break: Sequence[ir.Expr]) -> Relation:
    """By position, variable after variable: the same rows always come in the same order."""
    keys = [relation[one.var] for one in tie_break if isinstance(one, ir.IdRef)]
    if relation.count < 2 or not keys or (len(keys) == 1 and (np.diff(keys[0]) > 0).all()):
        return relation
    return relation.take(np.lexsort(keys[::-1]))
