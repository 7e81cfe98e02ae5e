"""Deciding about upkeep is arithmetic: which fragments fold, which index parts are built."""

from __future__ import annotations

import pytest

from omnigraph.storage.indexes import IndexSpec, Segment, coverage, decide_builds
from omnigraph.storage.upkeep import Part, fold_groups, foldable, tier_rows

BY_ID = IndexSpec(name="id_btree", column="id", kind="btree")


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
    assert fold_groups(parts(*sizes, deleted=deleted), target_rows=100) == groups


def test_runs_can_be_kept_short():
    assert fold_groups(parts(*[1] * 7), target_rows=100, parts_max=3) == ((0, 1, 2), (3, 4, 5))


def test_folding_comes_to_an_end():
    sizes = [7, 300, 12, 99, 1, 1, 40, 100, 3, 61, 60, 8]
    for _ in range(20):
        groups = fold_groups(parts(*sizes), target_rows=100)
        if not groups:
            break
        gone = {number for group in groups for number in group}
        made = []
        for group in groups:
            total = sum(sizes[number] for number in group)
            made += [100] * (total // 100) + ([total % 100] if total % 100 else [])
        sizes = [rows for number, rows in enumerate(sizes) if number not in gone] + made
    else:
        pytest.fail("still folding")


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
    builds = decide_builds([BY_ID], {"id_btree": there}, sizes, groups)
    if fragments is None:
        assert builds == ()
    else:
        assert [(one.fragments, one.replaces) for one in builds] == [(fragments, replaces)]


def test_groups_are_cut_where_coverage_changes():
    known = {"id_btree": (segment("a", 0, 1),), "other": (segment("x", 0, 1, 2),)}
    covering = coverage(known, ())
    assert foldable([(0, 1, 2, 3)], covering) == ((0, 1), (2,), (3,))
