"""Compressed rows are the edges sorted by source, target and edge."""

from __future__ import annotations

import numpy as np
import pytest

from omnigraph.engine.read.memory import compressed
from omnigraph.engine.read.memory.compressed import build_csr


def sorted_edges(sources, targets):
    known = np.flatnonzero((sources >= 0) & (targets >= 0))
    return known[np.lexsort((known, targets[known], sources[known]))]


@pytest.mark.parametrize("slice_edges", [3, 50, 1 << 20])
@pytest.mark.parametrize("block_edges", [1, 10, 1 << 17])
@pytest.mark.parametrize("key_bits", [0, 64])
def test_rows_are_the_sorted_edges(monkeypatch, slice_edges, block_edges, key_bits):
    monkeypatch.setattr(compressed, "SLICE_EDGES", slice_edges)
    monkeypatch.setattr(compressed, "BLOCK_EDGES", block_edges)
    monkeypatch.setattr(compressed, "_KEY_BITS", key_bits)
    rng = np.random.default_rng(7)
    for nodes in (0, 1, 2, 7, 300):
        count = 0 if nodes == 0 else int(rng.integers(0, 200))
        sources = rng.integers(-1, max(nodes, 1), count).astype(np.int32)
        targets = rng.integers(-1, rng.integers(1, 40), count).astype(np.int32)
        if nodes == 2:
            sources[:] = 1  # one node has all edges
        rows = build_csr(sources, targets, nodes)
        expected = sorted_edges(sources, targets)
        assert rows.edges.tolist() == expected.tolist()
        assert rows.targets.tolist() == targets[expected].tolist()
        degrees = np.bincount(sources[expected], minlength=nodes)
        assert np.diff(rows.starts).tolist() == degrees.tolist()
        pairs = set(zip(sources[expected].tolist(), targets[expected].tolist(), strict=True))
        assert rows.parallel == (len(pairs) < len(expected))
        assert {*rows.looped.tolist()} == {a for a, b in pairs if a == b}


def test_positions_take_as_few_bytes_as_they_can():
    rows = build_csr(np.zeros(5, np.int32), np.zeros(5, np.int32), 1)
    assert (rows.starts.dtype, rows.targets.dtype, rows.edges.dtype) == (np.int32,) * 3


def test_a_build_gives_up_between_two_slices(monkeypatch):
    monkeypatch.setattr(compressed, "SLICE_EDGES", 4)
    asked = []

    def checkpoint():
        asked.append(1)
        if len(asked) == 3:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        build_csr(np.zeros(100, np.int32), np.zeros(100, np.int32), 1, checkpoint)


def test_the_degrees_of_a_run_of_nodes_are_those_of_its_nodes():
    rows = build_csr(np.array([0, 0, 3, 4], np.int32), np.array([1, 2, 0, 0], np.int32), 5)
    for first in range(8):
        for last in range(first, 9):
            nodes = np.arange(first, last, dtype=np.int64)
            assert rows.degrees_of_run(first, last).tolist() == rows.degrees(nodes).tolist()
