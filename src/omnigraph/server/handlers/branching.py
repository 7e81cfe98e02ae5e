"""Branches: listed, made, deleted and merged."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from omnigraph.errors import InputError, PolicyDeniedError
from omnigraph.model.graph import MAIN
from omnigraph.model.limits import CHANGES_PER_PAGE_MAX
from omnigraph.server.calls import Answer, Call, Parameter, Route, branch_name, json_answer
from omnigraph.server.handlers.parameters import IDEMPOTENCY_KEY, LIMIT, PAGE_TOKEN
from omnigraph.server.handlers.writing import REPLAYED, WRITES, receipt
from omnigraph.wire.answers import (
    BranchCreateOutput,
    BranchDeleteOutput,
    BranchListOutput,
    BranchMergeOutput,
    RevertOutput,
    maybe,
)
from omnigraph.wire.failures import RefusedError, ResourceLimit
from omnigraph.wire.requests import (
    BranchCreateRequest,
    BranchMergeRequest,
    MergePreviewRequest,
    ResolutionEntry,
    RevertRequest,
)

ESTIMATE = 256  # bytes that a call without data is taken for


# --- pages of a list ------------------------------------------------------------------------------


def page_limit(call: Call) -> int | None:
    """How many a page is to hold; None if everything is wanted."""
    limit = call.count("limit")
    if limit == 0:
        raise InputError("limit must be at least 1")
    if limit is not None and limit > CHANGES_PER_PAGE_MAX:
        raise RefusedError(
            413,
            f"limit must be at most {CHANGES_PER_PAGE_MAX}, got {limit}",
            resource_limit=ResourceLimit(
                resource="page_size", limit=CHANGES_PER_PAGE_MAX, actual=limit
            ),
        )
    return limit


def page_after(call: Call) -> str | None:
    """The key behind which a page begins, from its token."""
    token = call.text("page_token")
    if token is None:
        return None
    try:
        padded = token + "=" * (-len(token) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode("utf-8")
    except (binascii.Error, ValueError) as cause:
        raise InputError("the page token is none of ours") from cause


def page_token(key: str) -> str:
    return base64.urlsafe_b64encode(key.encode()).rstrip(b"=").decode()


def branches(call: Call) -> Answer:
    call.allow("read")
    names = sorted(call.graph.branches())
    limit, after = page_limit(call), page_after(call)
    if after is not None:
        names = [name for name in names if name > after]
    page = names if limit is None else names[:limit]
    more = page_token(page[-1]) if len(page) < len(names) else None
    return json_answer(BranchListOutput(branches=page, next_page_token=maybe(more)))


# --- changing them --------------------------------------------------------------------------------


def create(call: Call) -> Answer:
    request = call.decoded(BranchCreateRequest)
    name, start = branch_name(request.name), branch_name(request.from_branch)
    call.allow("branch_create", branch=start, target=name)
    with call.admitted(ESTIMATE):
        made = call.graph.create_branch(name, from_branch=call.branch(start), actor=call.actor.id)
    assert made.id is not None and made.fork_commit_id is not None, "it is not main"  # noqa: PT018
    return json_answer(
        BranchCreateOutput(
            uri=call.graph.uri,
            from_branch=start,
            name=name,
            actor_id=call.actor.id,
            branch_id=made.id,
            fork_commit_id=made.fork_commit_id,
            created_at=made.created_at,
        )
    )


def delete(call: Call) -> Answer:
    name = branch_name(call.path["branch"])
    call.allow("branch_delete", target=name)
    unmerged = call.text("unmerged")
    if unmerged not in (None, "refuse"):
        raise InputError(f"unmerged takes 'refuse', got '{unmerged}'")
    with call.admitted(ESTIMATE):
        call.graph.delete_branch(name, actor=call.actor.id, force=unmerged is None)
    body = BranchDeleteOutput(uri=call.graph.uri, name=name, actor_id=call.actor.id)
    return json_answer(body)


def merge(call: Call) -> Answer:
    call.if_commit_refused()
    key = call.idempotency_key
    request = call.decoded(BranchMergeRequest)
    source, target = branch_name(request.source), branch_name(request.target)
    call.allow("branch_merge", branch=source, target=target)
    refused = _deletion_refused(call, source) if request.delete_branch else None
    with call.admitted(ESTIMATE):
        # The engine takes branches only as the source. One that is gone may have been deleted by
        # the first submission of this request, which the engine knows by its key.
        result = call.graph.merge(
            source,
            into=call.branch(target),
            actor=call.actor.id,
            strategy=request.strategy or "fail",
            resolutions=resolutions(request.resolutions),
            delete_branch=bool(request.delete_branch) and refused is None,
            message=request.message,
            idempotency_key=key,
        )
    body = BranchMergeOutput(
        source=result.source,
        target=result.target,
        outcome=result.outcome,
        actor_id=result.actor_id,
        branch_deleted=maybe(result.branch_deleted if refused is None else False),
        branch_delete_error=maybe(result.branch_delete_error if refused is None else refused),
        commit=receipt(call, result.commit, "merge", again=result.already_applied),
        changes={name: counts.to_json() for name, counts in result.changes.items()},
    )
    return json_answer(body, headers=REPLAYED if result.already_applied else ())


def _deletion_refused(call: Call, source: str) -> str | None:
    """Why the merge may not delete its source, if it may not: that is told and fails nothing."""
    try:
        call.allow("branch_delete", target=source)
    except PolicyDeniedError as problem:
        return problem.message
    return None


def resolutions(
    given: Sequence[ResolutionEntry] | None,
) -> Mapping[tuple[str, str], Any] | None:
    if given is None:
        return None
    return {(one.type_key, one.entity_id): one.take for one in given}


def preview(call: Call) -> Answer:
    request = call.decoded(MergePreviewRequest)
    source, target = branch_name(request.source), branch_name(request.target)
    call.allow("read", branch=source)
    call.allow("read", branch=target)
    found = call.graph.merge_preview(
        call.branch(source),
        call.branch(target),
        strategy=request.strategy or "fail",
        resolutions=resolutions(request.resolutions),
    )
    return json_answer(found.to_json())


def revert(call: Call) -> Answer:
    request = call.decoded(RevertRequest)
    branch = branch_name(request.branch or MAIN)
    call.allow("change", branch=branch)
    with call.admitted(ESTIMATE):
        result = call.graph.revert(
            call.path["id"],
            branch=call.branch(branch),
            actor=call.actor.id,
            message=request.message,
        )
    return json_answer(
        RevertOutput(
            reverted_commit_id=result.reverted_commit_id,
            branch=result.branch,
            actor_id=result.actor_id,
            commit=receipt(call, result.commit, "revert", again=False),
            changes={name: counts.to_json() for name, counts in result.changes.items()},
        )
    )


ROUTES = (
    Route(
        method="GET",
        path="/graphs/{graph_id}/branches",
        handler=branches,
        operation="listBranches",
        summary="The branches by name",
        action="read",
        answer=BranchListOutput,
        statuses=(400, 413),
        parameters=(LIMIT, PAGE_TOKEN),
    ),
    Route(
        method="POST",
        path="/graphs/{graph_id}/branches",
        handler=create,
        operation="createBranch",
        summary="Make a branch from the head of another",
        action="branch_create",
        request=BranchCreateRequest,
        answer=BranchCreateOutput,
        statuses=WRITES,
        writes=True,
    ),
    Route(
        method="DELETE",
        path="/graphs/{graph_id}/branches/{branch}",
        handler=delete,
        operation="deleteBranch",
        summary="Delete a branch",
        action="branch_delete",
        answer=BranchDeleteOutput,
        statuses=WRITES,
        parameters=(
            Parameter(
                name="unmerged",
                about="refuse to delete work that no other branch has",
                values=("refuse",),
            ),
        ),
        writes=True,
    ),
    Route(
        method="POST",
        path="/graphs/{graph_id}/branches/merge",
        handler=merge,
        operation="mergeBranches",
        summary="Merge a branch into another as one commit",
        action="branch_merge",
        request=BranchMergeRequest,
        answer=BranchMergeOutput,
        statuses=WRITES,
        headers=(IDEMPOTENCY_KEY,),
        writes=True,
    ),
    Route(
        method="POST",
        path="/graphs/{graph_id}/branches/merge/preview",
        handler=preview,
        operation="previewMerge",
        summary="What a merge would do",
        action="read",
        request=MergePreviewRequest,
        answer=dict[str, Any],
        statuses=(400, 404, 409, 413, 424),
        tag="console",
    ),
    Route(
        method="POST",
        path="/graphs/{graph_id}/commits/{id}/revert",
        handler=revert,
        operation="revertCommit",
        summary="Undo one commit by a new one",
        action="change",
        request=RevertRequest,
        optional_body=True,
        answer=RevertOutput,
        statuses=WRITES,
        writes=True,
        tag="console",
    ),
)
