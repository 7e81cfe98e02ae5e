"""The columns of a table: Arrow types of the schema language, blobs, and columns of old tables."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any, Final, TypeVar

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance.blob import BlobType

from omnigraph.model.schema import (
    ROW_ADDRESS,
    ROW_ID,
    EdgeType,
    NodeType,
    Property,
    PropertyType,
    Scalar,
)
from omnigraph.model.values import calendar_number

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

_LOCATED_FIELDS: Final[list[tuple[str, pa.DataType]]] = [
    ("id", pa.string()),
    (ROW_ID, pa.uint64()),
    (ROW_ADDRESS, pa.uint64()),
]
LOCATED: Final = pa.schema(_LOCATED_FIELDS)  # which rows there are, and where


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
    if scalar is None and is_blob(kind):
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


def equal_floats(values: Any) -> Any:
    """Floats with one 0 and one NaN, because Arrow looks values up by their bits; others as they
    are. So -0.0 is 0.0, and NaN equals itself, wherever rows are grouped or searched by value."""
    if not pa.types.is_floating(values.type):
        return values
    values = pc.add(values, pa.scalar(0, values.type))
    return pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), values)


# --- blobs -----------------------------------------------------------------------------------


def is_blob(kind: pa.DataType) -> bool:
    """Whether a stored column of this type holds blobs."""
    return isinstance(kind, BlobType)


def seal(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows as the table wants them: its columns in its order, blob cells in its blob type.

    Blob columns come as structs of `data`, `uri`, `position` and `size`, or are sealed already.
    """
    columns = [_sealed(rows.column(field.name), field) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _sealed(column: Any, field: pa.Field[Any]) -> Any:
    if not is_blob(field.type) or is_blob(column.type):
        return column if column.type == field.type else column.cast(field.type)
    chunks = [pa.ExtensionArray.from_storage(field.type, chunk) for chunk in column.chunks]
    return pa.chunked_array(chunks, type=field.type)


# --- tables that the reference system made ---------------------------------------------------
#
# They keep a DateTime as `date64`; ours keep a timestamp in UTC. Both are milliseconds since the
# epoch. Such a table stays as it is, its past included: what is read from it gets our type, what is
# written to it gets its own.


_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatchReader)

_MOMENT: Final = pa.timestamp("ms", tz="UTC")
# Texts and quoted names are matched whole, so that nothing inside them is taken for a moment.
_LITERALS: Final = re.compile(r"timestamp '(?P<moment>[^']*)'|'(?:[^']|'')*'|`[^`]*`")


def standard_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in our types; the very same one if it is so already."""
    if not any(_holds_date64(column.type) for column in schema):
        return schema
    fields = [column.with_type(_exchanged(column.type, _MOMENT)) for column in schema]
    return pa.schema(fields).with_metadata(schema.metadata)


def standard(rows: _Rows) -> _Rows:
    """The rows in our types, at once or batch by batch as they come."""
    given = rows.schema  # a new object each time it is asked for
    wanted = standard_schema(given)
    # Arrow only relabels here: `date64` keeps its milliseconds, whole days or not.
    return rows if wanted is given else rows.cast(wanted)


def as_stored(
    rows: pa.Table | pa.RecordBatchReader, stored: pa.Schema
) -> pa.Table | pa.RecordBatchReader:
    """The rows in the types of the table that they are for, as far as those are the reference's."""
    theirs = {column.name: column.type for column in stored if _holds_date64(column.type)}
    if not theirs:
        return rows
    given = rows.schema
    fields = [column.with_type(theirs.get(column.name, column.type)) for column in given]
    schema = pa.schema(fields).with_metadata(given.metadata)

    def restored(part: pa.Table) -> pa.Table:
        columns = [_restored(part.column(at), column.type) for at, column in enumerate(schema)]
        return pa.Table.from_arrays(columns, schema=schema)

    if isinstance(rows, pa.Table):
        return restored(rows)
    parts = (restored(pa.Table.from_batches([one])) for one in rows)
    batches = (batch for part in parts for batch in part.to_batches())
    return pa.RecordBatchReader.from_batches(schema, batches)


def stored_condition(where: str | None, stored: pa.Schema) -> str | None:
    """An SQL condition as the table must be asked: Lance compares a `date64` with a timestamp by
    way of nanoseconds, and fails on any row before 1677 or after 2262."""
    if where is None or not any(_holds_date64(column.type) for column in stored):
        return where
    return _LITERALS.sub(_as_date64, where)


def _as_date64(found: re.Match[str]) -> str:
    text = found["moment"]
    if text is None:
        return found[0]
    return f"arrow_cast({calendar_number(datetime.fromisoformat(text))}, 'Date64')"


def _restored(values: pa.ChunkedArray[Any], kind: pa.DataType) -> pa.ChunkedArray[Any]:
    if values.type == kind:
        return values
    # Straight from timestamp to `date64` Arrow cuts down to whole days: numbers keep all.
    return values.cast(_exchanged(kind, pa.int64())).cast(kind)


def _holds_date64(kind: pa.DataType) -> bool:
    return pa.types.is_date64(kind) or (pa.types.is_list(kind) and _holds_date64(kind.value_type))


def _exchanged(kind: pa.DataType, other: pa.DataType) -> pa.DataType:
    """The type with `other` for each `date64` in it."""
    if pa.types.is_date64(kind):
        return other
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_exchanged(kind.value_type, other)))
    return kind
