"""The quick comparison of vectors follows changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from omnigraph.engine.read.search.vectors import UnitVectors


def test_moved_vectors_compare_like_new_ones():
    kind = pa.list_(pa.float32(), 2)
    values = [[1.0, 0.0], None, [0.0, 2.0], [0.0, 0.0]]
    block = UnitVectors.build(pa.array(values, kind), 2)
    values = [[1.0, 0.0], [3.0, 3.0], None, [0.0, 0.0], [-1.0, 0.0]]
    block = block.moved(np.array([1, 2, 4]), pa.array([values[1], None, values[4]], kind), 5)
    query = np.array([2.0, 0.0])
    fresh = UnitVectors.build(pa.array(values, kind), 2)
    np.testing.assert_allclose(block.similarity(query), fresh.similarity(query))
    assert block.similarity(query)[2] == -np.inf
