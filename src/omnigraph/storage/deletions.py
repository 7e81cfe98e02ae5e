"""Reading Lance's deletion files: which rows of a fragment are gone.

Few deletions are an Arrow file with one column of offsets, many are a roaring bitmap in its
portable form (the specification is public and does not change): 65,536 offsets to a container,
which is a sorted list, a bit set or a list of runs, whichever is smallest.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Offsets = npt.NDArray[np.uint64]

_COOKIE_PLAIN: Final = 12346
_COOKIE_RUNS: Final = 12347
_LIST_MAX: Final = 4096  # a container with more values is a bit set
_BIT_SET_BYTES: Final = 8192
_OFFSETS_FROM: Final = 4  # bitmaps with runs list container offsets from this many containers on


def decode(kind: str, body: bytes) -> Offsets:
    """The offsets that a deletion file of Lance's kind "array" or "bitmap" names, ascending."""
    if kind == "array":
        table = pa.ipc.open_file(pa.py_buffer(body)).read_all()
        return np.sort(np.asarray(table.column(0), dtype=np.uint64))
    return _roaring(body)


def _roaring(body: bytes) -> Offsets:
    cookie = int.from_bytes(body[:4], "little")
    if cookie == _COOKIE_PLAIN:
        count = int.from_bytes(body[4:8], "little")
        runs = np.zeros(count, np.bool_)
        at, has_offsets = 8, True
    elif cookie & 0xFFFF == _COOKIE_RUNS:
        count = (cookie >> 16) + 1
        size = (count + 7) // 8
        flags = np.frombuffer(body, np.uint8, size, 4)
        runs = np.unpackbits(flags, bitorder="little")[:count].astype(np.bool_)
        at, has_offsets = 4 + size, count >= _OFFSETS_FROM
    else:
        raise ValueError(f"not a roaring bitmap: cookie {cookie}")
    heads = np.frombuffer(body, "<u2", 2 * count, at).reshape(count, 2)
    at += 4 * count + (4 * count if has_offsets else 0)
    parts: list[Offsets] = []
    for (key, less_one), is_run in zip(heads.tolist(), runs.tolist(), strict=True):
        values, at = _run_list(body, at) if is_run else _container(body, at, less_one + 1)
        parts.append(values.astype(np.uint64) + np.uint64(key << 16))
    return np.concatenate(parts) if parts else np.empty(0, np.uint64)


def _container(body: bytes, at: int, size: int) -> tuple[npt.NDArray[np.int64], int]:
    if size <= _LIST_MAX:
        return np.frombuffer(body, "<u2", size, at).astype(np.int64), at + 2 * size
    bits = np.frombuffer(body, np.uint8, _BIT_SET_BYTES, at)
    return np.flatnonzero(np.unpackbits(bits, bitorder="little")), at + _BIT_SET_BYTES


def _run_list(body: bytes, at: int) -> tuple[npt.NDArray[np.int64], int]:
    count = int.from_bytes(body[at : at + 2], "little")
    pairs = np.frombuffer(body, "<u2", 2 * count, at + 2).reshape(count, 2)
    values = [np.arange(start, start + more + 1, dtype=np.int64) for start, more in pairs.tolist()]
    return np.concatenate(values), at + 2 + 4 * count
