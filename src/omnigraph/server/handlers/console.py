"""What the console and the command line ask beyond the wire of the reference: lint and health."""

from __future__ import annotations

from typing import Any

from omnigraph.server.calls import Answer, Call, Route, branch_name, json_answer
from omnigraph.server.handlers.parameters import BRANCH
from omnigraph.wire.requests import LintRequest


def lint(call: Call) -> Answer:
    request = call.decoded(LintRequest)
    name = branch_name(request.branch)
    call.allow("read", branch=name)
    return json_answer(call.graph.lint(request.source, call.branch(name)).to_json())


def health(call: Call) -> Answer:
    name = branch_name(call.text("branch"))
    call.allow("read", branch=name)
    return json_answer(call.graph.health(call.branch(name)).to_json())


ROUTES = (
    Route(
        method="POST",
        path="/graphs/{graph_id}/lint",
        handler=lint,
        operation="lint",
        summary="Check a query file; bad source becomes findings",
        action="read",
        request=LintRequest,
        answer=dict[str, Any],
        statuses=(400, 404, 413),
        tag="console",
    ),
    Route(
        method="GET",
        path="/graphs/{graph_id}/health",
        handler=health,
        operation="graphHealth",
        summary="How the graph's tables are doing",
        action="read",
        answer=dict[str, Any],
        statuses=(400, 404),
        parameters=(BRANCH,),
        tag="console",
    ),
)
