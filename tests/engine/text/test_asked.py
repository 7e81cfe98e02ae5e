"""What the text of a search asks for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.engine.read.search.text import TextIndex, asked, bm25, matches
from omnigraph.engine.text.analysis import PLAIN, Analysis

TEXTS = [
    "graph data model",  # 0
    "data about a graph",  # 1
    "graphs and databases",  # 2
    "the relational model",  # 3
    None,
]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("graph", [0, 1]),
        ('"graph data"', [0]),
        ('"data graph"', []),
        ('"graph dat*"', [0]),
        ("graph*", [0, 1, 2]),
        ("data*", [0, 1, 2]),
        ("+graph +model", [0]),
        ("graph -model", [1]),
        ("-graph", [2, 3]),
        ("+model relational", [0, 3]),  # what is required decides
        ('+"graph data" -about', [0]),
        ('-"graph data" graph', [1]),
        ("+the", [3]),
        ("the", [3]),
        ("the graph", [0, 1]),
        ("data-model", [0, 1, 3]),  # a dash inside is none of ours
        ('"graph', [0, 1]),  # nothing is an error
        ("+ - *", []),
        ("", []),
    ],
)
def test_signs_and_quotes_say_what_must_be_there(query, expected):
    index = TextIndex.build(pa.array(TEXTS), np.arange(len(TEXTS)), PLAIN)
    found = matches(index.parts, asked(query, PLAIN), len(TEXTS), all_told=True).found
    assert np.flatnonzero(found).tolist() == expected


def test_ranking_takes_all_but_what_must_not_be_there():
    index = TextIndex.build(pa.array(TEXTS), np.arange(len(TEXTS)), PLAIN)

    def scores(query):
        hits = bm25(index.parts, query, len(TEXTS), PLAIN)
        return hits.positions.tolist(), hits.scores.tolist()

    assert scores('+graph "data" -about') == scores("graph data")
    assert scores("databas*")[0] == [2]


LANGUAGES = [
    ("english", "the boxes were controlled by size", "controls sizes", True),
    ("german", "Die Häuser in der Straße", "haus", True),
    ("german", "Die Häuser in der Straße", "STRASSE", True),
    ("german", "Die Häuser in der Straße", "in", True),  # very common, but alone
    ("german", "ein Haus", "ein maus", False),
    ("french", "les journaux nationaux", "journal national", True),
    ("spanish", "las canciones bonitas", "canción", True),
    ("russian", "красивые города", "город", True),
    ("turkish", "IŞIK evlerde", "ışık", True),  # noqa: RUF001
    ("finnish", "taloissa on ikkunoita", "talo", True),
    ("english", "running shoes", '"run shoe"', True),
]


@pytest.mark.parametrize(("language", "text", "query", "expected"), LANGUAGES)
def test_a_language_compares_its_stems(language, text, query, expected):
    analysis = Analysis(language)
    index = TextIndex.build(pa.array([text]), np.arange(1), analysis)
    assert matches(index.parts, asked(query, analysis), 1, all_told=True).found[0] == expected


@pytest.mark.parametrize(
    ("tokenizer", "text", "query", "expected"),
    [
        ("cjk", "我喜欢北京大学", "北京", True),
        ("cjk", "我喜欢北京大学", "大", True),
        ("cjk", "我喜欢北京大学", "学", True),  # the last letter too
        ("cjk", "我喜欢北京大学", "京北", False),
        ("cjk", "北方人在南京", "北京", False),  # not both letters somewhere
        ("cjk", "データベース", "ﾃﾞｰﾀ", True),
        ("cjk", "python入門", "PYTHON", True),
        ("cjk", "한국어 검색", "검색", True),
        ("cjk", "東京大阪", '"東京 大阪"', True),
        ("ngram", "ประเทศไทย", "ไทย", True),
        ("ngram", "ประเทศไทย", "ท", True),
        ("ngram", "ประเทศไทย", "ไทไ", False),
        ("ngram", "Donaudampfschiff", "dampf", True),
    ],
)
def test_writing_without_spaces_is_found_by_its_parts(tokenizer, text, query, expected):
    analysis = Analysis(None, tokenizer)
    index = TextIndex.build(pa.array([text]), np.arange(1), analysis)
    assert matches(index.parts, asked(query, analysis), 1, all_told=True).found[0] == expected
