"""Vectors of a column: exact cosine distances, and a quick comparison that leaves most of them out.

The metric is cosine distance (0 = same direction, 2 = opposite); a vector of zeros is at distance 1
from all. Each row is summed by itself and in double precision, so that the distance of an entity
does not depend on what it is compared beside. Of many rows, a comparison in single precision first
leaves out those that cannot be among the nearest. Vectors that would not fit in memory are read
from storage for each question, a slice at a time, and dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, pa
from omnigraph.engine.read.memory.arrays import Column, Positions, array_bytes
from omnigraph.engine.read.memory.cache import Caches
from omnigraph.engine.read.memory.change import Change
from omnigraph.engine.read.memory.frame import Frame

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Check = Callable[[], None]  # called between pages; may raise to give up

PAGE_NUMBERS: Final = 1 << 20  # looked at together
LENGTHS: Final = (1e-15, 1e15)  # of vectors that single precision can compare


def cosine_distances(vectors: Array, query: Floats) -> Floats:
    """Exact distances; NaN where there is no vector."""
    result = np.full(len(vectors), np.nan)
    step = max(1, PAGE_NUMBERS // max(1, len(query)))
    for first in range(0, len(vectors), step):
        some = vectors.slice(first, step)
        there = some.is_valid().to_numpy(zero_copy_only=False)
        matrix = some.flatten().to_numpy(zero_copy_only=False)  # of those that are there
        matrix = matrix.astype(np.float64).reshape(-1, len(query))
        scale = np.sqrt((matrix * matrix).sum(axis=1)) * float(np.sqrt((query * query).sum()))
        dots = (matrix * query).sum(axis=1)
        cosine = np.divide(dots, scale, out=np.zeros_like(dots), where=scale > 0)
        result[first : first + step][there] = np.clip(1.0 - cosine, 0.0, 2.0)
    return result


def similarities(vectors: Array, query: Floats, scales: Singles) -> Singles:
    """Roughly the cosine with the query; -inf where there is no vector."""
    size = float(np.sqrt((query * query).sum()))
    unit = (query / size if size > 0 else query).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        found: Singles = (matrix_of(vectors) @ unit) * scales
    unsure = np.flatnonzero(np.isnan(scales))
    if len(unsure):
        exact = 1.0 - cosine_distances(vectors.take(pa.array(unsure)), query)
        found[unsure] = np.where(np.isnan(exact), -np.inf, exact)
    if vectors.null_count:
        found[vectors.is_null().to_numpy(zero_copy_only=False)] = -np.inf
    return found


def doubt(dimension: int) -> float:
    """By how much a similarity may be wrong, at most: each of its sums and products is rounded."""
    return (dimension + 8) * 2.0**-23


def scales_of(vectors: Array) -> Singles:
    """One divided by the length of each vector, 0 for one of zeros (or none); NaN for lengths that
    single precision is not sure of."""
    matrix = matrix_of(vectors)
    found = np.empty(len(vectors), dtype=np.float32)
    step = max(1, PAGE_NUMBERS // max(1, matrix.shape[1]))
    for first in range(0, len(vectors), step):
        rows = matrix[first : first + step]
        size = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
        safe = (size > LENGTHS[0]) & (size < LENGTHS[1])
        one = np.divide(1.0, size, out=np.full(len(size), np.nan), where=safe)
        one[size == 0.0] = 0.0
        found[first : first + step] = one
    if vectors.null_count:
        found[vectors.is_null().to_numpy(zero_copy_only=False)] = 0.0
    return found


def matrix_of(vectors: Array) -> Singles:
    """The numbers of all vectors, zeros or anything where there is none; nothing is copied."""
    width = vectors.type.list_size
    # Not `flatten`, which copies everything where one vector is missing.
    numbers = vectors.values.slice(vectors.offset * width, len(vectors) * width)
    found: Singles = numbers.to_numpy(zero_copy_only=False).reshape(-1, width)
    return found


class Vectors(msgspec.Struct, frozen=True):
    """The vectors of a column by position, null where there is none, and their scales."""

    column: Column
    scales: Singles  # of the base of the column

    @classmethod
    def build(cls, frame: Frame, name: str, dimension: int) -> Vectors:
        """From one pass over the column: no second copy of it is ever held."""
        rows = np.zeros((frame.length, dimension), dtype=np.float32)
        there = np.zeros(frame.length, dtype=np.bool_)
        for positions, some in pages(frame, name, dimension):
            valid = some.is_valid().to_numpy(zero_copy_only=False)
            rows[positions[valid]] = (
                some.flatten().to_numpy(zero_copy_only=False).reshape(-1, dimension)
            )
            there[positions] = valid
        mask = None if there.all() else pa.array(~there)
        numbers = pa.array(rows.reshape(-1))
        return cls.of(pa.FixedSizeListArray.from_arrays(numbers, dimension, mask=mask))

    @classmethod
    def of(cls, vectors: Array) -> Vectors:
        return cls(Column.of(vectors), scales_of(vectors))

    def moved(self, change: Change, name: str) -> Vectors | None:
        """With what the change says of the column."""
        changed = change.values(name)
        if changed is None:
            return None
        at, vectors = changed
        # Rows that came and went unseen have left positions without a vector.
        missing = np.setdiff1d(np.arange(self.column.length, change.length), at)
        if len(missing):
            at = np.concatenate([at, missing])
            vectors = pa.concat_arrays([vectors, pa.nulls(len(missing), vectors.type)])
        if not len(at):
            return self
        order = np.argsort(at)
        column = self.column.patched(at[order], vectors.take(pa.array(order)), change.length)
        same = column.base is self.column.base
        return Vectors(column, self.scales if same else scales_of(column.base))

    def buffers(self) -> Mapping[int, int]:
        """What is held: versions share most of it."""
        return self.column.buffers() | array_bytes(self.scales)

    def similarity(self, query: Floats) -> Singles:
        """Roughly the cosine with the query, by position; -inf where there is no vector."""
        column = self.column
        found = np.full(column.length, -np.inf, dtype=np.float32)
        found[: len(column.base)] = similarities(column.base, query, self.scales)
        if len(column.patch_at):
            found[column.patch_at] = similarities(column.patch, query, scales_of(column.patch))
        return found

    def distances(self, positions: Positions, query: Floats) -> Floats:
        """Exact distances at the positions, NaN where there is no vector."""
        found = np.empty(len(positions))
        step = max(1, PAGE_NUMBERS // max(1, len(query)))
        for first in range(0, len(positions), step):
            some = self.column.take(positions[first : first + step])
            found[first : first + step] = cosine_distances(some, query)
        return found


def kept_vectors(caches: Caches, frame: Frame, column: str, dimension: int) -> Vectors | None:
    """The vectors of a column, kept and moved with it; None if they would not fit."""
    return caches.of_column(
        "vectors",
        frame,
        column,
        nbytes=frame.length * (dimension + 1) * 4,
        build=lambda: Vectors.build(frame, column, dimension),
        move=lambda older, change: older.moved(change, column),
    )


def streamed_similarity(frame: Frame, column: str, query: Floats, check: Check) -> Singles:
    """The same as `Vectors.similarity`, from one pass over storage."""
    found = np.full(frame.length, -np.inf, dtype=np.float32)
    for positions, some in pages(frame, column, len(query)):
        check()
        found[positions] = similarities(some, query, scales_of(some))
    return found


def streamed_distances(frame: Frame, column: str, query: Floats, check: Check) -> Floats:
    """Exact distances by position, from one pass over storage; NaN where there is no vector."""
    found = np.full(frame.length + 1, np.nan)  # the last cell stands for -1
    for positions, some in pages(frame, column, len(query)):
        check()
        found[positions] = cosine_distances(some, query)
    return found


def pages(
    frame: Frame, column: str, dimension: int, *, fragments: Sequence[int] | None = None
) -> Iterator[tuple[Positions, Array]]:
    """The vectors of a column in pages, with their positions; of some fragments, or of all."""
    step = max(1, PAGE_NUMBERS // max(1, dimension))
    return frame.slices(column, rows=step, nbytes=PAGE_NUMBERS * 8, fragments=fragments)
