"""Which entities satisfy the conditions on one variable, found the cheapest way.

Ways: by id (a lookup in memory), over columns in memory, or by a predicate that storage evaluates
(big tables whose columns are not in memory). A query over one big table alone goes further: by a
*pushed scan*, conditions, order and limit go to storage, and only the named columns of the rows
that matter come back. A table that is asked again and again is read into a frame instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from msgspec.structs import replace

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import flat
from omnigraph.engine.expr.evaluate import holding, is_constant, needs_whole
from omnigraph.engine.expr.order import Window
from omnigraph.engine.expr.sql import push_down, sortable_by_storage
from omnigraph.engine.read.context import Run, sort_keys
from omnigraph.engine.read.match.relation import MatchedRows, Relation
from omnigraph.engine.read.match.scan import properties, selected
from omnigraph.engine.read.memory.arrays import Mask, Positions, distinct_sorted
from omnigraph.engine.read.memory.frame import SMALL_TABLE_ROWS, Frame
from omnigraph.engine.read.memory.selection import Selection
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
        self._found: Positions | Selection | None = None
        self._mask: Mask | None = None
        self._ids, self._rest = _wanted_ids(run, binding)

    @property
    def frame(self) -> Frame:
        return self._run.frame_of(self.binding.var)

    @property
    def _is_open(self) -> bool:
        return self._run.variables[self.binding.var].is_open

    def estimate(self) -> int:
        """How many there will be, without reading anything that is not in memory."""
        if self._found is not None:
            return self._found.count if isinstance(self._found, Selection) else len(self._found)
        if self._ids is not None:
            return len(self._ids)
        scanned = self._run.scanned.get(self.binding.var)
        rows = scanned.length if scanned else self._run.row_count_of(self.binding.var)
        if not self.binding.conditions:
            return rows
        if self._in_memory():
            return Relation.of(self.binding.var, self.found()).count
        share = 1.0
        for condition in self.binding.conditions:
            equality = isinstance(condition, ir.Compare) and condition.op is ir.CompareOp.EQ
            share *= EQUAL_SHARE if equality else OTHER_SHARE
        return max(1, int(rows * share))

    @property
    def way(self) -> str:
        if self._ids is not None:
            return "by id"
        if not self.binding.conditions:
            return "all"
        return "in memory" if self._in_memory() else "pushed down"

    def found(self) -> Positions | Selection:
        """Every entity that satisfies the conditions, ascending."""
        if self._found is None:
            self._found = self._find()
        return self._found

    def among(self, positions: Positions) -> Mask:
        """Which of these entities satisfy the conditions."""
        if not self.binding.conditions:
            return np.ones(len(positions), dtype=np.bool_)
        frame = self._run.rows_of(self.binding.var)
        few = len(positions) * ASKED_SHARE < frame.length
        if self._found is None and self._ids is None and few:
            some, back = np.unique(positions, return_inverse=True)
            return self._satisfied(some, self.binding.conditions)[back]
        if self._mask is None:
            found = self.found()
            if isinstance(found, Selection):
                self._mask = found.mask()
            else:
                self._mask = np.zeros(frame.length, dtype=np.bool_)
                self._mask[found] = True
        return self._mask[positions]

    def _in_memory(self) -> bool:
        if self.binding.var in self._run.scanned:
            return True
        if self._is_open:
            return False
        entry = self._run.entry_of(self.binding.var)
        frame = self._run.caches.known_frame(entry)
        if (entry.row_count if frame is None else frame.length) <= SMALL_TABLE_ROWS:
            return True
        return frame is not None and all(
            frame.is_hot(name) for name in columns_of(self._run, self.binding.conditions)
        )

    def _find(self) -> Positions | Selection:
        rest = self.binding.conditions
        if self._ids is not None:
            found = self._run.rows_of(self.binding.var).lookup(self._ids)
            found, rest = distinct_sorted(found[found >= 0]), self._rest
        elif self._is_open:
            found = self._run.frames_of(self.binding.var).living()
            self._run.budget.reserve(len(found))
        elif self.binding.conditions and not self._in_memory():
            pushed = push_down(rest, self._run.constants)
            if pushed.where is None:
                return selected(self._run, self.binding.var, rest)
            found, rest = self._pushed(self.frame, pushed.where), pushed.rest
        else:
            return selected(self._run, self.binding.var, rest)
        return found[self._satisfied(found, rest)] if rest else found

    def _pushed(self, frame: Frame, where: str) -> Positions:
        """What is left by the conditions that storage can evaluate."""
        for name in columns_of(self._run, self.binding.conditions):
            frame.note_use(name)
        table = frame.table.read([], where=where)
        row_ids = flat(table[ROW_ID]).to_numpy(zero_copy_only=False)
        return np.sort(frame.at_row_ids(row_ids))

    def _satisfied(self, positions: Positions, conditions: Sequence[ir.Expr]) -> Mask:
        rows = MatchedRows(self._run, Relation.of(self.binding.var, positions))
        return holding(conditions, rows) if rows.count else np.ones(0, dtype=np.bool_)


def _wanted_ids(run: Run, binding: ir.NodeBinding) -> tuple[list[str] | None, tuple[ir.Expr, ...]]:
    """The only ids that can satisfy the conditions, if one of them says so, and the others.

    A single String key is the id, so equality with the key is a lookup too.
    """
    for condition in binding.conditions:
        ids = _ids_of(run, condition)
        if ids is not None:
            return ids, tuple(other for other in binding.conditions if other is not condition)
    return None, binding.conditions


def _names(run: Run, expr: ir.Expr) -> bool:
    """Whether the expression is an id, which few entities have."""
    return isinstance(expr, ir.IdRef) or run.names_entity(expr)


def _ids_of(run: Run, condition: ir.Expr) -> list[str] | None:
    match condition:
        case ir.Compare(op=ir.CompareOp.EQ, left=left, right=right):
            for side, other in ((left, right), (right, left)):
                if _names(run, side) and is_constant(other):
                    value = run.constants.value(other)
                    return [] if value is None else [value]
        case ir.InList(needle=needle, options=options) if _names(run, needle):
            listed: Any = run.constants.value(options) or ()
            return [value for value in listed if value is not None]
        case _:
            pass
    return None


# --- pushed scans ------------------------------------------------------------------------------


def only_binding(block: ir.MatchBlock) -> ir.NodeBinding | None:
    """The one binding of a match that asks for nothing else."""
    if len(block.bindings) != 1 or block.traversals or block.filters or block.unwinds:
        return None
    if block.optionals or block.late_filters or block.negations:
        return None
    return block.bindings[0]


def with_pushed_scan(run: Run, plan: ir.Stage, window: Window) -> ir.MatchBlock:
    """The match of the plan, with its one scan done already where that is the better way."""
    assert plan.grouping is None, "groups need no rows: they are streamed"
    assert not plan.distinct, "and so are distinct rows"
    block, binding = plan.match, only_binding(plan.match)
    if binding is None or plan.carries:  # entities are handed on by their places in a frame
        return block
    entry = run.entry_of(binding.var)
    if run.has_frame(entry) or not run.caches.wants_pushed_scan(entry):
        return block
    exprs = [*binding.conditions, *looked_at(plan)]
    # Relevance and ranks are measured against the whole table.
    if any(map(needs_whole, exprs)):
        return block
    pushed = push_down(binding.conditions, run.constants)
    order = None
    needed = [*pushed.rest, *looked_at(plan)]
    if window.wanted is not None and window.wanted < entry.row_count:
        order = _order(run, plan) if not pushed.rest else None
        if order is None and window.wanted * LATE_SHARE < entry.row_count:
            # The other columns are read later, for the rows that are shown.
            needed = [*pushed.rest, *(expr for expr, _ in sort_keys(plan))]
    with run.trace.step("read", f"${binding.var}: {binding.type_name} (pushed down)") as step:
        table = run.caches.table(entry)
        found = table.read(
            columns_of(run, needed),
            where=pushed.where,
            limit=window.wanted if order else None,
            order_by=order or (),
        )
        frame = Frame.of(table, found, part=True)
        step.rows = frame.length
    run.scanned[binding.var] = frame
    return replace(block, bindings=(replace(binding, conditions=pushed.rest),))


def looked_at(plan: ir.Stage) -> list[ir.Expr]:
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


def columns_of(run: Run, exprs: Sequence[ir.Expr]) -> list[str]:
    """The columns that the expressions, all of one variable, look at."""
    return [*dict.fromkeys(name for _, name in properties(run, exprs))]


def _order(run: Run, plan: ir.Stage) -> tuple[Order, ...] | None:
    """The order as storage columns; None when storage would sort otherwise than we do."""
    order = []
    for expr, descending in sort_keys(plan):
        if isinstance(expr, ir.IdRef):
            order.append(Order(column="id", descending=descending))
        elif isinstance(expr, ir.PropertyRef) and sortable_by_storage(expr.type):
            order.append(Order(column=run.stored(expr.var, expr.prop), descending=descending))
        else:
            return None
    return tuple(order)
