"""One server's address, token and connections; every refusal is raised as the error it was."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import urllib3

from omnigraph import errors
from omnigraph.model.limits import CLIENT_CHUNK_BYTES

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
ARROW: Final = "application/vnd.apache.arrow.stream"
_CONNECT_SECONDS: Final = 10.0


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A server, and the graph of it that is meant, if any."""

    server: str
    graph_id: str | None

    @classmethod
    def of(cls, url: str, graph_id: str | None) -> Address:
        """`http://host/graphs/alpha` picks the graph by itself."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise errors.InputError(f"'{url}' is no server", hint="write http://host:port")
        if parts.query or parts.fragment or "@" in parts.netloc:
            raise errors.InputError(f"'{url}' has more than an address in it")
        path = parts.path.rstrip("/")
        head, _, last = path.rpartition("/graphs/")
        if last and "/" not in last:
            if graph_id is not None and graph_id != last:
                raise errors.InputError(f"'{url}' names the graph '{last}', not '{graph_id}'")
            return cls(server=f"{parts.scheme}://{parts.netloc}{head}", graph_id=last)
        return cls(server=f"{parts.scheme}://{parts.netloc}{path}", graph_id=graph_id)


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What was answered: the body as bytes, and headers by small letters."""

    status: int
    body: bytes
    headers: Mapping[str, str]

    def json(self) -> Any:
        return json.loads(self.body)


class Connection:
    """Requests to one server. Safe to share between threads."""

    def __init__(self, server: str, *, token: str | None, timeout: float) -> None:
        self.server = server
        self._headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._pool = urllib3.PoolManager(
            retries=urllib3.Retry(total=False, redirect=False),
            timeout=urllib3.Timeout(connect=min(_CONNECT_SECONDS, timeout), read=timeout),
        )

    def close(self) -> None:
        self._pool.clear()

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """The whole answer; raises the error that the server met."""
        answer = self._sent(method, path, query=query, body=body, raw=raw, headers=headers)
        with answer:
            try:
                data = answer.read(decode_content=True)
            except urllib3.exceptions.HTTPError as cause:
                raise self._lost(method, cause) from cause
        reply = Reply(
            status=answer.status,
            body=data,
            headers={name.lower(): value for name, value in answer.headers.items()},
        )
        if reply.status >= 400:
            raise error_of(reply.status, reply.body)
        return reply

    def lines(self, path: str, *, body: Any) -> Iterator[str]:
        """The lines of a stream, as they come; one that breaks off is an error."""
        answer = self._sent("POST", path, body=body)
        if answer.status >= 400:
            raise error_of(answer.status, answer.read(decode_content=True))
        return _lines(answer, lambda cause: self._lost("GET", cause))

    def _sent(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> urllib3.BaseHTTPResponse:
        sent = {"accept": JSON, "accept-encoding": "gzip", **self._headers, **(headers or {})}
        if body is not None:
            raw = msgspec.json.encode(body)
            sent["content-type"] = JSON
        url = self.server + path + _query(query or {})
        try:
            return self._pool.request(
                method, url, body=raw, headers=sent, preload_content=False, redirect=False
            )
        except urllib3.exceptions.HTTPError as cause:
            raise self._lost(method, cause) from cause

    def _lost(self, method: str, cause: Exception) -> errors.OmnigraphError:
        """What it means that no answer came: a request that may have arrived may have been done."""
        why = getattr(cause, "reason", None) or cause
        never = isinstance(
            why, urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError
        )
        if never or method in ("GET", "HEAD"):
            return errors.ServerUnavailableError(
                f"cannot reach the server at {self.server}: {type(why).__name__}",
                server=self.server,
            )
        return errors.OutcomeUnknownError(
            f"the server at {self.server} did not answer: {type(why).__name__}",
            graph_commit_id=None,
        )


def _query(asked: Mapping[str, Any]) -> str:
    pairs = [
        (name, str(one))
        for name, value in asked.items()
        if value is not None
        for one in (value if isinstance(value, list | tuple) else [value])
    ]
    return f"?{urlencode(pairs)}" if pairs else ""


def segment(text: str) -> str:
    """A text as one part of a path."""
    return quote(text, safe="")


def _lines(answer: urllib3.BaseHTTPResponse, lost: Any) -> Iterator[str]:
    rest = b""
    try:
        for piece in answer.stream(CLIENT_CHUNK_BYTES, decode_content=True):
            *whole, rest = (rest + piece).split(b"\n")
            yield from (line.decode() for line in whole)
        if rest:
            yield rest.decode()
    except urllib3.exceptions.HTTPError as cause:
        raise lost(cause) from cause
    finally:
        answer.release_conn()


# --- refusals -----------------------------------------------------------------------------------


def error_of(status: int, body: bytes) -> errors.OmnigraphError:
    """The error that an answer tells of: by the code in its detail, else by its status."""
    try:
        told = json.loads(body)
    except ValueError:
        told = {}
    told = told if isinstance(told, dict) else {}
    message = str(told.get("error") or f"the server answered {status}")
    detail = dict(told.get("detail") or {})
    kind = _by_code().get(str(detail.pop("code", ""))) or _BY_STATUS.get(status)
    if kind is None:
        kind = errors.OmnigraphError
    hint = detail.pop("hint", None)
    detail.pop("retryable", None)
    if kind is errors.MergeConflictsError:
        detail["conflicts"] = _conflicts(told, detail)
    return errors.restored(kind, message, hint, detail)


_BY_STATUS: Final[Mapping[int, type[errors.OmnigraphError]]] = {
    400: errors.InputError,
    401: errors.UnauthenticatedError,
    403: errors.AccessError,
    404: errors.NotFoundError,
    409: errors.ConflictError,
    410: errors.NotFoundError,
    412: errors.ConflictError,
    413: errors.InputError,
    415: errors.InputError,
    429: errors.ServerUnavailableError,
    503: errors.ServerUnavailableError,
}


def _by_code() -> dict[str, type[errors.OmnigraphError]]:
    if not _known:
        waiting: list[type[errors.OmnigraphError]] = [errors.OmnigraphError]
        while waiting:
            kind = waiting.pop()
            _known[kind.code] = kind
            waiting += kind.__subclasses__()
    return _known


_known: dict[str, type[errors.OmnigraphError]] = {}


def _conflicts(told: Mapping[str, Any], detail: dict[str, Any]) -> tuple[Any, ...]:
    from omnigraph.client.values import conflict_of  # noqa: PLC0415 - Arrow comes with it

    given = detail.pop("conflicts", None) or told.get("merge_conflicts") or ()
    return tuple(conflict_of(one) for one in given)
