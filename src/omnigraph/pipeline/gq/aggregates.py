"""Aggregates of groups. What Spark computes exactly as we do is left to it; of the rest, values of
a group are gathered and the engine's own kernels are asked.

Floats that are added are gathered from each batch of rows as the few that have the same exact sum,
and percentiles are looked up in the order of the values: groups may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)
from pyspark.sql.pandas.types import from_arrow_type

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, as_mask, pc, picked
from omnigraph.engine.expr.order import equal_codes, one_of_equals
from omnigraph.engine.expr.sums import fewer, float_part, float_total, rounded
from omnigraph.engine.read.aggregate import Given, State, finished, state_of
from omnigraph.engine.read.memory.compressed import no_checkpoint
from omnigraph.engine.read.whole import deviation, of_all, place_of
from omnigraph.model.schema import FLOATS, PropertyType, Scalar
from omnigraph.pipeline.gq.layout import carried_type
from omnigraph.pipeline.gq.rows import Reading
from omnigraph.pipeline.gq.scan import carried
from omnigraph.pipeline.gq.values import Values, arrow_function
from omnigraph.storage.lance.columns import value_type

_SUMS: Final = (ir.AggregateFn.SUM, ir.AggregateFn.AVG)
_EXTREMES: Final = (ir.AggregateFn.MIN, ir.AggregateFn.MAX)
_FLOAT: Final = PropertyType(scalar=Scalar.F64)


class Aggregation(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of the rows, others made of these and the keys, what Spark makes of those of a group,
    and the aggregates made of that, in their order. `means` has the columns, by their arguments,
    that the mean of the group has to be in before."""

    keys: Sequence[str]
    args: dict[str, Column]
    means: dict[str, str]
    more: dict[str, Column]
    calls: dict[str, Column]
    finished: list[Column]


def aggregated(
    reading: Reading, grouping: ir.Grouping, values: Values, keys: Sequence[str]
) -> Aggregation:
    made = Aggregation(keys=keys, args={}, means={}, more={}, calls={}, finished=[])
    order = []
    if any(call.fn is ir.AggregateFn.COLLECT for call in grouping.aggregates):
        for key in grouping.row_order:
            name = reading.fresh("order")
            made.args[name] = values.column(key)
            order.append(name)
            if isinstance(key, ir.IdRef) and reading.layout.is_open(key.var):
                made.args[f"{name}_type"] = F.col(reading.layout.type(key.var))
                order.append(f"{name}_type")
    for call in grouping.aggregates:
        made.finished.append(_aggregate(reading, call, values, made, order))
    return made


def with_means(reading: Reading, frame: DataFrame, made: Aggregation) -> DataFrame:
    """The rows with the means of their groups, where an aggregate needs these first."""
    for arg, mean in made.means.items():
        some, total, size = (reading.fresh(what) for what in ("some", "total", "size"))
        column = F.col(arg)
        grouped = frame.withColumn(some, _fewer(made.keys, column)).groupBy(*made.keys)
        sums = grouped.agg(F.collect_list(some).alias(total), F.count(column).alias(size))
        names = {key: reading.fresh("key") for key in made.keys}
        means = sums.select(
            *(F.col(key).alias(name) for key, name in names.items()),
            _mean(F.col(total), F.col(size)).alias(mean),
        )
        same = [F.col(key).eqNullSafe(F.col(name)) for key, name in names.items()]
        frame = frame.join(means, same) if same else frame.crossJoin(F.broadcast(means))
        frame = frame.drop(*names.values())
    return frame


def _aggregate(
    reading: Reading,
    call: ir.AggregateCall,
    values: Values,
    made: Aggregation,
    order: Sequence[str],
) -> Column:
    total = reading.fresh("total")
    if call.arg is None:
        made.calls[total] = F.count(F.lit(1))
        return F.col(total)
    arg = reading.fresh("arg")
    made.args[arg] = values.column(call.arg)
    column, kind = F.col(arg), call.arg.type
    target = from_arrow_type(carried_type(call.type))
    if call.fn is ir.AggregateFn.COUNT:
        made.calls[total] = F.count_distinct(column) if call.distinct else F.count(column)
        return F.col(total).cast(target)
    if call.fn in _EXTREMES and not kind.is_list:
        made.calls[total] = (F.min if call.fn is ir.AggregateFn.MIN else F.max)(column)
        shown = F.col(total) + F.lit(0.0) if kind.scalar in FLOATS else F.col(total)
        return shown.cast(target)
    if call.fn in (ir.AggregateFn.MEDIAN, ir.AggregateFn.PERCENTILE):
        share = None if call.share is None else reading.constants.value(call.share)
        made.args[arg] = made.args[arg].cast("double") + F.lit(0.0)
        return _percentile(reading, made, column, place_of(call, share))
    if call.fn is ir.AggregateFn.STDDEV:
        made.args[arg] = made.args[arg].cast("double")
        mean = made.means.setdefault(arg, reading.fresh("mean"))
        apart = column - F.col(mean)
        return _sum_of(call, reading, made, apart * apart)
    if call.fn in _SUMS and not call.distinct:
        if kind.scalar in FLOATS:
            return _sum_of(call, reading, made, column.cast("double"))
        size = reading.fresh("size")
        # Exact, whatever the order of rows: 2^53 rows of any 64 bits fit into 38 digits.
        made.calls[total] = F.sum(column.cast("decimal(20,0)")).cast("decimal(38,0)")
        made.calls[size] = F.count(column)
        return _of_state(call)(F.col(total), F.col(size))
    if order and call.fn is ir.AggregateFn.COLLECT:
        pairs = F.struct(*order, column.alias("value"))
        made.calls[total] = F.sort_array(F.collect_list(F.when(column.isNotNull(), pairs)))
        gathered = F.transform(F.col(total), lambda pair: pair["value"])
    else:
        # Of equal floats one is as good as another; what is left twice is told apart later.
        gather = F.collect_set if call.distinct and call.fn in _SUMS else F.collect_list
        made.calls[total] = gather(column)
        gathered = F.col(total)
    return _of_values(call, kind)(gathered)


# --- sums of floats ----------------------------------------------------------------------------


def _sum_of(call: ir.AggregateCall, reading: Reading, made: Aggregation, column: Column) -> Column:
    """The aggregate, from the exact sum of a column of floats and how many there are."""
    some, total, size = (reading.fresh(what) for what in ("some", "total", "size"))
    made.more[some] = _fewer(made.keys, column)
    made.calls[total] = F.collect_list(some)
    made.calls[size] = F.count(column)
    return _of_sums(call)(F.col(total), F.col(size))


def _fewer(keys: Sequence[str], column: Column) -> Column:
    """Of each batch of rows few floats, which have the same exact sums by group; null elsewhere."""

    # Spark reads these hints.
    def made(*arrays: pa.Array) -> pa.Array:  # type: ignore[type-arg]
        *groups, values = arrays
        there = np.flatnonzero(as_mask(values.is_valid()))
        codes = _group_codes([picked(key, there) for key in groups], len(there))
        told, kept = fewer(codes, np.asarray(picked(values, there)), int(codes.max(initial=0)) + 1)
        found = np.zeros(len(values))
        missing = np.ones(len(values), dtype=np.bool_)
        found[there], missing[there] = told, ~kept
        return pa.array(found, mask=missing)

    found: Column = arrow_function(made, pa.float64())(*map(F.col, keys), column)
    return found


def _group_codes(keys: Sequence[Array], rows: int) -> Any:
    """The same number for rows with the same keys."""
    codes = np.zeros(rows, dtype=np.int64)
    for key in keys:
        both = codes * (rows + 1) + equal_codes(key)
        _, codes = np.unique(both, return_inverse=True)
    return codes


def _of_sums(call: ir.AggregateCall) -> Callable[..., Column]:
    def made(lists: pa.Array, sizes: pa.Array) -> pa.Array:  # type: ignore[type-arg]
        counted = np.asarray(sizes, dtype=np.int64)
        codes = np.asarray(pc.list_parent_indices(lists), dtype=np.int64)
        part = float_part(codes, np.asarray(pc.list_flatten(lists)), len(lists))
        total = float_total([part], len(lists))
        if call.fn is ir.AggregateFn.STDDEV:
            answer = deviation(rounded(total, len(lists)), counted)
        else:
            answer = finished(call, State(sizes=counted, sums=total))
        found: pa.Array[Any] = carried(answer, carried_type(call.type))
        return found

    return _columns(made, call)


def _mean(totals: Column, sizes: Column) -> Column:
    """The means of groups, by what `_fewer` has left of their values."""
    call = ir.AggregateCall(fn=ir.AggregateFn.AVG, arg=None, distinct=False, type=_FLOAT)
    return _of_sums(call)(totals, sizes)


# --- places in an order ------------------------------------------------------------------------


def _percentile(reading: Reading, made: Aggregation, column: Column, share: float) -> Column:
    """What lies at that part of the way from the least value to the greatest: between the two
    nearest values, by its distance from these (`engine/read/whole.py` says it of arrays)."""
    names = [reading.fresh(what) for what in ("rank", "many", "size", "low", "high")]
    rank, many, size, low, high = map(F.col, names)
    group = Window.partitionBy(*made.keys)
    made.more[names[0]] = F.row_number().over(group.orderBy(column.asc_nulls_last()))
    made.more[names[1]] = F.count(column).over(group)

    def place(count: Column) -> Column:
        return F.lit(share) * F.greatest(count - 1, F.lit(0))

    below = F.floor(place(many)) + 1
    made.calls[names[2]] = F.count(column)
    made.calls[names[3]] = F.max(F.when(rank == below, column))
    made.calls[names[4]] = F.max(F.when(rank == F.least(below + 1, many), column))
    part = place(size) - F.floor(place(size))
    return F.when((part == 0.0) | (low == high), low).otherwise(low + (high - low) * part)


# --- from all that is known --------------------------------------------------------------------


def _of_state(call: ir.AggregateCall) -> Callable[..., Column]:
    """The aggregate, from exact sums and how many values there were."""

    def made(sums: pa.Array, sizes: pa.Array) -> pa.Array:  # type: ignore[type-arg]
        totals = [0 if total is None else int(total) for total in sums.to_pylist()]
        exact = np.asarray(totals, dtype=np.object_)
        state = State(sizes=np.asarray(sizes, dtype=np.int64), sums=exact)
        found: pa.Array[Any] = carried(finished(call, state), carried_type(call.type))
        return found

    return _columns(made, call)


def _of_values(call: ir.AggregateCall, kind: PropertyType) -> Callable[..., Column]:
    """The aggregate, from all values of each group."""
    element = value_type(kind)

    def made(lists: pa.Array) -> pa.Array:  # type: ignore[type-arg]
        codes = np.asarray(pc.list_parent_indices(lists), dtype=np.int64)
        values = carried(pc.list_flatten(lists), element)
        if call.distinct and call.fn in _SUMS:
            codes, values = _different(codes, values)
        sizes = np.bincount(codes, minlength=len(lists))
        given = [Given(codes, values)]
        if call.fn is ir.AggregateFn.COLLECT:
            state = State(sizes=sizes, chosen=of_all(call, given, len(lists), None))
        else:
            state = state_of(call.fn, given, sizes, no_checkpoint)
        found: pa.Array[Any] = carried(finished(call, state), carried_type(call.type))
        return found

    return _columns(made, call)


def _different(codes: Any, values: Any) -> tuple[Any, Any]:
    """Equal values of a group once."""
    _, first = np.unique(codes * (len(values) + 1) + equal_codes(values), return_index=True)
    kept = np.sort(first)
    return codes[kept], one_of_equals(picked(values, kept))


def _columns(made: Callable[..., Any], call: ir.AggregateCall) -> Callable[..., Column]:
    found: Callable[..., Column] = arrow_function(made, carried_type(call.type))
    return found
