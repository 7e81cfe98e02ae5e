"""Exports and baselines: answers that are made while they are sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from omnigraph.model.limits import SERVER_CHUNK_BYTES_MAX
from omnigraph.server.calls import NDJSON_UTF8, Call, Route, Stream, branch_name
from omnigraph.server.handlers.reading import readable_state
from omnigraph.wire.requests import BaselineRequest, ExportRequest


def chunked(lines: Iterable[str]) -> Iterator[bytes]:
    """Lines in chunks of bounded size; a line that is longer is cut."""
    parts: list[bytes] = []
    size = 0
    for line in lines:
        piece = line.encode() + b"\n"
        if size + len(piece) > SERVER_CHUNK_BYTES_MAX and parts:
            yield b"".join(parts)
            parts, size = [], 0
        while len(piece) > SERVER_CHUNK_BYTES_MAX:
            yield piece[:SERVER_CHUNK_BYTES_MAX]
            piece = piece[SERVER_CHUNK_BYTES_MAX:]
        parts.append(piece)
        size += len(piece)
    if parts:
        yield b"".join(parts)


def settled(lines: Iterator[str]) -> Iterator[str]:
    """The lines, once the first of them was read: what can fail at once fails before the answer
    begins."""
    first = next(lines, None)
    return lines if first is None else chain([first], lines)


def export(call: Call) -> Stream:
    request = call.decoded(ExportRequest)
    state = readable_state(call, "export", request.branch, request.snapshot)
    lines = call.graph.export(types=request.type_names or None, **state.where)
    return Stream(chunks=chunked(settled(lines)))


def baseline(call: Call) -> Stream:
    request = call.decoded(BaselineRequest)
    name = branch_name(request.branch)
    call.allow("export", branch=name)
    found = call.graph.changes_baseline(
        branch=call.branch(name),
        kinds=request.kind or None,
        types=request.type or None,
        ops=request.op or None,
    )
    last = {
        "baseline": {
            "snapshot_commit_id": found.snapshot_commit_id,
            "resume_cursor": found.resume_cursor,
        }
    }
    lines = chain(settled(found.lines), [msgspec.json.encode(last).decode()])
    return Stream(chunks=chunked(lines))


STREAMS = (400, 404, 409, 413, 429)

ROUTES = (
    Route(
        method="POST",
        path="/graphs/{graph_id}/export",
        handler=export,
        operation="export",
        summary="The graph as NDJSON",
        action="export",
        request=ExportRequest,
        media=NDJSON_UTF8,
        statuses=STREAMS,
    ),
    Route(
        method="POST",
        path="/graphs/{graph_id}/changes/baseline",
        handler=baseline,
        operation="changesBaseline",
        summary="A branch as NDJSON, and the cursor of the feed that follows",
        action="export",
        request=BaselineRequest,
        media=NDJSON_UTF8,
        statuses=STREAMS,
    ),
)
