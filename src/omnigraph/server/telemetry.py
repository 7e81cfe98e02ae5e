"""What a server tells its operator: metrics for Prometheus, and log lines of JSON.

Labels never hold actors, branches or the text of queries.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from omnigraph import __version__

MULTIPROCESS: Final = "PROMETHEUS_MULTIPROC_DIR"  # the package's own name for the shared folder
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30)


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
        gauge: dict[str, Any] = {**shared, "multiprocess_mode": "livesum"}
        self._inflight = Gauge("inflight", "requests under way", ["kind"], **gauge)
        self._streams = Gauge("export_streams", "exports under way", **gauge)
        self._graphs = Gauge("graph_state", "1 = served, 0 = put aside", ["graph"], **gauge)
        self._cache = Gauge("cache_bytes", "kept for reading", ["kind", "graph"], **gauge)
        Gauge("build_info", "the release", ["version"], multiprocess_mode="max", **shared).labels(
            __version__
        ).set(1)
        self._cells: dict[tuple[str, str, int], tuple[Any, Any]] = {}

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

    def refused(self, reason: str) -> None:
        self._refused.labels(reason).inc()

    def denied(self, action: str) -> None:
        self._denied.labels(action).inc()

    def committed(self, graph: str, kind: str) -> None:
        self._commits.labels(graph, kind).inc()

    def now(
        self, *, reads: int, writes: int, streams: int, graphs: Iterator[tuple[str, bool]]
    ) -> None:
        """How things stand, just before they are told."""
        self._inflight.labels("read").set(max(0, reads - writes))
        self._inflight.labels("write").set(writes)
        self._streams.set(streams)
        for graph, served in graphs:
            self._graphs.labels(graph).set(int(served))

    def cache(self, graph: str, kind: str, size: int) -> None:
        self._cache.labels(kind, graph).set(size)

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
