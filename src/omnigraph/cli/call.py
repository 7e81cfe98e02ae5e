"""One call of one command: what every command shares, the graph it means, its way to speak.

`verb` makes a command of a function; the function gets a `Call`.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO, cast

import click
import msgspec

from omnigraph.cli import output
from omnigraph.cli.completion import completed
from omnigraph.cli.scope import (
    Capability,
    OperatorConfig,
    ScopeFlags,
    Served,
    Target,
    load_config,
    resolve,
)
from omnigraph.errors import InputError, NotFoundError, OmnigraphError
from omnigraph.storage.commit.outcome import interrupt_behind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from omnigraph.client.graph import RemoteGraph
    from omnigraph.engine.graph import Graph
    from omnigraph.engine.load.report import Listener


BARS_AFTER_SECONDS = 2.0


class RemoteTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A server's graph: where it is, and the token for it."""

    url: str  # of the server, or of the graph
    graph_id: str | None
    token: str | None
    local: bool = False
    access: str = "(served, remote)"

    @classmethod
    def of(cls, url: str, graph_id: str | None, *, token: str | None) -> RemoteTarget:
        from omnigraph.client.http import Address

        address = Address.of(url, graph_id)
        return cls(url=address.server, graph_id=address.graph_id, token=token)

    @property
    def uri(self) -> str:
        return self.url if self.graph_id is None else f"{self.url}/graphs/{self.graph_id}"

    def connected(self) -> RemoteGraph:
        from omnigraph import Graph

        return Graph.connect(self.url, token=self.token, graph=self.graph_id)


class Call(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What a command's body gets beside its own arguments."""

    verb: str
    capability: Capability
    writes: bool
    flags: ScopeFlags
    environ: Mapping[str, str]
    as_json: bool = False
    quiet: bool = False
    yes: bool = False
    acting_as: str | None = None
    own_process: bool = False  # the command is all that this process does

    @cached_property
    def config(self) -> OperatorConfig:
        """The operator's settings; keys we do not know are mentioned once."""
        config = load_config(self.environ)
        for key in config.unknown_keys:
            self.note(f"warning: unknown key '{key}' in '{config.path}'")
        return config

    @cached_property
    def target(self) -> Target | RemoteTarget:
        """The graph this call is about."""
        found = resolve(
            self.verb,
            capability=self.capability,
            flags=self.flags,
            config=self.config,
            environ=self.environ,
        )
        if not isinstance(found, Served):
            return found
        if self.acting_as is not None and self.writes:
            raise InputError(
                "`--as` is not allowed on a served write: the server knows who you are",
                hint="leave --as out",
            )
        from omnigraph.cli.credentials import server_url, token_for

        url = server_url(self.config, found.server)
        return RemoteTarget.of(url, found.graph_id, token=token_for(self.config, url, self.environ))

    @property
    def names_graph(self) -> bool:
        """Whether a graph is addressed at all: by the line, the environment or the settings."""
        known = self.environ.get("OMNIGRAPH_STORE") or self.config.defaults.get("store")
        return self.flags != ScopeFlags() or bool(known)

    def require_target(self) -> None:
        """Refuse a bad address before anything else of the call is looked at."""
        assert self.target is not None, "a target is found or an error raised"

    @cached_property
    def actor(self) -> str | None:
        """Who writes: `--as`, else the operator's own name, else nobody in particular. A server
        knows by itself."""
        if isinstance(self.target, RemoteTarget):
            return None
        return self.acting_as if self.acting_as is not None else self.config.actor

    @contextmanager
    def graph(self, *, write: bool = False, embed: bool = False) -> Iterator[Graph]:
        """The graph, open for as long as the block runs; read-only unless it is to be written.
        With `embed`, what is written gets its vectors by the environment's embedder. A server's
        graph has the same names, as far as commands for any graph use them."""
        if isinstance(self.target, RemoteTarget):
            self.refuse_embedding(asked=embed)
            with self.target.connected() as served:
                yield cast("Graph", served)
            return
        if self.own_process:
            gc.disable()  # modules make no garbage, and looking for it takes time
            threading.Thread(target=_map_libraries, daemon=True).start()
            from omnigraph.storage.pandas_later import put_off_pandas

            put_off_pandas(to_the_end=True)  # no command gives Arrow anything of pandas
        from omnigraph import Graph, OpenMode

        if self.own_process:
            gc.freeze()  # what was imported stays to the end
            gc.enable()
        mode = OpenMode.READ_WRITE if write else OpenMode.READ_ONLY
        with Graph.open(self.target.uri, mode=mode, embedder=embed) as graph:
            yield graph

    def refuse_embedding(self, *, asked: bool) -> None:
        """Of a server's graph: `--embed` means the embedder of this process."""
        if asked:
            raise InputError("a server embeds by its own settings", hint="leave --embed out")

    def announce(self) -> None:
        """Say which graph is about to change, on stderr."""
        self.note(f"omnigraph {self.verb} → {self.target.uri} {self.target.access}")

    def note(self, text: str) -> None:
        """A line on stderr for people, which `--quiet` drops."""
        if not self.quiet:
            click.echo(text, err=True)

    @property
    def wants_progress(self) -> bool:
        """Bars are for people who look: a terminal, no JSON, not told to be quiet."""
        return sys.stderr.isatty() and not self.as_json and not self.quiet

    @contextmanager
    def bars(self) -> Iterator[Listener | None]:
        """What draws how far a run in this process is, or None when no bars are wanted. Runs that
        are soon over draw none, and a server's do not tell."""
        if not self.wants_progress or isinstance(self.target, RemoteTarget):
            yield None
            return
        from omnigraph.pipeline.progress import terminal_bars

        with terminal_bars(after_seconds=BARS_AFTER_SECONDS) as draw:
            yield draw

    def consent(self) -> None:
        """Let a destructive command go on: always on this machine, else only when told so."""
        if self.target.local or self.yes:
            return
        question = f"{self.verb} destroys data at {self.target.uri}; go on?"
        if not self.as_json and sys.stdin.isatty() and click.confirm(question, err=True):
            return
        raise InputError(
            f"refusing destructive `{self.verb}` on {self.target.uri} without consent; pass --yes"
        )

    def emit(self, payload: Any, *, human: str | list[str]) -> None:
        """The result: pretty JSON under `--json`, else the lines for people."""
        if self.as_json:
            output.emit_json(payload)
            return
        for line in [human] if isinstance(human, str) else human:
            click.echo(line)

    def with_actor(self, payload: dict[str, Any]) -> dict[str, Any]:
        """The payload, with the actor if the call has one."""
        return payload if self.actor is None else {**payload, "actor_id": self.actor}


# The compiled modules that every graph needs and that take longest to map.
_LIBRARIES = (("pyarrow", "lib"), ("lance", "lance"), ("pyarrow", "_dataset"))


def _map_libraries() -> None:
    """Map compiled modules while the interpreter is still busy with Python ones.

    A call of `dlopen` by way of ctypes leaves the interpreter to the other thread, as an import
    does not. Nothing hangs on it: what is not mapped here is mapped by its import, which also says
    what is wrong.
    """
    with suppress(AttributeError, ImportError, OSError, TypeError, ValueError):
        import ctypes

        dlopen = ctypes.CDLL(None).dlopen
        dlopen.argtypes, dlopen.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_void_p
        for package, module in _LIBRARIES:
            spec = find_spec(package)
            for folder in (spec and spec.submodule_search_locations) or ():
                for path in (Path(folder, module + suffix) for suffix in EXTENSION_SUFFIXES):
                    if path.exists():
                        dlopen(os.fsencode(path), os.RTLD_NOW)


# --- commands -------------------------------------------------------------------------------------


Body = Callable[..., None]
# The object of the root context when the command line is what the whole process is for.
OWN_PROCESS = object()
Positional = Literal["uri", "none"]

_VALUE_FLAGS = (
    ("--store", "store", "URI", "the graph's storage: a folder, file:// or s3://"),
    ("--profile", "profile", "PROFILE", "a named scope of the operator's configuration"),
    ("--as", "acting_as", "ACTOR", "who makes the change"),
    ("--server", "server", "NAME|URL", "a served graph"),
    ("--graph", "graph", "ID", "a graph inside a server or cluster"),
    ("--cluster", "cluster", "DIR|URI", "a cluster root"),
)
_BOOLEAN_FLAGS = (
    ("--yes", "yes", "consent to destructive changes of a graph that is not on this machine"),
    ("--quiet", "quiet", "leave out the notes on stderr"),
)
VALUE_FLAG_NAMES = frozenset(flag for flag, *_ in _VALUE_FLAGS)
# It is understood everywhere, so that each command can say why not.
_HIDDEN = frozenset({"--cluster"})


def scope_options() -> list[click.Parameter]:
    """Fresh option objects for the flags that may stand before or after any command."""
    options: list[click.Parameter] = [
        completed(click.Option([flag, name], metavar=metavar, help=text, hidden=flag in _HIDDEN))
        for flag, name, metavar, text in _VALUE_FLAGS
    ]
    options += [
        click.Option([flag, name], is_flag=True, help=text) for flag, name, text in _BOOLEAN_FLAGS
    ]
    return options


def verb(
    name: str,
    *,
    capability: Capability = Capability.ANY,
    writes: bool = False,
    positional: Positional = "uri",
    hidden: bool = False,
) -> Callable[[Body], click.Command]:
    """Make a command of a function whose first argument is the `Call`.

    The function's own click options and arguments are kept; the shared ones are added after them.
    Whatever works on a graph takes it as its last argument; a command whose own arguments leave no
    room for that says `positional="none"`.
    """

    def decorate(body: Body) -> click.Command:
        own: list[click.Parameter] = list(reversed(getattr(body, "__click_params__", [])))
        taken = {flag for one in own for flag in one.opts}
        # `commit list --graph` draws, and takes the graph's name itself.
        shared = [one for one in scope_options() if taken.isdisjoint(one.opts)]
        works_on_graph = capability in (Capability.ANY, Capability.DIRECT)
        address = _address(positional if works_on_graph else "none")
        for one in [*address, *shared] if capability is Capability.LOCAL else ():
            if isinstance(one, click.Option):
                one.hidden = True  # it may stand before any command, but says nothing to this one
        return click.Command(
            name.rpartition(" ")[2],
            params=[completed(one) for one in (*own, *address, *shared, _json_option())],
            callback=_callback(body, name=name, capability=capability, writes=writes),
            help=body.__doc__,
            hidden=hidden,
        )

    return decorate


def _address(positional: Positional) -> list[click.Parameter]:
    option = click.Option(["--uri", "uri_option"], metavar="URI", help="same as --store")
    if positional == "none":
        return [option]
    return [click.Argument(["uri_argument"], metavar="[URI]", required=False), option]


def _json_option() -> click.Option:
    return click.Option(["--json", "as_json"], is_flag=True, help="print JSON")


def _callback(body: Body, *, name: str, capability: Capability, writes: bool) -> Body:
    def run(**values: Any) -> None:
        context = click.get_current_context()
        outer: Mapping[str, Any] = context.find_root().params
        shared = {
            flag: values.pop(flag, None) or outer.get(flag)
            for _, flag, *_ in (*_VALUE_FLAGS, *_BOOLEAN_FLAGS)
        }
        uri, other = values.pop("uri_argument", None), values.pop("uri_option")
        if uri is not None and other is not None:
            raise click.UsageError("--uri cannot be used with a positional URI")
        call = Call(
            verb=name,
            capability=capability,
            writes=writes,
            environ=os.environ,
            as_json=values.pop("as_json"),
            quiet=bool(shared.pop("quiet")),
            yes=bool(shared.pop("yes")),
            acting_as=shared.pop("acting_as"),
            own_process=context.find_root().obj is OWN_PROCESS,
            flags=ScopeFlags(uri=uri if uri is not None else other, **shared),
        )
        body(call, **values)

    return run


def together(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Several options as one decorator; they are listed in this order."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


state_options = together(
    click.option("--branch", metavar="REF", help="the branch to read  [default: main]"),
    click.option(
        "--snapshot",
        "--at",
        metavar="REF",
        help="an earlier state: a commit, a tag, main~2, a time",
    ),
)
branch_option = click.option(
    "--branch", default="main", show_default=True, metavar="BRANCH", help="the branch to work on"
)
embed_option = click.option(
    "--embed",
    is_flag=True,
    help="make vectors that records lack by the environment's embedder",
)
once_option = click.option(
    "--idempotency-key", metavar="KEY", help="do it once, however often it is submitted"
)

message_option = click.option("-m", "--message", metavar="TEXT", help="what the commit is about")


ENGINES = ("auto", "local", "spark")


def engines(usual: str, help: str) -> Callable[[Any], Any]:  # noqa: A002  (as click calls it)
    """The options that say where the work is done."""
    return together(
        click.option(
            "--engine", type=click.Choice(ENGINES), default=usual, show_default=True, help=help
        ),
        click.option("--spark-master", metavar="MASTER", help="a Spark master, such as local[4]"),
        click.option("--spark-remote", metavar="URL", help="a Spark Connect server (sc://…)"),
    )


engine_options = engines("auto", "work in this process or on Spark")


def landed_words(result: Any, *, nothing: str) -> str:
    """Which commit a write made, for people."""
    if result.commit is None:
        return nothing
    again = " (already applied)" if result.already_applied else ""
    return f"commit {result.commit.graph_commit_id}{again}"


def exclusive(values: Mapping[str, Any]) -> None:
    """Refuse two options that say the same thing in two ways."""
    given = [name for name, value in values.items() if value not in (None, ())]
    if len(given) > 1:
        raise click.UsageError(f"the option '{given[0]}' cannot be used with '{given[1]}'")


class CommandGroup(click.Group):
    """A group of subcommands that lists them in the order they were written."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, command in self.commands.items() if not command.hidden]


def spark_session(call: Call, master: str | None, remote: str | None) -> SparkSession:
    """The session of this process, started if there is none; that takes seconds, and is told."""
    if master is not None and remote is not None:
        raise click.UsageError("the option '--spark-master' cannot be used with '--spark-remote'")
    from omnigraph import pipeline

    for name in _PY4J_LOGGERS:
        logging.getLogger(name).addFilter(is_no_interrupt_of_py4j)
    place = f"on {master or 'this machine'}" if remote is None else f"at {remote}"
    words = f"{'starting' if remote is None else 'connecting to'} Spark {place}"
    if not call.wants_progress:
        call.note(f"{words} …")
        return pipeline.session(master=master, remote=remote)
    from omnigraph.pipeline.progress import status_line

    with status_line(f"{words} …"):
        return pipeline.session(master=master, remote=remote)


# A filter sees what its own logger was told, and py4j tells the root logger, too.
_PY4J_LOGGERS: Final = (None, "py4j.java_gateway", "py4j.clientserver")


def is_no_interrupt_of_py4j(record: logging.LogRecord) -> bool:
    """Whether a record may be printed: py4j logs a traceback for every Ctrl-C, and one more if the
    connection cannot be closed then; we tell of the interrupt ourselves."""
    if not record.exc_info or "py4j" not in record.pathname:
        return True
    return interrupt_behind(record.exc_info[1]) is None


# --- files ----------------------------------------------------------------------------------------


@contextmanager
def told_places(path: str | None, *, word: str = "query") -> Iterator[None]:
    """Errors in a text of a file name the file, so that editors and people find the line."""
    try:
        yield
    except OmnigraphError as error:
        excerpt = error.facts.get("excerpt")
        if path is not None and isinstance(excerpt, str) and excerpt.startswith(f"{word}:"):
            error.facts["excerpt"] = path + excerpt.removeprefix(word)
        raise


def read_text(path: str, *, what: str) -> str:
    """A file's text (`-` is stdin), or an error that names the file and what it was to be."""
    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as cause:
        raise InputError(f"cannot read {what} '{path}': it is not UTF-8 text") from cause
    except OSError as cause:
        raise unreadable(path, cause, what=what) from cause


def unreadable(path: str, cause: OSError, *, what: str) -> InputError | NotFoundError:
    """Our error for a file that the system will not give us."""
    reason = cause.strerror or str(cause)
    message = f"cannot read {what} '{path}': {reason}"
    if isinstance(cause, FileNotFoundError):
        return NotFoundError(message, kind="file", name=path)
    return InputError(message)


def write_text(path: str, text: str, *, what: str) -> None:
    """Write a file that the user named, or say why it cannot be."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as cause:
        raise InputError(f"cannot write {what} '{path}': {cause.strerror or cause}") from cause


def write_lines(path: str | None, lines: Iterable[str]) -> int:
    """Write lines to a file, or to stdout when no file is named; how many there were."""
    if path is None:
        return _copy(lines, sys.stdout)
    target = Path(path).resolve()
    try:
        if target.exists() and not target.is_file():  # a pipe or a device takes what comes
            with target.open("w", encoding="utf-8", newline="\n") as out:
                return _copy(lines, out)
        return _written_whole(target, lines)
    except OSError as cause:
        raise InputError(f"cannot write '{path}': {cause.strerror or cause}") from cause


def _written_whole(target: Path, lines: Iterable[str]) -> int:
    """Write beside the target and put it there at the end: half an export looks like a whole one,
    and an earlier one is not given up for it."""
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with draft.open("w", encoding="utf-8", newline="\n") as out:
            count = _copy(lines, out)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return count


def _copy(lines: Iterable[str], out: TextIO) -> int:
    count = 0
    for line in lines:
        out.write(line + "\n")
        count += 1
    out.flush()
    return count


def read_params(
    text: str | None, path: str | None, given: Sequence[str] = ()
) -> dict[str, Any] | None:
    """The parameters: a JSON object from the command line or from a file, and those given one by
    one as `name=value`, which come after it."""
    exclusive({"--params <JSON>": text, "--params-file <FILE>": path})
    if path is not None:
        text = read_text(path, what="parameter file")
    if text is None:
        return _read_each(given) if given else None
    try:
        params = json.loads(text)
    except ValueError as cause:
        raise InputError(f"the parameters are not valid JSON: {cause}") from cause
    if not isinstance(params, dict):
        raise InputError("the parameters must be a JSON object", hint='for example {"name": "Ada"}')
    return params | _read_each(given)


def _read_each(given: Sequence[str]) -> dict[str, Any]:
    """`name=value` pairs; a value that is no JSON is text."""
    found: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise click.UsageError(f"-p takes NAME=VALUE, got '{pair}'")
        try:
            found[name.removeprefix("$")] = json.loads(value)
        except ValueError:
            found[name.removeprefix("$")] = value
    return found
