"""What happened to one table between two of its versions, as rows with the kind of change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructField

from omnigraph.model.graph import TableEntry
from omnigraph.model.schema import EdgeType, NodeType, Scalar
from omnigraph.pipeline.arrow import nulls
from omnigraph.pipeline.parts import GraphAccess
from omnigraph.storage.table import Table

CHANGE_TYPE, COMMIT_ID = "_change_type", "_commit_id"
CHANGE_FIELDS = [
    StructField(CHANGE_TYPE, StringType(), nullable=False),
    StructField(COMMIT_ID, StringType(), nullable=False),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSpan:
    """Two states of one table. `older` is None when everything counts as inserted."""

    access: GraphAccess
    entity: NodeType | EdgeType
    older: TableEntry | None
    newer: TableEntry
    commit_id: str


def change_batches(span: ChangeSpan) -> Iterator[pa.RecordBatch]:
    """Inserted and updated rows as they are now, deleted rows as they were."""
    if span.older == span.newer:
        return
    newer = span.access.table(span.newer)
    names = _names(span.entity)
    if span.older is None:
        for batch in newer.scan(columns=names):
            yield from _marked(pa.Table.from_batches([batch]), "insert", span)
        return
    older = span.access.table(span.older)
    delta = newer.changes_since(older, columns=names)
    yield from _marked(delta.inserted, "insert", span)
    yield from _marked(delta.updated, "update", span)
    yield from _marked(_gone(older, delta.deleted_row_ids, names), "delete", span)


def _names(entity: NodeType | EdgeType) -> list[str]:
    ends = ["src", "dst"] if isinstance(entity, EdgeType) else []
    plain = [p.name for p in entity.properties if p.type.scalar is not Scalar.BLOB]
    return ["id", *ends, *plain]


def _gone(older: Table, row_ids: Any, names: list[str]) -> pa.Table:
    return older.take(row_ids, names)


def _marked(rows: Any, kind: str, span: ChangeSpan) -> Iterator[pa.RecordBatch]:
    table = rows if isinstance(rows, pa.Table) else rows.read_all()
    if not table.num_rows:
        return
    columns: dict[str, Any] = {
        CHANGE_TYPE: pa.array([kind] * table.num_rows, pa.string()),
        COMMIT_ID: pa.array([span.commit_id] * table.num_rows, pa.string()),
        **{name: table.column(name) for name in _names(span.entity)},
    }
    for prop in span.entity.properties:  # blobs are not part of the feed
        if prop.type.scalar is Scalar.BLOB:
            columns[prop.name] = nulls(table.num_rows, pa.binary())
    yield from pa.table(columns).combine_chunks().to_batches()
