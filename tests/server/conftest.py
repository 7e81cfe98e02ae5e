"""One server for all tests of a module, on a graph of people with a blob and stored queries."""

from __future__ import annotations

import pytest
from serving import serving

from omnigraph import Graph

SCHEMA = """
node Person { name: String @key  age: I32?  photo: Blob? }
node Town { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge LivesIn: Person -> Town
"""
DATA = """
{"type":"Person","data":{"name":"ada","age":36,"photo":"base64:SGVsbG8gV29ybGQ="}}
{"type":"Person","data":{"name":"bob","age":41}}
{"type":"Person","data":{"name":"cleo"}}
{"type":"Town","data":{"name":"Delft"}}
{"edge":"Knows","from":"ada","to":"bob","data":{"since":"2020-01-02"}}
{"edge":"Knows","from":"bob","to":"cleo","data":{}}
{"edge":"LivesIn","from":"ada","to":"Delft","data":{}}
"""
QUERIES = """
query person($name: String) @description("One person by name") {
  match { $p: Person { name: $name } } return { $p.name, $p.age }
}
query add_person($name: String, $age: I32?) { insert Person { name: $name, age: $age } }
"""


def make_graph(path):
    with Graph.init(path, SCHEMA, durability="process") as graph:
        graph.load(DATA.strip(), mode="append")
    return path


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    (folder / "queries").mkdir()
    (folder / "queries" / "people.gq").write_text(QUERIES)
    uri = make_graph(folder / "people.omni")
    with serving([uri], "--queries", str(folder / "queries"), folder=folder) as found:
        found.folder = folder
        yield found
