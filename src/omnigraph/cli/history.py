"""`diff`, `changes poll|baseline` and `entity history`: what the past can tell."""

from __future__ import annotations

from typing import Any

import click

from omnigraph.cli.call import Call, write_lines
from omnigraph.cli.commit import change_filters, change_lines, given_filters, moment
from omnigraph.cli.output import json_line
from omnigraph.cli.verbs import CommandGroup, exclusive, verb

changes = CommandGroup("changes", help="Follow what changes on a branch.")
entity = CommandGroup("entity", help="One entity through time.")


@verb("diff")
@click.argument("from_ref", metavar="FROM")
@click.argument("to_ref", metavar="TO")
@change_filters
def diff(call: Call, from_ref: str, to_ref: str, **filters: tuple[str, ...]) -> None:
    """Show what is different at TO, seen from FROM; each a branch, a commit or a moment."""
    with call.graph() as graph:
        found = graph.diff(from_ref, to_ref, **given_filters(filters))
    lines = [line for change in found.changes for line in change_lines(change)]
    call.emit(found.to_json(), human=lines or ["no difference"])


_branch_option = click.option(
    "--branch", default="main", show_default=True, metavar="NAME", help="the branch meant"
)


@verb("changes poll")
@_branch_option
@change_filters
@click.option("--cursor", metavar="CURSOR", help="go on where an earlier poll ended")
@click.option("--start", metavar="WHERE", help="now, beginning or after:<commit>  [default: now]")
@click.option("--page-token", metavar="TOKEN", help="go on inside a commit that was too big")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="at most N changes")
def poll(
    call: Call,
    *,
    branch: str,
    cursor: str | None,
    start: str | None,
    page_token: str | None,
    limit: int | None,
    **filters: tuple[str, ...],
) -> None:
    """Show the commits after a cursor, and the cursor to pass next time."""
    exclusive({"--cursor": cursor, "--start": start, "--page-token": page_token})
    with call.graph() as graph:
        page = graph.changes(
            branch=branch,
            cursor=cursor,
            start=start,
            page_token=page_token,
            limit=limit,
            **given_filters(filters),
        )
    lines: list[str] = []
    for block in page.blocks:
        cause = block.cause
        lines.append(f"commit {cause.graph_commit_id}  {moment(cause.created_at)}")
        lines += [f"  {line}" for change in block.changes for line in change_lines(change)]
    if page.cursor is not None:
        lines.append(f"cursor {page.cursor}{'' if page.caught_up else '  (there is more)'}")
    else:
        lines.append(f"page-token {page.next_page_token}")
    call.emit(page.to_json(), human=lines)


@verb("changes baseline")
@click.option("--out", "out_path", required=True, metavar="FILE", help="the NDJSON to write")
@_branch_option
@change_filters
def baseline(call: Call, *, out_path: str, branch: str, **filters: tuple[str, ...]) -> None:
    """Write the whole state of a branch, and print the cursor that follows it."""
    with call.graph() as graph:
        start = graph.changes_baseline(branch=branch, **given_filters(filters))
        records = write_lines(out_path, start.lines)
    payload: dict[str, Any] = {
        "snapshot_commit_id": start.snapshot_commit_id,
        "resume_cursor": start.resume_cursor,
        "records": records,
    }
    call.emit(
        payload,
        human=[
            f"wrote {records} records to {out_path}",
            f"snapshot {start.snapshot_commit_id}",
            f"cursor {start.resume_cursor}",
        ],
    )


@verb("entity history")
@click.argument("kind", type=click.Choice(["node", "edge"]), metavar="node|edge")
@click.argument("type_name", metavar="TYPE")
@click.argument("entity_id", metavar="ID")
@_branch_option
def history(call: Call, *, kind: str, type_name: str, entity_id: str, branch: str) -> None:
    """Show every version of one entity, newest first, and who made it."""
    with call.graph() as graph:
        versions = graph.entity_history(kind, type_name, entity_id, branch=branch)
    payload = {
        "kind": kind,
        "type_name": type_name,
        "id": entity_id,
        "versions": [one.to_json() for one in versions],
    }
    lines = [
        f"{one.commit.graph_commit_id}  {moment(one.commit.created_at)}  "
        f"{one.commit.actor_id or '-'}  {one.op}"
        + (f"  {json_line(one.image.to_json()['properties'])}" if one.image else "")
        for one in versions
    ]
    call.emit(payload, human=lines)


changes.add_command(poll)
changes.add_command(baseline)
entity.add_command(history)
