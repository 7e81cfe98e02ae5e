"""The API document is made of the routes, and the one that is checked in is today's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from in_process import Inside

from omnigraph import Graph
from omnigraph.server import routes
from omnigraph.server.access import Access
from omnigraph.server.openapi import document
from omnigraph.server.routes import ROUTES

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/openapi.json"


@pytest.fixture
def inside(tmp_path):
    Graph.init(tmp_path / "g.omni", "node Person { name: String @key }").close()
    found = Inside(tmp_path / "g.omni", Access())
    yield found
    found.close()


def test_the_document_that_is_checked_in_is_todays():
    assert json.loads(PAGE.read_text(encoding="utf-8")) == document(ROUTES), "run `make docs`"


def test_every_operation_has_a_name_of_its_own_and_every_reference_leads_somewhere():
    made = document(ROUTES)
    operations = [
        operation["operationId"] for path in made["paths"].values() for operation in path.values()
    ]
    assert (
        len(operations)
        == len(set(operations))
        == len(ROUTES) - 1 - sum(route.asgi is not None for route in ROUTES)
    )
    known = made["components"]["schemas"]
    text = json.dumps(made)
    for part in text.split('"$ref": "#/components/schemas/')[1:]:
        assert part.partition('"')[0] in known


def test_an_open_server_asks_for_no_token():
    text = json.dumps(document(ROUTES, is_open=True))
    assert "security" not in text
    assert "bearer" not in text


def test_what_may_be_left_out_has_no_default_and_what_may_hold_anything_says_so():
    known = document(ROUTES)["components"]["schemas"]
    asked, told = known["QueryRequest"]["properties"], known["ReadOutput"]["properties"]
    anything = {"type": "object", "additionalProperties": True}
    assert known["QueryRequest"]["required"] == ["query"]
    assert asked["branch"] == {"anyOf": [{"type": "string"}, {"type": "null"}]}
    assert asked["params"] == {"anyOf": [anything, {"type": "null"}]}
    assert told["rows"] == {"type": "array", "items": anything}
    assert known["ChangeEntry"]["properties"]["op"]["type"] == "string"


def test_a_server_makes_its_document_once(inside, monkeypatch):
    first = inside.ask("GET", "/openapi.json")
    monkeypatch.setattr(routes, "document", lambda *_, **__: {})
    assert inside.ask("GET", "/openapi.json").body == first.body
    assert json.loads(first.body) == document(ROUTES, is_open=True)
