"""`branch create|list|delete|merge`."""

from __future__ import annotations

from typing import Any

import click

from omnigraph.cli.call import Call
from omnigraph.cli.verbs import CommandGroup, verb
from omnigraph.errors import OmnigraphError

branch = CommandGroup("branch", help="Create, list, delete and merge branches.")


@verb("branch create", writes=True)
@click.argument("name")
@click.option(
    "--from",
    "from_branch",
    default="main",
    show_default=True,
    metavar="BRANCH",
    help="the other branch",
)
def create(call: Call, name: str, from_branch: str) -> None:
    """Make branch NAME from the head of another."""
    call.announce()
    with call.graph(write=True) as graph:
        graph.create_branch(name, from_branch=from_branch, actor=call.actor)
    payload = {"uri": call.target.uri, "from": from_branch, "name": name}
    call.emit(call.with_actor(payload), human=f"created branch {name} from {from_branch}")


@verb("branch list")
def list_branches(call: Call) -> None:
    """List the branches by name."""
    with call.graph() as graph:
        names = sorted(graph.branches())
    call.emit({"branches": names}, human=names)


@verb("branch delete", writes=True)
@click.argument("name")
def delete(call: Call, name: str) -> None:
    """Delete branch NAME; its own commits leave the history with it."""
    call.consent()
    call.announce()
    with call.graph(write=True) as graph:
        graph.delete_branch(name, actor=call.actor)
    payload = {"uri": call.target.uri, "name": name}
    call.emit(call.with_actor(payload), human=f"deleted branch {name}")


@verb("branch merge", writes=True)
@click.argument("source")
@click.option(
    "--into", "target", default="main", show_default=True, metavar="BRANCH", help="the other branch"
)
@click.option("--delete-branch", is_flag=True, help="delete SOURCE after a merge that succeeded")
def merge(call: Call, source: str, target: str, delete_branch: bool) -> None:
    """Merge branch SOURCE into another; conflicts leave everything as it was."""
    call.announce()
    with call.graph(write=True) as graph:
        result = graph.merge(source, into=target, actor=call.actor)
        payload: dict[str, Any] = {"source": source, "target": target, "outcome": result.outcome}
        lines = [f"merged {source} into {target}: {result.outcome}"]
        if delete_branch:
            payload["branch_deleted"] = True
            try:
                graph.delete_branch(source, actor=call.actor)
                lines.append(f"deleted branch {source}")
            except OmnigraphError as error:
                # The merge has landed; a branch left over is worth a warning, not a failure.
                payload |= {"branch_deleted": False, "branch_delete_error": error.message}
                lines.append(f"warning: branch {source} was not deleted: {error.message}")
    call.emit(call.with_actor(payload), human=lines)


for _command in (create, list_branches, delete, merge):
    branch.add_command(_command)
