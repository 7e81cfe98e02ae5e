"""A total order of rows, and the first few of them without sorting the rest.

Nulls come first ascending and last descending; NaN is above every number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from omnigraph.engine.read.arrow import Array, DataType, pa, pc
from omnigraph.engine.read.column import Positions

TOP_ROWS_MIN: Final = 4096  # below this, sorting everything is as fast


class Span(Protocol):
    """Which rows of the order are shown."""

    @property
    def wanted(self) -> int | None: ...

    def of(self, count: int) -> slice: ...


class Everything:
    """All rows are shown."""

    wanted: int | None = None

    def of(self, count: int) -> slice:
        return slice(0, count)


@dataclass(frozen=True, slots=True)
class Key:
    """One sort key: its values for given rows, and its direction."""

    values: Callable[[Positions], Array]
    descending: bool


def order_rows(keys: Sequence[Key], count: int, span: Span) -> Positions:
    """The row numbers of the span, in order; the first key weighs most."""
    rows = np.arange(count, dtype=np.int64)
    if not keys:
        return rows[span.of(count)]
    first = keys[0].values(rows)
    if span.wanted is not None:
        best = first_rows(first, descending=keys[0].descending, wanted=span.wanted)
        if len(best) < count:
            rows, first = best, first.take(pa.array(best))
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
    return rows[span.of(len(rows))]


def _sorted(
    rows: Positions,
    runs: Positions,
    values: Array,
    descending: bool,  # noqa: FBT001 - passed on from a key
) -> tuple[Positions, Positions]:
    """Rows sorted by value within their runs, and the number of each row's new run."""
    columns = _sortable(values, descending=descending)
    if len(runs) and runs[0] != runs[-1]:  # runs ascend: otherwise there is only one
        columns = [runs, *columns]
    one_key = len(columns) == 1
    order = np.argsort(columns[0], kind="stable") if one_key else np.lexsort(columns[::-1])
    changed = np.zeros(len(rows), dtype=np.bool_)
    for column in columns:
        here = column[order]
        changed[1:] |= here[1:] != here[:-1]
    return rows[order], np.cumsum(changed)


def _tied(runs: Positions) -> Positions:
    """The places that share their run with a neighbour."""
    same = np.zeros(len(runs), dtype=np.bool_)
    if len(runs) > 1:
        pair = runs[1:] == runs[:-1]
        same[1:] |= pair
        same[:-1] |= pair
    return np.flatnonzero(same)


def first_rows(values: Array, *, descending: bool, wanted: int) -> Positions:
    """All rows that may be among the first `wanted` by this key, ties included, in row order."""
    count = len(values)
    if count < TOP_ROWS_MIN or wanted * 2 >= count:
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


def _best(values: Array, *, descending: bool, wanted: int) -> Positions:
    if wanted == 0:
        return np.empty(0, dtype=np.int64)
    if _is_number(values.type):
        numbers = values.to_numpy(zero_copy_only=False)
        if not (numbers.dtype.kind == "f" and np.isnan(numbers).any()):
            place = len(numbers) - wanted if descending else wanted - 1
            edge = np.partition(numbers, place)[place]
            return np.flatnonzero(numbers >= edge if descending else numbers <= edge)
        return np.arange(len(numbers), dtype=np.int64)
    values = _comparable(values)
    direction = "descending" if descending else "ascending"
    table = pa.table({"key": values})
    chosen = pc.select_k_unstable(table, k=wanted, sort_keys=[("key", direction)])
    edge = values[chosen[-1].as_py()]
    keep = pc.greater_equal(values, edge) if descending else pc.less_equal(values, edge)
    return np.flatnonzero(keep.to_numpy(zero_copy_only=False))


def _is_number(kind: DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _comparable(values: Array) -> Array:
    return values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values


def _sortable(values: Array, *, descending: bool) -> list[npt.NDArray[Any]]:
    """Arrays that sort ascending as the key should, the weightier one first."""
    if _is_number(values.type):
        missing = None
        if values.null_count:
            missing = values.is_null().to_numpy(zero_copy_only=False)
            values = values.fill_null(0)
        numbers = values.to_numpy(zero_copy_only=False)
        keys: list[npt.NDArray[Any]] = []
        if missing is not None:
            keys.append(missing if descending else ~missing)
            numbers = np.where(missing, 0, numbers)
        if numbers.dtype.kind == "f":
            nan = np.isnan(numbers)
            if nan.any():
                keys.append(~nan if descending else nan)
                numbers = np.where(nan, 0.0, numbers)
            return [*keys, -numbers if descending else numbers]
        return [*keys, ~numbers if descending else numbers]  # ~x turns integers round, all of them
    ranks = ordered_codes(values)
    return [~ranks if descending else ranks]


def ordered_codes(values: Array) -> Positions:
    """Equal values have equal numbers, greater values greater ones, null the smallest."""
    if _is_number(values.type):
        numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
        _, codes = np.unique(numbers, return_inverse=True)
        codes = np.asarray(codes, dtype=np.int64) + 1
        if values.null_count:
            codes[values.is_null().to_numpy(zero_copy_only=False)] = 0
        return codes
    if pa.types.is_nested(values.type):
        return _ranked_lists(values)
    coded = _comparable(values).dictionary_encode()
    order = pc.sort_indices(coded.dictionary).to_numpy()
    ranks = np.empty(len(order) + 1, dtype=np.int64)
    ranks[order] = np.arange(1, len(order) + 1, dtype=np.int64)
    ranks[-1] = 0  # a null has no code of its own and looks here
    return np.asarray(ranks[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)])


def _ranked_lists(values: Array) -> Positions:
    """Lists by their first different element, null the smallest."""
    codes = equal_codes(values)
    lists = {code: values[row].as_py() for row, code in enumerate(codes.tolist()) if code >= 0}
    order = sorted(lists, key=lambda code: [(item is not None, item) for item in lists[code]])
    ranks = np.zeros(len(order) + 1, dtype=np.int64)  # a null's code is -1: it looks at the end
    ranks[order] = np.arange(1, len(order) + 1, dtype=np.int64)
    return np.asarray(ranks[codes])


def equal_codes(values: Array) -> Positions:
    """Equal values have equal numbers; null is -1."""
    if pa.types.is_nested(values.type):
        seen: dict[str, int] = {}
        texts = [None if one is None else repr(one) for one in values.to_pylist()]
        return np.fromiter(
            (-1 if one is None else seen.setdefault(one, len(seen)) for one in texts),
            dtype=np.int64,
            count=len(texts),
        )
    if pa.types.is_floating(values.type):
        values = pc.add(values, pa.scalar(0, values.type))  # -0 is encoded apart from 0
    coded = values.dictionary_encode()
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return np.asarray(codes, dtype=np.int64)
