"""`verify` finds whatever is not as commits promised, names it, and changes nothing."""

from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from omnigraph import Graph, OpenMode
from omnigraph.cli.main import entry
from omnigraph.engine.maintain import deep as deeper
from omnigraph.engine.maintain.verify import verify_at
from omnigraph.errors import NotFoundError
from omnigraph.model.graph import Changeset, Lineage
from omnigraph.storage.lance import digests
from omnigraph.storage.lance.versions import DATA_FOOTER_BYTES, ends_well

SCHEMA = """
node Person { name: String @key  age: I32?  mood: enum(good, bad)?  code: I64?  @unique(code) }
node Note { text: String }
edge Knows: Person -> Person { since: Date? }
"""


def line(name, **data):
    return json.dumps({"type": "Person", "data": {"name": name, **data}})


def knows(source, target):
    return json.dumps({"edge": "Knows", "from": source, "to": target})


def make(uri):
    with Graph.init(uri, SCHEMA, maintenance=None) as graph:
        people = [line(f"p{n}", age=n, code=n) for n in range(300)]
        graph.load("\n".join([*people, knows("p1", "p2")]), mode="append")
        graph.load('{"type":"Note","data":{"text":"hello"}}', mode="append")
        graph.create_branch("dev")
        graph.load("\n".join([line("d1"), knows("p3", "d1")]), mode="append", branch="dev")
        graph.mutate('query q() { delete Person where name = "p9" }', branch="dev")
        graph.create_branch("idle", "dev")
        graph.optimize()
        graph.mutate('query q() { update Person set { age: 7 } where name = "p5" }')
    return uri


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make(str(tmp_path_factory.mktemp("verify") / "g.omni"))


@pytest.fixture
def uri(made, tmp_path):
    """The graph, for a test that may damage it."""
    shutil.copytree(made, tmp_path / "aside")
    yield made
    shutil.rmtree(made)
    shutil.copytree(tmp_path / "aside", made)


def data_files(uri):
    return sorted(
        path
        for path in Path(uri).rglob("*.lance")
        if path.is_file() and "/_indices/" not in str(path)
    )


def bytes_of(uri):
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes())
        for path in Path(uri).rglob("*")
        if path.is_file()
    }


def test_a_sound_graph_verifies_and_no_byte_changes(made):
    before = bytes_of(made)
    report = verify_at(made, deep=True)
    assert report.ok
    assert (report.branches, report.files_without_digest) == (3, 0)
    assert report.rows >= 300 * 2
    with Graph.open(made, mode=OpenMode.READ_ONLY) as graph:
        assert graph.verify().ok
    assert bytes_of(made) == before


def test_each_of_60_flipped_bits_in_data_files_is_found_and_named(made):
    chance = random.Random(15)
    files = data_files(made)
    for _ in range(60):
        path = chance.choice(files)
        body = path.read_bytes()
        at, bit = chance.randrange(len(body)), chance.randrange(8)
        path.write_bytes(body[:at] + bytes([body[at] ^ 1 << bit]) + body[at + 1 :])
        try:
            report = verify_at(made)
        finally:
            path.write_bytes(body)
        (problem,) = report.problems
        assert problem.kind == "digest"
        assert problem.part == str(path.relative_to(made))
        assert problem.expected.startswith("sha256 ")
        assert problem.actual != problem.expected
        if not problem.part.startswith("__manifest"):
            assert None not in (problem.type_key, problem.branch, problem.graph_commit_id)
    assert verify_at(made).ok


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda path: path.unlink(), "missing"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "size"),
        (lambda path: path.write_bytes(b""), "size"),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), "size"),
    ],
)
def test_missing_and_cut_files_are_found(made, damage, kind):
    for path in data_files(made):
        body = path.read_bytes()
        damage(path)
        try:
            report = verify_at(made)
        finally:
            path.write_bytes(body)
        assert [(one.kind, one.part) for one in report.problems] == [
            (kind, str(path.relative_to(made)))
        ]


def test_swapped_files_are_found(made):
    chance = random.Random(1)
    for _ in range(10):
        one, two = chance.sample(data_files(made), 2)
        first, second = one.read_bytes(), two.read_bytes()
        one.write_bytes(second)
        two.write_bytes(first)
        try:
            found = {problem.part for problem in verify_at(made).problems}
        finally:
            one.write_bytes(first)
            two.write_bytes(second)
        assert found == {str(path.relative_to(made)) for path in (one, two)}


@pytest.mark.parametrize("part", ["_deletions", "_indices"])
def test_damaged_deletions_and_indexes_are_found(uri, part):
    path = next(path for path in sorted(Path(uri).rglob(f"{part}/**/*")) if path.is_file())
    body = path.read_bytes()
    path.write_bytes(body[:40] + bytes([body[40] ^ 4]) + body[41:])
    assert [one.part for one in verify_at(uri).problems] == [str(path.relative_to(uri))]
    path.unlink()
    assert [one.kind for one in verify_at(uri).problems] == ["missing"]


def test_damaged_version_files_are_found(made):
    for path in sorted(Path(made).rglob("*.manifest")):
        body = path.read_bytes()
        path.write_bytes(body[:-20])
        try:
            found = [one.part for one in verify_at(made).problems]
        finally:
            path.write_bytes(body)
        assert str(path.relative_to(made)) in found


def test_a_missing_version_that_is_published_is_found(uri):
    folder = next(Path(uri, "nodes").iterdir()) / "_versions"
    newest = min(folder.glob("*.manifest"))
    newest.unlink()
    assert "missing" in {one.kind for one in verify_at(uri).problems}


def test_an_unreadable_reference_is_found(uri):
    Path(uri, "_refs/branches/dev.json").write_text("{")
    problems = verify_at(uri).problems
    assert [(one.kind, one.branch) for one in problems] == [("reference", "dev")]


def test_a_graph_without_digests_verifies_the_rest_and_counts_them(tmp_path, monkeypatch):
    monkeypatch.setattr(digests, "as_properties", lambda _digests: {})
    monkeypatch.setattr("omnigraph.storage.manifest.dataset.as_properties", lambda _digests: {})
    monkeypatch.setattr(digests, "note", lambda *_: None)
    uri = make(str(tmp_path / "old.omni"))
    report = verify_at(uri, deep=True)
    assert report.ok
    assert report.files_without_digest == report.files > 0
    # Without a digest the end of a file is looked at: Lance would ask for 34 GB of memory here.
    path = next(path for path in data_files(uri) if "/nodes/" in str(path))
    body = path.read_bytes()
    for at in range(-DATA_FOOTER_BYTES + 8, -8):
        flipped = bytearray(body)
        flipped[at] ^= 0x80
        path.write_bytes(flipped)
        assert [one.kind for one in verify_at(uri, deep=True).problems] == ["damaged"]


def test_the_end_of_every_data_file_fits_together(made):
    for path in Path(made).rglob("*.lance"):
        if path.is_file():
            body = path.read_bytes()
            assert ends_well(body[-DATA_FOOTER_BYTES:], len(body))
            assert not ends_well(body[-DATA_FOOTER_BYTES:], len(body) + 1)


def test_history_that_cleanup_left_is_whole(uri):
    with Graph.open(uri, maintenance=None) as graph:
        for n in range(5):
            graph.mutate(f'query q() {{ insert Person {{ name: "x{n}" }} }}')
        graph.optimize()
        graph.cleanup(keep_versions=2)
    report = verify_at(uri, deep=True)
    assert (report.problems, report.files_without_digest) == ((), 0)


def test_a_graph_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(NotFoundError):
        verify_at(str(tmp_path / "none"))


# --- rows ------------------------------------------------------------------------------------


def smuggled(uri, table_key, change, *, row_count=None):
    """Change a table behind the graph's back and publish it as it is, digests and all."""
    with Graph.open(uri, maintenance=None) as graph:
        core = graph._core
        entry_ = core.head().entries[table_key]
        table = core.store.tables.open(entry_)
        update = core.store.tables.apply(change(table))
        if row_count is not None:
            update = replace(update, row_count=row_count)
        core.store.publisher.publish(
            core.branch("main"),
            Changeset(
                updates=(update,),
                lineage=Lineage(
                    commit_id=core.world.ids.ulid(),
                    actor_id=None,
                    created_at=core.world.clock.now_us(),
                ),
            ),
        )


def changed(table, one, **values):
    rows = table.read(where=f"id = '{one}'")
    return pa.Table.from_pylist([{**rows.to_pylist()[0], **values}], schema=rows.schema)


@pytest.mark.parametrize(
    ("table_key", "change", "kind"),
    [
        ("node:Person", lambda t: t.stage_append(changed(t, "p3", code=None)), "duplicate-id"),
        ("node:Person", lambda t: t.stage_change(changed(t, "p3", name="other")), "key"),
        ("node:Person", lambda t: t.stage_change(changed(t, "p3", mood="odd")), "value"),
        ("node:Person", lambda t: t.stage_change(changed(t, "p3", code=4)), "value"),
        ("node:Person", lambda t: t.stage_delete_ids(["p1"]), "missing-end"),
    ],
)
@pytest.mark.parametrize("pass_rows", [2_000_000, 64])
def test_deep_finds_rows_that_break_what_the_schema_promises(
    uri, table_key, change, kind, pass_rows, monkeypatch
):
    monkeypatch.setattr(deeper, "VERIFY_PASS_ROWS_MAX", pass_rows)
    smuggled(uri, table_key, change)
    assert verify_at(uri).ok
    problems = verify_at(uri, deep=True).problems
    assert {one.kind for one in problems} == {kind}
    assert all(one.type_key and one.branch and one.graph_commit_id for one in problems)


def test_a_number_of_rows_that_is_not_the_published_one_is_found(uri):
    smuggled(uri, "node:Person", lambda t: t.stage_delete_ids(["p7"]), row_count=300)
    (problem,) = verify_at(uri).problems
    assert (problem.kind, problem.type_key) == ("row-count", "node:Person")
    assert (problem.expected, problem.actual) == ("300 rows", "299 rows")


def test_a_copy_says_once_for_each_line_that_it_was_moved(made, tmp_path):
    shutil.copytree(made, tmp_path / "copy")
    problems = verify_at(str(tmp_path / "copy")).problems
    assert {one.kind for one in problems} == {"moved"}
    lines = [os.path.dirname(one.part) for one in problems]
    assert len(lines) == len(set(lines)) > 1


# --- command ---------------------------------------------------------------------------------


def test_the_command_tells_and_exits_with_1(uri, capsys):
    assert entry(["verify", uri, "--deep"]) == 0
    assert "all is well" in capsys.readouterr().out
    path = data_files(uri)[-1]
    os.truncate(path, 10)
    assert entry(["verify", uri, "--json"]) == 1
    body = json.loads(capsys.readouterr().out)
    assert body["ok"] is False
    assert body["problems"][0]["part"] == str(path.relative_to(uri))


@pytest.mark.s3
def test_a_graph_on_an_object_store_verifies_without_digests(s3_root, monkeypatch):
    for name, value in s3_root.environ.items():
        monkeypatch.setenv(name, value)
    make(s3_root.uri)
    report = verify_at(s3_root.uri, deep=True)
    assert report.ok
    assert report.files_without_digest == report.files
