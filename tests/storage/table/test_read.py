"""The difference between two versions is exact and costs what changed."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_bench import PLACE, WIDE, Bench, compacted, delete_where, people

from omnigraph.storage.lance.files import deleted_offsets
from omnigraph.storage.table import pinned, read


@pytest.fixture
def bench(local_root):
    return Bench(local_root)


def changes(newer, older):
    """The difference, which is the same whether rows that were just written are remembered or not,
    and whether few changed rows are read at once or not."""
    found = newer.changes_since(older)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pinned.Narrowing, "rows", lambda *_: None)
        read_back = newer.changes_since(older)
        patch.setattr(read, "FEW_ROWS_MAX", -1)
        again = newer.changes_since(older)
    for other in (read_back, again):
        assert found.inserted.sort_by("id").equals(other.inserted.sort_by("id"))
        assert found.inserted.schema == other.inserted.schema
        assert found.updated.sort_by("id") == other.updated.sort_by("id")
        assert found.deleted_row_ids == other.deleted_row_ids
    return found


def delta(bench, since):
    """(inserted, updated, deleted) as ids."""
    older = bench.now(since)
    found = changes(bench.now(), older)
    gone = older.take(found.deleted_row_ids, ["id"])
    return (
        sorted(found.inserted["id"].to_pylist()),
        sorted(found.updated["id"].to_pylist()),
        sorted(gone["id"].to_pylist()),
    )


def compact(bench):
    bench.land(compacted(bench.now()))


def test_each_kind_of_change_is_told(bench):
    bench.append("a", "b", "c", "d")
    since = bench.version
    bench.append("e")
    bench.land(bench.now().stage_change(people("b", "f", age=2)))
    bench.land(bench.now().stage_delete_ids(["c"]))
    assert delta(bench, since) == (["e", "f"], ["b"], ["c"])


def test_rows_that_this_process_wrote_are_not_read_back(local_root):
    bench = Bench(local_root, schema=WIDE)
    spots = pa.array([[0.5, -0.0, float("inf"), 3.0], None], WIDE.field("spot").type)
    bench.land(bench.now().stage_append(people("a", "b").append_column(WIDE.field("spot"), spots)))
    since = bench.now()
    new = people("c", "d").append_column(WIDE.field("spot"), spots)
    bench.land(bench.now().stage_append(new))
    before = bench.tables.meter.total.scans
    found = bench.now().changes_since(since)
    assert bench.tables.meter.total.scans == before
    assert found.inserted.select(WIDE.names).equals(new)
    assert found.inserted["_rowid"].to_pylist() == [2, 3]
    assert changes(bench.now(), since).updated.num_rows == 0


def test_nothing_changed_is_an_empty_difference(bench):
    bench.append("a")
    assert bench.now().changes_since(bench.now()).is_empty


def test_a_row_that_came_and_went_is_no_change(bench):
    bench.append("a")
    since = bench.version
    bench.append("b")
    bench.land(bench.now().stage_delete_ids(["b"]))
    assert delta(bench, since) == ([], [], [])


def test_compaction_is_no_change(bench):
    bench.append("a", "b")
    bench.append("c", "d")
    bench.land(bench.now().stage_delete_ids(["d"]))
    since = bench.version
    compact(bench)
    assert delta(bench, since) == ([], [], [])
    bench.land(bench.now().stage_change(people("a", "e", age=3)))
    compact(bench)
    assert delta(bench, since) == (["e"], ["a"], [])


def test_a_restored_table_does_not_differ_from_what_it_was_restored_to(bench):
    bench.append("a", "b")
    since = bench.version
    bench.land(bench.now().stage_change(people("a", age=5)))
    bench.version = bench.tables.restore(PLACE, None, since, commit_id="01BACK")
    assert delta(bench, since) == ([], [], [])


@pytest.mark.parametrize("backwards", [False, True])
def test_what_a_restore_took_back_differs_from_what_it_was(bench, backwards):
    bench.append("a", "b")
    before = bench.version
    bench.land(bench.now().stage_change(people("a", age=5)))
    undone = bench.now()
    bench.version = bench.tables.restore(PLACE, None, before, commit_id="01BACK")
    pair = (undone, bench.now()) if backwards else (bench.now(), undone)
    shared = bench.tables.shared(undone.entry, bench.entry())
    assert shared == undone.version
    assert [ids for ids, _ in differing(*pair, shared)] == ["a"]


def differing(newer, older, shared):
    """The entities that may differ, with which of the two versions has them."""
    names = {"columns": ["id"], "older_columns": ["id"]}
    mine, theirs = (
        rows["id"].to_pylist() for rows in newer.differing_rows(older, shared=shared, **names)
    )
    every = sorted({*mine, *theirs})
    return [(one, (one in mine, one in theirs)) for one in every]


@pytest.mark.parametrize("folded", ["neither", "main", "branch", "both"])
def test_lines_that_went_apart_differ_in_what_either_changed(bench, folded):
    for number in range(40):
        bench.append(f"r{number:02}", f"s{number:02}")
    base = bench.version
    bench.tables.fork(PLACE, source_branch=None, version=base, branch_id="01BRANCH")
    bench.land(bench.now().stage_change(people("r01", "new", age=2)))
    bench.land(bench.now().stage_delete_ids(["r02"]))
    if folded in ("main", "both"):
        compact(bench)
    main = bench.now()
    bench.branch, bench.version = "01BRANCH", base
    bench.land(bench.now().stage_change(people("r01", "r03", age=3)))
    bench.append("new", "mine")
    bench.land(bench.now().stage_delete_ids(["s39"]))
    if folded in ("branch", "both"):
        compact(bench)
    assert bench.tables.shared(main.entry, bench.entry()) == base
    assert differing(bench.now(), main, base) == [
        ("mine", (True, False)),
        ("new", (True, True)),
        ("r01", (True, True)),
        ("r02", (True, False)),
        ("r03", (True, True)),
        ("s39", (False, True)),
    ]


def test_folding_many_small_commits_tells_old_changes_less_finely_and_never_misses_one(bench):
    bench.append("a", "b")
    since = bench.version
    for number in range(60):
        bench.land(bench.now().stage_change(people(f"n{number:02}", age=number)))
    compact(bench)
    told = {since: 60, since + 20: 40, since + 50: 10, since + 60: 0}
    for version, changed in told.items():
        older = bench.now(version)
        named = dict(differing(bench.now(), older, version))
        truly = {f"n{number:02}" for number in range(60 - changed, 60)}
        assert truly <= named.keys()
        assert len(named) <= 1.25 * changed
        inserted = bench.now().changes_since(older).inserted["id"].to_pylist()
        assert sorted(inserted) == sorted(truly)


def test_overwriting_deletes_all_and_inserts_all(bench):
    bench.append("a", "b")
    since = bench.version
    bench.land(bench.now().stage_overwrite(people("b", "c")))
    assert delta(bench, since) == (["b", "c"], [], ["a", "b"])


def test_a_fork_is_compared_with_the_line_it_came_from(bench):
    bench.append("a", "b", "c")
    base = bench.now()
    bench.tables.fork(PLACE, source_branch=None, version=bench.version, branch_id="01BRANCH")
    bench.append("main-only")
    bench.branch, bench.version = "01BRANCH", base.version
    bench.land(bench.now().stage_delete_ids(["b"]))
    bench.land(bench.now().stage_change(people("a", "x", age=2)))
    found = changes(bench.now(), base)
    assert found.inserted["id"].to_pylist() == ["x"]
    assert found.updated["id"].to_pylist() == ["a"]
    assert base.take(found.deleted_row_ids, ["id"])["id"].to_pylist() == ["b"]


def test_many_deletions_are_told_as_well_as_few(bench):
    names = [f"p{n:05}" for n in range(4000)]
    bench.append(*names)
    since = bench.version
    bench.land(delete_where(bench.now(), "id < 'p02000'"))
    assert delta(bench, since) == ([], [], names[:2000])
    since = bench.version
    bench.land(bench.now().stage_delete_ids(["p03000"]))
    assert delta(bench, since) == ([], [], ["p03000"])


@pytest.mark.parametrize("kept", ["id LIKE '%7'", "id < 'p60000'", "id LIKE '%0000'"])
def test_a_small_difference_after_many_deletions_reads_little(bench, kept):
    names = [f"p{n:05}" for n in range(70_000)]
    bench.append(*names)
    bench.land(delete_where(bench.now(), f"NOT ({kept}) AND id != 'p00003'"))
    since = bench.version
    bench.land(bench.now().stage_delete_ids(["p00003"]))
    before = bench.tables.meter.total.rows
    assert delta(bench, since) == ([], [], ["p00003"])
    assert bench.tables.meter.total.rows - before < 100


@given(
    gone=st.one_of(
        st.sets(st.integers(0, 199_999), max_size=50),
        st.builds(
            lambda start, size: set(range(start, start + size)),
            st.integers(0, 150_000),
            st.integers(0, 50_000),
        ),
        st.builds(lambda step: set(range(0, 200_000, step)), st.integers(2, 40)),
    )
)
@settings(max_examples=25)
def test_deletion_files_name_exactly_the_deleted_rows(big, gone):
    fragment = big.get_fragment(0)
    left = fragment.delete_rows(sorted(gone)) if gone else fragment.metadata
    if left.deletion_file is None:
        assert not gone
        return
    body = Path(f"{big.uri}/{left.deletion_file.path(0)}").read_bytes()
    assert set(deleted_offsets(left.deletion_file.file_type, body)) == gone


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    uri = str(tmp_path_factory.mktemp("big") / "table")
    return lance.write_dataset(pa.table({"n": range(200_000)}), uri)


def test_a_small_difference_of_a_big_table_reads_little(bench):
    for part in range(4):
        bench.append(*(f"p{part}-{n}" for n in range(5000)))
    since = bench.version
    bench.land(bench.now().stage_change(people("p1-7", "new", age=2)))
    meter = bench.tables.meter
    before = meter.total.rows
    assert delta(bench, since) == (["new"], ["p1-7"], [])
    assert meter.total.rows - before < 100


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "upsert", "delete", "overwrite", "compact"]),
        st.sets(st.integers(0, 9), min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=6,
)


@given(before=STEPS, after=STEPS)
def test_applying_the_difference_to_the_old_rows_gives_the_new_rows(
    tmp_path_factory, before, after
):
    class Here:
        uri, environ = str(tmp_path_factory.mktemp("delta") / "g"), {}

    bench = Bench(Here)
    model = walk(bench, before, {}, age=1)
    since = bench.version
    model = walk(bench, after, model, age=2)
    assert {row["id"]: row["age"] for row in bench.rows()} == model
    older = bench.now(since)
    found = changes(bench.now(), older)
    rows = {row["_rowid"]: row for row in older.read(with_row_id=True).to_pylist()}
    for gone in found.deleted_row_ids.to_pylist():
        del rows[gone]
    for row in found.updated.to_pylist():
        assert row["_rowid"] in rows
        rows[row["_rowid"]] = row
    for row in found.inserted.to_pylist():
        assert row["_rowid"] not in rows
        rows[row["_rowid"]] = row
    newer = {row["_rowid"]: row for row in bench.now().read(with_row_id=True).to_pylist()}
    assert rows == newer


def walk(bench, steps, model, *, age):
    """Carry the steps out on the table and on a dictionary, which is returned."""
    model = dict(model)
    for number, (kind, numbers) in enumerate(steps):
        ids = [f"n{one}" for one in sorted(numbers)]
        value = age * 100 + number
        table = bench.now()
        match kind:
            case "append":
                fresh = [one for one in ids if one not in model]
                write = table.stage_append(people(*fresh, age=value))
                model |= dict.fromkeys(fresh, value)
            case "upsert":
                write = table.stage_change(people(*ids, age=value))
                model |= dict.fromkeys(ids, value)
            case "delete":
                write = table.stage_delete_ids(ids)
                model = {one: known for one, known in model.items() if one not in ids}
            case "overwrite":
                write = table.stage_overwrite(people(*ids, age=value))
                model = dict.fromkeys(ids, value)
            case _:
                write = compacted(table)
        if write is not None:
            bench.land(write)
    return model
