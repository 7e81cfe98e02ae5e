"""Repair: what drifted is explained by what happened, and published only if told to."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from maintain_world import add, make, names, reopened, stats

from inside import core_of
from omnigraph.errors import ConflictError, InputError, UnfitColumnsError
from omnigraph.storage.lance.files import version_file


@pytest.fixture
def graph(tmp_path):
    with make(tmp_path / "g.omni") as graph:
        add(graph, "ada", "bob", "cyd")
        yield graph


def folder(graph):
    return f"{graph.uri}/{graph.snapshot().entries['node:Person'].dataset_path}"


def compact(graph):
    lance.dataset(folder(graph)).optimize.compact_files()


def index(graph):
    lance.dataset(folder(graph)).create_scalar_index("id", "BTREE")


def delete(graph):
    lance.dataset(folder(graph)).delete("id = 'ada'")


def land_given_up_write(graph, commit_id=None):
    """What a writer leaves that lost its lease, was given up by recovery and then went on."""
    core = core_of(graph)
    table = core.table(graph.snapshot(), "node:Person")
    staged = table.stage_delete_ids(["ada"])
    core.store.tables.apply(staged.for_commit(commit_id or core.world.ids.ulid()))


def land_given_up_write_and_compact(graph):
    land_given_up_write(graph)
    compact(graph)


def land_given_up_write_and_delete(graph):
    land_given_up_write(graph)
    lance.dataset(folder(graph)).delete("id = 'bob'")


def lose_transaction(graph):
    delete(graph)
    compact(graph)
    pinned = graph.snapshot().entries["node:Person"].version
    (lance_file,) = [f"{folder(graph)}/_versions/{version_file(pinned + 1)}"]
    with open(lance_file, "r+b") as file:
        file.truncate(10)


CASES = [
    (lambda graph: None, "no_drift", ["no_op", "no_op", "no_op"]),
    (compact, "verified_maintenance", ["preview", "healed", "healed"]),
    (index, "verified_maintenance", ["preview", "healed", "healed"]),
    (land_given_up_write, "unpublished_write", ["preview", "undone", "undone"]),
    (land_given_up_write_and_compact, "unpublished_write", ["preview", "undone", "undone"]),
    (land_given_up_write_and_delete, "suspicious", ["preview", "refused", "forced"]),
    (delete, "suspicious", ["preview", "refused", "forced"]),
    (lose_transaction, "unverifiable", ["preview", "refused", "forced"]),
]
MODES = [
    {"confirm": False, "force": False},
    {"confirm": True, "force": False},
    {"confirm": True, "force": True},
]


@pytest.mark.parametrize(
    ("deed", "classification", "action", "mode"),
    [
        (deed, classification, actions[number], mode)
        for deed, classification, actions in CASES
        for number, mode in enumerate(MODES)
    ],
)
def test_drift_is_classified_and_treated(graph, deed, classification, action, mode):
    deed(graph)
    before = graph.commits()[0]
    report = graph.repair(**mode)
    found = stats(report, "node:Person")
    assert (found.classification, found.action) == (classification, action)
    assert stats(report, "edge:Knows").action == "no_op"
    published = action in ("healed", "undone", "forced")
    assert report.refused == (action == "refused")
    assert (report.graph_manifest_version is not None) == published
    if published:
        actor = "omnigraph:repair:force" if action == "forced" else "omnigraph:repair"
        assert graph.commits()[0].actor_id == actor
        assert stats(graph.repair(), "node:Person").classification == "no_drift"
    else:
        assert graph.commits()[0] == before


def test_a_healed_table_takes_writes_again(graph):
    compact(graph)
    graph.repair(confirm=True)
    add(graph, "dan")
    assert names(graph) == ["ada", "bob", "cyd", "dan"]


def test_a_forced_repair_shows_what_lay_there(graph):
    delete(graph)
    assert names(graph) == ["ada", "bob", "cyd"]
    graph.repair(confirm=True, force=True)
    assert names(graph) == ["bob", "cyd"]
    assert graph.snapshot().entries["node:Person"].entity_count == 2


@pytest.mark.parametrize("force", [False, True])
def test_a_given_up_write_is_undone_and_never_shown(graph, force):
    land_given_up_write(graph)
    graph.repair(confirm=True, force=force)
    assert names(graph) == ["ada", "bob", "cyd"]
    assert graph.snapshot().entries["node:Person"].entity_count == 3
    add(graph, "dan")
    assert names(graph) == ["ada", "bob", "cyd", "dan"]


def test_a_commit_of_the_history_is_no_given_up_write(graph):
    land_given_up_write(graph, graph.commits()[0].graph_commit_id)
    assert stats(graph.repair(), "node:Person").classification == "suspicious"


def test_an_undoing_and_a_healing_are_one_commit(graph):
    graph.load('{"type":"City","data":{"name":"rome"}}', mode="append")
    graph.load('{"type":"City","data":{"name":"oslo"}}', mode="append")
    before = graph.commits()
    land_given_up_write(graph)
    city = graph.snapshot().entries["node:City"].dataset_path
    lance.dataset(f"{graph.uri}/{city}").optimize.compact_files()
    report = graph.repair(confirm=True)
    assert stats(report, "node:Person").action == "undone"
    assert stats(report, "node:City").action == "healed"
    assert graph.commits()[1:] == before


def test_what_happened_is_told(graph):
    compact(graph)
    found = stats(graph.repair(), "node:Person")
    assert found.operations == ("ReserveFragments", "Rewrite")
    assert found.lance_head_version == found.published_dataset_version + 2


def test_force_alone_is_refused(graph):
    with pytest.raises(InputError, match="--force requires --confirm"):
        graph.repair(force=True)


# --- columns, ids and ends ---


def table(graph, key="node:Person", branch="main"):
    entry = graph.snapshot(branch).entries[key]
    return lance.dataset(f"{graph.uri}/{entry.dataset_path}")


def add_column(graph):
    table(graph).add_columns({"zz": "cast(1 as int)"})


def drop_column(graph):
    table(graph).drop_columns(["age"])


def retype_column(graph):
    table(graph).alter_columns({"path": "age", "data_type": pa.int64()})


def rename_column(graph):
    table(graph).alter_columns({"path": "age", "name": "years"})


UNFIT = [
    (add_column, [], ["zz"], []),
    (drop_column, ["age"], [], []),
    (retype_column, [], [], ["age"]),
    (rename_column, ["age"], ["years"], []),
]


@pytest.mark.parametrize(("deed", "missing", "unexpected", "changed"), UNFIT)
def test_columns_that_do_not_fit_are_never_published(graph, deed, missing, unexpected, changed):
    deed(graph)
    before = graph.commits()
    found = stats(graph.repair(), "node:Person")
    assert (found.classification, found.action) == ("suspicious", "preview")
    assert "do not fit" in found.error
    with pytest.raises(UnfitColumnsError) as caught:
        graph.repair(confirm=True, force=True)
    error = caught.value
    assert (error.missing, error.unexpected, error.changed) == (missing, unexpected, changed)
    assert error.type_key == "node:Person"
    assert "--restore" in error.hint
    assert graph.commits() == before
    assert names(graph) == ["ada", "bob", "cyd"]


def append_again(graph):
    rows = table(graph)
    lance.write_dataset(rows.to_table(filter="id = 'bob'"), rows, mode="append")


@pytest.mark.parametrize(
    ("deed", "told"),
    [
        (delete, ["src 'ada' not found in Person", "dst 'ada' not found in Person"]),
        (append_again, ["'bob' appears in several rows"]),
    ],
)
def test_what_force_breaks_is_told_before_and_after(graph, deed, told):
    deed(graph)
    for mode in MODES:
        report = graph.repair(**mode)
        assert report.violations_total == len(told)
        assert all(text in one.message for one, text in zip(report.violations, told, strict=True))
        assert report.to_json()["violations_total"] == len(told)


def test_edges_that_went_with_their_node_break_nothing(graph):
    delete(graph)
    table(graph, "edge:Knows").delete("src = 'ada'")
    report = graph.repair(confirm=True, force=True)
    assert report.violations_total == 0
    assert names(graph) == ["bob", "cyd"]


# --- putting back ---


@pytest.mark.parametrize(
    "deed",
    [case[0] for case in CASES[1:]] + [case[0] for case in UNFIT] + [append_again],
)
def test_a_table_is_put_back_whatever_happened_to_it(graph, deed):
    before = sorted(graph.export())
    deed(graph)
    assert stats(graph.repair(restore=True), "node:Person").action == "preview"
    assert stats(graph.repair(), "node:Person").classification != "no_drift"
    report = graph.repair(confirm=True, restore=True)
    assert stats(report, "node:Person").action in ("restored", "undone")
    assert graph.commits()[0].actor_id == "omnigraph:repair"
    assert stats(graph.repair(), "node:Person").classification == "no_drift"
    assert sorted(graph.export()) == before
    add(graph, "dan")
    with reopened(graph) as fresh:
        assert names(fresh) == ["ada", "bob", "cyd", "dan"]
        assert fresh.optimize().commit is not None
        assert names(fresh) == ["ada", "bob", "cyd", "dan"]


def test_a_table_of_a_branch_is_put_back_on_its_own_line(graph):
    graph.create_branch("side")
    add(graph, "eve", branch="side")
    path = f"{graph.uri}/{graph.snapshot('side').entries['node:Person'].location}"
    line = graph.snapshot("side").entries["node:Person"].branch
    lance.dataset(path).checkout_version((line, None)).delete("id = 'ada'")
    with pytest.raises(ConflictError, match="outside of any commit"):
        add(graph, "fay", branch="side")
    report = graph.repair(confirm=True, restore=True, branch="side")
    assert stats(report, "node:Person").action == "restored"
    add(graph, "fay", branch="side")
    assert names(graph, branch="side") == ["ada", "bob", "cyd", "eve", "fay"]
    assert names(graph) == ["ada", "bob", "cyd"]


def test_forcing_and_putting_back_contradict_each_other(graph):
    with pytest.raises(InputError, match="not both"):
        graph.repair(confirm=True, force=True, restore=True)
