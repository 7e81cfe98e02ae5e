"""The row ids of a fragment as Lance notes them in a version file, read without Lance.

A note is a row of *segments*, each a short form of some row ids: a range, a range with holes in it,
a range with a map of bits, or a list. They are told as *runs* of row ids that go up by one, which
are few however many rows there are, because rows get their ids one after the other.

The notes are protocol buffers of Lance's format: `repeated Segment`, where a segment holds one of
`1: range {1: start, 2: end}`, `2: the same with 3: holes`, `3: the same with 3: bits`, `4: sorted
list`, `5: list`, and a list (as holes are) one of `1: {1: base, 2: 16-bit offsets}`, `2: the same
with 32 bits`, `3: {2: 64-bit numbers}`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from omnigraph.storage.lance.wire import fields

U64 = npt.NDArray[np.uint64]
Runs = tuple[U64, U64]  # the first row id of each run, and how many there are

_RANGE, _WITH_HOLES, _WITH_BITS, _SORTED, _LISTED = 1, 2, 3, 4, 5
_WIDTHS: Final = {1: "<u2", 2: "<u4", 3: "<u8"}


def decode(note: bytes) -> Runs | None:
    """The runs of a fragment's row ids in the order of its rows, deleted ones included; None if the
    note is written in a way that we do not know."""
    try:
        parts = [_segment(_one(number, value)) for number, value in fields(note)]
    except (LookupError, TypeError, ValueError):
        return None
    if len(parts) == 1:
        return parts[0]
    none = np.empty(0, np.uint64)
    first = np.concatenate([none, *(one for one, _ in parts)])
    return first, np.concatenate([none, *(rows for _, rows in parts)])


def counted_up(first: U64, rows: U64) -> U64:
    """The numbers of all runs that start there and have so many."""
    if len(first) == 1:
        return np.arange(first[0], first[0] + rows[0], dtype=np.uint64)
    before = np.cumsum(rows, dtype=np.uint64) - rows
    numbers: U64 = np.arange(int(rows.sum()), dtype=np.uint64)
    numbers += np.repeat(first - before, rows.astype(np.int64))
    return numbers


def rows_of(segment: bytes) -> int:
    """How many row ids a segment tells; ValueError if it is written in an unknown way."""
    return int(_segment(segment)[1].sum())


def _segment(body: bytes) -> Runs:
    ((kind, value),) = fields(body)
    inner = _message(value)
    if kind in (_SORTED, _LISTED):
        return _runs(_numbers(inner))
    found = dict(fields(inner))
    start, end = _number(found.get(1, 0)), _number(found.get(2, 0))
    if end <= start:
        raise ValueError("an empty segment")
    if kind == _RANGE:
        return _of([start]), _of([end - start])
    more = _message(found.get(3, b""))
    if kind == _WITH_HOLES:
        holes = np.sort(_numbers(more))
        first, behind = np.append(_of([start]), holes + _of(1)), np.append(holes, _of([end]))
        told = behind > first
        return first[told], (behind - first)[told]
    if kind == _WITH_BITS:
        bits = np.unpackbits(np.frombuffer(more, np.uint8), bitorder="little", count=end - start)
        return _runs(np.flatnonzero(bits).astype(np.uint64) + _of(start))
    raise ValueError("a segment of another kind")


def _runs(ids: U64) -> Runs:
    """The runs of row ids that are told one by one."""
    begins = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1] + _of(1)]))[: len(ids)]
    return ids[begins], np.diff(begins, append=len(ids)).astype(np.uint64)


def _numbers(body: bytes) -> U64:
    ((kind, value),) = fields(body)
    found = dict(fields(_message(value)))
    offsets = np.frombuffer(_message(found.get(2, b"")), _WIDTHS[kind]).astype(np.uint64)
    return offsets + _of(_number(found.get(1, 0)))


def _of(value: int | list[int]) -> U64:
    return np.array(value, np.uint64)


def _one(number: int, value: bytes | int) -> bytes:
    if number != 1:
        raise ValueError("only segments were expected")
    return _message(value)


def _message(value: bytes | int) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("a message was expected")
    return value


def _number(value: bytes | int) -> int:
    if not isinstance(value, int):
        raise TypeError("a number was expected")
    return value
