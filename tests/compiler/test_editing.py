"""What an editor is told about unfinished texts."""

from __future__ import annotations

import pytest

from omnigraph.compiler import editing
from omnigraph.compiler.schema import compile_schema

SCHEMA = """node Person @description("somebody") {
    name: String @key
    age: I32?
    role: enum(admin, user)
}
node Company { name: String @key  city: String? }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company
"""
CATALOG = compile_schema(SCHEMA)


def completed(text: str) -> set[str]:
    """The labels at the bar of a text."""
    at = text.index("|")
    found = editing.query_completions(text.replace("|", "", 1), at, CATALOG)
    return {each.label for each in found}


COMPLETED = [
    ("query q() { match { $p: | } }", {"Person", "Company"}, {"Knows", "match"}),
    ("query q() { match { $p: Per| } }", {"Person"}, {"match"}),
    ("query q() { match { $p: Person  $p.| } }", {"name", "age", "role", "id"}, {"city", "match"}),
    ("query q() { match { $p: Person  $p worksAt $c  $c.| } }", {"city"}, {"age"}),
    ("query q() { match { $c: Company  $p worksAt $c  $p.| } }", {"age"}, {"city"}),
    ("query q() { match { $p $w:knows $f } return { $w.| } }", {"since", "src", "dst"}, {"age"}),
    ("query q() { match { $p: Person  $p | } }", {"knows", "worksAt", "contains"}, {"Person"}),
    ("query q() { match { $c: Company  $c | } }", {"worksAt"}, {"knows"}),
    ("query q($who: String) { match { $p: Person { name: $| } } }", {"$who", "$p"}, {"match"}),
    ("query q() { insert | }", {"Person", "Knows"}, {"match"}),
    ("query q() { insert Person { | } }", {"name: ", "age: "}, {"city: "}),
    ("query q() { insert Knows { | } }", {"from: ", "to: ", "since: "}, {"name: "}),
    ("query q() { match { $p: Person { | } } }", {"name: "}, {"city: "}),
    ("query q() { insert Person { name: \"x\" } as $new returning { $new.| } }", {"age"}, {"city"}),
    ("query q($n: |", {"String", "DateTime"}, {"Person"}),
    ("query q() @| { }", {"@description"}, {"match"}),
    ("query q() { | }", {"match", "insert", "lower", "count"}, {"Person"}),
    ("query a() { $p: Company }\nquery b() { match { $p: Person  $p.| } }", {"age"}, {"city"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted", "unwanted"), COMPLETED)
def test_what_fits_is_completed_from_the_schema(text, wanted, unwanted):
    found = completed(text)
    assert wanted <= found
    assert not unwanted & found


def test_a_function_comes_with_its_documentation():
    found = editing.query_completions("query q() { ", 12, CATALOG)
    lower = next(each for each in found if each.label == "lower")
    assert (lower.kind, lower.detail) == ("function", "lower(text)")
    assert "lower case" in lower.says


HOVERED = [
    ("query q() { match { $p: Per|son } }", "node Person"),
    ("query q() { match { $|p: Person } }", "age: I32?"),
    ("query q() { match { $p: Person  $p.ag|e > 3 } }", "`Person.age: I32?`"),
    ("query q() { match { $p: Person  $p kno|ws $f } }", "edge Knows: Person -> Person"),
    ("query q() { match { $p: Person } return { low|er($p.name) } }", "`lower(text)`"),
    ("query q() { mat|ch { $p: Person } }", "**match**"),
    ("query q($n: String) { match { $p: Person { name: $|n } } }", "parameter `$n: String`"),
    ('query q() { match { $p.name li|ke "a%" } }', "pattern"),
]


@pytest.mark.parametrize(("text", "part"), HOVERED)
def test_a_word_is_explained(text, part):
    at = text.index("|")
    found = editing.query_hover(text.replace("|", "", 1), at, CATALOG)
    assert found is not None
    assert part in found[2]


def test_problems_are_those_of_lint_with_their_places():
    text = "query q($x: I32) {\n  match { $p: Person  $p.nam = 3 }\n  return { $p.name }\n}\nqery"
    found = editing.query_problems(text, CATALOG)
    assert [(each.code, each.severity, text[each.at : each.end]) for each in found] == [
        ("T6", "error", "$p"),
        ("Q000", "error", "qery"),
    ]


def test_without_a_schema_only_what_cannot_be_read_is_a_problem():
    assert editing.query_problems("query q() { match { $p: X } return { $p.y } }", None) == []
    assert [each.code for each in editing.query_problems("quer", None)] == ["Q000"]


def test_a_schema_has_problems_completions_and_hovers():
    found = editing.schema_problems("node Person { name: Strin }\nedge X: Person -> Nobody\n")
    assert [each.code for each in found] == ["schema", "schema"]
    labels = {each.label for each in editing.schema_completions("node A { x: ", 12)}
    assert {"String", "I32"} <= labels
    assert "@key" in {each.label for each in editing.schema_completions("node A { x: I32 @", 17)}
    assert {"node", "edge"} <= {each.label for each in editing.schema_completions("", 0)}
    ends = editing.schema_completions("node A { x: I32 }\nedge B: ", 26)
    assert [each.label for each in ends] == ["A"]
    assert "made of it" in editing.schema_hover(SCHEMA, SCHEMA.index("key"))[2]
    assert "node Person" in editing.schema_hover(SCHEMA, SCHEMA.index("Person"))[2]
    assert editing.schema_problems(SCHEMA) == []


@pytest.mark.parametrize("at", range(0, 200, 7))
def test_no_place_of_a_text_is_too_odd(at):
    text = "query q($n: [String]) { match { $p: Person { name: $n } not { $p <knows>{1,2} $f } }"
    editing.query_completions(text, min(at, len(text)), None)
    editing.query_hover(text, min(at, len(text)), CATALOG)
    editing.schema_completions(SCHEMA, at)
    editing.schema_hover(SCHEMA, at)
