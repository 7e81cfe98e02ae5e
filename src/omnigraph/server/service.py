"""A running server's parts, and the state that requests ask about."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from msgspec import UNSET

from omnigraph import __version__
from omnigraph.engine.core import OpenMode
from omnigraph.engine.graph import Graph
from omnigraph.errors import OmnigraphError, PolicyDeniedError
from omnigraph.model.access import Action
from omnigraph.model.limits import (
    INTERNAL_SCHEMA_VERSION,
    SERVER_BODIES_BYTES_MAX,
    SERVER_STREAMS_MAX,
)
from omnigraph.model.machine import memory_bytes
from omnigraph.server.access import Access, Actor
from omnigraph.server.boot import policy_stamps, with_policies
from omnigraph.server.graphs import Graphs, Served
from omnigraph.server.settings import GraphSpec, Settings
from omnigraph.server.stored import StoredQueries, check_registry, read_registry
from omnigraph.server.telemetry import Standing, Telemetry
from omnigraph.server.tracing import Tracing
from omnigraph.server.work import RETRY_LATER, Admission, Bodies, Pool, threads_of_machine
from omnigraph.wire.answers import HealthOutput, ReadyOutput
from omnigraph.wire.failures import RefusedError

logger = logging.getLogger(__name__)

CACHE_SHARE = 0.25  # of the machine's memory, over all graphs and workers
CACHE_BYTES_MIN = 64 * 1024 * 1024


class Service:
    """Everything that handlers reach: graphs, access, the pool, admission, telemetry."""

    def __init__(self, settings: Settings, access: Access, telemetry: Telemetry) -> None:
        self.settings = settings
        self.access = access
        self.telemetry = telemetry
        self.tracing = Tracing.of_process()
        self.pool = Pool(threads_of_machine())
        self.admission = Admission(
            writes_max=math.ceil(settings.actor_writes_max / settings.workers),
            bytes_max=math.ceil(settings.actor_bytes_max / settings.workers),
        )
        self.graphs = Graphs(settings.graphs, self._opened, self.pool)
        self.free_streams = SERVER_STREAMS_MAX
        self.bodies = Bodies(SERVER_BODIES_BYTES_MAX)
        self._draining = False
        self._kept: dict[str, str] = {}  # why files that changed are not in use

    def _opened(self, spec: GraphSpec) -> Served:
        """Open a graph and check its stored queries; runs in the pool."""
        settings = self.settings
        shared = len(settings.graphs) * settings.workers
        graph = Graph.open(
            spec.uri,
            OpenMode.READ_ONLY if settings.read_only else OpenMode.READ_WRITE,
            blob_bases=settings.blob_bases,
            cache_bytes=max(CACHE_BYTES_MIN, int(memory_bytes() * CACHE_SHARE / shared)),
        )
        try:
            registry = read_registry(settings.queries)
            for warning in check_registry(registry, graph.describe):
                logger.warning(warning, extra={"graph": spec.graph_id})
        except BaseException:
            graph.close()
            raise
        return Served(spec=spec, graph=graph, queries=StoredQueries(settings.queries, registry))

    # --- what requests ask ---

    def allow(
        self,
        graph_id: str | None,
        actor: Actor,
        action: Action,
        branch: str | None,
        target: str | None,
        *,
        request_id: str | None = None,
    ) -> None:
        """Go on only if the actor may do this."""
        try:
            self.access.authorize(graph_id, actor, action, branch, target, request_id=request_id)
        except PolicyDeniedError:
            self.telemetry.denied(action)
            raise

    def graph_for(self, served: Served, actor: Actor) -> Graph:
        """The graph as the actor may use it: the engine decides by the same policy once more."""
        gate = self.access.gate(served.graph_id)
        return served.graph if gate is None else served.graph.acting_as(actor.id, policy=gate)

    def require_writing(self) -> None:
        """Refuse writes while the server stops, and on a server that only reads."""
        if self._draining:
            raise RefusedError(503, "the server is stopping", headers=RETRY_LATER)
        if self.settings.read_only:
            writer = self.settings.writer_url
            where = f"; write to {writer}" if writer else ""
            raise RefusedError(503, f"this server only reads{where}")

    def drain(self) -> None:
        self._draining = True

    @property
    def status(self) -> Literal["starting", "serving", "draining"]:
        if self._draining:
            return "draining"
        return "serving" if self.graphs.is_settled else "starting"

    def health(self) -> HealthOutput:
        return HealthOutput(
            status="ok", version=__version__, internal_schema_version=INTERNAL_SCHEMA_VERSION
        )

    def readiness(self) -> ReadyOutput:
        served = list(self.graphs)
        problems = self.graphs.problems | self._kept
        problems |= {
            f"{one.graph_id}/queries": one.queries.problem
            for one in served
            if one.queries.problem is not None
        }
        return ReadyOutput(
            ready=self.status == "serving" and bool(served),
            status=self.status,
            served_graph_count=len(served),
            quarantined_graph_count=len(self.graphs.quarantined),
            shutdown_grace_seconds=self.settings.shutdown_grace_seconds,
            problems=problems or UNSET,
        )

    def tell(self) -> None:
        """Bring the counters of this process up to date; runs in the pool."""
        self.telemetry.now(
            Standing(
                pending=self.pool.pending - 1,  # without this job
                writes=self.admission.writes,
                streams=SERVER_STREAMS_MAX - self.free_streams,
                graphs={one.graph_id: one.graph.figures() for one in self.graphs},
                quarantined=self.graphs.quarantined,
            )
        )

    def watched(self) -> dict[str, Any]:
        """What tells whether files may have changed; runs in the pool."""
        tokens = self.access.tokens
        return {
            "tokens": None if tokens is None else tokens.stamp,
            "policy": policy_stamps(self.settings),
            **{f"queries of {one.graph_id}": one.queries.watched for one in self.graphs},
        }

    def reload(self) -> None:
        """Take over what has changed in files; runs in the pool. Who may no longer come in counts
        first, and nothing that is wrong with one file keeps another from being read."""
        tokens = self.access.tokens
        if tokens is not None:  # else everybody may do everything, and no file says otherwise
            self._take_over("tokens", tokens.reload)
            self._take_over("policy", self._reload_policies)
        for served in self.graphs:
            self._take_over(f"queries of {served.graph_id}", partial(_reload_queries, served))

    def _reload_policies(self) -> str | None:
        try:
            self.access = with_policies(self.access, self.settings)
        except OmnigraphError as problem:
            return problem.message
        return None

    def _take_over(self, what: str, read: Callable[[], str | None]) -> None:
        """Read it, and note what is wrong with it; a mistake of ours is told like one of theirs."""
        try:
            problem = read()
        except Exception as cause:
            logger.exception("%s could not be read", what)
            problem = type(cause).__name__
        self._note(what, problem)

    def _note(self, what: str, problem: str | None) -> None:
        """What could not be taken over, until it can: the former one stays in use."""
        if problem is None:
            self._kept.pop(what, None)
            return
        self._kept[what] = problem
        logger.warning("%s kept", what, extra={"problem": problem})

    def close(self) -> None:
        self.graphs.close()
        self.pool.close()


def _reload_queries(served: Served) -> str | None:
    """Take over its stored queries; what is wrong with them, they keep by themselves."""
    served.queries.reload(served.graph.describe)
    return None
