"""What a server tells its operator: metrics for Prometheus, and log lines of JSON.

Labels never hold actors, branches or the text of queries.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from wsgiref.handlers import BaseHandler

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from omnigraph import __version__
from omnigraph.engine.upkeep import Figures

MULTIPROCESS: Final = "PROMETHEUS_MULTIPROC_DIR"  # the package's own name for the shared folder
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30)


# Prometheus' package imports this class, which keeps a copy of the environment: with tokens in it,
# if they came that way. Nobody here uses it.
BaseHandler.os_environ = {}

NOTHING: Final = Figures(commit_retries=0, recoveries=0, cache_bytes={})


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """What is under way in a process, and what its graphs tell of themselves."""

    pending: int  # requests that wait for a thread or have one
    writes: int
    streams: int
    graphs: Mapping[str, Figures]
    quarantined: Sequence[str]


class Telemetry:
    """The counters of one process; `text` tells those of all workers."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        shared: dict[str, Any] = {"registry": self._registry, "namespace": "omnigraph"}
        self._requests = Counter(
            "http_requests_total", "answered requests", ["route", "method", "status"], **shared
        )
        self._seconds = Histogram(
            "http_request_seconds", "time until the answer", ["route"], buckets=_SECONDS, **shared
        )
        self._refused = Counter(
            "admission_refused_total", "requests refused for load", ["reason"], **shared
        )
        self._denied = Counter("policy_denied_total", "denied actions", ["action"], **shared)
        self._commits = Counter("commits_total", "commits made", ["graph", "kind"], **shared)
        self._engine = Histogram(
            "engine_seconds", "time in the engine", ["op", "graph"], buckets=_SECONDS, **shared
        )
        self._retries = Counter(
            "commit_retries_total", "tries that another commit made void", ["graph"], **shared
        )
        self._recoveries = Counter(
            "recoveries_total", "unfinished writes that were settled", ["graph"], **shared
        )
        gauge: dict[str, Any] = {**shared, "multiprocess_mode": "livesum"}
        self._inflight = Gauge("inflight", "requests under way", ["kind"], **gauge)
        self._streams = Gauge("export_streams", "exports under way", **gauge)
        self._graphs = Gauge(
            "graph_state",
            "1 = served, 0 = put aside",
            ["graph"],
            **{**shared, "multiprocess_mode": "livemin"},
        )
        self._cache = Gauge("cache_bytes", "kept for reading", ["kind", "graph"], **gauge)
        Gauge("build_info", "the release", ["version"], multiprocess_mode="max", **shared).labels(
            __version__
        ).set(1)
        self._cells: dict[tuple[str, str, int], tuple[Any, Any]] = {}
        self._clocks: dict[tuple[str, str], Any] = {}
        self._told: dict[str, Figures] = {}  # what counters have of each graph already

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        key = (route, method, status)
        cells = self._cells.get(key)
        if cells is None:
            cells = self._cells[key] = (
                self._requests.labels(route, method, str(status)),
                self._seconds.labels(route),
            )
        cells[0].inc()
        cells[1].observe(seconds)

    def worked(self, op: str, graph: str, seconds: float) -> None:
        """An operation on a graph took so long, without waiting for a thread."""
        clock = self._clocks.get((op, graph))
        if clock is None:
            clock = self._clocks[op, graph] = self._engine.labels(op, graph)
        clock.observe(seconds)

    def refused(self, reason: str) -> None:
        self._refused.labels(reason).inc()

    def denied(self, action: str) -> None:
        self._denied.labels(action).inc()

    def committed(self, graph: str, kind: str) -> None:
        self._commits.labels(graph, kind).inc()

    def now(self, standing: Standing) -> None:
        """How things stand in this process."""
        self._inflight.labels("read").set(max(0, standing.pending - standing.writes))
        self._inflight.labels("write").set(standing.writes)
        self._streams.set(standing.streams)
        for graph in standing.quarantined:
            self._graphs.labels(graph).set(0)
        for graph, figures in standing.graphs.items():
            self._graphs.labels(graph).set(1)
            told = self._told.get(graph, NOTHING)
            # A graph that was opened again counts from nothing again.
            again = figures.commit_retries - told.commit_retries
            self._retries.labels(graph).inc(again if again >= 0 else figures.commit_retries)
            settled = figures.recoveries - told.recoveries
            self._recoveries.labels(graph).inc(settled if settled >= 0 else figures.recoveries)
            self._told[graph] = figures
            for kind in {*told.cache_bytes, *figures.cache_bytes}:
                self._cache.labels(kind, graph).set(figures.cache_bytes.get(kind, 0))

    def text(self) -> bytes:
        """All of it in Prometheus' words, over all workers if there are several."""
        if not os.environ.get(MULTIPROCESS):
            return generate_latest(self._registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)


# --- log lines ------------------------------------------------------------------------------------

_PLAIN: Final = frozenset(vars(logging.LogRecord("", 0, "", 0, "", (), None))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",
}


class JsonLines(logging.Formatter):
    """One JSON object a line: when, how grave, what, and the facts that came with it."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name, value in vars(record).items() if name not in _PLAIN}
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


def log_as_json(level: str = "INFO") -> None:
    """Send what the process logs to stderr, a JSON object a line."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = JsonLines()
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("uvicorn.access").disabled = True
