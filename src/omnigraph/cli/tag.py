"""`tag create|list|delete`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.call import Call, CommandGroup, message_option, verb
from omnigraph.cli.history import first_line, moment

if TYPE_CHECKING:
    from omnigraph.model.graph import Tag

tag = CommandGroup("tag", help="Name commits for good: create, list and delete tags.")


@verb("tag create", writes=True)
@click.argument("name")
@click.option("--at", metavar="REF", help="the commit to name  [default: the head of main]")
@message_option
def create(call: Call, name: str, *, at: str | None, message: str | None) -> None:
    """Name a commit NAME, for good."""
    call.announce()
    with call.graph(write=True) as graph:
        made = graph.create_tag(name, at, actor=call.actor, message=message)
    payload = {"uri": call.target.uri, **made.to_json()}
    call.emit(payload, human=f"created tag {name} at {made.graph_commit_id}")


@verb("tag list")
def list_tags(call: Call) -> None:
    """List the tags by name."""
    with call.graph() as graph:
        found = graph.tags()
        damaged = [one.to_json() for one in graph.unreadable_tags()]
    payload: dict[str, Any] = {"tags": [one.to_json() for one in found]}
    if damaged:
        payload["unreadable"] = damaged
    lines = [f"{one['name']}  (unreadable: {one['problem']})" for one in damaged]
    call.emit(payload, human=[*(tag_line(one) for one in found), *lines])


def tag_line(one: Tag) -> str:
    """What, which commit, when, who, and why."""
    facts = (one.name, one.graph_commit_id, moment(one.created_us), one.created_by or "-")
    return "  ".join(facts) + (f"  {first_line(one.message)}" if one.message else "")


@verb("tag delete", writes=True)
@click.argument("name")
def delete(call: Call, name: str) -> None:
    """Delete tag NAME; what only it named goes with the next cleanup."""
    call.consent()
    call.announce()
    with call.graph(write=True) as graph:
        graph.delete_tag(name)
    payload = {"uri": call.target.uri, "name": name}
    call.emit(call.with_actor(payload), human=f"deleted tag {name}")


for _command in (create, list_tags, delete):
    tag.add_command(_command)
