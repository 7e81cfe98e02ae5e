"""Which entities satisfy the conditions on one variable, found the cheapest way.

Ways: by id (a lookup in memory), over columns in memory, or by a predicate that storage evaluates
(big tables whose columns are not in memory). A query over one big table alone goes further: by a
*pushed scan*, conditions, order and limit go to storage, and only the named columns of the rows
that matter come back. A table that is asked again and again is read into a frame instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import flat
from omnigraph.engine.expr.evaluate import Search, is_constant
from omnigraph.engine.expr.order import Window
from omnigraph.engine.expr.sql import push_down, sortable_by_storage
from omnigraph.engine.read.context import Run, sort_keys
from omnigraph.engine.read.match.relation import MatchedRows, Relation
from omnigraph.engine.read.memory.arrays import Mask, Positions, distinct_sorted
from omnigraph.engine.read.memory.frame import SMALL_TABLE_ROWS, Frame
from omnigraph.model.schema import ROW_ID
from omnigraph.storage.table.read import Order

EQUAL_SHARE: Final = 0.01  # guesses, for conditions that were not evaluated yet
OTHER_SHARE: Final = 0.3
ASKED_SHARE: Final = 4  # conditions on fewer than this part of a table are asked row by row
LATE_SHARE: Final = 8  # if fewer than this part of the rows is shown, their columns are read late


class Candidates:
    """The entities of one variable of a block; evaluated when first needed."""

    def __init__(self, run: Run, binding: ir.NodeBinding) -> None:
        self._run = run
        self.binding = binding
        self._positions: Positions | None = None
        self._mask: Mask | None = None
        self._ids, self._rest = wanted_ids(run, binding)

    @property
    def frame(self) -> Frame:
        return self._run.frame_of(self.binding.var)

    def estimate(self) -> int:
        """How many there will be, without reading anything that is not in memory."""
        if self._positions is not None:
            return len(self._positions)
        if self._ids is not None:
            return len(self._ids)
        rows = self._run.entry_of(self.binding.var).row_count
        if self.binding.var in self._run.scanned:
            rows = self.frame.length
        if not self.binding.conditions:
            return rows
        if self._in_memory():
            return len(self.positions())
        share = 1.0
        for condition in self.binding.conditions:
            share *= EQUAL_SHARE if _is_equality(condition) else OTHER_SHARE
        return max(1, int(rows * share))

    @property
    def way(self) -> str:
        if self._ids is not None:
            return "by id"
        if not self.binding.conditions:
            return "all"
        return "in memory" if self._in_memory() else "pushed down"

    def positions(self) -> Positions:
        """Every entity that satisfies the conditions, ascending."""
        if self._positions is None:
            self._positions = self._find()
        return self._positions

    def among(self, positions: Positions) -> Mask:
        """Which of these entities satisfy the conditions."""
        if not self.binding.conditions:
            return np.ones(len(positions), dtype=np.bool_)
        frame = self.frame
        few = len(positions) * ASKED_SHARE < frame.length
        if self._positions is None and self._ids is None and few:
            some, back = np.unique(positions, return_inverse=True)
            return self._satisfied(some)[back]
        if self._mask is None:
            self._mask = np.zeros(frame.length, dtype=np.bool_)
            self._mask[self.positions()] = True
        return self._mask[positions]

    def _in_memory(self) -> bool:
        if self.binding.var in self._run.scanned:
            return True
        frame = self._run.caches.known_frame(self._run.entry_of(self.binding.var))
        if frame is None:
            return self._run.entry_of(self.binding.var).row_count <= SMALL_TABLE_ROWS
        small = frame.length <= SMALL_TABLE_ROWS
        return small or all(frame.is_hot(name) for name in self._columns())

    def _columns(self) -> set[str]:
        """The columns that the conditions look at."""
        return {
            self._run.stored(var, prop)
            for condition in self.binding.conditions
            for var, prop in ir.properties_of(condition)
        }

    def _find(self) -> Positions:
        frame = self.frame
        if self._ids is not None:
            found = frame.lookup(self._ids)
            found = distinct_sorted(found[found >= 0])
            return found[self._satisfied(found, self._rest)] if self._rest else found
        everything = frame.positions()
        if not self.binding.conditions:
            return everything
        if self._in_memory():
            return everything[self._satisfied(everything)]
        return self._pushed(frame)

    def _pushed(self, frame: Frame) -> Positions:
        """Let storage evaluate what it can, and the rest over what it found."""
        pushed = push_down(self.binding.conditions, self._run.constants)
        if pushed.where is None:
            everything = frame.positions()
            return everything[self._satisfied(everything)]
        for name in self._columns():
            frame.note_use(name)
        table = frame.table.read([], where=pushed.where)
        row_ids = flat(table[ROW_ID]).to_numpy(zero_copy_only=False)
        found = np.sort(frame.at_row_ids(row_ids))
        return found[self._satisfied(found, pushed.rest)] if pushed.rest else found

    def _satisfied(
        self, positions: Positions, conditions: tuple[ir.Expr, ...] | None = None
    ) -> Mask:
        if not len(positions):
            return np.ones(0, dtype=np.bool_)
        rows = MatchedRows(self._run, Relation.of(self.binding.var, positions))
        return rows.true_for(*(self.binding.conditions if conditions is None else conditions))


def _is_equality(condition: ir.Expr) -> bool:
    return isinstance(condition, ir.Compare) and condition.op is ir.CompareOp.EQ


def wanted_ids(run: Run, binding: ir.NodeBinding) -> tuple[list[str] | None, tuple[ir.Expr, ...]]:
    """The only ids that can satisfy the conditions, if one of them says so, and the others.

    A single String key is the id, so equality with the key is a lookup too.
    """
    for condition in binding.conditions:
        ids = _ids_of(run, condition)
        if ids is not None:
            return ids, tuple(other for other in binding.conditions if other is not condition)
    return None, binding.conditions


def _ids_of(run: Run, condition: ir.Expr) -> list[str] | None:
    match condition:
        case ir.Compare(op=ir.CompareOp.EQ, left=left, right=right):
            for side, other in ((left, right), (right, left)):
                if _names_entity(run, side) and is_constant(other):
                    value = run.constants.value(other)
                    return [] if value is None else [value]
        case ir.InList(needle=needle, options=options) if _names_entity(run, needle):
            listed: Any = run.constants.value(options) or ()
            return [value for value in listed if value is not None]
        case _:
            pass
    return None


def _names_entity(run: Run, expr: ir.Expr) -> bool:
    if isinstance(expr, ir.IdRef):
        return True
    return isinstance(expr, ir.PropertyRef) and run.stored(expr.var, expr.prop) == "id"


# --- pushed scans ------------------------------------------------------------------------------


def with_pushed_scan(run: Run, plan: ir.ReadPlan, window: Window) -> ir.MatchBlock:
    """The match of the plan, with its one scan done already where that is the better way."""
    block = plan.match
    binding = _only_binding(block)
    if binding is None or not run.caches.wants_pushed_scan(run.entry_of(binding.var)):
        return block
    exprs = [*binding.conditions, *_expressions(plan)]
    # Relevance and ranks are measured against the whole table.
    if any(isinstance(part, Search) for expr in exprs for part in ir.walk(expr)):
        return block
    pushed = push_down(binding.conditions, run.constants)
    rows = run.entry_of(binding.var).row_count
    order = None
    needed = [*pushed.rest, *_expressions(plan)]
    if window.wanted is not None and window.wanted < rows:
        order = _order(run, plan) if not pushed.rest else None
        if order is None and window.wanted * LATE_SHARE < rows and not _uses_all_rows(plan):
            # The other columns are read later, for the rows that are shown.
            needed = [*pushed.rest, *(expr for expr, _ in sort_keys(plan))]
    detail = f"${binding.var}: {binding.type_name}"
    with run.trace.step("read", f"{detail} (pushed down)") as step:
        table = run.caches.table(run.entry_of(binding.var))
        found = table.read(
            _columns(run, needed),
            where=pushed.where,
            limit=window.wanted if order else None,
            order_by=order or (),
        )
        frame = Frame.of(table, found, part=True)
        step.rows = frame.length
    run.scanned[binding.var] = frame
    return replace(block, bindings=(replace(binding, conditions=pushed.rest),))


def _uses_all_rows(plan: ir.ReadPlan) -> bool:
    return plan.grouping is not None or plan.distinct


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
    exprs: list[ir.Expr] = [projection.expr for projection in plan.projections]
    exprs += [ordering.expr for ordering in plan.orderings]
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
    order = []
    for expr, descending in sort_keys(plan):
        if isinstance(expr, ir.IdRef):
            order.append(Order(column="id", descending=descending))
        elif isinstance(expr, ir.PropertyRef) and sortable_by_storage(expr.type):
            name = run.stored(expr.var, expr.prop)
            order.append(Order(column=name, descending=descending))
        else:
            return None
    return tuple(order)
