"""Tables that the reference system made keep a DateTime as `date64`; ours keep a timestamp in UTC.

Both are milliseconds since the epoch. Such a table stays as it is, its past included: what is read
from it gets our type, what is written to it gets its own.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pyarrow as pa

_MOMENT: Final = pa.timestamp("ms", tz="UTC")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Texts and quoted names are matched whole, so that nothing inside them is taken for a moment.
_LITERALS: Final = re.compile(r"timestamp '(?P<moment>[^']*)'|'(?:[^']|'')*'|`[^`]*`")


def standard_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in our types; the very same one if it is so already."""
    if not any(_holds_date64(column.type) for column in schema):
        return schema
    fields = [column.with_type(_exchanged(column.type, _MOMENT)) for column in schema]
    return pa.schema(fields).with_metadata(schema.metadata)


def standard(rows: pa.Table) -> pa.Table:
    """The rows in our types."""
    given = rows.schema  # a new object each time it is asked for
    wanted = standard_schema(given)
    # Arrow only relabels here: `date64` keeps its milliseconds, whole days or not.
    return rows if wanted is given else rows.cast(wanted)


def standard_batches(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """The same, batch by batch."""
    given = reader.schema
    wanted = standard_schema(given)
    return reader if wanted is given else reader.cast(wanted)


def as_stored(rows: pa.Table, stored: pa.Schema) -> pa.Table:
    """The rows in the types of the table that they are for, as far as those are the reference's."""
    given = rows.schema
    schema = _stored_schema(given, stored)
    if schema is given:
        return rows
    columns = [_restored(rows.column(number), column.type) for number, column in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


def as_stored_batches(reader: pa.RecordBatchReader, stored: pa.Schema) -> pa.RecordBatchReader:
    """The same, batch by batch."""
    given = reader.schema
    schema = _stored_schema(given, stored)
    if schema is given:
        return reader
    parts = (as_stored(pa.Table.from_batches([one]), stored) for one in reader)
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
    since = datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH
    return f"arrow_cast({since // timedelta(milliseconds=1)}, 'Date64')"


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
