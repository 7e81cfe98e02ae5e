"""Answering a query: a plan, its parameters and a snapshot in, a result out.

After the match come groups or distinct rows, order, offset and limit, and the columns. Sort keys
are evaluated as late as possible: the first for all rows, the others only for rows that the keys
before them leave tied.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from omnigraph.compiler.query import CompiledQuery, ir
from omnigraph.engine.arrow import Array, ArrowTable, pa, picked
from omnigraph.engine.embed.embedder import Embedder, environment_embedder
from omnigraph.engine.expr.evaluate import Constants, Search
from omnigraph.engine.expr.order import Key, Window, order_rows
from omnigraph.engine.read.aggregate import distinct_rows, grouped
from omnigraph.engine.read.context import Budget, ReadLimits, Run, sort_keys
from omnigraph.engine.read.explain import Counters, Explanation, ReadCost, Trace
from omnigraph.engine.read.match.candidates import with_pushed_scan
from omnigraph.engine.read.match.match import match
from omnigraph.engine.read.match.relation import WHOLE_MATCH, MatchedRows, Relation
from omnigraph.engine.read.match.walk import Counted, only_counted
from omnigraph.engine.read.memory.arrays import Positions
from omnigraph.engine.read.memory.cache import Caches
from omnigraph.engine.read.memory.topology_files import user_topology_folder
from omnigraph.engine.read.result import QueryResult, table_of
from omnigraph.engine.read.search.vectors import near_enough
from omnigraph.errors import InputError
from omnigraph.model.graph import Snapshot
from omnigraph.model.limits import READ_CACHE_BYTES_MAX
from omnigraph.model.schema import Catalog
from omnigraph.storage.lance.columns import value_type
from omnigraph.storage.table.table import Tables

RANKED_SHARE: Final = 8  # fewer than this part of all entities are sorted by themselves
PROJECTED_ROWS_MAX: Final = 4096  # of more rows, columns are made batch by batch


class Reader:
    """Runs read plans. One per open graph; safe to use from many threads."""

    def __init__(
        self,
        tables: Tables,
        *,
        embedder: Callable[[], Embedder] = environment_embedder,
        cache_bytes: int = READ_CACHE_BYTES_MAX,
        topology_folder: Callable[[], Path | None] = user_topology_folder,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._caches = Caches(tables, budget_bytes=cache_bytes, topology_folder=topology_folder())
        self._embedder = embedder
        self._monotonic = monotonic

    def close(self) -> None:
        """Drop everything kept in memory."""
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
        assert isinstance(plan, ir.ReadPlan), "a mutation is no read"
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
        self._shown = [projection.expr for projection in plan.projections]
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
            block = (
                counted.block if counted is not None else with_pushed_scan(run, plan, self._window)
            )
            relation = match(run, block)
            step.rows = relation.count
        if plan.grouping is not None:
            return self._grouped(plan.grouping, relation, counted)
        if plan.distinct:
            return self._distinct(MatchedRows(run, relation))
        with run.trace.step("order") as step:
            relation = _ordered(run, plan, relation, self._window)
            step.rows = relation.count
        return self._streamed(relation)

    def _streamed(self, relation: Relation) -> QueryResult:
        """Projections are made when they are asked for, unless a rank needs to see all rows."""
        searches = any(isinstance(part, Search) for expr in self._shown for part in ir.walk(expr))
        if relation.count <= PROJECTED_ROWS_MAX or searches:
            with self._run.trace.step("project") as step:
                table = self._projected(relation)
                step.rows = relation.count
            return self._made(table)
        return QueryResult(
            schema=self._schema,
            row_count=relation.count,
            graph_commit_id=self._run.snapshot.graph_commit_id,
            make=lambda first, last: self._projected(relation.take_slice(slice(first, last))),
        )

    def _projected(self, relation: Relation) -> ArrowTable:
        rows = MatchedRows(self._run, relation)
        return table_of(self._schema, [rows.values(expr) for expr in self._shown])

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
            keys = [(groups.values(expr), descending) for expr, descending in sort_keys(plan)]
            rows = _ordered_groups(keys, groups.count, self._window)
            step.rows = len(rows)
        arrays = [picked(groups.values(expr), rows) for expr in self._shown]
        return self._made(table_of(self._schema, arrays))

    def _distinct(self, matched: MatchedRows) -> QueryResult:
        columns = [matched.values(expr) for expr in self._shown]
        kept = distinct_rows(columns, matched.count)
        columns = [picked(column, kept) for column in columns]
        keys = []
        for ordering in self._plan.orderings:
            assert ordering.column is not None, "under distinct every ordering is a column"
            keys.append((columns[ordering.column], ordering.descending))
        keys += [(column, False) for column in columns]
        rows = _ordered_groups(keys, len(kept), self._window)
        return self._made(table_of(self._schema, [picked(column, rows) for column in columns]))

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


# --- order -------------------------------------------------------------------------------------


def _ordered(run: Run, plan: ir.ReadPlan, relation: Relation, window: Window) -> Relation:
    """The rows that will be shown, in order."""
    relation = _with_fusions(run, plan, relation)
    if not plan.orderings and window.whole and not _few(run, relation, plan.tie_break):
        return _by_id(run, relation, plan.tie_break)
    relation = _ranked_only(run, plan.orderings, relation, window.wanted)

    def valued(expr: ir.Expr) -> Callable[[Positions], Array]:
        return lambda rows: MatchedRows(run, relation.take(rows)).values(expr)

    keys = [Key(valued(expr), descending) for expr, descending in sort_keys(plan)]
    return relation.take(order_rows(keys, relation.count, window))


def _ordered_groups(keys: Sequence[tuple[Array, bool]], count: int, window: Window) -> Positions:
    """The same for rows whose key columns are all there; the shown row numbers."""

    def valued(values: Array) -> Callable[[Positions], Array]:
        return lambda rows: picked(values, rows)

    return order_rows([Key(valued(values), down) for values, down in keys], count, window)


def _with_fusions(run: Run, plan: ir.ReadPlan, relation: Relation) -> Relation:
    """Fused ranks look at all rows, so they are computed before any row goes away."""
    exprs = [*(shown.expr for shown in plan.projections), *(expr for expr, _ in sort_keys(plan))]
    fusions = {part for expr in exprs for part in ir.walk(expr) if isinstance(part, ir.Rrf)}
    if not fusions:
        return relation
    rows = MatchedRows(run, relation)
    for expr in fusions:
        run.fused[expr] = rows.search(expr)
    return relation.numbered(WHOLE_MATCH)


def _ranked_only(
    run: Run, orderings: Sequence[ir.Ordering], relation: Relation, wanted: int | None
) -> Relation:
    """Without the rows that a search rank leaves out."""
    for place, ordering in enumerate(orderings):
        if not ordering.rank:
            continue
        if place == 0 and isinstance(ordering.expr, ir.Nearest) and wanted is not None:
            near = near_enough(run, ordering.expr, relation[ordering.expr.field.var], wanted)
            relation = relation if near is None else relation.where(near)
        scored = MatchedRows(run, relation).values(ordering.expr).is_valid()
        relation = relation.where(scored.to_numpy(zero_copy_only=False))
    return relation


def _by_id(run: Run, relation: Relation, tie_break: Sequence[ir.Expr]) -> Relation:
    """All rows, by the ids of their variables: the first of them are what a limit would show."""
    names = [key.var for key in tie_break if isinstance(key, ir.IdRef)]
    assert len(names) == len(tie_break), "rows that are not grouped are told apart by ids"
    if relation.count < 2 or not names:
        return relation
    if len(names) == 1:
        frame = run.frame_of(names[0])
        if relation.count == frame.length and (np.diff(relation[names[0]]) == 1).all():
            return relation.take(frame.id_order())  # every entity, once
    # The last cell stands for -1, which is null and comes first.
    keys = [np.append(run.frame_of(var).id_ranks(), -1)[relation[var]] for var in names]
    if len(keys) == 1:
        return relation.take(np.argsort(keys[0], kind="stable"))
    return relation.take(np.lexsort(keys[::-1]))


def _few(run: Run, relation: Relation, tie_break: Sequence[ir.Expr]) -> bool:
    """Whether sorting the ids of these rows costs less than knowing the order of all ids."""
    frames = (run.frame_of(key.var) for key in tie_break if isinstance(key, ir.IdRef))
    return relation.count * RANKED_SHARE < sum(frame.length for frame in frames)
