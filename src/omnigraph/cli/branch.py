"""`branch create|list|delete|restore|merge` and `tag create|list|delete`: names in a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from omnigraph.cli import resolve
from omnigraph.cli.call import Call, CommandGroup, exclusive, message_option, once_option, verb
from omnigraph.cli.history import change_counts, first_line, moment
from omnigraph.cli.output import table_style
from omnigraph.errors import MergeConflictsError

if TYPE_CHECKING:
    from omnigraph.model.graph import Tag
    from omnigraph.results.merging import MergePreview, MergeResult, Strategy

branch = CommandGroup("branch", help="Create, list, delete and merge branches.")
tag = CommandGroup("tag", help="Name commits for good: create, list and delete tags.")


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
@click.option("--deleted", is_flag=True, help="those that were deleted and can be brought back")
def list_branches(call: Call, *, deleted: bool) -> None:
    """List the branches by name."""
    if deleted:
        _list_deleted(call)
        return
    with call.graph() as graph:
        names = sorted(graph.branches())
        damaged = [one.to_json() for one in graph.unreadable_branches()]
    payload: dict[str, Any] = {"branches": names}
    if damaged:
        payload["unreadable"] = damaged
    lines = [f"{one['name']}  (unreadable: {one['problem']})" for one in damaged]
    call.emit(payload, human=[*names, *lines])


def _list_deleted(call: Call) -> None:
    with call.graph() as graph:
        found = graph.deleted_branches()
    lines = [
        "  ".join(
            (
                one.name,
                one.branch.id or "",
                one.head_commit_id,
                "-" if one.deleted_us is None else moment(one.deleted_us),
                one.deleted_by or "-",
            )
        )
        for one in found
    ]
    call.emit({"deleted": [one.to_json() for one in found]}, human=lines)


@verb("branch restore", writes=True)
@click.argument("name")
@click.option("--name", "as_name", metavar="OTHER", help="what it is to be called now")
def restore(call: Call, name: str, *, as_name: str | None) -> None:
    """Bring back branch NAME (or the id of one), which was deleted, until cleanup takes it."""
    call.announce()
    with call.graph(write=True) as graph:
        made = graph.restore_branch(name, as_name=as_name)
        head = graph.commit(made.name).graph_commit_id
    payload = {"uri": call.target.uri, "name": made.name, "head_commit_id": head}
    call.emit(call.with_actor(payload), human=f"restored branch {made.name} at {head}")


@verb("branch delete", writes=True)
@click.argument("name", metavar="BRANCH")
@click.option("--force", is_flag=True, help="also if it has unmerged work, or if it cannot be read")
def delete(call: Call, name: str, *, force: bool) -> None:
    """Delete BRANCH, if another branch has all its work."""
    call.consent()
    call.announce()
    with call.graph(write=True) as graph:
        graph.delete_branch(name, actor=call.actor, force=force)
    payload = {"uri": call.target.uri, "name": name}
    call.emit(call.with_actor(payload), human=f"deleted branch {name}")


@verb("branch merge", writes=True)
@click.argument("source", metavar="BRANCH")
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
@click.option(
    "--resolve", "resolve_path", metavar="FILE", help="what to do about conflicts, as JSON or YAML"
)
@click.option("--interactive", "-i", is_flag=True, help="ask about each conflict")
@click.option(
    "--write-conflicts",
    "conflicts_path",
    metavar="FILE",
    help="merge nothing; write the conflicts to a file to be filled in for --resolve",
)
@click.option("--delete-branch", is_flag=True, help="delete BRANCH after a merge that succeeded")
@message_option
@once_option
def merge(
    call: Call,
    source: str,
    *,
    target: str,
    strategy: Strategy,
    preview: bool,
    resolve_path: str | None,
    interactive: bool,
    conflicts_path: str | None,
    **how: Any,
) -> None:
    """Merge BRANCH into another; conflicts leave everything as it was."""
    decided = resolve.read_resolutions(resolve_path) if resolve_path is not None else {}
    looking = "--preview" if preview else "--write-conflicts"
    if preview or conflicts_path is not None:
        for option, name in (
            ("--delete-branch", "delete_branch"),
            ("--idempotency-key", "idempotency_key"),
            ("--message", "message"),
        ):
            exclusive({looking: True, option: how[name] or None})
        exclusive({looking: True, "--interactive": interactive or None})
        with call.graph() as graph:
            plan = graph.merge_preview(source, target, strategy=strategy, resolutions=decided)
        _show_plan(call, plan, conflicts_path, decided)
        return
    if interactive:
        resolve.require_terminal()
    call.announce()
    with call.graph(write=True) as graph:
        if interactive:
            plan = graph.merge_preview(source, target, strategy=strategy, resolutions=decided)
            decided |= resolve.ask(call, plan.conflicts)
        try:
            result = graph.merge(
                source,
                into=target,
                actor=call.actor,
                strategy=strategy,
                resolutions=decided,
                **how,
            )
        except MergeConflictsError as error:
            resolve.add_way_out(error)
            raise
    _show_merged(call, result)


def _show_plan(
    call: Call, plan: MergePreview, path: str | None, decided: resolve.Resolutions
) -> None:
    facts = resolve.template(plan, decided)
    body = plan.to_json()
    lines = [f"would merge {plan.source} into {plan.target}: {body['outcome']}"]
    lines += change_counts(body["changes"])
    lines += resolve.conflict_lines(plan.conflicts, table_style(call.config))
    if path is not None:
        resolve.write_template(path, facts)
        many = len(facts["conflicts"])
        lines.append(f"wrote {many} conflict{'' if many == 1 else 's'} to {path}")
    call.emit(body, human=lines)


def _show_merged(call: Call, result: MergeResult) -> None:
    again = " (already applied)" if result.already_applied else ""
    lines = [f"merged {result.source} into {result.target}: {result.outcome}{again}"]
    lines += change_counts({key: counts.to_json() for key, counts in result.changes.items()})
    if result.branch_deleted:
        lines.append(f"deleted branch {result.source}")
    elif result.branch_delete_error is not None:
        # The merge has landed; a branch left over is worth a warning, not a failure.
        why = result.branch_delete_error
        lines.append(f"warning: branch {result.source} was not deleted: {why}")
    call.emit(result.to_json(), human=lines)


# --- tags -----------------------------------------------------------------------------------------


@verb("tag create", writes=True)
@click.argument("name")
@click.option("--at", metavar="REF", help="the commit to name  [default: the head of main]")
@message_option
def create_tag(call: Call, name: str, *, at: str | None, message: str | None) -> None:
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
@click.argument("name", metavar="TAG")
def delete_tag(call: Call, name: str) -> None:
    """Delete TAG; what only it named goes with the next cleanup."""
    call.consent()
    call.announce()
    with call.graph(write=True) as graph:
        graph.delete_tag(name)
    payload = {"uri": call.target.uri, "name": name}
    call.emit(call.with_actor(payload), human=f"deleted tag {name}")


for _command in (create, list_branches, delete, restore, merge):
    branch.add_command(_command)
for _command in (create_tag, list_tags, delete_tag):
    tag.add_command(_command)
