"""One request on its way through the server, what it is answered, and what a route says of it."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.types import ASGIApp

from omnigraph.engine.read.context import ReadLimits
from omnigraph.errors import InputError, InvalidNameError
from omnigraph.model.access import Action
from omnigraph.model.graph import MAIN
from omnigraph.model.limits import SERVER_BODY_BYTES_MAX, SERVER_GZIP_BYTES_MIN
from omnigraph.server.access import Actor
from omnigraph.wire.failures import RefusedError

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from omnigraph.engine.graph import Graph
    from omnigraph.server.graphs import Served
    from omnigraph.server.service import Service

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
NDJSON_UTF8: Final = "application/x-ndjson; charset=utf-8"
ARROW: Final = "application/vnd.apache.arrow.stream"
OCTETS: Final = "application/octet-stream"
IF_COMMIT: Final = "omnigraph-if-graph-commit"
_GZIP: Final = re.compile(r"(^|[\s,])gzip\s*(,|$|;\s*q=(1|0?\.\d*[1-9]))", re.IGNORECASE)
_COMMIT_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")

Headers = tuple[tuple[str, str], ...]
S = TypeVar("S")
_encoder = msgspec.json.Encoder()


# --- answers --------------------------------------------------------------------------------------


class Answer(msgspec.Struct, kw_only=True):
    """A status and a whole body."""

    status: int = 200
    body: bytes = b""
    media: str = JSON
    headers: Headers = ()


class Stream(msgspec.Struct, kw_only=True):
    """A body that is made while it is sent; each chunk is made in the pool."""

    chunks: Iterator[bytes]
    status: int = 200
    media: str = NDJSON_UTF8
    headers: Headers = ()
    takes_slot: bool = True  # one of the few that may be under way


def json_answer(value: Any, *, status: int = 200, headers: Headers = ()) -> Answer:
    return Answer(status=status, body=_encoder.encode(value), headers=headers)


def accepts_gzip(accepted: str) -> bool:
    """Whether a client that sent this `Accept-Encoding` can read gzip."""
    return _GZIP.search(accepted) is not None


def compressed(answer: Answer, accepted: str) -> Answer:
    """The answer, smaller if it is worth it and the client can read it."""
    worth = len(answer.body) >= SERVER_GZIP_BYTES_MIN and answer.media == JSON
    if not worth or not accepts_gzip(accepted):
        return answer
    answer.body = gzip.compress(answer.body, compresslevel=1, mtime=0)
    answer.headers = (*answer.headers, ("content-encoding", "gzip"), ("vary", "accept-encoding"))
    return answer


# --- the table of routes --------------------------------------------------------------------------


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of the query string, for the reader of the API and for the check of requests."""

    name: str
    about: str
    kind: Literal["string", "integer"] = "string"
    repeated: bool = False
    required: bool = False
    values: tuple[str, ...] = ()


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be asked: the dispatcher, the API document and the tests read this."""

    method: str
    path: str
    handler: Callable[[Call], Answer | Stream]
    operation: str
    summary: str
    action: Action | None = None
    request: type | None = None
    answer: Any = None  # a class of `wire.answers`, or several; None for what is no JSON
    media: str = JSON
    takes: str | None = None  # a media type of the body other than JSON
    statuses: tuple[int, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    strict: bool = False  # unknown parameters are refused
    is_open: bool = False  # needs no token
    on_loop: bool = False  # quick enough for the event loop
    writes: bool | Callable[[Call], bool] = False
    optional_body: bool = False
    before_body: Callable[[Call], None] | None = None  # checks that come before the body is read
    asgi: ASGIApp | None = None  # takes the request as it comes, once it is let in
    body_max: int = SERVER_BODY_BYTES_MAX
    successor: str | None = None  # of a route that is deprecated
    tag: str = "graph"

    @property
    def is_of_a_graph(self) -> bool:
        return self.path.startswith("/graphs/{graph_id}")


# --- a request ------------------------------------------------------------------------------------


class Call:
    """What a handler knows of its request. Handlers run in a thread of the pool."""

    def __init__(
        self,
        *,
        service: Service,
        route: Route,
        scope: Mapping[str, Any],
        path: Mapping[str, str],
        request_id: str,
    ) -> None:
        self.service = service
        self.route = route
        self.path = path
        self.request_id = request_id
        self.body = b""
        self.actor = Actor(None)
        self.served: Served | None = None
        self.gone = False  # the client has hung up
        self.held_bytes = 0  # of the body, as the process counts them
        self.span: Span | None = None  # of the request, where requests are traced
        self._raw: Sequence[tuple[bytes, bytes]] = scope["headers"]
        self._query: bytes = scope["query_string"]
        self._parameters: dict[str, list[str]] | None = None

    # --- headers and parameters ---

    def header(self, name: str) -> str | None:
        """The first header of that name (in small letters)."""
        wanted = name.encode()
        for key, value in self._raw:
            if key == wanted:
                return value.decode("latin-1")
        return None

    def headers(self, name: str) -> list[str]:
        wanted = name.encode()
        return [value.decode("latin-1") for key, value in self._raw if key == wanted]

    @property
    def parameters(self) -> dict[str, list[str]]:
        """The query string, checked against what the route takes."""
        if self._parameters is None:
            self._parameters = self._parsed() if self._query else {}
        return self._parameters

    def _parsed(self) -> dict[str, list[str]]:
        try:
            pairs = parse_qsl(self._query.decode("ascii"), keep_blank_values=True, errors="strict")
        except (UnicodeDecodeError, ValueError) as cause:
            raise InputError("the query string is not UTF-8 text") from cause
        found: dict[str, list[str]] = {}
        for name, value in pairs:
            found.setdefault(name, []).append(value)
        known = {one.name: one for one in self.route.parameters}
        for name, values in found.items():
            one = known.get(name)
            if one is None:
                if self.route.strict:
                    raise InputError(f"unknown parameter '{name}'")
                continue
            if len(values) > 1 and not one.repeated:
                raise InputError(f"the parameter '{name}' was given more than once")
        return found

    def text(self, name: str) -> str | None:
        found = self.parameters.get(name)
        return found[0] if found else None

    def texts(self, name: str) -> list[str] | None:
        return self.parameters.get(name) or None

    def needed(self, name: str) -> str:
        found = self.text(name)
        if not found:
            raise InputError(f"the parameter '{name}' is missing")
        return found

    def count(self, name: str) -> int | None:
        """A parameter that is a whole number."""
        text = self.text(name)
        if text is None:
            return None
        if not text.isascii() or not text.isdecimal() or len(text) > 18:
            raise InputError(f"the parameter '{name}' must be a whole number, got '{text[:40]}'")
        return int(text)

    # --- the body ---

    def decoded(self, kind: type[S]) -> S:
        """The body as JSON of that class."""
        text = self.header("content-type")
        media = "" if text is None else text.partition(";")[0].strip().lower()
        if self.route.optional_body and self.body.strip() in (b"", b"null"):
            return kind()
        is_json = media == JSON or (media.startswith("application/") and media.endswith("+json"))
        if not is_json and not (self.route.optional_body and not media):
            raise RefusedError(415, f"expected a body with `Content-Type: {JSON}`, got '{media}'")
        try:
            return _decoder(kind).decode(self.body)
        except msgspec.ValidationError as cause:
            raise InputError(f"the body does not fit: {cause}") from cause
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
            raise InputError(f"the body is not valid JSON: {cause}") from cause

    # --- the graph, and leave to use it ---

    @property
    def whole(self) -> Graph:
        """The graph itself, for what must be known before anything can be decided."""
        assert self.served is not None, "the route is one of a graph"
        return self.served.graph

    @property
    def graph(self) -> Graph:
        """The graph as the actor may use it."""
        assert self.served is not None, "the route is one of a graph"
        return self.service.graph_for(self.served, self.actor)

    @property
    def graph_id(self) -> str:
        return self.path["graph_id"]

    def allow(
        self, action: Action, *, branch: str | None = None, target: str | None = None
    ) -> None:
        """Go on only if the actor may do this."""
        of_graph = self.graph_id if self.route.is_of_a_graph else None
        self.service.allow(of_graph, self.actor, action, branch, target, request_id=self.request_id)

    def admitted(self, size: int) -> AbstractContextManager[None]:
        """Count a write while it runs."""
        self.service.require_writing()
        return self.service.admission.write(self.actor.id, size)

    def branch(self, text: str | None) -> str:
        """The name of the branch that is meant. What is no branch but a ref of another kind is
        refused: a policy is about names of branches."""
        name = branch_name(text)
        if name != MAIN:
            self.whole.require_branch(name)
        return name

    @property
    def idempotency_key(self) -> str | None:
        """The key under which the request is carried out once."""
        found = self.headers("idempotency-key")
        if not found:
            return None
        if len(found) > 1:
            raise InputError("the header 'Idempotency-Key' was given more than once")
        if not found[0] or not all("!" <= char <= "~" for char in found[0]):
            raise InvalidNameError(
                "an idempotency key is 1 to 255 visible ASCII characters",
                kind="idempotency key",
                name=found[0],
            )
        return found[0]

    def read_limits(self) -> ReadLimits:
        """What one read may use; a client that hangs up ends it."""
        most = self.service.settings.query_timeout_ms
        return ReadLimits(time_ms=most, is_given_up=lambda: self.gone)

    def if_commit_refused(self) -> None:
        """Refuse the condition on a route that has no way to check it."""
        if self.headers(IF_COMMIT):
            raise InputError("this route does not take the header 'Omnigraph-If-Graph-Commit'")

    def if_commit(self, *, wanted: bool) -> str | None:
        """The commit that must be the head, on the routes that are for it; elsewhere the header is
        refused, so that nobody believes a condition was checked."""
        found = self.headers(IF_COMMIT)
        if not wanted:
            if found:
                route = self.route.path.removeprefix("/graphs/{graph_id}")
                raise InputError(
                    f"the header 'Omnigraph-If-Graph-Commit' needs POST {route}/if-graph-commit"
                )
            return None
        if len(found) != 1:
            raise InputError("exactly one header 'Omnigraph-If-Graph-Commit' is needed")
        text = found[0].strip()
        if _COMMIT_ID.fullmatch(text) is None:
            raise InputError("'Omnigraph-If-Graph-Commit' takes the bare id of one commit")
        return text


def branch_name(text: str | None) -> str:
    """The branch as policy and engine are to see it: trimmed once, here; none means main."""
    if text is None:
        return MAIN
    name = text.strip()
    if not name:
        raise InvalidNameError("a branch name must not be empty", kind="branch", name=text)
    return name


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


def _decoder(kind: type[S]) -> msgspec.json.Decoder[S]:
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = msgspec.json.Decoder(kind)
    return found
