"""What people are shown of a text that was found."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.engine.text.analysis import PLAIN, Analysis
from omnigraph.engine.text.shown import highlight, snippet

GERMAN, CJK, NGRAM = Analysis("german"), Analysis(None, "cjk"), Analysis(None, "ngram")
STARS = ("*", "*")
LONG = "one two three four graph five six seven graph data eight nine ten"


@pytest.mark.parametrize(
    ("analysis", "text", "query", "expected"),
    [
        (PLAIN, "Graph databases, and Graphs!", "graph", "*Graph* databases, and *Graphs*!"),
        (PLAIN, "Café au lait", "CAFE", "*Café* au lait"),
        (PLAIN, "a graph of data", '"graph data"', "a graph of data"),
        (PLAIN, "a graph data store", '"graph dat*"', "a *graph data* store"),
        (PLAIN, "datum and data", "dat*", "*datum* and *data*"),
        (PLAIN, "keep this, not that", "+keep -not", "*keep* this, not that"),
        (PLAIN, "the cat", "the", "the cat"),  # a very common word shows nothing
        (PLAIN, "nothing to see", "else", "nothing to see"),
        (PLAIN, "", "else", ""),
        (PLAIN, "any", "", "any"),
        (PLAIN, "Linux™ at 20℃ and ½ off", "linuxtm c 2", "*Linux™* at *20℃* and *½* off"),
        (PLAIN, "½ and ½", '"1 2"', "*½* and *½*"),
        (GERMAN, "bei 20℃", "c", "bei 20*℃*"),
        (GERMAN, "Die STRASSE am Haus", "Straßen häuser", "Die *STRASSE* am *Haus*"),
        (GERMAN, "Hurra 🎉🇩🇪!", "🇩🇪", "Hurra 🎉*🇩🇪*!"),
        (CJK, "我喜欢北京大学", "北京", "我喜欢*北京*大学"),
        (CJK, "東京Tower", "tower 京", "東*京**Tower*"),
        (NGRAM, "ประเทศไทยมาก", "ไทย", "ประเทศ*ไทย*มาก"),
    ],
)
def test_what_a_query_finds_is_marked(analysis, text, query, expected):
    assert highlight(text, query, STARS, analysis) == expected


@pytest.mark.parametrize(
    ("query", "words", "expected"),
    [
        ("graph", 3, "…three four *graph*…"),
        ("graph data", 3, "…seven *graph* *data*…"),
        ("ten", 2, "…nine *ten*"),
        ("one", 2, "*one* two…"),
        ("nowhere", 2, "one two…"),
        ("graph", 100, LONG.replace("graph", "*graph*")),
    ],
)
def test_a_snippet_is_the_place_with_most_of_the_query(query, words, expected):
    assert snippet(LONG, query, words, STARS, PLAIN) == expected


def test_a_snippet_of_text_without_spaces_is_short_too():
    assert snippet("我喜欢北京大学的图数据库", "北京", 3, STARS, CJK) == "我喜欢*北京*大…"


ROWS = {
    "graph": [("graph",)],
    "graph data": [("graph",), ("data",)],
    '"graph data"': [("graph", "data")],
    '"graph data" x data': [("graph", "data"), ("x",), ("data",)],
}


@settings(max_examples=200, deadline=None)
@given(
    said=st.lists(st.sampled_from(["graph", "data", "of", "x"]), max_size=20),
    query=st.sampled_from([*ROWS]),
    words=st.integers(1, 6),
)
def test_no_other_place_shows_more_of_the_query(said, query, words):
    def worth(at):
        some = said[at : at + words]
        counts = [
            sum(tuple(some[one : one + len(row)]) == row for one in range(len(some)))
            for row in ROWS[query]
        ]
        return sum(count > 0 for count in counts), sum(counts)

    best = max(range(max(1, len(said) - words + 1)), key=lambda at: (worth(at), -at))
    wanted = " ".join(said[best : best + words])
    before, behind = "…" if best else "", "…" if best + words < len(said) else ""
    assert snippet(" ".join(said), query, words, ("", ""), PLAIN) == before + wanted + behind


def test_a_snippet_of_a_book_is_made_in_one_pass():
    text = "graph data " * 30_000
    before = time.process_time()
    assert snippet(text, "graph " + "data " * 2_000, 2, STARS, PLAIN) == "*graph* *data*…"
    assert highlight(text, " ".join(f"w{n}" for n in range(5_000)), STARS, PLAIN) == text
    assert time.process_time() - before < 20  # every place with every mark took an hour
