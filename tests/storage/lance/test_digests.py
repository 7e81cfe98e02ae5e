"""Every file that a write brings has its SHA-256 on record, for as long as the file is there."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from table_bench import BY_ID, PLACE, SMALL, Bench, compacted, delete_where, indexed, people

from omnigraph import Graph
from omnigraph.model.ports import World
from omnigraph.storage.lance import digests
from omnigraph.storage.objects.root import Root, open_store
from omnigraph.storage.table.schema_change import AddedColumn, ColumnChanges
from omnigraph.storage.table.stage import take_out, write_fragments, write_images

BRANCH = "01JD3Z0000000000000000FORK"


@pytest.fixture
def bench(local_root):
    return Bench(local_root)


def stored(folder):
    """The digests of all data, deletion and index files of a line, taken now."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for part in ("data", "_deletions", "_indices")
        for path in (Path(folder) / part).rglob("*")
        if path.is_file()
    }


def told(bench):
    return digests.of_line(bench.tables.store, bench.place)


def executors(table):
    """What executors of a bulk job wrote: new rows, new images of a row, a row taken out."""
    uri = table._pinned.folder
    row = table.locate(["a"]).to_pylist()[0]
    added = write_fragments(uri, {}, people("x", "y"), SMALL, fragment_rows=1)
    images = write_images(uri, {}, people("a", age=7), [row["_rowid"]])
    reduced = take_out(uri, {}, table.version, row["_rowaddr"] >> 32, [row["_rowaddr"] & 0xFFFF])
    return table.stage_upsert_fragments(
        [*added, *images], reduced=[reduced], removed=[], rows_updated=1
    )


WRITES = {
    "append": lambda table: table.stage_append(people("x")),
    "upsert": lambda table: table.stage_change(people("a", "x")),
    "delete": lambda table: table.stage_delete_ids(["a"]),
    "overwrite": lambda table: table.stage_overwrite(people("x")),
    "index": lambda table: indexed(table, BY_ID),
    "compaction": compacted,
    "executors": executors,
    "schema": lambda table: table.stage_schema(
        ColumnChanges(added=[AddedColumn(field=pa.field("n", pa.int64()), value="1")])
    ),
}


@pytest.mark.parametrize("kind", WRITES)
@pytest.mark.parametrize("durability", ["power", "process"])
def test_each_kind_of_write_tells_the_digests_of_its_files(local_root, kind, durability):
    bench = Bench(local_root, world=World(durability=durability))
    bench.append("a", "b")
    bench.append("c")
    bench.land(WRITES[kind](bench.now()))
    assert told(bench) == stored(bench.folder)


def test_blobs_beside_a_data_file_have_digests_too(local_root):
    bench = Bench(local_root, schema=SMALL.append(lance.blob_field("photo")))
    rows = people("a").append_column(
        lance.blob_field("photo"), lance.blob_array([b"x" * 6_000_000])
    )
    bench.land(bench.now().stage_append(rows))
    assert any(path.endswith(".blob") for path in told(bench))
    assert told(bench) == stored(bench.folder)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("branch", [None, BRANCH])
def test_cleanup_keeps_the_digest_of_every_file_that_it_keeps(bench, seed, branch):
    chance = random.Random(seed)
    bench.append("a", "b", "c")
    if branch is not None:
        bench.tables.fork(PLACE, source_branch=None, version=bench.version, branch_id=branch)
        bench.branch = branch
    for number in range(12):
        kind = chance.choice(["append", "change", "delete", "compact", "index", "collect"])
        table = bench.now()
        match kind:
            case "append":
                write = table.stage_append(people(f"n{number}"))
            case "change":
                write = table.stage_change(people("a", f"c{number}", age=number))
            case "delete":
                write = delete_where(table, f"age = {number - 1}")
            case "compact":
                write = compacted(table)
            case "index":
                write = indexed(table, BY_ID)
            case "collect":
                old = bench.tables.versions(PLACE, branch)[:-1]
                bench.tables.collect(PLACE, branch, [one for one in old if chance.random() < 0.7])
                write = None
        if write is not None:
            bench.land(write)
        there = stored(bench.folder)
        found = told(bench)
        assert {path: found.get(path) for path in there} == there


def test_the_manifest_tells_the_digests_of_its_own_files(tmp_path):
    with Graph.init(tmp_path / "g", "node P { name: String @key }") as graph:
        for name in "abc":
            graph.mutate(f'query q() {{ insert P {{ name: "{name}" }} }}')
    store = open_store(Root.parse(str(tmp_path / "g"), {}), World())
    assert digests.of_line(store, "__manifest") == stored(tmp_path / "g" / "__manifest")


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\x80", b"\xff" * 40])
def test_a_record_that_makes_no_sense_tells_nothing(bench, body):
    bench.append("a")
    known = told(bench)
    bench.tables.store.put(f"{bench.place}/_digests/x.json", body)
    bench.tables.store.put(f"{bench.place}/_transactions/7-x.txn", body)
    assert told(bench) == known


def test_a_commit_tells_of_its_own_files_only(bench):
    sizes = []
    for number in range(40):
        before = set(Path(bench.folder, "_transactions").iterdir())
        bench.append(f"n{number:02}")
        (made,) = set(Path(bench.folder, "_transactions").iterdir()) - before
        (body,) = digests.properties(made.read_bytes())
        sizes.append(len(body))
    assert max(sizes) <= 140
