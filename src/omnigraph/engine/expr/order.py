"""Which values are equal in groups, and which comes first: the total order of each type.

Null comes first ascending and last descending. NaN is above every number and equal to itself,
whatever its bits; -0.0 equals 0.0. Text is ordered by code point, a list by its first different
element, the shorter one first where one begins the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, DataType, pa, pc

Codes = npt.NDArray[np.int64]

_PADDED_MAX: Final = 1 << 24  # elements; lists of very different lengths are compared one by one


def equal_codes(values: Array) -> Codes:
    """Equal values have equal numbers; null is -1."""
    if pa.types.is_nested(values.type):
        return _list_ranks(values)
    if pa.types.is_floating(values.type):
        values = _plain_floats(values)
    coded = values.dictionary_encode()
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


def _plain_floats(values: Array) -> Array:
    """One 0 and one NaN: Arrow encodes floats by their bits."""
    values = pc.add(values, pa.scalar(0, values.type))
    return pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), values)


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
    places = {one: rank for rank, one in enumerate(sorted(set(lists)))}
    ranks[there] = [places[one] for one in lists]
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
