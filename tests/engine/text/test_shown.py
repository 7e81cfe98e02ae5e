"""What people are shown of a text that was found."""

from __future__ import annotations

import pytest

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
