"""Aggregates that look at all values of a group at once: `collect`, `median`, `stddev` and
`percentile`. None of them, but for the order that `collect` keeps, shows how rows were cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, pa, picked
from omnigraph.engine.expr.order import equal_codes, one_of_equals
from omnigraph.engine.expr.sums import Floats, float_part, float_total, rounded
from omnigraph.engine.read.aggregate import Given
from omnigraph.engine.read.memory.arrays import Positions
from omnigraph.errors import InputError
from omnigraph.storage.lance.columns import value_type

WHOLE: Final = frozenset(
    {
        ir.AggregateFn.COLLECT,
        ir.AggregateFn.MEDIAN,
        ir.AggregateFn.STDDEV,
        ir.AggregateFn.PERCENTILE,
    }
)


def looks_at_all(grouping: ir.Grouping) -> bool:
    """Whether an aggregate needs all values of a group, so that parts cannot be put together."""
    return any(call.fn in WHOLE for call in grouping.aggregates)


def of_all(
    call: ir.AggregateCall, given: Sequence[Given], groups: int, share: float | None
) -> Array:
    """The aggregate of each group."""
    assert call.arg is not None, "only rows are counted without an argument"
    codes = np.concatenate([np.zeros(0, np.int64), *map(_codes, given)])
    empty = pa.nulls(0, value_type(call.arg.type))
    values = pa.concat_arrays([part.values for part in given]) if given else empty
    if call.fn is ir.AggregateFn.COLLECT:
        return _collected(codes, values, groups, distinct=call.distinct)
    numbers = np.asarray(values).astype(np.float64)
    if call.fn is ir.AggregateFn.STDDEV:
        return _deviations(codes, numbers, groups)
    found, there = _percentiles(codes, numbers, groups, place_of(call, share))
    return pa.array(found, mask=~there)


def _codes(part: Given) -> Positions:
    if part.codes is None:
        return np.zeros(len(part.values), dtype=np.int64)
    return part.codes.astype(np.int64)


def place_of(call: ir.AggregateCall, share: float | None) -> float:
    """Where between the least value (0) and the greatest (1) a percentile or the median is."""
    if call.fn is ir.AggregateFn.MEDIAN:
        return 0.5
    if share is None or not 0 <= share <= 1:
        got = "null" if share is None else share
        raise InputError(f"the share of a percentile goes from 0 to 1, got {got}")
    return float(share)


def _collected(codes: Positions, values: Array, groups: int, *, distinct: bool) -> Array:
    """The values of each group as a list, in the order of the rows."""
    if distinct and len(values):
        pairs = codes * (len(values) + 1) + equal_codes(values)
        _, first = np.unique(pairs, return_index=True)
        kept = np.sort(first)
        codes, values = codes[kept], one_of_equals(picked(values, kept))
    order = np.argsort(codes, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=groups))])
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), picked(values, order))


@np.errstate(invalid="ignore", over="ignore")
def _deviations(codes: Positions, numbers: Floats, groups: int) -> Array:
    """The deviation of a sample: exact sums, so that no order shows."""
    sizes = np.bincount(codes, minlength=groups)
    means = rounded(float_total([float_part(codes, numbers, groups)], groups), groups)
    means /= np.maximum(sizes, 1)
    squares = np.square(numbers - means[codes])
    total = rounded(float_total([float_part(codes, squares, groups)], groups), groups)
    return deviation(total, sizes)


@np.errstate(invalid="ignore", over="ignore")
def deviation(squares: Floats, sizes: Positions) -> Array:
    """The deviation of samples of such sizes, by the sums of their squared distances."""
    return pa.array(np.sqrt(squares / np.maximum(sizes - 1, 1)), mask=sizes < 2)


@np.errstate(invalid="ignore", over="ignore")
def _percentiles(
    codes: Positions, numbers: Floats, groups: int, share: float
) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Between the two nearest values, by their distance; NaN is above every number."""
    sizes = np.bincount(codes, minlength=groups)
    there = sizes > 0
    if not len(numbers):
        return np.zeros(groups), there
    ordered = numbers[np.lexsort((numbers, codes))] + 0.0
    first = np.cumsum(sizes) - sizes
    place = share * np.maximum(sizes - 1, 0)
    below = np.floor(place).astype(np.int64)
    low = ordered[np.minimum(first + below, len(ordered) - 1)]
    above = np.minimum(below + 1, np.maximum(sizes - 1, 0))
    high = ordered[np.minimum(first + above, len(ordered) - 1)]
    part = place - below
    same = (part == 0) | (low == high)
    return np.where(same, low, low + (high - low) * part), there
