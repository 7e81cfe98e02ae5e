"""`commit list|show|changes|revert`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.branch import change_counts
from omnigraph.cli.call import Call
from omnigraph.cli.lanes import draw, in_order
from omnigraph.cli.output import cell
from omnigraph.cli.verbs import CommandGroup, exclusive, verb

if TYPE_CHECKING:
    from omnigraph.engine.changes import EntityChange
    from omnigraph.model.graph import Commit

commit = CommandGroup("commit", help="List, show, explain and undo commits.")
_SIGNS = {"insert": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}


@verb("commit list", positional="uri")
@click.option(
    "--branch", default="main", show_default=True, metavar="NAME", help="the branch meant"
)
@click.option("--filter", "filters", multiple=True, metavar="actor=NAME", help="only these commits")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="only the newest N")
@click.option("--graph", "drawn", is_flag=True, help="draw the history of all branches")
def list_commits(
    call: Call, branch: str, *, filters: tuple[str, ...], limit: int | None, drawn: bool
) -> None:
    """List the commits of a branch, newest first."""
    actor = _actor_filter(filters)
    if drawn:
        exclusive({"--graph": True, "--filter": actor})
        _draw(call, limit)
        return
    with call.graph() as graph:
        found = graph.commits(branch, actor=actor, limit=limit)
    payload = {"commits": [one.to_json() for one in found]}
    call.emit(payload, human=[_commit_line(one) for one in found])


def _draw(call: Call, limit: int | None) -> None:
    with call.graph() as graph:
        lines = {name: graph.commits(name) for name in graph.branches()}
    known = {one.graph_commit_id: one for line in lines.values() for one in line}
    ordered = [known[one.graph_commit_id] for one in in_order(known.values())][:limit]
    heads: dict[str, list[str]] = {}
    for name, line in lines.items():
        heads.setdefault(line[0].graph_commit_id, []).append(name)
    labels = {one.graph_commit_id: _label(one, heads) for one in ordered}
    payload = {
        "commits": [one.to_json() for one in ordered],
        "heads": {name: line[0].graph_commit_id for name, line in lines.items()},
    }
    call.emit(payload, human=list(draw(ordered, labels)))


def _label(one: Commit, heads: Mapping[str, list[str]]) -> str:
    names = heads.get(one.graph_commit_id, ())
    shown = click.style(f" ({', '.join(names)})", fg="green") if names else ""
    commit_id = click.style(one.graph_commit_id, fg="yellow")
    return f"{commit_id}{shown}  {moment(one.created_at)}  {one.actor_id or '-'}"


def _actor_filter(filters: tuple[str, ...]) -> str | None:
    actor: str | None = None
    for text in filters:
        name, sign, value = text.partition("=")
        if name != "actor" or not sign or not value:
            message = f"'{text}' is not of the form actor=NAME"
            raise click.BadParameter(message, param_hint="--filter")
        if actor is not None and actor != value:
            raise click.BadParameter("one actor at a time", param_hint="--filter")
        actor = value
    return actor


def _commit_line(one: Commit) -> str:
    merged = f"  merges {one.merged_parent_commit_id}" if one.merged_parent_commit_id else ""
    who = one.actor_id or "-"
    return f"{one.graph_commit_id}  {moment(one.created_at)}  {one.graph_branch}  {who}{merged}"


def moment(microseconds: int) -> str:
    """A point in time, as people and other programs read it."""
    when = dt.datetime.fromtimestamp(microseconds // 1_000_000, tz=dt.UTC)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


@verb("commit show")
@click.argument("commit_id", metavar="ID")
def show(call: Call, commit_id: str) -> None:
    """Show one commit."""
    with call.graph() as graph:
        one = graph.commit(commit_id)
    body = one.to_json()
    shown = {**body, "created_at": moment(one.created_at)}
    call.emit(body, human=[f"{name:24} {cell(value) or '-'}" for name, value in shown.items()])


def change_filters(command: Any) -> Any:
    """The three filters that every view of changes takes, each repeatable."""
    for flag, name, kind, text in (
        ("--op", "ops", click.Choice(["insert", "update", "delete"]), "only these; repeatable"),
        ("--type", "types", click.STRING, "only this type; repeatable"),
        ("--kind", "kinds", click.Choice(["node", "edge"]), "only nodes or edges"),
    ):
        metavar = "TYPE" if kind is click.STRING else None
        option = click.option(flag, name, multiple=True, type=kind, metavar=metavar, help=text)
        command = option(command)
    return command


def given_filters(filters: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """The filters as the engine takes them: nothing given means everything."""
    return {name: values or None for name, values in filters.items()}


@verb("commit changes")
@click.argument("commit_id", metavar="ID")
@change_filters
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="one page of at most N changes instead of all of them",
)
@click.option("--page-token", metavar="TOKEN", help="go on after an earlier page")
def changes(
    call: Call,
    commit_id: str,
    *,
    limit: int | None,
    page_token: str | None,
    **filters: tuple[str, ...],
) -> None:
    """Show what a commit changed, entity by entity, against its first parent."""
    wanted = given_filters(filters)
    found: list[EntityChange] = []
    with call.graph() as graph:
        while True:
            page = graph.commit_changes(commit_id, limit=limit, page_token=page_token, **wanted)
            found.extend(page.changes)
            page_token = page.next_page_token
            if limit is not None or page_token is None:
                break
    payload = {**page.to_json(), "changes": [change.to_json() for change in found]}
    call.emit(payload, human=[line for change in found for line in change_lines(change)])


def change_lines(change: EntityChange) -> list[str]:
    """One change for people: a sign, the entity, and the properties that differ."""
    sign, colour = _SIGNS[change.op]
    shown = change.after or change.before
    ends = shown.endpoints if shown is not None else None
    where = f"  {ends['from']} → {ends['to']}" if ends else ""
    lines = [click.style(f"{sign} {change.kind} {change.type_name} {change.id}{where}", fg=colour)]
    if change.before is not None and change.after is not None:
        before, after = (side.to_json()["properties"] for side in (change.before, change.after))
        lines += [
            f"    {name}: {_shown(before.get(name))} → {_shown(after.get(name))}"
            for name in {**before, **after}
            if before.get(name) != after.get(name)
        ]
    return lines


def _shown(value: Any) -> str:
    return "null" if value is None else cell(value) or '""'


@verb("commit revert", writes=True)
@click.argument("commit_id", metavar="ID")
@click.option(
    "--branch", default="main", show_default=True, metavar="NAME", help="the branch meant"
)
def revert(call: Call, commit_id: str, branch: str) -> None:
    """Undo one commit by a new one, if no later commit stands against it."""
    call.announce()
    with call.graph(write=True) as graph:
        result = graph.revert(commit_id, branch=branch, actor=call.actor)
    landed = "nothing left to undo" if result.commit is None else result.commit.graph_commit_id
    counts = {key: value.to_json() for key, value in result.changes.items()}
    human = [f"reverted {commit_id} on branch {branch}: {landed}", *change_counts(counts)]
    call.emit(result.to_json(), human=human)


for _command in (list_commits, show, changes, revert):
    commit.add_command(_command)
