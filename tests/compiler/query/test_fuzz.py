"""Whatever the text, the compiler answers with a plan or with one of our errors."""

from __future__ import annotations

import contextlib
import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from query_texts import CATALOG, EXAMPLES, TreeMaker, damaged

from omnigraph.compiler.query import compile_query, format_source, lint_source
from omnigraph.compiler.query.parse import parse_file
from omnigraph.compiler.query.printer import laid_out
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model import limits

RANDOMS = st.integers(0, 2**32).map(Random)
TEXTS = [body for _, body in EXAMPLES]


@given(RANDOMS)
def test_printing_and_parsing_a_tree_gives_it_back(random):
    file = TreeMaker(random).file()
    assert parse_file(laid_out(file)) == file


@given(RANDOMS)
def test_the_checker_raises_nothing_but_our_errors(random):
    file = TreeMaker(random).file()
    source = laid_out(file)
    report = lint_source(source, CATALOG)
    assert report.queries_processed == len(file.queries)
    assert [_compiles(source, query.name) for query in file.queries] == [
        _first(report, query.name).status == "ok" and not _unplannable(report, query.name)
        for query in file.queries
    ]


def _compiles(source, name):
    try:
        compile_query(source, CATALOG, name)
    except InputError:
        return False
    return True


def _first(report, name):
    return next(result for result in report.results if result.name == name)


def _unplannable(report, name):
    return any("starts nowhere" in warning for warning in _first(report, name).warnings)


@given(RANDOMS)
def test_damaged_texts_are_answered_in_kind(random):
    text = damaged(random, TEXTS)
    lint_source(text, CATALOG)
    with contextlib.suppress(InputError, NotFoundError):
        compile_query(text, CATALOG)
    with contextlib.suppress(InputError):
        printed = format_source(text)
        assert parse_file(printed) == parse_file(text)


# Pieces that would make a careless parser slow when repeated.
REPEATED = [
    "(",
    "[",
    "{",
    '"',
    "/*",
    "//",
    "\\",
    "-",
    "not ",
    "$p ",
    "a",
    "1",
    "$p.a + ",
    "@",
    "{1,",
]


@pytest.mark.parametrize("piece", REPEATED)
def test_time_grows_with_the_size_of_the_text_and_no_faster(piece):
    def seconds(size: int) -> float:
        text = "query q() { match { $p: Person " + piece * (size // len(piece))
        # Processor time: a busy machine must not look like a slow parser.
        started = time.process_time()
        lint_source(text, CATALOG)
        return time.process_time() - started

    small = max(min(seconds(5_000) for _ in range(3)), 0.001)
    large = min(seconds(80_000) for _ in range(3))
    assert large < small * 100, "16 times the text may take 16 times as long, not 256 times"


def test_a_text_full_of_unknown_names_is_refused_in_time():
    names = [f"{'long_name_' * 6}{index}" for index in range(900)]
    columns = ", ".join(f"$p.age as {name}" for name in names)
    order = ", ".join(f"{name}x" for name in names)
    source = f"query q() {{ match {{ $p: Person }} return {{ {columns} }} order {{ {order} }} }}"
    giant = "n" * 200_000
    odd = f"query q() {{ match {{ $p: Person }} return {{ 1 as {giant} }} order {{ {giant}x }} }}"
    started = time.perf_counter()
    (result,) = lint_source(source, CATALOG).results
    assert len(result.errors) == limits.PROBLEMS_LISTED_MAX
    assert lint_source(odd, CATALOG).errors == 1
    assert time.perf_counter() - started < 20, "without limits this takes minutes"
