"""Words, stems, edits and the text index say the same as loops over texts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.read.search.text import TextIndex, cut, stem, within_edits, words


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
