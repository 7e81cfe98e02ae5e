"""Arrow as the engine uses it.

Arrays of many types pass through the same functions and are told apart at run time, which the type
stubs of pyarrow cannot express; so values are `Any` here, behind names that say what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa_typed  # noqa: ICN001 - `pa` is the loosely typed one below
import pyarrow.compute as pc_typed

pa: Any = pa_typed
pc: Any = pc_typed

ArrowTable: TypeAlias = pa_typed.Table
DataType: TypeAlias = pa_typed.DataType
RecordBatch: TypeAlias = pa_typed.RecordBatch
Schema: TypeAlias = pa_typed.Schema

Array: TypeAlias = Any  # pyarrow.Array
Values: TypeAlias = Any  # an array, one value a row, or a scalar, the same for all rows
Column: TypeAlias = Any  # an array of any type
Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Mask: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]


def flat(column: Any) -> Column:
    """One array of a column that may have chunks."""
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column


def as_mask(flags: Any) -> Mask:
    """Arrow's booleans as numpy's; null is no."""
    flags = flat(flags)
    if flags.null_count:
        flags = pc.fill_null(flags, fill_value=False)
    if not len(flags):
        return np.zeros(0, dtype=np.bool_)
    # Bit by bit, as Arrow would do it, takes sixteen times as long.
    first, start = divmod(flags.offset, 8)
    bits = np.frombuffer(flags.buffers()[1], dtype=np.uint8)[first:]
    unpacked = np.unpackbits(bits, count=start + len(flags), bitorder="little")
    return unpacked[start:].view(np.bool_)


def booleans(mask: Mask) -> Column:
    """Numpy's booleans as Arrow's."""
    bits = np.packbits(mask, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(mask), [None, pa.py_buffer(bits)])


def int64_array(numbers: Any) -> Column:
    """Whole numbers of numpy as Arrow's."""
    # Not `pa.array`, which first asks numpy for its masked arrays: an import of 13 ms.
    values = np.ascontiguousarray(numbers, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def uint64_array(numbers: Any) -> Column:
    """Numbers of rows in the same way."""
    values = np.ascontiguousarray(numbers, dtype=np.uint64)
    return pa.Array.from_buffers(pa.uint64(), len(values), [None, pa.py_buffer(values)])


def float64_array(numbers: Any) -> Column:
    """Floats of numpy as Arrow's, null for NaN; in the same way."""
    values = np.ascontiguousarray(numbers, dtype=np.float64)
    there = np.packbits(~np.isnan(values), bitorder="little")
    buffers = [pa.py_buffer(there), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.float64(), len(values), buffers)


def picked(rows: Any, at: Any) -> Any:
    """The rows (or values) at these positions."""
    return rows.take(int64_array(at))


def few_picked(values: Column, at: Sequence[int]) -> Column:
    """The values at a few positions, null at -1. A kernel takes as long to begin as six slices."""
    alike = [values.slice(one, 1) if one >= 0 else pa.nulls(1, values.type) for one in at]
    return pa.concat_arrays(alike)


def nulls(rows: int, kind: DataType) -> Column:
    """A column of nothing but nulls."""
    return pa.nulls(rows, kind)


def counted(values: Column) -> Column:
    """Dates and moments as the numbers that they are stored as; others as they are."""
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32())
    return values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values
