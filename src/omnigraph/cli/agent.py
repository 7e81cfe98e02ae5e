"""`omnigraph mcp`: one graph for one agent, over standard input and output."""

from __future__ import annotations

from importlib import import_module

import click

from omnigraph.cli.call import Call, RemoteTarget, verb
from omnigraph.cli.scope import Capability
from omnigraph.model.machine import extra_for


@verb("mcp", capability=Capability.ANY)
@click.option("--queries", metavar="PATH", help="stored queries, each a tool; with a store")
@click.option("--read-only", is_flag=True, help="refuse writes; with a store")
def mcp(call: Call, *, queries: str | None, read_only: bool) -> None:
    """Serve a graph to an agent (Model Context Protocol): its own storage, or a server's graph."""
    target = call.target
    with extra_for("`omnigraph mcp`"):
        stdio = import_module("omnigraph.server.mcp.stdio")
    if isinstance(target, RemoteTarget):
        if queries is not None or read_only:
            raise click.UsageError("a server's own settings count: leave out the options")
        with target.connected() as graph:
            url = graph.uri
        stdio.serve_remote(url, token=target.token)
    else:
        stdio.serve_store(target.uri, queries=queries, read_only=read_only)
