"""Export: lines that load back, nodes first, by id."""

from __future__ import annotations

import json

import pytest

from omnigraph import Graph
from omnigraph.errors import InputError

SCHEMA = """
node B { name: String @key  day: Date?  at: DateTime?  big: I64?  raw: Blob?  tags: [String]? }
node A { name: String @key }
edge Link: A -> B { note: String? }
"""
LINES = [
    {"type": "B", "data": {"name": "y", "day": "2024-01-01", "at": "2024-01-01T00:00:00Z"}},
    {"type": "B", "data": {"name": "x", "big": str(2**60), "raw": "base64:aGk=", "tags": ["t"]}},
    {"type": "A", "data": {"name": "a"}},
    {"edge": "Link", "from": "a", "to": "y", "data": {"id": "l2"}},
    {"edge": "Link", "from": "a", "to": "x", "data": {"id": "l1", "note": "n"}},
]


@pytest.fixture
def graph(tmp_path):
    with Graph.init(str(tmp_path / "g.omni"), SCHEMA) as made:
        made.load("\n".join(map(json.dumps, LINES)), mode="append")
        yield made


def test_nodes_come_first_and_rows_by_id(graph):
    records = [json.loads(line) for line in graph.export()]
    assert [(r.get("type") or r["edge"], r["data"]["id"]) for r in records] == [
        ("A", "a"),
        ("B", "x"),
        ("B", "y"),
        ("Link", "l1"),
        ("Link", "l2"),
    ]
    x, y = records[1]["data"], records[2]["data"]
    assert (x["big"], x["raw"], x["tags"], x["day"]) == (str(2**60), "base64:aGk=", ["t"], None)
    assert (y["day"], y["at"]) == (19723, 1704067200000)
    assert (records[3]["from"], records[3]["to"]) == ("a", "x")


def test_an_export_loads_back_to_the_same_export(graph, tmp_path):
    lines = list(graph.export())
    with Graph.init(str(tmp_path / "copy.omni"), SCHEMA) as copy:
        copy.load("\n".join(lines), mode="overwrite")
        assert list(copy.export()) == lines


def test_types_choose_and_unknown_ones_are_refused(graph):
    assert len(list(graph.export(types=["B"]))) == 2
    with pytest.raises(InputError, match="unknown export type 'C'"):
        graph.export(types=["C"])


def test_an_older_commit_exports_as_it_was(graph):
    before = graph.snapshot().graph_commit_id
    lines = list(graph.export())
    graph.mutate('query d() { delete B where name = "x" }')
    assert list(graph.export(snapshot=before)) == lines
    assert len(list(graph.export())) == 3
