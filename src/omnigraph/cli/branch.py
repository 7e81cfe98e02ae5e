"""`branch create|list|delete|merge`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.call import Call, CommandGroup, exclusive, message_option, once_option, verb
from omnigraph.cli.history import change_counts

if TYPE_CHECKING:
    from omnigraph.engine.merge.conflicts import Strategy

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
        damaged = [one.to_json() for one in graph.unreadable_branches()]
    payload: dict[str, Any] = {"branches": names}
    if damaged:
        payload["unreadable"] = damaged
    lines = [f"{one['name']}  (unreadable: {one['problem']})" for one in damaged]
    call.emit(payload, human=[*names, *lines])


@verb("branch delete", writes=True)
@click.argument("name")
@click.option("--force", is_flag=True, help="also if its reference is damaged and cannot be read")
def delete(call: Call, name: str, *, force: bool) -> None:
    """Delete branch NAME; its own commits leave the history with it."""
    call.consent()
    call.announce()
    with call.graph(write=True) as graph:
        graph.delete_branch(name, actor=call.actor, force=force)
    payload = {"uri": call.target.uri, "name": name}
    call.emit(call.with_actor(payload), human=f"deleted branch {name}")


@verb("branch merge", writes=True)
@click.argument("source")
@click.option(
    "--into",
    "target",
    default="main",
    show_default=True,
    metavar="BRANCH",
    help="the other branch",
)
@click.option(
    "--strategy",
    type=click.Choice(["fail", "ours", "theirs", "property"]),
    default="fail",
    show_default=True,
    help="what becomes of entities that both sides changed",
)
@click.option("--preview", is_flag=True, help="show what the merge would do, and do nothing")
@click.option("--delete-branch", is_flag=True, help="delete SOURCE after a merge that succeeded")
@message_option
@once_option
def merge(
    call: Call,
    source: str,
    *,
    target: str,
    strategy: Strategy,
    preview: bool,
    delete_branch: bool,
    message: str | None,
    idempotency_key: str | None,
) -> None:
    """Merge branch SOURCE into another; conflicts leave everything as it was."""
    if preview:
        exclusive({"--preview": True, "--delete-branch": delete_branch or None})
        exclusive({"--preview": True, "--idempotency-key": idempotency_key})
        exclusive({"--preview": True, "--message": message})
        with call.graph() as graph:
            plan = graph.merge_preview(source, target, strategy=strategy).to_json()
        lines = [f"would merge {source} into {target}: {plan['outcome']}"]
        lines += [*change_counts(plan["changes"]), *_conflict_lines(plan["conflicts"])]
        call.emit(plan, human=lines)
        return
    call.announce()
    with call.graph(write=True) as graph:
        result = graph.merge(
            source,
            into=target,
            actor=call.actor,
            strategy=strategy,
            delete_branch=delete_branch,
            message=message,
            idempotency_key=idempotency_key,
        )
    again = " (already applied)" if result.already_applied else ""
    lines = [f"merged {source} into {target}: {result.outcome}{again}"]
    lines += change_counts({key: counts.to_json() for key, counts in result.changes.items()})
    if result.branch_deleted:
        lines.append(f"deleted branch {source}")
    elif result.branch_delete_error is not None:
        # The merge has landed; a branch left over is worth a warning, not a failure.
        lines.append(f"warning: branch {source} was not deleted: {result.branch_delete_error}")
    call.emit(result.to_json(), human=lines)


def _conflict_lines(conflicts: list[dict[str, Any]]) -> list[str]:
    return [f"  conflict: {one['kind']}: {one['message']}" for one in conflicts]


for _command in (create, list_branches, delete, merge):
    branch.add_command(_command)
