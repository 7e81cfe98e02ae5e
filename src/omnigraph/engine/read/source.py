"""The one place where reading touches storage: a table at one version, with its costs counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import ArrowTable, RecordBatch, Schema
from omnigraph.engine.read.counters import Counters
from omnigraph.model.graph import TableEntry
from omnigraph.storage.reading import Order
from omnigraph.storage.table import Table, TableDelta

ROW_ID = "_rowid"
RowIds = npt.NDArray[np.uint64]


class Source:
    """Reads of one table version. Every answer carries `_rowid`."""

    def __init__(self, table: Table, counters: Counters) -> None:
        self._table = table
        self._counters = counters

    @property
    def entry(self) -> TableEntry:
        return self._table.entry

    @property
    def schema(self) -> Schema:
        return self._table.schema

    @property
    def column_numbers(self) -> dict[str, int]:
        """What tells a column from an earlier one of the same name and type."""
        return self._table.column_numbers

    @property
    def pin(self) -> tuple[str, str | None, int]:
        entry = self._table.entry
        return (entry.location, entry.branch, entry.version)

    def read(
        self,
        columns: Sequence[str],
        *,
        where: str | None = None,
        limit: int | None = None,
        order_by: Sequence[Order] = (),
    ) -> ArrowTable:
        """The named columns and `_rowid` of the rows that satisfy the SQL condition."""
        found = self._table.read(
            columns=list(columns), where=where, limit=limit, order_by=order_by, with_row_id=True
        )
        self._counters.add(self.entry.table_key, columns, found.num_rows)
        return found

    def batches(self, columns: Sequence[str], *, batch_rows: int) -> Iterator[RecordBatch]:
        """The whole table, a batch at a time."""
        reader = self._table.scan(columns=list(columns), with_row_id=True, batch_rows=batch_rows)
        for batch in reader:
            self._counters.add(self.entry.table_key, columns, batch.num_rows)
            yield batch

    def take(self, row_ids: RowIds, columns: Sequence[str]) -> ArrowTable:
        """The named columns of these rows, in this order."""
        found = self._table.take(row_ids, list(columns))
        self._counters.add(self.entry.table_key, columns, found.num_rows)
        return found

    def changes_since(self, older: Source, columns: Sequence[str]) -> TableDelta:
        """What happened between the two versions, with the named columns of the rows."""
        delta = self._table.changes_since(older._table, columns=columns)
        rows = delta.inserted.num_rows + delta.updated.num_rows
        self._counters.add(self.entry.table_key, columns if rows else (), rows)
        return delta
