"""Old versions of lines, whatever stands on them: what goes is what Lance's clean-up takes, and a
version that stays has every file that it names."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import lance
import pytest
from table_bench import BY_ID, PLACE, SMALL, Bench, compacted, delete_where, indexed, people

from omnigraph.errors import CorruptGraphError, StorageUnavailableError
from omnigraph.model.ports import World
from omnigraph.storage.lance import versions
from omnigraph.storage.lance.collect import (
    Dataset,
    How,
    Kinship,
    Outcome,
    Stored,
    children_first,
    planned,
)
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


def explained(dataset, versions):
    """What Lance's own clean-up of the line would take."""
    return dataset.explain_cleanup_old_versions(
        versions=sorted(versions) or [1 << 62],
        delete_unverified=False,
        error_if_tagged_old_versions=False,
    )


def clean_up(dataset, versions):
    return explained(dataset, versions).stats


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


# --- trees of lines ---


def line_name(number):
    return f"01JD3Z00000000000000000{number:03d}"


def grown(bench, chance, steps=24):
    """A table with branches, branches of branches, and writes of every kind on all of them; the
    newest version of each line."""
    bench.append("a", "b", "c")
    heads = {None: bench.version}
    for number in range(2, steps):
        line = chance.choice([*heads, [*heads][-1]])
        bench.branch, bench.version = line, heads[line]
        if chance.random() < 0.3:
            name = line_name(number)
            bench.tables.fork(PLACE, source_branch=line, version=bench.version, branch_id=name)
            heads[name] = bench.version
        else:
            some_step(bench, chance, number)
            heads[line] = bench.version
    return heads


def rows_of(bench, line, version):
    bench.branch = line
    return sorted(bench.now(version).read().to_pylist(), key=str)


def named_below(folder):
    """Every file that a version below the folder names, and that it is there."""
    found = set()
    for path in Path(folder).rglob("*.manifest"):
        facts = versions.read(path.read_bytes())
        line = path.parent.parent
        for part in facts.parts:
            place = line if part.base is None else Path(facts.bases[part.base])
            # Of an index that a compaction on a branch carried over Lance names the old place.
            places = {place, line} if part.path.startswith("_indices/") else {place}
            there = {one / part.path for one in places if (one / part.path).exists()}
            assert there, f"{path} lost {part.path}"
            found |= there
        found |= {path, line / "_transactions" / str(facts.transaction)}
    return {str(one) for one in found}


@pytest.mark.parametrize("seed", range(16))
def test_of_a_tree_of_lines_goes_what_lance_would_take_and_no_more(local_root, seed):
    chance = random.Random(seed)
    bench = Bench(local_root)
    heads = grown(bench, chance)
    stored = {line: bench.tables.versions(PLACE, line) for line in heads}
    unwanted = {
        line: [one for one in found[:-1] if chance.random() < 0.7] for line, found in stored.items()
    }
    held = chance.choice([*heads])
    if seed % 3 == 0:
        tagged = chance.choice(stored[held])
        bench.tables.head(PLACE, None).tags.create("held", (held, tagged))
    staying = {
        (line, one): rows_of(bench, line, one)
        for line, found in stored.items()
        for one in found
        if one not in unwanted[line]
    }
    asked = (PLACE, [*heads], lambda line, _: unwanted[line])
    preview = bench.tables.collect_lines(*asked, How(preview=True))
    before = files_below(bench.root.child(PLACE))
    done = bench.tables.collect_lines(*asked)
    assert done == preview
    assert not done.problems
    gone = before - files_below(bench.root.child(PLACE))
    assert sum(one.versions for one in done.done.values()) == sum(
        ".manifest" in one for one in gone
    )
    named = named_below(bench.root.child(PLACE))
    bench.tables = Tables(bench.root, World(durability="process"))
    assert {pin: rows_of(bench, *pin) for pin in staying} == staying
    for line in heads:
        # Of a version that stays because a branch starts from it, Lance leaves the file alone.
        more = explained(bench.tables.head(PLACE, line), unwanted[line]).candidate_files
        assert {f"/{one.path.lstrip('/')}" for one in more} <= named
    assert not any(one.bytes for one in bench.tables.collect_lines(*asked).done.values())
    if seed % 3 == 0:
        assert tagged in bench.tables.versions(PLACE, held)


def chained(bench, length):
    """Lines of which each was made from the one before, with two versions of its own."""
    bench.append("a")
    for number in range(length):
        name = line_name(number)
        bench.tables.fork(PLACE, source_branch=bench.branch, version=bench.version, branch_id=name)
        bench.branch = name
        bench.append(f"x{number}")
        bench.land(bench.now().stage_change(people("a", age=number)))
    return [line_name(number) for number in range(length)]


def all_but_the_newest(_, stored):
    return stored[:-1]


def test_a_chain_is_collected_line_by_line(bench):
    bench.branch = None
    names = chained(bench, 4)
    before = bench.rows()
    done = bench.tables.collect_lines(PLACE, [None, BRANCH, *names], all_but_the_newest)
    assert not done.problems
    # Each starts from the newest of the one before: all that lie between go.
    assert [done.of(name).versions for name in names] == [2, 2, 2, 2]
    bench.tables = Tables(bench.root, World(durability="process"))
    assert bench.rows() == before
    assert bench.tables.collect_lines(PLACE, names, all_but_the_newest) == Outcome()


def test_lines_in_the_middle_can_be_gone(bench):
    """What a line reads stays also where the one between was dropped."""
    bench.branch = None
    first, middle, last = chained(bench, 3)
    before = bench.rows()
    bench.tables.store.delete(f"{PLACE}/_refs/branches/{middle}.json")
    bench.tables.collect_lines(PLACE, [None, BRANCH, first, last], all_but_the_newest)
    bench.tables = Tables(bench.root, World(durability="process"))
    bench.branch = last
    assert bench.rows() == before


def test_damage_keeps_a_line_and_those_it_stands_on_and_no_others(local_root):
    bench = forked(Bench(local_root))
    for name in "de":
        bench.append(name)
    bench.branch, bench.version = None, 2
    first, middle, last = chained(bench, 3)
    victim = Path(bench.root.child(branch_folder(PLACE, middle)), "_versions")
    victim = sorted(victim.glob("*.manifest"))[1]
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-3])
    before = files_below(bench.root.child(PLACE))
    lines = [None, BRANCH, first, middle, last]
    done = bench.tables.collect_lines(PLACE, lines, all_but_the_newest)
    assert set(done.problems) == {None, first, middle}
    assert {line: one.versions for line, one in done.done.items()} == {BRANCH: 2, last: 2}
    gone = before - files_below(bench.root.child(PLACE))
    assert all(name.startswith((f"tree/{BRANCH}/", f"tree/{last}/")) for name in gone)
    # Without a reference it may stand on any of them.
    Path(bench.root.child(f"{PLACE}/_refs/branches/{middle}.json")).unlink()
    bench.branch, bench.version = BRANCH, bench.tables.versions(PLACE, BRANCH)[-1]
    bench.append("f")
    done = bench.tables.collect_lines(PLACE, lines, all_but_the_newest)
    assert set(done.problems) == set(lines)
    victim.write_bytes(whole)
    assert not bench.tables.collect_lines(PLACE, lines, all_but_the_newest).problems


def test_a_version_file_that_stays_keeps_all_others(local_root, monkeypatch):
    """A file may be free because a version of another line goes: if that one does not, it is
    not."""
    bench = Bench(local_root)
    names = chained(bench, 3)
    delete, tried = bench.tables.store.delete, []

    def failing(key):
        tried.append(key)
        if names[1] in key:
            raise StorageUnavailableError("no", uri=key, reason="injected")
        return delete(key)

    monkeypatch.setattr(bench.tables.store, "delete", failing)
    with pytest.raises(StorageUnavailableError):
        bench.tables.collect_lines(PLACE, [None, *names], all_but_the_newest)
    assert all("/_versions/" in key or "/_digests/" in key for key in tried)
    named_below(bench.root.child(PLACE))


@pytest.mark.parametrize("nested", ["team/data", "team/_indices", "team/x"])
def test_lines_of_users_names_may_lie_in_each_other(local_root, nested):
    """The folder of `team/data` is where the data files of `team` are."""
    bench = Bench(local_root)
    bench.append("a")
    base = bench.version
    for name in ("team", nested):
        bench.branch, bench.version = name, base
        bench.tables.fork(PLACE, source_branch=None, version=base, branch_id=name)
        for one in "bcd":
            bench.land(bench.now().stage_overwrite(people(one)))
    then = time.time() - WEEK_S - 60
    for path in Path(bench.root.child(f"{PLACE}/tree")).rglob("*"):
        os.utime(path, (then, then))
    for lines in (["team"], [None, "team", nested]):
        done = bench.tables.collect_lines(PLACE, lines, all_but_the_newest)
        assert not done.problems
        for name in ("team", nested):
            bench.branch = name
            assert bench.ids() == ["d"]
    assert bench.tables.versions(PLACE, nested) == (bench.version,)


def test_branches_that_were_made_from_each_other_are_damage():
    assert children_first({"b": "a", "a": None, "c": "b", "x": "gone"}) == [
        "c",
        "b",
        "x",
        "a",
        None,
    ]
    with pytest.raises(CorruptGraphError):
        children_first({"a": "b", "b": "a", "c": None})


def test_what_lance_was_writing_goes_when_it_is_a_week_old(local_root):
    bench = Bench(local_root)
    bench.append("a")
    drafts = [Path(bench.folder, "_versions", f".tmp_{name}") for name in ("old", "young")]
    for path in drafts:
        path.write_bytes(b"x")
    then = time.time() - WEEK_S - 60
    os.utime(drafts[0], (then, then))
    assert bench.tables.collect(PLACE, None, []).bytes == 1
    assert [path.exists() for path in drafts] == [False, True]
