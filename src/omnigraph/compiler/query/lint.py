"""Lint: every query of a text checked, described and looked at with the whole file in mind.

Nothing here raises for bad source: what is wrong becomes part of the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict

from omnigraph.compiler.query import ast
from omnigraph.compiler.query.compile import (
    Operation,
    check_parsed,
    operation_of,
    require_unmixed,
)
from omnigraph.compiler.query.parse import SOURCE_NAME, parse_file
from omnigraph.compiler.text import Problem, SourceText
from omnigraph.errors import InputError, MixedMutationError, ParseError
from omnigraph.model.schema import Catalog, EdgeType, NodeType

_SEVERITIES = ("error", "warning", "info")
HARDCODED = "mutation has no parameters: every run writes the same values"


class LintFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something about the file as a whole. Q000: it does not parse; L*: advice."""

    severity: str
    code: str
    message: str
    type_name: str | None = None
    property: str | None = None
    line: int | None = None
    column: int | None = None
    hint: str | None = None
    query_names: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        body = {name: value for name, value in asdict(self).items() if value is not None}
        return body | {"query_names": list(self.query_names)}


class LintResult(msgspec.Struct, frozen=True, kw_only=True):
    """One query. `error` is its first problem as text, `errors` are all of them."""

    name: str
    kind: str
    status: str
    warnings: tuple[str, ...] = ()
    error: str | None = None
    code: str | None = None
    errors: tuple[Problem, ...] = ()
    operation: Operation | None = None

    def to_json(self) -> dict[str, Any]:
        body = {name: value for name, value in asdict(self).items() if value or name == "warnings"}
        body["warnings"] = list(self.warnings)
        if self.errors:
            body["errors"] = [problem.to_json() for problem in self.errors]
        if self.operation is not None:
            body["operation"] = self.operation.to_json()
        return body


class LintReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole report; `to_json` is what `omnigraph lint --json` prints."""

    status: str
    schema_source: tuple[tuple[str, str], ...] = ()
    query_path: str | None = None
    queries_processed: int
    errors: int
    warnings: int
    infos: int
    results: tuple[LintResult, ...]
    findings: tuple[LintFinding, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "schema_source": dict(self.schema_source),
            "results": [result.to_json() for result in self.results],
            "findings": [finding.to_json() for finding in self.findings],
        }


def lint_source(
    source: str,
    catalog: Catalog,
    *,
    query_path: str | None = None,
    schema_source: Sequence[tuple[str, str]] = (),
) -> LintReport:
    """Check every query of the text. `schema_source` is where the catalog came from, as
    (("kind", "file"), ("path", …)) or (("kind", "graph"), ("uri", …))."""
    try:
        queries = parse_file(source).queries
    except InputError as error:
        return _report((), (_unparsed(error),), query_path, schema_source)
    text = SourceText(source, SOURCE_NAME)
    results = [_checked(query, text, catalog) for query in queries]
    # What a broken update leaves unset says nothing about what its author meant to set.
    sound = [query for query, result in zip(queries, results, strict=True) if result.status == "ok"]
    findings = sorted(
        (*_unset_properties(sound, catalog), *_repeated_names(queries)), key=_sort_key
    )
    return _report(results, findings, query_path, schema_source)


def _report(
    results: Sequence[LintResult],
    findings: Sequence[LintFinding],
    query_path: str | None,
    schema_source: Sequence[tuple[str, str]],
) -> LintReport:
    counts = {
        severity: sum(finding.severity == severity for finding in findings)
        for severity in _SEVERITIES
    }
    errors = counts["error"] + sum(result.status == "error" for result in results)
    warnings = counts["warning"] + sum(len(result.warnings) for result in results)
    return LintReport(
        status="error" if errors else "ok",
        queries_processed=len(results),
        errors=errors,
        warnings=warnings,
        infos=counts["info"],
        results=tuple(results),
        findings=tuple(findings),
        schema_source=tuple(schema_source),
        query_path=query_path,
    )


def _unparsed(error: InputError) -> LintFinding:
    place = (error.line, error.column) if isinstance(error, ParseError) else (None, None)
    return LintFinding(
        severity="error",
        code="Q000",
        message=error.message,
        line=place[0],
        column=place[1],
        hint=error.hint,
    )


def _checked(query: ast.Query, source: SourceText, catalog: Catalog) -> LintResult:
    try:
        require_unmixed(query)
    except MixedMutationError as error:
        return LintResult(
            name=query.name, kind=query.kind, status="error", error=error.message, code=error.code
        )
    checked = check_parsed(query, source, catalog)
    if checked.problems:
        first = checked.problems[0]
        return LintResult(
            name=query.name,
            kind=query.kind,
            status="error",
            error=first.message,
            code=first.t_code,
            errors=checked.problems,
        )
    assert checked.plan is not None, "a query without problems has a plan"
    warnings = [f"{problem.message} ({problem.hint})" for problem in checked.unplannable]
    warnings += checked.advice
    if query.kind == "mutation" and not query.params:
        warnings.append(HARDCODED)
    return LintResult(
        name=query.name,
        kind=query.kind,
        status="ok",
        warnings=tuple(warnings),
        operation=operation_of(checked.plan, catalog),
    )


# --- findings about the whole file -------------------------------------------------------------


def _sort_key(finding: LintFinding) -> tuple[int, str, str, str]:
    severity = _SEVERITIES.index(finding.severity)
    return severity, finding.type_name or "", finding.property or "", finding.message


def _unset_properties(queries: Sequence[ast.Query], catalog: Catalog) -> list[LintFinding]:
    """L201: a nullable property that no update sets, although updates touch its type."""
    touched: dict[str, set[str]] = {}
    set_somewhere: dict[str, set[str]] = {}
    for query in queries:
        if not isinstance(query.body, ast.MutationBody):
            continue
        for statement in query.body.statements:
            if isinstance(statement, ast.Update):
                touched.setdefault(statement.type_name, set()).add(query.name)
                names = {assign.name for assign in statement.assigns}
                set_somewhere.setdefault(statement.type_name, set()).update(names)
    findings: list[LintFinding] = []
    for type_name, names in touched.items():
        entity = catalog.nodes.get(type_name) or catalog.edges.get(type_name)
        if entity is None:
            continue
        findings.extend(
            LintFinding(
                severity="warning",
                code="L201",
                message=f"{type_name}.{prop} exists in schema but no update query sets it",
                type_name=type_name,
                property=prop,
                query_names=tuple(sorted(names)),
            )
            for prop in _settable(entity)
            if prop not in set_somewhere[type_name]
        )
    return findings


def _settable(entity: NodeType | EdgeType) -> list[str]:
    """What an update could sensibly set: nullable, not part of the key, not an embedding."""
    key = entity.key if isinstance(entity, NodeType) else ()
    return [
        prop.name
        for prop in entity.properties
        if prop.type.nullable and prop.name not in key and prop.embed is None
    ]


def _repeated_names(queries: Sequence[ast.Query]) -> list[LintFinding]:
    """L202: a second query of one name can never be chosen."""
    seen: set[str] = set()
    repeated: dict[str, None] = {}
    for query in queries:
        if query.name in seen:
            repeated[query.name] = None
        seen.add(query.name)
    return [
        LintFinding(
            severity="info",
            code="L202",
            message=f"query name `{name}` is used more than once; only the first can be run",
            query_names=(name,),
        )
        for name in repeated
    ]


__all__ = ["LintFinding", "LintReport", "LintResult", "lint_source"]
