"""`commit list|show|changes` and `diff`."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli.call import Call
from omnigraph.cli.output import cell
from omnigraph.cli.verbs import CommandGroup, verb

if TYPE_CHECKING:
    from omnigraph.model.graph import Commit

commit = CommandGroup("commit", help="List, show and explain commits.")
_SIGNS = {"insert": "+", "update": "~", "delete": "-"}


@verb("commit list", positional="uri")
@click.option(
    "--branch", default="main", show_default=True, metavar="NAME", help="the branch meant"
)
@click.option("--filter", "filters", multiple=True, metavar="actor=NAME", help="only these commits")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="only the newest N")
def list_commits(call: Call, branch: str, filters: tuple[str, ...], limit: int | None) -> None:
    """List the commits of a branch, newest first."""
    actor = _actor_filter(filters)
    with call.graph() as graph:
        found = graph.commits(branch, actor=actor, limit=limit)
    payload = {"commits": [one.to_json() for one in found]}
    call.emit(payload, human=[_commit_line(one) for one in found])


def _actor_filter(filters: tuple[str, ...]) -> str | None:
    actor: str | None = None
    for text in filters:
        name, sign, value = text.partition("=")
        if name != "actor" or not sign or not value:
            raise click.BadParameter(
                f"'{text}' is not of the form actor=NAME", param_hint="--filter"
            )
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


def _filters(command: Any) -> Any:
    """The three filters that every view of changes takes, each repeatable."""
    for flag, name, choices in (
        ("--op", "ops", click.Choice(["insert", "update", "delete"])),
        ("--type", "types", click.STRING),
        ("--kind", "kinds", click.Choice(["node", "edge"])),
    ):
        command = click.option(flag, name, multiple=True, type=choices, help="repeatable")(command)
    return command


@verb("commit changes")
@click.argument("commit_id", metavar="ID")
@_filters
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
    kinds: tuple[str, ...],
    types: tuple[str, ...],
    ops: tuple[str, ...],
    limit: int | None,
    page_token: str | None,
) -> None:
    """Show what a commit changed, entity by entity, against its first parent."""
    found: list[Any] = []
    with call.graph() as graph:
        while True:
            page = graph.commit_changes(
                commit_id,
                kinds=kinds or None,
                types=types or None,
                ops=ops or None,
                limit=limit,
                page_token=page_token,
            )
            found.extend(page.changes)
            page_token = page.next_page_token
            if limit is not None or page_token is None:
                break
    payload: dict[str, Any] = {"graph_commit_id": commit_id, **_changes_json(found)}
    if page_token is not None:
        payload["next_page_token"] = page_token
    call.emit(payload, human=[line for change in found for line in change_lines(change)])


def _changes_json(found: list[Any]) -> dict[str, Any]:
    return {"changes": [change.to_json() for change in found]}


def change_lines(change: Any) -> list[str]:
    """One change for people: a sign, the entity, and the properties that differ."""
    lines = [f"{_SIGNS[change.op]} {change.kind} {change.type_name} {change.id}"]
    before = dict(change.before.properties) if change.before is not None else {}
    after = dict(change.after.properties) if change.after is not None else {}
    if change.op == "update":
        lines += [
            f"    {name}: {cell(before.get(name)) or 'null'} → {cell(after.get(name)) or 'null'}"
            for name in {**before, **after}
            if before.get(name) != after.get(name)
        ]
    return lines


@verb("diff")
@click.argument("from_ref", metavar="FROM")
@click.argument("to_ref", metavar="TO")
@_filters
def diff(
    call: Call,
    from_ref: str,
    to_ref: str,
    *,
    kinds: tuple[str, ...],
    types: tuple[str, ...],
    ops: tuple[str, ...],
) -> None:
    """Show what is different at TO, seen from FROM; each a branch or a commit id."""
    with call.graph() as graph:
        found = graph.diff(
            from_ref, to_ref, kinds=kinds or None, types=types or None, ops=ops or None
        )
    lines = [
        f"{_SIGNS[change.op]} {change.kind} {change.type_name} {change.id}"
        for change in found.changes
    ]
    call.emit(found.to_json(), human=lines or ["no difference"])


for _command in (list_commits, show, changes):
    commit.add_command(_command)
