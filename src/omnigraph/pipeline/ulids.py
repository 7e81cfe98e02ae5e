"""Fresh ids for many rows at once."""

from __future__ import annotations

import secrets
import time
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.pipeline.arrow import Column

_ALPHABET: Final = np.frombuffer(b"0123456789ABCDEFGHJKMNPQRSTVWXYZ", dtype=np.uint8)
_LENGTH: Final = 26
_COUNTER_DIGITS: Final = 7  # 35 bits: more rows than one batch can have


def fresh_ids(count: int) -> Column:
    """ULIDs that differ from each other and, by 45 random bits a call, from everybody else's."""
    milliseconds = time.time_ns() // 1_000_000
    head = (milliseconds << 45) | secrets.randbits(45)
    fixed = [(head >> shift) & 31 for shift in range(5 * (_LENGTH - _COUNTER_DIGITS - 1), -1, -5)]
    digits = np.empty((count, _LENGTH), dtype=np.uint8)
    digits[:, : len(fixed)] = np.array(fixed, dtype=np.uint8)
    counter = np.arange(count, dtype=np.int64)
    for place in range(_COUNTER_DIGITS):
        digits[:, _LENGTH - 1 - place] = (counter >> (5 * place)) & 31
    text = _ALPHABET[digits].tobytes()
    offsets = (np.arange(count + 1, dtype=np.int32) * _LENGTH).tobytes()
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))
