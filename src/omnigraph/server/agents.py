"""The paths of agents, `/mcp` and `/graphs/{id}/mcp`; they need the package `mcp`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from omnigraph.server.calls import Answer, Call, Route, Stream
from omnigraph.server.settings import Settings, is_loopback
from omnigraph.wire.failures import RefusedError


class Agents:
    """The application behind the paths, which passes on to what `answering` has put behind it."""

    def __init__(self) -> None:
        self._behind: ASGIApp | None = None

    @contextmanager
    def answering(self, behind: ASGIApp) -> Iterator[None]:
        """Have agents answered for as long as the block runs."""
        self._behind = behind
        try:
            yield
        finally:
            self._behind = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._behind is None:
            raise RefusedError(404, "this server does not speak MCP: it lacks the package 'mcp'")
        require_own_origin(scope, scope["state"]["service"].settings)
        await self._behind(scope, receive, send)


def require_own_origin(scope: Scope, settings: Settings) -> None:
    """Refuse what a browser sends from a strange page, or was led to send by a false name: on this
    machine `Host` must be one of its names. Whoever comes from elsewhere may know the server by
    any name."""
    headers = dict(scope["headers"])
    origin = headers.get(b"origin", b"").decode("latin-1")
    if origin in settings.cors_origins:
        return
    host = headers.get(b"host", b"").decode("latin-1")
    named = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    if settings.is_loopback and not is_loopback(named.strip("[]")):
        raise RefusedError(421, "this server has another name")
    if origin and urlsplit(origin).netloc != host:
        raise RefusedError(403, "requests from this origin are refused")


def _never(_: Call) -> Answer | Stream:
    raise AssertionError("the application answers")


AGENTS = Agents()
ROUTES: tuple[Route, ...] = tuple(
    Route(
        method="POST",
        path=path,
        handler=_never,
        operation=operation,
        summary=summary,
        asgi=AGENTS,
        tag="agents",
    )
    for path, operation, summary in (
        ("/mcp", "mcp", "The server, for agents"),
        ("/graphs/{graph_id}/mcp", "graph_mcp", "The graph, for agents"),
    )
)
