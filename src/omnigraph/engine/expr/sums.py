"""Sums by group that are exact: what is rounded is the sum of all values, once.

So neither the order of rows nor how they were cut into pieces can show in an answer. A float is
taken apart into multiples of powers of two that are few enough bits wide for a plain sum of them to
be exact; of usual numbers the first such part is all there is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.model.values import FLOAT_EXACT_MAX

Codes = npt.NDArray[Any]  # the group of each row
Floats = npt.NDArray[np.float64]
Totals = npt.NDArray[Any]  # int64, or Python integers where those could overflow
_Block = tuple[Codes | None, npt.NDArray[Any]]  # some rows: their groups and values

_MANTISSA_BITS: Final = 53
_LEAST_EXPONENT: Final = -1074  # of the smallest float
_TOP_STEP: Final = 8  # the first part begins at such a bit, so that parts of pieces have one unit
BLOCK_ROWS: Final = 1 << 15  # what is computed of so many rows fits the processor's cache
_ADDED_MAX: Final = 1 << 9  # sums of 53 bits that an int64 surely holds


class FloatPart(msgspec.Struct, frozen=True):
    """The exact sums of one piece of rows: whole numbers of units, by the exponent of the unit."""

    units: list[tuple[int, Totals]]
    special: Floats | None  # the sum of infinities and NaN; None: there are none

    def mapped(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> FloatPart:
        """The same with other groups: a change of each array by group."""
        special = None if self.special is None else change(self.special)
        return FloatPart([(exponent, change(units)) for exponent, units in self.units], special)


@np.errstate(invalid="ignore")  # infinities of both signs, or a signalling NaN
def float_part(codes: Codes | None, values: Floats, groups: int) -> FloatPart:
    """The sums of these values; without codes there is one group."""
    special = None
    most = _most(values)
    if not math.isfinite(most):
        there = np.isfinite(values)
        odd = None if codes is None else codes[~there]
        special = _added([(odd, values[~there])], groups)
        values, codes = values[there], None if codes is None else codes[there]
        most = _most(values)
    units: list[tuple[int, Totals]] = []
    # So many numbers of so many bits can be added without rounding. One number counts for two:
    # `_leading` needs them below a quarter of what it adds.
    bits = _MANTISSA_BITS - max(2, len(values)).bit_length()
    top = -(-math.frexp(most)[1] // _TOP_STEP) * _TOP_STEP
    blocks: Iterable[_Block] = _blocks(codes, values)
    while most:
        exponent = max(top - bits, _LEAST_EXPONENT)
        sums, scale, left = _leading_sums(blocks, exponent, groups)
        units.append((exponent, np.ldexp(sums, scale - exponent).astype(np.int64)))
        if not left:
            break
        assert exponent > _LEAST_EXPONENT, "nothing is smaller than the smallest float"
        blocks, most = left, max(_most(some) for _, some in left)
        skipped = max(0, exponent - math.frexp(most)[1]) // bits
        top = exponent - skipped * bits
    return FloatPart(units, special)


def _most(values: Floats) -> float:
    return max(-float(values.min(initial=0)), float(values.max(initial=0)))


def _blocks(codes: Codes | None, values: npt.NDArray[Any]) -> Iterator[_Block]:
    """The rows in blocks, one after the other: all of them at once would be as big as the rows."""
    for start in range(0, len(values), BLOCK_ROWS):
        here = slice(start, start + BLOCK_ROWS)
        yield None if codes is None else codes[here].astype(np.int64), values[here]


def _leading_sums(
    blocks: Iterable[_Block], exponent: int, groups: int
) -> tuple[Floats, int, list[_Block]]:
    """The sums of the leading parts, to be scaled by 2^(the second), and what is left then."""
    sums, scale = np.zeros(groups), 0
    rest: list[_Block] = []
    for codes, values in blocks:
        leading, scale = _leading(values, exponent)
        _add(sums, codes, leading)
        left = values - (leading if not scale else np.ldexp(leading, scale))
        there = left != 0
        many = np.count_nonzero(there)
        if not many:
            continue
        if many * 4 < len(left):
            at = np.flatnonzero(there)
            codes, left = None if codes is None else codes[at], left[at]
        rest.append((codes, left))
    return sums, scale, rest


def _leading(values: Floats, exponent: int) -> tuple[Floats, int]:
    """The part of the values in multiples of 2^exponent, to be scaled by 2^(the second)."""
    if exponent + _MANTISSA_BITS < 1023:
        # At this size floats are 2^exponent apart, so adding it rounds.
        big = math.ldexp(1.5, exponent + _MANTISSA_BITS - 1)
        leading = values + big
        leading -= big
        return leading, 0
    # Cut off, not rounded: the next multiple may be beyond every float.
    return np.trunc(np.ldexp(values, -exponent)), exponent


def _added(blocks: Iterable[_Block], groups: int) -> Floats:
    sums = np.zeros(groups)
    for codes, values in blocks:
        _add(sums, codes, values)
    return sums


def _add(sums: npt.NDArray[Any], codes: Codes | None, values: npt.NDArray[Any]) -> None:
    """Add each value to the sum of its group."""
    if codes is None:
        sums[0] += values.sum(dtype=sums.dtype)
    else:
        np.add.at(sums, codes, values)


def float_total(parts: Iterable[FloatPart], groups: int) -> FloatPart:
    """The exact sums of all pieces."""
    totals: dict[int, Totals] = {}
    special: Floats | None = None
    for number, part in enumerate(parts):
        for exponent, units in part.units:
            known = totals.get(exponent, np.zeros(groups, dtype=np.int64))
            if number >= _ADDED_MAX:
                known = known.astype(np.object_)
            totals[exponent] = known + units
        if part.special is not None:
            with np.errstate(invalid="ignore"):
                special = part.special if special is None else special + part.special
    return FloatPart([*totals.items()], special)


@np.errstate(over="ignore", invalid="ignore")
def fewer(codes: Codes, values: Floats, groups: int) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """A number for some of the rows, and which: those of a group have the same exact sum as its
    values, and are fewer if that can be."""
    part = float_part(codes, values, groups)
    told = [np.ldexp(units.astype(np.float64), exponent) for exponent, units in part.units]
    table = np.reshape(np.array(told), (len(told), groups))
    sizes = np.bincount(codes, minlength=groups)
    fits = np.isfinite(table).all(axis=0)  # else a sum is beyond every float
    if part.special is not None:
        table = np.vstack([table, part.special])
    there = (table != 0).T
    fits &= there.sum(axis=1) <= sizes
    kept = ~fits[codes]
    found = np.where(kept, values, 0.0)
    # What a group comes to is put into its first rows.
    group, number = np.nonzero(there & fits[:, None])
    counts = np.bincount(group, minlength=groups)
    place = np.arange(len(group)) - (np.cumsum(counts) - counts)[group]
    rows = np.argsort(codes, kind="stable")[(np.cumsum(sizes) - sizes)[group] + place]
    found[rows], kept[rows] = table[number, group], True
    return found, kept


def rounded(total: FloatPart, groups: int) -> Floats:
    """The sums as floats, each rounded once; beyond every float, infinite."""
    sums, used = np.zeros(groups), np.zeros(groups, dtype=np.int64)
    wide = np.zeros(groups, dtype=np.bool_)
    with np.errstate(over="ignore", invalid="ignore"):
        for exponent, units in total.units:
            sums += np.ldexp(units.astype(np.float64), exponent)
            used += units != 0
            wide |= abs(units) > FLOAT_EXACT_MAX
    # One unit is rounded once, when it becomes a float. Two that are exact are rounded once, when
    # they are added. Of all others Python adds and rounds.
    hard = (used > 2) | ((used == 2) & wide) | ~np.isfinite(sums)
    least = min((exponent for exponent, _ in total.units), default=0)
    for group in np.flatnonzero(hard).tolist():
        whole = sum(int(units[group]) << (exponent - least) for exponent, units in total.units)
        sums[group] = _float(whole, least)
    return sums if total.special is None else np.where(total.special == 0, sums, total.special)


def _float(total: int, exponent: int) -> float:
    """total * 2^exponent, rounded once."""
    try:
        return total / (1 << -exponent) if exponent < 0 else float(total << exponent)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


# --- whole numbers -----------------------------------------------------------------------------


def integer_part(codes: Codes | None, values: npt.NDArray[Any], groups: int) -> Totals:
    """The exact sums of whole numbers; as Python integers where 64 bits could be too few."""
    most = max(abs(int(values.max(initial=0))), abs(int(values.min(initial=0))))
    if most * len(values) < FLOAT_EXACT_MAX:
        sums = np.zeros(groups, dtype=np.int64)
        for some, numbers in _blocks(codes, values):
            _add(sums, some, numbers.astype(np.int64))
        return sums
    at: Any = np.zeros(len(values), dtype=np.int64) if codes is None else codes
    halves = np.zeros((2, groups), dtype=np.int64)
    np.add.at(halves[0], at, (values >> 32).astype(np.int64))
    np.add.at(halves[1], at, (values & 0xFFFFFFFF).astype(np.int64))
    total: Totals = halves[0].astype(np.object_) * (1 << 32) + halves[1].astype(np.object_)
    return total


def integer_sums(parts: Iterable[Totals], groups: int) -> Totals:
    """The sums of all pieces; Python integers if one of them is."""
    total: Totals = np.zeros(groups, dtype=np.int64)
    for number, part in enumerate(parts):
        if number >= _ADDED_MAX:
            total = total.astype(np.object_)
        total = total + part
    return total
