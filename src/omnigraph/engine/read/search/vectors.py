"""Vectors: the exact cosine distance to a query, and which rows may be among the nearest.

The metric is cosine distance (0 = same direction, 2 = opposite); a vector of zeros is at distance 1
from all. Of many rows, a quick comparison in single precision first leaves out those that cannot be
among the nearest.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, pc
from omnigraph.engine.embed.embedder import check_same_space
from omnigraph.engine.expr.evaluate import is_constant
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.memory.arrays import NO_POSITIONS, PATCH_ROWS_MAX, Mask, Positions
from omnigraph.engine.read.memory.cache import Caches
from omnigraph.engine.read.memory.frame import Change, Frame
from omnigraph.errors import InputError
from omnigraph.model.schema import ROW_ID

Floats = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float32]

SCANNED_SHARE: Final = 4  # from a quarter of the rows on, a scan is cheaper than lookups
SCAN_BATCH_ROWS: Final = 8192
NEAR_ROWS_MIN: Final = 4096  # fewer vectors are compared exactly at once
NEAR_MARGIN: Final = 1e-3  # far more than what single precision can be wrong by


def query_vector(run: Run, expr: ir.Nearest, query: Any) -> Floats:
    """The vector to look for; text is embedded first, by the model that the schema declares."""
    if expr.embed_text:
        name = f"{run.variables[expr.field.var].type_name}.{expr.field.prop}"
        embedder = run.embedder()
        check_same_space(declared=expr.embed_model, used=embedder.model, property_name=name)
        query = embedder.embed(query, dimension=expr.dimension)
    vector = np.asarray(query, dtype=np.float64)
    if len(vector) != expr.dimension:
        raise InputError(
            f"nearest: the query vector has {len(vector)} numbers, "
            f"'{expr.field.prop}' has {expr.dimension}"
        )
    return vector


def distances(run: Run, expr: ir.Nearest, positions: Positions, query: Floats) -> Floats:
    """Exact cosine distance at each position, NaN where there is no vector.

    Each row is summed by itself and in double precision: the distance of an entity does not depend
    on what it is compared beside.
    """
    frame = run.frame_of(expr.field.var)
    if len(positions) * SCANNED_SHARE >= frame.length and not frame.fits(expr.field.prop):
        return _scanned_distances(run, expr, query)[positions]
    found = np.empty(len(positions))
    step = max(1, (1 << 22) // max(1, expr.dimension))
    for first in range(0, len(positions), step):
        run.budget.check_time()
        some = frame.fetch(expr.field.prop, positions[first : first + step])
        found[first : first + step] = cosine_distances(some, query)
    return found


def _scanned_distances(run: Run, expr: ir.Nearest, query: Floats) -> Floats:
    """The distances of a whole column that is too big to keep, a batch at a time; -1 is NaN."""
    frame = run.frame_of(expr.field.var)
    found = np.full(frame.length + 1, np.nan)  # the last cell stands for -1
    for batch in frame.table.batches([expr.field.prop], batch_rows=SCAN_BATCH_ROWS):
        run.budget.check_time()
        at = frame.at_row_ids(batch.column(ROW_ID).to_numpy(zero_copy_only=False))
        found[at] = cosine_distances(batch.column(expr.field.prop), query)
    return found


def cosine_distances(vectors: Array, query: Floats) -> Floats:
    dimension = len(query)
    filled = vectors
    missing = np.zeros(len(vectors), dtype=np.bool_)
    if vectors.null_count:
        missing = vectors.is_null().to_numpy(zero_copy_only=False)
        filled = vectors.filter(pc.is_valid(vectors))
    matrix = filled.flatten().to_numpy(zero_copy_only=False)
    matrix = matrix.astype(np.float64).reshape(-1, dimension)
    scale = np.sqrt((matrix * matrix).sum(axis=1)) * float(np.sqrt((query * query).sum()))
    dots = (matrix * query).sum(axis=1)
    cosine = np.divide(dots, scale, out=np.zeros_like(dots), where=scale > 0)
    result = np.full(len(vectors), np.nan)
    result[~missing] = np.clip(1.0 - cosine, 0.0, 2.0)
    return result


# --- the quick comparison ----------------------------------------------------------------------


def near_enough(run: Run, expr: ir.Nearest, positions: Positions, wanted: int) -> Mask | None:
    """Which rows may be among the `wanted` nearest, with room to be wrong; None if all may."""
    if len(positions) < NEAR_ROWS_MIN or wanted * 2 >= len(positions):
        return None
    query = run.constants.value(expr.query) if is_constant(expr.query) else None
    if query is None:
        return None
    frame = run.frame_of(expr.field.var)
    block = unit_vectors(run.caches, frame, expr.field.prop, expr.dimension)
    if block is None:
        return None
    close = block.similarity(query_vector(run, expr, query))[positions]
    close[positions < 0] = -np.inf
    edge = np.partition(close, len(close) - wanted)[len(close) - wanted]
    return np.asarray(close >= edge - NEAR_MARGIN)


def unit_vectors(caches: Caches, frame: Frame, column: str, dimension: int) -> UnitVectors | None:
    """The vectors of a column for quick comparison; None if they would not fit."""
    if frame.length * dimension * 4 > caches.budget_bytes // 4:
        return None

    def build() -> UnitVectors:
        return UnitVectors.build(frame.column(column).whole(), dimension)

    def move(older: UnitVectors, _: Change) -> UnitVectors | None:
        changed = frame.changed_values(column)
        if changed is None or len(older.patch_at) > PATCH_ROWS_MAX:
            return None
        return older.moved(*changed, frame.length)

    return caches.derived("vectors", frame, column, build=build, move=move)


class UnitVectors(msgspec.Struct, frozen=True):
    """The vectors of a column scaled to length 1, by position, with a patch over a shared base."""

    base: Matrix
    missing: Positions  # positions below the base's length that have no vector
    length: int
    patch_at: Positions
    patch: Matrix
    patch_missing: Positions

    @classmethod
    def build(cls, values: Array, dimension: int) -> UnitVectors:
        base, missing = _unit_rows(values, dimension)
        return cls(base, missing, len(values), NO_POSITIONS, base[:0], NO_POSITIONS)

    def moved(self, at: Positions, values: Array, length: int) -> UnitVectors:
        """With other vectors at these positions, some of them perhaps new."""
        fresh, lost = _unit_rows(values, self.base.shape[1])
        kept = ~np.isin(self.patch_at, at)
        kept_at = self.patch_at[kept]
        return UnitVectors(
            self.base,
            self.missing,
            length,
            np.concatenate([kept_at, at]),
            np.concatenate([self.patch[kept], fresh]),
            np.concatenate([self.patch_missing[~np.isin(self.patch_missing, at)], at[lost]]),
        )

    @property
    def nbytes(self) -> int:
        return self.base.nbytes + self.patch.nbytes

    def similarity(self, query: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
        """Roughly the cosine with the query, by position; -inf where there is no vector."""
        size = float(np.sqrt((query * query).sum()))
        unit = (query / size if size > 0 else query).astype(np.float32)
        result = np.full(self.length, -np.inf, dtype=np.float32)
        known = min(len(self.base), self.length)
        result[:known] = self.base[:known] @ unit
        result[self.missing] = -np.inf
        result[self.patch_at] = self.patch @ unit
        result[self.patch_missing] = -np.inf
        return result


def _unit_rows(values: Array, dimension: int) -> tuple[Matrix, Positions]:
    rows = np.zeros((len(values), dimension), dtype=np.float32)
    there = np.flatnonzero(pc.is_valid(values).to_numpy(zero_copy_only=False))
    flat = values.filter(pc.is_valid(values)).flatten().to_numpy(zero_copy_only=False)
    rows[there] = flat.reshape(-1, dimension)
    size = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    rows /= np.where(size > 0, size, 1.0).astype(np.float32)[:, None]
    missing = np.ones(len(values), dtype=np.bool_)
    missing[there] = False
    return rows, np.flatnonzero(missing)
