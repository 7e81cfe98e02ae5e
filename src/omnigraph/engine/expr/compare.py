"""Comparing without loss: a number is compared by its value, whatever its type."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from omnigraph.compiler.query.ir import CompareOp
from omnigraph.engine.arrow import DataType, Values, pa, pc
from omnigraph.model.schema import Scalar
from omnigraph.model.values import INTEGER_BOUNDS

_I64_MIN, _I64_MAX = INTEGER_BOUNDS[Scalar.I64]
_U64_MAX = INTEGER_BOUNDS[Scalar.U64][1]
_FUNCTIONS: Final[Mapping[CompareOp, str]] = {
    CompareOp.EQ: "equal",
    CompareOp.NE: "not_equal",
    CompareOp.LT: "less",
    CompareOp.LE: "less_equal",
    CompareOp.GT: "greater",
    CompareOp.GE: "greater_equal",
}
_ON_SIGN: Final[Mapping[CompareOp, Callable[[Any, int], Any]]] = {
    CompareOp.EQ: operator.eq,
    CompareOp.NE: operator.ne,
    CompareOp.LT: operator.lt,
    CompareOp.LE: operator.le,
    CompareOp.GT: operator.gt,
    CompareOp.GE: operator.ge,
}
SWAPPED: Final[Mapping[CompareOp, CompareOp]] = {  # a < b is b > a
    CompareOp.LT: CompareOp.GT,
    CompareOp.LE: CompareOp.GE,
    CompareOp.GT: CompareOp.LT,
    CompareOp.GE: CompareOp.LE,
}


def number_scalar(value: int | float) -> Values:
    """A Python number as the constant that it is in a query."""
    if isinstance(value, float) or not _I64_MIN <= value <= _U64_MAX:
        return pa.scalar(float(value))  # beyond 64 bits only the side matters
    return pa.scalar(value, pa.int64() if value <= _I64_MAX else pa.uint64())


def compare(op: CompareOp, left: Values, right: Values) -> Values:
    """The three-valued answer, one for each row (one alone if both sides are constants)."""
    if pa.types.is_boolean(left.type) and pa.types.is_boolean(right.type):
        left, right = left.cast(pa.int8()), right.cast(pa.int8())
    left, right = _as_single(left, right), _as_single(right, left)
    if pa.types.is_floating(left.type) and pa.types.is_integer(right.type):
        return compare(SWAPPED.get(op, op), right, left)
    if pa.types.is_integer(left.type) and pa.types.is_floating(right.type):
        return _by_sign(op, left, right, _integer_to_float)
    if _mixed_signs(left.type, right.type):
        return _by_sign(op, left, right, _integer_to_integer)
    return pc.call_function(_FUNCTIONS[op], [left, right])


def _as_single(one: Values, other: Values) -> Values:
    """A constant beside an F32 column means the nearest F32: 0.1 is what such a column can hold.

    One that is out of its range stays what it is, for the nearest would be infinite.
    """
    if isinstance(one, pa.Scalar) and one.type == pa.float64() and other.type == pa.float32():
        single = pc.cast(one, pa.float32(), safe=False)
        return one if pc.is_inf(single).as_py() and not pc.is_inf(one).as_py() else single
    return one


def _mixed_signs(left: DataType, right: DataType) -> bool:
    """Whether Arrow would have to squeeze an unsigned 64-bit number into a signed one."""
    if not (pa.types.is_integer(left) and pa.types.is_integer(right)):
        return False
    return bool(pa.types.is_uint64(left) != pa.types.is_uint64(right))


Sign = Callable[[npt.NDArray[Any], npt.NDArray[Any]], npt.NDArray[np.int8]]


def _by_sign(op: CompareOp, left: Values, right: Values, sign: Sign) -> Values:
    constant = isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar)
    a, a_null = _numbers(left)
    b, b_null = _numbers(right)
    signs = sign(*np.broadcast_arrays(a, b))
    answer = np.asarray(_ON_SIGN[op](signs, 0)) & (signs != _UNORDERED)
    if op is CompareOp.NE:
        answer |= signs == _UNORDERED
    missing = np.broadcast_to(a_null | b_null, answer.shape)
    made = pa.array(answer, mask=missing if missing.any() else None)
    return made[0] if constant else made


_UNORDERED: Final = 2  # one side is NaN


def _numbers(values: Values) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    array = pa.array([values.as_py()], values.type) if isinstance(values, pa.Scalar) else values
    missing = np.asarray(array.is_null().to_numpy(zero_copy_only=False))
    return array.fill_null(0).to_numpy(zero_copy_only=False), missing


def _integer_to_float(whole: npt.NDArray[Any], real: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    """-1, 0 or 1 for whole < = > real; 2 where real is NaN."""
    real = real.astype(np.float64)
    nan = np.isnan(real)
    floor = np.floor(np.where(nan, 0.0, real))
    info = np.iinfo(whole.dtype if whole.dtype == np.uint64 else np.int64)
    above = floor >= float(info.max)  # info.max + 1 as a float: no such integer is that big
    below = floor < float(info.min)
    inside = np.where(above | below, 0.0, floor).astype(info.dtype)
    whole = whole.astype(info.dtype)
    sign = np.where(whole < inside, -1, np.where(whole > inside, 1, 0))
    sign = np.where((sign == 0) & (real > floor), -1, sign)
    sign = np.where(above, -1, np.where(below, 1, sign))
    return np.where(nan, _UNORDERED, sign).astype(np.int8)


def _integer_to_integer(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> npt.NDArray[np.int8]:
    """The sign of a - b where exactly one of them is unsigned with 64 bits."""
    if a.dtype != np.uint64:
        return (-_integer_to_integer(b, a)).astype(np.int8)
    b = b.astype(np.int64)
    reachable = np.where(b < 0, 0, b).astype(np.uint64)
    sign = np.where(a < reachable, -1, np.where(a > reachable, 1, 0))
    return np.where(b < 0, 1, sign).astype(np.int8)
