"""`profile list|show` and `graphs list`: the operator's named scopes."""

from __future__ import annotations

import click

from omnigraph.cli.call import Call, CommandGroup, verb
from omnigraph.cli.output import cell
from omnigraph.cli.scope import Capability, profile_named, refuse_flag
from omnigraph.errors import InputError, NotFoundError

profile = CommandGroup("profile", help="The operator's named scopes.")
graphs = CommandGroup("graphs", help="The graphs of a server.")


def _active(call: Call) -> str | None:
    return call.flags.profile or call.environ.get("OMNIGRAPH_PROFILE")


@verb("profile list", capability=Capability.LOCAL)
def list_profiles(call: Call) -> None:
    """List the profiles of the operator's configuration."""
    active = _active(call)
    found = [call.config.profiles[name] for name in sorted(call.config.profiles)]
    lines = [
        f"{'*' if one.name == active else ' '} {one.name}  {one.error or one.binding}"
        for one in found
    ]
    payload = [one.to_json(active=one.name == active) for one in found]
    call.emit(payload, human=lines or [f"no profiles in '{call.config.path}'"])


@verb("profile show", capability=Capability.LOCAL)
@click.argument("name", required=False)
def show(call: Call, name: str | None) -> None:
    """Show one profile: NAME, or the active one."""
    wanted = name or _active(call)
    if wanted is None:
        raise InputError(
            "no profile is active", hint="name one, pass --profile, or set OMNIGRAPH_PROFILE"
        )
    if wanted not in call.config.profiles:
        raise NotFoundError(
            f"no profile '{wanted}' in '{call.config.path}'", kind="profile", name=wanted
        )
    body = call.config.profiles[wanted].to_json(active=wanted == _active(call))
    call.emit(body, human=[f"{key:14} {cell(value) or '-'}" for key, value in body.items()])


@verb("graphs list", capability=Capability.SERVED)
def list_graphs(call: Call) -> None:
    """List the graphs that a server offers."""
    if call.flags.store is not None or call.flags.uri is not None:
        raise refuse_flag("graphs list", call.capability, "store")
    server = call.flags.server
    name = _active(call)
    if server is None and name is not None:
        bound = profile_named(call.config, name)
        server = bound.target if bound.scope_kind == "server" else None
    if server is None:
        raise InputError(
            "`graphs list` needs a server scope: pass --server <name|url> or --profile <name>"
        )
    raise InputError(
        f"cannot reach the server '{server}': this release works on storage directly",
        hint="list the folders of graphs instead",
    )


profile.add_command(list_profiles)
profile.add_command(show)
graphs.add_command(list_graphs)
