"""Columns of files and DataFrames to columns of a table: whole columns if that is exact, cells if
it is not. Text is read as the schema's type, because CSV knows nothing else."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
import pyarrow as pa

from omnigraph.engine.write.columns import CellProblem, column, column_type
from omnigraph.engine.write.values import DATE_PATTERN, MS_MAX, MS_MIN
from omnigraph.model.schema import FLOATS, INTEGERS, PropertyType, Scalar
from omnigraph.model.values import INTEGER_BOUNDS
from omnigraph.pipeline.arrow import Column, flat, nulls, pc

_IDENTITY: Final = PropertyType(scalar=Scalar.STRING, nullable=True)
_INTEGER_TEXT: Final = r"^[+-]?[0-9]+$"
_TRUTH: Final[Mapping[str, bool]] = {
    "true": True, "t": True, "yes": True, "y": True, "1": True,
    "false": False, "f": False, "no": False, "n": False, "0": False,
}  # fmt: skip


def fitted_column(
    values: Column, kind: PropertyType, cast: PropertyType | None = None
) -> tuple[Column, list[CellProblem]]:
    """The column in the type's Arrow form, null where a cell does not fit, and those cells."""
    plain = _plain(values)
    forced: list[CellProblem] = []
    if cast is not None:
        plain, forced = _forced(plain, cast)
    fast = _fast(plain, kind)
    if fast is not None:
        return fast, forced
    read = _reader(plain.type, kind)
    fitted, problems = column([read(cell) for cell in plain.to_pylist()], kind, strict=True)
    return fitted, forced + problems


def identity_column(
    values: Column, cast: PropertyType | None = None
) -> tuple[Column, list[CellProblem]]:
    """An `id`, `from` or `to` column: text as it is, whole numbers and dates in their id form."""
    plain = _plain(values)
    forced: list[CellProblem] = []
    if cast is not None:
        plain, forced = _forced(plain, cast)
    if pa.types.is_integer(plain.type):
        return plain.cast(pa.string()), forced
    if pa.types.is_boolean(plain.type):
        return plain.cast(pa.string()), forced
    if pa.types.is_date32(plain.type):
        return plain.cast(pa.int32()).cast(pa.string()), forced
    if pa.types.is_timestamp(plain.type):
        milliseconds = plain.cast(pa.timestamp("ms"), safe=False)
        return milliseconds.cast(pa.int64()).cast(pa.string()), forced
    fitted, problems = fitted_column(plain, _IDENTITY)
    return fitted, forced + problems


def _plain(values: Any) -> Column:
    """One array of plain types: no dictionaries, no views, no large offsets, no chunks."""
    array = flat(values)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_large_string(array.type) or pa.types.is_string_view(array.type):
        return array.cast(pa.string())
    if pa.types.is_large_list(array.type):
        return array.cast(pa.list_(array.type.value_type))
    return array


def _forced(values: Column, to: PropertyType) -> tuple[Column, list[CellProblem]]:
    if to.scalar is Scalar.STRING and not pa.types.is_nested(values.type):
        return values.cast(pa.string()), []
    return fitted_column(values, to)


def _fast(values: Column, kind: PropertyType) -> Column | None:
    """The whole column by Arrow, or None when cells must be looked at."""
    target = column_type(kind)
    if pa.types.is_null(values.type):
        return nulls(len(values), target)
    if kind.scalar is Scalar.BLOB:
        return _fast_blobs(values, target)
    try:
        if kind.scalar is Scalar.VECTOR:
            return _fast_vectors(values, kind)
        if kind.is_list:
            return _fast_lists(values, kind)
        return _fast_scalars(values, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _fast_scalars(values: Column, kind: PropertyType) -> Column | None:
    target = column_type(kind)
    source = values.type
    match kind.scalar:
        case Scalar.STRING:
            return values if pa.types.is_string(source) else None
        case Scalar.BOOL:
            return values if pa.types.is_boolean(source) else None
        case Scalar.DATE:
            return _fast_dates(values)
        case Scalar.DATETIME:
            return _fast_moments(values, target)
        case _ if kind.scalar in INTEGERS:
            if pa.types.is_string(source):
                if pc.all(pc.match_substring_regex(values, _INTEGER_TEXT)).as_py() is False:
                    return None
                return pc.replace_substring_regex(values, r"^\+", "").cast(target)
            if pa.types.is_integer(source) or pa.types.is_floating(source):
                return values.cast(target)  # safe: refuses fractions and what is too large
            return values.cast(target) if pa.types.is_decimal(source) else None
        case _:
            return _fast_floats(values, kind)


def _fast_floats(values: Column, kind: PropertyType) -> Column | None:
    source = values.type
    if pa.types.is_boolean(source) or pa.types.is_temporal(source):
        return None
    wide = values.cast(pa.float64(), safe=not pa.types.is_integer(source))
    if kind.scalar is Scalar.F64 or pa.types.is_float32(source):
        return wide.cast(column_type(kind))
    narrow = wide.cast(pa.float32(), safe=False)
    overflown = pc.and_(pc.is_inf(narrow), pc.invert(pc.is_inf(wide)))
    return None if pc.any(overflown).as_py() else narrow


def _fast_dates(values: Column) -> Column | None:
    source = values.type
    if pa.types.is_string(source):
        if pc.all(pc.match_substring_regex(values, DATE_PATTERN)).as_py() is False:
            return None
        if pc.any(pc.starts_with(values, "0000")).as_py():
            return None
        return values.cast(pa.date32())
    if pa.types.is_date(source):
        return values.cast(pa.date32())
    if pa.types.is_timestamp(source):
        whole = pc.all(pc.equal(pc.floor_temporal(values, unit="day"), values)).as_py()
        return None if whole is False else values.cast(pa.date32())
    return None


def _fast_moments(values: Column, target: pa.DataType) -> Column | None:
    source = values.type
    if pa.types.is_date(source):
        values, source = values.cast(pa.timestamp("ms")), pa.timestamp("ms")
    if not pa.types.is_timestamp(source):
        return None  # text has many spellings: the value rules know them
    # Digits beyond milliseconds are dropped, as the value rules do; zoneless means UTC.
    floored = pc.floor_temporal(values, unit="millisecond")
    if source.tz is None:
        moments = floored.cast(pa.timestamp("ms"), safe=False).cast(target)
    else:
        moments = floored.cast(target, safe=False)
    ends: Any = pc.min_max(moments.cast(pa.int64())).as_py()
    return (
        moments if ends["min"] is None or MS_MIN <= ends["min"] <= ends["max"] <= MS_MAX else None
    )


def _fast_vectors(values: Column, kind: PropertyType) -> Column | None:
    if not (pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type)):
        return None
    items = pc.list_flatten(values)
    if not (pa.types.is_floating(items.type) or pa.types.is_integer(items.type)):
        return None
    finite = pc.is_finite(items.cast(pa.float32(), safe=False))
    lengths = pc.list_value_length(values)
    if items.null_count or pc.all(finite).as_py() is False:
        return None
    if pc.all(pc.equal(lengths, kind.dimension)).as_py() is False:
        return None
    narrow = values.cast(pa.list_(pa.float32()), safe=False)
    return narrow.cast(column_type(kind))


def _fast_lists(values: Column, kind: PropertyType) -> Column | None:
    if not (pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type)):
        return None
    lists = values.cast(pa.list_(values.type.value_type))
    items = pc.list_flatten(lists)
    if items.null_count:
        return None
    leaf = PropertyType(scalar=kind.scalar)
    fitted = _fast(_plain(items), leaf)
    if fitted is None:
        return None
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, fitted, type=column_type(kind), mask=pc.is_null(lists))


def _fast_blobs(values: Column, target: pa.DataType) -> Column | None:
    """Bytes, or what our own exports write: structs of `data` and `uri`."""
    if pa.types.is_struct(values.type) and {f.name for f in values.type} == {"data", "uri"}:
        data, uri = pc.struct_field(values, "data"), pc.struct_field(values, "uri")
    elif pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        data, uri = values, nulls(len(values), pa.string())
    else:
        return None
    cells: Any = [
        data.cast(pa.large_binary()),
        uri,
        nulls(len(values), pa.uint64()),
        nulls(len(values), pa.uint64()),
    ]
    fields: Any = target
    return pa.StructArray.from_arrays(cells, fields=list(fields), mask=pc.is_null(values))


def _reader(source: pa.DataType, kind: PropertyType) -> Callable[[Any], Any]:
    """How one cell of the source becomes a value that the value rules can judge."""
    if pa.types.is_string(source):
        return _text_reader(kind)
    if pa.types.is_decimal(source):
        return _number
    if kind.scalar in INTEGERS and pa.types.is_floating(source):
        return lambda cell: int(cell) if cell is not None and cell == cell // 1 else cell
    if kind.scalar is Scalar.DATE and pa.types.is_timestamp(source):
        return _day
    return lambda cell: cell


def _text_reader(kind: PropertyType) -> Callable[[Any], Any]:
    if kind.is_list or kind.scalar is Scalar.VECTOR:
        return _json_array
    if kind.scalar in INTEGERS:
        return lambda cell: _integer(cell, kind.scalar)
    if kind.scalar in FLOATS:
        return _float
    if kind.scalar is Scalar.BOOL:
        return lambda cell: cell if cell is None else _TRUTH.get(cell.strip().lower(), cell)
    if kind.scalar in (Scalar.DATE, Scalar.DATETIME):
        return lambda cell: cell if cell is None else cell.strip()
    return lambda cell: cell


def _integer(cell: str | None, scalar: Scalar) -> Any:
    if cell is None:
        return None
    text = cell.strip()
    digits = text.lstrip("+-")
    readable = digits.isascii() and digits.isdigit() and len(digits) <= 40
    lowest, highest = INTEGER_BOUNDS[scalar]
    return max(min(int(text), highest + 1), lowest - 1) if readable else cell


def _float(cell: str | None) -> Any:
    if cell is None:
        return None
    try:
        return float(cell)
    except ValueError:
        return cell


def _json_array(cell: str | None) -> Any:
    if cell is None:
        return None
    try:
        return orjson.loads(cell)
    except orjson.JSONDecodeError:
        return cell


def _number(cell: decimal.Decimal | None) -> Any:
    if cell is None:
        return None
    return int(cell) if cell == cell.to_integral_value() else float(cell)


def _day(cell: dt.datetime | None) -> Any:
    if cell is None or cell.time() != dt.time(0):
        return cell
    return cell.date()
