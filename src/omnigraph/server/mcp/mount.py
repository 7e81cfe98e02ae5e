"""MCP below the server's routes: `/graphs/{id}/mcp` for one graph, `/mcp` for the server.

Stateless: every message is a request of its own with its own token. The session manager of the
SDK runs beside the application; what the application found out about the caller is in
the request's state, and tools go back into the application with the caller's own token.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp, Receive, Scope, Send

from omnigraph.model.access import Access
from omnigraph.model.limits import SERVER_MCP_BYTES_MAX
from omnigraph.server.access import Actor
from omnigraph.server.graphs import Served
from omnigraph.server.mcp.serving import Backend, Reply, mcp_server
from omnigraph.server.mcp.tools import NAMES, OF_NO_BRANCH, Place, Request, Tool
from omnigraph.server.service import Service
from omnigraph.server.settings import Settings
from omnigraph.server.stored import described
from omnigraph.wire.answers import StoredQueryOutput


class InProcess:
    """The application itself as what answers an agent's requests, for one caller."""

    def __init__(
        self,
        app: ASGIApp,
        service: Service,
        served: Served | None,
        actor: Actor,
        authorization: bytes | None,
    ) -> None:
        self._app, self._service, self._served, self._actor = app, service, served, actor
        self._authorization = authorization
        self.has_graph = served is not None

    async def ask(self, request: Request, place: Place) -> Reply:
        below = ""
        if place == "graph":
            assert self._served is not None, "tools of a graph are shown for one only"
            below = f"/graphs/{self._served.graph_id}"
        headers = [(b"content-type", b"application/json")]
        if self._authorization is not None:
            headers.append((b"authorization", self._authorization))
        if request.if_commit is not None:
            headers.append((b"omnigraph-if-graph-commit", request.if_commit.encode()))
        return await asked(self._app, request, below=below, headers=headers)

    def may_see(self, tool: Tool) -> bool:
        graph_id = None if tool.place == "server" or self._served is None else self._served.graph_id
        access = self._service.access
        gate = access.gate(graph_id)
        if gate is not None and tool.name in OF_NO_BRANCH:
            return all(gate.decide(self._actor.id, Access(one)).allowed for one in tool.actions)
        return all(access.may_ever(graph_id, self._actor, action) for action in tool.actions)

    async def stored(self) -> Sequence[StoredQueryOutput]:
        if self._served is None:
            return ()
        graph, registry = self._served.graph, self._served.queries.registry
        # A query whose tool has the name of one of ours can be called over HTTP only.
        ours = [one for one in registry.exposed if one.tool not in NAMES]
        if not ours:
            return ()
        return await self._service.pool.run(
            lambda: [described(one, graph.describe) for one in ours]
        )


async def asked(
    app: ASGIApp, request: Request, *, below: str, headers: list[tuple[bytes, bytes]]
) -> Reply:
    """What the application answers to a request that never was on a wire."""
    path, _, query = request.path.partition("?")
    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": below + path,
        "raw_path": (below + path).encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "headers": headers,
        "client": None,
        "server": None,
    }
    status, body, request_id = 500, [], None
    sent = False

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()  # nobody hangs up; whoever waits for it is ended
        sent = True
        return {"type": "http.request", "body": request.body, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status, request_id
        if message["type"] == "http.response.start":
            status = message["status"]
            found = dict(message["headers"]).get(b"x-request-id")
            request_id = None if found is None else found.decode("latin-1")
        else:
            body.append(message.get("body", b""))

    await app(scope, receive, send)
    return Reply(status=status, body=b"".join(body), request_id=request_id)


# --- below the routes -----------------------------------------------------------------------------


class Mount:
    """What answers both paths while `running`."""

    def __init__(self, service: Service, app: ASGIApp) -> None:
        def backend_of(request: Any) -> Backend:
            state = request.scope["state"]
            sent = dict(request.scope["headers"]).get(b"authorization")
            return InProcess(app, service, state["served"], state["actor"], sent)

        self._manager = StreamableHTTPSessionManager(
            mcp_server(backend_of),
            json_response=True,
            stateless=True,
            max_request_body_size=SERVER_MCP_BYTES_MAX,
            security_settings=security_of(service.settings),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._manager.handle_request(scope, receive, send)


def security_of(settings: Settings) -> TransportSecuritySettings:
    """A browser that was led here by a false name is kept out: on this machine `Host` must be one
    of its names. Whoever comes from elsewhere may know the server by any name and has a token."""
    if not settings.is_loopback:
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    hosts = [f"[{settings.host}]" if ":" in settings.host else settings.host]
    hosts += ["localhost", "127.0.0.1", "[::1]"]
    schemes = ("http", "https")
    return TransportSecuritySettings(
        allowed_hosts=[host + port for host in hosts for port in ("", ":*")],
        allowed_origins=[
            *settings.cors_origins,
            *(
                f"{scheme}://{host}{port}"
                for scheme in schemes
                for host in hosts
                for port in ("", ":*")
            ),
        ],
    )
