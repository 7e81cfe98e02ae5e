"""Topologies on disk: a new process takes them over, and never believes a wrong one."""

from __future__ import annotations

import itertools
import shutil

import pytest

from omnigraph import Graph
from omnigraph.engine.read.memory import cache

SCHEMA = "node N { name: String @key }\nedge E: N -> N { w: I32? }"
WALK = 'query q() { match { $a: N { name: "n0" }  $a e{1,9} $b } return { $b.name } }'
EDGES = 'query q() { match { $a: N { name: "n1" }  $a $w:e $b } return { $w.w, $b.name } }'


def lines(order):
    made = [f'{{"type": "N", "data": {{"name": "n{n}"}}}}' for n in range(8)]
    for number, (a, b) in enumerate(itertools.pairwise(order)):
        made.append(f'{{"edge": "E", "from": "n{a}", "to": "n{b}", "data": {{"w": {number}}}}}')
    return "\n".join(made)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(cache, "TOPOLOGY_FILE_EDGES_MIN", 1)
    return tmp_path


def made(home, order):
    uri = str(home / "g.omni")
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        graph.load(lines(order), mode="append")
        return uri, answers(graph)


def answers(graph):
    return graph.query(WALK).to_pylist(), graph.query(EDGES).to_pylist()


def files():
    return sorted(cache.user_topology_folder().glob("*"))


def test_a_second_process_does_not_read_the_ends_of_the_edges(home):
    uri, expected = made(home, [0, 1, 2, 3, 4])
    assert len(files()) == 1
    with Graph.open(uri) as graph:
        told = graph.explain(WALK)
        assert "edge:E" not in told.columns_read
        assert answers(graph) == expected


def test_after_a_commit_the_taken_over_topology_moves_on(home):
    uri, _ = made(home, [0, 1, 2, 3])
    with Graph.open(uri, durability="process") as graph:
        answers(graph)
        graph.load('{"edge": "E", "from": "n3", "to": "n7"}', mode="append")
        assert {row["b.name"] for row in graph.query(WALK).to_pylist()} == {"n1", "n2", "n3", "n7"}


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_file_costs_a_rebuild_and_no_answer(home, damage):
    uri, expected = made(home, [0, 1, 2, 3, 4])
    (file,) = files()
    body = bytearray(file.read_bytes())
    if damage == "flip":
        body[len(body) // 2] ^= 0xFF
    file.write_bytes({"cut": body[: len(body) // 2], "flip": body, "empty": b""}[damage])
    with Graph.open(uri) as graph:
        assert answers(graph) == expected


def test_another_graph_at_the_same_place_does_not_take_it_over(home):
    uri, _ = made(home, [0, 1, 2, 3, 4])
    shutil.rmtree(uri)
    uri, expected = made(home, [0, 4, 3, 2, 1])
    with Graph.open(uri) as graph:
        assert answers(graph) == expected
        assert {row["b.name"] for row in expected[0]} == {"n1", "n2", "n3", "n4"}


def test_a_folder_that_cannot_be_written_stops_nothing(home):
    (home / ".cache").write_text("not a folder")
    _, expected = made(home, [0, 1, 2])
    assert len(expected[0]) == 2


def test_the_folder_keeps_to_its_size(home, monkeypatch):
    monkeypatch.setattr(cache, "TOPOLOGY_FILES_BYTES_MAX", 1)
    uri, _ = made(home, [0, 1, 2])
    with Graph.open(uri, durability="process") as graph:
        graph.load('{"edge": "E", "from": "n2", "to": "n3"}', mode="append")
    with Graph.open(uri) as graph:
        answers(graph)
    assert len(files()) == 1
