"""`commit`, `revert`, `diff`, `changes` and `entity`: what the past can tell, and undoing it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from omnigraph.cli.call import (
    Call,
    CommandGroup,
    branch_option,
    exclusive,
    message_option,
    together,
    verb,
    write_lines,
)
from omnigraph.model.graph import type_words
from omnigraph.model.pictures.commits import draw_commits, in_order, parents_of
from omnigraph.model.tables import cell, json_line
from omnigraph.model.values import moment_at, moment_text

if TYPE_CHECKING:
    from omnigraph.model.graph import Commit
    from omnigraph.results.changes import EntityChange

commit = CommandGroup("commit", help="List, show, explain and undo commits.")
changes = CommandGroup("changes", help="Follow what changes on a branch.")
entity = CommandGroup("entity", help="One entity through time.")
_SIGNS = {"insert": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}


@verb("commit list")
@branch_option
@click.option("--filter", "filters", multiple=True, metavar="actor=NAME", help="only these commits")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="only the newest N")
@click.option(
    "--graph",
    "given",
    is_flag=False,
    flag_value="",
    help="draw the history of all branches; behind --server, with an ID: a graph inside it",
    metavar="[ID]",
)
@click.option("--svg", "pictured", is_flag=True, help="the same as a picture, as SVG text")
def list_commits(
    call: Call,
    branch: str,
    *,
    filters: tuple[str, ...],
    limit: int | None,
    given: str | None,
    pictured: bool,
) -> None:
    """List the commits of a branch, newest first."""
    call, drawn = _drawn(call, given)
    actor = _actor_filter(filters)
    exclusive({"--graph": drawn or None, "--svg": pictured or None, "--filter": actor})
    if drawn or pictured:
        _draw(call, limit, pictured=pictured)
        return
    with call.graph() as graph:
        found = graph.commits(branch, actor=actor, limit=limit)
    payload = {"commits": [one.to_json() for one in found]}
    call.emit(payload, human=[_commit_line(one) for one in found])


def _drawn(call: Call, given: str | None) -> tuple[Call, bool]:
    """Whether `--graph` asks for a drawing. A word behind it names the graph of a server, as for
    other commands; elsewhere it is the graph to draw."""
    if not given:
        return call, given is not None
    flags = call.flags
    if flags.server is not None or flags.profile is not None:
        flags = msgspec.structs.replace(flags, graph=given)
        return msgspec.structs.replace(call, flags=flags), False
    if flags.uri is not None:
        raise click.UsageError(f"Got unexpected extra argument ({flags.uri})")
    flags = msgspec.structs.replace(flags, uri=given)
    return msgspec.structs.replace(call, flags=flags), True


def _draw(call: Call, limit: int | None, *, pictured: bool) -> None:
    with call.graph() as graph:
        lines = {name: graph.commits(name) for name in graph.branches()}
    known = {one.graph_commit_id: one for line in lines.values() for one in line}
    ordered = in_order(known.values())[:limit]
    heads: dict[str, list[str]] = {}
    for name, line in lines.items():
        heads.setdefault(line[0].graph_commit_id, []).append(name)
    labels = {one.graph_commit_id: _label(one, heads) for one in ordered}
    payload = {
        "commits": [one.to_json() for one in ordered],
        "heads": {name: line[0].graph_commit_id for name, line in lines.items()},
    }
    if pictured:
        picture = draw_commits(ordered, heads)
        call.emit({"svg": picture}, human=picture)
    else:
        call.emit(payload, human=list(draw(ordered, labels)))


def _label(one: Commit, heads: Mapping[str, list[str]]) -> str:
    names = heads.get(one.graph_commit_id, ())
    shown = click.style(f" ({', '.join(names)})", fg="green") if names else ""
    commit_id = click.style(one.graph_commit_id, fg="yellow")
    return f"{commit_id}{shown}  {moment(one.created_us)}  {one.actor_id or '-'}{_why(one)}"


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
    """When, where, who, what kind of write, how much, and why."""
    merged = f"  merges {one.merged_parent_commit_id}" if one.merged_parent_commit_id else ""
    facts = (one.graph_commit_id, moment(one.created_us), one.graph_branch, one.actor_id or "-")
    return "  ".join(facts) + _what(one) + merged + _why(one)


def _what(one: Commit) -> str:
    kind = one.writer_kind or ("Genesis" if one.parent_commit_id is None else "-")
    counts = "".join(
        f"  {name} +{some.inserted} ~{some.updated} -{some.deleted}"
        for name, some in one.counts.items()
    )
    return f"  {kind}{counts}"


def _why(one: Commit) -> str:
    """The first line of the message."""
    return f"  {first_line(one.message)}" if one.message else ""


def first_line(text: str) -> str:
    """What a list shows of a message."""
    line, _, rest = text.strip().partition("\n")
    return line + (" …" if rest else "")


def moment(microseconds: int) -> str:
    """A point in time, as people and other programs read it."""
    return moment_text(moment_at(microseconds // 1000), timespec="seconds")


@verb("commit show")
@click.argument("commit_id", metavar="REF")
def show_commit(call: Call, commit_id: str) -> None:
    """Show one commit."""
    with call.graph() as graph:
        one = graph.commit(commit_id)
    body = one.to_json()
    shown = {**body, "created_at": moment(one.created_us)}
    call.emit(body, human=[f"{name:24} {cell(value) or '-'}" for name, value in shown.items()])


# The three filters that every view of changes takes, each repeatable.
change_filters = together(
    click.option(
        "--kind",
        "kinds",
        multiple=True,
        type=click.Choice(["node", "edge"]),
        help="only nodes or edges",
    ),
    click.option(
        "--type", "types", multiple=True, metavar="TYPE", help="only this type; repeatable"
    ),
    click.option(
        "--op",
        "ops",
        multiple=True,
        type=click.Choice(["insert", "update", "delete"]),
        help="only these; repeatable",
    ),
)


def given_filters(filters: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """The filters as the engine takes them: nothing given means everything."""
    return {name: values or None for name, values in filters.items()}


@verb("commit changes")
@click.argument("commit_id", metavar="REF")
@change_filters
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    metavar="N",
    help="one page of at most N changes instead of all of them",
)
@click.option("--page-token", metavar="TOKEN", help="go on after an earlier page")
def commit_changes(
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
@click.argument("commit_id", metavar="REF")
@branch_option
@message_option
def revert(call: Call, commit_id: str, *, branch: str, message: str | None) -> None:
    """Undo one commit by a new one, if no later commit stands against it."""
    call.announce()
    with call.graph(write=True) as graph:
        result = graph.revert(commit_id, branch=branch, actor=call.actor, message=message)
    landed = "nothing left to undo" if result.commit is None else result.commit.graph_commit_id
    counts = {key: value.to_json() for key, value in result.changes.items()}
    human = [f"reverted {commit_id} on branch {branch}: {landed}", *change_counts(counts)]
    call.emit(result.to_json(), human=human)


def change_counts(changes: Mapping[str, Mapping[str, int]]) -> list[str]:
    """How many entities of each type a merge brings or a revert undoes, one line a type."""
    return [
        f"  {type_words(key)}: " + ", ".join(f"{n} {word}" for word, n in counts.items() if n)
        for key, counts in changes.items()
        if any(counts.values())
    ]


# --- the history drawn as text --------------------------------------------------------------------


def draw(commits: Sequence[Commit], labels: Mapping[str, str]) -> Iterator[str]:
    """A line a commit with its label, and lines between where lanes part or meet.

    `commits` stand in the order of `in_order`.
    """
    known = {one.graph_commit_id: one for one in commits}
    lanes: list[str] = []  # the commit that each lane waits for
    for one in commits:
        here = one.graph_commit_id
        if here not in lanes:
            lanes.append(here)
        at = lanes.index(here)
        for extra in reversed([n for n in range(at + 1, len(lanes)) if lanes[n] == here]):
            yield _joining(len(lanes), into=at, extra=extra)
            del lanes[extra]
        yield f"{_row(len(lanes), at)} {labels[here]}"
        parents = parents_of(one, known)
        lanes[at : at + 1] = parents[:1]
        if len(parents) > 1:
            lanes.insert(at + 1, parents[1])
            yield _parting(len(lanes), at)


def _row(count: int, at: int) -> str:
    return " ".join("*" if lane == at else "|" for lane in range(count))


def _parting(count: int, at: int) -> str:
    """A lane begins to the right of another; all that follow move over."""
    kept = " ".join("|" for _ in range(at + 1))
    return kept + "\\" + " \\" * (count - at - 2)


def _joining(count: int, *, into: int, extra: int) -> str:
    """A lane ends in one to its left, passing below those in between; all that follow move over."""
    kept = " ".join("|" for _ in range(into + 1))
    return kept + "_|" * (extra - into - 1) + "/" + " /" * (count - extra - 1)


# --- differences, the feed, one entity ------------------------------------------------------------


@verb("diff")
@click.argument("from_ref", metavar="FROM")
@click.argument("to_ref", metavar="TO")
@change_filters
def diff(call: Call, from_ref: str, to_ref: str, **filters: tuple[str, ...]) -> None:
    """Show what is different at TO, seen from FROM: branches, tags, commits, main~2 or moments."""
    with call.graph() as graph:
        found = graph.diff(from_ref, to_ref, **given_filters(filters))
    lines = [line for change in found.changes for line in change_lines(change)]
    call.emit(found.to_json(), human=lines or ["no difference"])


@verb("changes poll")
@branch_option
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
        lines.append(f"commit {cause.graph_commit_id}  {moment(cause.created_us)}")
        lines += [f"  {line}" for change in block.changes for line in change_lines(change)]
    if page.cursor is not None:
        lines.append(f"cursor {page.cursor}{'' if page.caught_up else '  (there is more)'}")
    else:
        lines.append(f"page-token {page.next_page_token}")
    call.emit(page.to_json(), human=lines)


@verb("changes baseline")
@click.option("--out", "out_path", required=True, metavar="FILE", help="the NDJSON to write")
@branch_option
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
@branch_option
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
        f"{one.commit.graph_commit_id}  {moment(one.commit.created_us)}  "
        f"{one.commit.actor_id or '-'}  {one.op}"
        + (f"  {json_line(one.image.to_json()['properties'])}" if one.image else "")
        for one in versions
    ]
    call.emit(payload, human=lines)


for _group, _commands in (
    (commit, (list_commits, show_commit, commit_changes, revert)),
    (changes, (poll, baseline)),
    (entity, (history,)),
):
    for _command in _commands:
        _group.add_command(_command)
