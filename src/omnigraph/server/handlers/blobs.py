"""Blobs: whole or one range, with the conditions of HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.graph import MAIN
from omnigraph.model.limits import SERVER_BLOB_CHUNK_BYTES_MAX
from omnigraph.server.calls import OCTETS, Answer, Call, Headers, Parameter, Route, Stream
from omnigraph.server.handlers.parameters import BRANCH
from omnigraph.server.handlers.reading import SNAPSHOT, readable
from omnigraph.wire.failures import BlobRange, RefusedError

_RANGE: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_TAG: Final = re.compile(r'(W/)?"[\x21\x23-\x7e\x80-\xff]*"')
_SMALL: Final = 256 * 1024  # bytes that are sent as one piece


class Range(msgspec.Struct, frozen=True):
    """The bytes from `start` up to but not including `stop`."""

    start: int
    stop: int


# --- what the headers say; no graph is asked ------------------------------------------------------


def tags(header: str) -> list[str] | None:
    """The tags of a list, weak ones with their mark; None if it is no list of tags."""
    found = []
    for part in header.split(","):
        text = part.strip()
        if not text:
            continue
        if _TAG.fullmatch(text) is None:
            return None
        found.append(text)
    return found


def matches(header: str, tag: str) -> bool:
    """`If-Match`: strong comparison; what cannot be read does not match."""
    return header.strip() == "*" or tag in (tags(header) or ())


def is_known(header: str, tag: str) -> bool:
    """`If-None-Match`: weak comparison."""
    return header.strip() == "*" or tag in [one.removeprefix("W/") for one in tags(header) or ()]


def wanted_range(headers: list[str], size: int) -> Range | None:
    """The one range that is asked for; None if all of it is to be sent. 416 if it lies outside."""
    if len(headers) != 1:
        return None
    found = _RANGE.fullmatch(headers[0].strip())
    if found is None or found[1] == found[2] == "":
        return None
    if found[1] == "":
        length = int(found[2])
        if length == 0 or size == 0:
            raise _outside(None, length, size)
        return Range(max(0, size - length), size)
    start = int(found[1])
    last = int(found[2]) if found[2] else size - 1
    if found[2] and last < start:
        return None  # it says nothing that could be done
    if start >= size:
        raise _outside(start, int(found[2]) if found[2] else None, size)
    return Range(start, min(last + 1, size))


def _outside(start: int | None, end: int | None, size: int) -> RefusedError:
    return RefusedError(
        416,
        f"the range lies outside the blob's {size} bytes",
        headers=(("content-range", f"bytes */{size}"),),
        blob_range=BlobRange(start=start, end=end, length=size),
    )


# --- the answer -----------------------------------------------------------------------------------


def blob(call: Call) -> Answer | Stream:
    kind = call.needed("entity")
    if kind not in ("node", "edge"):
        raise InputError(f"entity takes node or edge, got '{kind[:40]}'")
    selector = (kind, call.needed("type"), call.needed("id"), call.needed("property"))
    state = readable(call, call.text("branch"), call.text("snapshot"))
    snapshot_id = call.graph.snapshot(state.branch or MAIN, at=state.snapshot).graph_commit_id
    reader = _found(call, selector, snapshot_id)
    shown: Headers = (("omnigraph-snapshot-id", snapshot_id),)
    if reader.uri is not None:
        return Answer(
            status=302,
            media=OCTETS,
            headers=(("location", _location(reader.uri)), ("cache-control", "no-store"), *shown),
        )
    return _own_blob(call, reader, shown)


def _location(uri: str) -> str:
    """The address as a header can carry it."""
    if not uri.isascii() or not uri.isprintable():
        raise RefusedError(500, "the blob's address cannot be told", code="internal")
    return uri


def _found(call: Call, selector: tuple[str, str, str, str], snapshot_id: str) -> Any:
    kind, type_name, entity_id, property_name = selector
    try:
        # The engine has let the actor read the state, by whose name it was asked for; the commit by
        # itself may be of another branch.
        return call.whole.read_blob(kind, type_name, entity_id, property_name, snapshot=snapshot_id)
    except NotFoundError as problem:
        if problem.facts.get("kind") in ("node", "edge", "property") and problem.facts.get(
            "name"
        ) in (type_name, property_name):
            raise RefusedError.by(problem, 400) from problem  # the schema has no such thing
        raise


def _own_blob(call: Call, reader: Any, shown: Headers) -> Answer | Stream:
    size, tag = int(reader.size), f'"{reader.etag}"'
    headers: Headers = (("etag", tag), ("accept-ranges", "bytes"), *shown)
    whole = ("content-length", str(size))
    if_match = call.header("if-match")
    if if_match is not None and not matches(if_match, tag):
        raise RefusedError(412, "the blob is another one", code="conflict", headers=headers)
    if_none_match = call.header("if-none-match")
    if if_none_match is not None and is_known(if_none_match, tag):
        return Answer(status=304, media=OCTETS, headers=(*headers, whole))
    if call.route.method == "HEAD":
        return Answer(media=OCTETS, headers=(*headers, whole))
    if_range = call.header("if-range")
    part = None
    if if_range is None or if_range.strip() == tag:
        part = wanted_range(call.headers("range"), size)
    if part is None:
        return _sent(reader, Range(0, size), status=200, headers=headers)
    span = ("content-range", f"bytes {part.start}-{part.stop - 1}/{size}")
    return _sent(reader, part, status=206, headers=(*headers, span))


def _sent(reader: Any, part: Range, *, status: int, headers: Headers) -> Answer | Stream:
    length = part.stop - part.start
    if length <= _SMALL:
        body = reader.read_range(part.start, part.stop)
        return Answer(status=status, body=body, media=OCTETS, headers=headers)
    return Stream(
        chunks=_chunks(reader, part),
        status=status,
        media=OCTETS,
        headers=(*headers, ("content-length", str(length))),
        takes_slot=False,
    )


def _chunks(reader: Any, part: Range) -> Iterator[bytes]:
    for at in range(part.start, part.stop, SERVER_BLOB_CHUNK_BYTES_MAX):
        yield reader.read_range(at, min(at + SERVER_BLOB_CHUNK_BYTES_MAX, part.stop))


def _route(method: str, operation: str) -> Route:
    return Route(
        method=method,
        path="/graphs/{graph_id}/blob",
        handler=blob,
        operation=operation,
        summary="The bytes of a blob" if method == "GET" else "The size and tag of a blob",
        action="read",
        media=OCTETS,
        statuses=(206, 302, 304, 400, 404, 412, 416),
        parameters=(
            Parameter(name="entity", about="node or edge", required=True, values=("node", "edge")),
            Parameter(name="type", about="the entity's type", required=True),
            Parameter(name="id", about="the entity's id", required=True),
            Parameter(name="property", about="the blob's property", required=True),
            BRANCH,
            SNAPSHOT,
        ),
    )


ROUTES = (_route("GET", "getBlob"), _route("HEAD", "headBlob"))
