"""Blobs of a server, read range by range."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from omnigraph.client.http import Reply
from omnigraph.errors import InputError, OmnigraphError


class RemoteBlob:
    """The bytes of one blob of a server, read on demand. `uri` is set when they lie elsewhere."""

    def __init__(self, ask: Callable[..., Reply], where: Mapping[str, Any]) -> None:
        self._ask, self._where = ask, where
        head = _head(ask, where)
        self.uri = head.headers.get("location")
        self.kind = "external" if self.uri else "managed"
        self._tag = head.headers.get("etag")
        self.size = int(head.headers.get("content-length", 0)) if self.uri is None else 0

    def read_range(self, start: int, stop: int) -> bytes:
        """The bytes from `start` up to but not including `stop`."""
        if not 0 <= start <= stop <= self.size:
            raise InputError(
                f"range {start} to {stop} does not lie within the blob's {self.size} bytes",
                start=start,
                stop=stop,
                size=self.size,
            )
        if start == stop:
            return b""
        headers = {"range": f"bytes={start}-{stop - 1}", "accept-encoding": "identity"}
        if self._tag is not None:
            headers["if-match"] = self._tag
        found = self._ask("GET", "/blob", query=self._where, headers=headers)
        return found.body if found.status == 206 else found.body[start:stop]

    def read(self) -> bytes:
        """All of it."""
        return self.read_range(0, self.size)


def _head(ask: Callable[..., Reply], where: Mapping[str, Any]) -> Reply:
    """The blob without its bytes."""
    try:
        return ask("HEAD", "/blob", query=where)
    except OmnigraphError as problem:
        if problem.retryable:
            raise
    # An answer to HEAD has no body that could say what is wrong: that to GET has one.
    ask("GET", "/blob", query=where, headers={"range": "bytes=0-0"})
    return ask("HEAD", "/blob", query=where)  # it was wrong for a moment only
