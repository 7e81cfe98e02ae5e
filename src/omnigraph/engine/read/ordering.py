"""Which rows are shown, and in what order: rank, sort, offset and limit.

Keys are evaluated as late as possible: the first one for all rows, the others only for rows that
the keys before them leave tied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, pa
from omnigraph.engine.expr.evaluate import is_constant
from omnigraph.engine.read.column import Positions
from omnigraph.engine.read.context import ROW_NUMBER, Run
from omnigraph.engine.read.relation import Relation
from omnigraph.engine.read.scope import RowScope
from omnigraph.engine.read.search import query_vector
from omnigraph.engine.read.sort import Key, order_rows

RANKED_SHARE: Final = 8  # fewer than this part of all entities are sorted by themselves
NEAR_ROWS_MIN: Final = 4096  # fewer vectors are compared exactly at once
NEAR_MARGIN: Final = 1e-3  # far more than what single precision can be wrong by


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """`offset` and `limit`; no limit is None."""

    offset: int
    limit: int | None

    @property
    def wanted(self) -> int | None:
        """How many rows are needed from the start; None for all."""
        return None if self.limit is None else self.offset + self.limit

    @property
    def whole(self) -> bool:
        """Whether every row is shown."""
        return self.limit is None and self.offset == 0

    def of(self, count: int) -> slice:
        return slice(min(self.offset, count), count if self.wanted is None else self.wanted)


def ordered(run: Run, plan: ir.ReadPlan, relation: Relation, window: Window) -> Relation:
    """The rows that will be shown, in order."""
    relation = _with_fusions(run, plan, relation)
    if not plan.orderings and window.whole and not _few(run, relation, plan.tie_break):
        return _by_id(run, relation, plan.tie_break)
    relation = _ranked_only(run, plan.orderings, relation, window.wanted)
    keys = [(one.expr, one.descending) for one in plan.orderings]
    keys += [(expr, False) for expr in plan.tie_break]

    def valued(expr: ir.Expr) -> Callable[[Positions], Array]:
        return lambda rows: RowScope(run, relation.take(rows)).values(expr)

    order = order_rows([Key(valued(expr), down) for expr, down in keys], relation.count, window)
    return relation.take(order)


def ordered_groups(keys: Sequence[tuple[Array, bool]], count: int, window: Window) -> Positions:
    """The same for rows whose key columns are all there; the shown row numbers."""

    def valued(values: Array) -> Callable[[Positions], Array]:
        return lambda rows: values.take(pa.array(rows))

    return order_rows([Key(valued(values), down) for values, down in keys], count, window)


def _with_fusions(run: Run, plan: ir.ReadPlan, relation: Relation) -> Relation:
    """Fused ranks look at all rows, so they are computed before any row goes away."""
    wanted = set(_fusions([*(one.expr for one in plan.orderings)]))
    wanted |= set(_fusions([one.expr for one in plan.projections]))
    if not wanted:
        return relation
    scope = RowScope(run, relation)
    for expr in wanted:
        run.fixed[expr] = scope.search(expr)
    return relation.with_column(ROW_NUMBER, np.arange(relation.count, dtype=np.int64))


def _fusions(exprs: Sequence[ir.Expr]) -> Iterator[ir.Rrf]:
    for expr in exprs:
        yield from (part for part in ir.walk(expr) if isinstance(part, ir.Rrf))


def _ranked_only(
    run: Run, orderings: Sequence[ir.Ordering], relation: Relation, wanted: int | None
) -> Relation:
    """Without the rows that a search rank leaves out."""
    for place, one in enumerate(orderings):
        if not one.rank:
            continue
        if place == 0 and isinstance(one.expr, ir.Nearest) and wanted is not None:
            relation = _near_enough(run, one.expr, relation, wanted)
        scored = RowScope(run, relation).values(one.expr).is_valid()
        relation = relation.where(scored.to_numpy(zero_copy_only=False))
    return relation


def _near_enough(run: Run, expr: ir.Nearest, relation: Relation, wanted: int) -> Relation:
    """Rows that may be among the nearest: all by quick single precision, with room to be wrong."""
    if relation.count < NEAR_ROWS_MIN or wanted * 2 >= relation.count:
        return relation
    query = run.constants.value(expr.query) if is_constant(expr.query) else None
    frame = run.frame_of(expr.field.var)
    block = None if query is None else run.caches.vectors(frame, expr.field.prop, expr.dimension)
    if block is None:
        return relation
    positions = relation[expr.field.var]
    close = block.similarity(query_vector(run, expr, query))[positions]
    close[positions < 0] = -np.inf
    edge = np.partition(close, len(close) - wanted)[len(close) - wanted]
    return relation.where(close >= edge - NEAR_MARGIN)


def _by_id(run: Run, relation: Relation, tie_break: Sequence[ir.Expr]) -> Relation:
    """All rows, by the ids of their variables: the first of them are what a limit would show."""
    names = [one.var for one in tie_break if isinstance(one, ir.IdRef)]
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
    frames = (run.frame_of(one.var) for one in tie_break if isinstance(one, ir.IdRef))
    return relation.count * RANKED_SHARE < sum(frame.length for frame in frames)
