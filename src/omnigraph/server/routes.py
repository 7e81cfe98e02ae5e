"""Everything that can be asked of a server, as one tuple."""

from __future__ import annotations

from functools import cache

from omnigraph.server import agents
from omnigraph.server.calls import Answer, Call, Route, json_answer
from omnigraph.server.handlers import (
    blobs,
    branching,
    console,
    files,
    flat,
    history,
    invoking,
    reading,
    streaming,
    writing,
)
from omnigraph.server.openapi import document


def openapi(call: Call) -> Answer:
    return Answer(body=_document(is_open=call.service.access.is_open))


@cache
def _document(*, is_open: bool) -> bytes:
    # Made once: that takes 30 ms and more, and anybody may ask for it.
    return json_answer(document(ROUTES, is_open=is_open)).body


ROUTES: tuple[Route, ...] = (
    *flat.ROUTES,
    Route(
        method="GET",
        path="/openapi.json",
        handler=openapi,
        operation="openapi",
        summary="This document",
        is_open=True,
        tag="server",
    ),
    *reading.ROUTES,
    *writing.ROUTES,
    *branching.ROUTES,
    *history.ROUTES,
    *streaming.ROUTES,
    *invoking.ROUTES,
    *blobs.ROUTES,
    *console.ROUTES,
    *files.ROUTES,
    *agents.ROUTES,
)
