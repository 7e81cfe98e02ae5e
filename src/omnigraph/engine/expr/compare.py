"""Comparisons: numbers of any two types by their value, without loss, and everything else as Arrow
does it. A comparison with null is null."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from omnigraph.compiler.query.ir import CompareOp
from omnigraph.engine.arrow import Array, Mask, Values, as_mask, booleans, pa, pc
from omnigraph.model.schema import Scalar
from omnigraph.model.values import FLOAT_EXACT_MAX, INTEGER_BOUNDS

Numbers = npt.NDArray[Any]
OnNumbers = Callable[[Numbers, Numbers], Numbers]

_I64_MIN, _I64_MAX = INTEGER_BOUNDS[Scalar.I64]
_U64_MAX = INTEGER_BOUNDS[Scalar.U64][1]
_UNORDERED: Final = 2  # the sign of two numbers one of which is NaN
# What Arrow calls a comparison, and what it says of the sign of the difference.
_COMPARISONS: Final[Mapping[CompareOp, tuple[str, Callable[[Any, int], Any]]]] = {
    CompareOp.EQ: ("equal", operator.eq),
    CompareOp.NE: ("not_equal", operator.ne),
    CompareOp.LT: ("less", operator.lt),
    CompareOp.LE: ("less_equal", operator.le),
    CompareOp.GT: ("greater", operator.gt),
    CompareOp.GE: ("greater_equal", operator.ge),
}
SWAPPED: Final[Mapping[CompareOp, CompareOp]] = {  # a < b is b > a
    CompareOp.LT: CompareOp.GT,
    CompareOp.LE: CompareOp.GE,
    CompareOp.GT: CompareOp.LT,
    CompareOp.GE: CompareOp.LE,
}
# A whole number that is more than 2.5 is more than 2; one that is less is at most 2.
_BESIDE: Final[Mapping[CompareOp, CompareOp]] = {
    CompareOp.LT: CompareOp.LE,
    CompareOp.LE: CompareOp.LE,
    CompareOp.GT: CompareOp.GT,
    CompareOp.GE: CompareOp.GT,
}
_FOR_LESS: Final = {CompareOp.NE, CompareOp.LT, CompareOp.LE}  # true of what is less
_FOR_MORE: Final = {CompareOp.NE, CompareOp.GT, CompareOp.GE}
_SINGLE_EXACT_MAX: Final = 1 << 24  # every whole number up to this is an F32


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
    if isinstance(left, pa.Scalar) and not isinstance(right, pa.Scalar):
        return compare(SWAPPED.get(op, op), right, left)
    if isinstance(right, pa.Scalar) and not isinstance(left, pa.Scalar) and right.is_valid:
        if pa.types.is_integer(left.type) and _is_number(right.type):
            return _with_constant(op, left, right.as_py())
        right = _as_float(right, left)
    arrow, on_sign = _COMPARISONS[op]
    both_whole = pa.types.is_integer(left.type) and pa.types.is_integer(right.type)
    if both_whole and pa.types.is_uint64(left.type) != pa.types.is_uint64(right.type):
        # Arrow would have to squeeze an unsigned 64-bit number into a signed one.
        sign: OnNumbers = _integer_to_integer
    elif pa.types.is_integer(left.type) and pa.types.is_floating(right.type):
        sign = _integer_to_float
    elif pa.types.is_floating(left.type) and pa.types.is_integer(right.type):
        sign = _float_to_integer
    else:
        return pc.call_function(arrow, [left, right])

    def answers(a: Numbers, b: Numbers) -> Numbers:
        signs = sign(a, b)
        return np.where(signs == _UNORDERED, op is CompareOp.NE, on_sign(signs, 0))

    return by_numbers(answers, left, right)


def _with_constant(op: CompareOp, whole: Array, number: float) -> Array:
    """Whole numbers and a constant: with a constant of their own type, so that none is widened."""
    if math.isnan(number):
        return _everywhere(whole, answer=op is CompareOp.NE)
    if not math.isinf(number) and number != math.floor(number):
        if op not in _BESIDE:  # it is no whole number
            return _everywhere(whole, answer=op is CompareOp.NE)
        op, number = _BESIDE[op], math.floor(number)
    info = np.iinfo(whole.type.to_pandas_dtype())
    if number > info.max:
        return _everywhere(whole, answer=op in _FOR_LESS)
    if number < info.min:
        return _everywhere(whole, answer=op in _FOR_MORE)
    return pc.call_function(_COMPARISONS[op][0], [whole, pa.scalar(int(number), whole.type)])


def _everywhere(values: Array, *, answer: bool) -> Array:
    """The same answer for every value, null where there is none."""
    if not values.null_count:
        return booleans(np.full(len(values), answer))
    return pc.if_else(values.is_valid(), answer, pa.scalar(None, pa.bool_()))


def _as_float(constant: Values, column: Array) -> Values:
    """A whole constant beside a column of floats as such a float, if it is one."""
    if not pa.types.is_integer(constant.type) or not pa.types.is_floating(column.type):
        return constant
    number, single = constant.as_py(), pa.types.is_float32(column.type)
    exact = abs(number) <= (_SINGLE_EXACT_MAX if single else FLOAT_EXACT_MAX)
    return pa.scalar(float(number), column.type) if exact else constant


def _is_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _as_single(one: Values, other: Values) -> Values:
    """A constant beside an F32 column means the nearest F32: 0.1 is what such a column can hold.

    One that is out of its range stays what it is, for the nearest would be infinite.
    """
    if isinstance(one, pa.Scalar) and one.type == pa.float64() and other.type == pa.float32():
        single = pc.cast(one, pa.float32(), safe=False)
        return one if pc.is_inf(single).as_py() and not pc.is_inf(one).as_py() else single
    return one


def by_numbers(kernel: OnNumbers, left: Values, right: Values) -> Values:
    """What numpy gives for the numbers; null where a side is, and one alone for two constants."""
    a, a_null = _numbers(left)
    b, b_null = _numbers(right)
    answer = kernel(*np.broadcast_arrays(a, b))
    missing = np.broadcast_to(a_null | b_null, answer.shape)
    made = pa.array(answer, mask=missing if missing.any() else None)
    return made[0] if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar) else made


def _numbers(values: Values) -> tuple[Numbers, Mask]:
    array = pa.array([values.as_py()], values.type) if isinstance(values, pa.Scalar) else values
    missing = as_mask(array.is_null())
    return array.fill_null(0).to_numpy(zero_copy_only=False), missing


def _integer_to_float(whole: Numbers, real: Numbers) -> Numbers:
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


def _float_to_integer(real: Numbers, whole: Numbers) -> Numbers:
    signs = _integer_to_float(whole, real)
    return np.where(signs == _UNORDERED, signs, -signs)


def _integer_to_integer(a: Numbers, b: Numbers) -> Numbers:
    """The sign of a - b where exactly one of them is unsigned with 64 bits."""
    if a.dtype != np.uint64:
        return (-_integer_to_integer(b, a)).astype(np.int8)
    b = b.astype(np.int64)
    reachable = np.where(b < 0, 0, b).astype(np.uint64)
    sign = np.where(a < reachable, -1, np.where(a > reachable, 1, 0))
    return np.where(b < 0, 1, sign).astype(np.int8)
