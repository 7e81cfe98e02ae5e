"""Ids that we make: ULIDs, one at a time in order, or many at once for the rows of a load."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import Final

ULID_LENGTH: Final = 26
_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32: 5 bits a letter
_PAIRS: Final = [first + second for first in _ALPHABET for second in _ALPHABET]
_RANDOM_BITS: Final = 80
_COUNTER_BITS: Final = 35  # more rows than one call can have


class UlidFactory:
    """ULIDs that grow strictly within the process, also inside one millisecond.

    `now_us` gives microseconds since the epoch.
    """

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us
        self._lock = threading.Lock()
        self._last = 0

    def ulid(self) -> str:
        with self._lock:
            moment = self._now_us() // 1000
            if moment > self._last >> _RANDOM_BITS:
                self._last = moment << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
            else:
                self._last += 1
            return _crockford(self._last)


def ulids(count: int) -> bytes:
    """The letters of so many ULIDs, one behind the other, in order.

    They differ from each other and, by 45 random bits a call, from everybody else's.
    """
    assert count < 1 << _COUNTER_BITS, "the counter of a call has an end"
    head = time.time_ns() // 1_000_000 << _RANDOM_BITS
    head |= secrets.randbits(_RANDOM_BITS - _COUNTER_BITS) << _COUNTER_BITS
    blocks = []
    for start in range(0, count, len(_PAIRS)):
        stem = _crockford(head + start)[:-2]
        blocks.append(stem + stem.join(_PAIRS[: count - start]))
    return "".join(blocks).encode()


def _crockford(value: int) -> str:
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(120, -1, -10)])
