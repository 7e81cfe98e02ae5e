"""An S3 server on loopback that counts what it is asked; shared by every test that needs one."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field

BUCKET = "graphs"
# The environment of a store at which nobody answers.
UNREACHABLE = {
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "AWS_ALLOW_HTTP": "true",
    "AWS_ACCESS_KEY_ID": "x",
    "AWS_SECRET_ACCESS_KEY": "x",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str  # /bucket/key
    query: str


@dataclass
class RequestLog:
    """Every request the server saw since the last `clear`, from obstore and lance alike."""

    requests: list[Request] = field(default_factory=list)

    def clear(self):
        self.requests.clear()

    @property
    def count(self):
        return len(self.requests)

    def by_verb(self):
        """How many requests of each kind; a GET of a bucket is called LIST."""
        return Counter(_verb(request) for request in self.requests)

    @contextmanager
    def counted(self):
        """The requests of the block alone."""
        start = len(self.requests)
        block = RequestLog()
        yield block
        block.requests.extend(self.requests[start:])


def _verb(request):
    listing = request.method == "GET" and request.path.strip("/") == BUCKET
    return "LIST" if listing else request.method


def _ignore(status, headers, exc_info=None):
    """Take an answer that nobody will see."""


class S3Server:
    """moto behind one lock, so that its conditional writes are atomic, as the real ones are."""

    def __init__(self):
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import make_server

        self.log = RequestLog()
        self._fault = None
        self._app = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def _answer(self, environ, start_response):
        seen = Request(
            method=environ["REQUEST_METHOD"],
            path=environ.get("PATH_INFO", ""),
            query=environ.get("QUERY_STRING", ""),
        )
        with self._lock:
            self.log.requests.append(seen)
            outcome = self._fault(seen) if self._fault else None
            if outcome != "refused":
                body = [b"".join(self._app(environ, start_response if not outcome else _ignore))]
            if outcome is None:
                return body
        start_response("500 Internal Server Error", [("Content-Length", "0")])
        return [b""]

    @contextmanager
    def failing(self, choose):
        """Answer 500 in the block to requests for which `choose(request)` says "refused" (nothing
        happened) or "lost" (it was done, only the answer is wrong)."""
        self._fault = choose
        try:
            yield
        finally:
            self._fault = None

    def environ(self):
        """The variables under which a program finds this server."""
        return {
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_S3_FORCE_PATH_STYLE": "true",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_REGION": "us-east-1",
        }

    def start(self):
        import urllib.request

        self._thread.start()
        make = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
        urllib.request.urlopen(make, timeout=30).close()
        self.log.clear()

    def stop(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
