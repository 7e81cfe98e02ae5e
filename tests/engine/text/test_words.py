"""Words, stems and edits say the same as loops over texts."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engine.text.words import (
    STEM_CUT_MAX,
    STEM_END,
    cut,
    stem,
    within_edits,
    words,
)


@given(st.lists(st.text(max_size=40) | st.text("aB7é -_\n", max_size=9), max_size=5))
def test_both_ways_of_cutting_text_give_the_same_words(texts):
    whole = pa.array(["x y", *texts, "z"], pa.string())
    for some, expected in ((whole.slice(1, len(texts)), texts), (whole, whole.to_pylist())):
        listed = cut(some).to_pylist()
        assert [[word for word in one if word] for one in listed] == [
            list(words(text)) for text in expected
        ]


@given(st.lists(st.sampled_from(("bb", "a", "ie", "s", "ly", "ing", "ed", "e")), max_size=6))
def test_a_stem_begins_like_its_word_and_is_little_shorter(pieces):
    word = "".join(pieces)
    found = stem(word)
    assert word.startswith(found[:-STEM_END] if found else "")
    assert len(word) - len(found) <= STEM_CUT_MAX


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
