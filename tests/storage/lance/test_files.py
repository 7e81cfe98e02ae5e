"""What the disk refuses while version files are looked at is an error of ours; and everything a
commit relies on is synced, each file once, before the call returns."""

from __future__ import annotations

import os
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from table_bench import PLACE, SMALL, Bench, WatchedDisk, compacted, indexed, people

from omnigraph import Graph
from omnigraph.errors import NotFoundError, StorageUnavailableError
from omnigraph.model.ports import World
from omnigraph.storage.lance.files import Flusher, is_whole, newest_whole, version_file
from omnigraph.storage.objects.root import Root
from omnigraph.storage.table.index import IndexSpec
from omnigraph.storage.table.schema_change import AddedColumn, ColumnChanges
from omnigraph.storage.table.stage import write_fragments

REFUSED = "x" * 5000  # longer than any file name may be: refused to whoever asks, root too


@pytest.mark.parametrize("look", [newest_whole, lambda folder: is_whole(folder, 1), Graph.open])
def test_what_the_disk_refuses_is_told_as_such(look):
    with pytest.raises(StorageUnavailableError, match=r"cannot read '.*: File name too long"):
        look(REFUSED)


def test_a_folder_in_the_place_of_a_version_is_not_whole(tmp_path):
    (tmp_path / version_file(1)).mkdir()
    assert not is_whole(str(tmp_path), 1)
    assert newest_whole(str(tmp_path)).torn == (1,)


# --- keeping files ---------------------------------------------------------------------------

WITH_BLOB = SMALL.append(lance.blob_field("photo"))


@pytest.fixture
def disk():
    return WatchedDisk()


@pytest.fixture
def bench(local_root, disk):
    return Bench(local_root, world=World(disk=disk))


def files_below(folder):
    return {str(path) for path in Path(folder).rglob("*") if path.is_file()}


def relied_on(paths):
    # The hint only speeds up the search for the newest version, and Lance does without it. What the
    # store puts is synced under the name of a draft.
    return {
        path
        for path in paths
        if not path.endswith("latest_version_hint.json") and "/_digests/" not in path
    }


WRITES = {
    "append": lambda table: table.stage_append(people("x")),
    "upsert": lambda table: table.stage_change(people("a", "x")),
    "delete": lambda table: table.stage_delete_ids(["a"]),
    "overwrite": lambda table: table.stage_overwrite(people("x")),
    "index": lambda table: indexed(
        table,
        IndexSpec(name="i", column="id", kind="btree"),
        IndexSpec(name="t", column="bio", kind="btree"),
    ),
    "compaction": compacted,
    "schema": lambda table: table.stage_schema(
        ColumnChanges(added=[AddedColumn(field=pa.field("n", pa.int64()), value="1")])
    ),
}


@pytest.mark.parametrize("kind", WRITES)
def test_every_file_that_a_write_made_is_synced_once(bench, disk, kind):
    bench.append("a", "b")
    bench.append("c")
    before = files_below(bench.folder)
    disk.files.clear()
    disk.folders.clear()
    bench.land(WRITES[kind](bench.now()))
    made = relied_on(files_below(bench.folder) - before)
    assert made == {path for path in disk.files if "/.draft-" not in path}
    assert {os.path.dirname(path) for path in made} <= set(disk.folders)


@pytest.mark.parametrize("kind", ["append", "upsert", "delete", "overwrite", "schema"])
def test_no_file_and_no_folder_is_synced_twice(bench, disk, kind):
    bench.append("a", "b")
    bench.append("c")
    bench.land(bench.now().stage_change(people("b")))  # every folder is known from here on
    disk.files.clear()
    disk.folders.clear()
    bench.land(WRITES[kind](bench.now()))
    assert len(disk.files) == len(set(disk.files))
    staged, landed = 2, 2  # data and deletions; versions and transactions
    assert len(disk.folders) <= staged + landed


@pytest.mark.parametrize("kind", ["append", "upsert", "delete", "overwrite", "index", "schema"])
def test_rows_are_on_disk_before_the_version_that_shows_them(bench, disk, kind):
    bench.append("a", "b")
    bench.append("c")
    before = files_below(bench.folder)
    disk.files.clear()
    write = WRITES[kind](bench.now())
    staged = files_below(bench.folder) - before
    assert staged == set(disk.files)
    bench.land(write)
    assert all(
        "/_versions/" in path or "/_transactions/" in path for path in set(disk.files) - staged
    )


def test_a_new_table_is_synced_with_the_folders_above_it(local_root, disk):
    bench = Bench(local_root, world=World(disk=disk))
    assert relied_on(files_below(bench.folder)) <= set(disk.files)
    above = [local_root.uri, f"{local_root.uri}/nodes", bench.folder]
    assert set(above) <= set(disk.folders)
    assert os.path.dirname(local_root.uri) in disk.folders


def test_a_fork_is_synced_with_its_reference(bench, disk):
    bench.append("a")
    before = files_below(bench.folder)
    disk.files.clear()
    bench.tables.fork(PLACE, source_branch=None, version=bench.version, branch_id="01FORK")
    made = relied_on(files_below(bench.folder) - before)
    assert made <= set(disk.files)
    assert any(path.endswith("_refs/branches/01FORK.json") for path in made)


def test_blobs_are_synced_with_their_rows(local_root, disk):
    bench = Bench(local_root, world=World(disk=disk), schema=WITH_BLOB)
    rows = people("a").append_column(WITH_BLOB.field("photo"), lance.blob_array([b"x" * 300_000]))
    before = files_below(bench.folder)
    disk.files.clear()
    bench.land(bench.now().stage_append(rows))
    made = relied_on(files_below(bench.folder) - before)
    assert any(path.endswith(".blob") for path in made)
    assert made == set(disk.files)


def test_durability_process_syncs_nothing(local_root, disk):
    bench = Bench(local_root, world=World(disk=disk, durability="process"))
    bench.append("a", "b")
    bench.append("c")
    for kind in ("upsert", "delete", "index", "compaction"):
        bench.land(WRITES[kind](bench.now()))
    bench.tables.fork(PLACE, source_branch=None, version=bench.version, branch_id="01FORK")
    assert (disk.files, disk.folders) == ([], [])


@pytest.mark.s3
def test_an_object_store_needs_no_syncing(s3_root, disk):
    bench = Bench(s3_root, world=World(disk=disk))
    bench.append("a")
    assert (disk.files, disk.folders) == ([], [])


def test_fragments_of_executors_land_without_being_written_again(bench, disk):
    receipts = write_fragments(bench.folder, {}, people("a"), SMALL)
    before = files_below(bench.folder)
    bench.land(bench.now().stage_append(receipts))
    assert not any("/data/" in path for path in files_below(bench.folder) - before)
    assert bench.ids() == ["a"]


class BusyDisk(WatchedDisk):
    """Others are at work in the folder: files come and go while it is synced."""

    def __init__(self):
        super().__init__()
        self.leaving, self.fails = [], None

    def fsync_file(self, path):
        while self.leaving:
            self.leaving.pop().unlink()
        if self.fails is not None:
            raise self.fails
        os.stat(path)
        self.files.append(path)


@pytest.fixture
def busy(tmp_path):
    folder = tmp_path / "line"
    folder.mkdir()
    for name in ("a.lance", "b.lance", "c.lance"):
        (folder / name).write_bytes(b"1")
    disk = BusyDisk()
    root = Root.parse(str(tmp_path), {})
    return folder, disk, Flusher(root, World(disk=disk))


def test_a_folder_is_synced_while_others_write_into_it(busy):
    folder, disk, flusher = busy
    (folder / ".tmpv9TJPi").write_bytes(b"half")
    disk.leaving = [folder / "c.lance"]
    flusher.flush_tree(str(folder))
    kept = {str(folder / name) for name in ("a.lance", "b.lance")}
    assert kept <= set(disk.files)
    assert not any(".tmp" in path for path in disk.files)
    assert str(folder) in disk.folders


def test_a_disk_that_fails_is_a_typed_error(busy):
    folder, disk, flusher = busy
    disk.fails = OSError(5, "Input/output error")
    with pytest.raises(StorageUnavailableError, match="Input/output error"):
        flusher.flush_tree(str(folder))
    disk.fails = None
    with pytest.raises(NotFoundError):
        flusher.flush([str(folder / "gone" / "x.lance")])
