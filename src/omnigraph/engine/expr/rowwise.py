"""What kernels are made from: arrays and scalars together, Python functions of single values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, DataType, Mask, Values, as_mask, pa


def _columns(args: Sequence[Values]) -> tuple[list[Array], bool]:
    """The arguments as arrays of one length, and whether all of them were scalars."""
    lengths = [len(arg) for arg in args if not isinstance(arg, pa.Scalar)]
    count = lengths[0] if lengths else 1
    made = [_repeated(arg, count) if isinstance(arg, pa.Scalar) else arg for arg in args]
    return made, not lengths


def _repeated(value: Values, count: int) -> Array:
    return pa.repeat(value, count) if value.is_valid and count else pa.nulls(count, value.type)


def on_columns(kernel: Callable[..., Array]) -> Callable[..., Values]:
    """A kernel of arrays of one length, for arrays and scalars."""

    def applied(*args: Values) -> Values:
        arrays, alone = _columns(args)
        found = kernel(*arrays)
        return found[0] if alone else found

    return applied


def row_by_row(function: Callable[..., Any], kind: DataType) -> Callable[..., Values]:
    """A Python function of values that are not null, as a kernel."""

    def applied(*arrays: Array) -> Array:
        rows = zip(*(array.to_pylist() for array in arrays), strict=True)
        return pa.array([None if None in row else function(*row) for row in rows], kind)

    return on_columns(applied)


def by_distinct(function: Callable[[Any], Any], kind: DataType) -> Callable[[Values], Values]:
    """A Python function of a value that is not null, asked once for equal ones."""

    def applied(array: Array) -> Array:
        coded = array.dictionary_encode()
        made = pa.array([function(one) for one in coded.dictionary.to_pylist()], kind)
        return made.take(coded.indices)

    return on_columns(applied)


def missing_in(*arrays: Array) -> Mask:
    """Where one of them is null."""
    found = np.zeros(len(arrays[0]), dtype=np.bool_)
    for array in arrays:
        if array.null_count:
            found |= as_mask(array.is_null())
    return found


def numbers_of(array: Array) -> npt.NDArray[Any]:
    """The numbers of an array, 0 for null."""
    return np.asarray(array.fill_null(0) if array.null_count else array)


def made(numbers: npt.NDArray[Any], missing: Mask, kind: DataType) -> Array:
    return pa.array(numbers, kind, mask=missing if missing.any() else None)


def constant_of(value: Values) -> Any:
    """The Python value of a scalar that is not null; None for anything else."""
    return value.as_py() if isinstance(value, pa.Scalar) else None
