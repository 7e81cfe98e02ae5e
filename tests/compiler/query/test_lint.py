"""Lint tells everything about a file and never raises for bad source."""

from __future__ import annotations

import json
import time

import pytest

from omnigraph.compiler.query import lint_source
from omnigraph.compiler.schema import compile_schema

SCHEMA = compile_schema("""
node Person {
  name: String @key
  age: I32?
  bio: String?
  vec: Vector(2)? @embed("bio")
  raw: Vector(2)?
  role: enum(admin, user) @default("user")
}
node Company { name: String @key }
edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company
""")


def test_the_report_has_the_fields_of_the_reference():
    source = "query q() { match { $p: Person $p $w:knows $f } return { $w.since, count($f) as n } }"
    where = (("kind", "file"), ("path", "s.pg"))
    report = lint_source(source, SCHEMA, query_path="q.gq", schema_source=where).to_json()
    assert json.loads(json.dumps(report)) == {
        "status": "ok",
        "schema_source": {"kind": "file", "path": "s.pg"},
        "query_path": "q.gq",
        "queries_processed": 1,
        "errors": 0,
        "warnings": 0,
        "infos": 0,
        "results": [
            {
                "name": "q",
                "kind": "read",
                "status": "ok",
                "warnings": [],
                "operation": {
                    "result": [
                        {"name": "since", "column": "w.since", "kind": "date", "nullable": True},
                        {"name": "n", "column": "n", "kind": "bigint", "nullable": False},
                    ],
                    "reads": [
                        {"kind": "node", "type_name": "Person"},
                        {"kind": "edge", "type_name": "Knows"},
                    ],
                    "writes": [],
                },
            }
        ],
        "findings": [],
    }


def test_the_json_keeps_its_order():
    body = lint_source("query q() { match { $p: Person } return { $p.name } }", SCHEMA).to_json()
    assert list(body)[:4] == ["status", "schema_source", "query_path", "queries_processed"]
    assert list(body["results"][0]) == ["name", "kind", "status", "warnings", "operation"]
    broken = lint_source("query", SCHEMA).to_json()["findings"][0]
    assert list(broken)[-1] == "query_names"


def test_a_text_that_does_not_parse_is_one_finding_with_its_place():
    report = lint_source("query q() {\n  match { $p Person }\n}", SCHEMA)
    (finding,) = report.findings
    assert (finding.code, finding.severity) == ("Q000", "error")
    assert (finding.line, finding.column) == (2, 14)
    assert (report.status, report.errors, report.results) == ("error", 1, ())
    assert finding.to_json()["hint"] == finding.hint


def test_type_errors_and_mixed_mutations_stay_with_their_query():
    report = lint_source(
        """query ok() { match { $p: Person } return { $p } }
        query bad() { match { $p: Person } return { $p.x, $p.y } }
        query mixed() { insert Company { name: "a" } delete Company where name = "a" }""",
        SCHEMA,
    )
    assert [result.status for result in report.results] == ["ok", "error", "error"]
    assert [problem.t_code for problem in report.results[1].errors] == ["T6", "T6"]
    assert report.results[1].code == "T6"
    assert report.results[2].code == "mixed-mutation"
    assert report.errors == 2
    assert report.results[1].to_json()["errors"][1]["line"] == 2


# (query, how many warnings, part of the first)
WARNED = [
    ('query q() { insert Company { name: "a" } }', 1, "no parameters"),
    ("query q($n: String) { insert Company { name: $n } }", 0, ""),
    ("query q() { match { $a knows $b } return { $a.name } }", 1, "starts nowhere"),
    ('query q() { match { $p: Person $p.role = "adm" } return { $p } }', 1, "(line 1, column"),
    ('query q() { match { $p: Person $p.role != "user" } return { $p } }', 0, ""),
]


@pytest.mark.parametrize(("source", "count", "text"), WARNED)
def test_a_query_is_warned_about(source, count, text):
    report = lint_source(source, SCHEMA)
    (result,) = report.results
    assert (report.status, report.warnings, len(result.warnings)) == ("ok", count, count)
    assert all(text in warning for warning in result.warnings)


def test_l201_spares_keys_and_embeddings():
    report = lint_source(
        'query u($n: String) { update Person set { bio: "x" } where name = $n }', SCHEMA
    )
    assert [finding.property for finding in report.findings] == ["age", "raw"]


# (query, reads, writes)
TOUCHED = [
    ('delete Company where name = "a"', "node:Company edge:WorksAt", "node:Company edge:WorksAt"),
    ('update Knows set { since: null } where from = "a"', "edge:Knows", "edge:Knows"),
    (
        'insert WorksAt { from: "a", to: "b" }',
        "node:Company node:Person edge:WorksAt",
        "edge:WorksAt",
    ),
]


@pytest.mark.parametrize(("statement", "reads", "writes"), TOUCHED)
def test_an_operation_tells_the_types_it_touches(statement, reads, writes):
    (result,) = lint_source(f"query q() {{ {statement} }}", SCHEMA).results
    operation = result.operation
    assert " ".join(f"{use.kind}:{use.type_name}" for use in operation.reads) == reads
    assert " ".join(f"{use.kind}:{use.type_name}" for use in operation.writes) == writes


def test_optional_and_negated_blocks_are_read_too():
    source = """query q() {
        match { $p: Person  optional { $p worksAt $c }  not { $p knows $_ } }
        return { $p }
    }"""
    (result,) = lint_source(source, SCHEMA).results
    assert [use.type_name for use in result.operation.reads] == [
        "Company",
        "Person",
        "Knows",
        "WorksAt",
    ]


NAMED = "$p: Person { name: $n, bio: $m }"
EARLY, LATE = 'date("2019-01-01")', 'date("2020-01-01")'
# (clauses of a match of `query q($n: String, $m: String)`, codes and the text at their places)
REMARKED = [
    ("$p: Person { name: $n }  $c: Company { name: $m }", []),
    ("$p: Person { name: $n }  $p.bio != $m", []),
    ("$p: Person", [("L203", "$n"), ("L203", "$m")]),
    ("$p: Person  $c: Company  $p.name != $n  $c.name != $m", [("L204", "$c: Company")]),
    ("$p: Person  $c: Company  $p.name > $n  $c.name != $m  $p worksAt $c", []),
    ("$p: Person  $c: Company  $p.bio = $c.name  $p.bio != $n  $c.name != $m", []),
    ("$p: Person  $c: Company  $p.bio > $n  $c.name > $m  not { $p worksAt $c }", []),
    ("$p: Person { name: $n }  $p knows $x  $x.bio = $m", []),
    ("$p: Person { name: $n, bio: $m }  $p knows $x", [("L206", "$x")]),
    ("$p: Person { name: $n, bio: $m }  $p $w:knows $x  $x.age > 1", [("L206", "$w:")]),
    ("$p: Person { name: $n, bio: $m }  $p.age > 3  $p.age < 3", [("L205", "$p.age < 3")]),
    ("$p: Person { name: $n, bio: $m }  $p.age >= 3  $p.age <= 3", []),
    ("$p: Person { name: $n, bio: $m }  $p.age > 3 and 3 > $p.age", [("L205", "3 > $p.age")]),
    ("$p: Person { name: $n, bio: $m }  $p.age > 3 or $p.age < 3", []),
    ("$p: Person { name: $n, bio: $m }  $p.age = 3  $p.age = 4", [("L205", "$p.age = 4")]),
    ("$p: Person { name: $n, bio: $m }  $p.age in [1]  $p.age in [3]", [("L205", "$p.age in [3]")]),
    ("$p: Person { name: $n, bio: $m }  $p.age between 5 and 3", [("L205", "$p.age between")]),
    ("$p: Person { name: $n, bio: $m }  $p.age > 3  $p.age is null", [("L205", "$p.age is")]),
    ("$p: Person { name: $n, bio: $m }  $p.age is null  $p.age < 3", [("L205", "$p.age < 3")]),
    ('$p: Person { name: $n, bio: $m }  $p.role in ["x"]', [("L205", "$p.role in")]),
    ('$p: Person { name: $n, bio: $m }  $p.role in ["user"]', []),
    ("$p: Person { name: $n, bio: $m }  1 = 2", [("L205", "1 = 2")]),
    ("$p: Person { name: $n, bio: $m }  1 = 1", []),
    ("$p: Person { name: $n, bio: $m }  $p.age > 3  not { $p knows $x  $p.age < 2 }",
     [("L205", "$p.age < 2"), ("L206", "$x")]),
    ("$p: Person { name: $n, bio: $m }  not { $p knows $x  $x.age < 2  $x.age > 4 }",
     [("L205", "$x.age > 4")]),
    (f"{NAMED}  $p $w:knows $p  $w.since < {EARLY}  $w.since > {LATE}",
     [("L205", "$w.since > ")]),
    ('$p: Person { name: $n, bio: $m }  $p.name = "Ann"', []),
    ('$p: Person { name: "Bob", bio: $m }  $p.name = "Ann"  $p.name > $n', [("L205", "$p.name =")]),
]  # fmt: skip


@pytest.mark.parametrize(("clauses", "told"), REMARKED)
def test_what_is_hardly_meant_is_told_at_its_place(clauses, told):
    source = f"query q($n: String, $m: String) {{ match {{ {clauses} }} return {{ $p.age }} }}"
    report = lint_source(source, SCHEMA)
    assert report.status == "ok", report.results
    found = [(one.code, one.column) for one in report.findings]
    assert sorted(code for code, _ in found) == sorted(code for code, _ in told)
    for (_, column), (_, text) in zip(sorted(found), told, strict=True):
        assert source[column - 1 :].startswith(text)


def test_a_condition_of_a_statement_is_looked_at_too():
    source = "query q($n: String) { update Person set { bio: $n } where age > 3 and age < 2 }"
    assert "L205" in {finding.code for finding in lint_source(source, SCHEMA).findings}


BROKEN = """query one() { match { $p: Person } return { $p.nam } }

query two() { match { $p Person } return { $p.name } }
query three() { match { $p: Person } return { $p.name }
query four($x: String) { match { $p: Person } return { $p.name } }
query five() { match { $p: Person } return { 'x' } }
  query six() { insert Company { nme: "a" } }
"""


def test_all_errors_of_all_queries_are_told_in_the_order_of_the_text():
    report = lint_source(BROKEN, SCHEMA)
    assert [result.name for result in report.results] == ["one", "four", "six"]
    assert [(line, code) for line, _, code, _ in report.places()] == [
        (1, "T6"),
        (3, "Q000"),
        (5, "Q000"),
        (5, "L203"),
        (6, "Q000"),
        (7, "T12"),
        (7, "T11"),
    ]
    assert (report.status, report.errors) == ("error", 5)


@pytest.mark.parametrize("text", ["", "}", "query", "query q", "'", '"', "/*", "query q() {" * 200])
def test_lint_never_raises_for_bad_source(text):
    assert lint_source(text, SCHEMA).status in {"ok", "error"}


@pytest.mark.parametrize("slip", ["$p Person", "$p: Person 'x'", "$p: Person  (a)-[:KNOWS]->(b)"])
def test_a_long_file_of_slips_is_told_in_time_that_grows_with_its_length(slip):
    broken = "query q() { match { " + slip + " } return { $p.name } }\n"
    began = time.process_time()
    report = lint_source(broken * 8_000, SCHEMA)
    assert report.errors >= 100
    assert time.process_time() - began < 10
