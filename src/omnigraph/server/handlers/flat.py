"""The server itself: is it alive, is it ready, which graphs has it, how is it doing."""

from __future__ import annotations

from contextlib import suppress

import msgspec

from omnigraph.errors import UnauthenticatedError
from omnigraph.server.calls import Answer, Call, Route, json_answer
from omnigraph.server.service import Service
from omnigraph.wire.answers import GraphInfo, GraphListOutput, HealthOutput, ReadyOutput
from omnigraph.wire.failures import RefusedError

METRICS = "text/plain; version=0.0.4; charset=utf-8"


def healthz(call: Call) -> Answer:
    return json_answer(call.service.health())


def readyz(call: Call) -> Answer:
    found = call.service.readiness()
    known = False
    with suppress(UnauthenticatedError):  # what is wrong with which graph is not for strangers
        call.service.access.authenticate(call.headers("authorization"))
        known = True
    if not known:
        found = msgspec.structs.replace(found, problems=msgspec.UNSET)
    return json_answer(found, status=200 if found.ready else 503)


def graphs(call: Call) -> Answer:
    call.allow("graph_list")
    found = call.service.graphs
    return json_answer(
        GraphListOutput(
            graphs=[GraphInfo(graph_id=one.graph_id, uri=one.graph.uri) for one in found],
            quarantined=found.quarantined,
        )
    )


def metrics(call: Call) -> Answer:
    if call.service.settings.metrics is not None:
        raise RefusedError(404, "metrics have an address of their own")
    return told_metrics(call.service)


def told_metrics(service: Service) -> Answer:
    """The counters of all workers; runs in the pool."""
    service.tell()
    return Answer(body=service.telemetry.text(), media=METRICS)


# What answers at an address of its own: anybody who reaches it may read them.
METRICS_ALONE = (
    Route(
        method="GET",
        path="/metrics",
        handler=lambda call: told_metrics(call.service),
        operation="metrics",
        summary="Counters for Prometheus",
        media=METRICS,
        is_open=True,
        tag="server",
    ),
)

ROUTES = (
    Route(
        method="GET",
        path="/healthz",
        handler=healthz,
        operation="health",
        summary="Whether the server is alive",
        answer=HealthOutput,
        is_open=True,
        on_loop=True,
        tag="server",
    ),
    Route(
        method="GET",
        path="/readyz",
        handler=readyz,
        operation="ready",
        summary="Whether the server takes requests",
        answer=ReadyOutput,
        statuses=(503,),
        is_open=True,
        on_loop=True,
        tag="server",
    ),
    Route(
        method="GET",
        path="/graphs",
        handler=graphs,
        operation="listGraphs",
        summary="The graphs that are served",
        action="graph_list",
        answer=GraphListOutput,
        tag="server",
    ),
    Route(
        method="GET",
        path="/metrics",
        handler=metrics,
        operation="metrics",
        summary="Counters for Prometheus",
        media=METRICS,
        statuses=(404,),
        tag="server",
    ),
)
