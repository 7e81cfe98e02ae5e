"""A text of another language is answered by the same thing in `.gq`."""

from __future__ import annotations

import re
import time

import pytest
from habits import ALL

from omnigraph.compiler.query import compile_query, parse_file
from omnigraph.compiler.query.hints.elsewhere import translated
from omnigraph.compiler.schema import compile_schema
from omnigraph.errors import ParseError, TypeCheckError

CATALOG = compile_schema(
    """
    node Person {
      name: String @key
      age: I32?
      born: Date?
      tags: [String]?
      city: String?
    }
    node Company {
      name: String @key
      city: String?
    }
    edge Knows: Person -> Person { since: Date? }
    edge WorksAt: Person -> Company
    """
)


def refusal(text):
    with pytest.raises((ParseError, TypeCheckError)) as caught:
        compile_query(text, CATALOG)
    return caught.value


@pytest.mark.parametrize(
    ("language", "text", "place", "hint"), ALL, ids=lambda part: str(part)[:40]
)
def test_the_error_points_at_the_habit_and_shows_how_it_is_written_here(
    language, text, place, hint
):
    error = refusal(text)
    line = text.split("\n")[error.line - 1]
    assert line[error.column - 1 :].startswith(place)
    assert hint in error.hint
    assert hint, "a hint that says nothing teaches nothing"


def test_there_are_enough_habits_of_every_language():
    of = [language for language, *_ in ALL]
    assert len(of) >= 200
    assert {name: of.count(name) >= 5 for name in set(of)} == dict.fromkeys(set(of), True)


WHOLE = re.compile(r"`(query \w+\([^`]*\})`")
# Forms that a hint names as a sketch.
SKETCHED = ("...",)
# Forms that the grammar does not have yet.
AWAITED: tuple[str, ...] = ()


def whole_queries():
    for _, text, _, _ in ALL:
        for found in WHOLE.findall(refusal(text).hint or ""):
            if not any(sketch in found for sketch in SKETCHED):
                yield pytest.param(found, id=found[:60])


@pytest.mark.parametrize("query", list(whole_queries()))
def test_a_whole_query_of_a_hint_can_be_read(query):
    assert parse_file(query).queries


ROADS = [
    ("(a)-[:KNOWS]->(b)", "$a knows $b"),
    ("(a)<-[:KNOWS]-(b)", "$b knows $a"),
    ("(a)-[:KNOWS]-(b)", "$a <knows> $b"),
    ("(a)-[r:WORKS_AT]->(b:Company)", "$b: Company  $a $r:worksAt $b"),
    ("(a:Person {name: 'Ann'})", '$a: Person { name: "Ann" }'),
    ("(:Person)-[:KNOWS]->()", "$a: Person  $a knows $_"),
    ("(a)-[:KNOWS*2]->(b)", "$a knows{2,2} $b"),
    ("(a)-[:KNOWS*..3]->(b)", "$a knows{1,3} $b"),
    ("(a)-[:KNOWS]->{2,4}(b)", "$a knows{2,4} $b"),
    ("(a)-->(b)<--(c)", "$a any $b  $c any $b"),
]


@pytest.mark.parametrize(("road", "clauses"), ROADS)
def test_a_path_pattern_is_translated_step_by_step(road, clauses):
    assert translated(road) == clauses


def test_a_long_text_is_explained_in_time_that_does_not_grow_with_it():
    text = f"query q() {{ match {{ $p: Person /*{'(a) ' * 100_000}*/ (a)-[:KNOWS]->(b) }} }}"
    began = time.process_time()
    assert "$a knows $b" in refusal(text).hint
    assert time.process_time() - began < 5
