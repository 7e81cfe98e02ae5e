"""The kit of both languages: places and excerpts, near names, tokens, problems, comments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.compiler.text import (
    EXCERPT_COLUMNS_MAX,
    Cursor,
    Lines,
    Problems,
    SourceText,
    closest,
    did_you_mean,
    quoted,
    token_expression,
    tokenize,
)
from omnigraph.model.limits import NAMES_SUGGESTED_MAX


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


# --- the rest of the kit -------------------------------------------------------------------------

WORDS = token_expression(r"(?P<ident>[a-z]++)|(?P<int>[0-9]++)", marks=r"[(),]")
LISTED = token_expression(r"(?P<value>[a-z-]++)", marks=r"[(),]")


def kinds(text, **lists):
    return [(token.kind, token.text, token.at) for token in tokenize(text, WORDS, **lists)]


def test_tokens_say_their_kind_text_and_place():
    assert kinds(' a /* , */ 12 // x\n"s"') == [
        ("ident", "a", 1),
        ("int", "12", 11),
        ("string", '"s"', 19),
        ("end", "", 22),
    ]


@pytest.mark.parametrize(("text", "at"), [("a é", 2), ('a "open', 2), ("a /* open", 2)])
def test_tokens_end_at_the_first_character_that_begins_none(text, at):
    assert kinds(text)[-1] == ("stray", text[at], at)


def test_a_list_may_have_tokens_of_its_own():
    found = kinds("pick(a-b, c) d", lists={"pick": LISTED})
    assert [kind for kind, _, _ in found] == [
        *("ident", "(", "value", ",", "value", ")", "ident", "end")
    ]


@given(st.text())
def test_a_quoted_text_is_one_token_that_stands_for_it(text):
    source = SourceText(quoted(text), "x")
    cursor = Cursor(source, tokenize(source.text, WORDS))
    assert cursor.unquoted(cursor.expect("string")) == text
    assert cursor.at("end")


def test_problems_are_told_once_each_and_in_order_of_the_text_if_asked():
    problems = Problems(SourceText("one\ntwo\n", "x"), stage="parse")
    assert not problems
    problems.report(4, "late")
    problems.report(0, "misfit", stage="catalog")
    problems.report(0, "early", code="T1", hint="try")
    problems.report(4, "late")
    assert [problem.message for problem in problems.found()] == [
        "parse error: late",
        "catalog error: misfit",
        "parse error: T1: early",
    ]
    ordered = problems.found(ordered=True)
    assert [(problem.line, problem.hint) for problem in ordered] == [
        (1, "try"),
        (2, None),
        (1, None),
    ]


def test_suggestions_stop_after_the_first_few():
    problems = Problems(SourceText("", "x"), stage="type")
    hints = [problems.suggest("nam", ["name"]) for _ in range(NAMES_SUGGESTED_MAX + 1)]
    assert hints == ["did you mean `name`?"] * NAMES_SUGGESTED_MAX + [None]


def test_comments_stay_behind_their_line_or_get_one_of_their_own():
    source = "// top\na /* x */ // y\n\n/* two\nlines */ b // end"
    out = Lines(source)
    out.comments(before=source.index("a"), indent="  ")
    out.add("A", end=8)
    out.comments(before=source.index(" b"), indent="  ", gaps=True)
    out.add("B")
    out.comments(before=len(source), indent="")
    assert str(out) == "  // top\nA /* x */ // y\n\n  /* two\nlines */\nB // end\n"
