"""`query` and `mutate`: the source from a file or the command line, one run, the answer printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from omnigraph.cli import output
from omnigraph.cli.call import (
    Call,
    RemoteTarget,
    branch_option,
    embed_option,
    engines,
    exclusive,
    landed_words,
    message_option,
    once_option,
    read_params,
    read_text,
    spark_session,
    state_options,
    together,
    told_places,
    verb,
)
from omnigraph.errors import InputError
from omnigraph.model.machine import is_installed
from omnigraph.model.tables import json_line

if TYPE_CHECKING:
    from omnigraph.results.rows import Explanation

# Which query to run, and with which parameters.
_source_options = together(
    click.argument("words", nargs=-1, metavar="[NAME] [URI]"),
    click.option("--query", "query_path", metavar="FILE", help="the .gq file"),
    click.option("-e", "--query-string", "text", metavar="GQ", help="the query itself"),
    click.option("--params", "params_text", metavar="JSON", help="parameters, an object"),
    click.option("--params-file", metavar="FILE", help="parameters from a JSON file"),
    click.option(
        "-p", "given", metavar="NAME=VALUE", multiple=True, help="one parameter, JSON or text"
    ),
)
_NAMES = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # of queries


@verb("query", positional="none")
@_source_options
@state_options
@click.option("--format", "form", type=click.Choice(output.FORMATS), help="how to print the rows")
@click.option("--explain", is_flag=True, help="print how the query ran instead of its rows")
@click.option("--svg", "pictured", is_flag=True, help="with --explain: as a picture, as SVG text")
@engines("local", "answer in this process or on Spark; auto: on Spark what memory cannot hold")
def query(
    call: Call,
    words: tuple[str, ...],
    *,
    query_path: str | None,
    text: str | None,
    params_text: str | None,
    params_file: str | None,
    given: tuple[str, ...],
    branch: str | None,
    snapshot: str | None,
    form: output.Format | None,
    explain: bool,
    pictured: bool,
    engine: str,
    spark_master: str | None,
    spark_remote: str | None,
) -> None:
    """Run the read query NAME of a file, or one given with -e.

    An argument with a '.', '/' or ':' in it is the graph, not a name."""
    call, name = graph_and_name(call, words)
    if pictured and not explain:
        raise click.UsageError("the option '--svg' draws how a query ran: it goes with '--explain'")
    exclusive({"--branch": branch, "--snapshot": snapshot})
    require_one_form(call, form)
    call.require_target()
    params = read_params(params_text, params_file, given)
    form = "json" if call.as_json else form or output.default_format(call.config)
    target = {"snapshot": snapshot} if snapshot else {"branch": branch or "main"}
    if isinstance(call.target, RemoteTarget) and name and query_path is None and text is None:
        with call.target.connected() as served:
            found: Any = served.invoke(name, params, expect_mutation=False, **target)
        print_rows(call, read_facts(name, target, found), found.to_json_rows(), form=form)
        return
    source = read_source("query", query_path, text)
    with told_places(query_path):
        chosen = chosen_name(source, name, source_path=query_path)
    where: dict[str, Any] = {"branch": branch or "main", "snapshot": snapshot}
    if engine != "local":
        with told_places(query_path):
            engine = _chosen_engine(call, engine, source, chosen, where)
    if engine == "spark":
        from omnigraph.pipeline.gq.run import planned

        spark = spark_session(call, spark_master, spark_remote)
        with told_places(query_path):
            asked = planned(spark, call.target.uri, source, chosen, params=params, **where)
            found = asked.explanation() if explain else asked.result()
            rows = [] if explain else found.to_json_rows()
    else:
        with call.graph() as graph, told_places(query_path):
            ask = graph.explain if explain else graph.query
            found = ask(source, chosen, params=params, **where)
            rows = [] if explain else found.to_json_rows()  # while the graph is open
    if explain:
        _emit_plan(call, found, pictured)
    else:
        print_rows(call, read_facts(chosen, target, found), rows, form=form)


def _emit_plan(call: Call, plan: Explanation, pictured: bool) -> None:
    if pictured:
        call.emit({"svg": plan.to_svg()}, human=plan.to_svg())
    else:
        call.emit(plan.to_json(), human=str(plan))


def _chosen_engine(call: Call, engine: str, source: str, name: str, where: dict[str, Any]) -> str:
    """The engine that was asked for, or the one that fits; then it is said which, and why."""
    if isinstance(call.target, RemoteTarget):
        if engine == "auto":
            return "local"
        raise InputError(
            "a server answers in its own process: --engine spark does not apply",
            hint="pass the graph's storage with --store <uri>",
        )
    if engine != "auto":
        return engine
    from omnigraph.engine.choosing import choose_engine

    choice = choose_engine(call.target.uri, source, name, **where)
    held, budget = (f"{size / 1e6:,.1f} MB" for size in (choice.held_bytes, choice.budget_bytes))
    sizes = f"the query looks at about {held}; reading may keep {budget}"
    if choice.engine == "spark" and not is_installed("pyspark"):
        call.note(f"in process, part by part: {sizes} (Spark is not installed)")
        return "local"
    call.note(f"{'on Spark' if choice.engine == 'spark' else 'in process'}: {sizes}")
    return choice.engine


def require_one_form(call: Call, form: output.Format | None) -> None:
    """Refuse `--json` beside another form of the rows."""
    if call.as_json and form not in (None, "json"):
        raise click.UsageError(f"the option '--json' cannot be used with '--format {form}'")


def read_facts(name: str, target: dict[str, str], result: Any) -> dict[str, Any]:
    """What is printed of an answer beside its rows."""
    return {
        "query_name": name,
        "target": target,
        "row_count": result.row_count,
        "columns": list(result.columns),
        "graph_commit_id": result.graph_commit_id,
    }


def print_rows(
    call: Call, facts: dict[str, Any], rows: list[dict[str, Any]], *, form: output.Format
) -> None:
    """The answer of a read query in the form asked for."""
    if form == "json":
        output.emit_json({**facts, "rows": rows})
    elif form == "jsonl":
        click.echo(json_line({"kind": "metadata", **facts}))
        for row in rows:
            click.echo(json_line(row))
    else:
        output.print_rows(call.config, facts["columns"], rows, form=form)
        if form == "table":
            call.note(f"{len(rows)} row{'' if len(rows) == 1 else 's'}")


@verb("mutate", writes=True, positional="none")
@_source_options
@click.option("--file", "script", metavar="FILE", help="a .gq file; with --transaction, all of it")
@click.option("--transaction", is_flag=True, help="run all queries in order, as one commit")
@branch_option
@click.option("--if-commit", metavar="COMMIT", help="only if this commit is still the head")
@message_option
@once_option
@embed_option
def mutate(
    call: Call,
    words: tuple[str, ...],
    *,
    query_path: str | None,
    text: str | None,
    params_text: str | None,
    params_file: str | None,
    given: tuple[str, ...],
    script: str | None,
    transaction: bool,
    branch: str,
    if_commit: str | None,
    message: str | None,
    idempotency_key: str | None,
    embed: bool,
) -> None:
    """Run the mutation query NAME of a file, or one given with -e, as one commit; with
    --transaction all queries of the file, in order, as one commit.

    An argument with a '.', '/' or ':' in it is the graph, not a name."""
    call, name = graph_and_name(call, words)
    target = call.target
    exclusive({"--query <FILE>": query_path, "--file <FILE>": script})
    params = read_params(params_text, params_file, given)
    by_name = name is not None and query_path is None and script is None and text is None
    if isinstance(target, RemoteTarget) and by_name:
        call.refuse_embedding(asked=embed)
        with target.connected() as served:
            done = served.invoke(
                str(name),
                params,
                branch=branch,
                if_commit=if_commit,
                expect_mutation=True,
                idempotency_key=idempotency_key,
            )
        _tell_mutation(call, branch, done)
        return
    source = read_source("mutate", query_path or script, text)
    if transaction:
        exclusive({"--transaction": "", "NAME": name})
        exclusive({"--transaction": "", "--idempotency-key": idempotency_key})
        wanted = {"branch": branch, "message": message, "if_commit": if_commit}
        _run_script(call, source, params or {}, wanted, embed=embed)
        return
    with call.graph(write=True, embed=embed) as graph, told_places(query_path or script):
        result = graph.mutate(
            source,
            name,
            params=params,
            branch=branch,
            actor=call.actor,
            if_commit=if_commit,
            message=message,
            idempotency_key=idempotency_key,
        )
    _tell_mutation(call, branch, result)


def _tell_mutation(call: Call, branch: str, result: Any) -> None:
    landed = landed_words(result, nothing="nothing to commit")
    call.emit(
        {"uri": call.target.uri, **result.to_json()},
        human=f"{result.query_name} on branch {branch}: {result.affected_nodes} nodes, "
        f"{result.affected_edges} edges affected; {landed}",
    )
    if not call.as_json:
        print_returned(call, result)


def print_returned(call: Call, result: Any) -> None:
    """The rows that a mutation returned, as a table."""
    if not result.rows:
        return
    rows = result.to_json()["rows"]
    output.print_rows(call.config, list(rows[0]), rows, form="table")


def _run_script(
    call: Call, source: str, params: dict[str, Any], wanted: dict[str, Any], *, embed: bool
) -> None:
    """All queries of a text in one transaction; each takes the parameters that it declares."""
    from omnigraph.compiler.query import parse_text

    answers: list[dict[str, Any]] = []
    with call.graph(write=True, embed=embed) as graph:
        with graph.transaction(**wanted, actor=call.actor) as tx:
            for query in parse_text(source).queries:
                given = {one.name: params[one.name] for one in query.params if one.name in params}
                if query.kind == "read":
                    found = tx.query(source, query.name, params=given)
                    answers.append({"query_name": query.name, "rows": found.to_json_rows()})
                else:
                    done = tx.mutate(source, query.name, params=given)
                    answers.append(done.to_json())
        commit = tx.commit
    landed = "nothing to commit" if commit is None else f"commit {commit.graph_commit_id}"
    facts = {"uri": call.target.uri, "branch": wanted["branch"], "results": answers}
    call.emit(
        {**facts, "commit": None if commit is None else commit.to_json()},
        human=f"{len(answers)} queries on branch {wanted['branch']}; {landed}",
    )
    for answer in () if call.as_json else answers:
        if rows := answer.get("rows"):
            output.print_rows(call.config, list(rows[0]), rows, form="table")


def graph_and_name(call: Call, words: tuple[str, ...]) -> tuple[Call, str | None]:
    """The call with its graph, and the query's name, from arguments `[NAME] [URI]`: a word that no
    query can be called is the graph, wherever it stands."""
    if len(words) > 2:
        raise click.UsageError(f"got an argument too many: '{words[-1]}'")
    given: list[str | None] = [*words, None, None]
    name, graph = given[:2]
    if name is not None and not _NAMES.fullmatch(name):
        name, graph = graph, name
    if name is not None and not _NAMES.fullmatch(name):
        raise click.UsageError(f"'{graph}' and '{name}' are two graphs: address one")
    if graph is None:
        if name is not None and not call.names_graph and Path(name).is_dir():
            raise InputError(
                f"no graph addressed: '{name}' is taken for the name of a query",
                hint=f"write ./{name} if it is the graph",
            )
        return call, name
    exclusive({"a graph as an argument": graph, "--uri": call.flags.uri})
    return replace(call, flags=replace(call.flags, uri=graph)), name


def read_source(verb_name: str, path: str | None, text: str | None) -> str:
    """The query text, from exactly one of the file and the command line."""
    exclusive({"--query <FILE>": path, "-e/--query-string <GQ>": text})
    if text is not None:
        return text
    if path is not None:
        return read_text(path, what="query file")
    raise click.UsageError(f"{verb_name} needs a query: pass --query <FILE> or -e <GQ>")


def chosen_name(source: str, name: str | None, *, source_path: str | None) -> str:
    """The query to run: the one named, else the only one of the source."""
    from omnigraph.compiler.query import parse_text

    if name is not None:
        return name
    names = [one.name for one in parse_text(source).queries]
    if len(names) == 1:
        return str(names[0])
    where = f"'{source_path}'" if source_path else "the query text"
    if not names:
        raise InputError(f"{where} contains no query")
    raise InputError(
        f"{where} contains multiple queries, and none was named",
        hint=f"name one as an argument: {', '.join(names)}",
    )
