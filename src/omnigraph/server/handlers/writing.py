"""Mutations, loads and schemas: what makes a commit."""

from __future__ import annotations

from typing import Any

from omnigraph.compiler.query import compile_query
from omnigraph.compiler.schema import compile_schema
from omnigraph.errors import ConflictError, InputError, NotFoundError, OmnigraphError
from omnigraph.model.graph import Commit
from omnigraph.model.limits import SERVER_LOAD_BYTES_MAX
from omnigraph.server.calls import (
    NDJSON,
    Answer,
    Call,
    Headers,
    Parameter,
    Route,
    branch_name,
    json_answer,
)
from omnigraph.server.handlers.parameters import BRANCH, IDEMPOTENCY_KEY, IF_COMMIT
from omnigraph.server.handlers.reading import resolved
from omnigraph.server.stored import check_registry
from omnigraph.wire.answers import (
    ChangeOutput,
    CommitOutput,
    GraphBatchLoadOutput,
    IngestOutput,
    SchemaApplyOutput,
    TypeLoad,
)
from omnigraph.wire.failures import RefusedError
from omnigraph.wire.requests import ChangeRequest, LoadRequest, SchemaApplyRequest

REPLAYED: Headers = (("idempotency-replayed", "true"),)
MODES = ("append", "merge", "overwrite")


def receipt(call: Call, commit: Commit | None, kind: str, *, again: bool) -> CommitOutput | None:
    """The commit as `GET /commits/{id}` tells it; a new one is counted."""
    if commit is None:
        return None
    if not again:
        call.service.telemetry.committed(call.graph_id, kind)
    return CommitOutput.of(commit)


# --- mutations ------------------------------------------------------------------------------------


def mutate(call: Call) -> Answer:
    return _mutated(call, conditional=False)


def mutate_if(call: Call) -> Answer:
    return _mutated(call, conditional=True)


def _mutated(call: Call, *, conditional: bool) -> Answer:
    if_commit = call.if_commit(wanted=conditional)
    key = call.idempotency_key
    request = call.decoded(ChangeRequest)
    if request.source is None:
        raise InputError("the body needs a 'query'")
    name, kind = resolved(request.source, request.chosen)
    if kind == "read":
        raise InputError(f"query '{name}' is a read; send it to POST /query", query=name)
    return change_answer(
        call,
        request.source,
        request.chosen,  # as it was asked for: the digest of a keyed request is of that
        params=request.params,
        branch=request.branch,
        message=request.message,
        if_commit=if_commit,
        key=key,
    )


def change_answer(
    call: Call,
    source: str,
    name: str | None,
    *,
    params: dict[str, Any] | None,
    branch: str | None,
    message: str | None,
    if_commit: str | None,
    key: str | None,
) -> Answer:
    """Run a mutation query as one commit."""
    wanted = branch_name(branch)
    call.allow("change", branch=wanted)
    target = call.branch(wanted)
    with call.admitted(len(call.body)):
        result = call.graph.mutate(
            source,
            name,
            params=params,
            branch=target,
            actor=call.actor.id,
            if_commit=if_commit,
            message=message,
            idempotency_key=key,
        )
    told = result.to_json()
    again = result.already_applied
    body = ChangeOutput(
        branch=result.branch,
        query_name=result.query_name,
        affected_nodes=result.affected_nodes,
        affected_edges=result.affected_edges,
        **{part: told[part] for part in ("ids", "rows") if part in told},
        actor_id=result.actor_id,
        commit=receipt(call, result.commit, "mutation", again=again),
    )
    return json_answer(body, headers=REPLAYED if again else ())


# --- loads ----------------------------------------------------------------------------------------


def load(call: Call) -> Answer:
    call.if_commit_refused()
    key = call.idempotency_key
    request = call.decoded(LoadRequest)
    branch, base = may_load(call, request.branch, request.from_branch)
    with call.admitted(len(request.data)):
        result = call.graph.load(
            request.data,
            mode=request.mode or "merge",
            branch=branch,
            from_branch=base,
            actor=call.actor.id,
            strict=False,
            message=request.message,
            idempotency_key=key,
        )
    body = IngestOutput(
        uri=call.graph.uri, **_loaded(call, result, request.mode or "merge", request.from_branch)
    )
    return json_answer(body, headers=REPLAYED if result.already_applied else ())


def may_load(call: Call, branch: str | None, base: str | None) -> tuple[str, str | None]:
    """The branch to load into and the one it is made from, if the actor may do both."""
    target = branch_name(branch)
    call.allow("change", branch=target)
    try:
        call.branch(target)
    except NotFoundError:
        if base is None:
            raise
        start = branch_name(base)
        call.allow("branch_create", branch=start, target=target)
        return target, call.branch(start)
    return target, None if base is None else branch_name(base)


def _loaded(call: Call, result: Any, mode: str, base: str | None) -> dict[str, Any]:
    return {
        "branch": result.branch,
        "base_branch": base,
        "branch_created": result.branch_created,
        "mode": mode,
        "nodes": TypeLoad.listed(result.nodes),
        "edges": TypeLoad.listed(result.edges),
        "total_entities": result.total_entities,
        "actor_id": result.actor_id,
        "commit": receipt(call, result.commit, "load", again=result.already_applied),
    }


def before_ndjson(call: Call) -> None:
    """Whether the actor may load there is told before the data is sent."""
    may_load(call, call.text("branch"), call.text("from"))
    media = (call.header("content-type") or "").partition(";")[0].strip().lower()
    if media != NDJSON:
        raise RefusedError(415, f"expected a body with `Content-Type: {NDJSON}`, got '{media}'")


def load_ndjson(call: Call) -> Answer:
    call.if_commit_refused()
    key = call.idempotency_key
    mode = call.text("mode") or "merge"
    if mode not in MODES:
        raise InputError(f"unknown mode '{mode[:40]}'", hint=f"one of: {', '.join(MODES)}")
    branch, base = may_load(call, call.text("branch"), call.text("from"))
    try:
        data = call.body.decode("utf-8")
    except UnicodeDecodeError as cause:
        raise InputError("the body is not UTF-8 text") from cause
    with call.admitted(len(call.body)):
        result = call.graph.load(
            data,
            mode=mode,
            branch=branch,
            from_branch=base,
            actor=call.actor.id,
            strict=True,
            message=call.text("message"),
            idempotency_key=key,
        )
    body = GraphBatchLoadOutput(**_loaded(call, result, mode, call.text("from")))
    return json_answer(body, headers=REPLAYED if result.already_applied else ())


# --- schema ---------------------------------------------------------------------------------------


def apply_schema(call: Call) -> Answer:
    key = call.idempotency_key
    request = call.decoded(SchemaApplyRequest)
    wanted = branch_name(request.branch)
    call.allow("schema_apply", target=wanted)
    branch = call.branch(wanted)
    _require_queries_fit(call, request.schema_source)
    with call.admitted(len(request.schema_source)):
        result = call.graph.apply_schema(
            request.schema_source,
            allow_data_loss=bool(request.allow_data_loss),
            actor=call.actor.id,
            branch=branch,
            message=request.message,
            idempotency_key=key,
        )
    body = SchemaApplyOutput(
        uri=call.graph.uri,
        supported=result.supported,
        applied=result.applied,
        step_count=result.step_count,
        graph_manifest_version=result.graph_manifest_version,
        steps=[step.to_json() for step in result.steps],
        actor_id=result.actor_id,
        commit=receipt(call, result.commit, "schema", again=result.already_applied),
    )
    return json_answer(body, headers=REPLAYED if result.already_applied else ())


def _require_queries_fit(call: Call, source: str) -> None:
    """A schema under which a stored query no longer checks is refused."""
    assert call.served is not None, "the route is one of a graph"
    catalog = compile_schema(source)
    try:
        check_registry(
            call.served.queries.registry, lambda text, name: compile_query(text, catalog, name)
        )
    except OmnigraphError as problem:
        raise ConflictError(
            f"the schema is not applied: {problem.message}",
            hint="change the stored query first",
            query=problem.facts.get("query"),
        ) from problem


MODE = Parameter(name="mode", about="how the data meets what is there", values=MODES)
FROM = Parameter(name="from", about="make the branch from this one if it is not there")
MESSAGE = Parameter(name="message", about="what the commit is about")
WRITES = (400, 404, 409, 413, 424, 429, 503)

ROUTES = (
    Route(
        method="POST",
        path="/graphs/{graph_id}/mutate",
        handler=mutate,
        operation="mutate",
        summary="Run a mutation query as one commit",
        action="change",
        request=ChangeRequest,
        answer=ChangeOutput,
        statuses=WRITES,
        headers=(IDEMPOTENCY_KEY,),
        writes=True,
    ),
    Route(
        method="POST",
        path="/graphs/{graph_id}/mutate/if-graph-commit",
        handler=mutate_if,
        operation="mutateIfGraphCommit",
        summary="Run a mutation query if a commit is still the head",
        action="change",
        request=ChangeRequest,
        answer=ChangeOutput,
        statuses=(*WRITES, 412),
        headers=(IF_COMMIT, IDEMPOTENCY_KEY),
        writes=True,
    ),
    Route(
        method="POST",
        path="/graphs/{graph_id}/change",
        handler=mutate,
        operation="change",
        summary="Run a mutation query (older spelling)",
        action="change",
        request=ChangeRequest,
        answer=ChangeOutput,
        statuses=WRITES,
        headers=(IDEMPOTENCY_KEY,),
        writes=True,
        successor="mutate",
    ),
    Route(
        method="POST",
        path="/graphs/{graph_id}/load",
        handler=load,
        operation="load",
        summary="Load graph NDJSON given as text",
        action="change",
        request=LoadRequest,
        answer=IngestOutput,
        statuses=WRITES,
        headers=(IDEMPOTENCY_KEY,),
        writes=True,
        body_max=SERVER_LOAD_BYTES_MAX,
    ),
    Route(
        method="POST",
        path="/graphs/{graph_id}/load/ndjson",
        handler=load_ndjson,
        operation="loadNdjson",
        summary="Load graph NDJSON in one commit",
        action="change",
        answer=GraphBatchLoadOutput,
        takes=NDJSON,
        statuses=(*WRITES, 415),
        parameters=(BRANCH, FROM, MODE, MESSAGE),
        headers=(IDEMPOTENCY_KEY,),
        writes=True,
        before_body=before_ndjson,
        body_max=SERVER_LOAD_BYTES_MAX,
    ),
    Route(
        method="POST",
        path="/graphs/{graph_id}/ingest",
        handler=load,
        operation="ingest",
        summary="Load graph NDJSON (older spelling)",
        action="change",
        request=LoadRequest,
        answer=IngestOutput,
        statuses=WRITES,
        headers=(IDEMPOTENCY_KEY,),
        writes=True,
        body_max=SERVER_LOAD_BYTES_MAX,
        successor="load",
    ),
    Route(
        method="POST",
        path="/graphs/{graph_id}/schema/apply",
        handler=apply_schema,
        operation="applySchema",
        summary="Bring a branch to a schema",
        action="schema_apply",
        request=SchemaApplyRequest,
        answer=SchemaApplyOutput,
        statuses=WRITES,
        headers=(IDEMPOTENCY_KEY,),
        writes=True,
    ),
)
