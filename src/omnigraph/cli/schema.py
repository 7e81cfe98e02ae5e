"""`schema show|plan|apply`."""

from __future__ import annotations

from typing import Any

import click

from omnigraph.cli.call import Call, read_text
from omnigraph.cli.output import cell
from omnigraph.cli.scope import Capability
from omnigraph.cli.verbs import CommandGroup, exclusive, once_option, verb

schema = CommandGroup("schema", help="Show, plan and apply schemas.")
_LOSS = click.option(
    "--allow-data-loss", is_flag=True, help="let dropped types and properties go for good"
)


def _show(call: Call, branch: str) -> None:
    """Print the schema that a branch was written under."""
    with call.graph() as graph:
        source = graph.schema_source(branch)
    call.emit({"schema_source": source}, human=source.rstrip("\n"))


_branch_option = click.option(
    "--branch", default="main", show_default=True, metavar="NAME", help="the branch meant"
)
show = verb("schema show", positional="uri")(_branch_option(_show))
get = verb("schema get", positional="uri", hidden=True)(_show)


@verb("schema plan", capability=Capability.DIRECT, positional="uri")
@click.option("--schema", "--new", "new_path", metavar="FILE", required=True, help="the new schema")
@click.option("--old", "old_path", metavar="FILE", help="an old schema file instead of a graph")
@_LOSS
def plan(call: Call, new_path: str, old_path: str | None, *, allow_data_loss: bool) -> None:
    """Show the steps from the graph's schema to another, without taking them."""
    addressed = call.flags.uri or call.flags.store
    exclusive({"--old": old_path, "a graph": addressed})
    source = read_text(new_path, what="schema")
    where: dict[str, Any]
    if old_path is not None:
        from omnigraph.compiler.schema import compile_schema, plan_migration

        old = compile_schema(read_text(old_path, what="schema"), name=old_path)
        new = compile_schema(source, name=new_path)
        found = plan_migration(old, new, allow_data_loss=allow_data_loss)
        where = {"old": old_path}
    else:
        where = {"uri": call.target.uri}
        with call.graph() as graph:
            found = graph.plan_schema(source, allow_data_loss=allow_data_loss)
    steps = [step.to_json() for step in found.steps]
    payload = {**where, "supported": found.supported, "step_count": len(steps), "steps": steps}
    verdict = "supported" if found.supported else "not supported"
    call.emit(payload, human=[*step_lines(steps), f"{len(steps)} steps, {verdict}"])


@verb("schema apply", positional="uri", writes=True)
@click.option("--schema", "new_path", metavar="FILE", required=True, help="the new schema")
@_LOSS
@once_option
def apply(call: Call, new_path: str, *, allow_data_loss: bool, idempotency_key: str | None) -> None:
    """Bring the graph to another schema in one commit."""
    source = read_text(new_path, what="schema")
    if allow_data_loss:
        call.consent()
    call.announce()
    with call.graph(write=True) as graph:
        result = graph.apply_schema(
            source,
            allow_data_loss=allow_data_loss,
            actor=call.actor,
            idempotency_key=idempotency_key,
        )
    payload = {"uri": call.target.uri, **result.to_json()}
    verdict = "applied" if result.applied else "nothing to apply"
    verdict = "already applied" if result.already_applied else verdict
    human = [*step_lines(payload["steps"]), f"{result.step_count} steps, {verdict}"]
    call.emit(payload, human=human)


def step_lines(steps: list[dict[str, Any]]) -> list[str]:
    """The steps of a plan for people: the kind, then its fields."""
    return [
        f"{step['kind']}: "
        + ", ".join(
            f"{name}={cell(value)}"
            for name, value in step.items()
            if name != "kind" and value is not None
        )
        for step in steps
    ]


for _command in (show, get, plan, apply):
    schema.add_command(_command)
