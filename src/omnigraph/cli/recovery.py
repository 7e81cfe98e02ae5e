"""`recovery list|show|resolve`: unfinished writes, and what became of earlier ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.call import Call
from omnigraph.cli.output import cell
from omnigraph.cli.scope import Capability
from omnigraph.cli.verbs import CommandGroup, exclusive, verb
from omnigraph.errors import NotFoundError

if TYPE_CHECKING:
    from omnigraph.storage.recovery import Resolution

recovery = CommandGroup("recovery", help="Unfinished writes, and what became of earlier ones.")


@verb("recovery list", capability=Capability.DIRECT, positional="uri")
def list_recoveries(call: Call) -> None:
    """List the unfinished writes and the recoveries on record."""
    with call.graph() as graph:
        pending = [one.to_json() for one in graph.pending_recoveries()]
        done = [one.to_json() for one in graph.recoveries()]
        problems = graph.recovery_log_problems()
    lines = [f"pending   {_line(one)}" for one in pending]
    lines += [f"recovered {_line(one)}" for one in done]
    lines += [f"unreadable {problem}" for problem in problems]
    payload: dict[str, Any] = {"pending": pending, "recoveries": done}
    if problems:
        payload["unreadable"] = problems
    call.emit(payload, human=lines or ["no unfinished writes and no recoveries"])


def _line(one: dict[str, Any]) -> str:
    names = ("operation_id", "writer_kind", "recovery_kind", "branch", "graph_branch", "problem")
    return "  ".join(cell(one[name]) for name in names if one.get(name) is not None)


@verb("recovery show", capability=Capability.DIRECT)
@click.argument("operation_id", metavar="ID")
def show(call: Call, operation_id: str) -> None:
    """Show one unfinished write or one recovery, by its operation id."""
    with call.graph() as graph:
        pending = [one.to_json() for one in graph.pending_recoveries()]
        done = [one.to_json() for one in graph.recoveries()]
    found = [one for one in (*pending, *done) if one["operation_id"] == operation_id]
    if not found:
        raise NotFoundError(
            f"no unfinished write and no recovery has the operation id '{operation_id}'",
            kind="operation",
            name=operation_id,
            hint="`omnigraph recovery list` shows them",
        )
    call.emit(found[0], human=_block(found[0]))


def _block(one: dict[str, Any]) -> list[str]:
    return [f"{name:24} {cell(value) or '-'}" for name, value in one.items()]


@verb("recovery resolve", capability=Capability.DIRECT, writes=True)
@click.argument("operation_id", metavar="ID")
@click.option("--roll-back", is_flag=True, help="restore the tables, whatever had landed")
@click.option("--discard", is_flag=True, help="forget the write; the tables stay as they are")
def resolve(call: Call, operation_id: str, *, roll_back: bool, discard: bool) -> None:
    """Finish or undo one unfinished write; without a flag, as recovery itself would."""
    exclusive({"--roll-back": roll_back or None, "--discard": discard or None})
    if roll_back or discard:
        call.consent()
    call.announce()
    with call.graph(write=True) as graph:
        how: Resolution = "roll-back" if roll_back else "discard" if discard else "auto"
        record = graph.resolve_recovery(operation_id, how).to_json()
    call.emit(record, human=_block(record))


@verb("recovery clear-log", capability=Capability.DIRECT, writes=True)
def clear_log(call: Call) -> None:
    """Remove a damaged record of recoveries; the graph is not touched and a new one is begun."""
    call.consent()
    call.announce()
    with call.graph(write=True) as graph:
        graph.clear_recovery_log()
    call.emit({"uri": call.target.uri, "cleared": True}, human="removed the record of recoveries")


for _command in (list_recoveries, show, resolve, clear_log):
    recovery.add_command(_command)
