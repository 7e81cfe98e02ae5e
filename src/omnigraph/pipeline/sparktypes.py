"""Columns of the graph as Spark knows them: what its type system lacks is widened, never cut."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from omnigraph.model.schema import EdgeType, NodeType, PropertyType, Scalar
from omnigraph.storage.arrow_schema import value_type

_WIDER: Final = {
    Scalar.U32: pa.int64(),
    Scalar.U64: pa.decimal128(20, 0),
    Scalar.DATETIME: pa.timestamp("us", tz="UTC"),
    Scalar.BLOB: pa.binary(),
}


def spark_arrow_schema(entity: NodeType | EdgeType) -> pa.Schema:
    """The Arrow schema of a type's rows as they are given to Spark."""
    ends = ("src", "dst") if isinstance(entity, EdgeType) else ()
    return pa.schema(
        [
            *(pa.field(name, pa.string(), nullable=False) for name in ("id", *ends)),
            *(pa.field(p.name, _spark_type(p.type), nullable=True) for p in entity.properties),
        ]
    )


def spark_schema(entity: NodeType | EdgeType) -> StructType:
    """The same as Spark's schema."""
    return from_arrow_schema(spark_arrow_schema(entity))


def _spark_type(kind: PropertyType) -> pa.DataType:
    if kind.scalar is Scalar.VECTOR:
        return pa.list_(pa.float32())
    leaf: Any = _WIDER.get(kind.scalar) or value_type(PropertyType(scalar=kind.scalar))
    return pa.list_(leaf) if kind.is_list else leaf


def for_spark(batch: pa.RecordBatch, schema: StructType) -> pa.RecordBatch:
    """The batch in exactly the Arrow types that Spark expects of the schema."""
    target = to_arrow_schema(schema, timezone="UTC")
    columns = [_cast(batch.column(field.name), field.type) for field in target]
    return pa.record_batch(columns, schema=target)


def _cast(column: Any, to: pa.DataType) -> Any:
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    return column if column.type == to else column.cast(to)
