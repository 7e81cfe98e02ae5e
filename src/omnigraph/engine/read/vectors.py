"""The vectors of one column as a matrix of unit rows, for quick and slightly inexact comparison."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import Array, pc
from omnigraph.engine.read.column import Positions

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class VectorBlock:
    """Unit rows by position, with a small patch over a shared base; -inf where there is none."""

    base: Matrix
    missing: Positions  # positions below the base's length that have no vector
    length: int
    patch_at: Positions
    patch: Matrix
    patch_missing: Positions

    @classmethod
    def build(cls, values: Array, dimension: int) -> VectorBlock:
        base, missing = _unit_rows(values, dimension)
        none = np.empty(0, dtype=np.int64)
        return cls(base, missing, len(values), none, base[:0], none)

    def moved(self, at: Positions, values: Array, length: int) -> VectorBlock:
        """With other vectors at these positions, some of them perhaps new."""
        fresh, lost = _unit_rows(values, self.base.shape[1])
        kept = ~np.isin(self.patch_at, at)
        kept_at = self.patch_at[kept]
        return VectorBlock(
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
        """Roughly the cosine with the query, by position."""
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
