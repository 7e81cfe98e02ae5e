"""Whole-table questions, a chunk at a time, in as many threads as there are cores.

Each chunk gives its part of the answer, and the parts are put together in the order of the chunks.
A condition that the bounds of a chunk already settle is not asked of its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final, TypeVar

import msgspec
import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import as_mask
from omnigraph.engine.expr.compare import SWAPPED
from omnigraph.engine.expr.evaluate import Conditions, Constants, is_constant, needs_whole
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.match.relation import MatchedRows, Relation
from omnigraph.engine.read.memory import threads
from omnigraph.engine.read.memory.arrays import Bounds, Column
from omnigraph.engine.read.memory.frame import Frame
from omnigraph.engine.read.memory.selection import Part, Selection
from omnigraph.model.schema import INTEGERS, Scalar

T = TypeVar("T")
R = TypeVar("R")


def in_parallel(run: Run, work: Callable[[T], R], items: Sequence[T], rows: int) -> list[R]:
    """What the work gives for each item, in their order; together they have so many rows."""

    def timed(item: T) -> R:
        run.budget.check_time()
        return work(item)

    return threads.in_parallel(timed, items, rows)


def properties(run: Run, exprs: Iterable[ir.Expr]) -> list[tuple[str, str]]:
    """The columns that the expressions look at, each with its variable."""
    found: dict[tuple[str, str], None] = {}
    for part in chain.from_iterable(map(ir.walk, exprs)):
        if isinstance(part, ir.PropertyRef):
            found[part.var, run.stored(part.var, part.prop)] = None
        elif isinstance(part, ir.IdRef):
            found[part.var, "id"] = None
    return list(found)


def pieces(run: Run, relation: Relation, exprs: Sequence[ir.Expr]) -> list[MatchedRows]:
    """The rows a piece at a time, for these expressions; their columns are read whole before."""
    rows = [MatchedRows(run, piece) for piece in _cut(relation, exprs)]
    if len(rows) > 1:
        for var, name in properties(run, exprs):
            run.rows_of(var).held(name, relation.count)
    return rows


def _cut(relation: Relation, exprs: Sequence[ir.Expr]) -> list[Relation]:
    # A rank is measured among all rows, and where nothing is looked at there is nothing to share.
    return [relation] if not exprs or any(map(needs_whole, exprs)) else relation.pieces()


# --- conditions on one table -------------------------------------------------------------------


def selected_edges(run: Run, step: ir.Traversal) -> Relation:
    """Every edge that the step walks along, and its ends, from the table of the edges itself."""
    assert step.edge_var is not None, "only a named edge is looked at"
    assert len(step.legs) == 1, "and is in one table"
    topology, frame = run.topology(step.edge_type), run.frame("edge", step.edge_type)
    living = frame.living()
    if topology.has_unknown_ends:
        gone = (topology.ends("src") < 0) | (topology.ends("dst") < 0)
        living = Selection.without(frame.length, np.union1d(frame.gone, np.flatnonzero(gone)))
    chosen = selected(run, step.edge_var, step.edge_conditions, living)
    ends = {step.src: partial(topology.ends_at, "src"), step.dst: partial(topology.ends_at, "dst")}
    return Relation.of_edges(step.edge_var, chosen, ends)


def selected(
    run: Run, var: str, conditions: Sequence[ir.Expr], living: Selection | None = None
) -> Selection:
    """The entities of the variable's table, or of some of it, for which all conditions are true."""
    frame = run.frame_of(var)
    living = frame.living() if living is None else living
    if not conditions:
        return living
    asked = Conditions.of(conditions)
    rows = pieces(run, Relation.of(var, living), conditions)
    if len(rows) != len(living.parts):  # looked at as a whole
        kept = np.zeros(frame.length, dtype=np.bool_)
        kept[living.positions()] = as_mask(asked.true_rows(rows[0])) if rows else True
        return Selection.where(kept)
    tests = [_test(condition, frame, run.constants) for condition in asked.safe]
    known = [test for test in tests if test is not None]
    # A condition that can fail is only asked where the others are true, so it settles nothing.
    told = len(known) == len(tests) and not asked.failing

    def kept_of(numbered: tuple[Part, MatchedRows]) -> Part | None:
        part, chunk = numbered
        answers = [test.of(part.number) for test in known]
        if False in answers:
            return None
        if told and None not in answers:
            return part
        return part.narrowed(asked.true_rows(chunk))

    found = in_parallel(run, kept_of, [*zip(living.parts, rows, strict=True)], living.count)
    return Selection.of(frame.length, [part for part in found if part is not None])


# --- what bounds tell --------------------------------------------------------------------------

_PLAIN: Final = {*INTEGERS, Scalar.F64}
_NUMBERS: Final = {*_PLAIN, Scalar.F32}
# For the least and the greatest number: whether the comparison is true for all of them, for none.
_SETTLED: Final[Mapping[ir.CompareOp, Callable[[float, float, float], tuple[bool, bool]]]] = {
    ir.CompareOp.EQ: lambda least, most, x: (least == most == x, x < least or x > most),
    ir.CompareOp.NE: lambda least, most, x: (x < least or x > most, least == most == x),
    ir.CompareOp.LT: lambda least, most, x: (most < x, least >= x),
    ir.CompareOp.LE: lambda least, most, x: (most <= x, least > x),
    ir.CompareOp.GT: lambda least, most, x: (least > x, most <= x),
    ir.CompareOp.GE: lambda least, most, x: (least >= x, most < x),
}


def bounds_of(run: Run, expr: ir.Expr, relation: Relation) -> list[Bounds] | None:
    """What is known of a column of numbers in each part of the rows; None where the rows are no
    selection of one table. Of a whole chunk it is known without a look at its rows."""
    if not isinstance(expr, ir.PropertyRef) or len(relation.columns) != 1:
        return None
    selection, frame = relation.selected(expr.var), run.rows_of(expr.var)
    if selection is None or not isinstance(frame, Frame):
        return None
    if expr.type.is_list or expr.type.scalar not in _NUMBERS:
        return None
    column = frame.held(run.stored(expr.var, expr.prop), relation.count)
    if column is None:
        return None

    def known(part: Part) -> Bounds | None:
        if part.mask is None:
            return column.bounds(part.number)
        return Bounds.of(part.of(column))

    found = in_parallel(run, known, selection.parts, relation.count)
    return [one for one in found if one is not None]


class _Test(msgspec.Struct, frozen=True):
    """A comparison of a column with a constant, whose meaning is Python's."""

    op: ir.CompareOp
    column: Column
    value: float

    def of(self, chunk: int) -> bool | None:
        """Whether it is true for all rows of the chunk, or for none; None: look at them."""
        bounds = self.column.bounds(chunk)
        return None if bounds is None else _by_bounds(self.op, bounds, self.value)


def _test(condition: ir.Expr, frame: Frame, constants: Constants) -> _Test | None:
    """The condition as one that bounds can settle, if it is of that kind."""
    if not isinstance(condition, ir.Compare):
        return None
    op, left, right = condition.op, condition.left, condition.right
    if is_constant(left):
        op, left, right = SWAPPED.get(op, op), right, left
    # An F32 is compared with the nearest F32, so its bounds are left alone.
    if not isinstance(left, ir.PropertyRef) or not is_constant(right):
        return None
    if left.type.scalar not in _PLAIN or left.type.is_list:
        return None
    value = constants.value(right)
    if not isinstance(value, int | float) or isinstance(value, bool) or math.isnan(value):
        return None
    column = frame.held(left.prop, frame.length)
    return None if column is None else _Test(op, column, value)


def _by_bounds(op: ir.CompareOp, bounds: Bounds, value: float) -> bool | None:
    least, most = bounds.least, bounds.most
    if least is None:
        return None
    every, none = _SETTLED[op](least, most, value)
    # Null is true for nothing, and NaN only different from everything.
    differs = op is ir.CompareOp.NE
    every = every and not bounds.nulls and (differs or not bounds.has_nan)
    none = none and not (differs and bounds.has_nan)
    return True if every else False if none else None
