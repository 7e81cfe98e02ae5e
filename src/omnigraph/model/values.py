"""What a value of a type can be: bounds and nearest numbers, told once."""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Mapping
from typing import Final

from omnigraph.model.schema import Scalar

EPOCH: Final = dt.date(1970, 1, 1)
EPOCH_MOMENT: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

INTEGER_BOUNDS: Final[Mapping[Scalar, tuple[int, int]]] = {
    Scalar.I32: (-(2**31), 2**31 - 1),
    Scalar.I64: (-(2**63), 2**63 - 1),
    Scalar.U32: (0, 2**32 - 1),
    Scalar.U64: (0, 2**64 - 1),
}
FLOAT_EXACT_MAX: Final = 2**53  # up to here every integer is a float of its own
F32_MAX: Final = 3.4028234663852886e38


def whole(value: float) -> int | None:
    """The integer that a float says exactly, as `3.0` says 3; None if it may mean another one."""
    exact = value.is_integer() and abs(value) <= FLOAT_EXACT_MAX
    return int(value) if exact else None


def nearest_f32(value: float) -> float:
    """The number that an F32 column holds for this one; one out of its range is left as it is."""
    if math.isnan(value):
        return value
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return value
