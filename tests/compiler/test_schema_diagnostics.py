"""How errors point at source text, and which name they suggest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.compiler.diagnostics import EXCERPT_COLUMNS_MAX, SourceText, closest, did_you_mean


def test_an_excerpt_shows_place_line_and_caret():
    source = SourceText("node P {\n  name Strin\n}\n", "people.pg")
    assert source.excerpt(2, 8) == "people.pg:2:8\n2 |   name Strin\n  |        ^"


@pytest.mark.parametrize(
    ("text", "line", "column", "shown"),
    [
        ("\ta: X", 1, 5, " a: X"),  # a tab takes one cell, so that the caret stays in place
        ("a\r\nb", 1, 2, "a"),  # the carriage return is no part of the line
        ("", 1, 1, ""),
        ("ab", 9, 9, ""),  # places outside the text are shown as empty lines
    ],
)
def test_an_excerpt_keeps_one_cell_a_character(text, line, column, shown):
    lines = SourceText(text, "x").excerpt(line, column).splitlines()
    assert lines[1] == f"{line} | {shown}"
    assert lines[2].index("^") <= len(lines[1])


@given(st.integers(min_value=1, max_value=1000))
def test_a_long_line_is_cut_around_the_caret(column):
    text = "".join(chr(ord("a") + at % 26) for at in range(1000))
    _, shown, caret = SourceText(text, "x").excerpt(1, column).splitlines()
    assert len(shown) <= EXCERPT_COLUMNS_MAX + len("1 | ")
    assert shown[caret.index("^")] == text[column - 1]


@given(st.text(alphabet="ab\n", max_size=40), st.integers(min_value=0, max_value=40))
def test_a_place_is_what_counting_gives(text, offset):
    offset = min(offset, len(text))
    before = text[:offset]
    wanted = (before.count("\n") + 1, len(before) - before.rfind("\n"))
    assert SourceText(text, "x").place(offset) == wanted


@pytest.mark.parametrize(
    ("name", "candidates", "found"),
    [
        ("Persn", ["Person", "Company"], "Person"),
        ("PERSON", ["Person", "Persons"], "Person"),
        ("nmae", ["name", "same"], "name"),  # a swap is one slip
        ("x", ["completely", "different"], None),
        ("", ["a"], "a"),
        ("ab", [], None),
    ],
)
def test_the_closest_name_is_the_likely_slip(name, candidates, found):
    assert closest(name, candidates) == found


def test_a_far_name_gets_the_few_choices_there_are():
    assert did_you_mean("zzzz", ["b", "a"]) == "one of: `a`, `b`"
    assert did_you_mean("zzzzzzzz", [f"name{n}" for n in range(50)]) is None
