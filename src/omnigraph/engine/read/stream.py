"""Groups of a big table that is not in memory, from one scan of it.

Storage gives the needed columns of the rows that satisfy the conditions, a batch at a time; the
groups of each batch are put together with those before. So only groups are held, never rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, pc, picked
from omnigraph.engine.expr.evaluate import needs_whole
from omnigraph.engine.expr.order import numbered_rows
from omnigraph.engine.expr.sql import push_down
from omnigraph.engine.read.aggregate import Given, finished, state_of
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.group import (
    Groups,
    KeyValues,
    Partial,
    partly_grouped,
    put_together,
)
from omnigraph.engine.read.match.candidates import columns_of, looked_at, only_binding
from omnigraph.engine.read.match.relation import Relation
from omnigraph.engine.read.match.scan import selected
from omnigraph.engine.read.memory.arrays import CHUNK_ROWS, Positions
from omnigraph.engine.read.memory.compressed import no_checkpoint
from omnigraph.engine.read.memory.frame import Frame
from omnigraph.engine.read.whole import looks_at_all

HELD_GROUPS_MAX: Final = 1 << 18  # more groups of batches than this are put together


def streamed(run: Run, plan: ir.Stage, grouping: ir.Grouping) -> Groups | None:
    """The groups of a query over one table; None where columns in memory are the better way."""
    binding = only_binding(plan.match)
    if binding is None or plan.carries:  # entities are handed on by their places in a frame
        return None
    entry = run.entry_of(binding.var)
    exprs = [*binding.conditions, *looked_at(plan)]
    # Relevance and ranks are measured against the whole table.
    if any(map(needs_whole, exprs)) or looks_at_all(grouping):
        return None
    if not run.caches.wants_stream(entry, columns_of(run, exprs)):
        return None
    pushed = push_down(binding.conditions, run.constants)
    columns = columns_of(run, [*pushed.rest, *looked_at(plan)])
    different = [
        ir.Grouping(keys=(*grouping.keys, call.arg), aggregates=())
        for call in grouping.aggregates
        if call.distinct and call.arg is not None
    ]
    plain = tuple(call for call in grouping.aggregates if not call.distinct)
    sums = [_Sum(each) for each in (ir.Grouping(keys=grouping.keys, aggregates=plain), *different)]
    table = run.caches.table(entry)
    with run.trace.step("read", f"${binding.var}: {binding.type_name} (streamed)") as step:
        step.rows = 0
        for rows in table.slices(columns, where=pushed.where, rows=CHUNK_ROWS):
            run.scanned[binding.var] = Frame.of(table, rows, part=True)
            relation = Relation.of(binding.var, selected(run, binding.var, pushed.rest))
            step.rows += relation.count
            for each in sums:
                each.add(run, relation)
        del run.scanned[binding.var]
    return _answer(run, grouping, sums[0].total(), [each.total() for each in sums[1:]])


class _Sum:
    """The groups of all batches so far."""

    def __init__(self, grouping: ir.Grouping) -> None:
        self._grouping = grouping
        self._parts: list[Partial] = []
        self._held = 0

    def add(self, run: Run, relation: Relation) -> None:
        part = partly_grouped(run, self._grouping, relation)
        self._parts.append(part)
        self._held += part.count
        if self._held > HELD_GROUPS_MAX:
            total = self.total()
            width = len(total.keys) + len(total.states)
            run.budget.reserve(total.count, width)
            # What is put together may hardly be less: then it is worth it when as much came again.
            self._parts, self._held = [total], 0

    def total(self) -> Partial:
        return put_together(self._grouping, self._parts)


def _answer(run: Run, grouping: ir.Grouping, main: Partial, different: Sequence[Partial]) -> Groups:
    plain, pairs = iter(main.states), iter(different)
    aggregates = []
    for call in grouping.aggregates:
        if not call.distinct:
            aggregates.append(finished(call, next(plain)))
            continue
        codes, values = _values(main, next(pairs))
        sizes = np.bincount(codes, minlength=main.count)
        state = state_of(call.fn, [Given(codes, values)], sizes, no_checkpoint)
        aggregates.append(finished(call, state))
    keys = [_shown(column) for column in main.keys]
    return Groups(run.constants, keys, aggregates, count=main.count)


def _values(main: Partial, pairs: Partial) -> tuple[Positions, Array]:
    """The different values of an argument that are not null, each with the number of its group."""
    *keys, values = pairs.keys
    there = pc.is_valid(values)
    keys, values = [key.filter(there) for key in keys], values.filter(there)
    codes, _ = numbered_rows([main.keys, keys], [main.count, len(values)])
    place = np.empty(int(codes.max(initial=0)) + 1, dtype=np.int64)
    place[codes[: main.count]] = np.arange(main.count)
    return place[codes[main.count :]], values


def _shown(column: Array) -> KeyValues:
    return lambda groups: column if groups is None else picked(column, groups)
