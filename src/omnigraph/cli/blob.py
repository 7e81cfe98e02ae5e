"""`blob get|stat`: one large value, whole or in part."""

from __future__ import annotations

import sys
from typing import Any

import click

from omnigraph.cli.call import Call, CommandGroup, exclusive, state_options, together, verb
from omnigraph.errors import InputError
from omnigraph.model.tables import cell

blob = CommandGroup("blob", help="Read large values.")
CHUNK_BYTES = 4 * 1024 * 1024


_selector = together(
    click.argument("entity", type=click.Choice(["node", "edge"]), metavar="node|edge"),
    click.argument("type_name", metavar="TYPE"),
    click.argument("entity_id", metavar="ID"),
    click.argument("property_name", metavar="PROPERTY"),
    state_options,
)


def _range(size: int, offset: int | None, length: int | None) -> tuple[int, int]:
    """The half-open byte range asked for, which must lie inside the value."""
    start = offset or 0
    if length is not None and length < 1:
        raise InputError("--length must be at least 1")
    if start < 0 or (offset is not None and start >= size):
        raise InputError(f"--offset {start} lies outside the value's {size} bytes")
    end = size if length is None else start + length
    if end > size:
        raise InputError(f"the range {start}..{end} lies outside the value's {size} bytes")
    return start, end


@verb("blob get")
@_selector
@click.option("--offset", type=int, metavar="BYTES", help="where to start")
@click.option("--length", type=int, metavar="BYTES", help="how many bytes")
@click.option("--out", "out_path", metavar="FILE", help="write to a file instead of stdout")
def get(
    call: Call,
    *,
    entity: str,
    type_name: str,
    entity_id: str,
    property_name: str,
    branch: str | None,
    snapshot: str | None,
    offset: int | None,
    length: int | None,
    out_path: str | None,
) -> None:
    """Write the bytes of a Blob property, or a range of them."""
    exclusive({"--branch": branch, "--snapshot": snapshot})
    if length is not None and length < 1:
        raise InputError("--length must be at least 1")
    with call.graph() as graph:
        reader = graph.read_blob(
            entity, type_name, entity_id, property_name, branch=branch or "main", snapshot=snapshot
        )
        start, end = _range(reader.size, offset, length)
        try:
            sink = sys.stdout.buffer if out_path is None else open(out_path, "wb")  # noqa: SIM115
        except OSError as cause:
            raise InputError(f"cannot write '{out_path}': {cause.strerror}") from cause
        try:
            for at in range(start, end, CHUNK_BYTES):
                sink.write(reader.read_range(at, min(at + CHUNK_BYTES, end)))
            sink.flush()
        finally:
            if out_path is not None:
                sink.close()


@verb("blob stat")
@_selector
def stat(
    call: Call,
    *,
    entity: str,
    type_name: str,
    entity_id: str,
    property_name: str,
    branch: str | None,
    snapshot: str | None,
) -> None:
    """Show the size and kind of a Blob property without reading it."""
    exclusive({"--branch": branch, "--snapshot": snapshot})
    with call.graph() as graph:
        reader = graph.read_blob(
            entity, type_name, entity_id, property_name, branch=branch or "main", snapshot=snapshot
        )
        resolved = graph.snapshot(branch or "main", at=snapshot).graph_commit_id
        external = getattr(reader, "uri", None)
        body: dict[str, Any] = {
            "selector": {
                "entity": entity,
                "type": type_name,
                "id": entity_id,
                "property": property_name,
            },
            "kind": "managed" if external is None else "external",
        }
        body |= {"size": reader.size} if external is None else {"uri": external}
    target = {"snapshot": snapshot} if snapshot else {"branch": branch or "main"}
    body["target"] = {**target, "resolved_snapshot": resolved}
    call.emit(body, human=[f"{name:10} {cell(value)}" for name, value in body.items()])


blob.add_command(get)
blob.add_command(stat)
