"""Which entities satisfy the conditions on one variable, found the cheapest way.

Ways: by id (a lookup in memory), by a predicate that storage evaluates (big tables whose columns
are not in memory), or over columns in memory.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.expr.evaluate import is_constant
from omnigraph.engine.expr.sql import push_down
from omnigraph.engine.read.column import Mask, Positions, one_array
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.frame import SMALL_TABLE_ROWS, Frame
from omnigraph.engine.read.relation import Relation
from omnigraph.engine.read.scope import RowScope
from omnigraph.engine.read.source import ROW_ID

EQUAL_SHARE: Final = 0.01  # guesses, for conditions that were not evaluated yet
OTHER_SHARE: Final = 0.3


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
        if self.binding.var in self._run.slices:
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
        if self._positions is None and self._ids is None and len(positions) * 4 < frame.length:
            some, back = np.unique(positions, return_inverse=True)
            return self._satisfied(some)[back]
        if self._mask is None:
            self._mask = np.zeros(frame.length, dtype=np.bool_)
            self._mask[self.positions()] = True
        return self._mask[positions]

    def _in_memory(self) -> bool:
        if self.binding.var in self._run.slices:
            return True
        frame = self._run.caches.known_frame(self._run.entry_of(self.binding.var))
        if frame is None:
            return self._run.entry_of(self.binding.var).row_count <= SMALL_TABLE_ROWS
        return frame.length <= SMALL_TABLE_ROWS or all(frame.is_hot(one) for one in self._columns())

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
            found = np.unique(found[found >= 0])
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
        for one in self._columns():
            frame.note_use(one)
        table = frame.source.read([], where=pushed.where)
        row_ids = one_array(table[ROW_ID]).to_numpy(zero_copy_only=False)
        found = np.sort(frame.at_row_ids(row_ids))
        return found[self._satisfied(found, pushed.rest)] if pushed.rest else found

    def _satisfied(
        self, positions: Positions, conditions: tuple[ir.Expr, ...] | None = None
    ) -> Mask:
        if not len(positions):
            return np.ones(0, dtype=np.bool_)
        scope = RowScope(self._run, Relation.of(self.binding.var, positions))
        return scope.true_for(*(self.binding.conditions if conditions is None else conditions))


def _is_equality(condition: ir.Expr) -> bool:
    return isinstance(condition, ir.Compare) and condition.op is ir.CompareOp.EQ


def wanted_ids(run: Run, binding: ir.NodeBinding) -> tuple[list[str] | None, tuple[ir.Expr, ...]]:
    """The only ids that can satisfy the conditions, if one of them says so, and the others.

    A single String key is the id, so equality with the key is a lookup too.
    """
    for condition in binding.conditions:
        ids = _ids_of(run, condition)
        if ids is not None:
            return ids, tuple(one for one in binding.conditions if one is not condition)
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
            return [one for one in listed if one is not None]
        case _:
            pass
    return None


def _names_entity(run: Run, expr: ir.Expr) -> bool:
    if isinstance(expr, ir.IdRef):
        return True
    return isinstance(expr, ir.PropertyRef) and run.stored(expr.var, expr.prop) == "id"
