"""Requests made up from the API document: no 5xx, no status and no body it does not speak of."""

from __future__ import annotations

import os

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = (
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
)
# For each operation; 60 make more than 2,000 in all.
EXAMPLES = int(os.environ.get("OMNIGRAPH_API_EXAMPLES", "4"))


@pytest.fixture(scope="module")
def api(served):
    return schemathesis.openapi.from_url(f"{served.url}/openapi.json")


schema = schemathesis.pytest.from_fixture("api")


@schema.parametrize()
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@pytest.mark.timeout(3000)
def test_made_up_requests_are_answered_as_documented(case):
    if "graph_id" in (case.path_parameters or {}):
        case.path_parameters["graph_id"] = "people"
    response = case.call()
    case.validate_response(response, checks=CHECKS)
