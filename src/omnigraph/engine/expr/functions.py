"""The kernels of the scalar functions, one for each entry of `compiler/query/functions.py`.

A kernel takes Arrow arrays or scalars, one for each argument, and gives an array, or a scalar if
all of them are. Kernels keep the null rule that the table states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from omnigraph.compiler.query import ir
from omnigraph.compiler.query.functions import FUNCTIONS
from omnigraph.engine.arrow import DataType, Values, pa, pc
from omnigraph.storage.lance.columns import value_type

KERNELS: Final[Mapping[str, Callable[..., Values]]] = {
    # One letter for one letter, in any place and language: İ gives i.
    "lower": pc.utf8_lower,
    "coalesce": pc.coalesce,
}


def call(expr: ir.FunctionCall, args: Sequence[Values]) -> Values:
    """The values of a call, from those of its arguments."""
    if FUNCTIONS[expr.name].result == "common":
        args = [_cast(arg, value_type(expr.type)) for arg in args]
    return KERNELS[expr.name](*args)


def _cast(values: Values, target: DataType) -> Values:
    if isinstance(values, pa.Scalar) and not values.is_valid:
        return pa.scalar(None, target)  # the literal null is of no type
    # A whole number beyond 2^53 becomes the nearest float; all others keep their value.
    return pc.cast(values, target, safe=pa.types.is_integer(target))
