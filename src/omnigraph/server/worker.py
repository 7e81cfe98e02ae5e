"""One process that serves: uvicorn around the application, boot, reload and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from importlib.util import find_spec
from typing import Any, Final

import msgspec
import uvicorn
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from omnigraph.model.limits import SERVER_HEAD_BYTES_MAX, SERVER_KEEP_ALIVE_MS, SERVER_RELOAD_MS
from omnigraph.server.agents import AGENTS
from omnigraph.server.app import App
from omnigraph.server.boot import access_of
from omnigraph.server.routes import ROUTES
from omnigraph.server.service import Service
from omnigraph.server.settings import Settings
from omnigraph.server.telemetry import Telemetry, log_as_json

logger = logging.getLogger(__name__)

EXIT_BOOT: Final = 1
EXIT_CUT_OFF: Final = 2
_LOOK_MS: Final = 20  # between looks whether all work is done
_SWITCH_SECONDS: Final = 0.001  # after which a thread that computes lets others have a turn
_HEAD_TOO_BIG: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b'connection: close\r\ncontent-length: 68\r\n\r\n{"error":"the head of the request is too '
    b'big","code":"bad_request"}   '
)
CORS_HEADERS: Final = (
    "authorization",
    "content-type",
    "idempotency-key",
    "if-match",
    "if-none-match",
    "if-range",
    "range",
    "omnigraph-if-graph-commit",
    "x-request-id",
)
CORS_EXPOSED: Final = (
    "etag",
    "x-request-id",
    "idempotency-replayed",
    "omnigraph-graph-commit",
    "omnigraph-query-name",
    "omnigraph-snapshot-id",
)


@contextlib.asynccontextmanager
async def _agents(service: Service) -> AsyncIterator[None]:
    """Answer agents while the server serves, if the package for it is installed."""
    if find_spec("mcp") is None:
        yield
        return
    from omnigraph.server.mcp.mount import Mount  # noqa: PLC0415 - an optional package

    mount = Mount(service, App(service, ROUTES))
    async with mount.running():
        with AGENTS.answering(mount):
            yield


# What runs beside the application while it serves, such as the sessions of agents.
COMPANIONS: tuple[Callable[[Service], contextlib.AbstractAsyncContextManager[None]], ...] = (
    _agents,
)


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 that does not collect heads without end."""

    _head: int | None = None  # bytes of a head that is not whole yet

    def on_message_begin(self) -> None:
        self._head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._head is not None:
            self._head += len(data)
            if self._head > SERVER_HEAD_BYTES_MAX and not self.transport.is_closing():
                self.transport.write(_HEAD_TOO_BIG)
                self.transport.close()


class Server(uvicorn.Server):
    """uvicorn without its own way with signals: we end in our own order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def application(service: Service) -> ASGIApp:
    """The routes, with CORS around them if there are origins for it."""
    app: ASGIApp = App(service, ROUTES)
    if not service.settings.cors_origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=list(service.settings.cors_origins),
        allow_methods=["GET", "POST", "DELETE", "HEAD"],
        allow_headers=list(CORS_HEADERS),
        expose_headers=list(CORS_EXPOSED),
    )


def serve_socket(
    settings: Settings, listening: socket.socket, *, when_ready: Callable[[], None]
) -> int:
    """Serve on the socket until a signal says stop; the exit code."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    config = uvicorn_config(settings)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        code = runner.run(_serve(settings, config, listening, when_ready))
        if code == EXIT_CUT_OFF:
            # Threads may still be at work that nobody waits for; what they had begun is settled by
            # the next writer, as after a crash.
            logging.shutdown()
            os._exit(code)
        return code


def uvicorn_config(settings: Settings) -> uvicorn.Config:
    return uvicorn.Config(
        _nothing_yet,
        http=Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=SERVER_KEEP_ALIVE_MS // 1000,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=list(settings.trusted_proxies) or None,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )


async def _nothing_yet(*_: Any) -> None:
    raise AssertionError("the application takes its place before the first request")


async def _serve(
    settings: Settings,
    config: uvicorn.Config,
    listening: socket.socket,
    when_ready: Callable[[], None],
) -> int:
    service = Service(settings, access_of(settings), Telemetry())
    config.app = application(service)
    server = Server(config)
    ending = Ending(service, server, settings.shutdown_grace_seconds)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ending.begin)
    loop.add_signal_handler(signal.SIGHUP, lambda: _background(reload_once(service)))
    tasks = [
        asyncio.create_task(_boot(service, ending, when_ready)),
        asyncio.create_task(_reload_for_ever(service)),
    ]
    try:
        async with contextlib.AsyncExitStack() as stack:
            for companion in COMPANIONS:
                await stack.enter_async_context(companion(service))
            await server.serve(sockets=[listening])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if ending.code != EXIT_CUT_OFF:
            service.close()
    return ending.code


async def _boot(service: Service, ending: Ending, when_ready: Callable[[], None]) -> None:
    await service.graphs.open_all()
    served, aside = list(service.graphs), service.graphs.problems
    if not served or (aside and service.settings.require_all_graphs):
        logger.error("no boot", extra={"problems": aside})
        ending.code = EXIT_BOOT
        ending.begin()
        return
    gc.collect()
    gc.freeze()  # what is there now stays: the collector need not look at it again
    logger.info("ready", extra={"graphs": [one.graph_id for one in served]})
    when_ready()


class Ending:
    """The orderly end: no new writes, those under way finish, and a last moment for all of it."""

    def __init__(self, service: Service, server: Server, grace_seconds: float) -> None:
        self._service, self._server = service, server
        self._grace = grace_seconds
        self._begun = False
        self.code = 0

    def begin(self) -> None:
        if self._begun:
            self._server.force_exit = True  # asked twice: at once
            return
        self._begun = True
        self._service.drain()
        logger.info("draining", extra={"grace_seconds": self._grace})
        _background(self._end())

    async def _end(self) -> None:
        deadline = asyncio.get_running_loop().time() + self._grace
        await self._until(lambda: not self._service.admission.writes, deadline)
        self._server.should_exit = True
        # No new connections from here on. Answers that are under way are waited for.
        if not await self._until(lambda: not self._server.server_state.tasks, deadline):
            logger.error("work was cut off", extra={"grace_seconds": self._grace})
            self.code = EXIT_CUT_OFF
            self._server.force_exit = True

    async def _until(self, done: Callable[[], bool], deadline: float) -> bool:
        loop = asyncio.get_running_loop()
        while not done():
            if loop.time() >= deadline or self._server.force_exit:
                return False
            await asyncio.sleep(_LOOK_MS / 1000)
        return True


# --- looking again --------------------------------------------------------------------------------

_tasks: set[asyncio.Task[None]] = set()


def _background(work: Any) -> None:
    """Run it beside everything else; the loop keeps no strong reference to tasks by itself."""
    task: asyncio.Task[None] = asyncio.ensure_future(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


async def reload_once(service: Service) -> None:
    """Take over stored queries and tokens that have changed."""
    await service.pool.run_always(service.reload)


async def _reload_for_ever(service: Service) -> None:
    seen: dict[str, Any] | None = None  # files may have changed since they were first read
    while True:
        await asyncio.sleep(SERVER_RELOAD_MS / 1000)
        now = await service.pool.run_always(service.watched)
        if now != seen:
            await reload_once(service)
        seen = now


# --- a worker of several --------------------------------------------------------------------------


def main() -> int:
    """What a worker process runs: its settings come as the first line of its input. When the input
    ends, so has the supervisor, and the worker goes too."""
    log_as_json()
    told = json.loads(sys.stdin.buffer.readline())
    settings = msgspec.convert(told["settings"], Settings)
    listening = socket.socket(fileno=told["socket"])

    async def follow() -> None:
        reader = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        await reader.read()
        os.kill(os.getpid(), signal.SIGTERM)

    def ready() -> None:
        with contextlib.suppress(OSError):
            os.write(told["ready"], b"1")
        _background(follow())

    return serve_socket(settings, listening, when_ready=ready)


if __name__ == "__main__":
    sys.exit(main())
