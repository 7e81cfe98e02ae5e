"""A frame that follows the commits answers like one that was just read."""

from __future__ import annotations

import contextlib
import random
import threading

import numpy as np
import pytest

from omnigraph import Graph
from omnigraph.engine.read.match import relation
from omnigraph.engine.read.memory import arrays, cache, codes, frame, ids, selection
from omnigraph.engine.read.memory.arrays import RowIdList
from omnigraph.errors import ConstraintViolationError

SCHEMA = """
node N { name: String @key  kind: String?  size: F64?  tags: [String]? }
edge E: N -> N { w: I32? }
"""
QUESTIONS = [
    "match { $n: N } return { $n.kind, count(*) as n, sum($n.size) as s }",
    "match { $n: N } return { $n.size, count(*) as n }",
    "match { $n: N } return { $n.tags, count(*) as n }",
    "match { $n: N } return distinct { $n.kind }",
    "match { $n: N $n.size > 1.0 } return { $n.name, $n.size }",
    "match { $n: N } return { $n.name, $n.kind, $n.tags }",
    "match { $n: N } return { $n.name, $n.size } order { $n.size desc } limit 3",
    "match { $n: N { name: $one } } return { $n.name, $n.kind }",
    "match { $n: N $n.name in $some } return { $n.name, $n.size }",
    "match { $a: N { name: $one } $a e $b } return { $b.name }",
    "match { $a: N $a $e:e $b } return { $a.name, $e.w, $b.name }",
]
SETTINGS = {
    "small": {},
    "big": {"SMALL_TABLE_ROWS": 0, "SEARCHED_IDS_MAX": 2, "SEARCHES_MAX": 3, "FEW_IDS": 1},
    "searched": {"SMALL_TABLE_ROWS": 0, "HOT_FETCHES": 99, "SEARCHED_IDS_MAX": 3},
    "folded": {"PATCH_ROWS_MAX": 2, "MOVED_SHARE_MAX": 9.0, "GONE_SHARE_MAX": 0.9},
}


@pytest.fixture(params=SETTINGS)
def _settings(request, monkeypatch):
    for name, value in SETTINGS[request.param].items():
        places = [module for module in (arrays, frame, ids) if hasattr(module, name)]
        assert places, f"no module has the setting {name}"
        for module in places:
            monkeypatch.setattr(module, name, value)
    for module in (arrays, codes, ids, relation, selection):
        monkeypatch.setattr(module, "CHUNK_ROWS", 4)
    monkeypatch.setattr(ids, "ADDED_IDS_MAX", 3)
    monkeypatch.setattr(ids, "ONE_BY_ONE_MAX", 1)


def answers(graph, names):
    params = {"one": names[0], "some": [*names[:4], "nobody"]}
    told = []
    for number, question in enumerate(QUESTIONS):
        asks = [name for name in params if f"${name}" in question]
        kinds = {"one": "$one: String", "some": "$some: [String]"}
        text = f"query q{number}({', '.join(kinds[name] for name in asks)}) {{ {question} }}"
        rows = graph.query(text, params={name: params[name] for name in asks}).to_pylist()
        told.append(rows if "order" in question else sorted(rows, key=repr))
    return told


def a_change(chance, names):
    """Statements that change a few nodes and edges; names that went may come back."""
    size = chance.choice(["1.5", "-0.0", "0.0", "7.0", "null"])
    kind = chance.choice(['"a"', '"b"', f'"k{chance.randrange(99)}"', "null"])
    name, other = (chance.choice(names) for _ in range(2))
    return chance.choice(
        [
            f'insert N {{ name: "x{chance.randrange(30)}", kind: {kind}, size: {size} }}',
            f'update N set {{ kind: {kind}, size: {size} }} where name = "{name}"',
            f'update N set {{ tags: ["{name[0]}"] }} where name = "{name}"',
            f'delete N where name = "{name}"',
            f'insert E {{ from: "{name}", to: "{other}", w: {chance.randrange(9)} }}',
        ]
    )


@pytest.mark.usefixtures("_settings")
@pytest.mark.parametrize("seed", range(3))
def test_a_frame_that_moves_answers_like_one_that_was_just_read(tmp_path, seed):
    chance, names = random.Random(seed), [f"x{number}" for number in range(24)]
    uri = str(tmp_path / "g.omni")
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        first = [f'insert N {{ name: "{name}", kind: "a", size: 2.0 }}' for name in names[:20]]
        graph.mutate("query m() { " + "\n".join(first) + " }")
        for turn in range(12):
            with contextlib.suppress(ConstraintViolationError):
                graph.mutate(f"query m() {{ {a_change(chance, names)} }}")
            if turn % 5 == 3:
                graph.optimize()
            asked = chance.sample(names, 6)
            with Graph.open(uri) as fresh:
                assert answers(graph, asked) == answers(fresh, asked)


def test_a_column_in_memory_is_there_while_another_one_is_read(tmp_path, monkeypatch):
    uri = str(tmp_path / "g.omni")
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        graph.mutate('query m() { insert N { name: "a", kind: "k", size: 1.0 } }')
        sizes = "query q() { match { $n: N } return { sum($n.size) as s } }"
        kinds = "query q() { match { $n: N } return { $n.kind, count(*) as n } }"
        assert graph.query(sizes).to_pylist() == [{"s": 1.0}]
        began, go_on, load = threading.Event(), threading.Event(), frame.Frame.load

        def slowly(self, names):
            began.set()
            assert go_on.wait(60)
            return load(self, names)

        monkeypatch.setattr(frame.Frame, "load", slowly)
        other = threading.Thread(target=graph.query, args=(kinds,))
        other.start()
        assert began.wait(60)
        assert graph.query(sizes).to_pylist() == [{"s": 1.0}]
        go_on.set()
        other.join()


@pytest.mark.parametrize("start", [0, 5])
def test_row_ids_without_gaps_take_no_room(start):
    dense = RowIdList.of(np.arange(start, start + 9, dtype=np.uint64))
    assert not dense.buffers()
    assert dense.extended(np.array([start + 9], dtype=np.uint64)).buffers() == {}
    assert dense.extended(np.array([start + 8], dtype=np.uint64)) is None
    sparse = dense.extended(np.array([start + 11, start + 20], dtype=np.uint64))
    assert sparse.buffers()
    for rows, expected in (
        (dense, list(range(start, start + 9))),
        (sparse, [*range(start, start + 9), start + 11, start + 20]),
        (RowIdList.of(np.empty(0, dtype=np.uint64)), []),
    ):
        assert rows.all().tolist() == expected
        assert rows.equal(rows.all())
        assert not rows.equal(rows.all() + np.uint64(1)) or not expected
        asked = np.array([0, start, start + 8, start + 9, start + 11, 2**40], dtype=np.uint64)
        found = [expected.index(one) if one in expected else -1 for one in asked.tolist()]
        assert rows.places(asked).tolist() == found
        places = np.arange(len(expected))[::-1]
        assert rows.take(places).tolist() == expected[::-1]


def test_row_ids_are_known_without_a_read_until_a_row_is_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "IDS_AT_ONCE_ROWS", 0)
    uri, kinds = str(tmp_path / "g.omni"), "query q() { match { $n: N } return { $n.name } }"
    known = []

    def looked(branch):
        with Graph.open(uri) as graph:
            caches, target = graph._reader._caches, graph._core.snapshot(branch, None)
            table = caches.table(target.entries["node:N"])
            row_ids, stored = table.row_ids_without_gaps(), table.read([])["_rowid"].to_pylist()
            assert row_ids is None or row_ids.all().tolist() == sorted(stored)
            known.append(row_ids is not None)
            return graph.query(kinds, branch=branch).to_pylist()

    with Graph.init(uri, SCHEMA, durability="process") as graph:
        for name in "abc":
            graph.mutate(f'query m() {{ insert N {{ name: "{name}" }} }}')
        assert len(looked("main")) == 3
        graph.mutate('query m() { update N set { kind: "k" } where name = "a" }')
        assert len(looked("main")) == 3
        graph.optimize()
        graph.create_branch("side")
        graph.mutate('query m() { insert N { name: "d" } }', branch="side")
        assert len(looked("side")) == 4
        graph.mutate('query m() { delete N where name = "b" }', branch="side")
        assert [row["n.name"] for row in looked("side")] == ["a", "c", "d"]
        graph.mutate('query m() { insert N { name: "e" } }')
        assert len(looked("main")) == 4
    assert known == [True, True, True, False, True]
