"""Parameters that several routes take."""

from __future__ import annotations

from omnigraph.server.calls import Parameter

BRANCH = Parameter(name="branch", about="the branch to work on; main if it is left out")
LIMIT = Parameter(name="limit", about="at most so many", kind="integer")
PAGE_TOKEN = Parameter(name="page_token", about="go on after an earlier page")
FILTERS = (
    Parameter(name="kind", about="only these kinds", repeated=True, values=("node", "edge")),
    Parameter(name="type", about="only these types", repeated=True),
    Parameter(
        name="op",
        about="only these changes",
        repeated=True,
        values=("insert", "update", "delete"),
    ),
)
IF_COMMIT = Parameter(
    name="Omnigraph-If-Graph-Commit", about="the commit that must be the head", required=True
)
IDEMPOTENCY_KEY = Parameter(
    name="Idempotency-Key", about="carry the request out once, however often it is sent"
)
