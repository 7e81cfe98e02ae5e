"""The one way from reading to storage: a table version that counts what was read of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

import msgspec

from omnigraph.engine.arrow import Array, ArrowTable, RecordBatch, pa, uint64_array
from omnigraph.engine.read.memory.arrays import RowIdList, RowIds
from omnigraph.engine.read.memory.threads import end_turn
from omnigraph.model.schema import ROW_ID
from omnigraph.storage.table.index import IndexInfo, Neighbours
from omnigraph.storage.table.read import Order, TableDelta
from omnigraph.storage.table.table import Table

SLICE_BYTES: Final = 1 << 30  # no slice has more
SLICE_BATCH_ROWS: Final = 8192  # at once, where rows may be long


class ReadCost(msgspec.Struct):
    """How often tables were read, how many rows came, and how often each column of which table.

    The running total of a reader is shared by its threads; tests assert it, `explain` shows it.
    """

    reads: int = 0
    rows: int = 0
    columns: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    _lock: threading.Lock = msgspec.field(default_factory=threading.Lock)

    def add(self, table_key: str, columns: Sequence[str], rows: int) -> None:
        with self._lock:
            self.reads += 1
            self.rows += rows
            self.columns.update((table_key, column) for column in columns)

    def since(self, earlier: ReadCost) -> ReadCost:
        """What was added after `earlier`."""
        with self._lock:
            added = self.columns - earlier.columns
            return ReadCost(self.reads - earlier.reads, self.rows - earlier.rows, added)

    def by_table(self) -> dict[str, list[str]]:
        """The columns that were read, by table key."""
        found: dict[str, list[str]] = {}
        for table_key, column in sorted(self.columns):
            found.setdefault(table_key, []).append(column)
        return found


class CountedTable:
    """Reads of one table version, each of them counted. Every answer carries `_rowid`."""

    def __init__(self, stored: Table, cost: ReadCost) -> None:
        self.stored = stored
        self.entry = stored.entry
        self._cost = cost

    def read(
        self,
        columns: Sequence[str],
        *,
        where: str | None = None,
        limit: int | None = None,
        order_by: Sequence[Order] = (),
    ) -> ArrowTable:
        """The named columns and `_rowid` of the rows that satisfy the SQL condition."""
        end_turn()
        found = self.stored.read(
            columns=list(columns), where=where, limit=limit, order_by=order_by, with_row_id=True
        )
        self._cost.add(self.entry.table_key, columns, found.num_rows)
        return found

    def row_ids_without_gaps(self) -> RowIdList | None:
        """All row ids, known without a read, where no row was ever deleted: then every one that was
        given, from 0 on, is still there. None otherwise."""
        lost = self.stored.rows_lost
        return RowIdList.ranging(0, self.entry.row_count) if lost == 0 else None

    def batches(
        self,
        columns: Sequence[str],
        *,
        where: str | None = None,
        batch_rows: int,
        fragments: Sequence[int] | None = None,
    ) -> Iterator[RecordBatch]:
        """The rows that satisfy the SQL condition, a batch at a time; of some fragments if they are
        named."""
        end_turn()
        reader = self.stored.scan(
            columns=list(columns),
            where=where,
            with_row_id=True,
            batch_rows=batch_rows,
            fragments=fragments,
        )
        for batch in reader:
            self._cost.add(self.entry.table_key, columns, batch.num_rows)
            yield batch

    def slices(
        self,
        columns: Sequence[str],
        *,
        where: str | None = None,
        rows: int,
        nbytes: int = SLICE_BYTES,
        fragments: Sequence[int] | None = None,
    ) -> Iterator[ArrowTable]:
        """The same in tables of about so many rows, or fewer where these have so many bytes; at
        least one."""
        held: list[RecordBatch] = []
        count = size = given = 0
        batch_rows = min(rows, SLICE_BATCH_ROWS) if nbytes < SLICE_BYTES else rows
        for batch in self.batches(columns, where=where, batch_rows=batch_rows, fragments=fragments):
            held.append(batch)
            count, size = count + batch.num_rows, size + batch.nbytes
            if count >= rows or size >= nbytes:
                yield ArrowTable.from_batches(held)
                held, count, size, given = [], 0, 0, 1
        if held:
            yield ArrowTable.from_batches(held)
        elif not given:
            fields = [self.stored.schema.field(name) for name in columns]
            yield pa.schema([*fields, pa.field(ROW_ID, pa.uint64())]).empty_table()

    def take(self, row_ids: RowIds, columns: Sequence[str]) -> ArrowTable:
        """The named columns of these rows, in this order."""
        end_turn()
        found = self.stored.take(uint64_array(row_ids), list(columns))
        self._cost.add(self.entry.table_key, columns, found.num_rows)
        return found

    def has_index(self, column: str) -> bool:
        """Whether storage finds values of the column without reading all of it."""
        return any(column in one.columns for one in self.indexes)

    @cached_property
    def indexes(self) -> tuple[IndexInfo, ...]:
        """Every index, and how much of the table it covers."""
        return self.stored.indexes()

    def neighbours(self, asked: Neighbours) -> RowIds:
        """The row ids of about the nearest rows, by a vector index."""
        end_turn()
        found = self.stored.neighbours(asked)
        self._cost.add(self.entry.table_key, [asked.column], len(found))
        row_ids: RowIds = found.to_numpy(zero_copy_only=False)
        return row_ids

    def lookup(self, ids: Array) -> ArrowTable:
        """The ids and `_rowid` of the rows that have one of these ids."""
        end_turn()
        wanted = ids.unique().drop_null().to_pylist()
        found: ArrowTable = self.stored.lookup("id", wanted, ["id", ROW_ID])
        self._cost.add(self.entry.table_key, ["id"], found.num_rows)
        return found

    def changes_since(self, older: CountedTable, columns: Sequence[str]) -> TableDelta:
        """What happened between the two versions, with the named columns of the rows."""
        end_turn()
        delta = self.stored.changes_since(older.stored, columns=columns)
        rows = delta.inserted.num_rows + delta.updated.num_rows
        self._cost.add(self.entry.table_key, columns if rows else (), rows)
        return delta
