"""What a mutation has done so far to one table: rows that shadow stored ones, and deletions.

Rows are Arrow tables with the columns of `batch_schema`. A later statement sees pending rows first
and stored rows only where nothing shadows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import Array, flat, picked
from omnigraph.engine.check.change import TableChange
from omnigraph.engine.check.rules import Entity
from omnigraph.engine.expr.evaluate import Constants, Rows, holding
from omnigraph.engine.expr.sql import column_of, listed_values, push_down
from omnigraph.engine.rows.columns import batch_schema, carried_blobs, from_fitted
from omnigraph.engine.rows.stored import Stored
from omnigraph.model.schema import Scalar
from omnigraph.storage.table.read import texts

FittedRow = dict[str, Any]  # values by column, as `model.values.fit` gives them


class TableRows(Rows):
    """The rows that the `where` of a mutation looks at: columns of one table."""

    def __init__(self, table: pa.Table, constants: Constants) -> None:
        self.table = table
        self.count = table.num_rows
        self.constants = constants

    def value_of(self, var: str, name: str) -> Array:
        assert var == ir.SELF, "a statement looks at one entity at a time"
        return flat(self.table[name])

    def id_of(self, var: str) -> Array:
        return self.value_of(var, "id")

    def endpoint(self, var: str, side: str) -> Array:
        return self.value_of(var, side)

    def at(self, numbers: npt.NDArray[np.int64]) -> TableRows:
        return TableRows(picked(self.table, numbers), self.constants)

    def matching(self, where: ir.Expr) -> pa.Table:
        """The rows for which the condition is true."""
        keep = holding([where], self)
        return self.table if keep.all() else self.table.filter(pa.array(keep))


def columns_of(where: ir.Expr) -> frozenset[str]:
    """The columns that the condition looks at."""
    names = (column_of(part) for part in ir.walk(where))
    return frozenset(name for name in names if name is not None)


class PendingTable:
    """The pending rows and deletions of one table."""

    def __init__(self, entity: Entity, stored: Stored) -> None:
        self.entity = entity
        self._stored = stored
        self._schema = batch_schema(entity)
        self._types = {prop.name: prop.type for prop in entity.properties}
        self._put_rows = self._schema.empty_table()  # each id once
        self._inserted: dict[str, FittedRow] = {}  # by id: newer than those, not yet in Arrow
        self._fresh: set[str] = set()
        self._deleted: set[str] = set()
        self._touched: set[str] | None = set()

    def insert(self, row: FittedRow, *, fresh: bool) -> None:
        """Put a whole new row; `fresh` ids were made by us and cannot be stored."""
        self._inserted[row["id"]] = row
        self._touched = None
        if fresh:
            self._fresh.add(row["id"])

    def update(self, rows: pa.Table, values: FittedRow) -> None:
        """Put the rows with some values set."""
        if not rows.num_rows:
            return
        columns: dict[str, Any] = {name: rows[name] for name in self._schema.names}
        for name, value in values.items():
            cell = from_fitted([value], self._types[name])
            columns[name] = picked(cell, np.zeros(rows.num_rows, dtype=np.int64))
        self._put(pa.table(columns, schema=self._schema))
        if self._touched is not None:
            self._touched |= values.keys()

    def delete(self, ids: Sequence[str]) -> list[str]:
        """Remove rows; those of them that were not removed before."""
        new = [entity_id for entity_id in ids if entity_id not in self._deleted]
        self._deleted.update(new)
        self._touched = None
        self._put_rows = _without(self._rows(), new)
        return new

    def matching(self, where: ir.Expr, constants: Constants) -> pa.Table:
        """The rows, pending or stored, for which the condition is true."""
        pending = TableRows(self._rows(), constants).matching(where)
        stored, row_ids = self._stored_matching(where, constants, self._schema.names)
        columns = []
        for field in self._schema:
            if self._is_blob(field.name):
                blobs = self._stored.table(self.entity.table_key).blobs(field.name, row_ids)
                columns.append(carried_blobs(blobs))
            else:
                columns.append(flat(stored[field.name]).cast(field.type))
        return pa.concat_tables([pending, pa.Table.from_arrays(columns, schema=self._schema)])

    def matching_ids(self, where: ir.Expr, constants: Constants) -> list[str]:
        """The ids of the rows for which the condition is true."""
        pending = TableRows(self._rows(), constants).matching(where)
        stored, _ = self._stored_matching(where, constants, ["id"])
        return [*texts(pending["id"]), *texts(stored["id"])]

    def change(self) -> TableChange:
        """Everything so far, as the validator and the stager want it."""
        rows = self._rows()
        fresh = rows.num_rows > 0 and not self._deleted
        return TableChange(
            entity=self.entity,
            rows=rows,
            deleted=frozenset(self._deleted),
            fresh=fresh and self._fresh.issuperset(texts(rows["id"])),
            touched=None if self._touched is None else frozenset(self._touched),
        )

    def _is_blob(self, name: str) -> bool:
        return name in self._types and self._types[name].scalar is Scalar.BLOB

    def _rows(self) -> pa.Table:
        """The pending rows, each id once."""
        if self._inserted:
            rows = list(self._inserted.values())
            self._inserted = {}
            columns = [
                from_fitted([row[name] for row in rows], self._types[name])
                if name in self._types
                else pa.array([row[name] for row in rows], pa.string())
                for name in self._schema.names
            ]
            self._put(pa.Table.from_arrays(columns, schema=self._schema))
        return self._put_rows

    def _put(self, rows: pa.Table) -> None:
        """Add rows, each id once; what is pending of their ids is replaced in its place."""
        before = self._put_rows
        self._put_rows = pa.concat_tables([before, rows])
        if before.num_rows:
            last = {entity_id: at for at, entity_id in enumerate(texts(self._put_rows["id"]))}
            self._put_rows = picked(self._put_rows, list(last.values()))

    def _stored_matching(
        self, where: ir.Expr, constants: Constants, columns: Sequence[str]
    ) -> tuple[pa.Table, list[int]]:
        """The stored rows that nothing shadows and for which the condition is true, and their row
        ids. Blobs are no columns here: they are read by row id."""
        key = self.entity.table_key
        needed = columns_of(where)
        found = self._stored.placed_rows(
            key,
            [
                name
                for name in self._schema.names
                if (name in columns or name in needed) and not self._is_blob(name)
            ],
            where=push_down([where], constants).where,
            among=listed_values(where, constants),
        )
        found = _without(found, [*texts(self._rows()["id"]), *self._deleted])
        # Storage may have looked up a part of the condition only: all of it is judged here.
        matched = TableRows(found, constants).matching(where)
        return matched, self._stored.remember_places(key, matched)


def _without(rows: pa.Table, ids: Sequence[str]) -> pa.Table:
    """The rows that have none of these ids."""
    if not ids or not rows.num_rows:
        return rows
    gone: Any = pc.is_in(rows["id"], value_set=pa.array(ids, pa.string()))
    return rows.filter(pc.invert(gone))
