"""Lint tells everything about a file and never raises for bad source."""

from __future__ import annotations

import json

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
