"""A graph on an object store, loaded from files that lie there too."""

from __future__ import annotations

import pytest
from pyarrow import fs
from twins import bulk_load, content, edge, ndjson, node

from omnigraph import Graph
from omnigraph.errors import ConstraintViolationError
from omnigraph.storage.objects.files import FileAccess
from omnigraph.storage.objects.root import aws_environment

pytestmark = pytest.mark.s3

SCHEMA = """
node Person { name: String @key  age: I32?  pic: Blob? }
edge Knows: Person -> Person
"""


def files_below(address: str) -> list[str]:
    system, path = FileAccess(environ=aws_environment()).system(address)
    found = system.get_file_info(fs.FileSelector(path, recursive=True))
    return sorted(info.path for info in found if info.is_file)


def test_loads_merges_and_refusals_on_an_object_store(s3_root):
    base = s3_root.uri.rpartition("/")[0]
    uri, source = f"{base}/graph", f"{base}/in/a.jsonl"
    files = FileAccess(environ=aws_environment())
    Graph.init(uri, SCHEMA).close()
    people = [node("Person", name=f"p{i}", age=i, pic="base64:aGk=") for i in range(20)]
    files.write(source, ndjson([*people, edge("Knows", "p1", "p2", id="k")]).encode())
    assert bulk_load(uri, f"{base}/in", mode="append").total_entities == 21
    files.write(
        source, ndjson([node("Person", name="p1", age=99), node("Person", name="new")]).encode()
    )
    assert bulk_load(uri, f"{base}/in/*.jsonl", mode="merge").updated == {"Person": 1}
    with Graph.open(uri) as graph:
        rows = content(graph)
    assert len(rows) == 22
    before = files_below(uri)
    files.write(source, ndjson([node("Person", name="x"), edge("Knows", "x", "nobody")]).encode())
    with pytest.raises(ConstraintViolationError, match=r"in/a\.jsonl:2"):
        bulk_load(uri, source, mode="append")
    assert files_below(uri) == before
