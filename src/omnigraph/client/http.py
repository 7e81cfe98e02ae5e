"""One server's address, token and connections; every refusal is raised as the error it was."""

from __future__ import annotations

import json
import ssl
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import urllib3

from omnigraph import errors
from omnigraph.client.values import Told, conflict_of
from omnigraph.model.limits import CLIENT_CHUNK_BYTES
from omnigraph.wire.failures import error_of

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
ARROW: Final = "application/vnd.apache.arrow.stream"
_OURS: Final = frozenset({JSON, NDJSON, ARROW, "application/octet-stream"})
_CONNECT_SECONDS: Final = 10.0
# What changes nothing, though it is posted.
_READS: Final = ("/query", "/explain", "/export", "/changes/baseline", "/branches/merge/preview")


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
        self._headers = {} if token is None else {"authorization": _bearer(token)}
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
            self._require_ours(answer, reads=_is_read(method, path))
            try:
                data = answer.read(decode_content=True)
            except urllib3.exceptions.HTTPError as cause:
                raise self._lost(cause, reads=_is_read(method, path)) from cause
        reply = Reply(
            status=answer.status,
            body=data,
            headers={name.lower(): value for name, value in answer.headers.items()},
        )
        if reply.status >= 400:
            raise refusal(reply.status, reply.body, reads=_is_read(method, path))
        return reply

    def lines(self, path: str, *, body: Any) -> Iterator[str]:
        """The lines of a stream, as they come; one that breaks off is an error."""
        answer = self._sent("POST", path, body=body)
        if answer.status >= 400:
            raise refusal(answer.status, answer.read(decode_content=True), reads=True)
        self._require_ours(answer, reads=True)
        return _lines(answer, lambda cause: self._lost(cause, reads=True))

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
        tracing = sys.modules.get("opentelemetry.propagate")
        if tracing is not None:  # the program traces: the server's spans go below its own
            tracing.inject(sent)
        if body is not None:
            raw = msgspec.json.encode(body)
            sent["content-type"] = JSON
        url = self.server + path + _query(query or {})
        try:
            return self._pool.request(
                method, url, body=raw, headers=sent, preload_content=False, redirect=False
            )
        except urllib3.exceptions.HTTPError as cause:
            raise self._lost(cause, reads=_is_read(method, path)) from cause

    def _require_ours(self, answer: urllib3.BaseHTTPResponse, *, reads: bool) -> None:
        """Raise what it means that somebody else answered: a proxy that sends elsewhere, a page to
        log in. Nothing of theirs is taken for data, or for a write that was done."""
        media = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        blob_elsewhere = answer.status == 302 and "omnigraph-snapshot-id" in answer.headers
        if answer.status >= 400 or blob_elsewhere or (answer.status < 300 and media in _OURS):
            return
        answer.close()
        elsewhere = answer.headers.get("location")
        if answer.status >= 300 and elsewhere is not None:
            raise errors.InputError(
                f"the server at {self.server} sends elsewhere: {elsewhere}",
                hint="connect to the address that it names",
            )
        told = f"{answer.status} with '{media or 'no content type'}'"
        message = f"at {self.server} it is no OmniGraph server that answers: {told}"
        if reads:
            raise errors.ServerUnavailableError(message, server=self.server)
        raise errors.OutcomeUnknownError(message, graph_commit_id=None)

    def _lost(self, cause: Exception, *, reads: bool) -> errors.OmnigraphError:
        """What it means that no answer came: a request that may have arrived may have been done."""
        why = getattr(cause, "reason", None) or cause
        never = isinstance(
            why, urllib3.exceptions.NewConnectionError | urllib3.exceptions.ConnectTimeoutError
        )
        if never or reads or _is_of_handshake(why):
            return errors.ServerUnavailableError(
                f"cannot reach the server at {self.server}: {_words(why)}",
                server=self.server,
            )
        return errors.OutcomeUnknownError(
            f"the server at {self.server} did not answer: {_words(why)}",
            graph_commit_id=None,
        )


def _is_of_handshake(why: BaseException | str) -> bool:
    """Whether it went wrong before anything was sent: the certificate, or no TLS at all."""
    met = why.args[0] if isinstance(why, urllib3.exceptions.SSLError) and why.args else None
    return getattr(met, "reason", None) in ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER")


def _words(why: BaseException | str) -> str:
    """Why no answer came, in words: what the system said of the connection, if anything."""
    cause: BaseException | None = why if isinstance(why, BaseException) else None
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is refused: {cause.verify_message}"
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
        cause = cause.__cause__ or cause.__context__
    if isinstance(why, urllib3.exceptions.TimeoutError):
        return "it took too long"
    return type(why).__name__ if isinstance(why, BaseException) else why


def _bearer(token: str) -> str:
    """The token as a header carries it: headers are bytes that are written as Latin-1."""
    if not token.strip() or not token.strip().isprintable():
        raise errors.InputError("a token has letters, and none that cannot be seen")
    return "Bearer " + token.strip().encode().decode("latin-1")


def _is_read(method: str, path: str) -> bool:
    return method in ("GET", "HEAD") or path.endswith(_READS)


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
        answer.close()  # what was read to its end is back in the pool already


# --- the graphs of a server -----------------------------------------------------------------------


def served_graphs(connection: Connection) -> list[dict[str, Any]]:
    """The graphs that a server offers."""
    return list(connection.ask("GET", "/graphs").json()["graphs"])


def only_graph(connection: Connection) -> str:
    """The graph of a server that has one."""
    found = [str(one["graph_id"]) for one in served_graphs(connection)]
    if len(found) == 1:
        return found[0]
    if not found:
        raise errors.NotFoundError(
            f"the server at {connection.server} has no graphs", kind="graph", name=connection.server
        )
    raise errors.InputError(
        f"the server at {connection.server} has several graphs: {', '.join(found)}",
        hint="name one: --graph <id>, or graph=",
        graphs=found,
    )


# --- refusals -----------------------------------------------------------------------------------


def refusal(status: int, body: bytes, *, reads: bool) -> errors.OmnigraphError:
    """The error that an answer tells of."""
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        if status >= 500 and not reads:
            # Somebody between us and the server gave up; the request may be carried out still.
            return errors.OutcomeUnknownError(
                f"the server's answer is lost: status {status}", graph_commit_id=None
            )
        told = {}
    error = error_of(status, told)
    facts = dict(error.facts)
    if isinstance(error, errors.MergeConflictsError):
        given = (told.get("detail") or {}).get("conflicts") or told.get("merge_conflicts") or ()
        facts["conflicts"] = tuple(map(conflict_of, given))
    if "violations" in facts:
        facts["violations"] = tuple(map(Told, facts["violations"]))
    if facts == error.facts:
        return error
    return errors.restored(type(error), error.message, error.hint, facts)
