"""Indexes, compaction and column changes: staged, strict, and never in the way of right answers."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from ground_bench import PLACE, SMALL, Bench, people

from omnigraph.errors import ConflictError, ExpectedVersionMismatchError, NotFoundError
from omnigraph.model.limits import INDEX_SEGMENTS_MAX
from omnigraph.storage import landing
from omnigraph.storage.evolution import AddedColumn, ColumnChanges
from omnigraph.storage.indexes import IndexSpec

BY_ID = IndexSpec(name="id_idx", column="id", kind="btree")
BY_TEXT = IndexSpec(
    name="bio_idx", column="bio", kind="inverted", parameters={"with_position": True}
)
WIDE = SMALL.append(pa.field("spot", pa.list_(pa.float32(), 4)))


@pytest.fixture
def bench(local_root):
    return Bench(local_root)


def index(bench, *specs):
    done = bench.now().stage_index(specs)
    if done.write is not None:
        bench.land(done.write)
    return done


def compacted(table, **options):
    results = [table.run_compaction_task(task) for task in table.compaction_tasks(**options)]
    return table.stage_compaction(results)


def agree(bench, ids):
    """A lookup through the index finds what a scan finds."""
    everything = bench.now().read(columns=["id"])["id"].to_pylist()
    for one in ids:
        found = bench.now().read(columns=["id"], where=f"id = '{one}'")["id"].to_pylist()
        assert found == [known for known in everything if known == one]


# --- indexes ---


def test_several_indexes_land_as_one_version(bench):
    bench.append("a", "b")
    before = bench.version
    done = index(bench, BY_ID, BY_TEXT)
    assert done.built == ("id_idx", "bio_idx")
    assert bench.version == before + 1
    assert [(i.name, i.rows_indexed, i.rows_unindexed) for i in bench.now().indexes()] == [
        ("bio_idx", 2, 0),
        ("id_idx", 2, 0),
    ]


def test_an_index_that_covers_all_is_not_built_again(bench):
    bench.append("a", "b")
    index(bench, BY_ID)
    done = bench.now().stage_index([BY_ID])
    assert (done.write, done.built, done.pending) == (None, (), ())


def test_an_empty_table_gets_no_index(bench):
    assert bench.now().stage_index([BY_ID]).write is None


def test_new_rows_get_a_segment_of_their_own(bench):
    bench.append(*(f"p{n}" for n in range(100)))
    index(bench, BY_ID)
    bench.append("q1", "q2")
    assert bench.now().indexes()[0].rows_unindexed == 2
    index(bench, BY_ID)
    (found,) = bench.now().indexes()
    assert (found.segments, found.rows_indexed, found.rows_unindexed) == (2, 102, 0)
    agree(bench, ["p5", "q2", "nobody"])


def test_segments_do_not_pile_up(bench):
    bench.append(*(f"p{n}" for n in range(200)))
    index(bench, BY_ID)
    for n in range(INDEX_SEGMENTS_MAX + 2):
        bench.append(f"q{n}")
        index(bench, BY_ID)
    (found,) = bench.now().indexes()
    assert found.segments <= INDEX_SEGMENTS_MAX
    assert found.rows_unindexed == 0
    agree(bench, ["p5", "q0", "q7"])


def test_a_table_that_doubled_gets_its_index_anew(bench):
    bench.append("a", "b")
    index(bench, BY_ID)
    bench.append("c", "d")
    index(bench, BY_ID)
    assert bench.now().indexes()[0].segments == 1
    agree(bench, ["a", "d"])


def test_indexed_tables_answer_right_after_every_kind_of_write(bench):
    bench.append(*(f"p{n}" for n in range(50)))
    index(bench, BY_ID, BY_TEXT)
    bench.land(bench.now().stage_upsert(people("p3", "new", age=9)))
    bench.land(bench.now().stage_delete_ids(["p4", "p5"]))
    bench.append("later")
    agree(bench, ["p3", "p4", "new", "later", "p49"])
    assert bench.now().read(where="id = 'p3'")["age"].to_pylist() == [9]
    bench.land(compacted(bench.now()))
    agree(bench, ["p3", "p4", "new", "later", "p49"])
    index(bench, BY_ID)
    agree(bench, ["p3", "p4", "new", "later", "p49"])
    bench.land(bench.now().stage_overwrite(people("p3")))
    agree(bench, ["p3", "p4"])


def test_an_index_on_no_vectors_is_pending_with_its_reason(local_root):
    bench = Bench(local_root, schema=WIDE)
    rows = people("a").append_column(WIDE.field("spot"), pa.array([None], WIDE.field("spot").type))
    bench.land(bench.now().stage_append(rows))
    near = IndexSpec(name="spot_idx", column="spot", kind="vector")
    done = index(bench, near, BY_ID)
    assert done.built == ("id_idx",)
    assert [(one.name, one.reason) for one in done.pending] == [
        ("spot_idx", "no row has a vector yet")
    ]


def test_a_dropped_index_is_gone(bench):
    bench.append("a")
    index(bench, BY_ID, BY_TEXT)
    bench.land(bench.now().stage_drop_index(["id_idx"]))
    assert [one.name for one in bench.now().indexes()] == ["bio_idx"]
    assert bench.now().stage_drop_index(["id_idx"]) is None


@pytest.mark.parametrize("kind", ["index", "compaction", "schema"])
def test_maintenance_of_a_table_that_moved_is_refused(bench, kind):
    bench.append("a")
    bench.append("b")
    table = bench.now()
    match kind:
        case "index":
            write = table.stage_index([BY_ID]).write
        case "compaction":
            write = compacted(table)
        case _:
            write = table.stage_schema(ColumnChanges(dropped=["bio"]))
    bench.append("c")
    with pytest.raises(ExpectedVersionMismatchError):
        bench.tables.apply(write)
    assert bench.tables.head_version(PLACE, None) == bench.version
    assert bench.ids() == ["a", "b", "c"]


# --- compaction ---


def test_compaction_leaves_few_fragments_and_the_same_rows(bench):
    for n in range(6):
        bench.append(f"p{n}", f"q{n}")
    index(bench, BY_ID)
    bench.land(bench.now().stage_delete_ids(["p0"]))
    ids = bench.now().read(columns=["id"], with_row_id=True).sort_by("id").to_pydict()
    write = compacted(bench.now())
    assert bench.land(write).version == write.version_after == write.pinned_version + 2
    assert len(bench.now().fragment_ids) == 1
    assert bench.now().read(columns=["id"], with_row_id=True).sort_by("id").to_pydict() == ids
    assert bench.now().indexes()[0].rows_unindexed == 0
    agree(bench, ["p0", "p3"])


def test_a_compact_table_has_no_tasks(bench):
    bench.append("a", "b")
    assert bench.now().compaction_tasks() == ()
    assert bench.now().stage_compaction([]) is None


def upkeep(table, *specs):
    plan = table.plan_upkeep(specs)
    return table.finish_upkeep(plan, [table.run_upkeep_task(task) for task in plan.tasks])


@pytest.mark.parametrize("indexed", [True, False])
def test_fragments_fold_with_and_without_the_first_index_of_the_table(bench, indexed):
    for one in "abcd":
        bench.append(one)
    work = upkeep(bench.now(), BY_ID)
    assert work.segments, "planned together with the index"
    # Without it, as if another writer had left no fragment as the index knows it.
    staged = bench.now().stage_upkeep(work if indexed else replace(work, segments=()))
    bench.land(staged.write)
    assert len(bench.now().fragment_ids) == 1
    assert [one.name for one in bench.now().indexes()] == (["id_idx"] if indexed else [])
    agree(bench, "abcdx")
    bench.append("e")
    assert bench.ids() == list("abcde")


def test_an_index_holds_although_fragments_went_while_it_was_built(bench):
    by_age = IndexSpec(name="age_idx", column="age", kind="btree")
    for one in "abcd":
        bench.append(one)
    work = upkeep(bench.now(), BY_ID, by_age)
    bench.land(bench.now().stage_upsert(people("b", age=7)))
    bench.land(bench.now().stage_delete_ids(["c"]))
    bench.land(bench.now().stage_upkeep(work).write)
    assert [one.name for one in bench.now().indexes()] == ["age_idx", "id_idx"]
    agree(bench, "abcd")
    for age, ids in ((1, ["a", "d"]), (7, ["b"])):
        found = bench.now().read(columns=["id"], where=f"age = {age}")["id"].to_pylist()
        assert sorted(found) == ids
    bench.land(bench.now().stage_upkeep(upkeep(bench.now(), BY_ID, by_age)).write)
    assert len(bench.now().fragment_ids) == 1
    agree(bench, "abcd")


def test_an_index_none_of_whose_fragments_is_left_is_not_shown(bench):
    bench.append("a")
    work = upkeep(bench.now(), BY_ID)
    bench.land(bench.now().stage_overwrite(people("b")))
    assert bench.now().stage_upkeep(work) is None


@pytest.mark.parametrize("words", ["Not supported: by this build", "Invalid user input: no"])
@pytest.mark.parametrize("kind", [OSError, ValueError])
def test_what_the_library_refuses_is_a_definite_no(bench, monkeypatch, words, kind):
    def refuse(*_, **__):
        raise kind(words)

    bench.append("a")
    bench.append("b")
    folding, appending = compacted(bench.now()), bench.now().stage_append(people("c"))
    monkeypatch.setattr(landing.Compaction, "commit", refuse)
    monkeypatch.setattr(landing.lance.LanceDataset, "commit", refuse)
    for write in (folding, appending):
        with pytest.raises(ConflictError, match="node:Person"):
            bench.land(write)


def test_writes_go_on_after_a_compaction(bench):
    bench.append("a")
    bench.append("b")
    bench.land(compacted(bench.now()))
    bench.land(bench.now().stage_upsert(people("a", "c", age=4)))
    assert bench.ids() == ["a", "b", "c"]
    operations = bench.tables.transactions(PLACE, None, after=0, upto=bench.version)
    assert [one.operation for one in operations] == [
        "Overwrite",
        "Overwrite",
        "Update",
        "ReserveFragments",
        "Rewrite",
        "Update",
    ]


# --- columns ---


def column(name, kind, value=None):
    return AddedColumn(field=pa.field(name, kind), value=value)


def test_columns_are_renamed_dropped_and_added_in_one_version(bench):
    bench.append("a", "b")
    index(bench, BY_ID, BY_TEXT)
    before = bench.version
    bench.land(
        bench.now().stage_schema(
            ColumnChanges(
                renamed={"bio": "story"},
                dropped=["age"],
                added=[column("city", pa.string()), column("rank", pa.int32(), "CAST(7 AS INT)")],
            )
        )
    )
    assert bench.version == before + 1
    assert bench.rows() == [
        {"id": "a", "story": "story of a", "rank": 7, "city": None},
        {"id": "b", "story": "story of b", "rank": 7, "city": None},
    ]
    assert [one.name for one in bench.now().indexes()] == ["bio_idx", "id_idx"]
    assert bench.now().schema.field("id").metadata == SMALL.field("id").metadata


def test_a_new_column_never_shows_the_values_of_a_dropped_one(bench):
    bench.append("a")
    for name in ("one", "two", "three"):
        changes = ColumnChanges(added=[column(name, pa.string(), f"'{name}'")])
        bench.land(bench.now().stage_schema(changes))
        bench.land(bench.now().stage_schema(ColumnChanges(dropped=[name])))
    bench.land(bench.now().stage_schema(ColumnChanges(added=[column("last", pa.string())])))
    assert bench.rows() == [{"id": "a", "age": 1, "bio": "story of a", "last": None}]


def test_older_versions_keep_their_columns(bench):
    bench.append("a")
    since = bench.version
    bench.land(bench.now().stage_schema(ColumnChanges(dropped=["bio"])))
    assert bench.now().schema.names == ["id", "age"]
    assert bench.now(since).read()["bio"].to_pylist() == ["story of a"]


def test_rows_can_be_written_after_columns_changed(bench):
    bench.append("a")
    bench.land(bench.now().stage_schema(ColumnChanges(added=[column("city", pa.string())])))
    rows = people("a", "b").append_column("city", pa.array(["Ulm", "Rom"]))
    bench.land(bench.now().stage_upsert(rows))
    assert [row["city"] for row in bench.rows()] == ["Ulm", "Rom"]


def test_columns_change_on_a_fork_alone(bench):
    bench.append("a")
    base = bench.version
    bench.tables.fork(PLACE, source_branch=None, version=base, branch_id="01FORK")
    bench.branch = "01FORK"
    bench.append("b")
    changes = ColumnChanges(renamed={"bio": "story"}, added=[column("n", pa.int64(), "age + 1")])
    bench.land(bench.now().stage_schema(changes))
    assert [(row["id"], row["story"], row["n"]) for row in bench.rows()] == [
        ("a", "story of a", 2),
        ("b", "story of b", 2),
    ]
    bench.branch = None
    assert bench.now(base).schema.names == ["id", "age", "bio"]


def test_an_empty_table_takes_new_columns(bench):
    changes = ColumnChanges(added=[column("n", pa.int64(), "1"), column("m", pa.string())])
    bench.land(bench.now().stage_schema(changes))
    assert set(bench.now().schema.names) == {"id", "age", "bio", "n", "m"}
    rows = people("a").append_column("n", pa.array([5])).append_column("m", pa.array(["x"]))
    bench.land(bench.now().stage_append(rows))
    assert bench.rows()[0]["n"] == 5


def test_no_column_changes_are_no_write(bench):
    assert bench.now().stage_schema(ColumnChanges()) is None


# --- retention ---


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
