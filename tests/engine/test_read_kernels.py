"""The array kernels of reading say the same as loops over lists."""

from __future__ import annotations

import math
import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.compiler.query.ir import CompareOp
from omnigraph.engine.expr.compare import compare
from omnigraph.engine.read.column import Column, Growable
from omnigraph.engine.read.relation import Relation, joined_rows
from omnigraph.engine.read.sort import Everything, Key, first_rows, order_rows
from omnigraph.engine.read.text import cut, stem, within_edits, words
from omnigraph.engine.read.text_index import TextIndex
from omnigraph.engine.read.topology import Topology
from omnigraph.engine.read.vectors import VectorBlock

# --- comparing -------------------------------------------------------------------------------

WHOLE = [-(2**63), -(2**53) - 1, -1, 0, 1, 25, 2**53, 2**53 + 1, 2**63 - 1]
REAL = [-math.inf, -(2.0**63), -1.5, -0.0, 0.5, 25.5, 2.0**53, 2.0**63, math.inf, math.nan]


@pytest.mark.parametrize("op", list(CompareOp))
@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([a for a in WHOLE for _ in REAL]), pa.array(REAL * len(WHOLE))),
        (pa.array([a for a in REAL for _ in WHOLE]), pa.array(WHOLE * len(REAL))),
        (
            pa.array([a for a in [0, 1, 2**64 - 1] for _ in WHOLE], pa.uint64()),
            pa.array(WHOLE * 3, pa.int64()),
        ),
    ],
    ids=["whole-real", "real-whole", "unsigned-signed"],
)
def test_numbers_of_two_types_compare_by_value(op, left, right):
    # Python compares an int with a float exactly.
    operators = {
        "=": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }
    expected = [
        operators[op.value](a, b) for a, b in zip(left.to_pylist(), right.to_pylist(), strict=True)
    ]
    assert compare(op, left, right).to_pylist() == expected


def test_null_compares_to_null():
    found = compare(CompareOp.LT, pa.array([1, None], pa.int32()), pa.scalar(1.5))
    assert found.to_pylist() == [True, None]


# --- columns ---------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 99)), max_size=30))
def test_a_patched_column_reads_like_a_list_that_was_changed(changes):
    column, model = Column.of(pa.array(list(range(8)))), list(range(8))
    for at, value in changes:
        at = min(at, len(model))
        model[at : at + 1] = [value]
        column = column.patched(np.array([at]), pa.array([value]), len(model))
        assert column.whole().to_pylist() == model
    back = np.arange(len(model) - 1, -1, -1)
    assert column.take(back).to_pylist() == model[::-1]
    assert column.take(np.array([-1, 0])).to_pylist() == [None, model[0]]


def test_two_children_of_one_array_do_not_see_each_other():
    parent = Growable(np.arange(3)).extended([7])
    left, right = parent.extended([1]), parent.extended([2])
    assert left.view.tolist() == [0, 1, 2, 7, 1]
    assert right.view.tolist() == [0, 1, 2, 7, 2]
    assert parent.view.tolist() == [0, 1, 2, 7]


# --- rows ------------------------------------------------------------------------------------


def test_joined_rows_pairs_equal_keys_in_left_order():
    left, right = np.array([3, 1, 9, 3]), np.array([1, 3, 3])
    pairs = list(zip(*(side.tolist() for side in joined_rows(left, right)), strict=True))
    assert pairs == [(0, 1), (0, 2), (1, 0), (3, 1), (3, 2)]


def test_distinct_rows_know_their_twins():
    relation = Relation(4, {"a": np.array([1, 1, -1, 1]), "b": np.array([5, 6, 5, 5])})
    distinct, back = relation.distinct()
    assert distinct.count == 3
    again = distinct.take(back)
    assert again["a"].tolist() == [1, 1, -1, 1]
    assert again["b"].tolist() == [5, 6, 5, 5]


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize(
    "values",
    [
        pa.array([3, None, 1, 3, None, 2]),
        pa.array([1.5, math.nan, None, -0.5, math.inf]),
        pa.array(["b", None, "a", "é", "B"]),
        pa.array([True, None, False, True]),
        pa.array([2**63, 0, None, 5], pa.uint64()),
    ],
    ids=["whole", "real", "text", "bool", "unsigned"],
)
def test_nulls_come_first_ascending_and_last_descending(values, descending):
    def weight(value):
        if value is None:
            return (0, 0)
        if isinstance(value, float) and math.isnan(value):
            return (2, 0)
        return (1, value.encode() if isinstance(value, str) else value)

    key = Key(lambda rows: values.take(pa.array(rows)), descending)
    found = values.take(pa.array(order_rows([key], len(values), Everything()))).to_pylist()
    expected = sorted(values.to_pylist(), key=weight, reverse=descending)
    assert repr(found) == repr(expected)


@given(
    st.lists(
        st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.sampled_from("abc")), max_size=40
    )
)
def test_later_keys_decide_among_ties_only(rows):
    numbers, letters = pa.array([a for a, _ in rows], pa.int64()), pa.array([b for _, b in rows])
    keys = [
        Key(lambda at: numbers.take(pa.array(at)), descending=True),
        Key(lambda at: letters.take(pa.array(at)), descending=False),
    ]
    found = [rows[at] for at in order_rows(keys, len(rows), Everything())]
    assert found == sorted(rows, key=lambda row: (row[0] is None, -(row[0] or 0), row[1]))


@pytest.mark.parametrize("descending", [False, True])
def test_the_first_rows_hold_the_best_and_all_their_ties(descending):
    rng = random.Random(5)
    for values in (
        [rng.choice([None, *range(50)]) for _ in range(6000)],
        [rng.choice([None, "x", "y", "zz", *map(str, range(500))]) for _ in range(6000)],
    ):
        found = first_rows(pa.array(values), descending=descending, wanted=20)
        order = sorted(
            range(len(values)),
            key=lambda row: (values[row] is not None, values[row] or type(values[0] or "")()),
            reverse=descending,
        )
        assert set(order[:20]) <= set(found.tolist())
        assert len(found) < len(values)


# --- text ------------------------------------------------------------------------------------


@given(st.text(max_size=40))
def test_both_ways_of_cutting_text_give_the_same_words(text):
    listed = cut(pa.array([text], pa.string()))[0].as_py()
    assert [word for word in listed if word] == list(words(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Quick-brown fox's", ["the", "quick", "brown", "fox", "s"]),
        ("Crème BRÛLÉE 42", ["creme", "brulee", "42"]),
        ("", []),
        ("…", []),
        ("Ünïcode_ß", ["unicode", "ß"]),
    ],
)
def test_words_are_lower_case_without_accents(text, expected):
    assert list(words(text)) == expected


@pytest.mark.parametrize(
    "family",
    [("learn", "learning", "learned", "learns"), ("city", "cities"), ("box", "boxes")],
)
def test_the_forms_of_a_word_have_one_stem(family):
    assert len({stem(word) for word in family}) == 1


@given(
    st.lists(st.text("abcé", max_size=5), max_size=8, unique=True),
    st.text("abcé", max_size=5),
    st.integers(0, 3),
)
def test_edit_distance_is_the_textbook_one(vocabulary, word, edits):
    found = within_edits(pa.array(vocabulary, pa.string()), word, edits)
    assert found.tolist() == [distance(one, word) <= edits for one in vocabulary]


def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        above, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (x != y))
    return row[-1]


TEXTS = ["red green", "green green blue", None, "", "Red, yellow!", "the red", "blues"]


def test_an_index_that_followed_changes_answers_like_a_new_one():
    index = TextIndex.build(pa.array(TEXTS), np.arange(len(TEXTS)))
    texts = [*TEXTS, "red red", "nothing"]
    texts[1] = "brown"
    moved = index.moved(
        gone=np.array([1, 0]), values=pa.array(["brown", *texts[7:]]), positions=np.array([1, 7, 8])
    )
    assert moved is not None
    living = np.array([1, 2, 3, 4, 5, 6, 7, 8])  # position 0 was deleted
    fresh = TextIndex.build(pa.array(texts), living)
    for query in ("red", "green", "brown blue", "the", "redd"):
        assert moved.any_word(query, 9).tolist() == fresh.any_word(query, 9).tolist()
        assert moved.close_word(query, 1, 9).tolist() == fresh.close_word(query, 1, 9).tolist()
        assert moved.phrase(query, 9).tolist() == fresh.phrase(query, 9).tolist()
        np.testing.assert_array_equal(moved.bm25(query, 9), fresh.bm25(query, 9))


@given(
    st.lists(st.none() | st.text("ab ", max_size=6), min_size=1, max_size=6),
    st.lists(
        st.lists(st.tuples(st.integers(0, 5), st.none() | st.text("ab ", max_size=6)), max_size=4),
        max_size=4,
    ),
)
def test_a_null_is_no_text_whatever_way_the_index_came_about(texts, steps):
    texts = list(texts)
    index = TextIndex.build(pa.array(texts, pa.string()), np.arange(len(texts)))
    for step in steps:
        changes = {at % len(texts): text for at, text in step}
        for at, text in changes.items():
            texts[at] = text
        at = np.array(sorted(changes), dtype=np.int64)
        values = pa.array([changes[one] for one in sorted(changes)], pa.string())
        moved = index.moved(gone=at, values=values, positions=at)
        assert moved is not None
        index = moved
    told = [text for text in texts if text is not None]
    fresh = TextIndex.build(pa.array(told, pa.string()), np.arange(len(told)))
    held = np.array([text is not None for text in texts])
    for query in ("a", "ab ba", "bb"):
        scores = index.bm25(query, len(texts))
        assert np.isnan(scores[~held]).all()
        np.testing.assert_array_equal(scores[held], fresh.bm25(query, len(told)))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("green", [0, 1]),
        ("GREEN blue", [0, 1]),
        ("the red", [0, 4, 5]),  # a very common word does not count beside others
        ("the", [5]),
        ("gree", []),
        ("!", []),
    ],
)
def test_search_finds_any_word_of_the_query(query, found):
    index = TextIndex.build(pa.array(TEXTS), np.arange(len(TEXTS)))
    assert np.flatnonzero(index.any_word(query, len(TEXTS))).tolist() == found


@pytest.mark.parametrize(
    ("query", "found"),
    [("green green", [1]), ("green blue", [1]), ("red yellow", [4]), ("blue green", [])],
)
def test_a_phrase_is_its_words_in_a_row(query, found):
    index = TextIndex.build(pa.array(TEXTS), np.arange(len(TEXTS)))
    assert np.flatnonzero(index.phrase(query, len(TEXTS))).tolist() == found


# --- shape -----------------------------------------------------------------------------------


def model_of(edges, alive):
    return [(a, b) for at, (a, b) in enumerate(edges) if alive[at]]


@pytest.mark.parametrize("seed", range(20))
def test_a_topology_that_followed_changes_is_like_a_new_one(seed):
    rng = random.Random(seed)
    nodes = 6
    edges = [(rng.randrange(nodes), rng.randrange(nodes)) for _ in range(rng.randrange(12))]
    alive = [True] * len(edges)
    topology = built(edges, nodes)
    for _ in range(4):
        topology.neighbours(np.arange(nodes), rng.choice(["out", "in", "both"]))
        added = [(rng.randrange(nodes + 2), rng.randrange(nodes + 2)) for _ in range(2)]
        living = [at for at, one in enumerate(alive) if one]
        gone = rng.sample(living, min(len(living), rng.randrange(3)))
        nodes += 2
        edges += added
        alive += [True] * len(added)
        for at in gone:
            alive[at] = False
        sources, targets = ends(added)
        moved = topology.moved(sources, targets, np.array(gone, dtype=np.int64))
        assert moved is not None
        topology = moved
        check_topology(topology, model_of(edges, alive), nodes)


def ends(edges):
    pairs = np.array(edges, dtype=np.int32).reshape(-1, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def built(edges, nodes):
    sources, targets = ends(edges)
    return Topology.build(sources, targets, nodes_from=nodes, nodes_to=nodes)


def check_topology(topology, edges, nodes):
    everyone = np.arange(nodes)
    both = {(a, b) for a, b in edges} | {(b, a) for a, b in edges}
    pairs = {"out": set(edges), "in": {(b, a) for a, b in edges}, "both": both}
    for direction, expected in pairs.items():
        hits = topology.neighbours(everyone, direction)
        found = list(zip(hits.rows.tolist(), hits.targets.tolist(), strict=True))
        assert sorted(found) == sorted(expected)
        assert topology.degree_sum(everyone, direction) >= len(found)
        has = [any(a == node for a, _ in expected) for node in range(nodes)]
        assert topology.has_any(everyone, direction).tolist() == has
        counts = topology.counts(everyone, direction, per_edge=False)
        assert counts.tolist() == [sum(a == node for a, _ in expected) for node in range(nodes)]
    hits = topology.edges(everyone, "out")
    assert sorted(zip(hits.rows.tolist(), hits.targets.tolist(), strict=True)) == sorted(edges)
    undirected = topology.edges(everyone, "both")
    loops = sum(a == b for a, b in edges)
    assert len(undirected.rows) == 2 * len(edges) - loops
    looped = {a for a, b in edges if a == b}
    assert topology.has_loop(everyone).tolist() == [node in looped for node in range(nodes)]


# --- vectors ---------------------------------------------------------------------------------


def test_moved_vectors_compare_like_new_ones():
    kind = pa.list_(pa.float32(), 2)
    values = [[1.0, 0.0], None, [0.0, 2.0], [0.0, 0.0]]
    block = VectorBlock.build(pa.array(values, kind), 2)
    values = [[1.0, 0.0], [3.0, 3.0], None, [0.0, 0.0], [-1.0, 0.0]]
    block = block.moved(np.array([1, 2, 4]), pa.array([values[1], None, values[4]], kind), 5)
    query = np.array([2.0, 0.0])
    fresh = VectorBlock.build(pa.array(values, kind), 2)
    np.testing.assert_allclose(block.similarity(query), fresh.similarity(query))
    assert block.similarity(query)[2] == -np.inf
