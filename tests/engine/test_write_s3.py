"""The write path on an object store: one story through every kind of write."""

import base64

import pytest
from write_world import WriteWorld

pytestmark = pytest.mark.s3

SCHEMA = """
node Doc { title: String @key  body: Blob?  tag: String? @unique }
edge Cites: Doc -> Doc { since: Date?  @unique(src, dst) }
"""


def test_loads_mutations_and_blobs_work_on_an_object_store(s3_root):
    world = WriteWorld(s3_root.uri, SCHEMA)
    body = "base64:" + base64.b64encode(b"Hello").decode()
    world.load(
        {"type": "Doc", "data": {"title": "a", "body": body, "tag": "x"}},
        {"type": "Doc", "data": {"title": "b"}},
        {"edge": "Cites", "from": "a", "to": "b"},
    )
    for n in range(10):
        world.mutate(f'insert Doc {{ title: "n{n}" }}', f'insert Cites {{ from: "a", to: "n{n}" }}')
    assert world.mutate('update Doc set { tag: "y" } where title = "n7"').affected_nodes == 1
    assert world.mutate('delete Doc where title in ["b", "n3"]').affected_edges == 2
    world.graph.create_branch("side")
    world.load({"type": "Doc", "data": {"title": "b"}}, mode="merge", branch="side")
    assert len(world.nodes("Doc")) == 10
    assert len(world.nodes("Doc", branch="side")) == 11
    assert world.nodes("Doc")["n7"]["tag"] == "y"
    blob = world.graph.read_blob("node", "Doc", "a", "body", branch="side")
    assert (blob.size, blob.read_range(1, 4)) == (5, b"ell")
