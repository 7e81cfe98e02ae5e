"""How a type of the schema language lies in a table: columns, their Arrow types, the key mark."""

from __future__ import annotations

from typing import Any, Final

import lance
import pyarrow as pa
from lance.blob import BlobType

from omnigraph.model.schema import EdgeType, NodeType, Property, PropertyType, Scalar

PRIMARY_KEY: Final = {b"lance-schema:unenforced-primary-key": b"true"}

_SCALARS: Final[dict[Scalar, pa.DataType]] = {
    Scalar.STRING: pa.string(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: pa.timestamp("ms", tz="UTC"),
}


def arrow_schema(entity: NodeType | EdgeType) -> pa.Schema:
    """The table of a type: `id` (and `src`, `dst`), then the properties as declared."""
    endpoints = ("src", "dst") if isinstance(entity, EdgeType) else ()
    return pa.schema(
        [
            pa.field("id", pa.string(), nullable=False, metadata=PRIMARY_KEY),
            *(pa.field(name, pa.string(), nullable=False) for name in endpoints),
            *(property_field(prop) for prop in entity.properties),
        ]
    )


def property_field(prop: Property) -> pa.Field[Any]:
    """The column of one property."""
    if prop.type.scalar is Scalar.BLOB:
        field: pa.Field[Any] = lance.blob_field(prop.name, nullable=prop.type.nullable)
        return field
    return pa.field(prop.name, value_type(prop.type), nullable=prop.type.nullable)


def property_type(column: pa.Field[Any]) -> PropertyType | None:
    """The type of a property with such a column; None if there is none. An enum is a text here."""
    kind, is_list = column.type, False
    if pa.types.is_fixed_size_list(kind) and kind.value_type == pa.float32():
        return PropertyType(
            scalar=Scalar.VECTOR, nullable=column.nullable, dimension=kind.list_size
        )
    if pa.types.is_list(kind):
        kind, is_list = kind.value_type, True
    scalar = next((each for each, stored in _SCALARS.items() if stored == kind), None)
    if scalar is None and isinstance(kind, BlobType):
        scalar = Scalar.BLOB
    if scalar is None:
        return None
    return PropertyType(scalar=scalar, nullable=column.nullable, is_list=is_list)


def value_type(kind: PropertyType) -> pa.DataType:
    """The Arrow type of a property's values (for a Blob: the bytes, not the stored descriptor)."""
    if kind.scalar is Scalar.VECTOR:
        assert kind.dimension is not None, "a vector has a dimension"
        element: pa.DataType = pa.list_(pa.float32(), kind.dimension)
    elif kind.scalar is Scalar.BLOB:
        return pa.large_binary()
    else:
        element = _SCALARS[kind.scalar]
    return pa.list_(element) if kind.is_list else element
