"""What happened to one type between two states of the graph, as rows with the kind of change.

An entity is judged by what it was and what it is, as the change feed in process judges it: one that
was replaced is one update, one that was touched without a change is none. Every entity occurs at
most once, so the rows of a span can be applied in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql.types import StringType, StructField

from omnigraph.engine.arrow import nulls, picked
from omnigraph.engine.history.difference import Places, Side, difference
from omnigraph.engine.rows.parts import GraphAccess, fragment_groups
from omnigraph.errors import ChangeFeedGapError, NotFoundError
from omnigraph.model.graph import Snapshot, TableEntry
from omnigraph.model.limits import GROUP_ROWS
from omnigraph.model.schema import EdgeType, NodeType, Scalar

CHANGE_TYPE, COMMIT_ID = "_change_type", "_commit_id"
CHANGE_FIELDS = [
    StructField(CHANGE_TYPE, StringType(), nullable=False),
    StructField(COMMIT_ID, StringType(), nullable=False),
]
_BATCH_ROWS = 65_536


class ChangeSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Two states of one type. `older` is None when everything counts as inserted; then the work
    can be cut, and `fragments` says which part of it this is."""

    access: GraphAccess
    entity: NodeType | EdgeType
    older: TableEntry | None
    newer: TableEntry
    commit_id: str
    fragments: tuple[int, ...] | None = None

    def pieces(self, *, rows: int = GROUP_ROWS) -> list[ChangeSpan]:
        """The span as one task, or as many as its rows deserve. `ChangeFeedGapError` if the older
        state is gone."""
        if self.older is not None:
            try:
                self.access.table(self.older)
            except NotFoundError as cause:
                raise ChangeFeedGapError(commit_id=self.commit_id) from cause
            return [self]
        groups = fragment_groups(self.access.table(self.newer), rows=rows)
        return [replace(self, fragments=group.fragments) for group in groups]


def entry_before(older: Snapshot | None, newer: TableEntry) -> TableEntry | None:
    """The table of the same type in an older state: renaming a type leaves it where it is."""
    entries: Mapping[str, TableEntry] = older.entries if older else {}
    same_place = (one for one in entries.values() if one.location == newer.location)
    return next(same_place, None) or entries.get(newer.table_key)


def change_batches(span: ChangeSpan) -> Iterator[pa.RecordBatch]:
    """Deleted rows as they were, updated and inserted rows as they are now."""
    if span.older is None:
        newer = span.access.table(span.newer)
        for batch in newer.scan(columns=_names(span.entity), fragments=span.fragments):
            yield from _marked(pa.Table.from_batches([batch]), "insert", span)
        return
    if span.older.pin == span.newer.pin:
        return
    found = difference(span.access.tables, span.entity, span.older, span.newer)
    yield from _marked(_at(found.before, found.deleted), "delete", span)
    yield from _marked(_at(found.after, found.updated_after), "update", span)
    yield from _marked(_at(found.after, found.inserted), "insert", span)


def _at(side: Side, places: Places) -> pa.Table:
    rows: pa.Table = picked(side.rows, places)
    return rows


def _names(entity: NodeType | EdgeType) -> list[str]:
    ends = ["src", "dst"] if isinstance(entity, EdgeType) else []
    plain = [p.name for p in entity.properties if p.type.scalar is not Scalar.BLOB]
    return ["id", *ends, *plain]


def _marked(rows: pa.Table, kind: str, span: ChangeSpan) -> Iterator[pa.RecordBatch]:
    for batch in rows.to_batches(_BATCH_ROWS):
        count = batch.num_rows
        if not count:
            continue
        columns: dict[str, Any] = {
            CHANGE_TYPE: pa.repeat(pa.scalar(kind), count),
            COMMIT_ID: pa.repeat(pa.scalar(span.commit_id), count),
            **{name: batch.column(name) for name in _names(span.entity)},
        }
        for prop in span.entity.properties:  # blobs are not part of the feed
            if prop.type.scalar is Scalar.BLOB:
                columns[prop.name] = nulls(count, pa.binary())
        yield pa.RecordBatch.from_pydict(columns)
