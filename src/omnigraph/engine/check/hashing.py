"""Cutting rows into hash buckets by a key, so that all rows of one key meet in one bucket.

The hash only spreads the keys: equal values have equal hashes, and nothing else is asked of it. How
many buckets there are therefore never changes an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import ArrowTable, pa, pc
from omnigraph.storage.lance.columns import equal_floats

Hashes = npt.NDArray[np.uint64]

_PRIME: Final = np.uint64(0x9E3779B97F4A7C15)
_HALF: Final = np.uint64(32)
_WORD_BYTES: Final = 8
_WORDS_MAX: Final = 32  # of a text that are hashed; of a longer one, its head and length count too
_FACTORS: Final = np.cumprod(np.full(_WORDS_MAX, _PRIME))


def cut(rows: ArrowTable, by: Sequence[str], count: int) -> list[ArrowTable]:
    """The rows of each bucket, in their order. Rows with a null among the columns are in none."""
    assert 1 <= count <= 1 << 16, "bucket numbers have 16 bits"
    for name in by:
        if rows[name].null_count:
            rows = rows.filter(pc.is_valid(rows[name]))
    if count == 1:
        return [rows]
    numbers = bucket_numbers([rows[name] for name in by], count)
    # NumPy sorts numbers of 16 bits by counting, and keeps the order of equal ones.
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=count))
    sorted_rows = rows.combine_chunks().take(order)
    return [
        sorted_rows.slice(start, end - start)
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
    ]


def bucket_numbers(columns: Sequence[Any], count: int) -> npt.NDArray[np.uint16]:
    """The bucket of each row: the same for rows that are equal in all the columns."""
    assert columns, "a key has at least one column"
    hashes = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        hashes = _mixed(hashes, hashes_of(column))
    return ((hashes >> _HALF) * np.uint64(count) >> _HALF).astype(np.uint16)


def hashes_of(values: Any) -> Hashes:
    """A number for each value, the same for values that are equal in a group."""
    if isinstance(values, pa.ChunkedArray):
        chunks = [hashes_of(chunk) for chunk in values.chunks]
        return np.concatenate([np.empty(0, dtype=np.uint64), *chunks])
    kind = values.type
    if pa.types.is_floating(kind):
        bits = np.asarray(equal_floats(values.cast(pa.float64())).fill_null(0)).view(np.uint64)
        return _mixed(np.zeros(len(values), dtype=np.uint64), bits)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _text_hashes(values)
    if pa.types.is_temporal(kind):
        values = values.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    elif pa.types.is_boolean(kind):
        values = values.cast(pa.int8())
    elif not pa.types.is_integer(kind):
        return np.zeros(len(values), dtype=np.uint64)
    whole = np.asarray(values.fill_null(0))
    return _mixed(np.zeros(len(values), dtype=np.uint64), whole.astype(np.uint64))


def _mixed(hashes: Hashes, words: Hashes | np.uint64) -> Hashes:
    mixed = (hashes ^ words) * _PRIME
    mixed ^= mixed >> _HALF
    mixed *= _PRIME
    return mixed


def _text_hashes(values: Any) -> Hashes:
    """Eight bytes of all texts at a time, from their ends on, as far as the longest one goes."""
    if not len(values):
        return np.empty(0, dtype=np.uint64)
    _, offsets_buffer, data = values.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int32)
    offsets = offsets[values.offset : values.offset + len(values) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    text = np.zeros(_WORD_BYTES + last - first, dtype=np.uint8)
    if last > first:
        text[_WORD_BYTES:] = np.frombuffer(data, dtype=np.uint8)[first:last]
    # The word that ends before any byte; unaligned, which NumPy can read.
    words: Any = np.ndarray(last - first + 1, dtype="<u8", buffer=text, strides=(1,))
    ends, left = offsets[1:] - first, np.diff(offsets)
    hashes = left.astype(np.uint64) * _PRIME
    at: Any = slice(None)
    for factor in _FACTORS:
        word = words[ends]
        if (left < _WORD_BYTES).any():  # then it begins with bytes of the text before
            word >>= (8 * (_WORD_BYTES - np.minimum(left, _WORD_BYTES))).astype(np.uint64)
        hashes[at] += word * factor
        longer = left > _WORD_BYTES
        if not longer.all():
            at = np.flatnonzero(longer) if isinstance(at, slice) else at[longer]
            ends, left = ends[longer], left[longer]
        if not len(left):
            break
        ends, left = ends - _WORD_BYTES, left - _WORD_BYTES
    else:
        hashes[at] += words[ends - left + _WORD_BYTES]
    return _mixed(hashes, np.uint64(0))
