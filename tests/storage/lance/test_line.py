"""Branches of tables: made once, made again, half-made, dropped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace
from table_bench import PLACE, Bench, people

from omnigraph.errors import AlreadyExistsError, CorruptGraphError, NotFoundError

BRANCH = "01JD3Z0000000000000000FORK"


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def bench(request):
    return Bench(request.getfixturevalue(f"{request.param}_root"))


def fork(bench, *, source=None, version=None, branch=BRANCH):
    bench.tables.fork(
        PLACE, source_branch=source, version=version or bench.version, branch_id=branch
    )


def on_branch(bench, branch, version):
    bench.branch, bench.version = branch, version


def test_writes_on_a_fork_and_on_its_origin_do_not_meet(bench):
    bench.append("a", "b")
    base = bench.version
    fork(bench)
    bench.append("main")
    on_branch(bench, BRANCH, base)
    bench.land(bench.now().stage_change(people("a", "mine", age=2)))
    assert bench.ids() == ["a", "b", "mine"]
    on_branch(bench, None, base + 1)
    assert bench.ids() == ["a", "b", "main"]


def test_a_fork_starts_where_it_is_told_not_at_the_head(bench):
    bench.append("a")
    base = bench.version
    bench.append("b")
    fork(bench, version=base)
    on_branch(bench, BRANCH, base)
    assert bench.ids() == ["a"]


def test_a_fork_of_a_fork_sees_what_the_first_one_wrote(bench):
    bench.append("a")
    fork(bench)
    on_branch(bench, BRANCH, bench.version)
    bench.append("b")
    fork(bench, source=BRANCH, branch="01SECOND")
    on_branch(bench, "01SECOND", bench.version)
    bench.append("c")
    assert bench.ids() == ["a", "b", "c"]


def test_forking_twice_is_fine_until_the_fork_has_moved(bench):
    bench.append("a")
    base = bench.version
    fork(bench)
    fork(bench)
    on_branch(bench, BRANCH, base)
    bench.append("b")
    with pytest.raises(AlreadyExistsError):
        fork(bench, version=base)
    assert bench.ids() == ["a", "b"]


def test_a_fork_of_another_base_is_not_taken_for_ours(bench):
    bench.append("a")
    fork(bench, version=bench.version)
    bench.append("b")
    with pytest.raises(AlreadyExistsError):
        fork(bench, version=bench.version)


@pytest.mark.parametrize("is_leaf", [False, True])
def test_a_dropped_fork_can_be_made_again(bench, is_leaf):
    bench.append("a")
    base = bench.version
    fork(bench)
    on_branch(bench, BRANCH, base)
    bench.append("b")
    assert bench.tables.drop_branch(PLACE, BRANCH, is_leaf=is_leaf) is True
    assert bench.tables.drop_branch(PLACE, BRANCH, is_leaf=is_leaf) is False
    with pytest.raises(NotFoundError):
        bench.tables.head_version(PLACE, BRANCH)
    fork(bench, version=base)
    on_branch(bench, BRANCH, base)
    assert bench.ids() == ["a"]


def test_a_half_made_fork_is_seen_swept_and_made_anew(local_root):
    bench = Bench(local_root)
    bench.append("a")
    fork(bench)
    (Path(bench.folder) / "_refs" / "branches" / f"{BRANCH}.json").unlink()
    assert list(bench.tables.lines(PLACE)) == [BRANCH]
    fork(bench)
    on_branch(bench, BRANCH, bench.version)
    bench.append("b")
    assert bench.ids() == ["a", "b"]


def test_a_half_made_fork_can_be_dropped(local_root):
    bench = Bench(local_root)
    fork(bench)
    (Path(bench.folder) / "_refs" / "branches" / f"{BRANCH}.json").unlink()
    assert bench.tables.drop_branch(PLACE, BRANCH) is True
    assert bench.tables.lines(PLACE) == {}


def test_a_fork_whose_files_are_gone_can_be_dropped(local_root):
    bench = Bench(local_root)
    fork(bench)
    shutil.rmtree(Path(bench.folder) / "tree" / BRANCH)
    assert bench.tables.drop_branch(PLACE, BRANCH) is True
    assert bench.tables.lines(PLACE) == {}


def test_a_fork_of_a_missing_version_is_damage(bench):
    with pytest.raises(CorruptGraphError):
        fork(bench, version=77)


# --- what lines have in common ---


def test_what_two_versions_came_from(local_root):
    bench = Bench(local_root)
    bench.append("a")
    bench.append("b")  # version 3
    fork(bench, version=2, branch="01LEFT")
    fork(bench, version=3, branch="01RIGHT")
    on_branch(bench, "01LEFT", 2)
    bench.append("c")
    bench.append("d")
    fork(bench, source="01LEFT", version=3, branch="01CHILD")

    def at(branch, version, location=PLACE):
        return replace(bench.entry(), branch=branch, version=version, location=location)

    cases = {
        (at(None, 3), at(None, 1)): 1,
        (at(None, 3), at("01LEFT", 4)): 2,
        (at(None, 1), at("01LEFT", 4)): 1,
        (at("01RIGHT", 3), at("01LEFT", 4)): 2,
        (at("01CHILD", 9), at("01LEFT", 4)): 3,
        (at("01CHILD", 9), at("01RIGHT", 7)): 2,
        (at(None, 3), at(None, 3, location="nodes/fedcba9876543210")): 0,
    }
    for (one, other), expected in cases.items():
        assert bench.tables.shared(one, other) == expected
        assert bench.tables.shared(other, one) == expected


# --- old versions ---


def test_collected_versions_are_gone_and_the_others_are_not(bench):
    for name in "abcd":
        bench.land(bench.now().stage_overwrite(people(name)))
    done = bench.tables.collect(PLACE, None, [2, 3])
    assert (done.versions, done.failed_deletes) == (2, 0)
    assert done.bytes > 0
    assert bench.tables.versions(PLACE, None) == (1, 4, 5)
    with pytest.raises(NotFoundError):
        bench.now(2)
    assert bench.now(4).read()["id"].to_pylist() == ["c"]
    assert bench.ids() == ["d"]


def test_the_head_is_never_collected(bench):
    bench.append("a")
    assert bench.tables.collect(PLACE, None, [bench.version]).versions == 0
    assert bench.ids() == ["a"]


def test_what_a_fork_stands_on_is_kept(bench):
    bench.land(bench.now().stage_overwrite(people("a")))
    base = bench.version
    bench.tables.fork(PLACE, source_branch=None, version=base, branch_id="01FORK")
    bench.land(bench.now().stage_overwrite(people("b")))
    bench.tables.collect(PLACE, None, range(1, bench.version))
    bench.branch = "01FORK"
    assert bench.now(base).read()["id"].to_pylist() == ["a"]


def test_files_of_a_write_in_the_making_survive_a_collection(bench):
    for name in "abc":
        bench.land(bench.now().stage_overwrite(people(name)))
    write = bench.now().stage_append(people("d"))
    bench.tables.collect(PLACE, None, range(1, bench.version))
    bench.land(write)
    assert bench.ids() == ["c", "d"]
