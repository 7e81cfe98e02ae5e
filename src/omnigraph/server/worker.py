"""One process that serves: uvicorn around the application, boot, reload and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, Literal, cast

import msgspec
import uvicorn
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from omnigraph.model.limits import (
    SERVER_CONNECTIONS_MAX,
    SERVER_HEAD_BYTES_MAX,
    SERVER_HEAD_MS_MAX,
    SERVER_KEEP_ALIVE_MS,
    SERVER_RELOAD_MS,
    SERVER_TELL_MS,
)
from omnigraph.server.agents import AGENTS
from omnigraph.server.app import App, failure_answer
from omnigraph.server.boot import access_of
from omnigraph.server.calls import JSON
from omnigraph.server.handlers import flat
from omnigraph.server.routes import ROUTES
from omnigraph.server.service import Service
from omnigraph.server.settings import Settings, Sockets
from omnigraph.server.telemetry import Telemetry, log_as_json
from omnigraph.wire.failures import RefusedError

logger = logging.getLogger(__name__)

EXIT_BOOT: Final = 1
EXIT_CUT_OFF: Final = 2
_LOOK_MS: Final = 20  # between looks whether all work is done
_SWITCH_SECONDS: Final = 0.001  # after which a thread that computes lets others have a turn


def _last_words(status: str, error: str, code: str) -> bytes:
    """An answer to what never became a request."""
    body = msgspec.json.encode({"error": error, "code": code})
    head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body


_HEAD_TOO_BIG: Final = _last_words(
    "431 Request Header Fields Too Large", "the head of the request is too big", "bad_request"
)
_HEAD_TOO_SLOW: Final = _last_words(
    "408 Request Timeout", "the head of the request did not come in time", "bad_request"
)
_NO_REQUEST: Final = _last_words("400 Bad Request", "this is no HTTP request", "bad_request")
_NO_ROOM: Final = _last_words(
    "503 Service Unavailable", "the server has too many connections", "internal"
)
_HTTP_2: Final = b"h2c"
_UPGRADE: Final = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
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


class LateAgents:
    """Answers agents. The package for it is big and is loaded when the first one asks."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._mount: ASGIApp | None = None
        self._starting = asyncio.Lock()
        self._ended = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._starting:
            if self._mount is None:
                self._mount = await self._started()
        await self._mount(scope, receive, send)

    async def _started(self) -> ASGIApp:
        module = await self._service.pool.run_always(
            lambda: import_module("omnigraph.server.mcp.mount")
        )
        mount = module.Mount(self._service, App(self._service, ROUTES))
        ready = asyncio.get_running_loop().create_future()

        async def run() -> None:
            async with mount.running():
                ready.set_result(mount)
                await self._ended.wait()

        self._task = asyncio.create_task(run())
        return cast("ASGIApp", await ready)

    async def close(self) -> None:
        self._ended.set()
        if self._task is not None:
            await self._task


@contextlib.asynccontextmanager
async def _agents(service: Service) -> AsyncIterator[None]:
    """Answer agents while the server serves, if the package for it is installed."""
    if find_spec("mcp") is None:
        yield
        return
    agents = LateAgents(service)
    try:
        with AGENTS.answering(agents):
            yield
    finally:
        await agents.close()


# What runs beside the application while it serves, such as the sessions of agents.
COMPANIONS: tuple[Callable[[Service], contextlib.AbstractAsyncContextManager[None]], ...] = (
    _agents,
)


class Protocol(HttpToolsProtocol):
    """HTTP/1.1 that neither collects heads without end nor waits for them for ever."""

    _head: int | None = 0  # bytes of a head that is not whole yet, after those it began with
    _slow: asyncio.TimerHandle | None = None  # what ends a head that does not come
    _answered: RequestResponseCycle | None = None  # the request that has its turn

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > SERVER_CONNECTIONS_MAX:
            self._hang_up(_NO_ROOM)
        else:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._have_head()
        super().connection_lost(exc)
        if self._answered is not None:  # others may have come behind it; uvicorn tells the last one
            self._answered.disconnected = True
            self._answered.message_event.set()

    def on_message_begin(self) -> None:
        self._head = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head = None
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        if self._head is not None:  # of bytes that a head begins in, the first may be others
            self._head += len(data)
        super().data_received(self._without_upgrade(data))
        if self._head is None:
            self._have_head()
            return
        if self._slow is None:  # most heads come whole
            self._wait_for_head()
        if self._head > SERVER_HEAD_BYTES_MAX:
            self._hang_up(_HEAD_TOO_BIG)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn names it
        """What cannot be read as a request is answered like any other mistake."""
        self._hang_up(_NO_REQUEST)

    def _without_upgrade(self, data: bytes) -> bytes:
        """The same without the wish for HTTP/2, with which Java's client begins: the parser leaves
        out the body of a request with such a wish, also if nobody fulfils it."""
        if _awaited(self.cycle) == "body" or data.find(_HTTP_2, 0, SERVER_HEAD_BYTES_MAX) < 0:
            return data
        head, end, rest = data.partition(b"\r\n\r\n")
        return _UPGRADE.sub(b"\r\nnot-taken:", head) + end + rest

    def _wait_for_head(self) -> None:
        self._slow = self.loop.call_later(SERVER_HEAD_MS_MAX / 1000, self._hang_up, _HEAD_TOO_SLOW)

    def _have_head(self) -> None:
        if self._slow is not None:
            self._slow.cancel()
            self._slow = None

    def _hang_up(self, words: bytes) -> None:
        self._have_head()
        if _awaited(self.cycle) == "answer":
            # A whole request came before. Its answer is the next thing that the client may read:
            # it would take these words for that.
            self.cycle.keep_alive = False
            self.flow.pause_reading()
            return
        if not self.transport.is_closing():
            self.transport.write(words)
            self.transport.close()


def _awaited(newest: RequestResponseCycle | None) -> Literal["head", "body", "answer"]:
    """What is to come next on a connection whose newest request this is."""
    if newest is None or newest.response_complete:
        return "head"
    return "body" if newest.more_body else "answer"


class Server(uvicorn.Server):
    """uvicorn without its own way with signals: we end in our own order."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Cors(CORSMiddleware):
    """Lets pages of other origins ask. What it refuses is answered like every failure."""

    def __init__(self, app: App, **options: Any) -> None:
        super().__init__(app, **options)
        self._routes = app

    def preflight_response(self, request_headers: Headers) -> Response:
        found = super().preflight_response(request_headers)
        request_id = self._routes.request_id(request_headers.raw)
        found.headers["x-request-id"] = request_id
        if found.status_code >= 400:
            refused = RefusedError(found.status_code, bytes(found.body).decode())
            found.body = failure_answer(refused.failure, request_id).body
            found.headers["content-length"] = str(len(found.body))
            found.headers["content-type"] = JSON
        return found


def application(service: Service) -> ASGIApp:
    """The routes, with CORS around them if there are origins for it."""
    app = App(service, ROUTES)
    if not service.settings.cors_origins:
        return app
    return Cors(
        app,
        allow_origins=list(service.settings.cors_origins),
        allow_methods=["GET", "POST", "DELETE", "HEAD"],
        allow_headers=list(CORS_HEADERS),
        expose_headers=list(CORS_EXPOSED),
    )


def serve_sockets(settings: Settings, sockets: Sockets, *, when_ready: Callable[[], None]) -> int:
    """Serve on the sockets until a signal says stop; the exit code."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    config = uvicorn_config(settings)
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        code = runner.run(_serve(settings, config, sockets, when_ready))
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
    sockets: Sockets,
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
        asyncio.create_task(_tell_for_ever(service)),
    ]
    try:
        async with contextlib.AsyncExitStack() as stack:
            for companion in COMPANIONS:
                await stack.enter_async_context(companion(service))
            if sockets.metrics is not None:
                await stack.enter_async_context(_metrics(service, sockets.metrics))
            await server.serve(sockets=[sockets.requests])
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


@contextlib.asynccontextmanager
async def _metrics(service: Service, listening: socket.socket) -> AsyncIterator[None]:
    """Tell the counters on a socket of their own, to whoever reaches it."""
    config = uvicorn_config(service.settings)
    config.app = App(service, flat.METRICS_ALONE)
    server = Server(config)
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        yield
    finally:
        server.should_exit = True
        await task


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
        try:
            now = await service.pool.run_always(service.watched)
            if now != seen:
                await reload_once(service)
            seen = now
        except Exception:  # tokens that are taken out must not come to stay: look again
            logger.exception("files could not be looked at")


async def _tell_for_ever(service: Service) -> None:
    """Whichever worker is asked for metrics tells of all, so all keep theirs fresh."""
    while True:
        await asyncio.sleep(SERVER_TELL_MS / 1000)
        try:
            await service.pool.run_always(service.tell)
        except Exception:
            logger.exception("counters could not be brought up to date")


# --- a worker of several --------------------------------------------------------------------------


def main() -> int:
    """What a worker process runs: its settings come as the first line of its input. When the input
    ends, so has the supervisor, and the worker goes too."""
    log_as_json()
    told = json.loads(sys.stdin.buffer.readline())
    settings = msgspec.convert(told["settings"], Settings)
    sockets = Sockets.inherited(told["sockets"])

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

    return serve_sockets(settings, sockets, when_ready=ready)


if __name__ == "__main__":
    sys.exit(main())
