"""Which values are equal in groups, which comes first, and rows in that order.

Null comes first ascending and last descending. NaN is above every number and equal to itself,
whatever its bits; -0.0 equals 0.0. Text is ordered by code point, a list by its first different
element, the shorter one first where one begins the other. Of an order that is not shown whole, the
first rows are selected, and only these are sorted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, DataType, as_mask, counted, int64_array, pa, pc, picked
from omnigraph.storage.lance.columns import equal_floats

Codes = npt.NDArray[np.int64]
RowNumbers = npt.NDArray[np.int64]
Sorted = tuple[RowNumbers, npt.NDArray[np.bool_]]  # and where the value changes

_PADDED_MAX: Final = 1 << 24  # elements; lists of very different lengths are compared one by one
FEW_TEXTS_MAX: Final = 64  # Python and Arrow take equally long for about twice as many
TOP_ROWS_MIN: Final = 4096  # below this, sorting everything is as fast as finding the first
SAMPLE_ROWS: Final = 4096  # so many rows tell about where the first rows end
PART_ROWS: Final = 1 << 17  # rows that a selection looks at together
NEAR_RANGE_MAX: Final = 1 << 15  # whole numbers of a smaller range are codes of themselves
COUNTED_RANGE_MAX: Final = 1 << 16  # Arrow counts whole numbers of so small a range, as of 26.0

NO_ROWS: Final[RowNumbers] = np.empty(0, dtype=np.int64)


def equal_codes(values: Array) -> Codes:
    """Equal values have equal numbers; null is -1."""
    if pa.types.is_nested(values.type):
        return _list_ranks(values)
    near = _near_codes(counted(values))
    if near is not None:
        return near
    coded = equal_floats(values).dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.asarray(codes, dtype=np.int64)


def one_of_equals(values: Array) -> Array:
    """What is shown of values that are equal: 0.0 for -0.0, in lists too. So it does not matter
    which of them was met first."""
    if not pa.types.is_nested(values.type):
        return equal_floats(values)
    if not pa.types.is_floating(values.type.value_type):
        return values
    numbers = values.flatten().fill_null(0).to_numpy(zero_copy_only=False)
    if not np.any((numbers == 0) & np.signbit(numbers)):
        return values
    shown = [
        None if cell is None else [None if number is None else number + 0.0 for number in cell]
        for cell in values.to_pylist()
    ]
    return pa.array(shown, values.type)


def _near_codes(values: Array) -> Codes | None:
    """The same for whole numbers that are all near to each other: how far each is from the least.
    A table of such numbers is an array, so none is hashed."""
    if not pa.types.is_integer(values.type) or values.null_count == len(values):
        return None
    ends = pc.min_max(values)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if most - least >= min(NEAR_RANGE_MAX, len(values)):
        return None
    numbers = _numbers(values)
    if numbers.dtype == np.uint64:
        numbers, least = numbers - np.uint64(least), 0  # they may be beyond an int64
    codes: Codes = numbers.astype(np.int64) - least
    if values.null_count:
        codes[as_mask(values.is_null())] = -1
    return codes


def row_keys(columns: Sequence[Codes]) -> Codes:
    """One integer per row, in the order of the rows: equal exactly where the rows are equal."""
    keys = columns[0]
    for column in columns[1:]:
        low = int(column.min(initial=0))
        width = int(column.max(initial=0)) - low + 1
        top = int(keys.max(initial=0)) + 1
        if top * width >= 1 << 62:
            _, inverse = np.unique(keys, return_inverse=True)
            keys = np.asarray(inverse, dtype=np.int64)
        keys = keys * width + (column - low)
    return keys


def numbered_rows(parts: Sequence[Sequence[Array]], counts: Sequence[int]) -> tuple[Codes, Codes]:
    """Equal rows of several tables have equal numbers; and the first row of each number."""
    columns = [equal_codes(pa.concat_arrays(column)) + 1 for column in zip(*parts, strict=True)]
    if not columns:
        return np.zeros(sum(counts), dtype=np.int64), np.zeros(1, dtype=np.int64)
    _, first, codes = np.unique(row_keys(columns), return_index=True, return_inverse=True)
    return np.asarray(codes, dtype=np.int64), first


def ordered_codes(values: Array) -> Codes:
    """Equal values have equal numbers, greater values greater ones, null the smallest."""
    if pa.types.is_nested(values.type):
        return _list_ranks(values) + 1
    values = comparable(values)
    if is_number(values.type):
        # NumPy's `unique` puts all NaN into one place behind the rest, and takes -0 for 0.
        numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
        _, codes = np.unique(numbers, return_inverse=True)
        codes = np.asarray(codes, dtype=np.int64) + 1
        if values.null_count:
            codes[as_mask(values.is_null())] = 0
        return codes
    coded = values.dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    ranks = np.empty(len(order) + 1, dtype=np.int64)
    ranks[order] = np.arange(1, len(order) + 1, dtype=np.int64)
    ranks[-1] = 0  # a null has no code of its own and looks here
    return np.asarray(ranks[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])


def sortable(values: Array, *, descending: bool) -> list[npt.NDArray[Any]]:
    """Arrays that sort ascending as the numbers should, the weightier one first."""
    keys: list[npt.NDArray[Any]] = []
    if values.null_count:
        missing = as_mask(values.is_null())
        keys.append(missing if descending else ~missing)
        values = values.fill_null(0)
    numbers = values.to_numpy(zero_copy_only=False)
    if numbers.dtype.kind != "f":
        return [*keys, ~numbers if descending else numbers]  # ~x turns integers round, all of them
    nan = np.isnan(numbers)
    if nan.any():
        keys.append(~nan if descending else nan)
        numbers = np.where(nan, 0.0, numbers)
    return [*keys, -numbers if descending else numbers]


def is_number(kind: DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def comparable(values: Array) -> Array:
    """The values as numbers or as text in the same order: Arrow orders no booleans and no lists.

    Asked for the first of some lists, it even kills the process.
    """
    if pa.types.is_nested(values.type):
        return int64_array(_list_ranks(values))
    return values.cast(pa.int8()) if pa.types.is_boolean(values.type) else counted(values)


def _list_ranks(values: Array) -> Codes:
    """Lists by their first different element, the shorter first if there is none; null is -1."""
    there = np.flatnonzero(as_mask(values.is_valid()))
    lengths = pc.list_value_length(values).drop_null().to_numpy(zero_copy_only=False)
    items = ordered_codes(pc.list_flatten(values)) + 1  # 0 is left for the place after the last
    ranks = np.full(len(values), -1, dtype=np.int64)
    width = int(lengths.max(initial=0))
    if len(there) * width <= _PADDED_MAX:
        ranks[there] = _ranked(items, lengths, width)
        return ranks
    ends = np.cumsum(lengths, dtype=np.int64)
    lists = [
        tuple(items[end - length : end].tolist()) for end, length in zip(ends, lengths, strict=True)
    ]
    places = {items: rank for rank, items in enumerate(sorted(set(lists)))}
    ranks[there] = [places[items] for items in lists]
    return ranks


def _ranked(items: Codes, lengths: npt.NDArray[Any], width: int) -> Codes:
    """The same by sorting bytes: big-endian numbers side by side, zeros behind the last."""
    if not width:
        return np.zeros(len(lengths), dtype=np.int64)
    ends = np.cumsum(lengths, dtype=np.int64)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    padded = np.zeros((len(lengths), width), dtype=">u8")
    padded[rows, np.arange(len(items)) - np.repeat(ends - lengths, lengths)] = items
    _, ranks = np.unique(padded.view(f"V{8 * width}").reshape(-1), return_inverse=True)
    return np.asarray(ranks, dtype=np.int64)


# --- rows in order -----------------------------------------------------------------------------


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of an order are shown: `offset` and `limit`; no limit is None."""

    offset: int = 0
    limit: int | None = None

    @property
    def wanted(self) -> int | None:
        """How many rows are needed from the start; None for all."""
        return None if self.limit is None else self.offset + self.limit

    @property
    def whole(self) -> bool:
        """Whether every row is shown."""
        return self.limit is None and self.offset == 0

    def of(self, count: int) -> slice:
        return slice(min(self.offset, count), count if self.wanted is None else self.wanted)


class Ends(Protocol):
    """Between which values some rows are; `least` and `most` are None without such values."""

    @property
    def least(self) -> Any: ...
    @property
    def most(self) -> Any: ...
    @property
    def nulls(self) -> int: ...
    @property
    def has_nan(self) -> bool: ...


class Piece(msgspec.Struct, frozen=True):
    """Rows that follow one another: how many, their values, and the ends of these if known."""

    count: int
    values: Callable[[], Array]
    ends: Callable[[], Ends | None]


class Key(msgspec.Struct, frozen=True):
    """One sort key: its values for all rows, its values for some rows, and its direction.

    Where all rows are known in pieces, a selection looks only at those that can hold its rows.
    """

    whole: Callable[[], Array]
    at: Callable[[RowNumbers], Array]
    descending: bool
    pieces: Sequence[Piece] = ()

    @classmethod
    def of(cls, values: Array, *, descending: bool) -> Key:
        return cls(lambda: values, partial(picked, values), descending)


def order_rows(keys: Sequence[Key], count: int, window: Window) -> RowNumbers:
    """The row numbers of the window, in order; the first key weighs most, the row number least."""
    wanted = window.wanted
    if wanted is None or count < TOP_ROWS_MIN or wanted * 2 >= count:
        rows = _sorted_rows(keys, count)
    else:
        best = first_rows(keys, count, wanted)
        chosen = [Key.of(key.at(best), descending=key.descending) for key in keys]
        rows = best[_sorted_rows(chosen, len(best))]
    return rows[window.of(len(rows))]


# --- all rows, sorted ---


def _sorted_rows(keys: Sequence[Key], count: int) -> RowNumbers:
    """All row numbers, sorted by the keys; later keys are asked for only where rows are tied."""
    rows = np.arange(count, dtype=np.int64)
    if count < 2 or not keys:
        return rows
    rows, starts = _sorted(keys[0].whole(), None, descending=keys[0].descending)
    for key in keys[1:]:
        tied = _tied(starts)
        if not len(tied):
            return rows
        some = rows[tied]
        order, fresh = _sorted(
            key.at(some), np.cumsum(starts, dtype=np.int64)[tied], descending=key.descending
        )
        rows[tied] = some[order]
        starts[tied] |= fresh  # a run stays at its places, so the old starts remain
    tied = _tied(starts)
    if len(tied):  # by row number: a run and a row as one number, which fits for 2^31 rows
        assert count < 1 << 31, "positions of a frame have 31 bits"
        rows[tied] = np.sort((np.cumsum(starts)[tied] << 31) | rows[tied]) & ((1 << 31) - 1)
    return rows


def _sorted(values: Array, runs: RowNumbers | None, *, descending: bool) -> Sorted:
    """The order of the values, within their runs if there are some, and where it changes.

    A run is a number, and runs ascend. Equal values come in any order.
    """
    values = comparable(values)
    starts = np.zeros(len(values), dtype=np.bool_)
    if is_number(values.type):
        columns = sortable(values, descending=descending)
        if runs is not None:
            columns = [runs, *columns]
        order = np.lexsort(columns[::-1]) if len(columns) > 1 else _number_order(columns[0])
        for column in columns:
            here = column[order]
            starts[1:] |= here[1:] != here[:-1]
        return order, starts
    if len(values) <= FEW_TEXTS_MAX and pa.types.is_string(values.type):
        return _few_sorted(values, runs, descending=descending)
    order = _text_order(values, runs, descending=descending)
    ordered = picked(values, order)
    here, before = ordered.slice(1), ordered.slice(0, len(ordered) - 1)
    differ = pc.fill_null(pc.not_equal(here, before), fill_value=False)
    if values.null_count:
        differ = pc.or_(differ, pc.xor(here.is_null(), before.is_null()))
    starts[1:] = as_mask(differ)
    if runs is not None:
        starts[1:] |= runs[1:] != runs[:-1]  # sorting leaves each run at its places
    return order, starts


def _few_sorted(values: Array, runs: RowNumbers | None, *, descending: bool) -> Sorted:
    """The same for few texts: Python has them in order before Arrow begins."""
    told: list[Any] = [(text is not None, text) for text in values.to_pylist()]
    order = sorted(range(len(told)), key=told.__getitem__, reverse=descending)
    if runs is not None:
        told = [*zip(runs.tolist(), told, strict=True)]
        order.sort(key=[run for run, _ in told].__getitem__)
    starts = [told[one] != told[before] for before, one in pairwise(order)]
    return np.asarray(order, dtype=np.int64), np.asarray([False, *starts])


def _number_order(numbers: npt.NDArray[Any]) -> RowNumbers:
    # Arrow counts whole numbers of a small range instead of sorting them; NumPy sorts with wide
    # registers, but not when it must keep the order of equals.
    whole = numbers.dtype.kind in "iu"
    if whole and int(numbers.max()) - int(numbers.min()) <= COUNTED_RANGE_MAX:
        return np.asarray(pc.sort_indices(pa.array(numbers)), dtype=np.int64)
    return np.asarray(np.argsort(numbers), dtype=np.int64)


def _text_order(values: Array, runs: RowNumbers | None, *, descending: bool) -> RowNumbers:
    direction = "descending" if descending else "ascending"
    columns, keys = {"value": values}, [("value", direction)]
    if values.null_count:  # where nulls go is told in one way by old Arrow, in another by new
        columns["there"] = values.is_valid().cast(pa.int8())
        keys = [("there", direction), *keys]
    if runs is not None:
        columns["run"] = int64_array(runs)
        keys = [("run", "ascending"), *keys]
    found = pc.sort_indices(values if len(keys) == 1 else pa.table(columns), sort_keys=keys)
    return np.asarray(found, dtype=np.int64)


def _tied(starts: npt.NDArray[np.bool_]) -> RowNumbers:
    """The places that are equal to a neighbour; `starts` tells where a value differs from the one
    before it."""
    same = np.zeros(len(starts), dtype=np.bool_)
    same[1:] = ~starts[1:]
    same[:-1] |= same[1:]
    return np.flatnonzero(same)


# --- the first rows, selected ---


def first_rows(keys: Sequence[Key], count: int, wanted: int) -> RowNumbers:
    """The first `wanted` rows of the order, by row number: no row is sorted for it.

    A key has an *edge*: the value of the last row wanted. Rows before the edge are in; of the rows
    at the edge only the missing number is, and the next key chooses among these in the same way.
    """
    assert 0 <= wanted <= count, "a selection takes some of the rows"
    chosen: list[RowNumbers] = []
    some: RowNumbers | None = None  # the rows at the edge; as long as it is None they are all rows
    for key in keys:
        if wanted == 0:
            break
        parts = _parts(key, wanted) if some is None else _cut(key.at(some))
        asked = count if some is None else len(some)
        # Parts that were left out are not equal to those that were not.
        if sum(len(part.values) for part in parts) == asked and _all_equal(parts):
            continue  # this key tells nothing
        before, edge = _divided(parts, descending=key.descending, wanted=wanted)
        if len(edge) == asked:
            continue
        chosen.append(before if some is None else some[before])
        some = edge if some is None else some[edge]
        wanted -= len(before)
        if len(some) == wanted:
            break
    chosen.append(np.arange(wanted, dtype=np.int64) if some is None else some[:wanted])
    return np.sort(np.concatenate(chosen))


class _Part(msgspec.Struct, frozen=True):
    """Values that are numbers or text, and the row number of their first."""

    first: int
    values: Array

    def rows(self, flags: Array) -> RowNumbers:
        """Where the flags are true; null is not."""
        if flags.null_count:
            flags = pc.fill_null(flags, fill_value=False)
        return np.flatnonzero(as_mask(flags)) + self.first

    def there(self, places: RowNumbers) -> RowNumbers:
        """The rows at these places that are not null."""
        if self.values.null_count:
            valid = picked(self.values, places).is_valid()
            places = places[as_mask(valid)]
        return places + self.first


def _cut(values: Array) -> list[_Part]:
    values = comparable(values)
    return [
        _Part(first, values.slice(first, PART_ROWS)) for first in range(0, len(values), PART_ROWS)
    ]


def _parts(key: Key, wanted: int) -> list[_Part]:
    """The values of all rows; without those pieces that hold none of the first `wanted` rows and no
    row that is equal to the last of these."""
    ends = [piece.ends() for piece in key.pieces]
    known = [each for each in ends if each is not None]
    if not ends or len(known) < len(ends):
        return _cut(key.whole())
    best, worst = [*map(_lowest, known)], [*map(_highest, known)]
    if key.descending:
        best, worst = worst, best
    # Of the pieces that end first, so many that they have enough rows: the edge is not behind them.
    enough, rows = worst[0], 0
    for number in sorted(range(len(known)), key=worst.__getitem__, reverse=key.descending):
        enough, rows = worst[number], rows + key.pieces[number].count
        if rows >= wanted:
            break
    parts, first = [], 0
    for piece, begin in zip(key.pieces, best, strict=True):
        if begin >= enough if key.descending else begin <= enough:
            parts.append(_Part(first, comparable(piece.values())))
        first += piece.count
    return parts


def _all_equal(parts: Sequence[_Part]) -> bool:
    """Whether a look at their ends shows that all numbers are equal."""
    first: Any = None
    for part in parts:
        if not is_number(part.values.type) or part.values.null_count or not len(part.values):
            return False
        numbers = _numbers(part.values)
        least = numbers.min()
        if (first is not None and least != first) or least != numbers.max():  # NaN equals nothing
            return False
        first = least
    return True


def _lowest(ends: Ends) -> tuple[Any, ...]:
    return (0,) if ends.nulls else (2,) if ends.least is None else (1, ends.least)


def _highest(ends: Ends) -> tuple[Any, ...]:
    return (2,) if ends.has_nan else (0,) if ends.most is None else (1, ends.most)


def _divided(
    parts: Sequence[_Part], *, descending: bool, wanted: int
) -> tuple[RowNumbers, RowNumbers]:
    """The rows before the edge, and the rows at it: the value of row `wanted`, counted from 1."""
    count = sum(len(part.values) for part in parts)
    nulls = sum(part.values.null_count for part in parts)
    assert 0 < wanted <= count, "the edge is one of the values"
    missing = NO_ROWS
    if nulls and not (descending and wanted <= count - nulls):
        missing = _joined([part.rows(part.values.is_null()) for part in parts])
    if descending and wanted > count - nulls:
        return _joined([part.rows(part.values.is_valid()) for part in parts]), missing
    if not descending and wanted <= nulls:
        return NO_ROWS, missing
    before, edge = _divided_valid(parts, descending=descending, wanted=wanted - len(missing))
    return _joined([missing, before]), edge


def _divided_valid(
    parts: Sequence[_Part], *, descending: bool, wanted: int
) -> tuple[RowNumbers, RowNumbers]:
    """The same among the rows that are not null."""
    bound = _bound(parts, descending=descending, wanted=wanted)
    some = None
    if bound is not None:
        before = [_before(part, bound, descending=descending) for part in parts]
        if sum(map(len, before)) >= wanted:
            some = before
        else:  # many rows are equal to the bound, or the sample misled
            equal = [_equal(part, bound) for part in parts]
            if sum(map(len, [*before, *equal])) >= wanted:
                return _joined(before), _joined(equal)
    if some is None:
        some = [part.rows(part.values.is_valid()) for part in parts]
    values = _concatenated(
        [
            picked(part.values, rows - part.first)
            for part, rows in zip(parts, some, strict=True)
            if len(rows)
        ]
    )
    divide = _divided_numbers if is_number(values.type) else _divided_texts
    first, edge = divide(values, descending=descending, wanted=wanted)
    rows = _joined(some)
    return rows[first], rows[edge]


def _joined(rows: Sequence[RowNumbers]) -> RowNumbers:
    return np.concatenate(rows) if rows else NO_ROWS


def _concatenated(arrays: Sequence[Array]) -> Array:
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _bound(parts: Sequence[_Part], *, descending: bool, wanted: int) -> Any:
    """A value that is probably behind the first `wanted`, and before nearly all others; None if
    looking for one does not pay. It decides how many rows are looked at, never which are first."""
    step = sum(len(part.values) for part in parts) // SAMPLE_ROWS
    if step < 2:
        return None
    sample = _concatenated(
        [
            picked(part.values, np.arange(step // 2, len(part.values), step)).drop_null()
            for part in parts
        ]
    )
    expected = wanted / step
    place = int(expected + 4 * math.sqrt(expected) + 8)
    if place * 4 > len(sample):
        return None
    if is_number(sample.type):
        numbers = np.sort(sample.to_numpy())  # NaN is last
        return numbers[-1 - place] if descending else numbers[place]
    return sample[_text_order(sample, None, descending=descending)[place]]


def _before(part: _Part, bound: Any, *, descending: bool) -> RowNumbers:
    """All rows with a value before the bound; none of them is null."""
    if not is_number(part.values.type):
        found = (pc.greater if descending else pc.less)(part.values, bound)
        return part.rows(found) if found.true_count else NO_ROWS
    numbers = _numbers(part.values)
    # NaN is above every number, and no comparison with it is true.
    if descending:
        flags = np.zeros(len(numbers), np.bool_) if bound != bound else ~(numbers <= bound)
    else:
        flags = ~np.isnan(numbers) if bound != bound else numbers < bound
    return part.there(np.flatnonzero(flags))


def _equal(part: _Part, bound: Any) -> RowNumbers:
    """All rows with this value."""
    if not is_number(part.values.type):
        return part.rows(pc.equal(part.values, bound))
    numbers = _numbers(part.values)
    return part.there(np.flatnonzero(np.isnan(numbers) if bound != bound else numbers == bound))


def _numbers(values: Array) -> npt.NDArray[Any]:
    """The numbers as they lie in memory, with anything at all where there is a null."""
    bare = pa.Array.from_buffers(
        values.type, len(values), [None, values.buffers()[1]], offset=values.offset
    )
    return np.asarray(bare.to_numpy())


def _divided_numbers(
    values: Array, *, descending: bool, wanted: int
) -> tuple[RowNumbers, RowNumbers]:
    numbers = _numbers(values)
    if numbers.dtype.kind == "f":
        nan = np.isnan(numbers)
        nans = int(np.count_nonzero(nan))
        if descending and wanted <= nans:
            return NO_ROWS, np.flatnonzero(nan)
        if not descending and wanted > len(numbers) - nans:
            return np.flatnonzero(~nan), np.flatnonzero(nan)
    # NumPy puts NaN last, so counted from the end they come first: as the order has it.
    place = len(numbers) - wanted if descending else wanted - 1
    edge = np.partition(numbers, place)[place]
    before = ~(numbers <= edge) if descending else numbers < edge
    return np.flatnonzero(before), np.flatnonzero(numbers == edge)


def _divided_texts(
    values: Array, *, descending: bool, wanted: int
) -> tuple[RowNumbers, RowNumbers]:
    direction = "descending" if descending else "ascending"
    first = pc.select_k_unstable(values, k=wanted, sort_keys=[("", direction)])
    edge = values[first[-1].as_py()]
    before = (pc.greater if descending else pc.less)(values, edge)
    whole = _Part(0, values)
    return whole.rows(before), whole.rows(pc.equal(values, edge))
