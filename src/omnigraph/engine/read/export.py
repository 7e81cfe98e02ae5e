"""A snapshot as NDJSON lines that `load` takes back, and the bytes of one blob.

Nodes come first, each type's rows by id.

Values are spelled as `json_value` spells them everywhere: dates as `YYYY-MM-DD`, times in UTC with
milliseconds, 64-bit integers beyond 2^53 - 1 as text. Blobs are inlined, or their URI is given when
the bytes lie elsewhere.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import orjson

from omnigraph.compiler.text import did_you_mean
from omnigraph.engine.arguments import INT, TEXT, require
from omnigraph.engine.rows.columns import json_values
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.graph import Snapshot
from omnigraph.model.schema import ROW_ID, Catalog, EdgeType, NodeType, Scalar
from omnigraph.storage.lance import sql
from omnigraph.storage.store import Store
from omnigraph.storage.table.blobs import StoredBlob
from omnigraph.storage.table.read import Order
from omnigraph.storage.table.table import Table, Tables

EXPORT_BATCH_ROWS: Final = 4096


def export_lines(
    store: Store, catalog: Catalog, snapshot: Snapshot, types: Sequence[str] | None
) -> Iterator[str]:
    """The lines of every type, or of the named ones (a name means node and edge type alike)."""
    # At once: a wrong name is told before the first line.
    return _lines(store, snapshot, export_types(catalog, types))


def _lines(store: Store, snapshot: Snapshot, types: Sequence[NodeType | EdgeType]) -> Iterator[str]:
    with store.meanwhile(snapshot.branch):
        for entity in types:
            entry = snapshot.entries[entity.table_key]
            if entry.row_count:
                yield from table_lines(store.tables.open(entry), entity)


def export_types(catalog: Catalog, types: Sequence[str] | None) -> list[NodeType | EdgeType]:
    """The types that an export of these names covers; None means every type."""
    chosen = [entity for entity in catalog.types() if types is None or entity.name in types]
    known = {entity.name for entity in chosen}
    for name in types or ():
        if name not in known:
            names = [entity.name for entity in catalog.types()]
            raise InputError(
                f"unknown export type '{name}'",
                hint=did_you_mean(name, names) or "types: " + ", ".join(names),
                type_name=name,
            )
    return chosen


def table_lines(
    table: Table, entity: NodeType | EdgeType, *, fragments: Sequence[int] | None = None
) -> Iterator[str]:
    """The rows of one table by id, or (for an export in parallel) of some fragments as they lie."""
    blobs = [prop.name for prop in entity.properties if prop.type.scalar is Scalar.BLOB]
    plain = [prop.name for prop in entity.properties if prop.type.scalar is not Scalar.BLOB]
    ends = ["src", "dst"] if isinstance(entity, EdgeType) else []
    reader = table.scan(
        columns=["id", *ends, *plain],
        order_by=(Order(column="id"),) if fragments is None else (),
        fragments=fragments,
        with_row_id=bool(blobs),
        batch_rows=EXPORT_BATCH_ROWS,
    )
    for batch in reader:
        columns = {
            name: json_values(batch.column(name), entity.by_name[name].type) for name in plain
        }
        if blobs:
            row_ids: list[Any] = batch.column(ROW_ID).to_pylist()
            for name in blobs:
                columns[name] = [*map(_blob_text, table.blobs(name, row_ids))]
        ids = batch.column("id").to_pylist()
        from_to = [batch.column(name).to_pylist() for name in ends]
        order = [prop.name for prop in entity.properties]
        for row, entity_id in enumerate(ids):
            line: dict[str, Any] = {"edge" if ends else "type": entity.name}
            if ends:
                line["from"], line["to"] = (end[row] for end in from_to)
            line["data"] = {"id": entity_id, **{name: columns[name][row] for name in order}}
            yield orjson.dumps(line).decode()


def _blob_text(blob: StoredBlob | None) -> str | None:
    if blob is None:
        return None
    return blob.uri or "base64:" + base64.b64encode(blob.read()).decode("ascii")


# --- one blob ----------------------------------------------------------------------------------


class BlobReader:
    """The bytes of one blob, read on demand. `uri` is set when they lie outside the graph."""

    def __init__(self, blob: StoredBlob) -> None:
        self._blob = blob
        self.uri = blob.uri
        self.kind = "external" if blob.uri else "managed"

    @cached_property
    def size(self) -> int:
        return self._blob.size

    @cached_property
    def etag(self) -> str:
        """Equal only for equal bytes, and the same on every branch that shares them."""
        return self._blob.identity

    def read_range(self, start: int, stop: int) -> bytes:
        """The bytes from `start` up to but not including `stop`."""
        require(INT, start=start, stop=stop)
        if not 0 <= start <= stop <= self.size:
            raise InputError(
                f"range {start} to {stop} does not lie within the blob's {self.size} bytes",
                start=start,
                stop=stop,
                size=self.size,
            )
        return self._blob.read_range(start, stop)

    def read(self) -> bytes:
        """All of it."""
        return self.read_range(0, self.size)


def read_blob(
    tables: Tables,
    catalog: Catalog,
    snapshot: Snapshot,
    kind: str,
    type_name: str,
    entity_id: str,
    property_name: str,
) -> BlobReader:
    """The blob of an entity; `NotFoundError` if there is no such entity or the value is null."""
    require(TEXT, kind=kind, type_name=type_name, id=entity_id, property=property_name)
    if kind not in ("node", "edge"):
        raise InputError(f"unknown entity kind '{kind}'", hint="use node or edge")
    entity: NodeType | EdgeType | None
    entity = catalog.nodes.get(type_name) if kind == "node" else catalog.edge_named(type_name)
    if entity is None:
        known = [one.name for one in catalog.types() if one.kind == kind]
        raise NotFoundError(
            f"unknown {kind} type '{type_name}'",
            kind=kind,
            name=type_name,
            hint=did_you_mean(type_name, known),
        )
    prop = entity.by_name.get(property_name)
    if prop is None:
        raise NotFoundError(
            f"{kind} type '{entity.name}' has no property '{property_name}'",
            kind="property",
            name=property_name,
            hint=did_you_mean(property_name, [one.name for one in entity.properties]),
        )
    if prop.type.scalar is not Scalar.BLOB:
        raise InputError(
            f"property '{entity.name}.{property_name}' is {prop.type}, not a Blob",
            type_name=entity.name,
            property=property_name,
        )
    table = tables.open(snapshot.entries[entity.table_key])
    found = table.read(columns=["id"], where=sql.in_list("id", [entity_id]), with_row_id=True)
    if found.num_rows == 0:
        raise NotFoundError(
            f"{kind} {entity.name} '{entity_id}' does not exist", kind=kind, name=entity_id
        )
    (blob,) = table.blobs(property_name, [int(found[ROW_ID][0].as_py() or 0)])
    if blob is None:
        raise NotFoundError(
            f"{kind} {entity.name} '{entity_id}' has no '{property_name}'",
            kind="blob",
            name=property_name,
        )
    return BlobReader(blob)
