"""Old versions of a line that nothing else stands on: what goes is what Lance's clean-up takes."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import lance
import pytest
from table_bench import BY_ID, PLACE, SMALL, Bench, compacted, delete_where, indexed, people

from omnigraph.errors import CorruptGraphError
from omnigraph.model.ports import World
from omnigraph.storage.lance.collect import Dataset, How, Kinship, Stored, planned
from omnigraph.storage.lance.files import version_file
from omnigraph.storage.objects.root import branch_folder
from omnigraph.storage.table.table import Tables

BRANCH = "01JD3Z0000000000000000FORK"
WEEK_S = 7 * 24 * 3600


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def bench(request):
    return forked(Bench(request.getfixturevalue(f"{request.param}_root")))


def forked(bench, *, branch=BRANCH):
    bench.append("a", "b", "c")
    bench.tables.fork(PLACE, source_branch=None, version=bench.version, branch_id=branch)
    bench.branch = branch
    return bench


def some_step(bench, chance, number):
    """One write of any kind."""
    table = bench.now()
    match chance.choice(["append", "change", "delete", "compact", "index", "overwrite"]):
        case "append":
            write = table.stage_append(people(f"n{number}", f"m{number}"))
        case "change":
            write = table.stage_change(people("a", f"c{number}", age=number))
        case "delete":
            write = delete_where(table, f"age = {number - 1} OR id = 'b'")
        case "overwrite":
            write = table.stage_overwrite(people("a", f"o{number}"))
        case "index":
            write = indexed(table, BY_ID)
        case "compact":
            write = compacted(table)
    if write is not None:
        bench.land(write)


def clean_up(dataset, versions):
    """What Lance's own clean-up of the line would take."""
    return dataset.explain_cleanup_old_versions(
        versions=sorted(versions) or [1 << 62],
        delete_unverified=False,
        error_if_tagged_old_versions=False,
    ).stats


def files_below(folder):
    return {str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file()}


@pytest.mark.parametrize("seed", range(12))
def test_what_goes_is_what_lance_would_take(local_root, seed):
    chance = random.Random(seed)
    bench = forked(Bench(local_root))
    for number in range(2, 12):
        some_step(bench, chance, number)
    stored = bench.tables.versions(PLACE, BRANCH)
    unwanted = [one for one in stored[:-1] if chance.random() < 0.6]
    theirs = clean_up(bench.tables.head(PLACE, BRANCH), unwanted)
    ours = bench.tables.collect(PLACE, BRANCH, unwanted, How(preview=True))
    assert (ours.versions, ours.bytes) == (theirs.old_versions, theirs.bytes_removed)

    contents = {one: bench.now(one).read().to_pylist() for one in stored if one not in unwanted}
    before = files_below(bench.folder)
    assert bench.tables.collect(PLACE, BRANCH, unwanted) == ours
    gone = before - files_below(bench.folder)
    assert sum(".manifest" in name for name in gone) == len(unwanted)
    # Nothing is left for Lance to find, and every other version has what it had.
    assert clean_up(bench.tables.head(PLACE, BRANCH), unwanted).bytes_removed == 0
    bench.tables = Tables(bench.root, World(durability="process"))
    for version, rows in contents.items():
        assert bench.now(version).read().to_pylist() == rows


def test_a_line_keeps_its_head_and_goes_on(bench):
    for name in "def":
        bench.land(bench.now().stage_overwrite(people(name)))
    done = bench.tables.collect(PLACE, BRANCH, range(1, bench.version + 1))
    assert (done.versions, bench.tables.versions(PLACE, BRANCH)) == (3, (bench.version,))
    bench.append("g")
    assert bench.ids() == ["f", "g"]
    bench.branch, bench.version = None, 2
    assert bench.ids() == ["a", "b", "c"]


def test_of_a_line_that_goes_meanwhile_nothing_is_left_to_remove(bench):
    base = bench.version
    bench.append("d")
    bench.tables.store.delete_prefix(branch_folder(PLACE, BRANCH))
    dataset = Dataset(root=bench.root, store=bench.tables.store, location=PLACE)
    kin = Kinship(bases={BRANCH: (None, base)}, tagged={})
    plan = planned(dataset, kin, {BRANCH: [base]})
    stored = [Stored(path="data/a.lance", bytes=1, written_us=0)]
    assert not plan.doomed({BRANCH: stored}, 1)


def test_of_a_line_with_a_damaged_version_nothing_goes(local_root):
    """Also not if a file holds another version than its own: what the lost one names is unknown."""
    bench = forked(Bench(local_root))
    for name in "def":
        bench.land(bench.now().stage_overwrite(people(name)))
    *_, older, newest = bench.tables.versions(PLACE, BRANCH)
    files = {one: Path(bench.folder, "_versions", version_file(one)) for one in (older, newest)}
    whole, before = files[newest].read_bytes(), files_below(bench.folder)
    for body in (files[older].read_bytes(), whole[: len(whole) // 2]):
        files[newest].write_bytes(body)
        with pytest.raises(CorruptGraphError):
            bench.tables.collect(PLACE, BRANCH, [older])
        assert files_below(bench.folder) == before
    files[newest].write_bytes(whole)
    assert bench.tables.collect(PLACE, BRANCH, [older]).versions == 1


def test_a_line_that_another_stands_on_keeps_what_that_one_reads(bench):
    bench.append("d")
    bench.tables.fork(PLACE, source_branch=BRANCH, version=bench.version, branch_id="01CHILD")
    base = bench.version
    assert bench.tables.lines(PLACE)["01CHILD"].base == (BRANCH, base)
    bench.land(bench.now().stage_overwrite(people("e")))
    bench.tables.collect(PLACE, BRANCH, range(1, bench.version))
    bench.branch = "01CHILD"
    assert sorted(bench.now(base).read()["id"].to_pylist()) == ["a", "b", "c", "d"]


def test_a_line_with_a_tag_of_lances_keeps_the_version_it_names(local_root):
    bench = forked(Bench(local_root))
    bench.append("d")
    tagged = bench.version
    bench.land(bench.now().stage_overwrite(people("e")))
    bench.tables.head(PLACE, BRANCH).tags.create("keep", tagged)
    assert bench.tables.tagged(PLACE) == {BRANCH: {tagged}}
    bench.tables.collect(PLACE, BRANCH, range(1, bench.version))
    assert tagged in bench.tables.versions(PLACE, BRANCH)
    assert len(bench.now(tagged).read()) == 4


def test_what_no_version_names_goes_when_it_is_a_week_old(local_root):
    bench = forked(Bench(local_root))
    bench.append("d")
    lost = [Path(bench.folder, name) for name in ("data/old.lance", "_deletions/0-1-2.arrow")]
    young = Path(bench.folder, "data/young.lance")
    foreign = Path(bench.folder, "notes.txt")
    for path in (*lost, young, foreign):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    then = time.time() - WEEK_S - 60
    for path in (*lost, foreign):
        os.utime(path, (then, then))
    assert bench.tables.collect(PLACE, BRANCH, []).bytes == 2
    assert [path.exists() for path in (*lost, young, foreign)] == [False, False, True, True]


def test_a_write_in_the_making_survives(bench):
    for name in "def":
        bench.land(bench.now().stage_overwrite(people(name)))
    write = bench.now().stage_append(people("g"))
    bench.tables.collect(PLACE, BRANCH, range(1, bench.version))
    bench.land(write)
    assert bench.ids() == ["f", "g"]


def test_big_blobs_go_with_their_rows_and_stay_with_them(local_root):
    schema = SMALL.append(lance.blob_field("photo"))

    def photos(one, size):
        return people(one).append_column(schema.field("photo"), lance.blob_array([b"x" * size]))

    bench = Bench(local_root, schema=schema)
    bench.tables.fork(PLACE, source_branch=None, version=bench.version, branch_id=BRANCH)
    bench.branch = BRANCH
    sizes = (100, 200_000, 5_000_000)  # in the file, packed beside it, in a file of its own
    for size in sizes:
        bench.land(bench.now().stage_overwrite(photos("old", size)))
    kept = bench.land(bench.now().stage_overwrite(photos("new", sizes[-1]))).version
    before = files_below(bench.folder)
    bench.tables.collect(PLACE, BRANCH, range(1, kept))
    left = files_below(bench.folder)
    assert sum(name.startswith("data/") for name in before) > 5
    assert sum(name.startswith("data/") for name in left) == 2
    row = bench.now(kept).read(with_row_id=True).to_pylist()[0]
    assert bench.now(kept).blobs("photo", [row["_rowid"]])[0].read() == b"x" * sizes[-1]
