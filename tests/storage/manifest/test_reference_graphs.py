"""Graphs that the reference system's own releases wrote: opened, migrated, lived in, refused."""

from __future__ import annotations

import json
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import lance
import pytest
from msgspec.structs import replace

from omnigraph import Graph, OpenMode
from omnigraph.engine.core import open_core
from omnigraph.errors import CorruptGraphError, RecoveryRequiredError, StorageUnavailableError
from omnigraph.model.ports import World
from omnigraph.model.steps import Step
from omnigraph.storage.lance.files import version_file
from omnigraph.storage.objects.root import Root, open_store
from reference_graphs import (
    BRANCHED,
    EVERY,
    MAINS,
    STAMPS,
    Reference,
    check_recorded,
    normal,
    past,
    tree,
    unpacked,
)

pytestmark = pytest.mark.xdist_group("reference-graphs")

FAST = World(durability="process")
OLD_NAMES = ("_schema.pg", "_schema.ir.json", "__schema_state.json", "_graph_commits.lance")


@pytest.fixture(params=EVERY)
def reference(request, tmp_path):
    with unpacked(request.param, tmp_path) as found:
        yield found


@pytest.fixture(params=MAINS)
def movable(request, tmp_path):
    with unpacked(request.param, tmp_path) as found:
        yield found


def stamp_of(reference, branch_id=None):
    tail = "" if branch_id is None else f"/tree/{branch_id}"
    metadata = lance.dataset(f"{reference.uri}/__manifest{tail}").schema.metadata
    return int(metadata[b"omnigraph:internal_schema_version"])


# --- as they are, and migrated ---------------------------------------------------------------


def test_a_reference_graph_is_read_as_recorded_and_not_a_byte_changes(reference):
    before = tree(reference.root)
    with Graph.open(reference.uri, mode=OpenMode.READ_ONLY) as graph:
        check_recorded(graph, reference, schema=reference.schema)
        past(graph, reference)
    assert tree(reference.root) == before


def test_a_reference_graph_is_migrated_in_place_with_its_whole_past(reference):
    schema = reference.schema
    assert stamp_of(reference) == STAMPS[reference.name]
    with Graph.open(reference.uri, mode=OpenMode.READ_ONLY) as graph:
        before = past(graph, reference)
    with Graph.open(reference.uri) as graph:
        check_recorded(graph, reference, schema=schema)
        assert past(graph, reference) == before
    assert not [name for name in OLD_NAMES if (reference.root / name).exists()]
    assert stamp_of(reference) == 100
    after = tree(reference.root, ignore="__locks")
    with Graph.open(reference.uri) as graph:
        check_recorded(graph, reference, schema=schema)
    assert tree(reference.root, ignore="__locks") == after


def test_a_snapshot_from_before_a_schema_change_has_the_names_of_then(movable):
    for mode in (OpenMode.READ_ONLY, OpenMode.READ_WRITE):
        with Graph.open(movable.uri, mode=mode) as graph:
            loaded = movable.commits("main")[-2]["graph_commit_id"]
            then = graph.query(
                "query q() { match { $p: Person } return { $p.name as name, $p.score as score } "
                "order { $p.name } }",
                snapshot=loaded,
            ).to_pylist()
            assert [row["name"] for row in then] == ["ada", "bob", "cyd", 'd\'ée "x"']
            assert then[0]["score"] == 1.5
            now = graph.query("query q() { match { $p: Human } return { $p.points as points } }")
            assert 9.5 in [row["points"] for row in now.to_pylist()]


def test_a_reference_graph_lives_on(reference):
    person = "Human" if reference.name in MAINS else "Person"
    insert = 'query a() {{ insert {0} {{ name: "{1}", seen: "2025-05-05T05:05:05.123Z" }} }}'
    with Graph.open(reference.uri) as graph:
        for branch in graph.branches():
            graph.mutate(insert.format(person, f"new on {branch}"), branch=branch, actor="me")
        graph.mutate('query a() { insert WorksAt { from: "bob", to: "acme" } }')
        graph.mutate(f'query a() {{ update {person} set {{ age: 9 }} where name = "ada" }}')
        for branch in graph.branches()[1:]:
            assert graph.merge(branch).outcome == "merged"
        graph.optimize()
        # A DateTime of the reference's tables keeps its milliseconds and can be asked for.
        asked = f"""query q() {{
          match {{ $p: {person} $p.seen > datetime("2025-05-05T05:05:05.122Z") }}
          return {{ $p.name as name }}
        }}"""
        found = {row["name"] for row in graph.query(asked).to_pylist()}
        assert found == {f"new on {branch}" for branch in graph.branches()}
        before = {branch: normal(graph.export(branch=branch)) for branch in graph.branches()}
        assert not graph.cleanup(keep_versions=3).failures
    with Graph.open(reference.uri) as graph:
        assert {each: normal(graph.export(branch=each)) for each in graph.branches()} == before
        for branch in reversed(graph.branches()[1:]):  # what was made from a branch goes before it
            graph.merge("main", into=branch)
            graph.delete_branch(branch, force=True)
        graph.create_branch("later")
        graph.mutate(insert.format(person, "later"), branch="later")
        assert graph.merge("later").outcome == "fast_forward"
        assert len(normal(graph.export())) == len(before["main"]) + 1


def test_cleanup_keeps_of_the_past_before_the_migration_what_it_is_told_to(reference):
    with Graph.open(reference.uri) as graph:
        before = past(graph, reference)
        assert not graph.cleanup(keep_versions=100).failures
        assert past(graph, reference) == before
        assert not graph.cleanup(keep_versions=1, grace=0).failures
        for branch in reference.branches:
            head = reference.commits(branch)[0]["graph_commit_id"]
            assert normal(graph.export(branch=branch)) == before[head]
        # Merges still find where they start from.
        for branch in [each for each in reference.branches if each != "main"]:
            insert = f'query a() {{ insert Org {{ name: "by {branch}" }} }}'
            graph.mutate(insert, branch=branch)
            assert graph.merge(branch).outcome == "merged"
        assert len(normal(graph.export(types=["Org"]))) == 1 + len(reference.branches)


def test_a_reference_graph_on_an_object_store_migrates_too(movable, s3_root):
    schema = movable.schema
    root = Root.parse(s3_root.uri, s3_root.environ)
    store = open_store(root, FAST)
    for path in movable.root.rglob("*"):
        if path.is_file():
            store.put(path.relative_to(movable.root).as_posix(), path.read_bytes())
    before = set(store.list_keys(""))
    with Graph.open(s3_root.uri, mode=OpenMode.READ_ONLY) as graph:
        check_recorded(graph, movable, schema=schema)
    assert set(store.list_keys("")) == before
    with Graph.open(s3_root.uri) as graph:
        check_recorded(graph, movable, schema=schema)
        graph.mutate('query a() { insert Org { name: "on a store" } }')
    assert store.read("_schema.pg") is None
    with Graph.open(s3_root.uri) as graph:
        assert len(normal(graph.export(types=["Org"]))) == 3


def test_several_opens_at_once_migrate_once(reference):
    schema = reference.schema
    barrier = threading.Barrier(3)

    def opened(_):
        barrier.wait()
        with Graph.open(reference.uri) as graph:
            return graph.snapshot().manifest_version

    with ThreadPoolExecutor(3) as pool:
        versions = set(pool.map(opened, range(3)))
    assert len(versions) == 1
    with Graph.open(reference.uri) as graph:
        check_recorded(graph, reference, schema=schema)


# --- what cannot be migrated stays what it was -------------------------------------------------


def refused(reference, match=None, *, modes=tuple(OpenMode), error=CorruptGraphError):
    before = tree(reference.root)
    for mode in modes:
        with pytest.raises(error, match=match) as caught:
            Graph.open(reference.uri, mode=mode)
        assert tree(reference.root) == before, mode
    return caught.value


def rewrite_ir(reference, change, *, hashed):
    path = reference.root / "_schema.ir.json"
    body = json.loads(path.read_text())
    change(body)
    path.write_text(json.dumps(body, indent=2, ensure_ascii=False))
    if hashed:
        compact = json.dumps(body, separators=(",", ":"), ensure_ascii=False)
        state = json.loads((reference.root / "__schema_state.json").read_text())
        state["schema_ir_hash"] = f"sha256:{sha256(compact.encode()).hexdigest()}"
        (reference.root / "__schema_state.json").write_text(json.dumps(state))


def in_schema(body):
    body["domain"] = "x"


def in_node(body):
    body["nodes"][0]["parent"] = None


def in_property(body):
    body["nodes"][0]["properties"][0]["hidden"] = True


def in_type(body):
    body["nodes"][0]["properties"][0]["prop_type"]["unit"] = "m"


def in_edge(body):
    body["edges"][0]["cardinality"]["exact"] = 1


def in_constraint(body):
    body["nodes"][0]["constraints"].append({"Frozen": ["name"]})


@pytest.mark.parametrize("hashed", [True, False], ids=["hash fits", "hash does not"])
@pytest.mark.parametrize(
    "change", [in_schema, in_node, in_property, in_type, in_edge, in_constraint]
)
def test_an_unknown_word_in_the_stored_schema_is_refused(movable, change, hashed):
    rewrite_ir(movable, change, hashed=hashed)
    error = refused(movable, "unknown")
    assert error.part == "_schema.ir.json"


def test_a_stored_schema_that_the_source_does_not_mean_is_refused(movable):
    def change(body):
        body["nodes"][0]["properties"][1]["prop_type"]["nullable"] = False

    rewrite_ir(movable, change, hashed=True)
    refused(movable, "does not compile to the stored schema.*age")


def test_a_hash_of_another_schema_is_refused(movable):
    state = movable.root / "__schema_state.json"
    state.write_text(state.read_text().replace("sha256:a", "sha256:b"))
    assert refused(movable).part == "__schema_state.json"


def test_a_write_that_the_old_release_left_unfinished_is_not_built_upon(movable):
    (movable.root / "__recovery" / "01M7GXT8HNFV9HTTGA49J8636Z.json").write_text("{}")
    refused(movable, "that release", modes=[OpenMode.READ_WRITE], error=RecoveryRequiredError)
    with Graph.open(movable.uri, mode=OpenMode.READ_ONLY) as graph:
        assert normal(graph.export()) == movable.records("main")


def test_a_stamp_that_was_cut_short_is_no_damage_but_a_lost_version_is(movable):
    steps = StopAt()
    template = movable.folder / "template"
    shutil.copytree(movable.root, template)
    open_with(movable, steps)
    put_back(movable, template)
    with pytest.raises(Crash):  # all is built, the stamp is about to be set
        open_with(movable, StopAt(steps.reached.index(Step.MIGRATION_STAMPED) - 1))
    newest = lance.dataset(f"{movable.uri}/__manifest").version
    attempt = f"__manifest/_transactions/{newest}-0b0b0b0b-0000-4000-8000-000000000000.txn"
    (movable.root / attempt).write_bytes(b"")
    torn = movable.root / "__manifest" / "_versions" / version_file(newest + 1)
    torn.write_bytes(b"half of it")
    with Graph.open(movable.uri, mode=OpenMode.READ_ONLY) as graph:
        assert normal(graph.export()) == movable.records("main")
    Graph.open(movable.uri).close()
    put_back(movable, template)
    (movable.root / attempt).write_bytes(b"")
    refused(movable, "its file is missing")


@pytest.mark.parametrize("name", BRANCHED)
def test_a_copy_never_reads_the_files_of_the_graph_it_was_made_from(tmp_path, name):
    with unpacked(name, tmp_path) as reference:
        shutil.copytree(reference.folder, tmp_path / name)
        copy = Reference(tmp_path, name)
        refused(copy, "moved or copied", modes=[OpenMode.READ_WRITE])
        with Graph.open(copy.uri, mode=OpenMode.READ_ONLY) as graph:
            assert normal(graph.export()) == reference.records("main")
            with pytest.raises(CorruptGraphError, match="moved or copied"):
                list(graph.export(branch="feature"))


def halved(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def emptied(path):
    path.write_bytes(b"")


def deleted(path):
    path.unlink()


def flipped(path):
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 0x10
    path.write_bytes(bytes(body))


# Kinds of files that a graph of the release cannot do without, by the newest of each.
KINDS = {
    3: (
        "_schema.pg",
        "_schema.ir.json",
        "__schema_state.json",
        "__manifest/_versions/*.manifest",
        "__manifest/data/*.lance",
        "_graph_commits.lance/_versions/*.manifest",
        "_graph_commits.lance/data/*.lance",
        "_graph_commit_actors.lance/_versions/*.manifest",
        "_graph_commit_actors.lance/data/*.lance",
        "nodes/3004ac19bf78abb9/_versions/*.manifest",
        "nodes/3004ac19bf78abb9/data/*.lance",
        "edges/602a25a3bd0b455b/data/*.lance",
    ),
    4: (
        "_schema.pg",
        "_schema.ir.json",
        "__schema_state.json",
        "__manifest/_versions/*.manifest",
        "__manifest/_deletions/*.arrow",
        "__manifest/data/*.lance",
        "nodes/3004ac19bf78abb9/_versions/*.manifest",
        "nodes/3004ac19bf78abb9/data/*.lance",
        "edges/602a25a3bd0b455b/data/*.lance",
    ),
}
HOW = {"halved": halved, "emptied": emptied, "deleted": deleted, "flipped": flipped}
DAMAGE = [
    pytest.param(
        name,
        pattern,
        way,
        id=f"{name}-{pattern.replace('*', 'newest')}-{way}",
        marks=() if way == "halved" and name in MAINS else pytest.mark.slow,
    )
    for name in EVERY
    for pattern in KINDS[STAMPS[name]]
    for way in HOW
]


def opening_error(reference, schema):
    """Why the graph cannot be opened; None if it can and is what was recorded."""
    try:
        with Graph.open(reference.uri) as graph:
            check_recorded(graph, reference, schema=schema)
    except CorruptGraphError as error:
        return error
    return None


@pytest.mark.parametrize(("name", "pattern", "way"), DAMAGE)
def test_a_damaged_file_is_refused_by_name_or_does_not_matter(tmp_path, name, pattern, way):
    with unpacked(name, tmp_path) as reference:
        schema = reference.schema
        # Version files sort newest first; of the others any will do.
        HOW[way](min(reference.root.glob(pattern)))
        before = tree(reference.root)
        error = opening_error(reference, schema)
        if error is None:
            assert way == "flipped", "only a bit may be one that no reader looks at"
            return
        # A manifest version names what is in every file, so its damage may be seen anywhere.
        assert {pattern.split("/")[0], "__manifest"} & set(error.part.split("/")), error
        assert tree(reference.root) == before


# --- crashes and full disks --------------------------------------------------------------------


class Crash(BaseException):
    pass


class StopAt:
    """Raises at the n-th step; remembers all that were reached."""

    def __init__(self, number=None, error=Crash):
        self.reached = []
        self._number = number
        self._error = error

    def reach(self, step):
        self.reached.append(step)
        if len(self.reached) == self._number:
            raise self._error


class FullDiskError(StorageUnavailableError):
    def __init__(self):
        super().__init__("no space left on device", uri="disk", reason="full")


def open_with(reference, steps):
    core = open_core(reference.uri, mode=OpenMode.READ_WRITE, world=replace(FAST, steps=steps))
    core.close()


def steps_of(reference, template):
    shutil.copytree(reference.root, template)
    steps = StopAt()
    open_with(reference, steps)
    return steps.reached


def put_back(reference, template):
    shutil.rmtree(reference.root)
    shutil.copytree(template, reference.root)


def test_a_disk_that_fills_up_leaves_the_graph_as_it_was(reference, tmp_path):
    before = tree(reference.root)
    steps = steps_of(reference, tmp_path / "template")
    stamped = steps.index(Step.MIGRATION_STAMPED)
    # The commit that stamps main is the last before it: staged, then published.
    for number in _some(range(1, stamped - 1)):
        put_back(reference, tmp_path / "template")
        with pytest.raises(FullDiskError):
            open_with(reference, StopAt(number, FullDiskError))
        assert tree(reference.root, ignore="__locks") == before, steps[number - 1]


def _some(numbers):
    """The first, the last and one between: every one of them is for the slow test."""
    return sorted({numbers[0], numbers[len(numbers) // 2], numbers[-1]})


@pytest.mark.slow
def test_a_migration_that_dies_at_any_step_is_finished_by_the_next_open(reference, tmp_path):
    schema = reference.schema
    steps = steps_of(reference, tmp_path / "template")
    for number in range(1, len(steps) + 1):
        put_back(reference, tmp_path / "template")
        with pytest.raises(Crash):
            open_with(reference, StopAt(number))
        with Graph.open(reference.uri, mode=OpenMode.READ_ONLY) as graph:
            check_recorded(graph, reference, schema=schema)
        with Graph.open(reference.uri) as graph:
            check_recorded(graph, reference, schema=schema)
        assert not [name for name in OLD_NAMES if (reference.root / name).exists()]
