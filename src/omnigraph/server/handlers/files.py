"""The console's own files, below `/ui`: built once, served as they are, to anybody who asks.

They hold no data and no token. The rules for browsers are strict: nothing is loaded from elsewhere,
no script stands in a page, and no other site may frame it.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from omnigraph.server.calls import Answer, Call, Headers, Route, accepts_gzip
from omnigraph.server.handlers.reading import has_copy
from omnigraph.wire.failures import RefusedError

FOLDER: Final = Path(__file__).parents[1] / "static" / "ui"
HTML: Final = "text/html; charset=utf-8"
SCRIPT: Final = "text/javascript; charset=utf-8"
MEDIA: Final = {".html": HTML, ".js": SCRIPT, ".css": "text/css; charset=utf-8"}
# Styles may stand in elements: the editor measures text and places its panels with them.
CONTENT_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "worker-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "style-src 'self' 'unsafe-inline'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
RULES: Final[Headers] = (
    ("content-security-policy", CONTENT_POLICY),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cache-control", "no-cache"),
    ("vary", "accept-encoding"),
)


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the bundle, plain and compressed."""

    body: bytes
    small: bytes
    media: str
    tag: str


@cache
def paths() -> dict[str, Path]:
    """Every file that browsers may have, by name."""
    return {path.name: path for path in FOLDER.iterdir() if path.suffix in MEDIA}


@cache
def built(path: Path) -> Built:
    """The file, compressed when it is first asked for: the page does not wait for its scripts."""
    body = path.read_bytes()
    small = gzip.compress(body, mtime=0)
    tag = hashlib.sha256(body).hexdigest()[:32]
    return Built(body=body, small=small, media=MEDIA[path.suffix], tag=tag)


def page(call: Call) -> Answer:
    return _answer(call, "index.html")


def file(call: Call) -> Answer:
    return _answer(call, call.path["file"])


def _answer(call: Call, name: str) -> Answer:
    path = paths().get(name)
    if path is None:
        raise RefusedError(404, "the console has no such file")
    found = built(path)
    headers = (*RULES, ("etag", f'"{found.tag}"'))
    if has_copy(call, found.tag):
        return Answer(status=304, media=found.media, headers=headers)
    if accepts_gzip(call.header("accept-encoding") or ""):
        headers = (*headers, ("content-encoding", "gzip"))
        return Answer(body=found.small, media=found.media, headers=headers)
    return Answer(body=found.body, media=found.media, headers=headers)


ROUTES = (
    Route(
        method="GET",
        path="/ui",
        handler=page,
        operation="console",
        summary="The console, for browsers",
        media=HTML,
        statuses=(304,),
        is_open=True,
        tag="server",
    ),
    Route(
        method="GET",
        path="/ui/{file}",
        handler=file,
        operation="consoleFile",
        summary="A file of the console",
        media=SCRIPT,
        statuses=(304, 404),
        is_open=True,
        tag="server",
    ),
)
