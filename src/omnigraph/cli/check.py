"""`lint` and `fmt`: source files looked at without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from omnigraph.cli.call import Call, read_text, write_text
from omnigraph.cli.scope import Capability
from omnigraph.cli.verbs import verb
from omnigraph.errors import InputError

_LABELS = {"error": "ERROR", "warning": "WARN ", "info": "INFO "}


@verb("lint", capability=Capability.DIRECT, positional="uri")
@click.option("--query", "query_path", metavar="FILE", required=True, help="the .gq file")
@click.option("--schema", "schema_path", metavar="FILE", help="a .pg file instead of a graph")
def lint(call: Call, query_path: str, schema_path: str | None) -> None:
    """Check every query of a file against a schema file or a graph."""
    addressed = (call.flags.uri, call.flags.store, call.flags.profile)
    if schema_path is not None and any(value is not None for value in addressed):
        raise click.UsageError("the option '--schema' cannot be used with a graph")
    if schema_path is not None:
        schema = read_text(schema_path, what="schema")
        where = (("kind", "file"), ("path", schema_path))
    else:
        uri = call.target.uri
        with call.graph() as graph:
            schema = graph.schema_source()
        where = (("kind", "graph"), ("uri", uri))
    source = read_text(query_path, what="query file")
    from omnigraph.compiler.query import lint_source
    from omnigraph.compiler.schema import compile_schema

    catalog = compile_schema(schema, name=schema_path or "schema")
    report = lint_source(source, catalog, query_path=query_path, schema_source=where)
    body = report.to_json()
    call.emit(body, human=lint_lines(body))
    if body["errors"]:
        click.get_current_context().exit(1)


def lint_lines(body: dict[str, Any]) -> list[str]:
    """A lint report for people: a line a query, a line a finding, and the sum."""
    lines: list[str] = []
    for result in body["results"]:
        if result["status"] == "error":
            lines.append(f"ERROR query `{result['name']}`: {result.get('error', '')}")
        else:
            lines.append(f"OK    query `{result['name']}` ({result['kind']})")
        lines += [f"WARN  query `{result['name']}`: {text}" for text in result["warnings"]]
    lines += [f"{_LABELS[one['severity']]} {one['message']}" for one in body["findings"]]
    lines.append(
        f"INFO  Lint complete: {body['queries_processed']} queries processed "
        f"({body['errors']} error(s), {body['warnings']} warning(s), {body['infos']} info item(s))"
    )
    return lines


@verb("fmt", capability=Capability.LOCAL)
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--check", "check_only", is_flag=True, help="change nothing; exit 1 if something would"
)
def fmt(call: Call, paths: tuple[str, ...], *, check_only: bool) -> None:
    """Format .pg and .gq files in place."""
    changed: list[str] = []
    for path in paths:
        text = read_text(path, what="source file")
        pretty = formatted(text, path)
        if pretty != text:
            changed.append(path)
            if not check_only:
                write_text(path, pretty, what="source file")
    verb_text = "would format" if check_only else "formatted"
    payload = {"files": list(paths), "changed": changed, "check": check_only}
    call.emit(payload, human=[f"{verb_text} {path}" for path in changed] or ["nothing to format"])
    if check_only and changed:
        click.get_current_context().exit(1)


def formatted(text: str, path: str) -> str:
    """The file's text in the one layout of its language."""
    match Path(path).suffix:
        case ".gq":
            from omnigraph.compiler.query import format_source

            return format_source(text)
        case ".pg":
            from omnigraph.compiler.schema import format_schema

            return format_schema(text, name=path)
        case suffix:
            raise InputError(
                f"cannot format '{path}': unknown kind of file '{suffix}'",
                hint="schemas end in .pg, queries in .gq",
            )
