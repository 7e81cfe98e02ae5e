"""`optimize` on executors does what it does in process, in one commit."""

from __future__ import annotations

import pytest
from twins import content, ndjson, node

from omnigraph import Graph, pipeline

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
