"""Positions that are not written down are those of the mask."""

from __future__ import annotations

import numpy as np
import pytest

from omnigraph.engine.read.match.relation import Relation
from omnigraph.engine.read.memory import selection
from omnigraph.engine.read.memory.selection import Selection


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(selection, "CHUNK_ROWS", 4)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 1.0])
def test_the_positions_of_some_rows_are_those_of_all(share):
    rng = np.random.default_rng(4)
    kept = rng.random(30) < share
    chosen, expected = Selection.where(kept), np.flatnonzero(kept)
    assert chosen.positions().tolist() == expected.tolist()
    assert chosen.mask().tolist() == kept.tolist()
    if chosen.count:
        rows = rng.integers(0, chosen.count, 12)
        assert chosen.at(rows).tolist() == expected[rows].tolist()


def test_few_rows_of_a_relation_do_not_make_the_positions_of_all(monkeypatch):
    kept = np.arange(100) % 3 > 0
    expected = np.flatnonzero(kept)
    edges = Selection.where(kept)
    targets = np.arange(100, 0, -1)
    whole = Relation.of_edges("k", edges, {"q": targets.__getitem__})
    monkeypatch.setattr(Selection, "positions", lambda _: pytest.fail("all positions were made"))
    few = whole.take(np.array([7, 0]))
    assert few["k"].tolist() == expected[[7, 0]].tolist()
    assert few["q"].tolist() == targets[expected[[7, 0]]].tolist()
    assert whole.slice(60, 62)["k"].tolist() == expected[60:62].tolist()
