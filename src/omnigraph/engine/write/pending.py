"""What a mutation has done so far: pending rows that shadow stored ones, and deleted ids.

Rows are dictionaries of fitted values by column. A later statement sees pending rows first and
stored rows only where nothing shadows them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from omnigraph.compiler.query import ir
from omnigraph.engine.write.change import TableChange
from omnigraph.engine.write.columns import batch_schema, from_fitted
from omnigraph.engine.write.constraints import Entity
from omnigraph.engine.write.predicate import Scope, candidates, columns_of, holds
from omnigraph.engine.write.stored import Stored
from omnigraph.engine.write.values import EPOCH, EPOCH_MOMENT, BlobCell
from omnigraph.model.schema import PropertyType, Scalar
from omnigraph.storage.blobs import StoredBlob

PendingRow = dict[str, Any]


class PendingTable:
    """The pending rows and deletions of one table."""

    def __init__(self, entity: Entity, stored: Stored) -> None:
        self.entity = entity
        self._stored = stored
        self._rows: dict[str, PendingRow] = {}
        self._fresh: set[str] = set()
        self._deleted: set[str] = set()
        self._touched: set[str] | None = set()

    def insert(self, row: PendingRow, *, fresh: bool) -> None:
        """Put a whole new row; `fresh` ids were made by us and cannot be stored."""
        self._rows[row["id"]] = row
        self._touched = None
        if fresh:
            self._fresh.add(row["id"])

    def update(self, row: PendingRow, values: PendingRow) -> None:
        """Put the row with some values set."""
        self._rows[row["id"]] = {**row, **values}
        if self._touched is not None:
            self._touched |= values.keys()

    def delete(self, ids: list[str]) -> list[str]:
        """Remove rows; those of them that were not removed before."""
        new = [one for one in ids if one not in self._deleted]
        self._deleted.update(new)
        self._touched = None
        for one in new:
            self._rows.pop(one, None)
        return new

    def matching(self, where: ir.Expr, scope: Scope, *, whole: bool) -> Iterator[PendingRow]:
        """The rows, pending or stored, for which the condition is true; whole rows, or only the
        columns that the condition needs and the identity."""
        waiting = list(self._rows.values())
        yield from (row for row in waiting if holds(where, row, scope))
        for row in self._stored_candidates(where, scope, whole=whole):
            shadowed = row["id"] in self._rows or row["id"] in self._deleted
            if not shadowed and holds(where, row, scope):
                yield row

    def _stored_candidates(
        self, where: ir.Expr, scope: Scope, *, whole: bool
    ) -> Iterator[PendingRow]:
        key = self.entity.table_key
        types = {prop.name: prop.type for prop in self.entity.properties}
        blobs = [name for name, kind in types.items() if kind.scalar is Scalar.BLOB]
        needed = columns_of(where)
        names = [
            name
            for name in batch_schema(self.entity).names
            if (whole or name == "id" or name in needed) and name not in blobs
        ]
        sieve = candidates(where, scope)
        if self._stored.is_empty(key):
            return
        if not (whole and blobs):
            rows = self._stored.rows(key, names, where=sieve)
            yield from (_fitted(row, types) for row in rows.to_pylist())
            return
        table = self._stored.table(key)
        located = table.read(columns=names, where=sieve, with_row_id=True)
        row_ids = [int(row_id) for row_id in located["_rowid"].to_numpy()]
        cells = {name: table.blobs(name, row_ids) for name in blobs}
        for at, row in enumerate(located.select(names).to_pylist()):
            carried = {name: _carried(column[at]) for name, column in cells.items()}
            yield {**_fitted(row, types), **carried}

    def change(self) -> TableChange:
        """Everything so far, as the validator and the stager want it."""
        schema = batch_schema(self.entity)
        rows = list(self._rows.values())
        types = {prop.name: prop.type for prop in self.entity.properties}
        columns = [
            from_fitted([row[field.name] for row in rows], types[field.name])
            if field.name in types
            else pa.array([row[field.name] for row in rows], pa.string())
            for field in schema
        ]
        return TableChange(
            entity=self.entity,
            rows=pa.Table.from_arrays(columns, schema=schema),
            deleted=frozenset(self._deleted),
            fresh=bool(rows) and not self._deleted and self._fresh.issuperset(self._rows),
            touched=None if self._touched is None else frozenset(self._touched),
        )


def _fitted(row: PendingRow, types: dict[str, PropertyType]) -> PendingRow:
    """An Arrow row with dates and moments as the numbers that they are stored as."""
    for name, kind in types.items():
        if kind.scalar in (Scalar.DATE, Scalar.DATETIME) and row.get(name) is not None:
            value = row[name]
            row[name] = [_count(one) for one in value] if kind.is_list else _count(value)
    return row


def _count(value: Any) -> int:
    if hasattr(value, "hour"):
        return int((value - EPOCH_MOMENT).total_seconds() * 1000 + 0.5)
    return int((value - EPOCH).days)


def _carried(blob: StoredBlob | None) -> BlobCell | None:
    """A stored blob as a cell of the row that replaces its own."""
    if blob is None:
        return None
    return BlobCell(uri=blob.uri) if blob.uri else BlobCell(data=blob.read())
