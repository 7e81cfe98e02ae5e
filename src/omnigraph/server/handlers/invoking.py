"""Stored queries: the catalog, and calls by name.

Who may not call stored queries is answered like somebody who asks for one that is not there.
"""

from __future__ import annotations

from omnigraph.errors import InputError, PolicyDeniedError
from omnigraph.server.calls import Answer, Call, Route
from omnigraph.server.handlers.parameters import IDEMPOTENCY_KEY, IF_COMMIT
from omnigraph.server.handlers.reading import read_answer, readable, tagged
from omnigraph.server.handlers.writing import WRITES, change_answer
from omnigraph.server.stored import StoredQuery, described
from omnigraph.wire.answers import ChangeOutput, QueriesOutput, ReadOutput
from omnigraph.wire.failures import RefusedError
from omnigraph.wire.requests import InvokeRequest

NOT_FOUND = "stored query not found"


def queries(call: Call) -> Answer:
    assert call.served is not None, "the route is one of a graph"
    call.allow("read", branch="main")
    registry = call.served.queries.registry
    body = QueriesOutput(
        queries=[described(one, call.served.graph.describe) for one in registry.exposed]
    )
    head = call.served.graph.snapshot().schema.hash
    return tagged(call, f"{registry.digest[:32]}.{head[:32]}", body)


def found_query(call: Call) -> StoredQuery:
    """The query of that name, if the actor may call stored queries at all."""
    assert call.served is not None, "the route is one of a graph"
    try:
        call.allow("invoke_query")
    except PolicyDeniedError as denied:
        raise RefusedError(404, NOT_FOUND) from denied
    found = call.served.queries.find(call.path["name"])
    if found is None:
        raise RefusedError(404, NOT_FOUND)
    return found


def is_mutation(call: Call) -> bool:
    """Whether the query that is asked for is one. Who may not call it waits for no turn to write:
    the time would tell that it is there."""
    assert call.served is not None, "the route is one of a graph"
    found = call.served.queries.find(call.path["name"])
    may_call = call.service.access.may_ever(call.graph_id, call.actor, "invoke_query")
    return found is not None and found.is_mutation and may_call


def invoke(call: Call) -> Answer:
    return _invoked(call, conditional=False)


def invoke_if(call: Call) -> Answer:
    return _invoked(call, conditional=True)


def _invoked(call: Call, *, conditional: bool) -> Answer:
    request = call.decoded(InvokeRequest)
    query = found_query(call)
    if_commit = call.if_commit(wanted=conditional)
    if request.expect_mutation is not None and request.expect_mutation != query.is_mutation:
        kind, verb = ("mutation", "mutate") if query.is_mutation else ("read", "query")
        raise InputError(f"stored query '{query.name}' is a {kind}; call it with `{verb}`")
    if not query.is_mutation:
        if conditional:
            raise InputError(f"stored query '{query.name}' is a read and takes no condition")
        state = readable(call, request.branch, request.snapshot)
        return read_answer(call, query.source, query.name, request.params, state)
    if request.snapshot is not None:
        raise InputError(f"stored query '{query.name}' is a mutation and takes no snapshot")
    return change_answer(
        call,
        query.source,
        query.name,
        params=request.params,
        branch=request.branch,
        message=request.message,
        if_commit=if_commit,
        key=call.idempotency_key,
    )


ROUTES = (
    Route(
        method="GET",
        path="/graphs/{graph_id}/queries",
        handler=queries,
        operation="listQueries",
        summary="The stored queries",
        action="read",
        answer=QueriesOutput,
        statuses=(304, 400, 404),
    ),
    Route(
        method="POST",
        path="/graphs/{graph_id}/queries/{name}",
        handler=invoke,
        operation="invokeQuery",
        summary="Run a stored query",
        action="invoke_query",
        request=InvokeRequest,
        optional_body=True,
        answer=(ReadOutput, ChangeOutput),
        statuses=WRITES,
        headers=(IDEMPOTENCY_KEY,),
        writes=is_mutation,
    ),
    Route(
        method="POST",
        path="/graphs/{graph_id}/queries/{name}/if-graph-commit",
        handler=invoke_if,
        operation="invokeQueryIfGraphCommit",
        summary="Run a stored mutation if a commit is still the head",
        action="invoke_query",
        request=InvokeRequest,
        optional_body=True,
        answer=ChangeOutput,
        statuses=(*WRITES, 412),
        headers=(IF_COMMIT, IDEMPOTENCY_KEY),
        writes=True,
    ),
)
