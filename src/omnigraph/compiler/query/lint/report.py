"""Lint: every query of a text checked, described and looked at with the whole file in mind. It
raises nothing for bad source: what cannot be read is a finding, and the rest is checked all the
same."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import asdict

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.compile import Operation, checked, operation_of, require_unmixed
from omnigraph.compiler.query.hints.elsewhere import taught_problem
from omnigraph.compiler.query.lint.advice import remarks
from omnigraph.compiler.query.parse import SOURCE_NAME, parse_all
from omnigraph.compiler.query.scope import WILDCARD
from omnigraph.compiler.text import Problem, Problems, SourceText
from omnigraph.errors import InputError, MixedMutationError, ParseError
from omnigraph.model.schema import Catalog, EdgeType, NodeType

_SEVERITIES = ("error", "warning", "info")
HARDCODED = "mutation has no parameters: every run writes the same values"


class LintFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something about the file. Q000: a query that does not parse; L*: advice."""

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
    line: int = 1
    column: int = 1
    places: tuple[tuple[int, int], ...] = ()  # of the warnings

    def to_json(self) -> dict[str, Any]:
        body = {
            name: value
            for name, value in asdict(self).items()
            if (value or name == "warnings") and name not in {"line", "column", "places"}
        }
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

    def places(self) -> list[tuple[int, int, str, str]]:
        """Everything that has a place: line, column, code and words, in the order of the text."""
        found: list[tuple[int, int, str, str]] = []
        for result in self.results:
            if result.status == "error" and not result.errors:
                found.append((result.line, result.column, result.code or "E", result.error or ""))
            found += [
                (each.line, each.column, each.t_code or "E", _words(each.message, each.hint))
                for each in result.errors
            ]
            found += [
                (*place, "L208", text)
                for place, text in zip(result.places, result.warnings, strict=True)
            ]
        found += [
            (each.line, each.column, each.code, _words(each.message, each.hint))
            for each in self.findings
            if each.line is not None and each.column is not None
        ]
        return sorted(found)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "schema_source": dict(self.schema_source),
            "results": [result.to_json() for result in self.results],
            "findings": [finding.to_json() for finding in self.findings],
        }


def _words(message: str, hint: str | None) -> str:
    """A problem on one line, with what would work."""
    message = _STAGE.sub("", message)
    text = message if hint is None else f"{message} ({hint})"
    return " ".join(text.split())


_STAGE = re.compile(r"^(?:type|parse|catalog) error: (?:T\d+: )?")


def lint_source(
    source: str,
    catalog: Catalog,
    *,
    query_path: str | None = None,
    schema_source: Sequence[tuple[str, str]] = (),
) -> LintReport:
    """Check every query of the text. `schema_source` is where the catalog came from, as
    (("kind", "file"), ("path", …)) or (("kind", "graph"), ("uri", …))."""
    text = SourceText(source, SOURCE_NAME)
    try:
        queries, refused = parse_all(source)
    except InputError as error:  # a text beyond the limits is not read at all
        return _report((), (_unparsed(error),), query_path, schema_source)
    results: list[LintResult] = []
    findings: list[LintFinding] = [_unparsed(error) for error in refused]
    for query in queries:
        result, found = _linted(query, text, catalog)
        results.append(result)
        findings += found
    # What a broken update leaves unset says nothing about what its author meant to set.
    sound = [query for query, result in zip(queries, results, strict=True) if result.status == "ok"]
    findings += [*_unset_properties(sound, catalog), *_repeated_names(queries)]
    return _report(results, sorted(findings, key=_sort_key), query_path, schema_source)


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
    line, column = (error.line, error.column) if isinstance(error, ParseError) else (None, None)
    return LintFinding(
        severity="error",
        code="Q000",
        message=error.message,
        line=line,
        column=column,
        hint=error.hint,
    )


def _linted(
    query: ast.Query, source: SourceText, catalog: Catalog
) -> tuple[LintResult, list[LintFinding]]:
    line, column = source.place(query.at)
    made = partial(LintResult, name=query.name, kind=query.kind, line=line, column=column)
    try:
        require_unmixed(query)
    except MixedMutationError as error:
        return made(status="error", error=error.message, code=error.code), []
    plan, problems = checked(query, source, catalog)
    found = tuple(taught_problem(problem, source) for problem in problems.found())
    if found:
        first = found[0]
        return made(status="error", error=first.message, code=first.t_code, errors=found), []
    assert plan is not None, "a query without problems has a plan"
    warnings, places = _warnings(query, problems, (line, column))
    result = made(
        status="ok",
        warnings=warnings,
        places=places,
        operation=operation_of(plan, catalog),
    )
    return result, [
        LintFinding(
            severity=remark.severity,
            code=remark.code,
            message=remark.message,
            line=source.place(remark.at)[0],
            column=source.place(remark.at)[1],
            query_names=(query.name,),
        )
        for remark in remarks(query, catalog, _types(plan, catalog))
    ]


def _warnings(
    query: ast.Query, problems: Problems, place: tuple[int, int]
) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    """What the checker says about a sound query, and where."""
    found = [
        (f"{problem.message} ({problem.hint})", (problem.line, problem.column))
        for problem in problems.unplannable()
    ]
    found += [(text, problems.source.place(at)) for at, text in problems.advice]
    if query.kind == "mutation" and not query.params:
        found.append((HARDCODED, place))
    return tuple(text for text, _ in found), tuple(at for _, at in found)


def _types(
    plan: ir.QueryPlan | ir.MutationPlan, catalog: Catalog
) -> Mapping[str, NodeType | EdgeType]:
    """The types of variables by their written names, as far as a name means one variable of one
    type."""
    if isinstance(plan, ir.MutationPlan):
        return {}
    found: dict[str, set[str]] = {}
    kinds: dict[str, str] = {}
    for part in ir.plans_of(plan):
        for name, bound in part.variables.items():
            written = name.partition("#")[0]
            if written == WILDCARD:
                continue
            found.setdefault(written, set()).update(bound.types)
            kinds[written] = bound.kind if kinds.get(written, bound.kind) == bound.kind else ""
    known: dict[str, NodeType | EdgeType] = {}
    for written, types in found.items():
        declared = catalog.nodes if kinds[written] == "node" else catalog.edges
        only = next(iter(types)) if len(types) == 1 else ""
        if kinds[written] and only in declared:
            known[written] = declared[only]
    return known


def _sort_key(finding: LintFinding) -> tuple[int, str, str, int, str]:
    severity = _SEVERITIES.index(finding.severity)
    return (
        severity,
        finding.type_name or "",
        finding.property or "",
        finding.line or 0,
        finding.message,
    )


def _unset_properties(queries: Sequence[ast.Query], catalog: Catalog) -> list[LintFinding]:
    """L201: a nullable property that no update sets, although updates touch its type."""
    touched: dict[str, set[str]] = {}
    set_somewhere: dict[str, set[str]] = {}
    for query in queries:
        if not isinstance(query.body, ast.MutationBody):
            continue
        for statement in query.body.simple:
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
