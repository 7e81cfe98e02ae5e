"""What a mutation has done so far: pending rows that shadow stored ones, and deleted ids.

Rows are dictionaries of fitted values by column. A later statement sees pending rows first and
stored rows only where nothing shadows them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from omnigraph.compiler.query import ir
from omnigraph.engine.expr.evaluate import Constants
from omnigraph.engine.expr.sql import listed_values, push_down
from omnigraph.engine.write.change import TableChange
from omnigraph.engine.write.columns import batch_schema, from_fitted
from omnigraph.engine.write.constraints import Entity
from omnigraph.engine.write.scope import TableScope, columns_of
from omnigraph.engine.write.stored import Stored
from omnigraph.engine.write.values import BlobCell
from omnigraph.model.schema import PropertyType, Scalar
from omnigraph.model.values import EPOCH, EPOCH_MOMENT
from omnigraph.storage.blobs import StoredBlob
from omnigraph.storage.reading import texts

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

    def matching(self, where: ir.Expr, constants: Constants, *, whole: bool) -> list[PendingRow]:
        """The rows, pending or stored, for which the condition is true; whole rows, or only the
        columns that the condition needs and the identity."""
        waiting = self._pending_matching(where, constants)
        return waiting + self._stored_matching(where, constants, whole=whole)

    def _pending_matching(self, where: ir.Expr, constants: Constants) -> list[PendingRow]:
        if not self._rows:
            return []
        rows = self._columns(sorted({"id"} | columns_of(where)))
        matched = TableScope(rows=rows, constants=constants).matching(where)
        return [self._rows[one] for one in texts(matched["id"])]

    def _stored_matching(
        self, where: ir.Expr, constants: Constants, *, whole: bool
    ) -> list[PendingRow]:
        key = self.entity.table_key
        types = {prop.name: prop.type for prop in self.entity.properties}
        blobs = [name for name, kind in types.items() if kind.scalar is Scalar.BLOB]
        needed = columns_of(where)
        names = [
            name
            for name in batch_schema(self.entity).names
            if (whole or name == "id" or name in needed) and name not in blobs
        ]
        found = self._stored.placed_rows(
            key,
            names,
            where=push_down([where], constants).where,
            among=listed_values(where, constants),
        )
        # Storage may have looked up a part of the condition only: all of it is judged here.
        matched = TableScope(rows=self._unshadowed(found), constants=constants).matching(where)
        rows = [_fitted(row, types) for row in matched.to_pylist()]
        row_ids = self._stored.remember_places(key, rows)
        if whole and blobs and rows:
            self._carry_blobs(rows, row_ids, blobs)
        return rows

    def _unshadowed(self, stored: pa.Table) -> pa.Table:
        """The stored rows that no pending row replaces and that were not deleted."""
        if not self._rows and not self._deleted:
            return stored
        ids = texts(stored["id"])
        keep = [one not in self._rows and one not in self._deleted for one in ids]
        return stored.filter(pa.array(keep, pa.bool_()))

    def _carry_blobs(
        self, rows: list[PendingRow], row_ids: list[int], names: Sequence[str]
    ) -> None:
        table = self._stored.table(self.entity.table_key)
        for name in names:
            for row, blob in zip(rows, table.blobs(name, row_ids), strict=True):
                row[name] = _carried(blob)

    def change(self) -> TableChange:
        """Everything so far, as the validator and the stager want it."""
        return TableChange(
            entity=self.entity,
            rows=self._columns(batch_schema(self.entity).names),
            deleted=frozenset(self._deleted),
            fresh=bool(self._rows) and not self._deleted and self._fresh.issuperset(self._rows),
            touched=None if self._touched is None else frozenset(self._touched),
        )

    def _columns(self, names: Sequence[str]) -> pa.Table:
        """The named columns of the pending rows."""
        schema = batch_schema(self.entity)
        rows = list(self._rows.values())
        types = {prop.name: prop.type for prop in self.entity.properties}
        columns = [
            from_fitted([row[name] for row in rows], types[name])
            if name in types
            else pa.array([row[name] for row in rows], pa.string())
            for name in names
        ]
        return pa.Table.from_arrays(columns, schema=pa.schema([schema.field(n) for n in names]))


def _fitted(row: PendingRow, types: dict[str, PropertyType]) -> PendingRow:
    """An Arrow row with dates and moments as the numbers that they are stored as."""
    for name, kind in types.items():
        if kind.scalar in (Scalar.DATE, Scalar.DATETIME) and row.get(name) is not None:
            value = row[name]
            row[name] = [_count(one) for one in value] if kind.is_list else _count(value)
    return row


def _count(value: Any) -> int:
    if isinstance(value, dt.datetime):
        return (value - EPOCH_MOMENT) // dt.timedelta(milliseconds=1)
    return int((value - EPOCH).days)


def _carried(blob: StoredBlob | None) -> BlobCell | None:
    """A stored blob as a cell of the row that replaces its own."""
    if blob is None:
        return None
    return BlobCell(uri=blob.uri) if blob.uri else BlobCell(data=blob.read())
