"""The application without a socket: what `ask` sends never leaves the process."""

from __future__ import annotations

import asyncio
import json
import threading

from omnigraph.server.app import App
from omnigraph.server.mcp.mount import asked
from omnigraph.server.mcp.tools import Request
from omnigraph.server.routes import ROUTES
from omnigraph.server.service import Service
from omnigraph.server.settings import GraphSpec, Settings
from omnigraph.server.telemetry import Telemetry


class KnownTokens:
    """Every actor's token is `token-` and its name."""

    stamp = None

    def actor(self, token):
        return token.removeprefix("token-") if token.startswith("token-") else None

    def reload(self):
        return None


class Inside:
    """A service in a loop of its own thread."""

    def __init__(self, uri, access, **settings):
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        specs = (GraphSpec(graph_id="g", uri=str(uri)),)
        self.service = self.run(self._made(Settings(graphs=specs, **settings), access))
        self.app = App(self.service, ROUTES)
        self.served = self.run(self.service.graphs.found("g"))

    async def _made(self, settings, access):
        service = Service(settings, access, Telemetry())
        await service.graphs.open_all()
        return service

    def run(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def ask(self, method, path, body=None, *, token=None, headers=()):
        sent = [(b"content-type", b"application/json"), *headers]
        if token is not None:
            sent.append((b"authorization", f"Bearer {token}".encode()))
        data = b"" if body is None else json.dumps(body).encode()
        request = Request(method=method, path=path, body=data)
        return self.run(asked(self.app, request, below="", headers=sent))

    def close(self):
        self.service.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)
        self.loop.close()
