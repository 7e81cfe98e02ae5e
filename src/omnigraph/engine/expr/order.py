"""Which values are equal in groups, which comes first, and rows in that order.

Null comes first ascending and last descending. NaN is above every number and equal to itself,
whatever its bits; -0.0 equals 0.0. Text is ordered by code point, a list by its first different
element, the shorter one first where one begins the other. Of an order that is not shown whole, only
the rows that can be among the first are sorted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, DataType, pa, pc, picked
from omnigraph.storage.lance.columns import equal_floats

Codes = npt.NDArray[np.int64]
RowNumbers = npt.NDArray[np.int64]

_PADDED_MAX: Final = 1 << 24  # elements; lists of very different lengths are compared one by one
TOP_ROWS_MIN: Final = 4096  # below this, sorting everything is as fast as finding the first


def equal_codes(values: Array) -> Codes:
    """Equal values have equal numbers; null is -1."""
    if pa.types.is_nested(values.type):
        return _list_ranks(values)
    coded = equal_floats(values).dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.asarray(codes, dtype=np.int64)


def row_keys(columns: Sequence[Codes]) -> Codes:
    """One integer per row, equal exactly where the rows are equal."""
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


def ordered_codes(values: Array) -> Codes:
    """Equal values have equal numbers, greater values greater ones, null the smallest."""
    if is_number(values.type):
        # NumPy's `unique` puts all NaN into one place behind the rest, and takes -0 for 0.
        numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
        _, codes = np.unique(numbers, return_inverse=True)
        codes = np.asarray(codes, dtype=np.int64) + 1
        if values.null_count:
            codes[values.is_null().to_numpy(zero_copy_only=False)] = 0
        return codes
    if pa.types.is_nested(values.type):
        return _list_ranks(values) + 1
    coded = comparable(values).dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    ranks = np.empty(len(order) + 1, dtype=np.int64)
    ranks[order] = np.arange(1, len(order) + 1, dtype=np.int64)
    ranks[-1] = 0  # a null has no code of its own and looks here
    return np.asarray(ranks[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])


def sortable(values: Array, *, descending: bool) -> list[npt.NDArray[Any]]:
    """Arrays that sort ascending as the values should, the weightier one first."""
    if not is_number(values.type):
        ranks = ordered_codes(values)
        return [~ranks if descending else ranks]
    keys: list[npt.NDArray[Any]] = []
    if values.null_count:
        missing = values.is_null().to_numpy(zero_copy_only=False)
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
    """The values in a type that Arrow sorts: it knows no order of booleans."""
    return values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values


def _list_ranks(values: Array) -> Codes:
    """Lists by their first different element, the shorter first if there is none; null is -1."""
    there = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
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


class Key(msgspec.Struct, frozen=True):
    """One sort key: its values for given rows, and its direction."""

    values: Callable[[RowNumbers], Array]
    descending: bool


def order_rows(keys: Sequence[Key], count: int, window: Window) -> RowNumbers:
    """The row numbers of the window, in order; the first key weighs most."""
    rows = np.arange(count, dtype=np.int64)
    if not keys:
        return rows[window.of(count)]
    first = keys[0].values(rows)
    if window.wanted is not None:
        best = first_rows(first, descending=keys[0].descending, wanted=window.wanted)
        if len(best) < count:
            rows, first = best, picked(first, best)
    rows, runs = _sorted(rows, np.zeros(len(rows), dtype=np.int64), first, keys[0].descending)
    for key in keys[1:]:
        tied = _tied(runs)
        if not len(tied):
            break
        rows[tied], deeper = _sorted(rows[tied], runs[tied], key.values(rows[tied]), key.descending)
        # New runs stay within the old ones, so their numbers may start from each old number.
        fresh = np.zeros(len(rows), dtype=np.int64)
        fresh[tied] = deeper
        _, runs = np.unique(np.stack([runs, fresh]), axis=1, return_inverse=True)
        runs = np.asarray(runs, dtype=np.int64).reshape(-1)
    return rows[window.of(len(rows))]


def _sorted(
    rows: RowNumbers,
    runs: RowNumbers,
    values: Array,
    descending: bool,  # noqa: FBT001 - passed on from a key
) -> tuple[RowNumbers, RowNumbers]:
    """RowNumbers sorted by value within their runs, and the number of each row's new run."""
    columns = sortable(values, descending=descending)
    if len(runs) and runs[0] != runs[-1]:  # runs ascend: otherwise there is only one
        columns = [runs, *columns]
    one_key = len(columns) == 1
    order = np.argsort(columns[0], kind="stable") if one_key else np.lexsort(columns[::-1])
    changed = np.zeros(len(rows), dtype=np.bool_)
    for column in columns:
        here = column[order]
        changed[1:] |= here[1:] != here[:-1]
    return rows[order], np.cumsum(changed)


def _tied(runs: RowNumbers) -> RowNumbers:
    """The places that share their run with a neighbour."""
    same = np.zeros(len(runs), dtype=np.bool_)
    if len(runs) > 1:
        pair = runs[1:] == runs[:-1]
        same[1:] |= pair
        same[:-1] |= pair
    return np.flatnonzero(same)


def first_rows(values: Array, *, descending: bool, wanted: int) -> RowNumbers:
    """All rows that may be among the first `wanted` by this key, ties included, in row order."""
    count = len(values)
    # Arrow has no order of lists: asked for the first of them, it kills the process.
    if count < TOP_ROWS_MIN or wanted * 2 >= count or pa.types.is_nested(values.type):
        return np.arange(count, dtype=np.int64)
    missing = values.is_null().to_numpy(zero_copy_only=False)
    nulls = np.flatnonzero(missing)
    if not descending and len(nulls) >= wanted:
        return nulls
    left = wanted if descending else wanted - len(nulls)
    there = np.flatnonzero(~missing)
    if left >= len(there):
        return np.arange(count, dtype=np.int64)
    best = there[_best(values.filter(values.is_valid()), descending=descending, wanted=left)]
    return best if descending or not len(nulls) else np.sort(np.concatenate([nulls, best]))


def _best(values: Array, *, descending: bool, wanted: int) -> RowNumbers:
    if wanted == 0:
        return np.empty(0, dtype=np.int64)
    if is_number(values.type):
        numbers = values.to_numpy(zero_copy_only=False)
        if not (numbers.dtype.kind == "f" and np.isnan(numbers).any()):
            place = len(numbers) - wanted if descending else wanted - 1
            edge = np.partition(numbers, place)[place]
            return np.flatnonzero(numbers >= edge if descending else numbers <= edge)
        return np.arange(len(numbers), dtype=np.int64)
    values = comparable(values)
    direction = "descending" if descending else "ascending"
    table = pa.table({"key": values})
    chosen = pc.select_k_unstable(table, k=wanted, sort_keys=[("key", direction)])
    edge = values[chosen[-1].as_py()]
    keep = pc.greater_equal(values, edge) if descending else pc.less_equal(values, edge)
    return np.flatnonzero(keep.to_numpy(zero_copy_only=False))
