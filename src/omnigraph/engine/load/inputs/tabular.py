"""Columns of files and DataFrames to columns of a type: whole columns if that is exact, cells if
it is not. Text is read as the schema's type, because CSV knows nothing else."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.engine.arrow import Column, Ints, counted, flat, nulls, pc
from omnigraph.engine.check.findings import Violation
from omnigraph.engine.check.rules import Entity, misfit, missing
from omnigraph.engine.load.inputs.sources import Mapped, plan_columns
from omnigraph.engine.load.reading import RawRows, place_of
from omnigraph.engine.rows.columns import (
    BLOB_CELL,
    CellProblem,
    Judged,
    batch_schema,
    column,
    column_type,
    default_cell,
    judged,
    with_items,
)
from omnigraph.model.schema import CALENDAR, FLOATS, INTEGERS, NUMBERS, PropertyType, Scalar
from omnigraph.model.values import INTEGER_BOUNDS

# The columns of a source by name: Arrow arrays, or lists of JSON values of any kind.
SourceColumns = Mapping[str, Column | list[Any]]

_IDENTITY: Final = PropertyType(scalar=Scalar.STRING, nullable=True)  # of `id`, `src` and `dst`
_INTEGER_TEXT: Final = r"^[+-]?[0-9]+$"
_TRUTH: Final[Mapping[str, bool]] = {
    "true": True, "t": True, "yes": True, "y": True, "1": True,
    "false": False, "f": False, "no": False, "n": False, "0": False,
}  # fmt: skip


def raw_rows(
    entity: Entity, source: SourceColumns, mapped: Mapped, *, numbers: Ints, place: str
) -> RawRows:
    """The source's columns as the type's columns, with what does not fit."""
    plan = plan_columns(entity, list(source), mapped, place=place)
    columns: dict[str, Column] = {}
    violations: list[Violation] = []
    misfits: set[tuple[int, str]] = set()
    for target, name in plan.takes.items():
        prop, values, cast = entity.by_name.get(target), source[name], plan.casts.get(target)
        kind = _IDENTITY if prop is None else prop.type
        fit = _json_column if isinstance(values, list) else fitted_column
        columns[target], problems = fit(values, kind, cast)
        misfits |= {(problem.row, target) for problem in problems}
        violations += [
            misfit(entity, target, problem, place_of(int(numbers[problem.row])))
            for problem in problems
        ]
    # Edges that do not say where they start or end.
    violations += [
        missing(entity, word, place_of(int(numbers[row])), absent=False)
        for target, word in (("src", "from"), ("dst", "to"))
        if target in columns and columns[target].null_count
        for row in np.flatnonzero(np.asarray(pc.is_null(columns[target])))
        if (int(row), target) not in misfits
    ]
    return RawRows(
        entity=entity,
        rows=_completed(entity, columns, len(numbers)),
        numbers=numbers,
        misfits=frozenset(misfits),
        violations=tuple(violations),
    )


def _completed(entity: Entity, columns: Mapping[str, Column], rows: int) -> pa.Table:
    """All columns of the type: missing ones are null or the default, and so are null cells of a
    property that has a default and may not be null."""
    schema = batch_schema(entity)
    filled: list[Column] = []
    for field in schema:
        prop, given = entity.by_name.get(field.name), columns.get(field.name)
        values = nulls(rows, field.type) if given is None else given
        if prop and prop.default is not None and (given is None or not prop.type.nullable):
            values = pc.fill_null(values, default_cell(prop)) if values.null_count else values
        filled.append(values)
    return pa.Table.from_arrays(filled, schema=schema)


def _json_column(values: list[Any], kind: PropertyType, cast: PropertyType | None) -> Judged:
    if kind is _IDENTITY:
        values = [str(v) if isinstance(v, int) and not isinstance(v, bool) else v for v in values]
    if cast is not None:
        texts = [v if v is None or isinstance(v, str) else orjson.dumps(v).decode() for v in values]
        forced, problems = fitted_column(pa.array(texts, pa.string()), cast)
        unforced = {problem.row for problem in problems}
        values = [
            old if row in unforced else new
            for row, (old, new) in enumerate(zip(values, forced.to_pylist(), strict=True))
        ]
    return column(values, kind, strict=True)


def fitted_column(values: Column, kind: PropertyType, cast: PropertyType | None = None) -> Judged:
    """The column in the type's Arrow form, null where a cell does not fit, and those cells.

    An `id`, `from` or `to` is text as it is, and whole numbers and dates in their id form.
    """
    plain = _plain(values)
    forced: list[CellProblem] = []
    if cast is not None and cast.scalar is Scalar.STRING and not pa.types.is_nested(plain.type):
        plain = plain.cast(pa.string())
    elif cast is not None:
        plain, forced = fitted_column(plain, cast)
    if kind is _IDENTITY:
        plain = _in_id_form(plain)
    read = _reader(plain.type, kind)
    exact = _translated(plain, kind)
    if exact is not None:
        array, problems = judged(exact, kind, _Cells(plain, read, exact))
    else:
        array, problems = column(_all_read(plain, read), kind, strict=True)
    return array, forced + problems


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


def _in_id_form(values: Column) -> Column:
    types, source = pa.types, values.type
    if types.is_timestamp(source):
        return counted(_moments(values)).cast(pa.string())
    if types.is_integer(source) or types.is_boolean(source) or types.is_date32(source):
        return counted(values).cast(pa.string())
    return values


# --- cells one by one -------------------------------------------------------------------------


def _all_read(values: Column, read: Callable[[Any], Any]) -> list[Any]:
    if values.type == _without_nanoseconds(values.type):
        try:
            return [None if cell is None else read(cell) for cell in values.to_pylist()]
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
            value = (cell if cell.type == self._kind else cell.cast(self._kind)).as_py()
            return None if value is None else self._read(value)
        except (OverflowError, ValueError):  # no moment of Python's calendar, or a digit too many
            return self._spelled[row].as_py()


def _reader(source: pa.DataType, kind: PropertyType) -> Callable[[Any], Any]:
    """How one cell of the source becomes a value that the value rules can judge."""
    if pa.types.is_string(source):
        return _text_reader(kind)
    if pa.types.is_decimal(source):
        return _number
    if kind.scalar is Scalar.DATE and pa.types.is_timestamp(source):
        return _day
    if kind.scalar is Scalar.DATE and pa.types.is_list(source):
        return lambda cell: [_day(item) for item in cell]
    return lambda cell: cell


def _text_reader(kind: PropertyType) -> Callable[[str], Any]:
    if kind.is_list or kind.scalar is Scalar.VECTOR:
        return partial(_parsed, orjson.loads)
    if kind.scalar in INTEGERS:
        return partial(_integer, INTEGER_BOUNDS[kind.scalar])
    if kind.scalar in FLOATS:
        return partial(_parsed, float)
    if kind.scalar is Scalar.BOOL:
        return lambda cell: _TRUTH.get(cell.strip().lower(), cell)
    return str.strip if kind.scalar in CALENDAR else str


def _parsed(parse: Callable[[str], Any], cell: str) -> Any:
    try:
        return parse(cell)
    except ValueError:
        return cell


def _integer(bounds: tuple[int, int], cell: str) -> int | str:
    text = cell.strip()
    digits = text.lstrip("+-")
    readable = digits.isascii() and digits.isdigit() and len(digits) <= 40
    lowest, highest = bounds
    return max(min(int(text), highest + 1), lowest - 1) if readable else cell


def _number(cell: decimal.Decimal) -> int | float:
    return int(cell) if cell == cell.to_integral_value() else float(cell)


def _day(cell: Any) -> Any:
    midnight = isinstance(cell, dt.datetime) and cell.time() == dt.time(0)
    return cell.date() if midnight else cell


# --- whole columns ----------------------------------------------------------------------------


def _translated(values: Column, kind: PropertyType) -> Column | None:
    """The values in a type that `fitted` knows, or None when cells must be read one by one."""
    if kind.scalar is Scalar.BLOB:
        return None if pa.types.is_null(values.type) else _blobs(values)
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
    return None if items is None else with_items(lists, items)


def _blobs(values: Column) -> Column | None:
    """Bytes, or what our own exports write: structs of `data` and `uri`."""
    if pa.types.is_struct(values.type) and {f.name for f in values.type} == {"data", "uri"}:
        data, uri = pc.struct_field(values, "data"), pc.struct_field(values, "uri")
    elif pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        data, uri = values, nulls(len(values), pa.string())
    else:
        return None
    unsized = nulls(len(values), pa.uint64())
    cells: Any = [data.cast(pa.large_binary()), uri, unsized, unsized]
    return pa.StructArray.from_arrays(cells, fields=list(BLOB_CELL), mask=pc.is_null(values))
