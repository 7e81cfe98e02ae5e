"""What groups count, sum or pick: states that can be put together, and the answers they give.

All sums are exact and rounded once; -0.0 is shown as 0.0 by sums, `min` and `max`, so that neither
the order of rows nor how they were cut into pieces shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, DataType, as_mask, flat, int64_array, pa
from omnigraph.engine.expr.order import is_number
from omnigraph.engine.expr.sums import (
    FloatPart,
    Totals,
    float_part,
    float_total,
    integer_part,
    integer_sums,
    rounded,
)
from omnigraph.engine.read.memory.arrays import Bounds, Column, Positions
from omnigraph.engine.read.memory.compressed import Checkpoint, no_checkpoint
from omnigraph.errors import InputError
from omnigraph.model.schema import Scalar
from omnigraph.model.values import FLOAT_EXACT_MAX, in_bounds
from omnigraph.storage.lance.columns import value_type

Codes = npt.NDArray[Any]  # whole numbers, one a row

EXTREMES: Final = (ir.AggregateFn.MIN, ir.AggregateFn.MAX)


class Given(msgspec.Struct, frozen=True):
    """The argument of an aggregate in one piece, without null, and the group of each value."""

    codes: Codes | None  # None: all are of group 0
    values: Array


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of each group: how many values, and their exact sum or the chosen one."""

    sizes: Positions
    sums: FloatPart | Totals | None = None
    chosen: Array | None = None  # null where there is none

    def mapped(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> State:
        """The same with other groups; what is chosen stays as it is."""
        sums = self.sums
        if sums is not None:
            sums = sums.mapped(change) if isinstance(sums, FloatPart) else change(sums)
        return State(sizes=change(self.sizes), sums=sums, chosen=self.chosen)


def state_of(
    fn: ir.AggregateFn, given: Sequence[Given], sizes: Positions, checkpoint: Checkpoint
) -> State:
    """The state of an aggregate after these pieces; each group has so many values.

    One piece after the other: the kernels keep Python's lock nearly all the time, so that several
    threads would only take it from each other (decision 0022).
    """
    groups = len(sizes)
    if fn is ir.AggregateFn.COUNT:
        return State(sizes=sizes)
    if fn in EXTREMES:
        return State(sizes=sizes, chosen=_extremes(fn, given, groups, checkpoint))
    sums: FloatPart | Totals
    if given and pa.types.is_floating(given[0].values.type):
        parts = (
            float_part(piece.codes, np.asarray(piece.values, np.float64), groups)
            for piece in _with(checkpoint, given)
        )
        sums = float_total(parts, groups)
    else:
        totals = (
            integer_part(piece.codes, np.asarray(piece.values), groups)
            for piece in _with(checkpoint, given)
        )
        sums = integer_sums(totals, groups)
    return State(sizes=sizes, sums=sums)


def merged(
    fn: ir.AggregateFn, states: Sequence[State], codes: Sequence[Positions], groups: int
) -> State:
    """The states of several parts as one: `codes` give the group of each group of a part."""

    def placed(at: Positions, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        room = np.zeros(groups, dtype=values.dtype)
        room[at] = values  # within a part, groups are different
        return room

    moved = [state.mapped(partial(placed, at)) for state, at in zip(states, codes, strict=True)]
    sizes = np.sum([np.zeros(groups, np.int64), *(state.sizes for state in moved)], axis=0)
    if fn is ir.AggregateFn.COUNT:
        return State(sizes=sizes)
    if fn in EXTREMES:
        given = []
        for state, at in zip(states, codes, strict=True):
            assert state.chosen is not None, "an extreme was chosen"
            if state.chosen.null_count < len(state.chosen):
                there = as_mask(state.chosen.is_valid())
                given.append(Given(at[there], state.chosen.drop_null()))
        return State(sizes=sizes, chosen=_extremes(fn, given, groups, no_checkpoint))
    floats = [state.sums for state in moved if isinstance(state.sums, FloatPart)]
    whole = [state.sums for state in moved if isinstance(state.sums, np.ndarray)]
    if floats:  # a part without values has whole zeros
        return State(sizes=sizes, sums=float_total(floats, groups))
    return State(sizes=sizes, sums=integer_sums(whole, groups))


def finished(call: ir.AggregateCall, state: State) -> Array:
    """The aggregate of each group."""
    target = value_type(call.type)
    empty = state.sizes == 0
    match call.fn:
        case ir.AggregateFn.COUNT:
            return int64_array(state.sizes).cast(target)
        case ir.AggregateFn.MIN | ir.AggregateFn.MAX:
            assert state.chosen is not None, "an extreme was chosen"
            return state.chosen.cast(target)
        case (
            ir.AggregateFn.COLLECT
            | ir.AggregateFn.MEDIAN
            | ir.AggregateFn.STDDEV
            | ir.AggregateFn.PERCENTILE
        ):
            assert state.chosen is not None, "it was made from all values"
            return state.chosen.cast(target)
        case ir.AggregateFn.SUM:
            sums = _numbers(state)
            if sums.dtype == np.object_:
                if not all(in_bounds(total, Scalar.I64) for total in sums):
                    hint = "sum a float property or fewer rows"
                    raise InputError("a sum does not fit into 64 bits", hint=hint)
                sums = sums.astype(np.int64)
            return pa.array(sums, target, mask=empty)
        case ir.AggregateFn.AVG:
            sums, some = _numbers(state), np.maximum(state.sizes, 1)
            if sums.dtype != np.float64 and abs(sums).max(initial=0) > FLOAT_EXACT_MAX:
                # Python rounds only once when it divides integers.
                sums, some = sums.astype(np.object_), some.astype(np.object_)
            return pa.array((sums / some).astype(np.float64), target, mask=empty)


def _numbers(state: State) -> npt.NDArray[Any]:
    assert state.sums is not None, "a sum was made"
    if isinstance(state.sums, FloatPart):
        return rounded(state.sums, len(state.sizes))
    return state.sums


def extreme(fn: ir.AggregateFn, bounds: Sequence[Bounds], kind: DataType, rows: int) -> State:
    """The smallest or the greatest number of so many rows, by what is known of each part."""
    has_nan = any(one.has_nan for one in bounds)
    found = None
    if fn is ir.AggregateFn.MIN:
        found = min((one.least for one in bounds if one.least is not None), default=None)
    elif not has_nan:
        found = max((one.most for one in bounds if one.most is not None), default=None)
    if found is None and has_nan:
        found = math.nan  # above every number
    there = rows - sum(one.nulls for one in bounds)
    # Of both zeros this shows the one.
    chosen = pa.array([None if found is None else found + 0], kind)
    return State(sizes=np.asarray([there], dtype=np.int64), chosen=chosen)


def _with(checkpoint: Checkpoint, given: Iterable[Given]) -> Iterator[Given]:
    for piece in given:
        checkpoint()
        yield piece


def _extremes(
    fn: ir.AggregateFn, given: Sequence[Given], groups: int, checkpoint: Checkpoint
) -> Array:
    """The smallest or the greatest value of each group. NaN is above every number."""
    if not given:
        return pa.nulls(groups)
    kind = given[0].values.type
    if not is_number(kind):
        return _text_extremes(fn, given, groups)
    least = fn is ir.AggregateFn.MIN
    # `fmin` passes NaN by while there is a number, `maximum` keeps it.
    choose: np.ufunc = np.fmin if least else np.maximum

    @np.errstate(invalid="ignore")  # a signalling NaN is one like others
    def chosen(part: Given) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        values = np.asarray(part.values)
        found = np.full(groups, _worst(values.dtype, least=least), dtype=values.dtype)
        met = np.zeros(groups, dtype=np.bool_)
        if part.codes is None:
            found[0], met[0] = choose.reduce(values, initial=found[0]), len(values) > 0
        else:
            choose.at(found, part.codes, values)
            met[part.codes] = True
        return found, met

    parts = [chosen(piece) for piece in _with(checkpoint, given)]
    found = choose.reduce(np.stack([part for part, _ in parts]), axis=0)
    met = np.any(np.stack([met for _, met in parts]), axis=0)
    # Of both zeros this shows the one, whichever came first.
    return pa.array(found + found.dtype.type(0), kind, mask=~met)


def _worst(kind: np.dtype[Any], *, least: bool) -> Any:
    """What every value comes before."""
    if kind.kind == "f":
        return math.nan if least else -math.inf
    return np.iinfo(kind).max if least else np.iinfo(kind).min


def _text_extremes(fn: ir.AggregateFn, given: Sequence[Given], groups: int) -> Array:
    codes = [
        np.zeros(len(part.values), np.int64) if part.codes is None else part.codes.astype(np.int64)
        for part in given
    ]
    values = pa.chunked_array([part.values for part in given])
    table = pa.table({"group": pa.chunked_array(codes), "value": values})
    found = table.group_by("group").aggregate([("value", fn.value)])
    at = np.full(groups, -1, dtype=np.int64)
    at[found["group"].to_numpy()] = np.arange(found.num_rows, dtype=np.int64)
    return Column.of(flat(found[f"value_{fn.value}"])).take(at)
