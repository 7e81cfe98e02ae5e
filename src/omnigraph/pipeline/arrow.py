"""Arrow in the words of this room. Its type stubs know each array type by itself and few functions
over all of them, so columns of any type are `Column` here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

Column = Any  # an Arrow array of any type
Ints = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

pc: Any = pyarrow.compute


def flat(column: Any) -> Column:
    """One array of a column that may have chunks."""
    if isinstance(column, pa.ChunkedArray):
        return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    return column


def as_mask(flags: Any) -> Mask:
    """Arrow's booleans as numpy's; null is no."""
    return np.asarray(pc.fill_null(flags, fill_value=False)).astype(bool, copy=True)


def picked(rows: Any, at: Any) -> Any:
    """The rows (or values) at these positions."""
    return rows.take(pa.array(at, pa.int64()))


def nulls(rows: int, kind: pa.DataType) -> Column:
    """A column of nothing but nulls."""
    make: Any = pa.nulls
    return make(rows, kind)
