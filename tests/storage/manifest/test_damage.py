"""Places that hold no graph, rows that make no sense, files that are gone: typed errors, named."""

from __future__ import annotations

import json
import os
import time

import lance
import pyarrow as pa
import pytest

from manifest_world import Authority, update
from omnigraph.errors import (
    CorruptGraphError,
    NotFoundError,
    OmnigraphError,
    StorageUnavailableError,
)
from omnigraph.model.graph import WriterKind
from omnigraph.storage.commit.sidecar import Sidecar, Sidecars
from omnigraph.storage.lance.files import version_file
from omnigraph.storage.manifest.migrations import migrate
from omnigraph.storage.manifest.rows import ROW_SCHEMA
from omnigraph.storage.objects.root import branch_folder
from places import Place


@pytest.fixture
def graph(local_root):
    return Authority.created(local_root)


def test_an_empty_folder_holds_no_graph(tmp_path):
    folder = tmp_path / "empty"
    folder.mkdir()
    nothing = Authority.over(Place(uri=str(folder), environ={}))
    assert not nothing.manifests.exists()
    with pytest.raises(NotFoundError, match="there is no graph"):
        nothing.head()
    with pytest.raises(NotFoundError):
        migrate(nothing.manifests, nothing.world)
    assert os.listdir(folder) == []


def test_a_missing_folder_holds_no_graph_and_is_not_made(local_root):
    assert not Authority.over(local_root).manifests.exists()
    assert not os.path.exists(local_root.uri)


def test_a_file_is_no_graph(tmp_path):
    file = tmp_path / "file"
    file.write_text("hello")
    nothing = Authority.over(Place(uri=str(file), environ={}))
    with pytest.raises(OmnigraphError):
        nothing.head()
    assert file.read_text() == "hello"


def test_tables_without_a_manifest_are_no_graph(local_root):
    rows = pa.table({"id": ["a"]})
    lance.write_dataset(rows, f"{local_root.uri}/nodes/0123456789abcdef")
    assert not Authority.over(local_root).manifests.exists()


def changed(local_root, change):
    """Write the manifest's rows back after changing them by hand."""
    uri = f"{local_root.uri}/__manifest"
    rows = lance.dataset(uri).to_table().to_pylist()
    lance.write_dataset(
        pa.Table.from_pylist(change(rows), schema=ROW_SCHEMA), uri, mode="overwrite"
    )


def with_value(object_id, column, value):
    def change(rows):
        for row in rows:
            if row["object_id"] == object_id:
                row[column] = value
        return rows

    return change


def without(object_id):
    return lambda rows: [row for row in rows if row["object_id"] != object_id]


def doubled(object_id):
    return lambda rows: rows + [row for row in rows if row["object_id"] == object_id]


def named(kind):
    """The key of the first row of a kind, told by the row itself."""
    return lambda rows: next(row["object_id"] for row in rows if row["object_type"] == kind)


PERSON_1 = f"node:Person${1:020d}"
DAMAGE = {
    "schema is no JSON": (with_value("schema", "metadata", "{"), "schema"),
    "schema is null": (with_value("schema", "metadata", None), "schema"),
    "schema lacks its source": (with_value("schema", "metadata", '{"ir":"","hash":""}'), "schema"),
    "no schema": (without("schema"), "schema"),
    "two schemas": (doubled("schema"), "schema"),
    "head is a list": (with_value("graph_head", "metadata", "[]"), "graph_head"),
    "head names nothing": (
        with_value("graph_head", "metadata", json.dumps({"head_commit_id": "x"})),
        "graph_head",
    ),
    "a version without a number": (with_value(PERSON_1, "table_version", None), PERSON_1),
    "a version without a table": (without("node:Person"), PERSON_1),
    "a version twice": (doubled(PERSON_1), PERSON_1),
    "a table without a place": (with_value("node:Person", "location", None), "node:Person"),
    "an unknown kind": (with_value("node:Person", "object_type", "tabel"), "node:Person"),
}


@pytest.mark.parametrize(("change", "row"), DAMAGE.values(), ids=DAMAGE.keys())
def test_a_row_that_makes_no_sense_is_named(graph, local_root, change, row):
    changed(local_root, change)
    with pytest.raises(CorruptGraphError) as caught:
        Authority.over(local_root).head()
    assert caught.value.row == row
    assert f"'{row}'" in str(caught.value)


def test_a_commit_row_that_makes_no_sense_is_named(graph, local_root):
    commit = graph.head().graph_commit_id
    changed(local_root, with_value(commit, "metadata", "{}"))
    with pytest.raises(CorruptGraphError, match=commit):
        Authority.over(local_root).head()


def test_nothing_is_published_on_top_of_damage(graph, local_root):
    changed(local_root, with_value("schema", "metadata", "{"))
    before = lance.dataset(f"{local_root.uri}/__manifest").version
    with pytest.raises(CorruptGraphError):
        graph.publish(update("node:Person", 2))
    assert lance.dataset(f"{local_root.uri}/__manifest").version == before


def test_a_missing_data_file_is_damage(graph, local_root):
    folder = f"{local_root.uri}/__manifest/data"
    for name in os.listdir(folder):
        os.remove(os.path.join(folder, name))
    with pytest.raises(CorruptGraphError, match="missing or damaged"):
        Authority.over(local_root).head()


def test_a_torn_data_file_is_damage(graph, local_root):
    folder = f"{local_root.uri}/__manifest/data"
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        os.truncate(path, os.path.getsize(path) // 2)
    with pytest.raises(OmnigraphError) as caught:
        Authority.over(local_root).head()
    assert isinstance(caught.value, CorruptGraphError), caught.value


TORN = pytest.mark.parametrize(
    "content", [b"", b"\0" * 10, b"\0" * 900], ids=["empty", "few", "zeros"]
)
BRANCHES = pytest.mark.parametrize("branch_name", ["main", "b"])


def armed(graph, snapshot):
    """An unfinished write that follows the snapshot."""
    sidecar = Sidecar(
        operation_id=graph.world.ids.ulid(),
        writer_kind=WriterKind.MUTATION,
        actor_id=None,
        graph_branch=snapshot.branch.name,
        branch_id=snapshot.branch.id,
        graph_commit_id=graph.world.ids.ulid(),
        rollback_commit_id=graph.world.ids.ulid(),
        parent_commit_id=snapshot.head.graph_commit_id,
        created_at=1,
        effects=(),
    )
    Sidecars(graph.store).arm(sidecar)
    return sidecar


@TORN
@BRANCHES
def test_a_torn_version_whose_sidecar_is_there_was_never_acknowledged(
    graph, local_root, content, branch_name
):
    graph.refs.create("b", actor_id=None)
    branch = graph.refs.get(branch_name)
    graph.advance(branch=branch)
    before = graph.head(branch)
    armed(graph, before)
    tear(local_root, branch, before.manifest_version + 1, content)
    assert graph.head(branch) == before
    cold = Authority.over(local_root)
    assert cold.head(branch) == before
    after = cold.advance(branch=branch)
    assert after.manifest_version == before.manifest_version + 1
    assert graph.head(branch) == after


@TORN
@BRANCHES
def test_a_torn_version_without_a_sidecar_had_been_acknowledged(
    graph, local_root, content, branch_name
):
    graph.refs.create("b", actor_id=None)
    branch, other = (
        graph.refs.get(branch_name),
        graph.refs.get({"main": "b", "b": "main"}[branch_name]),
    )
    lost = graph.advance(branch=branch)
    path = version_path(local_root, branch, lost.manifest_version)
    with open(path, "wb") as file:
        file.write(content)
    cold = Authority.over(local_root)
    for deed in (cold.head, lambda branch: cold.advance(branch=branch)):
        with pytest.raises(CorruptGraphError) as caught:
            deed(branch)
        assert caught.value.part == os.path.relpath(path, local_root.uri)
    assert cold.head(other).branch == other  # it is the matter of one branch
    with open(path, "rb") as file:
        assert file.read() == content  # the evidence stays


@BRANCHES
def test_a_sidecar_explains_only_the_version_that_it_would_have_made(
    graph, local_root, branch_name
):
    graph.refs.create("b", actor_id=None)
    branch = graph.refs.get(branch_name)
    early = graph.advance(branch=branch)
    graph.advance(branch=branch)
    lost = graph.advance(branch=branch)
    armed(graph, early)
    os.truncate(version_path(local_root, branch, lost.manifest_version), 100)
    with pytest.raises(CorruptGraphError):
        Authority.over(local_root).head(branch)


@BRANCHES
@pytest.mark.parametrize("count", [1, 2])
def test_the_newest_versions_cannot_vanish_without_a_word(graph, local_root, branch_name, count):
    graph.refs.create("b", actor_id=None)
    branch = graph.refs.get(branch_name)
    commits = [graph.advance(branch=branch) for _ in range(3)]
    warm = Authority.over(local_root)
    warm.head(branch)
    for lost in commits[-count:]:
        os.remove(version_path(local_root, branch, lost.manifest_version))
    for authority in (warm, Authority.over(local_root)):
        with pytest.raises(CorruptGraphError) as caught:
            authority.head(branch)
        assert "_versions" in caught.value.part


@pytest.mark.s3
def test_the_newest_version_cannot_vanish_from_an_object_store_either(s3_root):
    graph = Authority.created(s3_root)
    branch = graph.refs.create("b", actor_id=None)
    assert Authority.over(s3_root).head(branch).branch == branch  # a fresh fork is no loss
    lost = graph.advance()
    graph.store.delete(f"__manifest/_versions/{version_file(lost.manifest_version)}")
    for authority in (graph, Authority.over(s3_root)):
        with pytest.raises(CorruptGraphError) as caught:
            authority.head()
        assert version_file(lost.manifest_version) in caught.value.part
    assert Authority.over(s3_root).head(branch).branch == branch


def test_a_branch_without_its_manifest_is_damage_and_not_a_missing_branch(graph, local_root):
    branch = graph.refs.create("b", actor_id=None)
    os.remove(version_path(local_root, branch, graph.head().manifest_version))
    with pytest.raises(CorruptGraphError):
        Authority.over(local_root).head(branch)


def test_a_manifest_that_lost_all_versions_is_no_empty_place(graph, local_root):
    folder = f"{local_root.uri}/__manifest/_versions"
    for name in os.listdir(folder):
        os.remove(os.path.join(folder, name))
    cold = Authority.over(local_root)
    assert cold.manifests.exists()  # so that no init removes its tables
    with pytest.raises(CorruptGraphError):
        cold.head()


def test_an_attempt_that_recovery_gave_up_is_forgotten_with_its_sidecar(graph, local_root):
    graph.advance()
    before = graph.head()
    armed(graph, before)
    folder = f"{local_root.uri}/__manifest/_transactions"
    name = f"{before.manifest_version}-5a9de7a6-0000-4000-8000-000000000000.txn"
    with open(os.path.join(folder, name), "wb") as file:
        file.write(b"half")
    tear(local_root, before.branch, before.manifest_version + 1, b"half")
    cold = Authority.over(local_root)
    assert cold.head() == before
    for sidecar in Sidecars(cold.store).pending():
        cold.manifests.forget_attempt(sidecar.branch_id, parent_commit_id=sidecar.parent_commit_id)
        Sidecars(cold.store).disarm(sidecar.operation_id)
    assert Authority.over(local_root).head() == before


def tear(place, branch, version, content):
    with open(version_path(place, branch, version), "xb") as file:
        file.write(content)


def version_path(place, branch, version):
    folder = branch_folder("__manifest", branch.id)
    return os.path.join(place.uri, folder, "_versions", version_file(version))


def test_a_stamp_that_is_no_number_is_damage(graph, local_root):
    lance.dataset(f"{local_root.uri}/__manifest").update_schema_metadata(
        {"omnigraph:internal_schema_version": "four"}
    )
    with pytest.raises(CorruptGraphError, match="four"):
        Authority.over(local_root).head()


def test_lances_own_compaction_of_the_manifest_does_no_harm(graph, local_root):
    for version in range(2, 160):
        graph.publish(update("node:Person", version))
    before = graph.head()
    lance.dataset(f"{local_root.uri}/__manifest").optimize.compact_files()
    cold = Authority.over(local_root)
    assert cold.head().entries == before.entries
    assert cold.head().head == before.head
    assert len(cold.history.commits(before.branch)) == 159
    graph.publish(update("node:Person", 160))
    assert len(Authority.over(local_root).history.commits(before.branch)) == 160


@pytest.mark.s3
def test_a_missing_bucket_is_told_in_seconds(s3_server):
    place = Place(uri="s3://no-such-bucket/graph.omni", environ=s3_server.environ())
    began = time.monotonic()
    with pytest.raises(OmnigraphError):
        Authority.over(place).head()
    with pytest.raises(OmnigraphError):
        Authority.created(place)
    assert time.monotonic() - began < 30


def test_an_unreachable_store_is_told_in_seconds(s3_server):
    environ = {**s3_server.environ(), "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}
    began = time.monotonic()
    with pytest.raises(StorageUnavailableError):
        Authority.over(Place(uri="s3://graphs/graph.omni", environ=environ)).head()
    assert time.monotonic() - began < 30
