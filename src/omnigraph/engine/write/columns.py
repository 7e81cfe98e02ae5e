"""Many values at a time: JSON (or Python) values of one property to one Arrow column.

The fast ways look at the set of Python types first and let Arrow convert the whole list; whenever
that cannot be exact, `values.fit` decides cell by cell. Both give the same verdicts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engine.write.values import (
    DATE_PATTERN,
    DAYS_MAX,
    DAYS_MIN,
    MS_MAX,
    MS_MIN,
    BlobCell,
    Misfit,
    fit,
)
from omnigraph.model.schema import EdgeType, NodeType, PropertyType, Scalar

# A blob before it is stored; storage seals it into its own blob type.
BLOB_CELL: Final = pa.struct(
    [
        pa.field("data", pa.large_binary()),
        pa.field("uri", pa.string()),
        pa.field("position", pa.uint64()),
        pa.field("size", pa.uint64()),
    ]
)
_SCALARS: Final[Mapping[Scalar, pa.DataType]] = {
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
    Scalar.BLOB: BLOB_CELL,
}
_NOTHING = type(None)
# Arrow reads these moments exactly as `values.fit` does; all other spellings go cell by cell.
_PLAIN_MOMENT: Final = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,3})?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellProblem:
    """A cell that does not fit its property; `row` counts within the values given."""

    row: int
    message: str
    value: Any


def column_type(kind: PropertyType) -> pa.DataType:
    """The Arrow type of a property before storage seals it (blobs are `BLOB_CELL`)."""
    if kind.scalar is Scalar.VECTOR:
        assert kind.dimension is not None, "a Vector type has a dimension"
        return pa.list_(pa.float32(), kind.dimension)
    scalar = _SCALARS[kind.scalar]
    return pa.list_(scalar) if kind.is_list else scalar


def batch_schema(entity: NodeType | EdgeType) -> pa.Schema:
    """The columns of a type's rows in the write path: identity first, properties as declared."""
    identity = ["id"] if isinstance(entity, NodeType) else ["id", "src", "dst"]
    return pa.schema(
        [pa.field(name, pa.string()) for name in identity]
        + [pa.field(prop.name, column_type(prop.type)) for prop in entity.properties]
    )


def column(
    values: Sequence[Any], kind: PropertyType, *, strict: bool
) -> tuple[pa.Array[Any], list[CellProblem]]:
    """The column and its problems. A cell with a problem is null in the column.

    Not strict, a scalar that does not fit is simply null, as the reference's permissive loader
    has it; lists, vectors and blobs are judged alike in both.
    """
    fast = _fast(values, kind)
    if fast is not None:
        return fast, []
    fitted = [fit(value, kind) for value in values]
    forgiving = not strict and not kind.is_list and kind.scalar not in (Scalar.VECTOR, Scalar.BLOB)
    problems = [
        CellProblem(row=row, message=cell.message, value=values[row])
        for row, cell in enumerate(fitted)
        if isinstance(cell, Misfit) and not forgiving
    ]
    return from_fitted([None if isinstance(c, Misfit) else c for c in fitted], kind), problems


def from_fitted(values: Sequence[Any], kind: PropertyType) -> pa.Array[Any]:
    """The column of values that `values.fit` has passed."""
    if kind.scalar is Scalar.BLOB and not kind.is_list:
        return _blob_column(values)
    return pa.array(values, type=column_type(kind))


def _blob_column(cells: Sequence[BlobCell | None]) -> pa.Array[Any]:
    rows = [None if cell is None else {"data": cell.data, "uri": cell.uri} for cell in cells]
    return pa.array(rows, type=BLOB_CELL)


def _fast(values: Sequence[Any], kind: PropertyType) -> pa.Array[Any] | None:
    kinds = set(map(type, values)) - {_NOTHING}
    if not kinds:
        return pa.array([None] * len(values), type=column_type(kind))
    if kind.is_list:
        return _fast_lists(values, kind) if kinds == {list} else None
    match kind.scalar:
        case Scalar.STRING:
            return _converted(values, pa.string()) if kinds == {str} else None
        case Scalar.BOOL:
            return _converted(values, pa.bool_()) if kinds == {bool} else None
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            return _converted(values, column_type(kind)) if kinds == {int} else None
        case Scalar.F32 | Scalar.F64:
            return _fast_floats(values, kind) if kinds <= {int, float} else None
        case Scalar.DATE | Scalar.DATETIME:
            if kinds == {int}:
                return _fast_counts(values, kind)
            return _fast_calendar(values, kind) if kinds == {str} else None
        case Scalar.VECTOR:
            return _fast_vectors(values, kind) if kinds == {list} else None
        case Scalar.BLOB:
            return None


def _converted(values: Sequence[Any], to: pa.DataType) -> pa.Array[Any] | None:
    try:
        return pa.array(values, type=to)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError):
        return None


def _fast_floats(values: Sequence[Any], kind: PropertyType) -> pa.Array[Any] | None:
    wide = _converted(values, pa.float64())
    if wide is None or kind.scalar is Scalar.F64:
        return wide
    narrow = wide.cast(pa.float32(), safe=False)
    overflown = pc.and_(pc.is_inf(narrow), pc.invert(pc.is_inf(wide)))
    return None if pc.any(overflown).as_py() else narrow


def _fast_counts(values: Sequence[Any], kind: PropertyType) -> pa.Array[Any] | None:
    lowest, highest = (DAYS_MIN, DAYS_MAX) if kind.scalar is Scalar.DATE else (MS_MIN, MS_MAX)
    counts = _converted(values, pa.int64())
    if counts is None:
        return None
    ends: Any = pc.min_max(counts).as_py()
    if ends["min"] < lowest or ends["max"] > highest:
        return None
    if kind.scalar is Scalar.DATE:
        counts = counts.cast(pa.int32())
    return counts.cast(column_type(kind))


def _fast_calendar(values: Sequence[Any], kind: PropertyType) -> pa.Array[Any] | None:
    pattern = DATE_PATTERN if kind.scalar is Scalar.DATE else _PLAIN_MOMENT
    texts = _converted(values, pa.string())
    if texts is None or pc.all(pc.match_substring_regex(texts, pattern)).as_py() is False:
        return None
    if pc.any(pc.starts_with(texts, "0000")).as_py():  # Arrow has a year 0, the calendar has not
        return None
    try:
        moments = texts.cast(column_type(kind))
    except pa.ArrowInvalid:
        return None
    if kind.scalar is Scalar.DATE:
        return moments
    ends: Any = pc.min_max(moments.cast(pa.int64())).as_py()
    return moments if ends["min"] >= MS_MIN and ends["max"] <= MS_MAX else None


def _fast_vectors(values: Sequence[Any], kind: PropertyType) -> pa.Array[Any] | None:
    if {len(value) for value in values if value is not None} != {kind.dimension}:
        return None
    flat = list(chain.from_iterable(value for value in values if value is not None))
    if not set(map(type, flat)) <= {int, float}:
        return None
    try:
        wide = np.array(flat, dtype=np.float64)
    except OverflowError:
        return None
    with np.errstate(over="ignore"):
        narrow = wide.astype(np.float32)
    if not np.isfinite(narrow).all():
        return None
    if len(narrow) == len(values) * (kind.dimension or 0):
        return pa.FixedSizeListArray.from_arrays(pa.array(narrow), kind.dimension)
    return pa.array([None if value is None else value for value in values], type=column_type(kind))


def _fast_lists(values: Sequence[Any], kind: PropertyType) -> pa.Array[Any] | None:
    flat = list(chain.from_iterable(value for value in values if value is not None))
    if None in flat:
        return None
    items = _fast(flat, replace(kind, is_list=False)) if flat else None
    if flat and items is None:
        return None
    if items is None:
        items = pa.array([], type=_SCALARS[kind.scalar])
    lengths = np.fromiter(
        (0 if value is None else len(value) for value in values), dtype=np.int32, count=len(values)
    )
    offsets = np.concatenate([np.zeros(1, np.int32), np.cumsum(lengths, dtype=np.int32)])
    absent = np.fromiter((value is None for value in values), dtype=bool, count=len(values))
    mask = np.append(absent, False)
    return pa.ListArray.from_arrays(pa.array(offsets, mask=mask), items)
