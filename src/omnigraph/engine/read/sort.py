"""Rows in the total order of their keys, and the first few of them without sorting the rest.

Which value comes first is said by `engine/expr/order.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from omnigraph.engine.arrow import Array, pa, pc
from omnigraph.engine.expr.order import comparable, is_number, sortable
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


def _best(values: Array, *, descending: bool, wanted: int) -> Positions:
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
