"""Queries, snapshots and the schema."""

from __future__ import annotations

import re
import time
from typing import Any, Final

import msgspec
import pyarrow as pa

from omnigraph.compiler.query import parse_text
from omnigraph.compiler.query.compile import choose_query
from omnigraph.errors import InputError, NotFoundError, OmnigraphError
from omnigraph.model.access import Action
from omnigraph.model.graph import MAIN
from omnigraph.server.calls import (
    ARROW,
    Answer,
    Call,
    Headers,
    Parameter,
    Route,
    branch_name,
    json_answer,
)
from omnigraph.server.handlers.parameters import BRANCH
from omnigraph.wire.answers import ReadOutput, ReadTarget, SchemaOutput, SnapshotOutput, maybe
from omnigraph.wire.failures import RefusedError
from omnigraph.wire.requests import QueryRequest, ReadRequest

_WANTS_ARROW: Final = re.compile(re.escape(ARROW) + r"(?!\s*;\s*q=0(\.0*)?\s*(,|$))", re.IGNORECASE)
_UNNAMED: Final = "query file contains multiple queries; pass --name"  # the wire says so


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the graph that a read is about."""

    branch: str | None
    snapshot: str | None

    @property
    def where(self) -> dict[str, Any]:
        """As the engine takes it."""
        return {"branch": self.branch or MAIN, "snapshot": self.snapshot}

    @property
    def target(self) -> ReadTarget:
        return ReadTarget(branch=self.branch, snapshot=self.snapshot)


def readable(call: Call, branch: str | None, snapshot: str | None) -> State:
    """The state that is asked for, if the actor may read it: a branch, or a commit of one."""
    return readable_state(call, "read", branch, snapshot)


def readable_state(call: Call, action: Action, branch: str | None, snapshot: str | None) -> State:
    """The same for another action. The branch counts that the state is of, as it does for the
    engine, whatever name it was asked for by."""
    if snapshot is None:
        name = branch_name(branch)
        call.allow(action, branch=name)
        return State(branch=call.branch(name), snapshot=None)
    if branch is not None:
        raise InputError("give only one of branch and snapshot")
    if not snapshot.strip():
        raise InputError("the snapshot must not be blank")
    try:
        found = call.whole.snapshot(at=snapshot.strip())
    except OmnigraphError:
        call.allow(action, branch=MAIN)  # nothing is said about what is not there
        raise
    call.allow(action, branch=found.graph_branch)
    return State(branch=None, snapshot=snapshot.strip())


def resolved(source: str, name: str | None) -> tuple[str, str]:
    """The name and kind of the query that is meant; it is not compiled."""
    queries = parse_text(source).queries
    try:
        query = choose_query(queries, name)
    except NotFoundError as problem:
        raise RefusedError.by(problem, 400) from problem
    except InputError as problem:
        if len(queries) > 1:
            raise InputError(_UNNAMED, hint=problem.hint) from problem
        raise
    return query.name, query.kind


def run_query(call: Call, request: QueryRequest, *, legacy: bool = False) -> Answer:
    name, kind = resolved(request.query, request.name)
    if kind != "read":
        raise InputError(f"query '{name}' contains mutations; send it to POST /mutate", query=name)
    state = readable(call, request.branch, request.snapshot)
    return read_answer(call, request.query, name, request.params, state, legacy=legacy)


def read_answer(
    call: Call,
    source: str,
    name: str,
    params: dict[str, Any] | None,
    state: State,
    *,
    legacy: bool = False,
) -> Answer:
    """The rows of a read query, as JSON or, where the client asks for it, as an Arrow stream."""
    tracing = call.service.tracing
    traced = tracing is not None and tracing.wants_steps
    result = call.graph.query(
        source, name, params=params, limits=call.read_limits(), explain=traced, **state.where
    )
    if tracing is not None and result.explanation is not None:
        tracing.steps(result.explanation.root, time.time_ns())
    if not legacy and _WANTS_ARROW.search(call.header("accept") or "") is not None:
        return _arrow_answer(result, name)
    columns = result.columns
    return json_answer(
        ReadOutput(
            query_name=name,
            target=state.target,
            row_count=result.row_count,
            columns=columns or msgspec.UNSET,
            rows=result.to_json_rows(),
            graph_commit_id=maybe(None if legacy else result.graph_commit_id),
        )
    )


def _arrow_answer(result: Any, name: str) -> Answer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, result.schema) as writer:
        for batch in result.batches():
            writer.write_batch(batch)
    return Answer(
        body=sink.getvalue().to_pybytes(),
        media=ARROW,
        headers=(
            ("omnigraph-graph-commit", result.graph_commit_id),
            ("omnigraph-query-name", name),
            ("vary", "accept"),
        ),
    )


def query(call: Call) -> Answer:
    return run_query(call, call.decoded(QueryRequest))


def read(call: Call) -> Answer:
    return run_query(call, call.decoded(ReadRequest).modern(), legacy=True)


def explain(call: Call) -> Answer:
    request = call.decoded(QueryRequest)
    name, kind = resolved(request.query, request.name)
    if kind != "read":
        raise InputError(f"query '{name}' contains mutations; only reads are explained", query=name)
    state = readable(call, request.branch, request.snapshot)
    found = call.graph.query(
        request.query,
        name,
        params=request.params,
        limits=call.read_limits(),
        explain=True,
        **state.where,
    )
    assert found.explanation is not None, "it was asked for"
    return json_answer(found.explanation.to_json())


# --- what does not change between commits ---------------------------------------------------------


def tagged(call: Call, tag: str, value: Any) -> Answer:
    """The answer with a tag, or the word that the client has it already."""
    quoted = f'"{tag}"'
    headers: Headers = (("etag", quoted), ("cache-control", "no-cache"))
    if has_copy(call, tag):
        return Answer(status=304, headers=headers)
    return json_answer(value, headers=headers)


def has_copy(call: Call, tag: str) -> bool:
    """Whether the client says that it has what carries this tag."""
    known = call.header("if-none-match")
    return known is not None and (known.strip() == "*" or f'"{tag}"' in _tags(known))


def _tags(header: str) -> list[str]:
    """The tags of a list; weak ones count as well where a copy is only to be spared."""
    return [part.strip().removeprefix("W/") for part in header.split(",")]


def snapshot(call: Call) -> Answer:
    state = readable(call, call.text("branch"), call.text("snapshot"))
    found = call.graph.snapshot(state.branch or MAIN, at=state.snapshot)
    return tagged(call, found.graph_commit_id, SnapshotOutput.of(found))


def schema(call: Call) -> Answer:
    call.allow("read")
    branch = call.branch(call.text("branch"))
    found = call.whole.snapshot(branch)
    return tagged(call, found.graph_commit_id, SchemaOutput(schema_source=found.schema.source))


SNAPSHOT = Parameter(name="snapshot", about="a commit, instead of a branch")
READS = (400, 404, 413)

ROUTES = (
    Route(
        method="GET",
        path="/graphs/{graph_id}/snapshot",
        handler=snapshot,
        operation="getSnapshot",
        summary="Which version of which dataset makes up the graph",
        action="read",
        answer=SnapshotOutput,
        statuses=(304, 400, 404),
        parameters=(BRANCH, SNAPSHOT),
    ),
    Route(
        method="POST",
        path="/graphs/{graph_id}/query",
        handler=query,
        operation="query",
        summary="Run a read query",
        action="read",
        request=QueryRequest,
        answer=ReadOutput,
        statuses=READS,
    ),
    Route(
        method="POST",
        path="/graphs/{graph_id}/read",
        handler=read,
        operation="read",
        summary="Run a read query (older spelling)",
        action="read",
        request=ReadRequest,
        answer=ReadOutput,
        statuses=READS,
        successor="query",
    ),
    Route(
        method="POST",
        path="/graphs/{graph_id}/explain",
        handler=explain,
        operation="explain",
        summary="Run a read query and tell how",
        action="read",
        request=QueryRequest,
        answer=dict[str, Any],
        statuses=READS,
        tag="console",
    ),
    Route(
        method="GET",
        path="/graphs/{graph_id}/schema",
        handler=schema,
        operation="getSchema",
        summary="The schema's source",
        action="read",
        answer=SchemaOutput,
        statuses=(304, 400, 404),
        parameters=(BRANCH,),
    ),
)
