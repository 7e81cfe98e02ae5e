"""What things cost, as counts: requests to the store, versions of the manifest, flushed files.

The numbers are bounds that a change may lower freely; raising one needs a reason.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from msgspec.structs import replace

from manifest_world import FAST, Authority, update
from omnigraph.model.ports import World
from omnigraph.storage.manifest.ref_files import MAIN_BRANCH
from places import Place

pytestmark = pytest.mark.s3


def costs(graph, place, counter):
    """The requests of each operation, by verb, on a warm handle and a cold one."""

    def of(work):
        with counter.counted() as block:
            work()
        return dict(sorted(block.by_verb().items()))

    warm = Authority.over(place)
    warm.head()
    number = iter(range(100))
    found = {
        "snapshot, cold": of(lambda: Authority.over(place).head()),
        "snapshot, nothing new": of(warm.head),
        "publish": of(lambda: graph.advance()),
        "snapshot, one commit behind": of(warm.head),
        "ten newest commits": of(lambda: warm.history.commits(MAIN_BRANCH, limit=10)),
        "branch create": of(lambda: graph.refs.create(f"b{next(number)}", actor_id=None)),
    }
    for branch in graph.refs.list()[1:]:
        graph.refs.delete(branch.name)
    return found


def test_costs_do_not_grow_with_history(local_root, s3_server, request_counter):
    local = Authority.created(local_root)
    young = costs_on_s3(local, s3_server, request_counter, commits=10)
    assert costs_on_s3(local, s3_server, request_counter, commits=1000) == young
    assert young["publish"] == {"LIST": 1, "PUT": 3}  # the LIST is the look before it
    assert young["snapshot, nothing new"] == {"LIST": 1}
    assert sum(young["snapshot, one commit behind"].values()) <= 4
    assert sum(young["snapshot, cold"].values()) <= 5
    assert sum(young["ten newest commits"].values()) <= 1
    assert sum(young["branch create"].values()) <= 13  # one is the look for a tag of that name


def costs_on_s3(local, s3_server, counter, *, commits):
    """Grow the local graph to so many commits, move it to S3 and ask there."""
    version = local.head().entries["node:Person"].version
    while version < commits:
        version += 1
        local.publish(update("node:Person", version))
    place = Place(uri=f"s3://graphs/costs-{commits}", environ=s3_server.environ())
    graph = Authority.over(place)
    folder = Path(local.root.local_path)
    live = {one.metadata.files[0].path for one in local.manifests.fresh(None).opened.fragments}
    for path in (folder / "__manifest").rglob("*"):
        if path.is_file() and (path.parent.name == "_versions" or path.name in live):
            graph.store.put(path.relative_to(folder).as_posix(), path.read_bytes())
    graph.head()
    return costs(graph, place, counter)


def test_branch_create_does_not_depend_on_the_number_of_tables(s3_server, request_counter):
    seen = []
    for count in (1, 200):
        place = Place(uri=f"s3://graphs/tables-{count}", environ=s3_server.environ())
        graph = Authority.created(place, tables=[f"node:T{number}" for number in range(count)])
        with request_counter.counted() as block:
            graph.refs.create("b", actor_id=None)
        seen.append(block.by_verb())
    assert seen[0] == seen[1]


def test_every_publish_is_one_version(local_root):
    graph = Authority.created(local_root)
    for _ in range(300):
        graph.advance()
    assert graph.head().manifest_version == 301


class CountingDisk:
    def __init__(self):
        self.flushed = Counter()

    def fsync_file(self, path):
        self.flushed["files"] += 1

    def fsync_folder(self, path):
        self.flushed["folders"] += 1


def test_a_publish_reaches_the_disk_before_it_returns(local_root):
    disk = CountingDisk()
    graph = Authority.created(local_root, world=World(disk=disk))
    graph.advance()
    before = Counter(disk.flushed)
    graph.advance()
    # The tail, the transaction and the version, and the three folders that name them.
    assert disk.flushed - before == {"files": 3, "folders": 3}


def test_a_throwaway_graph_flushes_nothing(local_root):
    disk = CountingDisk()
    graph = Authority.created(local_root, world=replace(FAST, disk=disk))
    graph.advance()
    graph.refs.create("b", actor_id=None)
    assert disk.flushed == Counter()
