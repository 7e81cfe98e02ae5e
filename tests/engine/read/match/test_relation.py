"""Joining and telling rows apart, as loops over lists would."""

from __future__ import annotations

import numpy as np

from omnigraph.engine.read.match.relation import Relation, joined_rows


def test_joined_rows_pairs_equal_keys_in_left_order():
    left, right = np.array([3, 1, 9, 3]), np.array([1, 3, 3])
    pairs = list(zip(*(side.tolist() for side in joined_rows(left, right)), strict=True))
    assert pairs == [(0, 1), (0, 2), (1, 0), (3, 1), (3, 2)]


def test_distinct_rows_know_their_twins():
    relation = Relation(4, {"a": np.array([1, 1, -1, 1]), "b": np.array([5, 6, 5, 5])})
    distinct, back = relation.distinct()
    assert distinct.count == 3
    again = distinct.take(back)
    assert again["a"].tolist() == [1, 1, -1, 1]
    assert again["b"].tolist() == [5, 6, 5, 5]
