"""The formatter on random queries: it keeps the tree, is done once, and loses no comment. The tools
around it on random damage: nothing but words comes out."""

from __future__ import annotations

import random
import re

import pytest
from graph_cases import SCHEMA as GRAPH_SCHEMA
from graph_cases import GraphCases
from query_cases import Cases
from query_texts import DAMAGE
from search_cases import SearchCases

from omnigraph.compiler import editing
from omnigraph.compiler.query import format_source, lint_source, parse_file
from omnigraph.compiler.schema import compile_schema

CATALOG = compile_schema(GRAPH_SCHEMA)
SEEDS = range(20)
QUERIES_A_SEED = 25
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\$?\w+|[<>!]=|\.\.|\S')


def texts(seed: int) -> list[str]:
    rng = random.Random(seed)
    makers = [GraphCases(rng), SearchCases(rng), Cases(rng)]
    return [rng.choice(makers).case().text for _ in range(QUERIES_A_SEED)]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_query_is_laid_out_once_and_means_the_same(seed):
    for text in texts(seed):
        printed = format_source(text)
        assert parse_file(printed) == parse_file(text), text
        assert format_source(printed) == printed, text


@pytest.mark.parametrize("seed", SEEDS)
def test_comments_survive_at_random_places(seed):
    rng = random.Random(seed)
    for text in texts(seed)[:10]:
        places = [found.start() for found in _TOKEN.finditer(text)]
        chosen = sorted(rng.sample(places, min(4, len(places))), reverse=True)
        commented, marks = text, []
        for number, place in enumerate(chosen):
            # A bracket that touches its list is an index: nothing may come between them.
            if commented[place] in "[(" or commented[place - 1 : place] in {".", "$"}:
                continue
            mark = rng.choice([f"/* c{number} */", f"// c{number}\n"])
            commented = f"{commented[:place]}{mark}{commented[place:]}"
            marks.append(mark.strip())
        if parse_file(commented) != parse_file(text):
            continue  # a line end before a minus begins a new clause
        printed = format_source(commented)
        assert parse_file(printed) == parse_file(text), commented
        assert all(mark in printed for mark in marks), commented
        assert format_source(printed) == printed, commented


@pytest.mark.parametrize("seed", SEEDS)
def test_damage_is_told_and_nothing_breaks(seed):
    rng = random.Random(seed)
    for text in texts(seed)[:6]:
        letters = list(text)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(letters))
            letters[at : at + rng.randint(0, 3)] = rng.choice(DAMAGE)
        broken = "".join(letters)
        report = lint_source(broken, CATALOG)
        assert report.status in {"ok", "error"}
        assert all(line >= 1 and column >= 1 for line, column, *_ in report.places())
        at = rng.randrange(len(broken) + 1)
        editing.query_completions(broken, at, CATALOG)
        editing.query_hover(broken, at, CATALOG)
        editing.query_problems(broken, CATALOG)
