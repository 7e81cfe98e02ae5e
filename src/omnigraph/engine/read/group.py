"""Groups: rows with equal keys, and what each group counts, sums or picks.

Group numbers are made from entities first: a key like `$p.role` is looked up once per different
entity, not once per row. Whole-number sums are exact; float sums do not depend on row order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, int64_array, pa, picked
from omnigraph.engine.expr.evaluate import Constants, Rows
from omnigraph.engine.expr.order import equal_codes, ordered_codes, row_keys
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.match.relation import MatchedRows, Relation
from omnigraph.engine.read.memory.arrays import Positions, distinct_positions
from omnigraph.errors import InputError
from omnigraph.model.schema import Scalar
from omnigraph.model.values import FLOAT_EXACT_MAX, in_bounds
from omnigraph.storage.lance.columns import value_type


class Groups(Rows):
    """Groups as the rows that an expression looks at: it sees keys and aggregates only."""

    def __init__(
        self, constants: Constants, count: int, keys: list[Array], aggregates: list[Array]
    ) -> None:
        self.constants = constants
        self.count = count
        self._keys = keys
        self._aggregates = aggregates

    def computed(self, expr: ir.KeyRef | ir.AggregateRef) -> Array:
        return (self._keys if isinstance(expr, ir.KeyRef) else self._aggregates)[expr.index]


def grouped(
    run: Run, grouping: ir.Grouping, relation: Relation, weights: Positions | None = None
) -> Groups:
    """The groups of the rows, with their keys and aggregates.

    With weights every row counts that often; all aggregates are then plain counts.
    """
    rows = MatchedRows(run, relation)
    if grouping.keys:
        codes, first = group_numbers([_key_codes(run, key, rows) for key in grouping.keys])
        keys = [MatchedRows(run, relation.take(first)).values(key) for key in grouping.keys]
        groups = len(first)
    else:
        codes, keys, groups = np.zeros(relation.count, dtype=np.int64), [], 1
    if weights is None:
        aggregates = [_aggregate(call, rows, codes, groups) for call in grouping.aggregates]
    else:  # exact, for weights are whole and few enough
        counts = int64_array(np.bincount(codes, weights=weights, minlength=groups))
        aggregates = [counts] * len(grouping.aggregates)
    return Groups(run.constants, groups, keys, aggregates)


def group_numbers(columns: Sequence[Positions]) -> tuple[Positions, Positions]:
    """The group of every row, numbered from 0, and the first row of every group."""
    keys = row_keys([column + 1 for column in columns])
    top = int(keys.max(initial=0)) + 1
    if top > 4 * len(keys) + 1024:
        _, first, codes = np.unique(keys, return_index=True, return_inverse=True)
        return np.asarray(codes, dtype=np.int64), first
    # The keys are dense enough to be places of an array: no sorting. Written backwards, so that the
    # first row of each group stays.
    first = np.full(top, -1, dtype=np.int64)
    first[keys[::-1]] = np.arange(len(keys) - 1, -1, -1, dtype=np.int64)
    used = np.flatnonzero(first >= 0)
    numbers = np.empty(top, dtype=np.int64)
    numbers[used] = np.arange(len(used), dtype=np.int64)
    return numbers[keys], first[used]


def _key_codes(run: Run, key: ir.Expr, rows: MatchedRows) -> Positions:
    variables = ir.variables_of(key)
    if len(variables) != 1 or not rows.count:
        return equal_codes(rows.values(key))
    (var,) = variables
    positions = rows.relation[var]
    frame = run.frame_of(var)
    whole = len(positions) * 2 > frame.length and int(positions.min()) >= 0
    if whole and isinstance(key, ir.PropertyRef):
        codes = frame.coded(run.stored(var, key.prop)).codes.take(positions)
        return np.asarray(codes, dtype=np.int64)
    entities, back = distinct_positions(positions, frame.length)
    return equal_codes(MatchedRows(run, Relation.of(var, entities)).values(key))[back]


def _aggregate(call: ir.AggregateCall, rows: MatchedRows, codes: Positions, groups: int) -> Array:
    target = value_type(call.type)
    if call.fn is ir.AggregateFn.COUNT and not call.distinct:
        counted = codes
        if isinstance(call.arg, ir.IdRef):
            counted = codes[rows.relation[call.arg.var] >= 0]
        elif call.arg is not None:
            counted = codes[rows.values(call.arg).is_valid().to_numpy(zero_copy_only=False)]
        return int64_array(np.bincount(counted, minlength=groups)).cast(target)
    assert call.arg is not None, "only count has no argument"
    values = rows.values(call.arg)
    if values.null_count:
        there = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        values, codes = picked(values, there), codes[there]
    if call.distinct:
        _, first = np.unique(row_keys([codes, equal_codes(values)]), return_index=True)
        values, codes = picked(values, first), codes[first]
    counts = np.bincount(codes, minlength=groups)
    match call.fn:
        case ir.AggregateFn.COUNT:
            return int64_array(counts).cast(target)
        case ir.AggregateFn.MIN | ir.AggregateFn.MAX:
            return _extreme(call.fn, values, codes, counts).cast(target)
        case ir.AggregateFn.SUM:
            sums = _sums(values, codes, groups)
            if sums.dtype == np.object_:
                if not all(in_bounds(total, Scalar.I64) for total in sums):
                    hint = "sum a float property or fewer rows"
                    raise InputError("a sum does not fit into 64 bits", hint=hint)
                sums = sums.astype(np.int64)
            return pa.array(sums, target, mask=counts == 0)
        case ir.AggregateFn.AVG:
            sums, some = _sums(values, codes, groups), np.maximum(counts, 1)
            if sums.dtype == np.object_:  # Python rounds only once when it divides integers
                some = some.astype(np.object_)
            return pa.array((sums / some).astype(np.float64), target, mask=counts == 0)


def _extreme(fn: ir.AggregateFn, values: Array, codes: Positions, counts: Positions) -> Array:
    """The value at the first or last place of each group, sorted by value."""
    order = np.lexsort((ordered_codes(values), codes))
    ends = np.cumsum(counts)
    at = ends - counts if fn is ir.AggregateFn.MIN else ends - 1
    empty = counts == 0
    rows = np.zeros(len(counts), dtype=np.int64)
    rows[~empty] = order[at[~empty]]
    return values.take(pa.array(rows, mask=empty))


def _sums(values: Array, codes: Positions, groups: int) -> npt.NDArray[Any]:
    """The sum of each group; of big whole numbers as Python integers, which never overflow."""
    numbers = values.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind == "f":
        wide = numbers.astype(np.float64)
        order = np.lexsort((wide, codes))
        return np.bincount(codes[order], weights=wide[order], minlength=groups)
    biggest = max(abs(int(numbers.max(initial=0))), abs(int(numbers.min(initial=0))))
    if biggest * max(1, len(numbers)) < FLOAT_EXACT_MAX:
        return np.bincount(codes, weights=numbers, minlength=groups).astype(np.int64)
    totals = [0] * groups
    for code, number in zip(codes.tolist(), numbers.tolist(), strict=True):
        totals[code] += number
    return np.asarray(totals, dtype=np.object_)
