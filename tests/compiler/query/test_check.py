"""Errors are the product: code, place, text, and a hint that names what would have worked."""

from __future__ import annotations

import pytest

from omnigraph.compiler.query import compile_query, lint_source, parse_file
from omnigraph.compiler.schema import compile_schema
from omnigraph.errors import (
    InputError,
    LimitExceededError,
    MixedMutationError,
    NotFoundError,
    ParseError,
    TypeCheckError,
)
from omnigraph.model import limits

SCHEMA = compile_schema("""
node Person {
  name: String @key
  age: I32?
  rank: U32
  tags: [String]?
  born: Date?
  seen: DateTime?
  role: enum(admin, user)?
  vec: Vector(3)?
  photo: Blob?
}
node Company { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company
""")


def _match(clauses: str, returned: str = "$p.name", rest: str = "", params: str = "") -> str:
    return (
        f"query q({params}) {{ match {{ $p: Person {clauses} }} return {{ {returned} }} {rest} }}"
    )


# (query, code, part of the message, part of the hint)
REFUSED = [
    (_match('fuzzy($p.name, "a", -1)'), "T19", "at least 0, got -1", ""),
    (_match('fuzzy($p.name, "a", $p.age)'), "T19", "got a value of the match", "parameter"),
    (_match("nearest($p.vec, $p.name) < 1.0"), "T15", "got String of the match", "parameter"),
    ("query q() { match { $p: Persn } return { $p.name } }", "T1", "`Persn`", "`Person`"),
    ("query q() { match { $k: Knows } return { $k } }", "T1", "`Knows`", "`$a knows $b`"),
    (_match("$p: Person { agee: 1 }"), "T2", "`agee`", "`age`"),
    (_match("$p: Person { age: null }"), "T3", "null", "is null"),
    (_match("$p: Person { tags: [1] }"), "T3", "membership", ""),
    (_match("$p: Person { tags: 1 }"), "T3", "String", ""),
    (_match('$p: Person { photo: "x" }'), "T3", "Blob", ""),
    (_match("$p: Person { vec: [1.0, 2.0, 3.0] }"), "T3", "Vector", "nearest"),
    (_match('$p: Person { born: "tomorrow" }'), "T3", "tomorrow", "YYYY-MM-DD"),
    (_match("$p: Person { name: $f } $p knows $f"), "T3", "`$f`", "$x.p = $f.q"),
    (_match("$p: Person { name: $nobody }"), None, "not bound", "parameter"),
    (_match("$p nows $f"), "T4", "`nows`", "`knows`"),
    (_match("$q contains $p"), "T4", "`contains`", "property on the left"),
    (_match("$c: Company $c worksAt $p"), "T5", "`Company`", "swap"),
    (_match("$p.agee > 1"), "T6", "`agee`", "`age`"),
    (_match("", "$q.name"), "T6", "`$q`", "`$p`"),
    (_match("$x.a > 1", params="$x: I32"), "T6", "`$x`", "parameter"),
    (_match("$p.age = null"), "T7", "null", "is null"),
    (_match('$p.born = "2024-01-01"'), "T7", "Date with String", "date("),
    (_match("$p.seen = $s", params="$s: String"), "T7", "DateTime with String", "declare"),
    (_match('$p.age > "3"'), "T7", "I32 with String", "quotes"),
    (_match("$p.age in $n", params="$n: I64"), "T7", "list on the right", "[String]"),
    (_match('$p.age in ["a"]'), "T7", "I32 with String", ""),
    (_match("$p.name + 1 > 2"), "T7", "numbers", ""),
    (_match("$p.name"), "T7", "true or false", "compare"),
    (_match('$p.age = date("2024-02-30")'), "T7", "2024-02-30", "YYYY-MM-DD"),
    (_match('$p.tags = ["a"]'), "T7", "list comparisons", "contains"),
    (_match("$p.name contains 3"), "T7", "String right operand", ""),
    (_match("$p.age = 99999999999999999999"), "T7", "64 bits", ""),
    (_match("", "sum($p.name)"), "T8", "numeric", ""),
    (_match("", "min($p.tags)"), "T8", "Date or DateTime", ""),
    (_match("", "collect($p.tags)"), "T8", "single value", ""),
    (_match("", "percentile($p.age, 2)"), "T8", "0 to 1", ""),
    (_match("", "avg(distinct $p.age)"), "T8", "collect", ""),
    (_match("", "days(3)"), "T7", "no value by itself", "hours(2)"),
    (_match("", "lower($p.age)"), "T7", "got I32 (`$p.age`)", "lower(text)"),
    (_match("", 'trunc("eon", $p.born)'), "T7", '"eon"', "quarter"),
    (_match("", "degree($p, nope)"), "T4", "`nope`", "one of"),
    (_match("", "case when $p.age then 1 end"), "T7", "true or false", ""),
    (_match("", 'case when true then 1 else "a" end'), "T7", "I64 and String", ""),
    (_match("", "$p.name[0]"), "T7", "requires a list", "list[place]"),
    (_match("", "$p.name + 1"), "T7", "requires numbers", "to_string"),
    (_match("", "sum(distinct $p.age)"), "T8", "distinct", ""),
    (_match("count($p) > 1"), "T8", "`return`", ""),
    (_match("", "sum(count($p))"), "T8", "`return`", ""),
    (_match("not { $c: Company }"), "T9", "outer-bound", "`$p`"),
    (_match("optional { $c: Company }"), "T9", "outer-bound", "`$p`"),
    (_match("", "$p.name", "having { $p.age > 3 }"), "T9", "nothing is grouped", "match"),
    (_match("", 'count($p), bm25($p.name, "x")'), "T9", "by a search", ""),
    (_match("", "count($p), $p.age + count($p)"), "T9", "group", ""),
    (_match("", "count($p) as n", "order { $p.age }"), "T9", "group", ""),
    ('query q() { insert Persn { name: "a" } }', "T10", "`Persn`", "`Person`"),
    ('query q() { update Person set { agee: 1 } where name = "a" }', "T11", "agee", "`age`"),
    ('query q() { delete Person where nam = "a" }', "T11", "`nam`", "`name`"),
    ('query q() { delete Person where photo = "a" }', "T11", "WHERE", ""),
    ('query q() { insert Person { name: "a" } }', "T12", "`rank`", "`rank: ...`"),
    ('query q() { insert Knows { to: "a" } }', "T12", "`from`", "Person"),
    ('query q() { insert Knows { from: "a", from: "b", to: "a" } }', "T13", "`from`", ""),
    ("query q($nam: String) { delete Person where name = $name }", "T14", "`$name`", "`nam`"),
    (_match("$p knows{0,0} $f"), "T15", "no hops", "{0,1}"),
    (_match("$p any{2,2} $f $f: Person $f lives|worksAt $c $c.name > $f"), "T4", "`lives`", ""),
    (_match("$c: Company $c knows|worksAt $x"), "T5", "source of `Knows|WorksAt`", "swap"),
    (_match("$c: Company $c <knows|worksAt>{1,2} $x", "$x.nme"), "T6", "Company|Person", ""),
    (_match("$p $w:knows{1,2} $f", "$w"), "T6", "is a path", "length"),
    (_match("$p $w:knows{1,2} $f", "$w.since"), "T6", "is a path", "length"),
    (_match("$p $w:knows{1,2} $f $w knows $g"), "T23", "is a path", ""),
    (_match("$p $w:knows{1,2} $f $p $w:knows{1,2} $g"), "T23", "bound as a path", ""),
    (_match("$p knows $f", "shortest($p, $f, knows)"), "T6", "no value by itself", "length"),
    (_match("optional { $p $w:knows{1,2} $p }"), "T23", "needs an end", "shortest"),
    (_match("", "nodes($p)"), "T6", "asks about a path", "shortest"),
    (
        _match("$c: Company", "length(shortest($c, $p, knows))"),
        "T5",
        "leads from Company",
        "<knows>",
    ),
    (_match("$p knows $f", "nodes(shortest($p, $f, knows, name))"), "T6", "no property `name`", ""),
    (_match("$p knows $f", "nodes(shortest($p, $f, knows, since))"), "T6", "is Date", ""),
    (_match("$p knows $f", "nodes(shortest($p, $x, knows))"), "T6", "`$x` is not bound", ""),
    (_match('$p any $x bm25($x.name, "a") > 1.0'), "T6", "one type", "bind it"),
    (_match("$p knows{3,2} $f"), "T15", "3 to 2", "{2,3}"),
    (_match("", "$p.name", 'order { nearest($p.vec, ["a"]) } limit 1'), "T15", "Vector(3)", ""),
    (_match("", "$p.name", 'order { nearest($x.vec, "a") } limit 1'), "T15", "`$x`", ""),
    (_match("", "$p.name", 'order { nearest($p.vex, "a") } limit 1'), "T15", "`vex`", "`vec`"),
    ('query q() { update Knows set { from: "x" } where to = "y" }', "T16", "endpoint", ""),
    (_match("$p $w:knows $f $w knows $g"), "T23", "endpoint", ""),
    (_match("$p $w:knows $f $p $w:knows $g"), "T23", "already bound", ""),
    (_match("", "$p.name", 'order { nearest($p.vec, "a"), $p.photo } limit 1'), "T24", "Blob", ""),
    (_match("$p: Company"), None, "already bound to type `Person`", ""),
    (_match("", "$x"), None, "`$x`", ""),
    (_match("", "$_"), None, "cannot be referred to", ""),
    (_match("not { $p knows $f }", "$f"), None, "`$f`", "inside `not { }` only"),
    (_match("", "$p.name as a, $p.age as a"), None, "twice", ""),
    (_match("", "$p.age as years", "order { year }"), None, "`year`", "`years`"),
    (_match("$p.name = alice"), None, "`alice`", '"alice"'),
    (_match("", "$p.name", "limit $n", "$n: String"), None, "integer", ""),
    (_match("", "$p.name", "limit $n"), None, "declared", ""),
    (_match("", "$p.name", params="$a: I32, $a: I32"), None, "twice", ""),
    (
        "query q() { match { $p: Person } return distinct { $p.name } order { $p.age } }",
        None,
        "returned",
        "`return`",
    ),
    (
        'query q() { update Person set { name: "b" } where name = "a" }',
        None,
        "cannot update @key property 'name'",
        "",
    ),
    ('query q() { insert Person { name: "a", rank: -1 } }', "T7", "-1", "0 to"),
    ('query q() { insert Person { name: "a", rank: 1.5 } }', "T7", "fraction", ""),
    ("query q() { insert Person { name: null, rank: 1 } }", "T3", "required", ""),
    ("query q($a: [I32]) { insert Person { name: $a, rank: 1 } }", "T7", "[I32]", "String"),
    (
        'query q() { insert Person { name: "a", rank: 1, tags: ["a", 1] } }',
        None,
        "compatible",
        "mixes",
    ),
]


@pytest.mark.parametrize(("source", "code", "text", "hint"), REFUSED)
def test_a_type_error_says_what_is_wrong_and_what_would_work(source, code, text, hint):
    with pytest.raises(TypeCheckError) as caught:
        compile_query(source, SCHEMA)
    error = caught.value
    assert error.t_code == code
    assert text in error.message
    assert hint in (error.hint or "")
    assert error.message.startswith(f"type error: {code}: " if code else "type error: ")
    assert "^" in error.excerpt


def test_all_type_errors_of_a_query_are_told_with_their_places():
    source = """query q() {
    match {
        $p: Person { salary: 1 }
        $p.age > "old"
        $p likes $f
    }
    return { $p.nam, sum($p.name) }
}
"""
    (result,) = lint_source(source, SCHEMA).results
    found = [(problem.t_code, problem.line, problem.column) for problem in result.errors]
    assert found == [("T4", 5, 12), ("T2", 3, 22), ("T7", 4, 16), ("T6", 7, 14), ("T8", 7, 22)]
    with pytest.raises(TypeCheckError) as caught:
        compile_query(source, SCHEMA)
    assert [item["t_code"] for item in caught.value.errors] == ["T4", "T2", "T7", "T6", "T8"]
    assert (caught.value.line, caught.value.column) == (5, 12)


# (source, line, column, part of the message, part of the hint)
UNPARSED = [
    ("query q(", 1, 9, "parameter", ""),
    ("qurey q() {}", 1, 1, "`query`", "did you mean `query`?"),
    ("query q() { mach { $p: P } }", 1, 13, "`match`", "`match`"),
    ("query q() {\n  match { $p Person }\n  return { $p } }", 2, 14, "`Person`", "`$p: Person`"),
    ("query q() { match { $p: person } return { $p } }", 1, 25, "node type", "upper-case"),
    ("query q() { match { $p: P $p.a == 1 } return { $p } }", 1, 33, "a value", "equality"),
    ("query q() { match { $p: P $p.a = 'x' } return { $p } }", 1, 34, '"\'"', "double quotes"),
    ("query q() { match { $p: P; } return { $p } }", 1, 26, "';'", "new line"),
    ("query q() { match { $p: P $p.a = 1 && $p.b = 2 } return { $p } }", 1, 36, "'&'", "`and`"),
    ("query q() { match { $p: P $p.a < 1 < 2 } return { $p } }", 1, 36, "end of the", "chain"),
    ("query q() { match { $p: P $p Knows $f } return { $p } }", 1, 30, "`Knows`", "lower case"),
    ("query q() { match { $p: P $p $w:Knows $f } return { $p } }", 1, 33, "edge name", "`knows`"),
    ("query q() { match { $p: P nott { $p knows $x } } return { $p } }", 1, 27, "`nott`", "`not`"),
    ('query q() { match { $p: P "unclosed } return { $p } }', 1, 27, "unterminated string", '"'),
    ("query q() { /* match { $p: P } return { $p } }", 1, 13, "unterminated comment", "*/"),
    ("query q() { match { $p: P coun($p) > 1 } return { $p } }", 1, 27, "`coun`", "`count`"),
    ("query q() { match { $p: P } return { $p } limit x }", 1, 49, "whole number", "limit 10"),
    ("query q() { match { $p: P } return { $p.tags[0, 1] } }", 1, 47, "`]`", "list[1..3]"),
    ("query q() { match { $p: P $p.tags[] = 1 } return { $p } }", 1, 35, "a value", ""),
    ("query q() { delete P where tags[1..2 = 1 }", 1, 38, "`]`", "list[1..3]"),
    ("query q() { match { $p: P } return { case when $p.a then 1 } }", 1, 60, "`end`", ""),
    ("query q() { match { $p: P } return { case when $p.a 1 end } }", 1, 53, "`then`", ""),
    ("MATCH (a:P)-[:KNOWS]->(b) RETURN a", 1, 1, "`query`", "query find()"),
    ("SELECT * FROM P", 1, 1, "`query`", "query find()"),
    ("query q() { MATCH (a:P) RETURN a }", 1, 19, "`{` after `match`", "`match { $a: P }`"),
    ("query q() { match { (a:P) } return { a } }", 1, 21, "a clause", "`$a: P`"),
    ("query q() { match { $a: P $a -[:knows]-> $b } return { $a } }", 1, 30, "edge", "$a knows $b"),
    ("query q() { match { $p: P } RETURN * }", 1, 36, "`{`", "$p.*"),
    ("query q() { match { $p: P } return $p }", 1, 36, "`{`", "braces"),
    ("query q() { match { $p: P } WHERE $p.a = 1 return { $p } }", 1, 29, "`return`", "clauses"),
    ("query q() { match { $p: P } return { $p } SKIP 3 }", 1, 43, "`}`", "offset"),
    ("query q() { match { $p: P } return { $p } GROUP BY x }", 1, 43, "`}`", "group key"),
    ("query q() { match { $p: P } return { $p } ORDER BY $p.a }", 1, 49, "`{`", "order {"),
    ("query q() { CREATE (a:P) }", 1, 13, "`match`", "insert P"),
    ("query q() { select name }", 1, 13, "`match`", "return { $p.name }"),
    ("query q() { match { $p: P } return { size($p.a) } }", 1, 38, "`size`", "`length(x)`"),
    ("query q() { match { $p: P } return { toUpper($p.a) } }", 1, 38, "`toUpper`", "`upper("),
    ("query q() { match { $p: P } return { degree($p) } }", 1, 47, "`,`", "degree($v, edge)"),
    ("query q() { delete P where exists { $p knows $x } }", 1, 28, "mutation", "properties"),
    ("query q() { match { $p: P } return { $p.a(1) } }", 1, 42, "`(`", "called"),
    ("query q() { match { $p: P } return { $p.a\n-$p.b as x } }", 2, 1, "begins with `-`", "comma"),
    ("query q() { match { $p: P $p.ok\n-1 < $p.a } return { $p } }", 2, 1, "`ok`", "parenth"),
    ("query q() { match { $p: P $p.a > 3\n-1\n-1 < 2 } return { $p } }", 3, 4, "`<`", "chain"),
    ("query q() { match { $p: P } where { $p.a = 1 } return { $p } }", 1, 29, "`return`", ""),
    ("query q() { delete P where $p.a = 1 }", 1, 28, "property access", "bare name"),
    ("query q() { match { $p: P $p.a = 1e999 } return { $p } }", 1, 34, "too large", ""),
    ("query q($a: Vector(0)) { match { $p: P } return { $p } }", 1, 20, "dimensions", ""),
    ("query q($a: text) { match { $p: P } return { $p } }", 1, 13, "parameter type", "String"),
]


@pytest.mark.parametrize(("source", "line", "column", "text", "hint"), UNPARSED)
def test_a_syntax_error_points_at_its_place(source, line, column, text, hint):
    with pytest.raises(ParseError) as caught:
        parse_file(source)
    error = caught.value
    assert (error.line, error.column) == (line, column)
    assert text in error.message
    assert hint in (error.hint or "")
    assert error.message.startswith("parse error: ")


def test_a_traversal_that_starts_nowhere_is_well_typed_but_refused():
    source = "query q() { match { $p: Person $a knows $b } return { $p.name } }"
    assert lint_source(source, SCHEMA).errors == 0
    with pytest.raises(TypeCheckError, match="starts nowhere") as caught:
        compile_query(source, SCHEMA)
    assert "`$a: Person`" in caught.value.hint


@pytest.mark.parametrize(
    "source",
    [
        _match("not { $p knows $x $y knows $z }"),
        _match("optional { $p knows $f } $f worksAt $c"),
        "query q() { match { $c: Company $_ knows $_ } return { $c } }",
    ],
)
def test_unreachable_traversals_are_found_at_every_depth(source):
    with pytest.raises(TypeCheckError, match="starts nowhere"):
        compile_query(source, SCHEMA)


def test_a_mutation_does_not_mix_deletes_with_the_rest():
    source = "query m() { insert Nope { a: 1 } delete Nope where a = 1 }"
    with pytest.raises(MixedMutationError, match="mutation 'm' on the same query mixes"):
        compile_query(source, SCHEMA)


TWO = """
query a() { match { $p: Person } return { $p } }
query b() { match { $c: Company } return { $c } }
"""


def test_the_query_is_chosen_by_name():
    assert compile_query(TWO, SCHEMA, "b").name == "b"
    with pytest.raises(InputError, match="multiple queries, and none was named") as caught:
        compile_query(TWO, SCHEMA)
    assert "`a`, `b`" in caught.value.hint
    with pytest.raises(NotFoundError, match="query 'c' not found; the file has: a, b"):
        compile_query(TWO, SCHEMA, "c")
    with pytest.raises(InputError, match="no query"):
        compile_query("// nothing", SCHEMA)


@pytest.mark.parametrize(
    "source",
    [
        _match("not {" * (limits.QUERY_NESTING_MAX + 1)),
        _match("$p.age > " + "(" * 5000),
        _match("$p.age > 1" + " + 1" * (limits.QUERY_OPERATORS_MAX + 1)),
        _match("$p.age > " + "-" * 5000 + "1"),
        _match("not " * 5000 + "$p.age > 1"),
        _match("$p.age > 1 " * (limits.QUERY_CLAUSES_MAX + 1)),
        "query q() { " + "delete P where a = 1 " * (limits.QUERY_STATEMENTS_MAX + 1) + "}",
    ],
    ids=["blocks", "parentheses", "operators", "minus", "not", "clauses", "statements"],
)
def test_deep_and_huge_inputs_meet_a_named_limit(source):
    with pytest.raises(ParseError, match="limited to"):
        parse_file(source)


def test_a_source_has_a_largest_size():
    with pytest.raises(LimitExceededError):
        parse_file(" " * (limits.QUERY_SOURCE_BYTES_MAX + 1))
    assert parse_file(" " * limits.QUERY_SOURCE_BYTES_MAX).queries == ()
