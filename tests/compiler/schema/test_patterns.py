"""Patterns of @check: what is accepted runs in RE2, what needs backtracking is refused."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omnigraph.compiler.schema.patterns import pattern_problem

ACCEPTED = [
    "",
    "abc",
    "^[^@]+@[^@]+$",
    "[A-Z]{3}-[0-9]+",
    r"^\d{4}-\d{2}$",
    r"\bword\b",
    "(a|b)*c",
    "a+?b*?c??",
    "(?:x)",
    "(?P<year>[0-9]+)",
    "(?<year>[0-9]+)",
    "(?i)abc",
    "(?i:abc)",
    "(?s-i:.)",
    "[]a]",
    "[^]a]",
    "[a-]",
    "[-a]",
    r"[\w.-]",
    r"[\]\\]",
    "[[:alpha:]]",
    r"\p{L}+",
    r"\pN",
    r"\P{Greek}",
    r"\x41",
    r"\x{1F680}",
    "[é-ü]",
    "日本",
    r"\.\*\?",
    "a{0}",
    "a{2,}",
    "a{2,3}?",
    "(a{10}){100}",
    "(|a)",
    "()",
    r"\A\z",
    r"\-\/\#",
]
REFUSED = [
    (r"(a)\1", "back-reference"),
    (r"(?P<x>a)(?P=x)", "back-reference"),
    (r"\k<x>", "back-reference"),
    ("(?=a)", "look-around"),
    ("(?!a)", "look-around"),
    ("(?<=a)", "look-around"),
    ("(?<!a)", "look-around"),
    ("(", "unclosed `(`"),
    (")", "unmatched `)`"),
    ("[a", "unclosed `[`"),
    ("[]", "unclosed `[`"),
    ("*a", "nothing to repeat"),
    ("a**", "nothing to repeat"),
    ("a++", "nothing to repeat"),
    ("^*", "nothing"),
    ("a|+", "nothing to repeat"),
    ("a{", "no repetition"),
    ("a{,3}", "no repetition"),
    ("}", "unescaped `}`"),
    ("a{3,2}", "repeats from 3 to 2"),
    ("a{1001}", "repeats more than"),
    ("(a{100}){11}", "repeats more than"),
    (r"\p{L}{999}", "too large"),
    (r"\Z", "unknown escape"),
    (r"\é", "unknown escape"),
    ("a\\", "lone backslash"),
    ("[z-a]", "range that ends before"),
    (r"[\d-z]", "class inside a range"),
    ("[a&&b]", "unescaped `&`"),
    ("[[a]]", "unescaped `[`"),
    ("[a-c-e]", "unescaped `-`"),
    (r"[\b]", "unknown escape"),
    (r"\p{Klingon}", "unknown class"),
    ("(?x)a", "unknown group"),
    ("(?>a)", "unknown group"),
    ("(?#no)", "unknown group"),
    ("(?P<a>x)(?P<a>y)", "two groups"),
    (r"\x{110000}", "beyond Unicode"),
    ("a" * 1001, "longer than"),
    ("(" * 60 + ")" * 60, "nests more than"),
]


@pytest.mark.parametrize("pattern", ACCEPTED)
def test_ordinary_patterns_are_accepted(pattern):
    assert pattern_problem(pattern) is None
    assert _compiles(pattern)


@pytest.mark.parametrize(("pattern", "message"), REFUSED)
def test_other_patterns_are_refused_with_a_reason(pattern, message):
    problem = pattern_problem(pattern)
    assert problem is not None
    assert message in problem.message


_ESCAPES = (r"\d", r"\W", r"\p{L}", r"\x41", r"\-")
_PIECES = st.sampled_from(
    (*"aé.^$|()[]-*+?{},\\", "(?:", "(?i)", "{2}", "{3,}", "{100}", "[:alpha:]", "&&", *_ESCAPES)
)


@settings(max_examples=400)
@given(st.lists(_PIECES, max_size=12).map("".join))
def test_whatever_is_accepted_compiles_in_re2(pattern):
    if pattern_problem(pattern) is None:
        assert _compiles(pattern)


def _compiles(pattern):
    # Arrow raises ArrowInvalid for what RE2 cannot compile.
    return pc.match_substring_regex(pa.array(["x"]), pattern).to_pylist() in ([True], [False])
