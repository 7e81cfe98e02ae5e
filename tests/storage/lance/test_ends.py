"""A data file whose end is damaged is refused before Lance reads it: that would end the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph import Graph, OpenMode
from omnigraph.errors import CorruptGraphError
from omnigraph.storage.lance import ends
from omnigraph.storage.lance.versions import DATA_FOOTER_BYTES

SCHEMA = "node Tree { name: String @key  height: F64? }\nnode Bird { name: String @key }"
TREES = "query q() { match { $t: Tree } return { $t.name, $t.height } }"
BIRDS = "query q() { match { $b: Bird } return { $b.name } }"


def insert(graph, kind, name, branch="main"):
    graph.mutate(f'query q() {{ insert {kind} {{ name: "{name}" }} }}', branch=branch)


@pytest.fixture
def uri(tmp_path):
    with Graph.init(tmp_path / "g", SCHEMA, maintenance=None, durability="process") as graph:
        insert(graph, "Tree", "oak")
        insert(graph, "Bird", "wren")
        graph.create_branch("dev")
        insert(graph, "Tree", "elm", "dev")
    return tmp_path / "g"


def newest(folder, pattern):
    return max(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns)


def flips(path):
    """The file with one bit of its counts flipped, each in turn; whole again afterwards."""
    body = path.read_bytes()
    try:
        for at in range(len(body) - DATA_FOOTER_BYTES + 24, len(body) - 8):
            for bit in (0, 7):
                damaged = bytearray(body)
                damaged[at] ^= 1 << bit
                path.write_bytes(damaged)
                yield
        path.write_bytes(body[:-1])
        yield
    finally:
        path.write_bytes(body)


@pytest.mark.parametrize("branch", ["main", "dev"])
def test_a_damaged_end_is_a_typed_error_that_names_the_file(uri, branch):
    with Graph.open(uri, mode=OpenMode.READ_ONLY) as graph:
        key = f"{graph.snapshot().entries['node:Tree'].location}/data"
    shared = next((uri / key).glob("*.lance"))  # the branch reads it too
    for _ in flips(shared):
        with (
            Graph.open(uri, mode=OpenMode.READ_ONLY) as graph,
            pytest.raises(CorruptGraphError) as caught,
        ):
            graph.query(TREES, branch=branch)
        assert caught.value.facts["part"] == str(shared.relative_to(uri))
    with Graph.open(uri) as graph:
        assert graph.query(TREES, branch=branch).row_count == (2 if branch == "dev" else 1)


def test_other_types_go_on(uri):
    with Graph.open(uri, mode=OpenMode.READ_ONLY) as graph:
        location = graph.snapshot().entries["node:Tree"].location
    path = next((uri / location / "data").glob("*.lance"))
    path.write_bytes(path.read_bytes()[:-9])
    with Graph.open(uri) as graph:
        assert graph.query(BIRDS).row_count == 1
        insert(graph, "Bird", "robin")
        assert not graph.verify().ok


def test_a_damaged_end_in_the_manifest_is_a_typed_error(uri):
    for _ in flips(newest(uri, "__manifest/data/*.lance")):
        with (
            pytest.raises(CorruptGraphError),
            Graph.open(uri, mode=OpenMode.READ_ONLY) as graph,
        ):
            graph.query(BIRDS)


def test_each_file_is_looked_at_once(uri, monkeypatch):
    looked = []
    fits = ends._fits
    monkeypatch.setattr(ends, "_fits", lambda path, size: looked.append(path) or fits(path, size))

    def tables():
        found = sorted(Path(path).name for path in looked if "__manifest" not in path)
        looked.clear()
        return found

    with Graph.open(uri, maintenance=None) as graph, Graph.open(uri, maintenance=None) as other:
        graph.query(TREES)
        assert len(tables()) == 1
        for _ in range(3):
            graph.query(TREES)
        insert(graph, "Tree", "ash")
        graph.query(TREES)  # it wrote that file itself
        assert tables() == []
        other.query(TREES)
        assert len(tables()) == 2
        insert(graph, "Tree", "yew")
        other.query(TREES)  # one commit of somebody else, one file
        assert len(tables()) == 1
