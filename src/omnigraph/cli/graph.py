"""`init`, `snapshot` and `version`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnigraph import __version__
from omnigraph.cli.call import Call, exclusive, read_text, verb
from omnigraph.cli.scope import Capability, refuse_flag
from omnigraph.errors import InputError
from omnigraph.model import limits
from omnigraph.model.addresses import local_path

if TYPE_CHECKING:
    from omnigraph.model.graph import Snapshot


@verb("init", capability=Capability.DIRECT, positional="uri", writes=True)
@click.option("--schema", "schema_path", metavar="FILE", required=True, help="the .pg schema")
def init(call: Call, schema_path: str) -> None:
    """Make a new, empty graph at URI with the schema of a .pg file."""
    if call.flags.profile is not None:
        raise refuse_flag("init", call.capability, "profile")
    schema = read_text(schema_path, what="schema")
    uri = call.target.uri
    _refuse_cluster_layout(uri)
    from omnigraph import Graph

    with Graph.init(uri, schema, actor=call.actor) as graph:
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


@verb("snapshot", positional="uri")
@click.option("--branch", metavar="NAME", help="the branch to look at  [default: main]")
@click.option("--snapshot", "--at", "at", metavar="COMMIT|TIME", help="an earlier state")
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
