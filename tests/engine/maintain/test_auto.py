"""Upkeep by itself: tables stay compact, nobody waits for it, and it never fails a write."""

from __future__ import annotations

import logging

import pytest
from maintain_world import add, age, fragments, make, names, reopened

from inside import table_of
from omnigraph.engine.maintain import auto
from omnigraph.engine.maintain.auto import MaintenancePolicy
from omnigraph.errors import StorageUnavailableError

EAGER = MaintenancePolicy(small_fragments_max=4)
PEOPLE = tuple(f"p{number:02}" for number in range(40))


def test_many_small_commits_leave_few_fragments(tmp_path):
    with make(tmp_path / "g.omni", maintenance=EAGER) as graph:
        for name in PEOPLE:
            add(graph, name)
            graph._auto.wait()
        assert fragments(graph) <= 8
        assert fragments(graph, "edge:Knows") <= 8
        assert names(graph) == list(PEOPLE)
        table = table_of(graph, "node:Person")
        assert {one.name for one in table.indexes()} >= {"id_btree", "name_btree"}
        assert all(one.segments <= 4 for one in table.indexes())


def test_it_works_beside_the_writer(tmp_path):
    with make(tmp_path / "g.omni", maintenance=EAGER) as graph:
        add(graph, *PEOPLE)
        assert names(graph) == list(PEOPLE)
    with reopened(graph) as fresh:
        assert names(fresh) == list(PEOPLE)
        kinds = [commit.properties.get("writer_kind") for commit in fresh.commits()]
        assert kinds.count("Mutation") == len(PEOPLE)
        assert "Optimize" in kinds


def test_each_row_is_rewritten_a_few_times_only(tmp_path):
    with make(tmp_path / "g.omni", maintenance=None) as graph:
        lines = (f'{{"type":"Person","data":{{"name":"q{number}"}}}}' for number in range(1000))
        graph.load(lines, mode="append")
        add(graph, *PEOPLE[:6])
        big = table_of(graph, "node:Person").fragment_ids[0]
        uri = graph.uri
    with reopened(graph, maintenance=EAGER) as graph:
        add(graph, "zoe")
        graph._auto.wait()
        table = table_of(graph, "node:Person")
        assert table.fragment_ids[0] == big, "the big fragment was left alone"
        assert len(table.fragment_ids) == 2
        assert age(graph, "zoe") == 1
        assert graph.uri == uri


def test_it_can_be_turned_off(tmp_path):
    with make(tmp_path / "g.omni", maintenance=None) as graph:
        add(graph, *PEOPLE[:10])
        assert fragments(graph) == 10
        assert len(graph.commits()) == 11


@pytest.mark.parametrize("fault", [StorageUnavailableError("no", uri="", reason=""), ValueError()])
def test_its_failure_is_only_logged(tmp_path, monkeypatch, caplog, fault):
    def failing(*_):
        raise fault

    monkeypatch.setattr(auto, "optimize", failing)
    with caplog.at_level(logging.WARNING), make(tmp_path / "g", maintenance=EAGER) as graph:
        add(graph, *PEOPLE[:10])
        graph._auto.wait()
        assert names(graph) == list(PEOPLE[:10])
    assert "upkeep failed" in caplog.text
