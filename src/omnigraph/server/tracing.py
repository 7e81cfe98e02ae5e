"""Spans for OpenTelemetry: one of each request, and below it one of each stage of the work.

The package is the user's: where it is not installed, or nobody has set up a provider (by
`opentelemetry-instrument omnigraph serve …`, say), there is no tracing and it costs nothing.
Spans hold routes, graphs and numbers; no actors, branches or texts of queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from omnigraph import __version__
from omnigraph.results.rows import Step

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer
    from starlette.types import Scope

_NS_PER_MS = 1_000_000
_FROM_OUTSIDE = (b"traceparent", b"tracestate")


class Tracing:
    """What makes the spans of one process."""

    def __init__(self, api: Any, tracer: Tracer) -> None:
        self._api, self._tracer = api, tracer

    @classmethod
    def of_process(cls) -> Tracing | None:
        """The tracing that somebody has set up; None if nobody has."""
        if find_spec("opentelemetry") is None:
            return None
        from opentelemetry import trace  # noqa: PLC0415 - an optional package

        if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            return None
        return cls(trace, trace.get_tracer("omnigraph", __version__))

    @contextmanager
    def request(self, scope: Scope) -> Iterator[Span]:
        """The span of a request, below that of the client if it sent one."""
        from opentelemetry import propagate  # noqa: PLC0415 - an optional package

        sent = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in scope["headers"]
            if name in _FROM_OUTSIDE
        }
        kind = self._api.SpanKind.SERVER
        with self._tracer.start_as_current_span(
            str(scope["method"]), context=propagate.extract(sent), kind=kind
        ) as span:
            yield span

    def answered(self, span: Span, method: str, route: str, status: int) -> None:
        """Say what the request was, once that is known."""
        span.update_name(f"{method} {route}")
        span.set_attribute("http.request.method", method)
        span.set_attribute("http.route", route)
        span.set_attribute("http.response.status_code", status)
        if status >= 500:
            span.set_status(self._api.Status(self._api.StatusCode.ERROR))

    @contextmanager
    def engine(self, span: Span, operation: str, graph_id: str | None) -> Iterator[None]:
        """The span of the work for a request, in the thread that does it."""
        around = self._api.set_span_in_context(span)
        with self._tracer.start_as_current_span(operation, context=around) as own:
            if graph_id is not None:
                own.set_attribute("omnigraph.graph", graph_id)
            yield

    @property
    def wants_steps(self) -> bool:
        """Whether the span of this thread is one that somebody will look at."""
        return bool(self._api.get_current_span().is_recording())

    def steps(self, root: Step, ended_ns: int) -> None:
        """Spans of the steps of a query that has run; they ran one after the other."""
        for step in reversed(root.children):
            began_ns = ended_ns - int((step.took_ms or 0) * _NS_PER_MS)
            span = self._tracer.start_span(step.name, start_time=began_ns)
            if step.rows is not None:
                span.set_attribute("omnigraph.rows", step.rows)
            with self._api.use_span(span):
                self.steps(step, ended_ns)
            span.end(end_time=ended_ns)
            ended_ns = began_ns
