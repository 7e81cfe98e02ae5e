"""`queries list|validate` and `alias`: stored queries, and short names for calls of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import click
import msgspec

from omnigraph.cli import output
from omnigraph.cli.call import Call, CommandGroup, RemoteTarget, read_params, verb
from omnigraph.cli.credentials import server_url, token_for
from omnigraph.cli.failure import EXIT_ERROR
from omnigraph.cli.query import print_rows, read_facts, require_one_form
from omnigraph.cli.scope import Capability
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.machine import extra_for

queries = CommandGroup("queries", help="List and check stored queries.")
_path_option = click.option(
    "--queries", "path", metavar="PATH", help="a .gq file, a folder of them, or a catalog"
)


def _registry(path: str) -> tuple[Any, Any]:
    """The code for stored queries, and what it finds at the path."""
    with extra_for("the server"):
        stored = import_module("omnigraph.server.stored")
    return stored, stored.read_registry(path)


def _describe(call: Call) -> Callable[[str, str], Any]:
    """How a query looks under the schema of the graph that is meant."""
    from omnigraph.compiler.query import compile_query
    from omnigraph.compiler.schema import compile_schema

    with call.graph() as graph:
        catalog = compile_schema(graph.schema_source())
    return lambda text, name: compile_query(text, catalog, name)


@verb("queries list")
@_path_option
def list_queries(call: Call, *, path: str | None) -> None:
    """List the stored queries of a server's graph, or those at --queries for a graph."""
    call.require_target()
    if path is not None:
        stored, registry = _registry(path)
        describe = _describe(call)
        found = [
            {"mcp_expose": one.exposed, **msgspec.to_builtins(stored.described(one, describe))}
            for _, one in sorted(registry.queries.items())
        ]
    elif isinstance(call.target, RemoteTarget):
        with call.target.connected() as served:
            found = [{"mcp_expose": True, **one} for one in served.stored_queries()]
    else:
        raise click.UsageError("a graph's storage holds no stored queries: pass --queries <PATH>")
    call.emit({"queries": found}, human=[_line(one) for one in found] or "no stored queries")


def _line(one: Mapping[str, Any]) -> str:
    params = ", ".join(f"{p['name']}: {p['kind']}{'?' * p['nullable']}" for p in one["params"])
    kind = "mutation" if one["mutation"] else "read"
    return f"{one['name']}({params})  {kind}  {one.get('description', '')}".rstrip()


@verb("queries validate")
@_path_option
def validate(call: Call, *, path: str | None) -> None:
    """Check the stored queries at --queries against the schema of a graph."""
    call.require_target()
    if path is None:
        raise click.UsageError("Missing option '--queries'.")
    stored, registry = _registry(path)
    broken, warnings = stored.checked(registry, _describe(call))
    found = [
        {"query": one.facts["query"], "error": one.message, "hint": one.hint} for one in broken
    ]
    call.emit(
        {"ok": not found, "breakages": found, "warnings": warnings},
        human=[
            *(one["error"] for one in found),
            *(f"warning: {one}" for one in warnings),
            f"{len(registry.queries)} queries, {len(found)} broken",
        ],
    )
    if found:
        click.get_current_context().exit(EXIT_ERROR)


queries.add_command(list_queries)
queries.add_command(validate)


# --- alias ----------------------------------------------------------------------------------------


class Alias(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a stored read query that the operator has given a name."""

    server: str
    query: str
    graph: str | None = None
    args: list[str] = []
    params: dict[str, Any] = {}
    format: output.Format | None = None


@verb("alias", capability=Capability.LOCAL)
@click.argument("name")
@click.argument("args", nargs=-1)
@click.option("--params", "params_text", metavar="JSON", help="more parameters, an object")
@click.option("--format", "form", type=click.Choice(output.FORMATS), help="how to print the rows")
def alias(
    call: Call,
    name: str,
    args: tuple[str, ...],
    *,
    params_text: str | None,
    form: output.Format | None,
) -> None:
    """Run the stored query that NAME stands for in the operator's configuration."""
    require_one_form(call, form)
    found = _alias(call, name)
    if len(args) > len(found.args):
        takes = ", ".join(found.args) or "no arguments"
        raise click.UsageError(f"the alias '{name}' takes {takes}; got {len(args)}")
    given = [f"{word}={value}" for word, value in zip(found.args, args, strict=False)]
    params = found.params | (read_params(params_text, None, given) or {})
    url = server_url(call.config, found.server)
    token = token_for(call.config, url, call.environ)
    with RemoteTarget.of(url, found.graph, token=token).connected() as served:
        result: Any = served.invoke(found.query, params, expect_mutation=False)
    form = "json" if call.as_json else form or found.format or output.default_format(call.config)
    facts = read_facts(found.query, {"branch": "main"}, result)
    print_rows(call, facts, result.to_json_rows(), form=form)


def _alias(call: Call, name: str) -> Alias:
    config = call.config
    if name not in config.aliases:
        known = ", ".join(sorted(map(str, config.aliases))) or "none"
        raise NotFoundError(
            f"no alias '{name}' in '{config.path}'",
            kind="alias",
            name=name,
            hint=f"known aliases: {known}",
        )
    try:
        return msgspec.convert(config.aliases[name], Alias)
    except msgspec.ValidationError as cause:
        raise InputError(f"'{config.path}': the alias '{name}' is wrong: {cause}") from cause
