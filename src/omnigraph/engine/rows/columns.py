"""Many values at a time: what `model.values.fit` says of one value, for a whole Arrow column.

`fitted` is the columnar way. It answers only where it is sure to agree with `fit` and leaves the
other cells open, to be judged one by one; so there is one meaning of a value, and a quick way to
it. `tests/properties/test_values.py` holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Protocol

import msgspec
import numpy as np

from omnigraph.engine.arrow import (
    ArrowTable,
    Column,
    Mask,
    Schema,
    as_mask,
    counted,
    flat,
    nulls,
    pa,
    pc,
)
from omnigraph.model.schema import (
    CALENDAR,
    FLOATS,
    INTEGERS,
    EdgeType,
    NodeType,
    Property,
    PropertyType,
    Scalar,
)
from omnigraph.model.values import (
    DATE_PATTERN,
    FLOAT_EXACT_MAX,
    INTEGER_BOUNDS,
    Misfit,
    calendar_bounds,
    fit,
    json_value,
)
from omnigraph.storage.lance.columns import value_type

# A blob before it is stored; storage seals it into its own blob type.
BLOB_CELL: Final = pa.struct(
    {"data": pa.large_binary(), "uri": pa.string(), "position": pa.uint64(), "size": pa.uint64()}
)

# Texts that Arrow reads as `fit` does, by their form, and what each is read as: a type and how
# many of its units are one of ours. Other spellings are judged one by one.
_TIME: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?"
_CALENDAR_TEXTS: Final[Mapping[Scalar, Sequence[tuple[str, Sequence[tuple[Any, int]]]]]] = {
    Scalar.DATE: [(DATE_PATTERN, [(pa.date32(), 1)])],
    Scalar.DATETIME: [
        (
            _TIME + r"(?:Z|[+-][0-9]{2}:[0-9]{2})$",
            [(pa.timestamp("us", tz="UTC"), 10**3), (pa.timestamp("ns", tz="UTC"), 10**6)],
        ),
        (_TIME + "$", [(pa.timestamp("us"), 10**3), (pa.timestamp("ns"), 10**6)]),
    ],
}


class Cells(Protocol):
    """The values of a column in Python, by row."""

    def __getitem__(self, row: int, /) -> Any: ...


class CellProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that does not fit its property; `row` counts within the values given."""

    row: int
    message: str
    value: Any


Judged = tuple[Column, list[CellProblem]]  # null where a cell does not fit
Fitted = tuple[Column, Mask]  # and which cells are left open


def column_type(kind: PropertyType) -> Any:
    """The Arrow type of a property before storage seals it (blobs are `BLOB_CELL`)."""
    return BLOB_CELL if kind.scalar is Scalar.BLOB else value_type(kind)


def batch_schema(entity: NodeType | EdgeType) -> Schema:
    """The columns of a type's rows in the write path: identity first, properties as declared."""
    identity = ["id"] if isinstance(entity, NodeType) else ["id", "src", "dst"]
    schema: Schema = pa.schema(
        [pa.field(name, pa.string()) for name in identity]
        + [pa.field(prop.name, column_type(prop.type)) for prop in entity.properties]
    )
    return schema


def column(values: Sequence[Any], kind: PropertyType, *, strict: bool) -> Judged:
    """The column of JSON (or Python) values and its problems. A cell with a problem is null in it.

    Not strict, a scalar that does not fit is simply null, as the reference's permissive loader
    has it; lists, vectors and blobs are judged alike in both.
    """
    raw = _as_arrow(values)
    if raw is None:
        left = np.fromiter((value is not None for value in values), bool, count=len(values))
        array, problems = _patched(nulls(len(values), column_type(kind)), left, kind, values)
    else:
        array, problems = judged(raw, kind, values)
    forgiving = not strict and not kind.is_list and kind.scalar not in (Scalar.VECTOR, Scalar.BLOB)
    return array, [] if forgiving else problems


def from_fitted(values: Sequence[Any], kind: PropertyType) -> Column:
    """The column of values that `fit` has passed."""
    if kind.scalar is Scalar.BLOB:
        values = [None if cell is None else {"data": cell.data, "uri": cell.uri} for cell in values]
    return pa.array(values, type=column_type(kind))


def default_cell(prop: Property) -> Any:
    """The default of a property as a scalar of Arrow's."""
    value = fit(prop.default, prop.type)
    assert not isinstance(value, Misfit), "the compiler lets no default through that does not fit"
    return from_fitted([value], prop.type)[0]


class ReadableBlob(Protocol):
    """A blob of a stored row: a URI, or bytes to read."""

    @property
    def uri(self) -> str | None: ...

    def read(self) -> bytes: ...


def written_rows(
    entity: NodeType | EdgeType,
    rows: ArrowTable,
    blobs: Callable[[str], Sequence[ReadableBlob | None]],
) -> ArrowTable:
    """Stored rows as rows that replace them; `blobs` gives those of a column."""
    schema = batch_schema(entity)
    columns: list[Column] = []
    for field in schema:
        if field.type != BLOB_CELL:
            columns.append(flat(rows[field.name]).cast(field.type))
            continue
        cells = [
            None if blob is None else {"uri": blob.uri, "data": None if blob.uri else blob.read()}
            for blob in blobs(field.name)
        ]
        columns.append(pa.array(cells, BLOB_CELL))
    made: ArrowTable = pa.Table.from_arrays(columns, schema=schema)
    return made


def judged(raw: Column, kind: PropertyType, cells: Cells) -> Judged:
    """The column, with every cell that `fitted` leaves open judged by `fit`, and the misfits.

    `cells` gives the value of any row in Python, as `fit` is to be asked about it.
    """
    array, left = fitted(raw, kind)
    return _patched(array, left, kind, cells) if left.any() else (array, [])


def _patched(array: Column, left: Mask, kind: PropertyType, cells: Cells) -> Judged:
    rows: list[int] = np.flatnonzero(left).tolist()
    asked = [cells[row] for row in rows]
    verdicts = [fit(value, kind) for value in asked]
    patch = from_fitted([None if isinstance(one, Misfit) else one for one in verdicts], kind)
    places = np.arange(len(array))
    places[left] = np.arange(len(array), len(array) + len(rows))
    whole = patch if len(rows) == len(array) else pa.concat_arrays([array, patch]).take(places)
    return whole, [
        CellProblem(row=row, message=verdict.message, value=value)
        for row, value, verdict in zip(rows, asked, verdicts, strict=True)
        if isinstance(verdict, Misfit)
    ]


def json_values(values: Column, kind: PropertyType) -> list[Any]:
    """`json_value` of each, twenty times faster for dates and times: no date object is made."""
    if kind.scalar not in CALENDAR:
        found: list[Any] = values.to_pylist()
        as_it_is = kind.scalar in (Scalar.STRING, Scalar.BOOL, Scalar.I32, Scalar.U32)
        return found if as_it_is else [json_value(value) for value in found]
    texts: list[Any]
    if kind.scalar is Scalar.DATE:
        texts = values.cast(pa.list_(pa.string()) if kind.is_list else pa.string()).to_pylist()
        return texts
    if kind.is_list:
        lists = values.cast(pa.list_(pa.timestamp("ms"))).cast(pa.list_(pa.string())).to_pylist()
        return [one and [f"{text.replace(' ', 'T')}Z" for text in one] for one in lists]
    plain = values.cast(pa.timestamp("ms")).cast(pa.string())
    texts = pc.binary_join_element_wise(pc.replace_substring(plain, " ", "T"), "Z", "").to_pylist()
    return texts


# --- Python values to Arrow -------------------------------------------------------------------

_PLAIN: Final[Mapping[type, Any]] = {str: pa.string(), bool: pa.bool_(), float: pa.float64()}


def _as_arrow(values: Sequence[Any]) -> Column | None:
    """The values as they are, in an array; None if they are of several kinds or out of reach."""
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return nulls(len(values), pa.null())
    if kinds == {list}:
        return _lists_as_arrow(values)
    try:
        if kinds == {int} or kinds == {int, float}:
            whole = [value for value in values if type(value) is int]
            lowest, highest = min(whole), max(whole)
            if kinds == {int}:
                return pa.array(values, pa.int64() if lowest < 0 else pa.uint64())
            # Not if one is too big to be the same number as a float.
            exact = max(-lowest, highest) <= FLOAT_EXACT_MAX
            return pa.array(values, pa.float64()) if exact else None
        kind = _PLAIN.get(kinds.pop()) if len(kinds) == 1 else None
        return None if kind is None else pa.array(values, kind)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        return None


def _lists_as_arrow(values: Sequence[Any]) -> Column | None:
    items = _as_arrow(list(chain.from_iterable(value for value in values if value is not None)))
    if items is None:
        return None
    lengths = [0 if value is None else len(value) for value in values]
    absent = [value is None for value in values]
    return pa.ListArray.from_arrays(_offsets(np.array(lengths)), items, mask=pa.array(absent))


def _offsets(lengths: Any) -> Column:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


def _lengths(lists: Column) -> Any:
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0))


def with_items(lists: Column, items: Column, kind: Any = None) -> Column:
    """The lists (as this type) with other items, one for each of theirs."""
    ends, missing = _offsets(_lengths(lists)), pc.is_null(lists)
    return pa.ListArray.from_arrays(ends, items, type=kind, mask=missing)


# --- fitting a column -------------------------------------------------------------------------


def fitted(raw: Column, kind: PropertyType) -> Fitted:
    """The column that the values become, and which cells are left open.

    What stands in an open cell means nothing: `fit` has to say whether it fits.
    """
    if kind.scalar is not Scalar.VECTOR and not kind.is_list:
        return _fitted_scalars(raw, kind.scalar)
    if pa.types.is_fixed_size_list(raw.type) or pa.types.is_large_list(raw.type):
        raw = raw.cast(pa.list_(raw.type.value_type))
    if not pa.types.is_list(raw.type):
        return _open(raw, kind)
    return _fitted_lists(raw, kind) if kind.is_list else _fitted_vectors(raw, kind)


def _open(raw: Column, kind: PropertyType) -> Fitted:
    return nulls(len(raw), column_type(kind)), as_mask(pc.is_valid(raw))


def _none(raw: Column) -> Mask:
    return np.zeros(len(raw), dtype=bool)


def _fitted_scalars(raw: Column, scalar: Scalar) -> Fitted:
    source, leaf = raw.type, PropertyType(scalar=scalar)
    number = pa.types.is_integer(source) or pa.types.is_floating(source)
    if scalar in INTEGERS and number:
        return _fitted_numbers(raw, column_type(leaf), INTEGER_BOUNDS[scalar])
    if scalar in FLOATS and number:
        return _fitted_floats(raw, scalar)
    if scalar in CALENDAR and pa.types.is_integer(source):
        count = pa.int32() if scalar is Scalar.DATE else pa.int64()
        numbers, left = _fitted_numbers(raw, count, calendar_bounds(scalar))
        return numbers.cast(column_type(leaf)), left
    if scalar in CALENDAR and pa.types.is_string(source):
        return _fitted_texts(raw, scalar)
    return (raw, _none(raw)) if source == column_type(leaf) else _open(raw, leaf)


def _fitted_numbers(raw: Column, target: Any, bounds: tuple[int, int]) -> Fitted:
    """Whole numbers within the bounds, each of which the source and the target type can say."""
    lowest, highest = bounds
    if pa.types.is_floating(raw.type):
        raw = raw.cast(pa.float64())
        lowest, highest = max(lowest, -FLOAT_EXACT_MAX), min(highest, FLOAT_EXACT_MAX)
        unsure = pc.or_(_outside(raw, lowest, highest), pc.not_equal(pc.floor(raw), raw))
        left = as_mask(pc.or_(unsure, pc.is_nan(raw)))
    else:
        least, most = _reach(raw.type)
        if lowest <= least and most <= highest:
            return raw.cast(target), _none(raw)
        left = as_mask(_outside(raw, max(least, lowest), min(most, highest)))
    if left.any():
        raw = pc.if_else(pa.array(left), pa.scalar(None, raw.type), raw)
    return raw.cast(target), left


def _outside(raw: Column, lowest: int, highest: int) -> Column:
    low, high = pa.scalar(lowest, raw.type), pa.scalar(highest, raw.type)
    return pc.or_(pc.less(raw, low), pc.greater(raw, high))


def _reach(source: Any) -> tuple[int, int]:
    """The first and the last number of an integer type."""
    bits = source.bit_width
    signed = pa.types.is_signed_integer(source)
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def _fitted_floats(raw: Column, scalar: Scalar) -> Fitted:
    wide = raw.cast(pa.float64(), safe=False)
    if scalar is Scalar.F64:
        return wide, _none(raw)
    narrow = wide.cast(pa.float32(), safe=False)
    overflown = pc.and_(pc.is_inf(narrow), pc.is_finite(wide))
    return narrow, as_mask(overflown)


def _fitted_texts(raw: Column, scalar: Scalar) -> Fitted:
    """Dates and moments. The numbers of each form are read at once."""
    lowest, highest = calendar_bounds(scalar)
    there = as_mask(pc.is_valid(raw))
    numbers, known = np.zeros(len(raw), dtype=np.int64), np.zeros(len(raw), dtype=bool)
    # Arrow has a year 0, the calendar has not.
    unread = there & ~as_mask(pc.starts_with(raw, "0000"))
    for form, types in _CALENDAR_TEXTS[scalar]:
        alike = unread & as_mask(pc.match_substring_regex(raw, form))
        if not alike.any():
            continue
        found = _read_texts(raw if alike.all() else raw.filter(pa.array(alike)), types)
        if found is not None:
            numbers[alike] = found
            known |= alike
        unread &= ~alike
        if not unread.any():
            break
    known &= (numbers >= lowest) & (numbers <= highest)
    count = np.int32 if scalar is Scalar.DATE else np.int64
    counts = pa.array(numbers.astype(count), mask=~known)
    return counts.cast(column_type(PropertyType(scalar=scalar))), there & ~known


def _read_texts(texts: Column, types: Sequence[tuple[Any, int]]) -> Any:
    """The numbers of texts, none of them null; None if one is no day or time."""
    for kind, units in types:
        try:
            found = np.asarray(counted(texts.cast(kind)))
        except pa.ArrowInvalid:
            continue
        return found // units  # down, also before 1970: digits that we do not keep are dropped
    return None


def _fitted_lists(raw: Column, kind: PropertyType) -> Fitted:
    items, left = _fitted_scalars(raw.flatten(), kind.scalar)
    wrong = left | as_mask(pc.is_null(items))
    return with_items(raw, items, column_type(kind)), lists_holding(raw, wrong)


def lists_holding(raw: Column, wrong: Mask) -> Mask:
    """The lists that hold one of these items."""
    lists = _none(raw)
    if not wrong.any():
        return lists
    # Not Arrow's parent indices, which count items below nulls that flattening leaves out.
    lists[np.repeat(np.arange(len(raw)), _lengths(raw))[wrong]] = True
    return lists


def _fitted_vectors(raw: Column, kind: PropertyType) -> Fitted:
    target, items = column_type(kind), raw.flatten()
    if not (pa.types.is_floating(items.type) or pa.types.is_integer(items.type)):
        return _open(raw, kind)
    narrow = items.cast(pa.float64(), safe=False).cast(pa.float32(), safe=False)
    left = as_mask(pc.not_equal(pc.list_value_length(raw), kind.dimension))
    left |= lists_holding(raw, ~as_mask(pc.is_finite(narrow)))
    if not left.any() and not raw.null_count:
        return pa.FixedSizeListArray.from_arrays(narrow, type=target), left
    clean = pc.if_else(pa.array(left), pa.scalar(None, raw.type), raw)
    wide = clean.cast(pa.list_(pa.float64()), safe=False)
    return wide.cast(pa.list_(pa.float32()), safe=False).cast(target), left
