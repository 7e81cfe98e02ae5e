"""The formatter changes how a text looks, never what it says."""

from __future__ import annotations

import pytest
from query_texts import EXAMPLES

from omnigraph.compiler.query import format_source, parse_file

VALID = [body for code, body in EXAMPLES if code != "Q000"]

# (text, the same in house style)
STYLED = [
    (
        'query q($a:I32?,$b:[ String ])@description("d"){match{$p:P{x:1,}}return{$p.x}}',
        """query q($a: I32?, $b: [String])
@description("d")
{
    match {
        $p: P { x: 1 }
    }
    return { $p.x }
}
""",
    ),
    (
        """// first
query q() { // opens
  match { $p: P // the people
    // only some
    $p.x > 1 not { $p e $x } }
  return { $p.x, // the x
    $p.y }
  limit 3
}
// last""",
        """// first
query q() { // opens
    match {
        $p: P // the people
        // only some
        $p.x > 1
        not { $p e $x }
    }
    return {
        $p.x, // the x
        $p.y
    }
    limit 3
}
// last
""",
    ),
    (
        """query a() { match { $p: P } return { $p } } // ends a
query b() { match { $p: P } return { $p } }""",
        """query a() {
    match {
        $p: P
    }
    return { $p }
} // ends a

query b() {
    match {
        $p: P
    }
    return { $p }
}
""",
    ),
    (
        """query m() { insert P { a: 1 b: "x\\n" }
        update P set { a: -1 } where not (a = 1 or b = "") }""",
        """query m() {
    insert P { a: 1, b: "x\\n" }
    update P set { a: -1 } where not (a = 1 or b = "")
}
""",
    ),
]


@pytest.mark.parametrize(("text", "styled"), STYLED)
def test_a_text_gets_the_house_style(text, styled):
    assert format_source(text) == styled


# Expressions in the least parentheses that keep their meaning.
EXPRESSIONS = [
    "($p.a + 1) * 2 > 3 - (4 - 5)",
    "not ($p.a > 1 and $p.b > 2) or not not $p.c",
    "($p.a > 1) = ($p.b > 2)",
    "-($p.a + 1) < --$p.b - -1",
    "($p.a or $p.b) and $p.c",
    "$p.a not in [1, -2, 3.5e-07] and $p.b is not null",
    "count(($p.a > 1)) > 2",
]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_parentheses_stay_where_they_matter(text):
    source = f"query q() {{ match {{ $p: P }} return {{ {text} as x }} }}"
    printed = format_source(source)
    assert parse_file(printed) == parse_file(source)
    assert text in printed


def test_a_clause_with_a_leading_minus_does_not_join_the_one_before():
    source = "query q() { match { $p: P $p.a > 1 (-$p.b < 2) } return { $p } }"
    printed = format_source(source)
    assert len(parse_file(printed).queries[0].body.clauses) == 3
    assert parse_file(printed) == parse_file(source)


@pytest.mark.parametrize("source", VALID)
def test_formatting_keeps_the_tree_and_is_done_once(source):
    printed = format_source(source)
    assert parse_file(printed) == parse_file(source)
    assert format_source(printed) == printed
    assert max(len(line) for line in printed.splitlines()) <= 100


EVERYWHERE = """query q ( ) { match { $p : P { a : 1 } $p e { 1 , 2 } $q not { $p . x > 1 } }
return { $p , $q . x as y } order { y desc , $p . a } limit 3 }"""


def test_comments_survive_wherever_they_stand():
    tokens = EVERYWHERE.split()
    commented = " ".join(f"{token} /*{i}*/ //{i}x\n" for i, token in enumerate(tokens))
    printed = format_source(commented)
    assert parse_file(printed) == parse_file(EVERYWHERE)
    for index in range(len(tokens)):
        assert f"/*{index}*/" in printed
        assert f"//{index}x" in printed
