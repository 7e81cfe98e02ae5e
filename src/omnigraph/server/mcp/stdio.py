"""One agent, one graph, over standard input and output: what `omnigraph mcp` runs.

A graph of this machine is served in this process by the application that also answers HTTP; a graph
of a server is reached through the server's own MCP, message by message.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from omnigraph import __version__
from omnigraph.errors import UnavailableError
from omnigraph.server.access import ANYBODY, Access
from omnigraph.server.app import App
from omnigraph.server.mcp.mount import InProcess
from omnigraph.server.mcp.serving import INSTRUCTIONS, Backend, mcp_server
from omnigraph.server.routes import ROUTES
from omnigraph.server.service import Service
from omnigraph.server.settings import GraphSpec, Settings
from omnigraph.server.telemetry import Telemetry


def serve_store(uri: str, *, queries: str | None, read_only: bool) -> None:
    """Serve the graph at a storage URI until the input ends."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    asyncio.run(_serve_store(uri, queries=queries, read_only=read_only))


async def _serve_store(uri: str, *, queries: str | None, read_only: bool) -> None:
    settings = Settings(
        graphs=(GraphSpec(graph_id="graph", uri=uri),), queries=queries, read_only=read_only
    )
    service = Service(settings, Access(), Telemetry())
    app = App(service, ROUTES)
    await service.graphs.open_all()
    try:
        problem = service.graphs.problems.get("graph")
        if problem is not None:
            raise UnavailableError(problem)
        served = await service.graphs.found("graph")
        backend: Backend = InProcess(app, service, served, ANYBODY, None)
        await _run(mcp_server(lambda _: backend))
    finally:
        service.close()


async def _run(server: Server[Any]) -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


# --- a graph of a server --------------------------------------------------------------------------


def serve_remote(url: str, *, token: str | None) -> None:
    """Pass every message on to the MCP of a server; `url` is that of the graph."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    asyncio.run(_serve_remote(url.rstrip("/") + "/mcp", token))


async def _serve_remote(url: str, token: str | None) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as far,
    ):
        await _run(_bridge(far))


def _bridge(far: Client) -> Server[Any]:
    async def list_tools(_: Any, __: Any) -> Any:
        return await far.list_tools()

    async def call_tool(_: Any, params: Any) -> Any:
        return await far.call_tool(params.name, params.arguments or {})

    async def list_resources(_: Any, __: Any) -> Any:
        return await far.list_resources()

    async def read_resource(_: Any, params: Any) -> Any:
        return await far.read_resource(params.uri)

    return Server(
        "omnigraph",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )
