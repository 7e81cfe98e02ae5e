"""What happens to a request: found in the table, let in, read, carried out, answered.

The order is fixed: who asks (401), which graph (400, 404), the body (400, 413, 415), whether they
may (403), whether there is room (429), and then the engine. Every failure is JSON.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from time import perf_counter
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.types import Receive, Scope, Send

from omnigraph.errors import OmnigraphError, UnavailableError
from omnigraph.model.limits import SERVER_BODY_MS_MAX, SERVER_HEAD_BYTES_MAX
from omnigraph.model.ports import UlidFactory, World
from omnigraph.server.access import require_own_origin
from omnigraph.server.calls import Answer, Call, Route, Stream, compressed
from omnigraph.server.service import Service
from omnigraph.server.work import RETRY_LATER
from omnigraph.wire.failures import Failure, RefusedError, ResourceLimit, failure_of, internal

logger = logging.getLogger(__name__)

_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_WATCHED_AFTER_SECONDS: Final = 1.0
_UNKNOWN: Final = "unknown"  # the label of requests that no route is for
_encoder = msgspec.json.Encoder()


class GoneError(Exception):
    """The client hung up before its request was whole."""


class Node:
    """A place in the tree of paths: what may follow, and what can be asked here."""

    def __init__(self) -> None:
        self.below: dict[str, Node] = {}
        self.any: Node | None = None  # below a part that stands for anything
        self.methods: dict[str, tuple[Route, tuple[str, ...]]] = {}


class Table:
    """The routes by the parts of their paths."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._root = Node()
        for route in routes:
            node = self._root
            for part in route.path.strip("/").split("/"):
                if part.startswith("{"):
                    node.any = node.any or Node()
                    node = node.any
                else:
                    node = node.below.setdefault(part, Node())
            names = tuple(re.findall(r"{(\w+)}", route.path))
            assert route.method not in node.methods, f"two routes: {route.method} {route.path}"
            node.methods[route.method] = (route, names)

    def find(self, method: str, raw_path: bytes) -> tuple[Route, dict[str, str]]:
        """The route that is meant, and what stands in its path; 404 or 405 otherwise."""
        allowed: set[str] = set()
        parts = raw_path.decode("latin-1").strip("/").split("/")
        for node, values in _places(self._root, parts):
            found = node.methods.get(method)
            if found is None and method == "HEAD":  # a GET without what it answers
                found = node.methods.get("GET")
            if found is not None:
                route, names = found
                return route, dict(zip(names, map(_unquoted, values), strict=True))
            allowed |= set(node.methods)
        if not allowed:
            raise RefusedError(404, "there is nothing at this path")
        listed = ", ".join(sorted(allowed))
        raise RefusedError(405, f"this path takes {listed}", headers=(("allow", listed),))


def _places(node: Node, parts: Sequence[str]) -> Iterator[tuple[Node, tuple[str, ...]]]:
    """Where the parts lead: by their names first, then where anything may stand. A branch may be
    called `merge`."""
    if not parts:
        yield node, ()
        return
    below = node.below.get(parts[0])
    if below is not None:
        yield from _places(below, parts[1:])
    if node.any is not None:
        for found, values in _places(node.any, parts[1:]):
            yield found, (parts[0], *values)


def _unquoted(part: str) -> str:
    try:
        return unquote_to_bytes(part).decode("utf-8")
    except UnicodeDecodeError as cause:
        raise RefusedError(400, "the path is not UTF-8 text") from cause


class App:
    """The ASGI application of one worker."""

    def __init__(self, service: Service, routes: Iterable[Route]) -> None:
        self._service = service
        self._table = Table(routes)
        # A request's id is for people who read logs: asking the system for chance, every time,
        # would let go of the interpreter's lock in the thread that all requests wait for.
        chance = Random()  # noqa: S311 - no secret
        self._new_id = UlidFactory(World().clock.now_us, chance.getrandbits).ulid

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no web sockets; uvicorn closes what nobody takes
        tracing = self._service.tracing
        if tracing is None:
            await self._served(scope, receive, send, None)
            return
        with tracing.request(scope) as span:
            await self._served(scope, receive, send, span)

    async def _served(self, scope: Scope, receive: Receive, send: Send, span: Any) -> None:
        """Answer the request and note that it was answered."""
        started = perf_counter()
        request_id = self.request_id(scope["headers"])
        call: Call | None = None
        try:
            self._require_small_head(scope)
            route, path = self._table.find(scope["method"], _raw_path(scope))
            call = Call(
                service=self._service, route=route, scope=scope, path=path, request_id=request_id
            )
            call.span = span
            if route.asgi is not None:
                status = await self._handed_over(call, scope, receive, send)
                self._note(call, scope["method"], status, started, request_id)
                return
            answer = await self._carried_out(call, scope, receive)
        except GoneError:
            return
        except Exception as problem:  # noqa: BLE001 - the last door: every failure is answered
            if call is not None and call.gone and isinstance(problem, UnavailableError):
                return  # the read was given up because nobody waits for it
            answer = self._failed(problem, request_id)
        finally:
            if call is not None:
                self._service.bodies.let_go(call)
        if call is not None and call.route.successor is not None:
            link = f'<{call.route.successor}>; rel="successor-version"'
            answer.headers = (*answer.headers, ("deprecation", "true"), ("link", link))
        if isinstance(answer, Stream):
            assert call is not None, "only handlers answer with streams"
            answer = await self._streamed(call, answer, receive, send)
        method = scope["method"]
        if isinstance(answer, Answer):
            if answer.status == 304:
                # It may tell the length of what it does not send; uvicorn believes that of HEAD.
                scope["method"] = "HEAD"
            await _send(answer, request_id, send, head_only=method == "HEAD")
        self._note(call, method, answer.status, started, request_id)

    # --- before the handler ---

    def request_id(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The request's own id, or a new one."""
        for name, value in headers:
            if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
                return str(value.decode())
        return self._new_id()

    def _require_small_head(self, scope: Scope) -> None:
        size = len(scope["query_string"]) + sum(len(n) + len(v) + 4 for n, v in scope["headers"])
        if size + len(_raw_path(scope)) > SERVER_HEAD_BYTES_MAX:
            raise RefusedError(431, "the head of the request is too big")

    async def _let_in(self, call: Call, scope: Scope) -> None:
        """Find out who asks, and what about."""
        service = self._service
        if not call.route.is_open:
            call.actor = service.access.authenticate(call.headers("authorization"))
            from_page = call.route.method != "GET" and call.header("origin") is not None
            if service.access.is_open and from_page:
                # Without tokens a browser needs nothing to do what any page tells it to. What is
                # only got does nothing, and browsers keep it from pages of other origins.
                require_own_origin(scope, service.settings)
        if call.route.is_of_a_graph:
            call.served = await service.graphs.found(call.graph_id)

    async def _handed_over(self, call: Call, scope: Scope, receive: Receive, send: Send) -> int:
        """Let another application answer; what it may know of the request is in its state. The
        status of the answer."""
        await self._let_in(call, scope)
        state = {"actor": call.actor, "served": call.served, "service": self._service}
        assert call.route.asgi is not None, "the route has an application of its own"
        between = Between(call.request_id, receive, send)
        await call.route.asgi({**scope, "state": state}, between.receive, between.send)
        between.require_answered()
        return between.status

    async def _carried_out(self, call: Call, scope: Scope, receive: Receive) -> Answer | Stream:
        service, route = self._service, call.route
        await self._let_in(call, scope)
        if route.before_body is not None:
            before = route.before_body
            await service.pool.run(lambda: before(call))
        if route.method in ("POST", "PUT", "DELETE"):
            call.body = await _read_body(call, receive)
        if route.on_loop:
            return route.handler(call)
        writes = route.writes if isinstance(route.writes, bool) else route.writes(call)
        if writes:  # one that has begun goes on, whoever hangs up
            return await service.pool.run_write(lambda: _handled(call))
        watch = Watch(call, receive)
        try:
            return await service.pool.run(lambda: _handled(call))
        finally:
            watch.end()

    # --- after it ---

    def _failed(self, problem: Exception, request_id: str) -> Answer:
        if isinstance(problem, RefusedError):
            failure = problem.failure
        elif isinstance(problem, OmnigraphError):
            failure = failure_of(problem)
        else:
            failure = internal()
        if failure.status >= 500 and not isinstance(problem, RefusedError):
            logger.error("request failed", exc_info=problem, extra={"request_id": request_id})
        if failure.status == 429:
            self._service.telemetry.refused(str(problem)[:40])
        return failure_answer(failure, request_id)

    def _note(
        self, call: Call | None, method: str, status: int, started: float, request_id: str
    ) -> None:
        """Count the answered request, and log it if it failed or every one is to be logged."""
        service, took = self._service, perf_counter() - started
        route = _UNKNOWN if call is None else call.route.path
        service.telemetry.answered(route, method, status, took)
        if call is not None and call.span is not None and service.tracing is not None:
            service.tracing.answered(call.span, method, route, status)
        failed = status >= 500 and status != 503
        if not (failed or service.settings.access_log):
            return
        facts = {
            "method": method,
            "route": route,
            "graph": None if call is None else call.path.get("graph_id"),
            "actor": None if call is None else call.actor.id,
            "status": status,
            "took_ms": round(took * 1000, 3),
            "request_id": request_id,
        }
        logger.log(logging.ERROR if failed else logging.INFO, "request", extra=facts)

    async def _streamed(
        self, call: Call, stream: Stream, receive: Receive, send: Send
    ) -> Answer | Stream:
        """Send the stream, if there is room for it."""
        service = self._service
        if stream.takes_slot and not service.free_streams:
            await service.pool.run_always(lambda: _closed(stream.chunks))
            busy = RefusedError(429, "too many exports are under way", headers=RETRY_LATER)
            return self._failed(busy, call.request_id)
        service.free_streams -= stream.takes_slot
        try:
            await self._send_stream(call, stream, receive, send)
        finally:
            service.free_streams += stream.takes_slot
        return stream

    async def _send_stream(self, call: Call, stream: Stream, receive: Receive, send: Send) -> None:
        """Send chunk by chunk; the next one is made while one is sent. A failure on the way breaks
        the connection, so that nobody takes the part for the whole."""
        pool, chunks = self._service.pool, stream.chunks
        watch = Watch(call, receive, after_seconds=0)
        try:
            await send(_start(stream.status, stream.media, stream.headers, call.request_id, None))
            chunk = await pool.run_always(lambda: next(chunks, None))
            while chunk is not None and not call.gone:
                following = asyncio.ensure_future(pool.run_always(lambda: next(chunks, None)))
                try:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                finally:
                    chunk = await following
            await send({"type": "http.response.body", "body": b""})
        finally:
            watch.end()
            await pool.run_always(lambda: _closed(chunks))


class Between:
    """Stands between the wire and an application that is not ours: its answers carry the id of the
    request, its failures become JSON like all others, and it does not wait for a body for ever."""

    def __init__(self, request_id: str, receive: Receive, send: Send) -> None:
        self._request_id, self._receive, self._send = request_id, receive, send
        self._deadline = asyncio.get_running_loop().time() + SERVER_BODY_MS_MAX / 1000
        self._has_body = False
        self._is_late = False
        self._refusal: bytes | None = None  # what it says of a failure that is no JSON
        self.status = 500

    async def receive(self) -> Any:
        if self._has_body:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            self._is_late = True
            return {"type": "http.disconnect"}
        self._has_body = not message.get("more_body")
        return message

    async def send(self, message: Any) -> None:
        if self._is_late:
            return
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            self.status = message["status"]
            media = next((value for name, value in headers if name.lower() == b"content-type"), b"")
            if self.status >= 400 and not media.startswith(b"application/json"):
                self._refusal = b""
                return
            headers.append((b"x-request-id", self._request_id.encode()))
            message = {**message, "headers": headers}
        elif self._refusal is not None:
            self._refusal += message.get("body", b"")
            return
        await self._send(message)

    def require_answered(self) -> None:
        """Raise what is still to be told, if anything is."""
        if self._is_late:
            raise _too_late()
        if self._refusal is not None:
            raise RefusedError(self.status, self._refusal.decode("utf-8", "replace"))


def _handled(call: Call) -> Answer | Stream:
    """The handler's answer, made ready to be sent; runs in the pool."""
    service, operation = call.service, call.route.operation
    graph_id = None if call.served is None else call.served.graph_id
    began = perf_counter()
    try:
        if call.span is None or service.tracing is None:
            answer = call.route.handler(call)
        else:
            with service.tracing.engine(call.span, operation, graph_id):
                answer = call.route.handler(call)
    finally:
        if graph_id is not None:
            service.telemetry.worked(operation, graph_id, perf_counter() - began)
    if isinstance(answer, Answer):
        return compressed(answer, call.header("accept-encoding") or "")
    return answer


def _closed(chunks: Any) -> None:
    close = getattr(chunks, "close", None)
    if close is not None:
        close()


class Watch:
    """Notes when the client of a request hangs up; most are answered before it looks."""

    def __init__(
        self, call: Call, receive: Receive, *, after_seconds: float = _WATCHED_AFTER_SECONDS
    ) -> None:
        self._call, self._receive = call, receive
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(after_seconds, self._begin)

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._call.gone = True

    def end(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()


def _raw_path(scope: Scope) -> bytes:
    raw: bytes | None = scope.get("raw_path")
    return scope["path"].encode() if raw is None else raw.partition(b"?")[0]


async def _read_body(call: Call, receive: Receive) -> bytes:
    """The whole body, if it is small enough and comes in time."""
    most = call.route.body_max
    told = call.header("content-length")
    if told is not None and told.isdecimal() and int(told) > most:
        raise _too_big(call, int(told))
    parts, size = [], 0
    try:
        async with asyncio.timeout(SERVER_BODY_MS_MAX / 1000):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise GoneError
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > most:
                    raise _too_big(call, size)
                call.service.bodies.hold(call, len(parts[-1]))
                if not message.get("more_body"):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
    except TimeoutError as cause:
        raise _too_late() from cause


def _too_late() -> RefusedError:
    return RefusedError(408, "the body did not come in time", headers=(("connection", "close"),))


def _too_big(call: Call, size: int) -> RefusedError:
    most = call.route.body_max
    resource = "graph_batch_request_bytes" if call.route.takes else "request_bytes"
    return RefusedError(
        413,
        f"the body of this request has at most {most} bytes, got {size}",
        resource_limit=ResourceLimit(resource=resource, limit=most, actual=size),
    )


# --- sending --------------------------------------------------------------------------------------


def failure_answer(failure: Failure, request_id: str) -> Answer:
    """The answer that tells of a failure."""
    body = failure.body
    if failure.status >= 500:
        body = msgspec.structs.replace(body, request_id=request_id)
    return Answer(status=failure.status, body=_encoder.encode(body), headers=failure.headers)


def _start(
    status: int, media: str, headers: Iterable[tuple[str, str]], request_id: str, size: int | None
) -> dict[str, Any]:
    raw = [(b"content-type", media.encode()), (b"x-request-id", request_id.encode())]
    if size is not None:
        raw.append((b"content-length", b"%d" % size))
    raw += [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return {"type": "http.response.start", "status": status, "headers": raw}


async def _send(answer: Answer, request_id: str, send: Send, *, head_only: bool) -> None:
    size: int | None = len(answer.body)
    media = answer.media
    if any(name == "content-length" for name, _ in answer.headers):
        size = None  # it speaks of a body that is not sent
    if answer.status == 304:
        size = None
    start = _start(answer.status, media, answer.headers, request_id, size)
    await send(start)
    body = b"" if head_only else answer.body
    await send({"type": "http.response.body", "body": body})
