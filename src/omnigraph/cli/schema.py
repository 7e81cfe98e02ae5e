"""`schema`, `lint` and `fmt`: what is written in .pg and .gq files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.call import (
    Call,
    CommandGroup,
    branch_option,
    exclusive,
    message_option,
    once_option,
    read_text,
    told_places,
    verb,
    write_text,
)
from omnigraph.cli.scope import Capability
from omnigraph.errors import InputError
from omnigraph.model.tables import cell

if TYPE_CHECKING:
    from omnigraph.compiler.query import LintReport

schema = CommandGroup("schema", help="Show, plan, apply and propose schemas.")
codegen = CommandGroup("codegen", help="Write code from a schema.")
_LABELS = {"error": "ERROR", "warning": "WARN ", "info": "INFO "}
_COLOURS = {"ERROR": "red", "WARN": "yellow", "OK": "green"}
_SCHEMA_BEGINS = re.compile(
    r"(?:\s|//[^\n]*|/\*.*?\*/)*(?:node|edge|interface|config|import)\b", re.DOTALL
)
_LOSS = click.option(
    "--allow-data-loss", is_flag=True, help="let dropped types and properties go for good"
)


def _source(call: Call, branch: str) -> str:
    with call.graph() as graph:
        return graph.schema_source(branch)


@verb("schema show")
@branch_option
@click.option("--svg", "pictured", is_flag=True, help="draw the types and edges, as SVG text")
def show(call: Call, branch: str, *, pictured: bool) -> None:
    """Print the schema that a branch was written under."""
    source = _source(call, branch)
    if pictured:
        from omnigraph.compiler.schema import compile_schema
        from omnigraph.model.pictures.schema import draw_schema

        picture = draw_schema(compile_schema(source))
        call.emit({"svg": picture}, human=picture)
    else:
        call.emit({"schema_source": source}, human=source.rstrip("\n"))


@verb("schema get", hidden=True)
def get(call: Call, branch: str = "main") -> None:
    """Print the schema of main."""
    source = _source(call, branch)
    call.emit({"schema_source": source}, human=source.rstrip("\n"))


@verb("schema plan", capability=Capability.DIRECT)
@click.option("--schema", "--new", "new_path", metavar="FILE", required=True, help="the new schema")
@click.option("--old", "old_path", metavar="FILE", help="an old schema file instead of a graph")
@branch_option
@_LOSS
def plan(
    call: Call, new_path: str, old_path: str | None, branch: str, *, allow_data_loss: bool
) -> None:
    """Show the steps from the schema of a branch to another, without taking them."""
    addressed = call.flags.uri or call.flags.store
    exclusive({"--old": old_path, "a graph": addressed})
    source = read_text(new_path, what="schema")
    where: dict[str, Any]
    if old_path is not None:
        from omnigraph.compiler.schema import compile_schema, plan_migration

        old = compile_schema(read_text(old_path, what="schema"), name=old_path)
        new = compile_schema(source, name=new_path)
        found = plan_migration(old, new, allow_data_loss=allow_data_loss)
        where = {"old": old_path}
    else:
        where = {"uri": call.target.uri}
        with call.graph() as graph, told_places(new_path, word="schema"):
            found = graph.plan_schema(source, allow_data_loss=allow_data_loss, branch=branch)
    steps = [step.to_json() for step in found.steps]
    payload = {**where, "supported": found.supported, "step_count": len(steps), "steps": steps}
    verdict = "supported" if found.supported else "not supported"
    call.emit(payload, human=[*step_lines(steps), f"{len(steps)} steps, {verdict}"])


@verb("schema apply", writes=True)
@click.option("--schema", "new_path", metavar="FILE", required=True, help="the new schema")
@branch_option
@_LOSS
@message_option
@once_option
def apply(
    call: Call,
    new_path: str,
    branch: str,
    *,
    allow_data_loss: bool,
    message: str | None,
    idempotency_key: str | None,
) -> None:
    """Bring a branch to another schema in one commit; other branches keep theirs."""
    source = read_text(new_path, what="schema")
    if allow_data_loss:
        call.consent()
    call.announce()
    with call.graph(write=True) as graph, told_places(new_path, word="schema"):
        result = graph.apply_schema(
            source,
            allow_data_loss=allow_data_loss,
            branch=branch,
            actor=call.actor,
            message=message,
            idempotency_key=idempotency_key,
        )
    payload = {"uri": call.target.uri, **result.to_json()}
    verdict = "applied" if result.applied else "nothing to apply"
    verdict = "already applied" if result.already_applied else verdict
    human = [*step_lines(payload["steps"]), f"{result.step_count} steps, {verdict}"]
    call.emit(payload, human=human)


def step_lines(steps: list[dict[str, Any]]) -> list[str]:
    """The steps of a plan for people: the kind, then its fields."""
    return [
        f"{step['kind']}: "
        + ", ".join(
            f"{name}={cell(value)}"
            for name, value in step.items()
            if name != "kind" and value is not None
        )
        for step in steps
    ]


@verb("schema infer", capability=Capability.LOCAL)
@click.argument("path", metavar="FILE")
@click.option("--type", "type_name", metavar="TYPE", help="its name  [default: of the file]")
@click.option("--key", metavar="COLUMN", help="its key  [default: a column that looks like one]")
@click.option("--from", "source", metavar="TYPE", help="for an edge type: where it starts")
@click.option("--to", "target", metavar="TYPE", help="for an edge type: where it ends")
def infer(
    call: Call,
    path: str,
    *,
    type_name: str | None,
    key: str | None,
    source: str | None,
    target: str | None,
) -> None:
    """Propose the schema of a Parquet, CSV or JSON lines file; read it before you use it."""
    from omnigraph import schema as making

    if (source is None) != (target is None):
        raise click.UsageError("the options '--from' and '--to' go together")
    ends = None if source is None or target is None else (source, target)
    made = making.infer(path, type_name, key=key, ends=ends)
    call.emit({"schema_source": made}, human=made.rstrip("\n"))


@verb("codegen python")
@click.option("--schema", "schema_path", metavar="FILE", help="a .pg file instead of a graph")
@branch_option
def python(call: Call, schema_path: str | None, branch: str) -> None:
    """Print typed row classes, a dataclass for each type of a graph or a schema file."""
    from omnigraph.schema import to_python

    if schema_path is None:
        source = _source(call, branch)
    else:
        exclusive({"--schema": schema_path, "a graph": call.flags.uri or call.flags.store})
        source = read_text(schema_path, what="schema")
    with told_places(schema_path, word="schema"):
        made = to_python(source)
    call.emit({"python": made}, human=made.rstrip("\n"))


codegen.add_command(python)
for _command in (show, get, plan, apply, infer):
    schema.add_command(_command)


# --- source files, looked at without running anything ---------------------------------------------


@verb("lint")
@click.option("--query", "query_path", metavar="FILE", required=True, help="the .gq file")
@click.option("--schema", "schema_path", metavar="FILE", help="a .pg file instead of a graph")
@branch_option
def lint(call: Call, query_path: str, schema_path: str | None, branch: str) -> None:
    """Check every query of a file against a schema file or a branch of a graph.

    Prints `file:line:column: code message` for every error and warning."""
    addressed = (call.flags.uri, call.flags.store, call.flags.profile, call.flags.server)
    if schema_path is not None and any(value is not None for value in addressed):
        raise click.UsageError("the option '--schema' cannot be used with a graph")
    if schema_path is not None:
        schema = read_text(schema_path, what="schema")
        where = (("kind", "file"), ("path", schema_path))
    else:
        uri = call.target.uri
        with call.graph() as graph:
            schema = graph.schema_source(branch)
        where = (("kind", "graph"), ("uri", uri))
    source = read_text(query_path, what="query file")
    from omnigraph.compiler.query import lint_source
    from omnigraph.compiler.schema import compile_schema

    catalog = compile_schema(schema, name=schema_path or "schema")
    report = lint_source(source, catalog, query_path=query_path, schema_source=where)
    lines = [_coloured(line) for line in lint_lines(report, query_path)]
    call.emit(report.to_json(), human=lines)
    if report.errors:
        click.get_current_context().exit(1)


def lint_lines(report: LintReport, path: str) -> list[str]:
    """A lint report for people and editors: `file:line:column: code message` for all that has a
    place, then a line a query, a line a finding without a place, and the sum."""
    lines = [
        f"{path}:{line}:{column}: {code} {text}" for line, column, code, text in report.places()
    ]
    for result in report.results:
        if result.status == "error":
            lines.append(f"ERROR query `{result.name}`: {result.error or ''}")
        else:
            lines.append(f"OK    query `{result.name}` ({result.kind})")
    lines += [
        f"{_LABELS[one.severity]} {one.message}" for one in report.findings if one.line is None
    ]
    lines.append(
        f"INFO  Lint complete: {report.queries_processed} queries processed "
        f"({report.errors} error(s), {report.warnings} warning(s), {report.infos} info item(s))"
    )
    return lines


def _coloured(line: str) -> str:
    word, space, rest = line.partition(" ")
    return click.style(word, fg=_COLOURS[word]) + space + rest if word in _COLOURS else line


@verb("fmt", capability=Capability.LOCAL)
@click.argument("paths", metavar="FILE...", nargs=-1, required=True)
@click.option(
    "--check", "check_only", is_flag=True, help="change nothing; exit 1 if something would"
)
def fmt(call: Call, paths: tuple[str, ...], *, check_only: bool) -> None:
    """Format .pg and .gq files in place; `-` formats what comes in and prints it."""
    if "-" in paths:
        if len(paths) > 1:
            raise click.UsageError("'-' stands alone: what comes in is printed, files are changed")
        _format_stream(call, check_only=check_only)
        return
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


def _format_stream(call: Call, *, check_only: bool) -> None:
    """Format standard input; whether it is a schema or queries is told by its first word."""
    text = read_text("-", what="source file")
    pretty = formatted(text, "stdin.pg" if _SCHEMA_BEGINS.match(text) else "stdin.gq")
    if check_only:
        verdict = "would format -" if pretty != text else "nothing to format"
        payload = {"files": ["-"], "changed": ["-"] * (pretty != text), "check": True}
        call.emit(payload, human=[verdict])
        if pretty != text:
            click.get_current_context().exit(1)
        return
    call.emit({"files": ["-"], "formatted": pretty}, human=pretty.rstrip("\n"))


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
