"""Unions: the rows of several queries as those of one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, flat, pa, picked
from omnigraph.engine.expr.evaluate import cast_to
from omnigraph.engine.expr.order import Key, numbered_rows, one_of_equals, order_rows
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.stages import answered, result_schema, unordered, window_of
from omnigraph.results.rows import QueryResult, slices_of


def united(run: Run, plan: ir.UnionPlan) -> QueryResult:
    """The rows of all parts, ordered by columns."""
    schema, window = result_schema(plan.columns), window_of(run.constants, plan)
    columns: list[Array] = [pa.nulls(0, kind) for kind in schema.types]
    parts = zip(plan.parts, (True, *plan.keeps), strict=True)
    for number, (part, keeps) in enumerate(parts, 1):
        if window.limit == 0:
            break
        with run.trace.step("union" if number > 1 else "part", str(number)) as step:
            more = _part(run, part, schema.types)
            step.rows = len(more[0])
            run.budget.reserve(len(columns[0]) + len(more[0]), len(columns))
        columns = [pa.concat_arrays(both) for both in zip(columns, more, strict=True)]
        if not keeps:
            with run.trace.step("distinct") as step:
                columns = _different(columns)
                step.rows = len(columns[0])
    with run.trace.step("order") as step:
        places = [(item.column, item.descending) for item in plan.orderings]
        places += [(place, False) for place in range(len(columns))]
        keys = [Key.of(columns[place], descending=down) for place, down in places]
        rows = order_rows(keys, len(columns[0]), window)
        step.rows = len(rows)
    return QueryResult(
        schema=schema,
        row_count=len(rows),
        graph_commit_id=run.snapshot.graph_commit_id,
        make=slices_of([picked(column, rows) for column in columns]),
    )


def _part(run: Run, part: ir.ReadPlan, kinds: Sequence[pa.DataType]) -> list[Array]:
    """The columns of one part, as values of the types of the whole."""
    # Names of one part mean nothing in another; what was read from storage is shared.
    own = replace(run, variables=part.variables, rows={}, scanned={}, fused={}, hits={})
    plan = unordered(part)
    assert isinstance(plan, ir.ReadPlan), "a plan without its order is still one"
    table = answered(own, plan).to_arrow()
    return [_as_kind(flat(column), kind) for column, kind in zip(table.columns, kinds, strict=True)]


def _as_kind(values: Array, kind: pa.DataType) -> Array:
    if values.type == kind:
        return values
    if values.null_count == len(values):  # the literal null is of no type
        return pa.nulls(len(values), kind)
    return cast_to(values, kind)


def _different(columns: Sequence[Array]) -> list[Array]:
    """Equal rows once."""
    _, first = numbered_rows([columns], [len(columns[0])])
    return [one_of_equals(picked(column, np.sort(first))) for column in columns]
