"""The stages of a plan: each matches, and makes groups, columns and an order of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)

from omnigraph.compiler.query import ir
from omnigraph.engine.expr import order
from omnigraph.engine.read.context import sort_keys
from omnigraph.engine.read.stages import unordered, window_of
from omnigraph.model.schema import FLOATS, PropertyType, Scalar
from omnigraph.pipeline.gq.aggregates import aggregated, with_means
from omnigraph.pipeline.gq.layout import aggregate, group_key, spark_type
from omnigraph.pipeline.gq.match import computed, match
from omnigraph.pipeline.gq.rows import Found, Reading

EACH_GIVEN: Final = (
    "#each"  # stands for the rows of the stage before, where each is ordered by itself
)
NUMBER: Final = "number"
SPARK_ROWS_MAX: Final = 2**31 - 1  # what its `limit` and `offset` count to, together


def answered(reading: Reading, plan: ir.ReadPlan) -> DataFrame:
    """The columns of a plan without unions, in order."""
    outer: Found | None = None
    for stage in plan.before:
        outer = _handed_on(reading, stage, outer)
    window = window_of(reading.constants, plan)
    rows = _matched(reading, plan, outer)
    if plan.grouping is not None:
        rows = _grouped(reading, plan.grouping, rows)
    if plan.distinct:
        return _distinct(reading, plan, rows, window)
    rows = _ordered(reading, plan, rows, window)
    return rows.frame.select(*_shown(reading, plan, rows))


def united(readings: Sequence[tuple[Reading, ir.ReadPlan]], plan: ir.UnionPlan) -> DataFrame:
    """The rows of all parts, ordered by columns."""
    names = [f"u{place}" for place in range(len(plan.columns))]
    kinds = [spark_type(column.type) for column in plan.columns]
    found: DataFrame | None = None
    for (reading, part), keeps in zip(readings, (True, *plan.keeps), strict=True):
        whole = unordered(part)
        assert isinstance(whole, ir.ReadPlan), "a plan without its order is still one"
        more = answered(reading, whole).toDF(*names)
        more = more.select(*(F.col(n).cast(k).alias(n) for n, k in zip(names, kinds, strict=True)))
        found = more if found is None else found.unionAll(more)
        if not keeps:
            found = _different(found, [column.type for column in plan.columns])
    assert found is not None, "a union has parts"
    places = [(item.column, item.descending) for item in plan.orderings]
    places += [(place, False) for place in range(len(names))]
    found = found.orderBy(*(_ordering(F.col(names[p]), descending=d) for p, d in places))
    found = _windowed(found, window_of(readings[0][0].constants, plan))
    return found.toDF(*(column.name for column in plan.columns))


def _matched(reading: Reading, plan: ir.Stage, outer: Found | None) -> Found:
    if outer is not None and plan.each_by:
        outer = _numbered(reading, outer)
    return match(reading, plan.match, outer)


def _numbered(reading: Reading, rows: Found) -> Found:
    """The rows with a number each, for a stage that orders every one of them by itself."""
    reading.layout.add_rows(EACH_GIVEN, {NUMBER: PropertyType(scalar=Scalar.I64)})
    name = reading.layout.row(EACH_GIVEN, NUMBER)
    frame = rows.frame.withColumn(name, F.monotonically_increasing_id())
    return rows.with_frame(reading.kept(frame), EACH_GIVEN)  # a number must not change


def _handed_on(reading: Reading, plan: ir.Stage, outer: Found | None) -> Found:
    """The rows that the next stage begins with."""
    window = window_of(reading.constants, plan)
    rows = _matched(reading, plan, outer)
    if plan.grouping is not None:
        rows = _grouped(reading, plan.grouping, rows)
    rows = _ordered(reading, unordered(plan), rows, window)
    layout = reading.layout
    kinds = {item.name: item.expr.type for item in plan.projections}
    shown = [column.alias(reading.fresh("shown")) for column in _shown(reading, plan, rows)]
    carried = [item.var for item in plan.carries]
    frame = rows.frame.select(*layout.columns(carried), *shown)
    made = frame.columns[len(frame.columns) - len(shown) :]
    variables = set(carried)
    if kinds:
        layout.add_rows(plan.row, kinds)
        names = layout.row_columns(plan.row)
        frame = frame.withColumnsRenamed(dict(zip(made, names, strict=True)))
        variables.add(plan.row)
    return Found(frame=frame, variables=frozenset(variables))


def _shown(reading: Reading, plan: ir.Stage, rows: Found) -> list[Column]:
    values = reading.values(rows)
    return [
        values.column(item.expr).cast(spark_type(item.expr.type)).alias(item.name)
        for item in plan.projections
    ]


# --- groups ------------------------------------------------------------------------------------


def _grouped(reading: Reading, grouping: ir.Grouping, rows: Found) -> Found:
    """A row for each group: its keys, and what was computed of it. A variable that is a key stays
    one."""
    layout = reading.layout
    args = [call.arg for call in grouping.aggregates if call.arg is not None]
    plain = [key for key in grouping.keys if not isinstance(key, ir.Position)]
    rows = computed(reading, rows, [*plain, *args, *grouping.row_order])
    values = reading.values(rows)
    columns: dict[str, Column] = {}
    keys, details, carried = [], [], []
    for place, key in enumerate(grouping.keys):
        if isinstance(key, ir.Position):
            carried.append(key.var)
            keys += layout.identity(key.var)
            details += layout.details(key.var)
        else:
            columns[group_key(place)] = _plain(values.column(key), key.type)
            keys.append(group_key(place))
    keys, details = list(dict.fromkeys(keys)), list(dict.fromkeys(details))
    made = aggregated(reading, grouping, values, keys)
    kept = [name for name in (*keys, *details) if name not in columns]
    frame = rows.frame.select(
        *kept,
        *(c.alias(n) for n, c in columns.items()),
        *(c.alias(n) for n, c in made.args.items()),
    )
    frame = with_means(reading, frame, made)
    frame = frame.withColumns(made.more) if made.more else frame
    firsts = [F.first(name).alias(name) for name in details]
    calls = [*firsts, *(c.alias(n) for n, c in made.calls.items())]
    frame = frame.groupBy(*keys).agg(*calls) if calls else frame.select(*keys).distinct()
    finished = {aggregate(i): column for i, column in enumerate(made.finished)}
    frame = frame.withColumns(finished) if finished else frame
    found = Found(frame=frame, variables=frozenset(carried))
    if grouping.having is not None:
        condition = reading.values(found).condition(grouping.having)
        found = found.with_frame(found.frame.where(condition))
    return found


def _distinct(reading: Reading, plan: ir.ReadPlan, rows: Found, window: order.Window) -> DataFrame:
    """Different rows of the result; ties are broken by its columns in their order."""
    rows = computed(reading, rows, [item.expr for item in plan.projections])
    names = [f"d{place}" for place in range(len(plan.projections))]
    frame = rows.frame.select(*_shown(reading, plan, rows)).toDF(*names)
    frame = _different(frame, [item.expr.type for item in plan.projections])
    places = [(place, False) for place in range(len(names))]
    for ordering in reversed(plan.orderings):
        assert ordering.column is not None, "under distinct every ordering is a column"
        if ordering.rank:
            frame = frame.where(F.col(names[ordering.column]).isNotNull())
        places.insert(0, (ordering.column, ordering.descending))
    frame = frame.orderBy(*(_ordering(F.col(names[p]), descending=d) for p, d in places))
    return _windowed(frame, window).toDF(*(item.name for item in plan.projections))


def _different(frame: DataFrame, kinds: Sequence[PropertyType]) -> DataFrame:
    """Each row once, of columns that are of these kinds."""
    columns = zip(frame.columns, kinds, strict=True)
    return frame.select(*(_plain(F.col(n), kind).alias(n) for n, kind in columns)).distinct()


def _plain(column: Column, kind: PropertyType) -> Column:
    """The column without -0.0. Spark sees to that where it looks for equal values, except in
    columns that it knows to have one value in all rows."""
    if kind.scalar not in FLOATS:
        return column
    zero = F.lit(0.0).cast(spark_type(PropertyType(scalar=kind.scalar)))
    return F.transform(column, lambda item: item + zero) if kind.is_list else column + zero


# --- order -------------------------------------------------------------------------------------


def _ordered(reading: Reading, plan: ir.Stage, rows: Found, window: order.Window) -> Found:
    """The rows that will be shown, in order, with all that their columns are made of."""
    shown = [item.expr for item in plan.projections]
    rows = computed(reading, rows, [*shown, *(expr for expr, _ in sort_keys(plan))])
    values = reading.values(rows)
    for ordering in plan.orderings:
        if ordering.rank:
            rows = rows.with_frame(rows.frame.where(values.column(ordering.expr).isNotNull()))
    if not plan.orderings and not plan.tie_break and window.whole:
        return rows
    keys = _keys(reading, rows, sort_keys(plan))
    if plan.each_by:
        given = F.col(reading.layout.row(EACH_GIVEN, NUMBER))
        place, name = F.row_number().over(Window.partitionBy(given).orderBy(*keys)), reading.fresh()
        frame = rows.frame.withColumn(name, place).where(_inside(F.col(name), window))
        first = _keys(reading, rows, [(expr, False) for expr in plan.each_by])
        return rows.with_frame(frame.orderBy(*first, given, *keys))
    frame = rows.frame.orderBy(*keys) if keys else rows.frame
    return rows.with_frame(_windowed(frame, window))


def _keys(reading: Reading, rows: Found, by: Sequence[tuple[ir.Expr, bool]]) -> list[Column]:
    return [
        _ordering(column, descending=descending)
        for expr, descending in by
        for column in _key_columns(reading, rows, expr)
    ]


def _key_columns(reading: Reading, rows: Found, expr: ir.Expr) -> list[Column]:
    """The columns of a sort key; of an open variable the types decide between equal ids."""
    found = [reading.values(rows).column(expr)]
    if isinstance(expr, ir.IdRef) and reading.layout.is_open(expr.var):
        found.append(F.col(reading.layout.type(expr.var)))
    return found


def _ordering(column: Column, *, descending: bool) -> Column:
    """Spark's order is ours: NaN is above every number, null first, or last when descending."""
    return column.desc_nulls_last() if descending else column.asc_nulls_first()


def _windowed(frame: DataFrame, window: order.Window) -> DataFrame:
    if window.offset + (window.limit or 0) <= SPARK_ROWS_MAX:
        frame = frame.offset(window.offset) if window.offset else frame
        return frame if window.limit is None else frame.limit(window.limit)
    numbered = frame.withColumn(NUMBER, F.monotonically_increasing_id())  # which keeps the order
    before = Window.orderBy(NUMBER).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    placed = numbered.withColumn(NUMBER, F.count(F.lit(1)).over(before))
    return placed.where(_inside(F.col(NUMBER), window)).drop(NUMBER)


def _inside(place: Column, window: order.Window) -> Column:
    """Whether a place, counted from 1, is in the window, whose end may be beyond 64 bits."""
    after = place > window.offset
    return after if window.limit is None else after & (place - window.offset <= window.limit)
