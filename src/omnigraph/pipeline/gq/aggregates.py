"""Aggregates of groups. What Spark computes exactly as we do is left to it; of the rest, the values
of a group are gathered and the engine's own kernels are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)
from pyspark.sql.pandas.types import from_arrow_type

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import pc, picked
from omnigraph.engine.expr.order import equal_codes, one_of_equals
from omnigraph.engine.read.aggregate import Given, State, finished, state_of
from omnigraph.engine.read.memory.compressed import no_checkpoint
from omnigraph.engine.read.whole import WHOLE, of_all
from omnigraph.model.schema import FLOATS, INTEGERS, PropertyType
from omnigraph.pipeline.gq.layout import carried_type
from omnigraph.pipeline.gq.rows import Reading
from omnigraph.pipeline.gq.scan import carried
from omnigraph.pipeline.gq.values import Values, arrow_function
from omnigraph.storage.lance.columns import value_type

_SUMS: Final = (ir.AggregateFn.SUM, ir.AggregateFn.AVG)
_EXTREMES: Final = (ir.AggregateFn.MIN, ir.AggregateFn.MAX)


class Aggregation(msgspec.Struct, frozen=True, kw_only=True):
    """Columns of the rows, what Spark makes of those of a group, and the aggregates made of that,
    in their order."""

    args: dict[str, Column]
    calls: dict[str, Column]
    finished: list[Column]


def aggregated(reading: Reading, grouping: ir.Grouping, values: Values) -> Aggregation:
    made = Aggregation(args={}, calls={}, finished=[])
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
    if call.fn in _SUMS and kind.scalar in INTEGERS and not call.distinct:
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
        made.calls[total] = F.collect_list(column)
        gathered = F.col(total)
    share = None if call.share is None else reading.constants.value(call.share)
    return _of_values(call, kind, share)(gathered)


def _of_state(call: ir.AggregateCall) -> Callable[..., Column]:
    """The aggregate, from exact sums and how many values there were."""

    def made(sums: pa.Array, sizes: pa.Array) -> pa.Array:  # type: ignore[type-arg]
        totals = [0 if total is None else int(total) for total in sums.to_pylist()]
        exact = np.asarray(totals, dtype=np.object_)
        state = State(sizes=np.asarray(sizes, dtype=np.int64), sums=exact)
        found: pa.Array[Any] = carried(finished(call, state), carried_type(call.type))
        return found

    return _columns(made, call)


def _of_values(call: ir.AggregateCall, kind: PropertyType, share: Any) -> Callable[..., Column]:
    """The aggregate, from all values of each group."""
    element = value_type(kind)

    def made(lists: pa.Array) -> pa.Array:  # type: ignore[type-arg]
        codes = np.asarray(pc.list_parent_indices(lists), dtype=np.int64)
        values = carried(pc.list_flatten(lists), element)
        if call.distinct and call.fn in _SUMS:
            codes, values = _different(codes, values)
        sizes = np.bincount(codes, minlength=len(lists))
        given = [Given(codes, values)]
        if call.fn in WHOLE:
            state = State(sizes=sizes, chosen=of_all(call, given, len(lists), share))
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
