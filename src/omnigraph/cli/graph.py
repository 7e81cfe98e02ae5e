"""`init`, `snapshot`, `version`, and the operator's named scopes: `profile` and `graphs`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnigraph import __version__
from omnigraph.cli.call import Call, CommandGroup, exclusive, read_text, told_places, verb
from omnigraph.cli.scope import Capability, profile_named, refuse_flag
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model import limits
from omnigraph.model.machine import local_path
from omnigraph.model.tables import cell

if TYPE_CHECKING:
    from omnigraph.model.graph import Snapshot


@verb("init", capability=Capability.DIRECT, writes=True)
@click.option("--schema", "schema_path", metavar="FILE", required=True, help="the .pg schema")
def init(call: Call, schema_path: str) -> None:
    """Make a new, empty graph at URI with the schema of a .pg file."""
    if call.flags.profile is not None:
        raise refuse_flag("init", call.capability, "profile")
    schema = read_text(schema_path, what="schema")
    uri = call.target.uri
    _refuse_cluster_layout(uri)
    from omnigraph import Graph

    with (
        told_places(schema_path, word="schema"),
        Graph.init(uri, schema, actor=call.actor) as graph,
    ):
        commit = graph.commits(limit=1)[0]
    payload = {"uri": uri, "initialized": True, "graph_commit_id": commit.graph_commit_id}
    call.emit(call.with_actor(payload), human=f"initialized {uri}")


def _refuse_cluster_layout(uri: str) -> None:
    """A graph below a cluster root belongs to the cluster, which keeps its own ledger."""
    local = local_path(uri)
    if local is None:
        return
    path = Path(local)
    if path.parent.name == "graphs" and (path.parent.parent / "__cluster/state.json").exists():
        raise InputError(
            f"'{uri}' lies inside a cluster; its graphs are made by the cluster",
            hint="choose a folder outside the cluster's root",
        )


@verb("snapshot")
@click.option("--branch", metavar="BRANCH", help="the branch to look at  [default: main]")
@click.option(
    "--snapshot",
    "--at",
    "at",
    metavar="REF",
    help="an earlier state: a commit, a tag, main~2, a time",
)
def snapshot(call: Call, branch: str | None, at: str | None) -> None:
    """Show which version of which dataset makes up the graph."""
    exclusive({"--branch": branch, "--at": at})
    with call.graph() as graph:
        view = graph.snapshot(branch or "main", at=at)
    payload = {"internal_schema_version": limits.INTERNAL_SCHEMA_VERSION, **view.to_json()}
    call.emit(payload, human=_snapshot_lines(view))


def _snapshot_lines(view: Snapshot) -> list[str]:
    lines = [f"branch {view.graph_branch} at commit {view.graph_commit_id}"]
    lines += [
        f"  {entry.entity_kind} type '{entry.type_name}': {entry.entity_count} entities "
        f"(version {entry.published_dataset_version}, {entry.dataset_path})"
        for entry in view.datasets
    ]
    return lines


@verb("version", capability=Capability.LOCAL)
def version(call: Call) -> None:
    """Print the release and the version of the format on disk."""
    call.emit(
        {"omnigraph": __version__, "internal_schema_version": limits.INTERNAL_SCHEMA_VERSION},
        human=[
            f"omnigraph {__version__}",
            f"internal-schema {limits.INTERNAL_SCHEMA_VERSION}",
        ],
    )


# --- named scopes ---------------------------------------------------------------------------------

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
@click.argument("name", metavar="[PROFILE]", required=False)
def show(call: Call, name: str | None) -> None:
    """Show PROFILE, or the active one."""
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
    server = server or call.config.defaults.get("server")
    if server is None:
        raise InputError(
            "`graphs list` needs a server scope: pass --server <name|url> or --profile <name>"
        )
    from omnigraph.cli.credentials import server_url, token_for
    from omnigraph.client.http import Connection, served_graphs

    url = server_url(call.config, str(server))
    token = token_for(call.config, url, call.environ)
    found = served_graphs(Connection(url, token=token, timeout=60.0))
    call.emit({"graphs": found}, human=[f"{one['graph_id']}  {one['uri']}" for one in found])


profile.add_command(list_profiles)
profile.add_command(show)
graphs.add_command(list_graphs)
