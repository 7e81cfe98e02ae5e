"""Tables that the reference system made keep a DateTime as `date64`; ours keep a timestamp in UTC.

Both are milliseconds since the epoch. Such a table stays as it is, its past included: what is read
from it gets our type, what is written to it gets its own.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

_MOMENT: Final = pa.timestamp("ms", tz="UTC")


def standard_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in our types; the very same one if it is so already."""
    if not any(_holds_date64(column.type) for column in schema):
        return schema
    fields = [column.with_type(_exchanged(column.type, _MOMENT)) for column in schema]
    return pa.schema(fields).with_metadata(schema.metadata)


def standard(rows: pa.Table) -> pa.Table:
    """The rows in our types."""
    wanted = standard_schema(rows.schema)
    # Arrow only relabels here: `date64` keeps its milliseconds, whole days or not.
    return rows if wanted is rows.schema else rows.cast(wanted)


def standard_batches(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """The same, batch by batch."""
    wanted = standard_schema(reader.schema)
    return reader if wanted is reader.schema else reader.cast(wanted)


def as_stored(rows: pa.Table, stored: pa.Schema) -> pa.Table:
    """The rows in the types of the table that they are for, as far as those are the reference's."""
    schema = _stored_schema(rows.schema, stored)
    if schema is rows.schema:
        return rows
    columns = [_restored(rows.column(number), column.type) for number, column in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def as_stored_batches(reader: pa.RecordBatchReader, stored: pa.Schema) -> pa.RecordBatchReader:
    """The same, batch by batch."""
    schema = _stored_schema(reader.schema, stored)
    if schema is reader.schema:
        return reader
    parts = (as_stored(pa.Table.from_batches([one]), stored) for one in reader)
    batches = (batch for part in parts for batch in part.to_batches())
    return pa.RecordBatchReader.from_batches(schema, batches)


def _stored_schema(given: pa.Schema, stored: pa.Schema) -> pa.Schema:
    """The given schema with the table's types; the very same one if it has them."""
    if not any(_holds_date64(column.type) for column in stored):
        return given
    fields = [column.with_type(_stored_type(column, stored)) for column in given]
    return pa.schema(fields).with_metadata(given.metadata)


def _stored_type(column: pa.Field[Any], stored: pa.Schema) -> pa.DataType:
    number = stored.get_field_index(column.name)
    given: pa.DataType = column.type
    found: pa.DataType = given if number < 0 else stored.field(number).type
    return found if _holds_date64(found) else given


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
