"""What every command shares: address flags, `--json`, and the call object its body gets."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Literal

import click

from omnigraph.cli.call import Call
from omnigraph.cli.scope import Capability, ScopeFlags

Body = Callable[..., None]
# The object of the root context when the command line is what the whole process is for.
OWN_PROCESS = object()
Positional = Literal["uri", "none"]

_VALUE_FLAGS = (
    ("--store", "store", "URI", "the graph's storage: a folder, file:// or s3://"),
    ("--profile", "profile", "NAME", "a named scope of the operator's configuration"),
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
# These wait for the server; they are understood everywhere, so that each command can say why not.
_HIDDEN = frozenset({"--server", "--graph", "--cluster"})


def scope_options() -> list[click.Parameter]:
    """Fresh option objects for the flags that may stand before or after any command."""
    options: list[click.Parameter] = [
        click.Option([flag, name], metavar=metavar, help=text, hidden=flag in _HIDDEN)
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
    positional: Positional = "none",
    hidden: bool = False,
) -> Callable[[Body], click.Command]:
    """Make a command of a function whose first argument is the `Call`.

    The function's own click options and arguments are kept; the shared ones are added after them.
    """

    def decorate(body: Body) -> click.Command:
        own: list[click.Parameter] = list(reversed(getattr(body, "__click_params__", [])))
        taken = {flag for one in own for flag in one.opts}
        # `commit list --graph` draws; there the graph's name stands before the command.
        shared = [one for one in scope_options() if taken.isdisjoint(one.opts)]
        return click.Command(
            name.rpartition(" ")[2],
            params=[*own, *_address(positional), *shared, _json_option()],
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


once_option = click.option(
    "--idempotency-key", metavar="KEY", help="do it once, however often it is submitted"
)


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
