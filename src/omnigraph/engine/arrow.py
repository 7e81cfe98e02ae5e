"""Arrow as this room uses it.

Arrays of many types pass through the same functions and are told apart at run time, which the type
stubs of pyarrow cannot express; so values are `Any` here, behind names that say what they are.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa_typed  # noqa: ICN001 - `pa` is the loosely typed one below
import pyarrow.compute as pc_typed
from pyarrow import DataType, RecordBatch, Schema
from pyarrow import Table as ArrowTable

__all__ = ["Array", "ArrowTable", "DataType", "RecordBatch", "Schema", "Values", "pa", "pc"]

pa: Any = pa_typed
pc: Any = pc_typed

Array: TypeAlias = Any  # pyarrow.Array
Values: TypeAlias = Any  # an array, one value a row, or a scalar, the same for all rows
