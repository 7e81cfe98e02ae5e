"""Blobs: bytes in, the same bytes out, whatever happens to the row around them."""

import base64

import pytest
from write_world import WriteWorld

from omnigraph.errors import ConstraintViolationError, InputError, NotFoundError

SCHEMA = """
node Doc { title: String @key  body: Blob?  note: String? }
edge Cites: Doc -> Doc { page: Blob? }
"""


def encoded(data):
    return "base64:" + base64.b64encode(data).decode()


def doc(title, **data):
    return {"type": "Doc", "data": {"title": title, **data}}


@pytest.fixture
def world(tmp_path):
    world = WriteWorld(tmp_path / "g", SCHEMA)
    world.load(
        doc("a", body=encoded(b"Hello World")),
        doc("empty", body="base64:"),
        doc("none"),
        {"edge": "Cites", "from": "a", "to": "empty", "data": {"id": "c1", "page": encoded(b"p7")}},
    )
    return world


def read(world, title, branch="main"):
    return world.graph.read_blob("node", "Doc", title, "body", branch=branch).read()


def test_a_blob_is_read_in_half_open_ranges(world):
    blob = world.graph.read_blob("node", "Doc", "a", "body")
    assert (blob.size, blob.kind, blob.uri) == (11, "managed", None)
    assert blob.read_range(6, 11) == b"World"
    assert blob.read_range(3, 3) == b""
    for start, stop in [(-1, 2), (5, 4), (0, 12)]:
        with pytest.raises(InputError, match="does not lie within"):
            blob.read_range(start, stop)


def test_empty_is_not_null_and_edges_have_blobs_too(world):
    assert read(world, "empty") == b""
    assert world.graph.read_blob("edge", "Cites", "c1", "page").read() == b"p7"
    with pytest.raises(NotFoundError):
        read(world, "none")


@pytest.mark.parametrize(
    ("selector", "error"),
    [
        (("node", "Doc", "zz", "body"), NotFoundError),
        (("node", "Nope", "a", "body"), NotFoundError),
        (("node", "Doc", "a", "nope"), NotFoundError),
        (("node", "Doc", "a", "note"), InputError),
        (("table", "Doc", "a", "body"), InputError),
    ],
)
def test_what_is_not_a_blob_is_said_so(world, selector, error):
    with pytest.raises(error):
        world.graph.read_blob(*selector)


def test_an_update_of_something_else_keeps_the_blob(world):
    world.mutate('update Doc set { note: "n" } where title != "zz"')
    assert read(world, "a") == b"Hello World"
    assert read(world, "empty") == b""
    with pytest.raises(NotFoundError):
        read(world, "none")


def test_a_blob_can_be_set_and_replaced_and_history_keeps_the_old_one(world):
    before = world.head()
    big = bytes(range(256)) * 2000
    world.mutate('update Doc set { body: $b } where title = "a"', b=("Blob", encoded(big)))
    world.mutate('insert Doc { title: "new", body: $b }', b=("Blob", encoded(b"\0")))
    assert read(world, "a") == big
    assert read(world, "new") == b"\0"
    old = world.graph.read_blob("node", "Doc", "a", "body", snapshot=before)
    assert old.read() == b"Hello World"


def test_an_external_blob_stays_where_it_is_also_through_updates(world, tmp_path):
    outside = tmp_path / "outside.bin"
    outside.write_bytes(b"0123456789")
    world.load(doc("ext", body=outside.as_uri()))
    world.mutate('update Doc set { note: "n" } where title = "ext"')
    blob = world.graph.read_blob("node", "Doc", "ext", "body")
    assert (blob.kind, blob.uri, blob.size) == ("external", outside.as_uri(), 10)
    assert blob.read_range(2, 5) == b"234"


@pytest.mark.parametrize("value", ["plain text", "base64:???", "ftp://x/y", 7])
def test_what_is_neither_base64_nor_a_uri_is_refused(world, value):
    with pytest.raises(ConstraintViolationError, match="expects Blob"):
        world.load(doc("bad", body=value))
