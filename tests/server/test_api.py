"""Requests made up from the API document: no 5xx, no status and no body it does not speak of."""

from __future__ import annotations

import os

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from omnigraph.server.openapi import document
from omnigraph.server.routes import ROUTES

# What the tests share is made once, by one worker.
pytestmark = pytest.mark.xdist_group("server-api")

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
# For each operation; 60 make more than 2,000 in all.
EXAMPLES = int(os.environ.get("OMNIGRAPH_API_EXAMPLES", "3"))
OPERATIONS = [route for route in ROUTES if route.asgi is None and route.path != "/openapi.json"]


@schemathesis.serializer("application/x-ndjson")
def ndjson(_, value):
    return str(value).encode(errors="replace")


@pytest.fixture(scope="module")
def api():
    return schemathesis.openapi.from_dict(document(ROUTES, is_open=True))


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("route", OPERATIONS, ids=lambda route: route.operation)
def test_made_up_requests_are_answered_as_documented(served, api, route):
    @given(case=api[route.path][route.method].as_strategy())
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case):
        if "graph_id" in (case.path_parameters or {}):
            case.path_parameters["graph_id"] = "people"
        response = case.call(base_url=served.url)
        case.validate_response(response, checks=CHECKS)

    ask()
