"""Old graphs come to the current format whole, whoever runs it, however often, wherever it dies."""

from __future__ import annotations

import glob
import os
import shutil
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import lance
import pytest
from msgspec.structs import replace
from old_graphs import (
    KNOWS,
    OTHER_SOURCE,
    PERSON,
    SAME_TABLES_SOURCE,
    SOURCE,
    OldGraph,
    microseconds,
)

from manifest_world import FAST, Authority, update
from omnigraph import Graph, OpenMode
from omnigraph.compiler.schema import compile_schema
from omnigraph.errors import CorruptGraphError, UpgradeRequiredError
from omnigraph.model.graph import SchemaRecord
from omnigraph.storage.manifest.history import best_common
from omnigraph.storage.manifest.migrations import migrate
from omnigraph.storage.manifest.ref_files import MAIN_BRANCH

STAMP = b"omnigraph:internal_schema_version"
OLD_FILES = (
    "_schema.pg",
    "_schema.ir.json",
    "__schema_state.json",
    "_graph_commits.lance",
    "_graph_commit_actors.lance",
)


@pytest.fixture(params=[1, 2, 3], ids=["v1", "v2", "v3"])
def old(request, local_root):
    return OldGraph(local_root.uri, request.param).told()


def migrated(place, world=FAST):
    graph = Authority.over(place, world)
    migrate(graph.manifests, graph.world)
    return Authority.over(place, world)


def everything(folder):
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)


def check_story(graph, old):
    """Everything the old writers did, told by the new format."""
    assert [branch.name for branch in graph.refs.list()] == ["main", "feature", "feature/deep"]
    feature, deep = graph.refs.get("feature"), graph.refs.get("feature/deep")
    genesis, by_ann, by_fay, by_bob = old.commits
    for branch, expected in (
        (MAIN_BRANCH, [by_bob, by_ann, genesis]),
        (feature, [by_fay, by_ann, genesis]),
        (deep, [by_ann, genesis]),
    ):
        line = graph.history.commits(branch)
        assert [told(commit) for commit in line] == [told_old(entry) for entry in expected]
    assert (feature.parent, feature.fork_commit_id) == ("main", by_ann["graph_commit_id"])
    assert (deep.parent, deep.fork_commit_id) == ("feature", by_ann["graph_commit_id"])
    assert pins(graph.head()) == {
        "edge:Knows": (KNOWS, None, 1, 0),
        "node:Person": (PERSON, None, 3, 2),
    }
    assert pins(graph.head(feature))["node:Person"] == (PERSON, "feature", 3, 2)
    assert pins(graph.head(deep))["node:Person"] == (PERSON, None, 2, 1)
    assert graph.head().schema.source == SOURCE
    catalog = compile_schema(SOURCE)
    assert (graph.head().schema.ir, graph.head().schema.hash) == (catalog.ir, catalog.hash)
    for entry in old.commits:
        graph.manifests.at_commit(entry["graph_commit_id"])
    then = graph.manifests.at_commit(by_ann["graph_commit_id"])
    assert pins(then)["node:Person"] == (PERSON, None, 2, 1)
    assert then.head.graph_commit_id == by_ann["graph_commit_id"]
    heads = [[by["graph_commit_id"]] for by in (by_fay, by_bob)]
    bases = best_common(*heads, graph.history.descent().parents)
    assert bases.best == (by_ann["graph_commit_id"],)


def told(commit):
    return (
        commit.graph_commit_id,
        commit.parent_commit_id,
        commit.graph_branch,
        commit.graph_manifest_version,
        commit.actor_id,
        commit.created_us,
    )


def told_old(entry):
    return (
        entry["graph_commit_id"],
        entry["parent_commit_id"],
        entry["manifest_branch"] or "main",
        entry["manifest_version"],
        entry["actor_id"],
        microseconds(entry["created_at"]),
    )


def pins(snapshot):
    return {
        key: (entry.location, entry.branch, entry.version, entry.row_count)
        for key, entry in snapshot.entries.items()
    }


def check_layout(place):
    for name in OLD_FILES:
        assert not os.path.exists(os.path.join(place.uri, name)), name
    manifest = lance.dataset(f"{place.uri}/__manifest")
    branches = [branch.id for branch in Authority.over(place).refs.list() if branch.id]
    assert not any("/" in branch_id for branch_id in branches)
    lines = [lance.dataset(f"{place.uri}/__manifest/tree/{each}") for each in branches]
    for dataset in (manifest, *lines):
        assert dataset.schema.metadata[STAMP] == b"100"
        key = dataset.schema.field("object_id")
        assert key.metadata[b"lance-schema:unenforced-primary-key"] == b"true"
        assert dataset.has_stable_row_ids
    assert not [name for name in manifest.branches.list() if name.startswith("__run__")]


def test_a_migrated_graph_tells_the_whole_story(old, local_root):
    graph = migrated(local_root)
    check_story(graph, old)
    check_layout(local_root)


def test_a_migrated_graph_takes_writes_on_every_branch(old, local_root):
    graph = migrated(local_root)
    for branch in graph.refs.list():
        before = graph.head(branch)
        after = graph.advance("edge:Knows", branch=branch)
        assert after.head.parent_commit_id == before.graph_commit_id
    graph.refs.delete("feature/deep")
    graph.refs.delete("feature")
    assert graph.refs.list() == [MAIN_BRANCH]


def test_a_schema_change_after_the_migration_leaves_older_snapshots_their_schema(old, local_root):
    graph = migrated(local_root)
    new = SchemaRecord(source="node Person {}", ir="{}", hash="sha256:2")
    graph.publish(schema=new)
    cold = Authority.over(local_root)
    assert cold.head().schema == new
    for entry in old.commits:
        then = cold.manifests.at_commit(entry["graph_commit_id"])
        assert then.schema.source == SOURCE


def test_branches_whose_old_names_nest_are_deleted_one_by_one(local_root):
    old = OldGraph(local_root.uri, 3).told()
    old.branch("feature/other")
    graph = migrated(local_root)
    nested = graph.refs.get("feature/other")
    graph.refs.delete("feature/deep")
    graph.refs.delete("feature")
    cold = Authority.over(local_root)
    assert [branch.name for branch in cold.refs.list()] == ["main", "feature/other"]
    cold.advance("edge:Knows", branch=nested)


def test_dropping_an_old_line_spares_the_lines_whose_folders_lie_in_its_own(local_root):
    old = OldGraph(local_root.uri, 3).told()
    old.branch("other")
    old.branch("other/nested")
    graph = Authority.over(local_root)
    before = graph.head(graph.refs.get("other/nested"))
    graph.manifests.datasets.drop("other")
    cold = Authority.over(local_root)
    assert cold.head(cold.refs.get("other/nested")) == before


def test_migrating_again_changes_nothing(old, local_root):
    migrated(local_root)
    before = everything(local_root.uri)
    migrated(local_root)
    assert everything(local_root.uri) == before


def test_an_old_graph_is_read_without_writing(old, local_root):
    before = everything(local_root.uri)
    check_story(Authority.over(local_root), old)
    assert everything(local_root.uri) == before


def test_a_publish_migrates_by_itself(old, local_root):
    graph = Authority.over(local_root)
    graph.publish(update_of(graph))
    check_layout(local_root)
    assert len(graph.history.commits(MAIN_BRANCH)) == 4


def update_of(graph):
    return update("edge:Knows", graph.head().entries["edge:Knows"].version + 1)


class Reached:
    def __init__(self):
        self.steps = []

    def reach(self, step):
        self.steps.append(step)


class Crash(BaseException):
    pass


class CrashAfter:
    def __init__(self, steps):
        self._left = steps

    def reach(self, step):
        self._left -= 1
        if self._left == 0:
            raise Crash


# All three take the same way; the newest of them stands for it every day.
long_ones = pytest.mark.parametrize(
    "old",
    [pytest.param(stamp, id=f"v{stamp}", marks=pytest.mark.slow) for stamp in (1, 2)]
    + [pytest.param(3, id="v3")],
    indirect=True,
)


@long_ones
def test_a_migration_that_dies_anywhere_is_finished_by_the_next(old, local_root, tmp_path):
    template = tmp_path / "template"
    shutil.copytree(local_root.uri, template)
    reached = Reached()
    migrated(local_root, replace(FAST, steps=reached))
    kinds = Counter(step.value.partition(".")[0] for step in reached.steps)
    assert kinds["migration"] >= 9
    for number in range(1, len(reached.steps) + 1):
        # Lance keeps absolute paths of branches: the copy must lie where the graph was.
        shutil.rmtree(local_root.uri)
        shutil.copytree(template, local_root.uri)
        with pytest.raises(Crash):
            migrated(local_root, replace(FAST, steps=CrashAfter(number)))
        check_story(Authority.over(local_root), old)
        check_story(migrated(local_root), old)
        check_layout(local_root)


@long_ones
def test_several_migrations_at_once_do_it_once(old, local_root, tmp_path):
    template = tmp_path / "template"
    shutil.copytree(local_root.uri, template)
    for _ in range(5):
        shutil.rmtree(local_root.uri)
        shutil.copytree(template, local_root.uri)
        barrier = threading.Barrier(4)

        def run(_, barrier=barrier):
            barrier.wait()
            return migrated(local_root)

        with ThreadPoolExecutor(4) as pool:
            for graph in pool.map(run, range(4)):
                check_story(graph, old)
        check_layout(local_root)
        assert Authority.over(local_root).head().manifest_version == 4


def test_a_graph_without_commit_tables_gets_a_genesis_that_its_branches_share(local_root):
    OldGraph(local_root.uri, 1).told(lineage=False)
    graph = migrated(local_root)
    lines = [graph.history.commits(branch) for branch in graph.refs.list()]
    (genesis,) = lines[2]
    # What the tables went through since is one commit, as nothing else is known of it.
    assert [line[-1] for line in lines] == [genesis] * 3
    assert genesis.parent_commit_id is None
    assert pins(graph.head())["node:Person"] == (PERSON, None, 3, 2)
    assert graph.head(graph.refs.get("feature")).entries["node:Person"].branch == "feature"


def test_a_commit_that_v3_lost_is_found(local_root):
    old = OldGraph(local_root.uri, 3).told()
    old.publish("node:Person", old.append_people("dora", "emil"), 4, lineage=False)
    graph = migrated(local_root)
    found, before = graph.history.commits(MAIN_BRANCH, limit=2)
    assert found.actor_id == "omnigraph:recovery"
    assert before.graph_commit_id == old.commits[-1]["graph_commit_id"]
    assert graph.manifests.at_commit(found.graph_commit_id).entries["node:Person"].row_count == 4
    assert graph.manifests.at_commit(before.graph_commit_id).entries["node:Person"].row_count == 2


@pytest.mark.parametrize(
    ("stamp", "told"),
    [
        ("5", r"0\.9 to 0\.10"),
        ("6", r"0\.9 to 0\.10"),
        ("12", "later release"),
        ("101", "upgrade omnigraph first"),
    ],
)
def test_a_stamp_that_we_cannot_follow_is_refused_and_nothing_is_touched(local_root, stamp, told):
    graph = Authority.created(local_root)
    lance.dataset(f"{local_root.uri}/__manifest").update_schema_metadata({STAMP.decode(): stamp})
    before = everything(local_root.uri)
    with pytest.raises(UpgradeRequiredError, match=told) as refused:
        migrated(local_root)
    assert ("export" in (refused.value.hint or "")) == (stamp != "101")
    with pytest.raises(UpgradeRequiredError):
        Authority.over(local_root).head()
    with pytest.raises(UpgradeRequiredError):
        graph.publish(update_of_known(graph))
    assert everything(local_root.uri) == before


def update_of_known(graph):
    return update("edge:Knows", graph.manifests.last_known(None).tail.version_of("edge:Knows") + 1)


def test_another_primary_key_is_refused(local_root):
    OldGraph(local_root.uri, 1).told()
    manifest = lance.dataset(f"{local_root.uri}/__manifest")
    manifest.update_field_metadata({"table_key": {"lance-schema:unenforced-primary-key": "true"}})
    with pytest.raises(CorruptGraphError, match="table_key"):
        migrated(local_root)


@pytest.mark.parametrize(
    ("staged", "tables", "chosen"),
    [
        (SOURCE, (), SOURCE),
        (OTHER_SOURCE, (), SOURCE),
        (OTHER_SOURCE, ("node:City",), OTHER_SOURCE),
        (SAME_TABLES_SOURCE, (), None),
        (OTHER_SOURCE, ("node:Other",), None),
    ],
    ids=["same", "not published", "published", "ambiguous", "neither"],
)
def test_a_schema_change_that_v3_cut_short_is_judged_by_the_tables(
    local_root, staged, tables, chosen
):
    old = OldGraph(local_root.uri, 3).told()
    old.write_schema(staged, ".staging")
    for key in tables:
        old.register(key, "nodes/0a")
    if chosen is None:
        with pytest.raises(CorruptGraphError, match="schema change"):
            migrated(local_root)
        return
    assert migrated(local_root).head().schema.source == chosen
    assert not [name for name in os.listdir(local_root.uri) if name.endswith(".staging")]


def test_a_missing_schema_file_is_named(local_root):
    OldGraph(local_root.uri, 3).told()
    os.remove(os.path.join(local_root.uri, "_schema.pg"))
    with pytest.raises(CorruptGraphError, match=r"_schema\.pg"):
        migrated(local_root)


def test_a_schema_lock_that_nobody_holds_any_more_goes(local_root):
    OldGraph(local_root.uri, 3).told()
    lance.dataset(f"{local_root.uri}/__manifest").create_branch("__schema_apply_lock__")
    graph = migrated(local_root)
    assert [branch.name for branch in graph.refs.list()] == ["main", "feature", "feature/deep"]
    assert "__schema_apply_lock__" not in graph.manifests.datasets.branch_ids()


# --- graphs of our own first release, which had the stamp of another layout --------------------

OURS = "node Person {\n  name: String @key\n}\n"


def first_landing(place):
    """A graph as our first release left it: our layout under the stamp 4."""
    with Graph.init(place.uri, OURS) as graph:
        graph.mutate('query a() { insert Person { name: "ann" } }')
        graph.create_branch("feature")
        graph.mutate('query a() { insert Person { name: "bob" } }', branch="feature")
    lines = [f"{place.uri}/__manifest", *glob.glob(f"{place.uri}/__manifest/tree/*")]
    for line in lines:
        lance.dataset(line).update_schema_metadata({STAMP.decode(): "4"})
    return lines


def stamps(lines):
    return {lance.dataset(line).schema.metadata[STAMP] for line in lines}


def test_a_graph_of_our_first_release_is_read_without_writing(local_root):
    lines = first_landing(local_root)
    before = everything(local_root.uri)
    with Graph.open(local_root.uri, mode=OpenMode.READ_ONLY) as graph:
        assert [len(list(graph.export(branch=name))) for name in ("main", "feature")] == [1, 2]
        assert len(graph.commits("feature")) == 3
    assert everything(local_root.uri) == before
    assert stamps(lines) == {b"4"}


def test_a_graph_of_our_first_release_gets_our_stamp_at_a_read_write_open(local_root):
    lines = first_landing(local_root)
    with Graph.open(local_root.uri) as graph:
        assert stamps(lines) == {b"100"}
        assert [len(list(graph.export(branch=name))) for name in ("main", "feature")] == [1, 2]
        first = graph.commits("feature")[-1].graph_commit_id
        assert list(graph.export(snapshot=first)) == []
        for branch in ("main", "feature"):
            graph.mutate('query a() { insert Person { name: "zoe" } }', branch=branch)
    assert stamps(lines) == {b"100"}
    before = everything(local_root.uri)
    Graph.open(local_root.uri).close()
    assert everything(local_root.uri) == before


def test_a_publish_on_a_branch_that_kept_the_old_stamp_sets_ours(local_root):
    lines = first_landing(local_root)
    lance.dataset(lines[0]).update_schema_metadata({STAMP.decode(): "100"})
    with Graph.open(local_root.uri) as graph:
        graph.mutate('query a() { insert Person { name: "zoe" } }', branch="feature")
    assert stamps(lines) == {b"100"}
