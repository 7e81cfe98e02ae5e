"""The order of ids is the sorted one, found out at once or followed through commits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.read.memory import id_order
from omnigraph.engine.read.memory.arrays import Column
from omnigraph.engine.read.memory.id_order import IdOrder


@pytest.fixture(autouse=True, params=[3, 1 << 17], ids=["small chunks", "big chunks"])
def chunks(request, monkeypatch):
    monkeypatch.setattr("omnigraph.engine.read.memory.arrays.CHUNK_ROWS", request.param)
    monkeypatch.setattr(id_order, "CHUNK_ROWS", request.param)


def column(ids):
    return Column.of(pa.array(ids, pa.string()))


def longer(ids, added):
    at = np.arange(ids.length, ids.length + len(added))
    return ids.patched(at, pa.array(added, pa.string()), ids.length + len(added))


def by_sorting(ids):
    texts = ids.whole().to_pylist()
    return sorted(range(len(texts)), key=texts.__getitem__)


@pytest.mark.parametrize(
    ("ids", "ascends"),
    [
        ([], True),
        (["b"], True),
        (["a", "aa", "b", "é", "日", "🙂"], True),
        (["a", "b", "d", "c", "e", "f", "g"], False),
        (["a", "b", "c", "c", "d"], False),
        (["a", "b", "c", None, "d"], False),
    ],
)
def test_ascending_ids_are_recognised(ids, ascends):
    assert IdOrder().ascends(column(ids)) is ascends


@pytest.mark.parametrize("added", [["z1", "z2"], ["z2", "z1"], ["c055"], ["", "c5", "c4", "zz"]])
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("asked", ["nothing", "ascends", "order"])
@pytest.mark.parametrize("merged_share", [0, 1 << 60], ids=["merged", "sorted"])
def test_the_order_follows_new_ids(added, shuffled, asked, merged_share, monkeypatch):
    monkeypatch.setattr(id_order, "MERGED_SHARE", merged_share)
    ids = column([f"c{at:02}" for at in range(20)])
    if shuffled:
        ids = Column.of(ids.base.take(pa.array(np.random.default_rng(3).permutation(20))))
    known = IdOrder()
    if asked != "nothing":
        getattr(known, asked)(ids)
    ids, known = longer(ids, added), known.moved()
    assert known.ascends(ids) is (by_sorting(ids) == list(range(ids.length)))
    for turn in range(2):
        assert known.order(ids).tolist() == by_sorting(ids)
        assert known.ranks(ids).tolist() == np.argsort(by_sorting(ids)).tolist()
        ids, known = longer(ids, [f"b{turn}", f"y{turn}"]), known.moved()
    assert known.order(ids).tolist() == by_sorting(ids)


def test_a_new_id_is_looked_for_and_nothing_is_sorted_again(monkeypatch):
    ids, known = column([f"{at:04}" for at in range(1000)]), IdOrder()
    assert known.ascends(ids)
    monkeypatch.setattr(Column, "whole", lambda _: pytest.fail("the whole column was asked for"))
    ids, known = longer(ids, ["0500x"]), known.moved()
    assert not known.ascends(ids)
    assert known.order(ids)[499:503].tolist() == [499, 500, 1000, 501]
