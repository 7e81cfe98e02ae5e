"""What the grammar reads and how it refuses: place, words and a hint that helps."""

from __future__ import annotations

import pytest

from omnigraph.compiler.schema import compile_schema
from omnigraph.compiler.schema.parse import RangeArg, Word, parse_schema
from omnigraph.compiler.text import SourceText
from omnigraph.errors import LimitExceededError, ParseError
from omnigraph.model import limits

# source, line, column, part of the message, part of the hint
REFUSED = [
    ("node person {}", 1, 6, "name of the node type", "`Person`"),
    ("nod Person {}", 1, 1, "expected `interface`, `node` or `edge`", "`node`"),
    (
        "./my schemas/people.pg\n",
        1,
        1,
        "the path of a file",
        '("./my schemas/people.pg").read_text()',
    ),
    ("node P { Name: String }", 1, 10, "property name", "lower-case"),
    ("node P { tier: enm(a, b) }", 1, 19, "property name", "only `enum(a, b)` and `Vector(3)`"),
    ("node P {\n  name: String\n", 3, 1, "property name", "a `}` is missing"),
    ("node P { name String }", 1, 15, "expected `:` after `name`", "`name: String`"),
    ("node P {\n  a: String\n", 3, 1, "the end of the file", None),
    ("node P { a: }", 1, 13, "expected a type", None),
    ("node P { a: [String }", 1, 21, "expected `]`", None),
    ("node P { a: [enum(x)] }", 1, 14, "list of enum is not supported", None),
    ("node P { a: Vector }", 1, 20, "expected `(` after `Vector`", "Vector(384)"),
    ("node P { a: Vector(x) }", 1, 20, "invalid Vector dimension", "Vector(384)"),
    ("node P { a: enum(x y) }", 1, 20, "expected `)`", "separated by commas"),
    ("node P { a: enum(x,) }", 1, 20, "enum needs a value", "letters, digits"),
    ("node P @key(a) { a: String }", 1, 8, "does not belong in the header", "@key(…)"),
    ("edge E: P -> P @unique(src)", 1, 16, "does not belong in the header", "@unique(…)"),
    ("node P { @uniqe(a) }", 1, 11, "@uniqe is not a constraint", "`@unique`"),
    ("edge E P -> P", 1, 8, "expected `:` after `edge E`", "From -> To"),
    ("edge E: P P", 1, 11, "expected `->`", "P -> To"),
    ("edge E: P -> P @card(1)", 1, 23, "@card(1) is not a range", "`@card(1..1)` for exactly 1"),
    ("edge E: P -> P @card(..5)", 1, 22, "@card needs a minimum", "`@card(0..5)`"),
    ("edge E: P -> P @card(x..5)", 1, 22, "needs a number", "@card(1..1)"),
    ("edge E: P -> P @card(-1..5)", 1, 22, "needs a number", "@card(0..1)"),
    ("edge E: P -> P @card", 1, 21, "expected `(` after `@card`", "@card(0..1)"),
    ('edge E: P -> P @description("d") @card(0..1)', 1, 35, "@card does not belong", "target"),
    ("interface I @x { }", 1, 13, "interfaces take no annotations", "properties"),
    ("interface I { a: String @key(a) }", 1, 25, "not allowed in an interface", "without brackets"),
    ("node N implements I @d { }", 1, 21, "annotations come before `implements`", "node N @…"),
    ('node N @a("x", 5) {}', 1, 16, 'expected `name="value"`', None),
    ("node N @a(1, k=word) {}", 1, 19, "`k` needs a literal", None),
    ("node N @description('x') {}", 1, 21, 'unexpected character "\'"', "double quotes"),
    ('node N @description("x', 1, 21, "unterminated string", "close it"),
    ('node N @d("a\\qb") {}', 1, 13, "unsupported escape sequence `\\q`", "backslash as"),
    ("node N {} /* open", 1, 11, "unterminated comment", "`*/`"),
    ("node Café {}", 1, 9, "unexpected character 'é'", "ASCII"),
    ("node N { a: String; }", 1, 19, "unexpected character ';'", None),
    ("node N { a: I32 @range(a, ..) }", 1, 29, "a number behind `..`", None),
    ("node N { @range(a, 0..5) @ }", 1, 28, "a constraint behind `@`", None),
    ("node N { a: String @default(\ud800) }", 1, 29, "not a Unicode character", None),
]


@pytest.mark.parametrize(("source", "line", "column", "message", "hint"), REFUSED)
def test_the_grammar_says_where_and_what_would_have_worked(source, line, column, message, hint):
    with pytest.raises(ParseError) as caught:
        compile_schema(source, name="file.pg")
    error = caught.value
    assert message in error.message
    assert (error.line, error.column) == (line, column)
    assert error.excerpt.startswith(f"file.pg:{line}:{column}\n")
    assert (hint in (error.hint or "")) if hint else True
    assert error.errors[0]["message"] == error.message


def test_commas_between_members_are_welcome():
    spaced = compile_schema("node N { a: String b: I32? @range(b, 0..9) c: Bool }")
    commas = compile_schema("node N { a: String, b: I32?, @range(b, 0..9), c: Bool, }")
    assert spaced.ir == commas.ir


def test_keywords_are_names_too():
    catalog = compile_schema("node Node { node: String edge: String? interface: Bool enum: I32 }")
    assert [prop.name for prop in catalog.nodes["Node"].properties] == [
        "node", "edge", "interface", "enum",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("written", "bounds"),
    [
        ("0..5", (0, 5)),
        ("-5..-1", (-5, -1)),
        ("..5", (None, 5)),
        ("0..", (0, None)),
        ("0.5..1.5", (0.5, 1.5)),
        ("-0.25..", (-0.25, None)),
    ],
)
def test_a_range_may_be_open_on_either_side(written, bounds):
    tree = parse_schema(SourceText(f"node N {{ @range(a, {written}) }}", "x"))
    wanted = RangeArg(minimum=bounds[0], maximum=bounds[1])
    assert tree[0].members[0].args == (Word("a"), wanted)


@pytest.mark.parametrize(
    ("source", "resource"),
    [
        ("/" * (limits.SCHEMA_SOURCE_BYTES_MAX + 1), "schema source bytes"),
        ("edge E: A -> A " * (limits.SCHEMA_TYPES_MAX + 1), "types of a schema"),
        ("node N { " + "a: I32 " * (limits.SCHEMA_MEMBERS_MAX + 1) + "}", "members of a type"),
    ],
    ids=["bytes", "types", "members"],
)
def test_huge_inputs_meet_a_limit_with_a_name(source, resource):
    with pytest.raises(LimitExceededError) as caught:
        compile_schema(source)
    assert caught.value.resource == resource


@pytest.mark.parametrize(
    "source",
    [
        "node N" + "n" * limits.SCHEMA_NAME_LENGTH_MAX + " {}",
        "node N { v: Vector(" + "1" * 5000 + ") }",
        "node N { @range(a, " + "9" * 60 + "..) }",
        "node N { a: enum(" + "x" * 300 + ") }",
    ],
    ids=["name", "dimension", "bound", "enum value"],
)
def test_huge_words_are_refused_in_place(source):
    with pytest.raises(ParseError):
        compile_schema(source)
