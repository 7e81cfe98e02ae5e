"""Upkeep: deciding is arithmetic; indexes and compaction are staged, strict, and never in the
way of right answers."""

from __future__ import annotations

from itertools import count

import pyarrow as pa
import pytest
from msgspec.structs import replace
from table_bench import (
    BY_ID,
    BY_TEXT,
    PLACE,
    WIDE,
    Bench,
    compacted,
    indexed,
    people,
    upkept,
)

from omnigraph.errors import ConflictError, ExpectedVersionMismatchError
from omnigraph.model.limits import INDEX_SEGMENTS_MAX
from omnigraph.storage.lance import pylance
from omnigraph.storage.table import table as tables
from omnigraph.storage.table.index import IndexSpec, Segment, coverage, decide_builds
from omnigraph.storage.table.schema_change import ColumnChanges
from omnigraph.storage.table.upkeep import Part, Upkeep, compactable, compaction_groups, tier_rows


@pytest.fixture
def bench(local_root):
    return Bench(local_root)


# --- deciding ---

BTREE = IndexSpec(name="id_btree", column="id", kind="btree")


def parts(*sizes, deleted=()):
    return [
        Part(number=number, rows=rows, deleted=dict(deleted).get(number, 0), identity="")
        for number, rows in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("sizes", "deleted", "groups"),
    [
        ((), (), ()),
        ((5,), (), ()),
        ((1, 1, 1), (), ((0, 1, 2),)),
        ((100, 1, 1), (), ((1, 2),)),
        ((1, 100, 1), (), ()),
        ((60, 60), (), ()),  # two would become two
        ((60, 60, 1), (), ()),
        ((40, 40, 40, 40), (), ((0, 1, 2),)),
        ((100, 100), ((0, 50),), ((0,),)),
        ((100, 100), ((0, 1),), ()),
        ((0, 0), (), ((0, 1),)),
    ],
)
def test_neighbours_are_folded_if_fewer_come_out(sizes, deleted, groups):
    assert compaction_groups(parts(*sizes, deleted=deleted), target_rows=100) == groups


def test_runs_can_be_kept_short():
    assert compaction_groups(parts(*[1] * 7), target_rows=100, parts_max=3) == (
        (0, 1, 2),
        (3, 4, 5),
    )


def test_folding_comes_to_an_end():
    sizes = [7, 300, 12, 99, 1, 1, 40, 100, 3, 61, 60, 8]
    for _ in range(20):
        groups = compaction_groups(parts(*sizes), target_rows=100)
        if not groups:
            break
        gone = {number for group in groups for number in group}
        made = []
        for group in groups:
            total = sum(sizes[number] for number in group)
            made += [100] * (total // 100) + ([total % 100] if total % 100 else [])
        sizes = [rows for number, rows in enumerate(sizes) if number not in gone] + made
    else:
        pytest.fail("still compacting")


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [((), 2), ((1,), 2), ((1, 1, 1), 4), ((1000, 1, 1, 1), 4), ((4, 1, 1, 1, 1), 9)],
)
def test_a_bigger_fragment_joins_if_the_smaller_ones_outweigh_it(sizes, rows):
    assert tier_rows(parts(*sizes)) == rows


def test_tiers_rewrite_each_row_a_few_times():
    sizes: list[int] = []
    rewritten = 0
    for _ in range(4096):
        sizes.append(1)
        tier = tier_rows(parts(*sizes))
        if sum(1 for rows in sizes if rows < tier) > 16:
            folded = [rows for rows in sizes if rows < tier]
            rewritten += sum(folded)
            sizes = [*(rows for rows in sizes if rows >= tier), sum(folded)]
    assert rewritten < 4096 * 12
    assert len(sizes) < 16 + 12


@pytest.mark.parametrize(
    ("first", "groups"),
    [
        # 4 and 5 were committed while 6 and 7 were made of older rows.
        ({4: 32, 5: 33, 6: 0, 7: 16, 8: 34, 9: 35}, ((6, 7), (4, 5, 8, 9))),
        ({4: 0, 5: 1, 6: 2, 7: 3, 8: 4, 9: 5}, ((4, 5, 6, 7, 8, 9),)),
        # Changed rows keep their row ids, which go up and down: numbers decide.
        ({4: 32, 5: 1, 6: 30, 7: 3, 8: 20, 9: 5}, ((4, 5, 6, 7, 8, 9),)),
        ({}, ((4, 5, 6, 7, 8, 9),)),
    ],
)
def test_rows_that_were_made_one_after_the_other_stay_together(first, groups):
    found = [Part(number=n, rows=1, deleted=0, identity=None) for n in range(4, 10)]
    big = Part(number=0, rows=500, deleted=0, identity=None)
    assert compaction_groups([big, *found], target_rows=100, first_row_ids=first) == groups


def segment(name, *fragments, broken=False):
    return Segment(uuid=name, fragments=frozenset(fragments), broken=broken)


@pytest.mark.parametrize(
    ("there", "groups", "fragments", "replaces"),
    [
        ([], (), (0, 1, 2, 3), ()),
        ([segment("a", 0, 1, 2, 3)], (), None, None),
        ([segment("a", 0)], (), (1, 2, 3), ()),
        ([segment("a", 0), segment("b", 1)], (), (1, 2, 3), ("b",)),
        ([segment("a", 0), segment("b", 1)], [(1, 2, 3)], (1, 2, 3), ("b",)),
        ([segment("a", 0, 1, 2, 3)], [(0, 1)], None, None),
        ([segment("a", 0, 1), segment("b", 2, 3)], [(1, 2)], (0, 1, 2, 3), ("a", "b")),
        ([segment("a", 0, 1, 2, 3, broken=True)], (), (0, 1, 2, 3), ("a",)),
    ],
)
def test_segments_are_added_or_replaced(there, groups, fragments, replaces):
    sizes = {0: 1000, 1: 1, 2: 1, 3: 1}
    builds = decide_builds([BTREE], {"id_btree": there}, sizes, groups)
    if fragments is None:
        assert builds == ()
    else:
        assert [(one.fragments, one.replaces) for one in builds] == [(fragments, replaces)]


@pytest.mark.parametrize(
    ("there", "groups", "settled", "builds"),
    [
        # One segment over everything, part of which is compacted: settled rows are built once more.
        (
            [segment("a", 0, 1, 2)],
            [(1, 2, 3)],
            {0},
            [((0,), ("a",)), ((1, 2, 3), ("a",))],
        ),
        # From then on only what moves is built again, however many rows there are.
        ([segment("a", 0), segment("b", 1, 2)], [(1, 2, 3)], {0}, [((1, 2, 3), ("b",))]),
        # What has settled leaves the segment of the others, and joins its like.
        (
            [segment("a", 0), segment("b", 4, 1)],
            [(1, 2, 3)],
            {0, 4},
            [((0, 4), ("a", "b")), ((1, 2, 3), ("b",))],
        ),
        ([segment("z")], [(1, 2)], {0, 4}, [((0, 4), ("z",)), ((1, 2, 3), ())]),
    ],
)
def test_settled_fragments_have_segments_of_their_own(there, groups, settled, builds):
    sizes = {0: 1000, 1: 1, 2: 1, 3: 1, 4: 600} if 4 in settled else {0: 1000, 1: 1, 2: 1, 3: 1}
    found = decide_builds([BTREE], {"id_btree": there}, sizes, groups, settled)
    assert [(one.fragments, one.replaces) for one in found] == builds
    covering = coverage({"id_btree": there}, found)
    assert covering.keys() == sizes.keys()
    assert not [
        1 for number in settled for other in groups[0] if covering[number] & covering[other]
    ]


def test_a_table_of_many_small_commits_is_indexed_again_a_few_times_only():
    """Rows indexed per commit grow like the digits of the number of commits."""
    numbers, sizes, there, indexed = count(1), {0: 1000}, [segment("s0", 0)], 0
    for _ in range(6000):
        sizes[next(numbers)] = 1
        found = [Part(number=n, rows=rows, deleted=0, identity=None) for n, rows in sizes.items()]
        tier = tier_rows(found)
        if sum(rows < tier for rows in sizes.values()) <= 64:
            continue
        groups = compaction_groups(found, target_rows=tier, parts_max=16)
        grouped = {number for group in groups for number in group}
        settled = {n for n, rows in sizes.items() if rows >= tier} - grouped
        builds = decide_builds([BTREE], {"id_btree": there}, sizes, groups, settled)
        indexed += sum(sizes[n] for build in builds for n in build.fragments)
        gone = {uid for build in builds for uid in build.replaces}
        there = [one for one in there if one.uuid not in gone]
        there += [segment(f"s{next(numbers)}", *build.fragments) for build in builds]
        covering = coverage({"id_btree": there}, ())
        for group in compactable(groups, covering):
            sizes[made := next(numbers)] = sum(sizes.pop(number) for number in group)
            there = [
                segment(one.uuid, *(one.fragments - set(group)), made)
                if set(group) & one.fragments
                else one
                for one in there
            ]
        assert len(there) < 12
    assert sum(sizes.values()) == 7000
    assert indexed < 7000 * 12


def test_groups_are_cut_where_coverage_changes():
    known = {"id_btree": (segment("a", 0, 1),), "other": (segment("x", 0, 1, 2),)}
    covering = coverage(known, ())
    assert compactable([(0, 1, 2, 3)], covering) == ((0, 1), (2,), (3,))


# --- indexes ---


def test_several_indexes_land_as_one_version(bench):
    bench.append("a", "b")
    before = bench.version
    bench.index(BY_ID, BY_TEXT)
    assert bench.version == before + 1
    assert [(i.name, i.rows_indexed, i.rows_unindexed) for i in bench.now().indexes()] == [
        ("bio_idx", 2, 0),
        ("id_idx", 2, 0),
    ]


def test_an_index_that_covers_all_is_not_built_again(bench):
    bench.append("a", "b")
    bench.index(BY_ID)
    plan = bench.now().plan_upkeep([BY_ID], Upkeep(compact=False))
    assert plan.is_empty
    assert not plan.pending


def test_an_empty_table_gets_no_index(bench):
    assert indexed(bench.now(), BY_ID) is None


def test_new_rows_get_a_segment_of_their_own(bench):
    bench.append(*(f"p{n}" for n in range(100)))
    bench.index(BY_ID)
    bench.append("q1", "q2")
    assert bench.now().indexes()[0].rows_unindexed == 2
    bench.index(BY_ID)
    (found,) = bench.now().indexes()
    assert (found.segments, found.rows_indexed, found.rows_unindexed) == (2, 102, 0)
    bench.agree(["p5", "q2", "nobody"])


def test_segments_do_not_pile_up(bench):
    bench.append(*(f"p{n}" for n in range(200)))
    bench.index(BY_ID)
    for n in range(INDEX_SEGMENTS_MAX + 2):
        bench.append(f"q{n}")
        bench.index(BY_ID)
    (found,) = bench.now().indexes()
    assert found.segments <= INDEX_SEGMENTS_MAX
    assert found.rows_unindexed == 0
    bench.agree(["p5", "q0", "q7"])


def test_a_table_that_doubled_gets_its_index_anew(bench):
    bench.append("a", "b")
    bench.index(BY_ID)
    bench.append("c", "d")
    bench.index(BY_ID)
    assert bench.now().indexes()[0].segments == 1
    bench.agree(["a", "d"])


def test_indexed_tables_answer_right_after_every_kind_of_write(bench):
    bench.append(*(f"p{n}" for n in range(50)))
    bench.index(BY_ID, BY_TEXT)
    bench.land(bench.now().stage_change(people("p3", "new", age=9)))
    bench.land(bench.now().stage_delete_ids(["p4", "p5"]))
    bench.append("later")
    bench.agree(["p3", "p4", "new", "later", "p49"])
    assert bench.now().read(where="id = 'p3'")["age"].to_pylist() == [9]
    bench.land(compacted(bench.now()))
    bench.agree(["p3", "p4", "new", "later", "p49"])
    bench.index(BY_ID)
    bench.agree(["p3", "p4", "new", "later", "p49"])
    bench.land(bench.now().stage_overwrite(people("p3")))
    bench.agree(["p3", "p4"])


def test_an_index_on_no_vectors_is_pending_with_its_reason(local_root):
    bench = Bench(local_root, schema=WIDE)
    rows = people("a").append_column(WIDE.field("spot"), pa.array([None], WIDE.field("spot").type))
    bench.land(bench.now().stage_append(rows))
    near = IndexSpec(name="spot_idx", column="spot", kind="vector")
    plan = bench.now().plan_upkeep([near, BY_ID], Upkeep(compact=False))
    assert [(one.name, reason) for one, reason in plan.pending] == [
        ("spot_idx", "no row has a vector yet")
    ]
    bench.index(near, BY_ID)
    assert [one.name for one in bench.now().indexes()] == ["id_idx"]


def test_a_dropped_index_is_gone(bench):
    bench.append("a")
    ours = replace(BY_ID, name="id_btree")  # only names of ours are taken away
    bench.index(ours, BY_TEXT)
    bench.land(upkept(bench.now(), BY_TEXT, drop_undeclared=True).write)
    assert [one.name for one in bench.now().indexes()] == ["bio_idx"]
    assert upkept(bench.now(), BY_TEXT, drop_undeclared=True) is None


@pytest.mark.parametrize("kind", ["index", "compaction", "schema"])
def test_maintenance_of_a_table_that_moved_is_refused(bench, kind):
    bench.append("a")
    bench.append("b")
    table = bench.now()
    match kind:
        case "index":
            write = indexed(table, BY_ID)
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
    bench.index(BY_ID)
    bench.land(bench.now().stage_delete_ids(["p0"]))
    ids = bench.now().read(columns=["id"], with_row_id=True).sort_by("id").to_pydict()
    write = compacted(bench.now())
    assert bench.land(write).version == write.version_after == write.pinned_version + 2
    assert len(bench.now().fragment_ids) == 1
    assert bench.now().read(columns=["id"], with_row_id=True).sort_by("id").to_pydict() == ids
    assert bench.now().indexes()[0].rows_unindexed == 0
    bench.agree(["p0", "p3"])


def test_a_compact_table_has_no_tasks(bench):
    bench.append("a", "b")
    assert bench.now().plan_upkeep([]).tasks == ()
    assert compacted(bench.now()) is None


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
    bench.agree("abcdx")
    bench.append("e")
    assert bench.ids() == list("abcde")


def test_an_index_holds_although_fragments_went_while_it_was_built(bench):
    by_age = IndexSpec(name="age_idx", column="age", kind="btree")
    for one in "abcd":
        bench.append(one)
    work = upkeep(bench.now(), BY_ID, by_age)
    bench.land(bench.now().stage_change(people("b", age=7)))
    bench.land(bench.now().stage_delete_ids(["c"]))
    bench.land(bench.now().stage_upkeep(work).write)
    assert [one.name for one in bench.now().indexes()] == ["age_idx", "id_idx"]
    bench.agree("abcd")
    for age, ids in ((1, ["a", "d"]), (7, ["b"])):
        found = bench.now().read(columns=["id"], where=f"age = {age}")["id"].to_pylist()
        assert sorted(found) == ids
    bench.land(bench.now().stage_upkeep(upkeep(bench.now(), BY_ID, by_age)).write)
    assert len(bench.now().fragment_ids) == 1
    bench.agree("abcd")


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
    compaction, appending = compacted(bench.now()), bench.now().stage_append(people("c"))
    monkeypatch.setattr(tables.Compaction, "commit", refuse)
    monkeypatch.setattr(pylance.LanceDataset, "commit", refuse)
    for write in (compaction, appending):
        with pytest.raises(ConflictError, match="node:Person"):
            bench.land(write)


def test_writes_go_on_after_a_compaction(bench):
    bench.append("a")
    bench.append("b")
    bench.land(compacted(bench.now()))
    bench.land(bench.now().stage_change(people("a", "c", age=4)))
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
