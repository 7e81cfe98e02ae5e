"""The door of the reading room: a plan, its parameters and a snapshot in, a result out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from omnigraph.compiler.query import CompiledQuery, ir
from omnigraph.engine.arrow import ArrowTable, pa
from omnigraph.engine.embed import Embedder, environment_embedder
from omnigraph.engine.expr.evaluate import Constants
from omnigraph.engine.read.aggregate import distinct_rows, grouped
from omnigraph.engine.read.cache import Caches
from omnigraph.engine.read.context import Budget, ReadLimits, Run
from omnigraph.engine.read.counters import Counters, ReadCost
from omnigraph.engine.read.counting import Counted, only_counted
from omnigraph.engine.read.explain import Explanation, Trace
from omnigraph.engine.read.match import match
from omnigraph.engine.read.ordering import Window, ordered, ordered_groups
from omnigraph.engine.read.relation import Relation
from omnigraph.engine.read.result import QueryResult, table_of
from omnigraph.engine.read.scope import RowScope
from omnigraph.engine.read.shelf import user_shelf
from omnigraph.engine.read.slice import sliced
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
        shelf_folder: Callable[[], Path | None] = user_shelf,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._caches = Caches(tables, budget_bytes=cache_bytes, shelf_folder=shelf_folder())
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
            result.explanation = Explanation(
                root=trace.root,
                reads=cost.reads,
                rows_read=cost.rows,
                columns_read=cost.by_table(),
            )
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
        self._window = Window(
            offset=_count(run, plan.offset, "offset") or 0, limit=_count(run, plan.limit, "limit")
        )

    def result(self) -> QueryResult:
        plan, run = self._plan, self._run
        if self._window.limit == 0:
            return self._made(self._schema.empty_table())
        counted = only_counted(plan)
        with run.trace.step("match") as step:
            block = counted.block if counted is not None else sliced(run, plan, self._window)
            relation = match(run, block)
            step.rows = relation.count
        if plan.grouping is not None:
            return self._grouped(plan.grouping, relation, counted)
        if plan.distinct:
            return self._distinct(RowScope(run, relation))
        with run.trace.step("order") as step:
            relation = ordered(run, plan, relation, self._window)
            step.rows = relation.count
        return self._streamed(relation)

    def _streamed(self, relation: Relation) -> QueryResult:
        """Projections are made when they are asked for, unless a rank needs to see all rows."""
        run, plan, schema = self._run, self._plan, self._schema

        def make(first: int, last: int) -> ArrowTable:
            rows = relation
            if last - first != relation.count:
                rows = relation.take_slice(slice(first, last))
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

    def _grouped(
        self, grouping: ir.Grouping, relation: Relation, counted: Counted | None
    ) -> QueryResult:
        run, plan = self._run, self._plan
        weights = None
        if counted is not None:
            with run.trace.step("count", f"neighbours of ${counted.near}") as step:
                relation, weights = counted.weigh(run, relation)
                step.rows = relation.count
        with run.trace.step("group") as step:
            groups = grouped(run, grouping, relation, weights)
            step.rows = groups.count
        with run.trace.step("order") as step:
            keys = [(groups.values(one.expr), one.descending) for one in plan.orderings]
            keys += [(groups.values(expr), False) for expr in plan.tie_break]
            rows = pa.array(ordered_groups(keys, groups.count, self._window))
            step.rows = len(rows)
        arrays = [groups.values(one.expr).take(rows) for one in plan.projections]
        return self._made(table_of(self._schema, arrays))

    def _distinct(self, scope: RowScope) -> QueryResult:
        columns = [scope.values(one.expr) for one in self._plan.projections]
        kept = pa.array(distinct_rows(columns, scope.count))
        columns = [column.take(kept) for column in columns]
        keys = []
        for one in self._plan.orderings:
            assert one.column is not None, "under distinct every ordering is a column"
            keys.append((columns[one.column], one.descending))
        keys += [(column, False) for column in columns]
        rows = pa.array(ordered_groups(keys, len(kept), self._window))
        return self._made(table_of(self._schema, [column.take(rows) for column in columns]))

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


def _is_search(expr: ir.Expr) -> bool:
    return any(
        isinstance(part, ir.TextMatch | ir.Bm25 | ir.Nearest | ir.Rrf) for part in ir.walk(expr)
    )
