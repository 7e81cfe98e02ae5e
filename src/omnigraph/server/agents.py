"""The paths of agents, `/mcp` and `/graphs/{id}/mcp`; they need the package `mcp`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import ASGIApp, Receive, Scope, Send

from omnigraph.server.access import require_own_origin
from omnigraph.server.calls import Answer, Call, Route, Stream
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
