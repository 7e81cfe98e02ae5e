"""Columns of files and DataFrames to columns of a table: whole columns if that is exact, cells if
it is not. Text is read as the schema's type, because CSV knows nothing else."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson
import pyarrow as pa

from omnigraph.engine.arrow import Column, counted, flat, nulls, pc
from omnigraph.engine.rows.columns import CellProblem, column, column_type, judged
from omnigraph.model.schema import CALENDAR, FLOATS, INTEGERS, NUMBERS, PropertyType, Scalar
from omnigraph.model.values import INTEGER_BOUNDS

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
    read = _reader(plain.type, kind)
    exact = _translated(plain, kind)
    if exact is not None:
        array, problems = judged(exact, kind, _Cells(plain, read, exact))
    else:
        array, problems = column(_all_read(plain, read), kind, strict=True)
    return array, forced + problems


def _all_read(values: Column, read: Callable[[Any], Any]) -> list[Any]:
    if values.type == _without_nanoseconds(values.type):
        try:
            return [read(cell) for cell in values.to_pylist()]
        except (OverflowError, ValueError):  # some moment is not one of Python's
            pass
    cells = _Cells(values, read, as_texts(values))
    return [cells[row] for row in range(len(values))]


def _without_nanoseconds(kind: pa.DataType) -> pa.DataType:
    """The type in which Arrow gives Python's own moments. Of nanoseconds it gives those of pandas
    where pandas is there, whose `time()` drops them, and refuses them where it is not."""
    if pa.types.is_list(kind):
        return pa.list_(_without_nanoseconds(kind.value_type))
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", tz=kind.tz)
    return kind


def as_texts(values: Column) -> Column:
    """Values, or lists of them, as Arrow writes them."""
    nested = pa.types.is_nested(values.type)
    return values.cast(pa.list_(pa.string()) if nested else pa.string())


class _Cells:
    """The cells of a column in Python, read one at a time; `spelled` in another way those that
    Python cannot say."""

    def __init__(self, values: Column, read: Callable[[Any], Any], spelled: Column) -> None:
        self._values, self._read, self._spelled = values, read, spelled
        self._kind = _without_nanoseconds(values.type)

    def __getitem__(self, row: int) -> Any:
        cell = self._values[row]
        try:
            return self._read((cell if cell.type == self._kind else cell.cast(self._kind)).as_py())
        except (OverflowError, ValueError):  # no moment of Python's calendar, or a digit too many
            return self._spelled[row].as_py()


def identity_column(
    values: Column, cast: PropertyType | None = None
) -> tuple[Column, list[CellProblem]]:
    """An `id`, `from` or `to` column: text as it is, whole numbers and dates in their id form."""
    plain = _plain(values)
    forced: list[CellProblem] = []
    if cast is not None:
        plain, forced = _forced(plain, cast)
    if pa.types.is_timestamp(plain.type):
        plain = _moments(plain)
    if not pa.types.is_string(plain.type) and _has_id_form(plain.type):
        return counted(plain).cast(pa.string()), forced
    array, problems = fitted_column(plain, _IDENTITY)
    return array, forced + problems


def _has_id_form(source: pa.DataType) -> bool:
    types = pa.types
    is_number = types.is_integer(source) or types.is_boolean(source)
    return is_number or types.is_date32(source) or types.is_timestamp(source)


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


def _translated(values: Column, kind: PropertyType) -> Column | None:
    """The values in a type that `fitted` knows, or None when cells must be read one by one."""
    if kind.scalar is Scalar.BLOB:
        return None if pa.types.is_null(values.type) else _blobs(values, column_type(kind))
    if kind.is_list and pa.types.is_nested(values.type):
        return _translated_lists(values, kind)
    if kind.is_list or kind.scalar is Scalar.VECTOR:
        return None if pa.types.is_string(values.type) else values
    try:
        return _translated_scalars(values, kind.scalar)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _translated_scalars(values: Column, scalar: Scalar) -> Column | None:
    source = values.type
    if scalar in NUMBERS and pa.types.is_string(source):
        return _numbers(values, scalar)
    if scalar in NUMBERS and pa.types.is_decimal(source):
        return values.cast(column_type(PropertyType(scalar=scalar)))
    if scalar is Scalar.BOOL and pa.types.is_string(source):
        return None
    if scalar is Scalar.DATE and pa.types.is_timestamp(source):
        midnight = pc.all(pc.equal(pc.floor_temporal(values, unit="day"), values)).as_py()
        return None if midnight is False else counted(values.cast(pa.date32()))
    if scalar is Scalar.DATE and pa.types.is_date(source):
        return counted(values.cast(pa.date32()))  # a number is held to the bounds of the calendar
    if scalar is Scalar.DATETIME and pa.types.is_date(source):
        values = values.cast(pa.timestamp("ms"))
    if scalar is Scalar.DATETIME and pa.types.is_timestamp(values.type):
        return counted(_moments(values))
    return values


def _numbers(texts: Column, scalar: Scalar) -> Column | None:
    if scalar in FLOATS:
        return texts.cast(pa.float64())
    if pc.all(pc.match_substring_regex(texts, _INTEGER_TEXT)).as_py() is False:
        return None
    plain = pc.replace_substring_regex(texts, r"^\+", "")
    return plain.cast(column_type(PropertyType(scalar=scalar)))


def _moments(values: Column) -> Column:
    """Digits beyond milliseconds are dropped, as the value rules do; zoneless means UTC."""
    floored = pc.floor_temporal(values, unit="millisecond")
    return floored.cast(pa.timestamp("ms", tz=values.type.tz), safe=False)


def _translated_lists(values: Column, kind: PropertyType) -> Column | None:
    if not (pa.types.is_list(values.type) or pa.types.is_fixed_size_list(values.type)):
        return None
    lists = values.cast(pa.list_(values.type.value_type))
    items = _translated(_plain(lists.flatten()), PropertyType(scalar=kind.scalar))
    if items is None:
        return None
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    ends = pc.cumulative_sum(lengths.cast(pa.int32()))
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, items, mask=pc.is_null(lists))


def _blobs(values: Column, target: pa.DataType) -> Column | None:
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
    if kind.scalar is Scalar.DATE and pa.types.is_timestamp(source):
        return _day
    if kind.scalar is Scalar.DATE and pa.types.is_list(source):
        return lambda cell: cell if cell is None else [_day(item) for item in cell]
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
    if kind.scalar in CALENDAR:
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


def _day(cell: Any) -> Any:
    if isinstance(cell, dt.datetime) and cell.time() == dt.time(0):
        return cell.date()
    return cell
