"""Branches: names, one winner, orphan-safe order, and damage that is told."""

from __future__ import annotations

import json
import os
import shutil
import threading

import pytest
from msgspec.structs import replace

from manifest_world import FAST, Authority, update
from omnigraph.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptGraphError,
    InvalidNameError,
    NotFoundError,
)
from omnigraph.model.steps import Step
from omnigraph.storage.manifest.ref_files import MAIN_BRANCH, ref_key

GOOD_NAMES = [
    "feature",
    "feature/one/two",
    "a",
    "A b  c",
    "ünïcödé ☃ 日本",
    "%2F",
    "100%",
    ".hidden",
    "..",
    "-dash",
    "__run__7",
    "__mine",
    "tree",
    "x" * 255,
    "日" * 85,
    "👩\u200d💻",
    "main2",
    "Main",
    "quote\"s and 's",
    "semi;colon?&=#",
    "back\\slash",
    "*",
]
BAD_NAMES = {
    "empty": "",
    "blank": "   ",
    "main": "main",
    "reserved": "__schema_apply_lock__",
    "new line": "a\nb",
    "tab": "a\tb",
    "nul": "a\0b",
    "delete": "a\x7fb",
    "control of C1": "a\x85b",
    "line separator": "a\u2028b",
    "turned writing": "a\u202eb",
    "half a character": "a\ud800b",
    "leading space": " a",
    "trailing space": "a ",
    "256 bytes": "x" * 256,
    "256 bytes in fewer characters": "é" * 128,
}


@pytest.fixture
def graph(local_root):
    return Authority.created(local_root)


@pytest.mark.parametrize("name", GOOD_NAMES)
def test_any_printable_name_makes_a_branch(graph, local_root, name):
    made = graph.refs.create(name, actor_id="ann")
    assert made.created_by == "ann"
    assert made.parent == "main"
    assert made.fork_commit_id == graph.head().graph_commit_id
    assert Authority.over(local_root).refs.get(name) == made
    assert [branch.name for branch in graph.refs.list()] == ["main", name]
    assert graph.advance(branch=made).branch == made
    graph.refs.delete(name)
    assert graph.refs.list() == [MAIN_BRANCH]


@pytest.mark.s3
@pytest.mark.parametrize("name", GOOD_NAMES)
def test_any_printable_name_makes_a_branch_on_s3(s3_shared, name):
    made = s3_shared.refs.create(name, actor_id=None)
    assert made in s3_shared.refs.list()
    assert s3_shared.refs.get(name) == made
    s3_shared.refs.delete(name)
    assert s3_shared.refs.list() == [MAIN_BRANCH]


@pytest.fixture(scope="module")
def s3_shared(s3_server):
    from places import Place

    place = Place(uri="s3://graphs/branch-names/graph.omni", environ=s3_server.environ())
    return Authority.created(place)


@pytest.mark.parametrize("name", BAD_NAMES.values(), ids=BAD_NAMES.keys())
def test_a_forbidden_name_leaves_nothing_behind(graph, local_root, name):
    before = everything(local_root.uri)
    with pytest.raises(InvalidNameError) as caught:
        graph.refs.create(name, actor_id=None)
    assert caught.value.name == name
    assert everything(local_root.uri) == before


@pytest.mark.parametrize("name", [name for name in BAD_NAMES.values() if name != "main"])
def test_no_branch_is_found_under_a_forbidden_name(graph, name):
    reserved = name == BAD_NAMES["reserved"]
    with pytest.raises(InvalidNameError if reserved else NotFoundError):
        graph.refs.get(name)


def test_a_taken_name_is_refused(graph, local_root):
    graph.refs.create("b", actor_id=None)
    before = everything(local_root.uri)
    with pytest.raises(AlreadyExistsError):
        graph.refs.create("b", actor_id=None)
    assert everything(local_root.uri) == before


def test_a_missing_parent_is_refused(graph, local_root):
    before = everything(local_root.uri)
    with pytest.raises(NotFoundError):
        graph.refs.create("b", "none", actor_id=None)
    assert everything(local_root.uri) == before


def test_main_and_missing_branches_cannot_be_deleted(graph):
    with pytest.raises(InvalidNameError, match="cannot delete branch 'main'"):
        graph.refs.delete("main")
    with pytest.raises(NotFoundError):
        graph.refs.delete("none")


def test_a_branch_with_a_descendant_cannot_be_deleted(graph):
    graph.refs.create("a", actor_id=None)
    graph.refs.create("b", "a", actor_id=None)
    message = "cannot delete branch 'a' because descendant branch 'b' still depends on it"
    with pytest.raises(ConflictError, match=message):
        graph.refs.delete("a")
    graph.refs.delete("b")
    graph.refs.delete("a")
    assert graph.refs.list() == [MAIN_BRANCH]


def test_deleting_drops_the_forks_of_tables_that_the_branch_wrote(graph):
    branch = graph.refs.create("b", actor_id=None)
    graph.publish(
        update("node:Person", 2, branch=branch.id),
        update("edge:Knows", 2, branch=f"{branch.id}__2"),
        branch=branch,
    )
    person, knows = (graph.head().entries[key].location for key in ("node:Person", "edge:Knows"))
    graph.refs.delete("b")
    assert {(person, branch.id), (knows, f"{branch.id}__2")} <= set(graph.forks.dropped)


def test_a_name_that_lives_again_is_another_branch(graph):
    first = graph.refs.create("b", actor_id=None)
    graph.advance(branch=first)
    graph.refs.delete("b")
    graph.advance()
    second = graph.refs.create("b", actor_id=None)
    assert second.id != first.id
    assert graph.head(second).entries == graph.head().entries


def test_a_branch_of_a_branch_sees_its_parents_writes(graph):
    parent = graph.refs.create("a", actor_id=None)
    written = graph.advance(branch=parent)
    child = graph.refs.create("b", "a", actor_id=None)
    assert graph.head(child).entries == written.entries
    assert graph.head(child).head == written.head


def test_of_many_creators_of_one_name_exactly_one_wins(graph, local_root):
    for number in range(10):
        outcomes = race(8, lambda: Authority.over(local_root), f"name {number}")
        assert sorted(outcomes) == ["made"] + ["taken"] * 7
    orphans = set(graph.manifests.datasets.branch_ids()) - {each.id for each in graph.refs.list()}
    assert orphans == set()


def race(size, opened, name):
    barrier, outcomes = threading.Barrier(size), []

    def create(authority):
        barrier.wait()
        try:
            authority.refs.create(name, actor_id=None)
            outcomes.append("made")
        except AlreadyExistsError:
            outcomes.append("taken")

    threads = [threading.Thread(target=create, args=(opened(),)) for _ in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes


class Crash(BaseException):
    pass


class CrashAt:
    def __init__(self, step):
        self._step = step

    def reach(self, step):
        if step is self._step:
            raise Crash


@pytest.mark.parametrize(
    ("step", "exists"),
    [(Step.BRANCH_MANIFEST_FORKED, False), (Step.BRANCH_REF_WRITTEN, True)],
)
def test_a_crash_while_creating_leaves_a_branch_or_none(graph, local_root, step, exists):
    dying = Authority.over(local_root, replace(FAST, steps=CrashAt(step)))
    with pytest.raises(Crash):
        dying.refs.create("b", actor_id=None)
    names = [branch.name for branch in Authority.over(local_root).refs.list()]
    assert names == (["main", "b"] if exists else ["main"])
    if not exists:
        graph.advance(branch=graph.refs.create("b", actor_id=None))


@pytest.mark.parametrize(
    "step",
    [Step.BRANCH_REF_DELETED, Step.BRANCH_MANIFEST_DROPPED, Step.BRANCH_TABLE_DROPPED],
)
def test_a_crash_while_deleting_leaves_no_branch_and_a_free_name(graph, local_root, step):
    graph.advance(branch=graph.refs.create("b", actor_id=None))
    dying = Authority.over(local_root, replace(FAST, steps=CrashAt(step)))
    with pytest.raises(Crash):
        dying.refs.delete("b")
    after = Authority.over(local_root)
    assert after.refs.list() == [MAIN_BRANCH]
    after.advance(branch=after.refs.create("b", actor_id=None))


def test_a_parent_deleted_meanwhile_undoes_its_child(graph, local_root):
    graph.refs.create("parent", actor_id=None)

    class DeleteParent:
        def reach(self, step):
            if step is Step.BRANCH_REF_WRITTEN:
                # As if the other process had looked for children just before our write.
                graph.store.delete(ref_key("parent"))

    racing = Authority.over(local_root, replace(FAST, steps=DeleteParent()))
    with pytest.raises(NotFoundError):
        racing.refs.create("child", "parent", actor_id=None)
    assert graph.refs.list() == [MAIN_BRANCH]


REF = {
    "format_version": 1,
    "name": "b",
    "id": "01B",
    "parent": "main",
    "fork_commit_id": "x",
    "created_by": None,
    "created_at": 1,
}
UNREADABLE = {
    "empty": b"",
    "half": json.dumps(REF).encode()[:40],
    "no text": b"\xff\xfe",
    "a list": b"[]",
    "another format": json.dumps({**REF, "format_version": 2}).encode(),
    "an id that climbs": json.dumps({**REF, "id": "../../../x"}).encode(),
    "an id with a slash": json.dumps({**REF, "id": "/etc"}).encode(),
    "no id": json.dumps({**REF, "id": None}).encode(),
    "an id that is no text": json.dumps({**REF, "id": {"a": 1}}).encode(),
    "another name": json.dumps({**REF, "name": "c"}).encode(),
    "its own parent": json.dumps({**REF, "parent": "b"}).encode(),
    "a parent that is no name": json.dumps({**REF, "parent": ["main"]}).encode(),
}


@pytest.mark.parametrize("body", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_an_unreadable_reference_is_named_stops_no_other_and_can_be_removed(graph, body):
    graph.refs.create("other", actor_id=None)
    graph.store.put(ref_key("b"), body)
    with pytest.raises(CorruptGraphError) as caught:
        graph.refs.get("b")
    assert caught.value.part == ref_key("b")
    assert "--force" in caught.value.hint
    assert [branch.name for branch in graph.refs.list()] == ["main", "other"]
    assert [ref.name for ref in graph.refs.unreadable()] == ["b"]
    graph.advance(branch=graph.refs.get("other"))
    graph.refs.create("third", "other", actor_id=None)
    assert not graph.refs.delete_unreadable("other")
    assert graph.refs.delete_unreadable("b")
    assert not graph.refs.unreadable()
    assert graph.refs.create("b", actor_id=None).name == "b"


def test_the_files_of_a_deleted_branch_stay_while_a_reference_is_unreadable(graph, local_root):
    parent = graph.refs.create("parent", actor_id=None)
    graph.advance(branch=parent)
    child = graph.refs.create("child", "parent", actor_id=None)
    whole = graph.store.read(ref_key("child")).body
    graph.store.put(ref_key("child"), whole[:20])
    graph.refs.delete("parent")
    assert "parent" not in [branch.name for branch in graph.refs.list()]
    graph.store.put(ref_key("child"), whole)
    cold = Authority.over(local_root)
    assert cold.head(child).branch == child


def test_a_branch_whose_manifest_is_gone_can_be_deleted(graph, local_root):
    branch = graph.refs.create("b", actor_id=None)
    shutil.rmtree(f"{local_root.uri}/__manifest/tree/{branch.id}")
    fresh = Authority.over(local_root)
    with pytest.raises(CorruptGraphError):
        fresh.head(branch)
    fresh.refs.delete("b")
    assert fresh.refs.list() == [MAIN_BRANCH]


def everything(folder):
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
