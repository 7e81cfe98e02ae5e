"""The server itself: is it alive, is it ready, which graphs has it, how is it doing."""

from __future__ import annotations

from omnigraph.model.limits import SERVER_STREAMS_MAX
from omnigraph.server.calls import Answer, Call, Route, json_answer
from omnigraph.wire.answers import GraphInfo, GraphListOutput, HealthOutput, ReadyOutput

METRICS = "text/plain; version=0.0.4; charset=utf-8"


def healthz(call: Call) -> Answer:
    return json_answer(call.service.health())


def readyz(call: Call) -> Answer:
    found = call.service.readiness()
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
    service = call.service
    states = [(one.graph_id, True) for one in service.graphs]
    states += [(name, False) for name in service.graphs.quarantined]
    service.telemetry.now(
        reads=service.pool.pending,
        writes=service.admission.writes,
        streams=SERVER_STREAMS_MAX - service.free_streams,
        graphs=iter(states),
    )
    return Answer(body=service.telemetry.text(), media=METRICS)


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
        is_open=True,
        tag="server",
    ),
)
