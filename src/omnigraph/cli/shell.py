"""`shell`: an interactive prompt on one graph.

Queries are typed as they stand in a `.gq` file, over as many lines as they need, or without a name
around them; lines that start with a backslash talk to the shell itself. From a file or a pipe it
reads without prompting and stops at the first error.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli import failure, output
from omnigraph.cli.branch import tag_line
from omnigraph.cli.call import Call, read_params, verb
from omnigraph.cli.history import moment
from omnigraph.cli.query import print_returned
from omnigraph.cli.scope import home
from omnigraph.compiler.text import closest
from omnigraph.errors import InputError, OmnigraphError
from omnigraph.model.schema import EdgeType, NodeType
from omnigraph.model.tables import json_line
from omnigraph.storage.commit.outcome import outcome_told

if TYPE_CHECKING:
    from omnigraph.engine.graph import Graph
    from omnigraph.engine.write.transaction import Transaction

HISTORY_LINES_MAX = 10_000
LOG_COMMITS_SHOWN = 20
_TRANSACTION_WORDS = frozenset({"begin", "commit", "rollback"})
_NOISE = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_COMMENT = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*')
_HELP = """\
match { … } return { … } run a query; over several lines it ends with ; or an empty line
query name() { … }      the same with a name; it ends with its closing brace
begin, commit, rollback several queries as one commit; reads see what is pending
\\d [TYPE]               the types, or the properties and rules of one
\\b                      the branches
\\tags                   the tags
\\use BRANCH             read and write this branch from now on
\\log                    the newest commits of the branch
\\params {"name": …}     parameters for the queries that follow
\\format FORM            table, kv, csv, jsonl or json
\\timing                 say how long each query took, or stop saying it
\\explain                print how queries run instead of their rows, or stop
\\? or \\help             this list
\\q                      leave"""


@verb("shell")
@click.option("--branch", default="main", show_default=True, metavar="BRANCH", help="to start on")
def shell(call: Call, branch: str) -> None:
    """Ask and change a graph at a prompt."""
    with call.graph(write=True) as graph:
        graph.snapshot(branch)
        session = Session(graph, call, branch=branch)
        try:
            if not sys.stdin.isatty():
                session.run(line.rstrip("\n") for line in sys.stdin)
                return
            click.echo(f"omnigraph shell on {graph.uri}; \\? for help, \\q to leave")
            with line_editing(call.environ, session.words) as session.remember:
                while not session.left:
                    session.turn()
        finally:
            session.give_up()


class Session:
    """What a prompt remembers from one line to the next."""

    def __init__(self, graph: Graph, call: Call, *, branch: str) -> None:
        self.graph = graph
        self.call = call
        self.branch = branch
        self.params: dict[str, Any] | None = None
        self.form = output.default_format(call.config)
        self.timing = False
        self.explain = False
        self.left = False
        self.transaction: Transaction | None = None
        self.remember: Callable[[str], None] = lambda _: None
        self._pending: list[str] = []

    # --- reading -----------------------------------------------------------------------------

    def run(self, lines: Iterator[str]) -> None:
        """Read a script; the first error ends it."""
        for line in lines:
            self.feed(line)
            if self.left:
                return
        if self._pending:
            self._finish()

    def turn(self) -> None:
        """One line at the prompt; errors are told and forgotten."""
        open_ = "*" if self.transaction is not None else ""
        prompt = "      ...> " if self._pending else f"{self.branch}{open_}> "
        try:
            self.feed(input(prompt))
        except EOFError:
            self.left = True
            click.echo()
        except KeyboardInterrupt as interrupt:
            self._pending.clear()
            click.echo()
            told = outcome_told(interrupt)
            if told is not None:
                click.echo(f"interrupted; {told}", err=True)
        except OmnigraphError as error:
            for line in failure.error_lines(error):
                click.echo(line, err=True)

    def feed(self, line: str) -> None:
        """Take in one line; run what it completes."""
        if not self._pending and line.lstrip().startswith("\\"):
            self.remember(line.strip())
            self._command(line.strip()[1:])
            return
        word = line.strip().rstrip(";").lower()
        if not self._pending and word in _TRANSACTION_WORDS:
            self.remember(line.strip())
            self._transaction_word(word)
            return
        if line.strip():
            self._pending.append(line)
        if self._pending and (not line.strip() or is_complete("\n".join(self._pending))):
            self._finish()

    def _finish(self) -> None:
        source = "\n".join(self._pending)
        self._pending.clear()
        self.remember(on_one_line(source))
        self._run_source(source.rstrip().removesuffix(";"))

    def give_up(self) -> None:
        """Roll back a transaction that nobody committed."""
        if self.transaction is not None:
            self.transaction.rollback()
            self.transaction = None
            click.echo("the transaction was not committed and is rolled back", err=True)

    # --- queries -----------------------------------------------------------------------------

    def _run_source(self, source: str) -> None:
        from omnigraph.compiler.query import parse_text

        for query in parse_text(source).queries:
            started = time.perf_counter()
            if query.kind == "read":
                self._read(source, query.name)
            else:
                self._mutate(source, query.name)
            if self.timing:
                click.echo(f"{(time.perf_counter() - started) * 1000:.1f} ms", err=True)

    def _given(self, source: str, name: str) -> dict[str, Any]:
        """Of the parameters set, those that the query declares."""
        from omnigraph.compiler.query import parse_text

        query = next(one for one in parse_text(source).queries if one.name == name)
        declared = {param.name for param in query.params}
        return {key: value for key, value in (self.params or {}).items() if key in declared}

    def _read(self, source: str, name: str) -> None:
        params = self._given(source, name)
        if self.explain:
            click.echo(str(self.graph.explain(source, name, params=params, branch=self.branch)))
            return
        if self.transaction is not None:
            result = self.transaction.query(source, name, params=params)
        else:
            result = self.graph.query(source, name, params=params, branch=self.branch)
        rows = result.to_json_rows()
        if self.form == "json":
            output.emit_json(rows)
        elif self.form == "jsonl":
            for row in rows:
                click.echo(json_line(row))
        else:
            output.print_rows(self.call.config, result.columns, rows, form=self.form)
            self.call.note(f"{len(rows)} row{'' if len(rows) == 1 else 's'}")

    def _mutate(self, source: str, name: str) -> None:
        params = self._given(source, name)
        if self.transaction is not None:
            result, landed = self.transaction.mutate(source, name, params=params), "pending"
        else:
            result = self.graph.mutate(
                source, name, params=params, branch=self.branch, actor=self.call.actor
            )
            landed = "nothing to commit" if result.commit is None else result.commit.graph_commit_id
        click.echo(f"{result.affected_nodes} nodes, {result.affected_edges} edges; {landed}")
        print_returned(self.call, result)

    def _transaction_word(self, word: str) -> None:
        """`begin`, `commit` or `rollback`."""
        transaction = self.transaction
        if word == "begin":
            if transaction is not None:
                raise InputError("a transaction is open already", hint="commit or rollback first")
            made = self.graph.transaction(self.branch, actor=self.call.actor)
            self.transaction = made.__enter__()
            return
        if transaction is None:
            raise InputError("no transaction is open", hint="`begin` opens one")
        self.transaction = None
        if word == "rollback":
            transaction.rollback()
            click.echo("rolled back")
            return
        transaction.__exit__(None, None, None)
        commit = transaction.commit
        click.echo("nothing to commit" if commit is None else commit.graph_commit_id)

    # --- commands ----------------------------------------------------------------------------

    def _command(self, text: str) -> None:
        name, _, rest = text.partition(" ")
        commands: Mapping[str, Callable[[str], None]] = {
            "d": self._types,
            "b": self._branches,
            "tags": self._tags,
            "use": self._use,
            "log": self._log,
            "params": self._set_params,
            "format": self._set_format,
            "timing": self._toggle_timing,
            "explain": self._toggle_explain,
            "?": lambda _: click.echo(_HELP),
            "help": lambda _: click.echo(_HELP),
            "q": self._leave,
        }
        command = commands.get(name)
        if command is None:
            raise InputError(f"unknown shell command '\\{name}'", hint="\\? lists them")
        command(rest.strip())

    def _types(self, name: str) -> None:
        from omnigraph.compiler.schema import compile_schema

        catalog = compile_schema(self.graph.schema_source(self.branch))
        counts = {
            entry.type_key: entry.entity_count
            for entry in self.graph.snapshot(self.branch).datasets
        }
        if not name:
            rows = [
                {"kind": one.kind, "type": one.name, "entities": counts.get(one.table_key, 0)}
                for one in catalog.types()
            ]
            self._table(("kind", "type", "entities"), rows)
            return
        found = catalog.nodes.get(name) or catalog.edge_named(name)
        if found is None:
            near = closest(name, [one.name for one in catalog.types()])
            hint = f"did you mean '{near}'?" if near else "\\d lists them"
            raise InputError(f"no type '{name}'", hint=hint)
        rules, of_type = rules_of(found)
        rows = [
            {"property": prop.name, "type": str(prop.type), "rules": " ".join(rules[prop.name])}
            for prop in found.properties
        ]
        self._table(("property", "type", "rules"), rows)
        for line in of_type:
            click.echo(line)

    def _branches(self, _: str) -> None:
        for name in self.graph.branches():
            click.echo(f"{'*' if name == self.branch else ' '} {name}")

    def _tags(self, _: str) -> None:
        for one in self.graph.tags():
            click.echo(tag_line(one))

    def _use(self, name: str) -> None:
        if self.transaction is not None:
            raise InputError("a transaction is open", hint="commit or rollback first")
        self.graph.snapshot(name)
        self.branch = name

    def _log(self, _: str) -> None:
        for one in self.graph.commits(self.branch, limit=LOG_COMMITS_SHOWN):
            click.echo(f"{one.graph_commit_id}  {moment(one.created_us)}  {one.actor_id or '-'}")

    def _set_params(self, text: str) -> None:
        self.params = read_params(text, None) if text else None

    def _set_format(self, name: str) -> None:
        chosen = next((form for form in output.FORMATS if form == name), None)
        if chosen is None:
            raise InputError(f"no format '{name}'", hint=f"one of: {', '.join(output.FORMATS)}")
        self.form = chosen

    def _toggle_timing(self, _: str) -> None:
        self.timing = not self.timing

    def _toggle_explain(self, _: str) -> None:
        self.explain = not self.explain

    def _leave(self, _: str) -> None:
        self.left = True

    def _table(self, columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
        output.print_rows(self.call.config, columns, rows, form="table")

    def words(self) -> list[str]:
        """What the tab key can complete: the schema's names, the language's words, branches and
        tags."""
        from omnigraph.compiler.query.functions import CALLABLE
        from omnigraph.compiler.schema import compile_schema
        from omnigraph.compiler.words import QUERY_WORDS

        catalog = compile_schema(self.graph.schema_source(self.branch))
        found = {*QUERY_WORDS, *CALLABLE}
        found.update(self.graph.branches(), (one.name for one in self.graph.tags()))
        for one in catalog.types():
            found |= {one.name, *(prop.name for prop in one.properties)}
            if one.kind == "edge":
                found.add(one.name[0].lower() + one.name[1:])
        return sorted(found)


def rules_of(made: NodeType | EdgeType) -> tuple[Mapping[str, list[str]], list[str]]:
    """What the schema says about each property, and about the type as a whole, in its words."""
    found: dict[str, list[str]] = {prop.name: [] for prop in made.properties}
    whole: list[str] = []
    key = made.key if isinstance(made, NodeType) else ()
    for word, columns in (
        *([("@key", key)] if key else []),
        *(("@unique", columns) for columns in made.unique),
        *(("@index", columns) for columns in made.index),
    ):
        if len(columns) == 1 and columns[0] in found:
            prop = made.by_name[columns[0]]
            how = [note for note in prop.annotations if f"@{note.name}" == word and note.kwargs]
            found[columns[0]].append(word + (_arguments(how[0].kwargs) if how else ""))
        else:
            whole.append(f"{word}({', '.join(columns)})")
    for prop in made.properties:
        if prop.default is not None:
            found[prop.name].append(f"@default({json.dumps(prop.default, ensure_ascii=False)})")
        if prop.embed is not None:
            found[prop.name].append(f"@embed({prop.embed.source})")
        if prop.inherited_from is not None:
            found[prop.name].append(f"(from {prop.inherited_from})")
    if isinstance(made, EdgeType):
        most = "" if made.cardinality.maximum is None else made.cardinality.maximum
        ends = f"{made.from_type} -> {made.to_type}"
        return found, [f"{ends} @card({made.cardinality.minimum}..{most})", *whole]
    for span in made.ranges:
        ends = "..".join("" if end is None else str(end) for end in (span.minimum, span.maximum))
        found[span.property].append(f"@range({ends})")
    for check in made.checks:
        found[check.property].append(f"@check({json.dumps(check.pattern, ensure_ascii=False)})")
    return found, whole


def _arguments(given: Iterable[tuple[str, Any]]) -> str:
    return "(" + ", ".join(f"{name}={json.dumps(value)}" for name, value in given) + ")"


def is_complete(text: str) -> bool:
    """Whether a query is typed to its end. One with a name ends with its closing brace, one without
    with `;`, or with its only line if that is a whole query."""
    from omnigraph.compiler.query import parse_text
    from omnigraph.compiler.query.parse_mutation import STATEMENTS

    bare = _NOISE.sub(" ", text)
    begins = "|".join(("match", *STATEMENTS))  # the body of a query that nobody named
    if re.match(rf"\s*({begins})\b", text, re.IGNORECASE) is None:
        return "{" in bare and bare.count("{") <= bare.count("}")
    if "\n" in text.strip() or bare.rstrip().endswith(";"):
        return bare.rstrip().endswith(";")
    try:
        return bool(parse_text(text).queries)
    except OmnigraphError:
        return False


def on_one_line(text: str) -> str:
    """A query as history keeps it: one entry, whatever number of lines it was typed on."""
    lines = _COMMENT.sub(lambda found: found.group(1) or "", text).splitlines()
    return " ".join(line.strip() for line in lines if line.strip())


@contextmanager
def line_editing(
    environ: Mapping[str, str], words: Callable[[], list[str]]
) -> Iterator[Callable[[str], None]]:
    """History that survives the session, and completion, where the platform has them. Gives what
    adds an entry to the history: a query is one, however many lines it was typed on."""
    try:
        import readline
    except ImportError:
        yield lambda _: None
        return
    path = home(environ) / "shell_history"
    try:
        readline.read_history_file(path)
    except OSError:
        readline.clear_history()
    readline.set_history_length(HISTORY_LINES_MAX)

    def complete(text: str, state: int) -> str | None:
        matches = [word for word in words() if word.startswith(text)]
        return matches[state] if state < len(matches) else None

    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    readline.set_auto_history(False)
    try:
        yield readline.add_history
    finally:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(path)
        except OSError as cause:
            click.echo(f"warning: the history was not saved: {cause}", err=True)
