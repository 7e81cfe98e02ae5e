"""A snapshot as NDJSON lines that `load` takes back: nodes first, each type's rows by id.

Values are spelled as `json_value` spells them everywhere: dates as `YYYY-MM-DD`, times in UTC with
milliseconds, 64-bit integers beyond 2^53 - 1 as text. Blobs are inlined, or their URI is given when
the bytes lie elsewhere.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import orjson

from omnigraph.engine.rows.columns import json_values
from omnigraph.errors import InputError
from omnigraph.model.graph import Snapshot
from omnigraph.model.schema import ROW_ID, Catalog, EdgeType, NodeType, Scalar
from omnigraph.storage.table.read import Order
from omnigraph.storage.table.table import Table, Tables

EXPORT_BATCH_ROWS: Final = 4096


def export_lines(
    tables: Tables, catalog: Catalog, snapshot: Snapshot, types: Sequence[str] | None
) -> Iterator[str]:
    """The lines of every type, or of the named ones (a name means node and edge type alike)."""
    return _lines(tables, snapshot, export_types(catalog, types))


def export_types(catalog: Catalog, types: Sequence[str] | None) -> list[NodeType | EdgeType]:
    """The types that an export of these names covers; None means every type."""
    chosen = [entity for entity in catalog.types() if types is None or entity.name in types]
    known = {entity.name for entity in chosen}
    for name in types or ():
        if name not in known:
            raise InputError(
                f"unknown export type '{name}'",
                hint="types: " + ", ".join(entity.name for entity in catalog.types()),
                type_name=name,
            )
    return chosen


def _lines(
    tables: Tables, snapshot: Snapshot, chosen: Sequence[NodeType | EdgeType]
) -> Iterator[str]:
    for entity in chosen:
        entry = snapshot.entries[entity.table_key]
        if entry.row_count:
            yield from table_lines(tables.open(entry), entity)


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
    head = _head_of(entity)
    for batch in reader:
        columns = {
            name: json_values(batch.column(name), entity.by_name[name].type) for name in plain
        }
        if blobs:
            row_ids: list[Any] = batch.column(ROW_ID).to_pylist()
            for name in blobs:
                columns[name] = _blob_texts(table, name, row_ids)
        ids = batch.column("id").to_pylist()
        from_to = [batch.column(name).to_pylist() for name in ends]
        order = [prop.name for prop in entity.properties]
        for row, entity_id in enumerate(ids):
            data = {"id": entity_id, **{name: columns[name][row] for name in order}}
            yield orjson.dumps(head(data, [end[row] for end in from_to])).decode()


def _head_of(entity: NodeType | EdgeType) -> Callable[[Any, Any], dict[str, Any]]:
    if isinstance(entity, EdgeType):
        return lambda data, ends: {
            "edge": entity.name,
            "from": ends[0],
            "to": ends[1],
            "data": data,
        }
    return lambda data, _: {"type": entity.name, "data": data}


def _blob_texts(table: Table, name: str, row_ids: Sequence[int]) -> list[str | None]:
    texts: list[str | None] = []
    for blob in table.blobs(name, row_ids):
        if blob is None:
            texts.append(None)
        elif blob.uri is not None:
            texts.append(blob.uri)
        else:
            texts.append("base64:" + base64.b64encode(blob.read()).decode("ascii"))
    return texts
