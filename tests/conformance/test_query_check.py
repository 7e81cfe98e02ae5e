"""query_check.jsonl: what parses, what type-checks, what lint says and what parameters become."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from casebook import cases

from omnigraph.compiler.query import ast, bind_params, compile_query, lint_source, parse_file
from omnigraph.compiler.query.compile import choose_query
from omnigraph.compiler.schema import compile_schema
from omnigraph.errors import OmnigraphError, ParseError


@pytest.mark.parametrize("case", cases("query_check.jsonl"))
def test_the_case_is_answered_as_the_reference_does(case):
    runner = {
        "parse_grammar": _run_parse,
        "parse": _run_parse,
        "typecheck": _run_typecheck,
        "lint": _run_lint,
        "params": _run_params,
    }[case["stage"]]
    runner(case)


def _run_parse(case: dict[str, Any]) -> None:
    if case["ok"]:
        _assert_shape(parse_file(case["query"]).queries, case.get("expect", {}))
    else:
        with pytest.raises(ParseError) as caught:
            parse_file(case["query"])
        _assert_texts(caught.value.message, case)
        assert caught.value.line >= 1
        assert caught.value.column >= 1
    if "lint" in case:
        _run_lint(case)


def _run_typecheck(case: dict[str, Any]) -> None:
    catalog = compile_schema(case["schema"])
    report = lint_source(case["query"], catalog)
    assert not report.findings or all(item.severity != "error" for item in report.findings)
    (result,) = report.results
    assert (result.status == "ok") == case["ok"], result.error
    if not case["ok"]:
        assert result.error is not None
        assert result.code == case.get("code", result.code)
        _assert_texts(result.error, case)
        with pytest.raises(OmnigraphError):
            compile_query(case["query"], catalog)
        return
    expect = case.get("expect", {})
    if "mutation_targets" in expect:
        plan = compile_query(case["query"], catalog).plan
        assert [f"{s.kind}:{s.type_name}" for s in plan.statements] == expect["mutation_targets"]
    for name, target in expect.get("bindings", {}).items():
        bound = compile_query(case["query"], catalog).plan.variables[name]
        assert f"{bound.kind}:{bound.type_name}" == target


def _assert_texts(message: str, case: dict[str, Any]) -> None:
    for part in case.get("error_contains", ()):
        assert part in message
    if "error_exact" in case:
        assert message == case["error_exact"]


# --- parse: the shape of the tree ---


def _assert_shape(queries: tuple[ast.Query, ...], expect: dict[str, Any]) -> None:
    for query, wanted in zip(queries, expect.get("queries", ()), strict=False):
        _assert_query(query, wanted)
    bodies = [query.body for query in queries]
    clauses = [c for body in bodies if isinstance(body, ast.ReadBody) for c in body.clauses]
    walks = [clause for clause in clauses if isinstance(clause, ast.Traversal)]
    for walk, wanted in zip(walks, expect.get("traversals", ()), strict=False):
        _assert_traversal(walk, wanted)
    filters = [clause.expr for clause in clauses if isinstance(clause, ast.FilterClause)]
    assert len(filters) >= len(expect.get("filters", ()))
    for expr, wanted in zip(filters, expect.get("filters", ()), strict=False):
        _assert_filter(expr, wanted)
    statements = [s for b in bodies if isinstance(b, ast.MutationBody) for s in b.statements]
    for statement, wanted in zip(statements, expect.get("mutations", ()), strict=False):
        _assert_statement(statement, wanted)


def _assert_query(query: ast.Query, wanted: dict[str, Any]) -> None:
    body = query.body
    assert isinstance(body, ast.ReadBody)
    assert len(body.clauses) == wanted.get("clauses", len(body.clauses))
    for param, declared in zip(query.params, wanted.get("params", ()), strict=False):
        assert param.name == declared["name"]
        assert str(param.type).removesuffix("?") == declared["type"]
        assert param.type.nullable == declared.get("nullable", param.type.nullable)
    if "aliases" in wanted:
        assert [item.alias for item in body.projections] == wanted["aliases"]
    for ordering, key in zip(body.orderings, wanted.get("order", ()), strict=False):
        assert (ordering.direction == "desc") == key["descending"]
        assert isinstance(ordering.expr, ast.Call)
        assert ordering.expr.name == key["expr"]
        if "k" in key:
            assert ordering.expr.args[2].value == key["k"]


def _assert_traversal(walk: ast.Traversal, wanted: dict[str, Any]) -> None:
    seen = {
        "src": walk.src.name,
        "dst": walk.dst.name,
        "edge": walk.edge,
        "undirected": walk.undirected,
        "min": walk.min_hops,
        "max": walk.max_hops,
        "edge_binding": walk.edge_var.name if walk.edge_var else None,
    }
    assert {name: seen[name] for name in wanted} == wanted


def _assert_filter(expr: ast.Expr, wanted: dict[str, Any]) -> None:
    if isinstance(expr, ast.Call):
        # A bare search function is short for `search(...) = true`.
        expr = ast.Binary("=", expr, ast.Lit("bool", True, 0), 0)
    assert isinstance(expr, ast.Binary)
    seen: dict[str, Any] = {"op": expr.op}
    if isinstance(expr.left, ast.Call):
        seen["left"] = expr.left.name
    if isinstance(expr.right, ast.Lit):
        kind = {"date": "right_date", "datetime": "right_datetime"}.get(expr.right.kind)
        seen[kind or "right_literal"] = expr.right.value
    assert {name: seen.get(name) for name in wanted} == wanted


def _assert_statement(statement: ast.Statement, wanted: dict[str, Any]) -> None:
    seen: dict[str, Any] = {
        "kind": type(statement).__name__.lower(),
        "type": statement.type_name,
    }
    if not isinstance(statement, ast.Delete):
        seen["assignments"] = len(statement.assigns)
    if not isinstance(statement, ast.Insert):
        assert isinstance(statement.where, ast.Binary)
        assert isinstance(statement.where.left, ast.Word)
        seen["predicate"] = [statement.where.left.name, statement.where.op]
    assert {name: seen[name] for name in wanted} == wanted


# --- lint ---


def _run_lint(case: dict[str, Any]) -> None:
    report = lint_source(case["query"], compile_schema(case["schema"])).to_json()
    wanted = case["lint"]
    for name in ("status", "queries_processed", "errors", "warnings", "infos"):
        assert report[name] == wanted.get(name, report[name])
    assert len(report["findings"]) == wanted.get("findings_count", len(report["findings"]))
    for seen, finding in zip(report["findings"], wanted.get("findings", ()), strict=False):
        assert {name: seen[name] for name in finding} == finding
    for result in wanted.get("results", ()):
        seen = next(item for item in report["results"] if item["name"] == result["name"])
        _assert_lint_result(seen, dict(result))


def _assert_lint_result(seen: dict[str, Any], wanted: dict[str, Any]) -> None:
    if "error_contains" in wanted:
        assert wanted.pop("error_contains") in seen["error"]
    if wanted.pop("operation_absent", False):
        assert "operation" not in seen
    if "warnings_count" in wanted:
        assert len(seen["warnings"]) == wanted.pop("warnings_count")
    operation = wanted.pop("operation", {})
    for name in ("reads", "writes"):
        assert seen.get("operation", {}).get(name) == operation.get(
            name, seen.get("operation", {}).get(name)
        )
    columns = operation.get("result", ())
    if "result" in operation:
        assert len(seen["operation"]["result"]) == len(columns)
    for column, described in zip(
        columns, seen.get("operation", {}).get("result", ()), strict=False
    ):
        assert {name: described.get(name) for name in column} == column
    assert {name: seen[name] for name in wanted} == wanted


# --- parameters ---


def _run_params(case: dict[str, Any]) -> None:
    query = choose_query(parse_file(case["query"]).queries, None)
    mode = case.get("param_mode", "standard")
    if not case["ok"]:
        with pytest.raises(OmnigraphError) as caught:
            bind_params(query.params, case["params"], mode=mode)
        _assert_texts(caught.value.message, case)
        return
    bound = bind_params(query.params, case["params"], mode=mode)
    for name, value in case.get("expect", {}).get("bound", {}).items():
        assert bound[name] == _as_bound(
            value, next((p for p in query.params if p.name == name), None)
        )


def _as_bound(value: Any, param: ast.ParamDecl | None) -> Any:
    """The case's JSON value in the form that plans use."""
    if isinstance(value, list):
        return [_as_bound(item, param) for item in value]
    if param is not None and isinstance(value, str):
        if param.type.scalar == "Date":
            return dt.date.fromisoformat(value)
        if param.type.scalar == "DateTime":
            return int(dt.datetime.fromisoformat(value).timestamp() * 1000)
    return value
