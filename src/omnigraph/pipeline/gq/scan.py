"""Tables as DataFrames: a task per group of fragments reads the columns that are wanted and leaves
out rows that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody calls it)
from pyspark.sql.pandas.types import from_arrow_schema

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, flat, picked
from omnigraph.engine.expr.evaluate import Constants, Rows, holding
from omnigraph.engine.expr.sql import push_down
from omnigraph.engine.rows.parts import FragmentGroup, GraphAccess, fragment_groups
from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import GROUP_ROWS

_NUMBER_BYTES: Final = 8
TYPE: Final = "#type"  # stands for the name of the type among the columns of a scan


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """What every task of a scan does: read a table at one version, keep the rows for which the
    conditions are true, and give the stored `columns` new names and types.

    A column of a table that does not have it is null; `TYPE` is the name of the table's type.
    """

    access: GraphAccess
    type_name: str
    stored: frozenset[str]
    columns: Mapping[str, str]  # by their new name
    schema: pa.Schema  # the new names, with the types that Spark is given
    conditions: tuple[ir.Expr, ...] = ()
    constants: Constants

    def batches(self, group: FragmentGroup) -> Iterator[pa.RecordBatch]:
        pushed = push_down(self.conditions, self.constants)
        wanted = {name for name in self.columns.values() if name in self.stored}
        wanted |= {name for part in pushed.rest for name in columns_of(part)} or {"id"}
        table = self.access.table(group.entry)
        scanned = table.scan(
            columns=sorted(wanted),
            where=pushed.where,
            fragments=group.fragments,
            blobs="bytes" if any(map(pa.types.is_binary, self.schema.types)) else "descriptors",
        )
        for batch in scanned:
            if pushed.rest and batch.num_rows:
                rows = pa.Table.from_batches([batch])
                kept = np.flatnonzero(holding(pushed.rest, _Stored(rows, self.constants)))
                batch = picked(batch, kept) if len(kept) < batch.num_rows else batch
            if batch.num_rows:
                yield self._renamed(batch)

    def _renamed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        found = []
        for field in self.schema:
            name = self.columns[field.name]
            if name == TYPE:
                found.append(pa.repeat(pa.scalar(self.type_name), batch.num_rows))
            elif name not in self.stored:
                found.append(pa.nulls(batch.num_rows, field.type))
            else:
                found.append(carried(batch.column(name), field.type))
        return pa.record_batch(found, schema=self.schema)


def columns_of(expr: ir.Expr) -> Iterator[str]:
    """The stored columns that a condition on one entity looks at."""
    for part in ir.walk(expr):
        if isinstance(part, ir.PropertyRef):
            yield part.prop
        elif isinstance(part, ir.IdRef):
            yield "id"
        elif isinstance(part, ir.EndpointRef):
            yield part.side


class _Stored(Rows):
    """The rows of one batch of a table, for conditions on the one variable that they are."""

    def __init__(self, table: pa.Table, constants: Constants) -> None:
        self.table, self.count, self.constants = table, table.num_rows, constants

    def value_of(self, var: str, name: str) -> Array:  # noqa: ARG002  (there is only one)
        return flat(self.table[name])

    def endpoint(self, var: str, side: str) -> Array:
        return self.value_of(var, side)

    def at(self, numbers: npt.NDArray[np.int64]) -> _Stored:
        return _Stored(picked(self.table, numbers), self.constants)


def carried(values: Array, kind: pa.DataType) -> Array:
    """The values in the type that they travel in, or back."""
    if values.type == kind:
        return values
    if pa.types.is_fixed_size_list(values.type):
        values = values.cast(pa.list_(values.type.value_type))
    if pa.types.is_fixed_size_list(kind) and len(values) == values.null_count:
        return pa.nulls(len(values), kind)
    return values if values.type == kind else values.cast(kind)


def scanned(
    spark: SparkSession, scan: Scan, entry: TableEntry, *, rows: int = GROUP_ROWS
) -> DataFrame:
    """The DataFrame of a scan."""
    groups = list(fragment_groups(scan.access.table(entry), rows=rows))
    if not groups:
        return spark.createDataFrame([], from_arrow_schema(scan.schema))
    return in_tasks(spark, groups, scan.batches, scan.schema)


def in_tasks(
    spark: SparkSession,
    groups: Sequence[FragmentGroup],
    work: Callable[[FragmentGroup], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """The batches that the work gives for each group of fragments of one table, a task each.

    Spark takes what Python makes for as large as what it is made of, and sends what looks small to
    all executors. So it begins with as many numbers as the table's rows would fill, of which all
    but the first of each task are left out again.
    """
    room = groups[0].entry.row_count * sum(map(_width, schema.types)) // _NUMBER_BYTES
    apart = -(-room // len(groups)) or 1

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers: list[Any] = batch.column(0).to_pylist()
            for number in numbers:
                yield from work(groups[number // apart])

    # Spark shows the name in its plans.
    run.__name__ = f"read_{groups[0].entry.table_key.partition(':')[2]}"
    numbers = spark.range(0, apart * len(groups), 1, len(groups))
    begun = numbers.where(F.col("id") % apart == 0)
    return begun.mapInArrow(run, from_arrow_schema(schema))


def _width(kind: pa.DataType) -> int:
    """About how many bytes a value takes."""
    if pa.types.is_nested(kind):
        return 8 * _NUMBER_BYTES
    return 20 if pa.types.is_string(kind) or pa.types.is_binary(kind) else _NUMBER_BYTES


def together(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of all, which have the same columns."""
    first, *others = frames
    for frame in others:
        first = first.unionAll(frame)
    return first
