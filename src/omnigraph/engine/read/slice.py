"""Reading only what a query over one big table needs: its columns, its rows, its first few.

While a table is not in memory, a query without traversal is answered by one scan: conditions, order
and limit go to storage, and only the named columns of the rows that matter come back. A table that
is asked again and again is read into a frame instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from omnigraph.compiler.query import ir
from omnigraph.engine.expr.sql import push_down, sortable_by_storage
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.frame import Frame
from omnigraph.engine.read.ordering import Window
from omnigraph.storage.reading import Order

LATE_SHARE: Final = 8  # if fewer than this part of the rows is shown, their columns are read late


def sliced(run: Run, plan: ir.ReadPlan, window: Window) -> ir.MatchBlock:
    """The match of the plan, with its one scan done already where that is the better way."""
    block = plan.match
    binding = _only_binding(block)
    if binding is None or not run.caches.wants_slice(run.entry_of(binding.var)):
        return block
    exprs = [*binding.conditions, *_expressions(plan)]
    if any(_needs_everything(part) for expr in exprs for part in ir.walk(expr)):
        return block
    pushed = push_down(binding.conditions, run.constants)
    rows = run.entry_of(binding.var).row_count
    order = None
    needed = [*pushed.rest, *_expressions(plan)]
    if window.wanted is not None and window.wanted < rows:
        order = _order(run, plan) if not pushed.rest else None
        if order is None and window.wanted * LATE_SHARE < rows and not _uses_all_rows(plan):
            needed = [*pushed.rest, *_order_keys(plan)]  # the others later, for the rows shown
    detail = f"${binding.var}: {binding.type_name}"
    with run.trace.step("read", f"{detail} (pushed down)") as step:
        source = run.caches.source(run.entry_of(binding.var))
        found = source.read(
            _columns(run, needed),
            where=pushed.where,
            limit=window.wanted if order else None,
            order_by=order or (),
        )
        frame = Frame.of(source, found, part=True)
        step.rows = frame.length
    run.slices[binding.var] = frame
    return replace(block, bindings=(replace(binding, conditions=pushed.rest),))


def _uses_all_rows(plan: ir.ReadPlan) -> bool:
    return plan.grouping is not None or plan.distinct


def _order_keys(plan: ir.ReadPlan) -> list[ir.Expr]:
    return [*(one.expr for one in plan.orderings), *plan.tie_break]


def _only_binding(block: ir.MatchBlock) -> ir.NodeBinding | None:
    simple = not (
        block.traversals
        or block.filters
        or block.optionals
        or block.late_filters
        or block.negations
    )
    return block.bindings[0] if simple and len(block.bindings) == 1 else None


def _expressions(plan: ir.ReadPlan) -> list[ir.Expr]:
    """Everything that is evaluated after the match."""
    exprs: list[ir.Expr] = [one.expr for one in plan.projections]
    exprs += [one.expr for one in plan.orderings]
    if plan.grouping is not None:
        exprs += plan.grouping.keys
        for call in plan.grouping.aggregates:
            # Counting entities needs no column: in one table they are all there.
            plain = isinstance(call.arg, ir.IdRef) and not call.distinct
            if call.arg is not None and not plain:
                exprs.append(call.arg)
    elif not plan.distinct:
        exprs += plan.tie_break
    return exprs


def _needs_everything(part: ir.Expr) -> bool:
    """Relevance and ranks are measured against the whole table."""
    return isinstance(part, ir.TextMatch | ir.Bm25 | ir.Nearest | ir.Rrf)


def _columns(run: Run, exprs: Sequence[ir.Expr]) -> list[str]:
    return list(dict.fromkeys(_names(run, exprs)))


def _names(run: Run, exprs: Sequence[ir.Expr]) -> Iterator[str]:
    for expr in exprs:
        for part in ir.walk(expr):
            if isinstance(part, ir.PropertyRef):
                yield run.stored(part.var, part.prop)
            elif isinstance(part, ir.IdRef):
                yield "id"


def _order(run: Run, plan: ir.ReadPlan) -> tuple[Order, ...] | None:
    """The order as storage columns; None when storage would sort otherwise than we do."""
    if _uses_all_rows(plan):
        return None
    keys = [(one.expr, one.descending) for one in plan.orderings]
    keys += [(expr, False) for expr in plan.tie_break]
    order = []
    for expr, descending in keys:
        if isinstance(expr, ir.IdRef):
            order.append(Order(column="id", descending=descending))
        elif isinstance(expr, ir.PropertyRef) and sortable_by_storage(expr.type):
            name = run.stored(expr.var, expr.prop)
            order.append(Order(column=name, descending=descending))
        else:
            return None
    return tuple(order)
