"""Facts about pylance that no documentation promises and that we rely on.

When a new release behaves otherwise, one of these fails; `lance/pylance.py` says what we know.
"""

from __future__ import annotations

import json
import math
from importlib.metadata import version as release_of
from pathlib import Path
from uuid import uuid4

import lance
import pyarrow as pa
import pytest
from lance import LanceOperation as Op
from lance.commit import CommitConflictError
from lance.dataset import Transaction
from lance.fragment import write_fragments
from lance.optimize import Compaction

from omnigraph.storage.lance import pylance
from omnigraph.storage.lance.files import deleted_offsets, fragment_keys, version_file
from omnigraph.storage.lance.stamps import Run, decode, encode

ROWS = pa.table({"id": ["a", "b", "c"], "x": [1.0, math.nan, -0.0]})


@pytest.fixture
def uri(tmp_path):
    place = str(tmp_path / "t")
    pylance.commit_first(place, pylance.drafted(place, ROWS, {}, file_version="2.2"), {})
    return place


def appending(dataset, rows=ROWS):
    made = list(write_fragments(rows, dataset))
    return Transaction(dataset.version, Op.Append(made), str(uuid4()), {})


def guarded(dataset, rows=ROWS):
    """As `table/stage.py` makes it: an append that claims to change a fragment."""
    return Transaction(
        dataset.version,
        Op.Update(
            updated_fragments=[dataset.get_fragments()[0].metadata],
            new_fragments=list(write_fragments(rows, dataset)),
            update_mode="rewrite_rows",
        ),
        str(uuid4()),
        {},
    )


def overwriting(dataset, rows=ROWS):
    made = list(write_fragments(rows, dataset, mode="overwrite"))
    return Transaction(dataset.version, Op.Overwrite(rows.schema, made), str(uuid4()), {})


def test_the_release_is_the_one_that_was_looked_at():
    assert release_of("pylance").startswith("14.0.")


# --- files ---


def test_files_are_called_what_we_look_for(uri):
    dataset = pylance.opened(uri, {})
    write = guarded(dataset)
    pylance.commit(dataset, write)
    versions = {path.name for path in Path(uri, "_versions").iterdir()}
    assert {version_file(1), version_file(2)} <= versions
    assert versions - {version_file(1), version_file(2)} <= {"latest_version_hint.json"}
    assert Path(uri, "_transactions", f"1-{write.uuid}.txn").exists()


def test_a_branch_has_a_reference_that_tells_where_it_came_from(uri):
    pylance.opened(uri, {}).create_branch("x.y")
    told = json.loads(Path(uri, "_refs/branches/x.y.json").read_bytes())
    assert (told["parentBranch"], told["parentVersion"]) == (None, 1)
    assert told["createAt"] > 1_700_000_000
    assert Path(uri, "tree/x.y/_versions", version_file(1)).exists()


def test_a_version_file_of_zeros_is_opened_as_version_0(uri):
    Path(uri, "_versions", version_file(2)).write_bytes(bytes(4096))
    assert pylance.opened(uri, {}).version == 0


@pytest.mark.parametrize(("gone", "kind"), [(1, "array"), (15_000, "bitmap")])
def test_few_deletions_are_an_array_and_many_a_bitmap(tmp_path, gone, kind):
    place = str(tmp_path / "t")
    rows = pa.table({"n": range(20_000)})
    dataset = pylance.commit_first(place, pylance.drafted(place, rows, {}), {})
    left = dataset.get_fragments()[0].delete_rows(list(range(gone)))
    assert left.deletion_file.file_type == kind
    body = Path(place, left.deletion_file.path(left.id)).read_bytes()
    assert list(deleted_offsets(kind, body)) == list(range(gone))


# --- committing ---


def test_an_append_is_moved_and_a_guarded_one_is_not(uri):
    stale = pylance.opened(uri, {})
    pylance.commit(stale, guarded(stale))
    assert pylance.commit(stale, appending(stale)).version == 3
    with pytest.raises(CommitConflictError) as caught:
        pylance.commit(stale, guarded(stale))
    assert pylance.is_conflict(caught.value)
    assert isinstance(caught.value, OSError)


def test_an_overwrite_is_never_moved_and_a_restore_always(uri):
    stale = pylance.opened(uri, {})
    pylance.commit(stale, appending(stale))
    with pytest.raises(CommitConflictError):
        pylance.commit(stale, overwriting(stale))
    assert pylance.commit(stale, Transaction(1, Op.Restore(1), str(uuid4()), {})).version == 3


def test_of_two_that_make_a_dataset_one_is_refused(tmp_path):
    place = str(tmp_path / "t")
    drafts = [pylance.drafted(place, ROWS, {}) for _ in range(2)]
    pylance.commit_first(place, drafts[0], {})
    with pytest.raises(OSError, match=r".") as caught:
        pylance.commit_first(place, drafts[1], {})
    assert pylance.is_taken(caught.value)


def compacted(dataset):
    tasks = Compaction.plan(dataset, {"target_rows_per_fragment": 1000}).tasks
    return [task.execute(dataset) for task in tasks]


def test_a_compaction_takes_two_versions_and_one_with_indexes_hides_its_transaction(uri):
    dataset = pylance.opened(uri, {})
    dataset = pylance.commit(dataset, guarded(dataset))
    Compaction.commit(dataset, compacted(dataset), {})
    newest = pylance.opened(uri, {})
    assert newest.version == 4
    assert [pylance.transaction(newest, at).operation for at in (3, 4)] == [
        "ReserveFragments",
        "Rewrite",
    ]
    newest.create_scalar_index("id", "BTREE")
    newest = pylance.commit(newest, guarded(newest))
    newest.optimize.optimize_indices()
    Compaction.commit(newest, compacted(newest), {})
    last = pylance.opened(uri, {})
    hidden = [pylance.transaction(last, at) for at in range(1, last.version + 1)]
    assert [one.uuid for one in hidden if one.operation == "Rewrite"][-1] is None


def test_a_compaction_that_lost_says_conflict_in_words_alone(uri):
    dataset = pylance.opened(uri, {})
    dataset = pylance.commit(dataset, guarded(dataset))
    results = compacted(dataset)
    pylance.commit(dataset, overwriting(dataset))
    with pytest.raises(OSError, match=r".") as caught:
        Compaction.commit(dataset, results, {})
    assert not isinstance(caught.value, CommitConflictError)
    assert pylance.is_conflict(caught.value)


# --- what errors say ---


def test_what_is_not_there_is_told_as_missing(uri, tmp_path):
    for ask in (
        lambda: pylance.opened(str(tmp_path / "none"), {}),
        lambda: pylance.opened(uri, {}, version=7),
        lambda: pylance.opened(f"{uri}/tree/none", {}),
    ):
        with pytest.raises(ValueError, match=r".") as caught:
            ask()
        assert pylance.is_missing(caught.value)
        assert not pylance.is_damage(caught.value)


def test_a_data_file_that_is_gone_is_missing_and_a_cut_one_is_damage(uri):
    (file,) = Path(uri, "data").iterdir()
    body = file.read_bytes()
    file.write_bytes(body[: len(body) // 2])
    with pytest.raises(pylance.FOREIGN) as caught:
        pylance.opened(uri, {}).to_table()
    assert pylance.is_damaged_read(caught.value)
    file.unlink()
    with pytest.raises(pylance.FOREIGN) as caught:
        pylance.opened(uri, {}).to_table()
    assert pylance.is_missing(caught.value)


def test_a_question_that_makes_no_sense_is_not_damage(uri):
    for where in ("no_such_column = 1", "id +", "CAST('x' AS BIGINT) = 1"):
        with pytest.raises(pylance.FOREIGN) as caught:
            pylance.opened(uri, {}).to_table(filter=where)
        assert not pylance.is_damaged_read(caught.value)
        assert not pylance.is_missing(caught.value)


def test_a_branch_that_is_there_and_a_half_made_one_are_told_alike(uri):
    dataset = pylance.opened(uri, {})
    dataset.create_branch("b")
    with pytest.raises(OSError, match=r".") as there:
        dataset.create_branch("b")
    Path(uri, "_refs/branches/b.json").unlink()
    with pytest.raises(OSError, match=r".") as half:
        dataset.create_branch("b")
    assert pylance.reason_of(there.value) == pylance.reason_of(half.value)


# --- filters ---


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ('id = "a"', ["a"]),  # double quotes are text
        ("x > 1e300", ["b"]),  # NaN is above all numbers
        ("isnan(x)", ["b"]),
        ("x = 0.0", ["c"]),  # -0.0 is 0.0
        ("x IN (0.0)", ["c"]),
    ],
)
def test_filters_read_literals_as_we_write_them(uri, where, ids):
    assert pylance.opened(uri, {}).to_table(filter=where)["id"].to_pylist() == ids


# --- private attributes ---


def test_rows_are_taken_by_row_id_in_the_order_asked_for(uri):
    dataset = pylance.opened(uri, {})
    found = pylance.take_rows(dataset, pa.array([2, 99, 0], pa.uint64()), ["id"])
    assert found["id"].to_pylist() == ["c", "a"]


def test_the_files_of_a_fragment_are_known_without_their_slow_property(uri):
    dataset = pylance.opened(uri, {})
    fragment = dataset.get_fragments()[0].metadata
    assert pylance.file_names(fragment) == tuple(file.path for file in fragment.files)
    key = fragment_keys(dataset)[fragment.id]
    assert key.files == pylance.file_names(fragment)
    assert key.deletions is None
    assert lance.__version__ == release_of("pylance")


def test_two_versions_tell_which_fragments_they_do_not_share(uri):
    first = pylance.opened(uri, {})
    assert pylance.fragments_apart(first, first) == ([], [])
    second = pylance.commit(first, appending(first))
    assert pylance.fragments_apart(second, first) == ([1], [])
    third = pylance.opened(uri, {})
    third.delete("_rowaddr = 0")
    assert pylance.fragments_apart(third, second) == ([0], [0])
    assert pylance.fragments_apart(third, first) == ([0, 1], [0])
    third.optimize.compact_files(materialize_deletions_threshold=0.0)
    last = pylance.opened(uri, {})
    assert pylance.fragments_apart(last, second) == (list(last.fragment_ids()), [0, 1])


def test_a_version_whose_form_is_unknown_shares_no_fragment(uri, monkeypatch):
    dataset = pylance.opened(uri, {})
    for unknown in (lambda _: iter(()), lambda _: iter([(2, 7)]), lambda _: [][0]):
        monkeypatch.setattr(pylance, "fields", unknown)
        assert pylance.fragments_apart(dataset, dataset) == ([0], [0])


def test_a_version_tells_how_many_row_ids_were_ever_given_out(uri):
    dataset = pylance.opened(uri, {})
    assert pylance.row_ids_given(dataset) == 3
    dataset.delete("id = 'a'")
    assert (dataset.count_rows(), pylance.row_ids_given(dataset)) == (2, 3)
    dataset = pylance.commit(dataset, appending(dataset))
    assert pylance.row_ids_given(dataset) == 6
    dataset.optimize.compact_files()
    assert (dataset.count_rows(), pylance.row_ids_given(pylance.opened(uri, {}))) == (5, 6)


def test_stamps_are_noted_as_runs_and_what_we_write_is_read(uri):
    dataset = pylance.commit(opened := pylance.opened(uri, {}), appending(opened))
    result = json.loads(compacted(dataset)[0].json())
    note = bytes(result["new_fragments"][0]["last_updated_at_version_meta"]["inline"])
    assert decode(note) == [Run(rows=3, version=1), Run(rows=3, version=2)]
    assert encode(decode(note)) == note


def test_the_files_that_versions_name_are_listed_and_those_that_are_there(uri):
    dataset = pylance.opened(uri, {})
    dataset.create_branch("b")
    branch = pylance.opened(f"{uri}/tree/b", {})
    branch.delete("id = 'a'")
    tracked = branch.tracked_files().read_all().to_pylist()
    own = {row["path"] for row in tracked if row["base_uri"] == f"{uri}/tree/b"}
    there = {row["path"] for row in branch.all_files().read_all().to_pylist()}
    assert there - own == {"_versions/latest_version_hint.json"}
    assert {row["base_uri"] for row in tracked if row["type"] == "data file"} == {uri}
