"""The `omnigraph` command: finds the command meant, runs it, and turns errors into exit codes."""

from __future__ import annotations

import gc
import io
import os
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module

import click
import msgspec
from click.shell_completion import CompletionItem

from omnigraph import __version__
from omnigraph.cli import failure
from omnigraph.cli.call import OWN_PROCESS, VALUE_FLAG_NAMES, scope_options
from omnigraph.cli.scope import Capability
from omnigraph.errors import OmnigraphError


class Entry(msgspec.Struct, frozen=True):
    """A command that is imported when it is first used: `attribute` of `omnigraph.<module>`."""

    module: str
    attribute: str
    capability: Capability
    summary: str
    hidden: bool = False


ANY, DIRECT, SERVED, LOCAL = Capability.ANY, Capability.DIRECT, Capability.SERVED, Capability.LOCAL

COMMANDS: Mapping[str, Entry] = {
    "query": Entry("cli.query", "query", ANY, "run a read query"),
    "mutate": Entry("cli.query", "mutate", ANY, "run a mutation query"),
    "load": Entry("cli.load", "load", ANY, "load NDJSON and other data in one commit"),
    "ingest": Entry("cli.load", "ingest", ANY, "load into a branch (older spelling)", hidden=True),
    "export": Entry("cli.load", "export", ANY, "write the graph as NDJSON or Parquet"),
    "branch": Entry(
        "cli.branch", "branch", ANY, "create, list, delete, restore and merge branches"
    ),
    "tag": Entry("cli.branch", "tag", ANY, "name commits for good"),
    "commit": Entry("cli.history", "commit", ANY, "list, show, explain and undo commits"),
    "diff": Entry("cli.history", "diff", ANY, "what changed between two states"),
    "changes": Entry("cli.history", "changes", ANY, "follow what changes on a branch"),
    "revert": Entry("cli.history", "revert", ANY, "undo one commit by a new one"),
    "entity": Entry("cli.history", "entity", ANY, "one entity through time"),
    "snapshot": Entry("cli.graph", "snapshot", ANY, "the datasets a state of the graph is made of"),
    "schema": Entry("cli.schema", "schema", ANY, "show, plan, apply and propose schemas"),
    "codegen": Entry("cli.schema", "codegen", ANY, "write Python classes from a schema"),
    "blob": Entry("cli.blob", "blob", ANY, "read large values"),
    "shell": Entry("cli.shell", "shell", ANY, "ask and change a graph at a prompt"),
    "init": Entry("cli.graph", "init", DIRECT, "make a new graph"),
    "lint": Entry("cli.schema", "lint", ANY, "check a query file against a schema"),
    "optimize": Entry(
        "cli.maintain", "optimize", DIRECT, "compact tables and bring indexes up to date"
    ),
    "cleanup": Entry("cli.maintain", "cleanup", DIRECT, "collect versions that nobody can reach"),
    "retention": Entry("cli.maintain", "retention", DIRECT, "how much of the past branches keep"),
    "repair": Entry("cli.maintain", "repair", DIRECT, "explain and heal drifted tables"),
    "health": Entry("cli.maintain", "health", DIRECT, "how a graph is doing, with advice"),
    "verify": Entry("cli.keep", "verify", DIRECT, "whether all is there that was promised"),
    "backup": Entry("cli.keep", "backup", DIRECT, "copy a graph with all that it has"),
    "relocate": Entry("cli.keep", "relocate", DIRECT, "make a moved or copied graph whole"),
    "recovery": Entry("cli.maintain", "recovery", DIRECT, "unfinished writes and their end"),
    "queries": Entry("cli.stored", "queries", ANY, "list and check stored queries"),
    "graphs": Entry("cli.graph", "graphs", SERVED, "the graphs of a server"),
    "serve": Entry("cli.serve", "serve", LOCAL, "serve graphs over HTTP"),
    "ui": Entry("cli.serve", "ui", LOCAL, "open the console in the browser"),
    "embed": Entry("cli.embed", "embed", DIRECT, "make vectors that a graph or a file lacks"),
    "fmt": Entry("cli.schema", "fmt", LOCAL, "format .pg and .gq files"),
    "lsp": Entry("editor.command", "lsp", LOCAL, "serve editors: problems, completion, hover"),
    "demo": Entry("demo.command", "demo", LOCAL, "show everything on a graph of this machine"),
    "mcp": Entry("cli.agent", "mcp", ANY, "serve a graph to an agent (MCP) over stdio"),
    "alias": Entry("cli.stored", "alias", LOCAL, "run a stored query by the operator's own name"),
    "login": Entry("cli.remote", "login", LOCAL, "keep the token of a server"),
    "logout": Entry("cli.remote", "logout", LOCAL, "forget the token of a server"),
    "policy": Entry("cli.policy", "policy", LOCAL, "check and explain policy files"),
    "profile": Entry("cli.graph", "profile", LOCAL, "the operator's named scopes"),
    "version": Entry("cli.graph", "version", LOCAL, "print the release and format versions"),
}
_TITLES = {
    ANY: "on a graph",
    DIRECT: "on a graph's storage",
    SERVED: "on a server",
    LOCAL: "on this machine",
}
# Older spellings, and the words that stand for them now.
RENAMED: Mapping[tuple[str, ...], str] = {
    ("query", "lint"): "lint",
    ("query", "check"): "lint",
    ("check",): "lint",
    ("read",): "query",
    ("change",): "mutate",
}


class Root(click.Group):
    """The top of the command tree; it knows its commands by name and imports them when used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, entry in COMMANDS.items() if not entry.hidden]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command = getattr(import_module(f"omnigraph.{entry.module}"), entry.attribute)
        assert isinstance(command, click.Command), f"{cmd_name} is no command"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # The base class knows the names of commands that are imported only.
        known = args[0] in COMMANDS or ctx.resilient_parsing
        if not known and not args[0].startswith("-"):
            near = get_close_matches(args[0], self.list_commands(ctx), n=1)
            meant = f" Did you mean '{near[0]}'?" if near else ""
            raise click.UsageError(f"No such command '{args[0]}'.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # The base class would import every command to read its help.
        if incomplete[:1] == "-":
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=entry.summary)
            for name, entry in COMMANDS.items()
            if name.startswith(incomplete) and not entry.hidden
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_paragraph()
        formatter.write_text("COMMANDS BY CAPABILITY")
        for capability, title in _TITLES.items():
            rows = [
                (name, entry.summary)
                for name, entry in COMMANDS.items()
                if entry.capability is capability and not entry.hidden
            ]
            with formatter.section(title):
                formatter.write_dl(rows)


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        click.echo(f"omnigraph {__version__}")
        context.exit()


root = Root(
    "omnigraph",
    help=(
        "A typed property-graph database with git-style branches.\n\n"
        "The options below may stand before or after any command."
    ),
    params=[
        *scope_options(),
        click.Option(
            ["-v", "--version"],
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_version,
            help="print the release",
        ),
    ],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)


def entry(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; nothing but the code comes out."""
    words = list(sys.argv[1:] if argv is None else argv)
    _speak_utf8()
    words = _with_current_names(words)
    try:
        return _run(words, own_process=argv is None)
    except BrokenPipeError:
        # The reader of our output has gone; that is its right, and nobody is left to tell. What
        # was asked for is done, so a script with `pipefail` goes on.
        sys.stdout = io.TextIOWrapper(open(os.devnull, "wb"))  # noqa: SIM115
        return 0
    finally:
        if argv is None:
            # The process ends here. To take every module apart first would cost a fifth of a query.
            gc.freeze()


def _run(words: list[str], *, own_process: bool) -> int:
    color = wants_color(os.environ)
    # What is printed about a failure obeys the same rule as what a command prints.
    with click.Context(root, info_name="omnigraph", color=color):
        return _run_in(words, own_process=own_process, color=color)


def wants_color(environ: Mapping[str, str]) -> bool | None:
    """Whether to colour: never with NO_COLOR, always with FORCE_COLOR (but 0), else None: where a
    terminal reads."""
    if environ.get("NO_COLOR"):
        return False
    return True if environ.get("FORCE_COLOR", "0") not in ("", "0") else None


def _run_in(words: list[str], *, own_process: bool, color: bool | None) -> int:
    as_json = "--json" in words
    try:
        result = root.main(
            args=words,
            prog_name="omnigraph",
            standalone_mode=False,
            obj=OWN_PROCESS if own_process else None,
            color=color,
        )
    except click.exceptions.NoArgsIsHelpError as problem:
        problem.show()
        return failure.EXIT_USAGE
    except click.ClickException as problem:
        if isinstance(problem, click.NoSuchOption):
            problem = _with_visible(problem)
        elif problem.message.startswith("Got unexpected extra") and _command(words) == "load":
            words_of = f"{problem.message}. Files of data are passed with --data"
            problem = click.UsageError(words_of, getattr(problem, "ctx", None))
        problem.show()
        return problem.exit_code
    except (click.Abort, KeyboardInterrupt) as interrupt:
        click.echo(failure.interrupted_line(interrupt), err=True)
        return failure.EXIT_INTERRUPTED
    except OmnigraphError as error:
        return failure.report(error, as_json=as_json)
    except BrokenPipeError:
        raise
    except SystemExit:
        # click ends so, with 1, when the reader of our output has gone.
        if "Pacify" in type(sys.stdout).__name__:
            return 0
        raise
    except BaseException as problem:
        if not isinstance(problem, Exception) and not failure.is_panic(problem):
            raise
        # The last door: no traceback reaches a user who did not ask for one.
        if os.environ.get("OMNIGRAPH_TRACEBACK"):
            raise
        return failure.report_defect(problem, as_json=as_json)
    return result if isinstance(result, int) else 0


def _with_visible(problem: click.NoSuchOption) -> click.NoSuchOption:
    """The same, suggesting the nearest option that help shows, not those kept for old scripts."""
    params = problem.ctx.command.params if problem.ctx is not None else []
    shown = [
        flag
        for one in params
        if isinstance(one, click.Option) and not one.hidden
        for flag in one.opts
    ]
    near = get_close_matches(problem.option_name, shown, n=1)
    return click.NoSuchOption(problem.option_name, possibilities=near, ctx=problem.ctx)


def _with_current_names(words: list[str]) -> list[str]:
    """The words with an older spelling replaced by today's, and a note about it on stderr."""
    at = _command_index(words)
    for old, new in RENAMED.items():
        if tuple(words[at : at + len(old)]) == old:
            spelling = " ".join(old)
            note = f"warning: `omnigraph {spelling}` is deprecated; use `omnigraph {new}`"
            click.echo(note, err=True)
            return [*words[:at], new, *words[at + len(old) :]]
    return words


def _command(words: list[str]) -> str:
    """The name of the command that the words are for, "" if they name none."""
    return next(iter(words[_command_index(words) :]), "")


def _command_index(words: list[str]) -> int:
    """Where the command's name stands, behind the flags that may come before it."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in VALUE_FLAG_NAMES else 1
    return at


def _speak_utf8() -> None:
    """Data is UTF-8 whatever the terminal's locale says."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
