"""Commits, what they changed, the change feed, differences, and single entities."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET

from omnigraph.errors import (
    AmbiguousRefError,
    ChangeFeedGapError,
    InputError,
    NotFoundError,
    PolicyDeniedError,
)
from omnigraph.model.graph import Commit
from omnigraph.server.calls import Answer, Call, Parameter, Route, branch_name, json_answer
from omnigraph.server.handlers.branching import page_after, page_limit, page_token
from omnigraph.server.handlers.parameters import BRANCH, FILTERS, LIMIT, PAGE_TOKEN
from omnigraph.server.handlers.reading import SNAPSHOT, readable, tagged
from omnigraph.wire.answers import (
    ChangeBlock,
    ChangeCause,
    ChangeEntry,
    ChangeImage,
    ChangesOutput,
    ChangeType,
    CommitChangesOutput,
    CommitListOutput,
    CommitOutput,
    DiffOutput,
    EntityHistoryOutput,
    EntityOutput,
    EntityVersionOutput,
    maybe,
)
from omnigraph.wire.failures import RefusedError


def commits(call: Call) -> Answer:
    name = branch_name(call.text("branch"))
    try:
        call.whole.require_branch(name)
        call.allow("read", branch=name)
    except NotFoundError:
        readable(call, None, name)  # a history begins at a tag or a commit as well
    limit, after = page_limit(call), page_after(call)
    if after is not None:
        found = call.graph.commits(name)
        place = next((at for at, one in enumerate(found) if one.graph_commit_id == after), None)
        if place is None:
            raise InputError("the page token is not of this branch")
        found = found[place + 1 :]
    else:
        found = call.graph.commits(name, limit=None if limit is None else limit + 1)
    page = found if limit is None else found[:limit]
    more = page_token(page[-1].graph_commit_id) if len(page) < len(found) else None
    body = CommitListOutput(
        commits=[CommitOutput.of(one) for one in page], next_page_token=maybe(more)
    )
    head = found[0].graph_commit_id if found else "none"
    return tagged(call, head, body)


def commit(call: Call) -> Answer:
    call.allow("read")
    found = call.graph.commit(call.path["id"])
    return tagged(call, found.graph_commit_id, CommitOutput.of(found))


# --- what changed ---------------------------------------------------------------------------------


def filters(call: Call) -> dict[str, Any]:
    return {"kinds": call.texts("kind"), "types": call.texts("type"), "ops": call.texts("op")}


def entry(change: Any) -> ChangeEntry:
    """One change as the wire has it."""
    return ChangeEntry(
        kind=change.kind,
        type=ChangeType(id=change.type_id, name=change.type_name),
        id=change.id,
        op=change.op,
        before=UNSET if change.before is None else image(change.before),
        after=UNSET if change.after is None else image(change.after),
    )


def image(found: Any) -> ChangeImage:
    told = found.to_json()
    return ChangeImage(properties=told["properties"], endpoints=maybe(told.get("endpoints")))


def _named(call: Call, ref: str) -> Commit:
    try:
        return call.whole.commit(ref)
    except AmbiguousRefError:
        call.allow("read")  # those that it may mean are of any branch
        raise


def commit_changes(call: Call) -> Answer:
    wanted, limit = filters(call), page_limit(call)
    ref = call.path["id"]
    try:
        found = _named(call, ref)
        call.allow("read", branch=found.graph_branch)
    except (NotFoundError, PolicyDeniedError) as hidden:
        # Who may not read a commit learns no more than that there is none of this name.
        raise RefusedError(404, f"commit '{ref[:80]}' not found") from hidden
    page = call.graph.commit_changes(
        found.graph_commit_id, limit=limit, page_token=call.text("page_token"), **wanted
    )
    return json_answer(
        CommitChangesOutput(
            cause=ChangeCause.of(page.cause),
            changes=[entry(one) for one in page.changes],
            next_page_token=maybe(page.next_page_token),
        )
    )


def changes(call: Call) -> Answer:
    wanted, limit = filters(call), page_limit(call)
    name = branch_name(call.text("branch"))
    call.allow("read", branch=name)
    start = call.text("start")
    branch = call.branch(name)
    try:
        page = call.graph.changes(
            branch=branch,
            cursor=call.text("cursor"),
            start=start,
            page_token=call.text("page_token"),
            limit=limit,
            **wanted,
        )
    except ChangeFeedGapError:
        raise
    except NotFoundError as problem:
        if start is not None and problem.facts.get("kind") in ("ref", "commit"):
            raise RefusedError.by(problem, 400) from problem
        raise
    return json_answer(
        ChangesOutput(
            blocks=[
                ChangeBlock(
                    cause=ChangeCause.of(block.cause),
                    changes=[entry(one) for one in block.changes],
                )
                for block in page.blocks
            ],
            next_page_token=maybe(page.next_page_token),
            cursor=maybe(page.cursor),
            caught_up=maybe(page.caught_up),
        )
    )


def diff(call: Call) -> Answer:
    wanted, limit, after = filters(call), page_limit(call), page_after(call)
    states = [call.needed(name) for name in ("from", "to")]
    for state in states:
        readable(call, None, state)
    found_changes = call.graph.diff(*states, **wanted)
    first = 0 if after is None else _place(after)
    page = found_changes.changes[first:]
    page = page if limit is None else page[:limit]
    more = first + len(page) < len(found_changes.changes)
    return json_answer(
        DiffOutput(
            from_commit_id=found_changes.from_commit_id,
            to_commit_id=found_changes.to_commit_id,
            changes=[entry(one) for one in page],
            stats=found_changes.stats,
            next_page_token=page_token(str(first + len(page))) if more else UNSET,
        )
    )


def _place(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 12:
        raise InputError("the page token is none of ours")
    return int(text)


# --- one entity -----------------------------------------------------------------------------------


def _selector(call: Call) -> tuple[Literal["node", "edge"], str, str]:
    kind = call.path["kind"]
    if kind not in ("node", "edge"):
        raise InputError(f"unknown kind '{kind[:40]}'", hint="use node or edge")
    return ("node" if kind == "node" else "edge"), call.path["type"], call.path["id"]


def entity(call: Call) -> Answer:
    kind, type_name, entity_id = _selector(call)
    state = readable(call, call.text("branch"), call.text("snapshot"))
    found = call.graph.entity(kind, type_name, entity_id, **state.where)
    body = EntityOutput(
        kind=kind,
        type_name=type_name,
        id=entity_id,
        image=image(found.image),
        graph_commit_id=found.graph_commit_id,
    )
    return json_answer(body)


def entity_history(call: Call) -> Answer:
    kind, type_name, entity_id = _selector(call)
    name = branch_name(call.text("branch"))
    call.allow("read", branch=name)
    found = call.graph.entity_history(kind, type_name, entity_id, branch=call.branch(name))
    body = EntityHistoryOutput(
        kind=kind,
        type_name=type_name,
        id=entity_id,
        versions=[
            EntityVersionOutput(
                op=one.op,
                image=None if one.image is None else image(one.image),
                commit=CommitOutput.of(one.commit),
            )
            for one in found
        ],
    )
    return json_answer(body)


CURSOR = Parameter(name="cursor", about="go on where an earlier poll ended")
START = Parameter(name="start", about="now (default), beginning or after:<commit>")
DIFFS = (400, 404, 409, 410, 413)

ROUTES = (
    Route(
        method="GET",
        path="/graphs/{graph_id}/commits",
        handler=commits,
        operation="listCommits",
        summary="The history of a branch, newest first",
        action="read",
        answer=CommitListOutput,
        statuses=(304, 400, 404, 413),
        parameters=(BRANCH, LIMIT, PAGE_TOKEN),
    ),
    Route(
        method="GET",
        path="/graphs/{graph_id}/commits/{id}",
        handler=commit,
        operation="getCommit",
        summary="One commit",
        action="read",
        answer=CommitOutput,
        statuses=(304, 400, 404),
    ),
    Route(
        method="GET",
        path="/graphs/{graph_id}/commits/{id}/changes",
        handler=commit_changes,
        operation="getCommitChanges",
        summary="What a commit changed",
        action="read",
        answer=CommitChangesOutput,
        statuses=DIFFS,
        parameters=(PAGE_TOKEN, LIMIT, *FILTERS),
        strict=True,
    ),
    Route(
        method="GET",
        path="/graphs/{graph_id}/changes",
        handler=changes,
        operation="pollChanges",
        summary="The change feed of a branch",
        action="read",
        answer=ChangesOutput,
        statuses=DIFFS,
        parameters=(BRANCH, CURSOR, START, PAGE_TOKEN, LIMIT, *FILTERS),
        strict=True,
    ),
    Route(
        method="GET",
        path="/graphs/{graph_id}/diff",
        handler=diff,
        operation="diff",
        summary="What is different between two states",
        action="read",
        answer=DiffOutput,
        statuses=DIFFS,
        parameters=(
            Parameter(name="from", about="a branch, tag or commit", required=True),
            Parameter(name="to", about="a branch, tag or commit", required=True),
            LIMIT,
            PAGE_TOKEN,
            *FILTERS,
        ),
        tag="console",
    ),
    Route(
        method="GET",
        path="/graphs/{graph_id}/entities/{kind}/{type}/{id}",
        handler=entity,
        operation="getEntity",
        summary="One entity",
        action="read",
        answer=EntityOutput,
        statuses=(400, 404),
        parameters=(BRANCH, SNAPSHOT),
        tag="console",
    ),
    Route(
        method="GET",
        path="/graphs/{graph_id}/entities/{kind}/{type}/{id}/history",
        handler=entity_history,
        operation="getEntityHistory",
        summary="Every version of one entity",
        action="read",
        answer=EntityHistoryOutput,
        statuses=(400, 404, 410),
        parameters=(BRANCH,),
        tag="console",
    ),
)
