"""The words of a column say the same as a loop over its texts, however they are kept."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.read.search import text as text_module
from omnigraph.engine.read.search.text import (
    LIKE_PARTS_MAX,
    TextIndex,
    asked,
    bm25,
    close_word,
    matches,
    phrase,
)
from omnigraph.engine.text.analysis import PLAIN

TEXTS = ["red green", "green green blue", None, "", "Red, yellow!", "the red", "blues"]


def test_an_index_that_followed_changes_answers_like_a_new_one():
    index = TextIndex.build(pa.array(TEXTS), np.arange(len(TEXTS)), PLAIN)
    texts = [*TEXTS, "red red", "nothing"]
    texts[1] = "brown"
    moved = index.moved(
        gone=np.array([1, 0]), values=pa.array(["brown", *texts[7:]]), positions=np.array([1, 7, 8])
    )
    living = np.array([1, 2, 3, 4, 5, 6, 7, 8])  # position 0 was deleted
    fresh = TextIndex.build(pa.array(texts[1:]), living, PLAIN)
    for query in ("red", "green", "brown blue", "the", "redd"):
        assert answers(moved, query, 9) == answers(fresh, query, 9)


def found(index, find, size):
    return np.flatnonzero(matches(index.parts, find, size, all_told=True).found).tolist()


def answers(index, query, size):
    hits = bm25(index.parts, query, size, PLAIN)
    sparse = bm25(index.parts, query, size << 20, PLAIN)
    assert (hits.positions.tolist(), hits.scores.tolist()) == (
        sparse.positions.tolist(),
        sparse.scores.tolist(),
    )
    return [
        found(index, asked(query, PLAIN), size),
        found(index, close_word(query, 1, PLAIN), size),
        found(index, phrase(query, PLAIN), size),
        hits.positions.tolist(),
        hits.scores.tolist(),
        matches(index.parts, asked(query, PLAIN), size, all_told=False).told.tolist(),
    ]


TEXT = st.none() | st.text("ab é", max_size=6)


@given(
    st.lists(TEXT, min_size=1, max_size=9),
    st.lists(st.dictionaries(st.integers(0, 12), TEXT, max_size=4), max_size=9),
    st.sampled_from([1, 2, 100]),
)
def test_however_texts_are_split_into_parts_the_answers_are_the_same(texts, steps, like):
    texts = dict(enumerate(texts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "LIKE_PARTS_MAX", like)
        index = index_of(texts)
        for step in steps:
            gone = [at for at in step if at in texts]
            texts |= step
            index = index.moved(
                gone=np.array(gone, np.int64),
                values=pa.array(list(step.values()), pa.string()),
                positions=np.array(list(step), np.int64),
            )
            kept = [at for at in step if at % 5 == 0]
            for at in kept:  # and some go again
                del texts[at]
            index = index.moved(
                gone=np.array(kept, np.int64),
                values=pa.array([], pa.string()),
                positions=np.array([], np.int64),
            )
        fresh = index_of(texts)
        for query in ("a", "ab ba", "bb", "é a b", "the"):
            assert answers(index, query, 13) == answers(fresh, query, 13)
            assert index.count == sum(text is not None for text in texts.values())


def index_of(texts):
    return TextIndex.build(
        pa.array(list(texts.values()), pa.string()), np.array(list(texts), np.int64), PLAIN
    )


def test_many_small_changes_leave_few_parts():
    index = index_of({0: "a b"})
    for at in range(1, 300):
        index = index.moved(
            gone=np.array([], np.int64), values=pa.array(["a c"]), positions=np.array([at])
        )
    assert len(index.parts) <= 2 * LIKE_PARTS_MAX
    assert index.count == 300
    assert len(bm25(index.parts, "c", 300, PLAIN).positions) == 299


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("green", [0, 1]),
        ("GREEN blue", [0, 1]),
        ("the red", [0, 4, 5]),  # a very common word does not count beside others
        ("the", [5]),
        ("gree", []),
        ("!", []),
    ],
)
def test_search_finds_any_word_of_the_query(query, expected):
    index = TextIndex.build(pa.array(TEXTS), np.arange(len(TEXTS)), PLAIN)
    assert found(index, asked(query, PLAIN), len(TEXTS)) == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [("green green", [1]), ("green blue", [1]), ("red yellow", [4]), ("blue green", [])],
)
def test_a_phrase_is_its_words_in_a_row(query, expected):
    index = TextIndex.build(pa.array(TEXTS), np.arange(len(TEXTS)), PLAIN)
    assert found(index, phrase(query, PLAIN), len(TEXTS)) == expected
