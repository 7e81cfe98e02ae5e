"""Addresses of blobs outside a graph: which are taken where bases are named."""

from __future__ import annotations

import os

import pytest

from omnigraph import Graph
from omnigraph.engine.rows.blobs import BlobBases
from omnigraph.errors import ExternalBlobError, InputError, LimitExceededError
from omnigraph.model.limits import BLOB_URIS_MAX

SCHEMA = "node Person { name: String @key  photo: Blob?  note: String? }"
ADD = "query add($n: String, $b: Blob) { insert Person { name: $n, photo: $b } }"
SET = 'query set($b: Blob) { update Person set { photo: $b } where name = "old" }'
NOTE = "query note($t: String) { update Person set { note: $t } where name is not null }"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("blobs")
    for name in ("in/a.txt", "in/deep/b.txt", "out/secret.txt"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    os.symlink(root / "out" / "secret.txt", root / "in" / "link")
    os.symlink(root / "out", root / "in" / "away")
    return root


ADDRESSES = {
    "in/a.txt": None,
    "in/deep/b.txt": None,
    "in/none.txt": "nothing is there",
    "in/deep": "nothing is there",
    "in": "below no base",
    "inner/a.txt": "below no base",
    "out/secret.txt": "below no base",
    "in/../out/secret.txt": "below no base",
    "in/%2e%2e/out/secret.txt": "below no base",
    "in/link": "below no base",
    "in/away/secret.txt": "below no base",
}


@pytest.mark.parametrize(("name", "reason"), ADDRESSES.items())
def test_an_address_is_taken_below_a_base_if_something_is_there(folder, name, reason):
    bases = BlobBases.of([f"file://{folder}/in"])
    uri = f"file://{folder}/{name}"
    if reason is None:
        bases.admit([uri, None])
        return
    with pytest.raises(ExternalBlobError, match=reason) as refused:
        bases.admit([uri])
    assert refused.value.uri == uri


def test_other_places_and_too_many_addresses_are_refused(folder):
    bases = BlobBases.of([f"file://{folder}/in"])
    with pytest.raises(ExternalBlobError, match="below no base"):
        bases.admit(["s3://bucket/a"])
    with pytest.raises(LimitExceededError):
        bases.admit(f"file://{folder}/in/{number}" for number in range(BLOB_URIS_MAX + 1))
    with pytest.raises(InputError, match="no base of blobs"):
        BlobBases.of(["http://host/"])
    assert BlobBases.of(None) is None


def test_every_way_in_is_guarded_and_what_is_stored_goes_on(folder, tmp_path):
    inside, outside = f"file://{folder}/in/a.txt", f"file://{folder}/out/secret.txt"
    uri = tmp_path / "g.omni"
    with Graph.init(uri, SCHEMA, durability="process") as graph:
        graph.load({"Person": [{"name": "old", "photo": outside}]}, mode="append")
    with Graph.open(uri, blob_bases=[f"file://{folder}/in/"]) as graph:
        before = graph.commits(limit=1)[0]
        for deed in (
            lambda: graph.mutate(ADD, params={"n": "x", "b": outside}),
            lambda: graph.mutate(SET, params={"b": outside}),
            lambda: graph.load({"Person": [{"name": "x", "photo": outside}]}, mode="merge"),
        ):
            with pytest.raises(ExternalBlobError):
                deed()
        assert graph.commits(limit=1)[0] == before
        graph.mutate(ADD, params={"n": "new", "b": inside})
        graph.mutate(NOTE, params={"t": "n"})  # carries the address along that was stored before
        found = [graph.read_blob("node", "Person", name, "photo").uri for name in ("old", "new")]
        assert found == [outside, inside]


def test_a_resolution_of_a_merge_is_guarded(folder, tmp_path):
    outside = f"file://{folder}/out/secret.txt"
    with Graph.init(tmp_path / "g.omni", SCHEMA, durability="process", blob_bases=[]) as graph:
        graph.load({"Person": [{"name": "a"}]}, mode="append")
        graph.create_branch("topic")
        graph.mutate(NOTE, params={"t": "x"})
        graph.mutate(NOTE, params={"t": "y"}, branch="topic")
        with pytest.raises(ExternalBlobError):
            graph.merge("topic", resolutions={("node:Person", "a"): {"photo": outside}})
