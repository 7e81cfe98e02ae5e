"""`optimize` on executors does what it does in process, in one commit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from twins import content, ndjson, node

from inside import table_of
from omnigraph import Graph, pipeline
from omnigraph.model.limits import DERIVED_ROWS_MIN
from omnigraph.model.ports import World

pytestmark = pytest.mark.spark

SCHEMA = "node Person { name: String @key  age: I32? }"


def test_fragments_are_folded_by_executors_and_no_row_changes(spark, tmp_path):
    uri = str(tmp_path / "graph")
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        for number in range(12):
            graph.load(ndjson([node("Person", name=f"p{number}", age=number)]), mode="append")
        before, commits = content(graph), len(graph.commits())
    report = pipeline.optimize(spark, uri)
    (person,) = [one for one in report.datasets if one.type_key == "node:Person"]
    assert (person.committed, person.fragments_removed, person.fragments_added) == (True, 12, 1)
    with Graph.open(uri) as graph:
        assert content(graph) == before
        assert len(graph.commits()) == commits + 1
    again = pipeline.optimize(spark, uri)
    assert not any(one.committed for one in again.datasets)


def test_executors_build_the_pieces_of_indexes_and_lookups_use_the_whole(spark, tmp_path):
    heard: list[int] = []
    uri = str(tmp_path / "graph")
    with Graph.init(uri, "node Note { name: String @key  text: String @index }") as graph:
        for number in range(6):
            note = node("Note", name=f"n{number}", text=f"word{number} shared")
            graph.load(ndjson([note]), mode="append")
        before = content(graph)
    pipeline.optimize(
        spark, uri, index_task_rows=2, listener=lambda one: heard.append(one.tasks_total)
    )
    # One task folds, and each of the three indexes of six rows is built in three.
    assert max(heard) == 1 + 3 * 3
    with Graph.open(uri) as graph:
        assert content(graph) == before
        found = table_of(graph, "node:Note", "main").indexes()
        assert {one.name: (one.segments, one.rows_indexed) for one in found} == dict.fromkeys(
            ("id_btree", "name_btree", "text_btree"), (1, 6)
        )
        asked = 'query q() { match { $n: Note  search($n.text, "word4") } return { $n.name } }'
        assert graph.query(asked).to_pylist() == [{"n.name": "n4"}]
    again = pipeline.optimize(spark, uri, index_task_rows=2)
    assert not any(one.committed for one in again.datasets)


def test_executors_store_the_words_of_big_fragments_as_this_process_does(spark, tmp_path):
    uri, rows = str(tmp_path / "graph"), DERIVED_ROWS_MIN
    late = World(durability="process", derived_rows_min=rows + 1)
    schema = 'node Note { name: String @key  text: String @index(language="english") }'
    with Graph.init(uri, schema, world=late) as graph:
        notes = {"name": [f"n{n}" for n in range(rows)], "text": ["words"] * rows}
        graph.load({"Note": pa.table(notes)}, mode="append")
    folder = Path(uri, "_derived")
    assert not folder.exists()
    pipeline.optimize(spark, uri)
    (made,) = [one for one in folder.rglob("*") if one.is_file()]
    there = made.read_bytes()
    made.unlink()
    with Graph.open(uri, durability="process") as graph:
        graph.optimize()
    assert made.read_bytes() == there
