"""Reading one version of a table through a sealed handle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph.model.graph import TableEntry
from omnigraph.storage import delta, indexes, reading
from omnigraph.storage.blobs import StoredBlob, open_blobs
from omnigraph.storage.column_types import standard_schema
from omnigraph.storage.handles import Pinned
from omnigraph.storage.indexes import IndexInfo
from omnigraph.storage.reading import ROW_ID, BlobForm, FullText, Nearest, Order, Scan


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDelta:
    """What changed since an older version. The rows are those of the newer one, with `_rowid`."""

    inserted: pa.Table
    updated: pa.Table
    deleted_row_ids: pa.Array[Any]

    @property
    def is_empty(self) -> bool:
        return not (self.inserted.num_rows or self.updated.num_rows or len(self.deleted_row_ids))


class TableReader:
    """One version of a table. Nothing here moves it, and any thread may read."""

    def __init__(self, pinned: Pinned) -> None:
        self._pinned = pinned

    @property
    def entry(self) -> TableEntry:
        return self._pinned.entry

    @property
    def version(self) -> int:
        return self._pinned.entry.version

    @property
    def schema(self) -> pa.Schema:
        return standard_schema(self._pinned.dataset.schema)

    @property
    def column_numbers(self) -> dict[str, int]:
        """Lance's number of each column; a column that was dropped and made again has another."""
        fields = self._pinned.dataset.lance_schema.fields()
        return {field.name(): int(field.id()) for field in fields}

    @property
    def fragment_ids(self) -> tuple[int, ...]:
        """The numbers of the table's fragments, for scans of parts."""
        return tuple(self._pinned.dataset.fragment_ids())

    def count(self, where: str | None = None) -> int:
        """How many rows there are, or how many satisfy the SQL condition."""
        with self._reading():
            return reading.count(self._pinned, where)

    def scan(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        offset: int | None = None,
        order_by: Sequence[Order] = (),
        with_row_id: bool = False,
        with_row_address: bool = False,
        batch_rows: int | None = None,
        fragments: Sequence[int] | None = None,
        blobs: BlobForm = "descriptors",
    ) -> pa.RecordBatchReader:
        """The rows, batch by batch, in table order unless told otherwise.

        `columns=None` means every column. The names `_rowid`, `_rowaddr` and
        `_row_last_updated_at_version` may be asked for like columns.
        """
        request = Scan(
            columns=columns,
            where=where,
            limit=limit,
            offset=offset,
            order_by=order_by,
            with_row_id=with_row_id,
            with_row_address=with_row_address,
            batch_rows=batch_rows,
            fragments=fragments,
            blobs=blobs,
        )
        with self._reading():
            reader = reading.batches(self._pinned, request)
        # Lance reads when the batches are asked for, long after this call.
        return pa.RecordBatchReader.from_batches(reader.schema, self._guarded(reader))

    def _guarded(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with self._reading():
            yield from reader

    def read(self, **options: Any) -> pa.Table:
        """The same as `scan`, all at once."""
        with self._reading():
            return reading.rows(self._pinned, Scan(**options))

    def locate(self, ids: Sequence[str]) -> pa.Table:
        """Where the rows with these ids are: `id`, `_rowid`, `_rowaddr`; missing ones left out."""
        with self._reading():
            return reading.locate(self._pinned, ids)

    def lookup(
        self,
        column: str,
        values: Sequence[Any],
        columns: Sequence[str],
        *,
        and_in: Mapping[str, Sequence[Any]] | None = None,
    ) -> pa.Table:
        """The columns of the rows whose `column` holds one of the values, and whose columns in
        `and_in` hold one of theirs; `_rowid` and `_rowaddr` may be asked for. The cost does not
        grow with the number of small commits."""
        with self._reading():
            return reading.lookup(self._pinned, {column: values, **(and_in or {})}, columns)

    def take(self, row_ids: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows with these `_rowid`s, in the order given; ids that are gone are left out."""
        with self._reading():
            return reading.take(self._pinned, row_ids, columns)

    def nearest(self, request: Nearest, *, columns: Sequence[str] = ()) -> pa.Table:
        """The nearest rows: the columns, `_rowid` and `_distance`, closest first."""
        with self._reading():
            return reading.nearest(self._pinned, request, columns)

    def full_text(self, request: FullText, *, columns: Sequence[str] = ()) -> pa.Table:
        """The rows that match: the columns, `_rowid` and `_score`, best first."""
        with self._reading():
            return reading.full_text(self._pinned, request, columns)

    def changes_since(
        self, older: TableReader, *, columns: Sequence[str] | None = None
    ) -> TableDelta:
        """What happened between an ancestor of this version and this version.

        Costs what the difference costs: shared fragments are not read, and compaction is no change.
        """
        with self._reading():
            found = delta.changes(self._pinned, older._pinned)
            names = list(self.schema.names) if columns is None else list(columns)
            names = [*(name for name in names if name != ROW_ID), ROW_ID]
            return TableDelta(
                inserted=reading.rows_at(self._pinned, found.inserted, names),
                updated=reading.rows_at(self._pinned, found.updated, names),
                deleted_row_ids=pa.array(found.deleted, pa.uint64()),
            )

    def differing_rows(
        self,
        older: TableReader,
        *,
        one_line: bool,
        columns: Sequence[str],
        older_columns: Sequence[str],
    ) -> tuple[pa.Table, pa.Table]:
        """The rows of this version and of the other that may differ, each with its row id; of the
        other version, the columns that it has.

        Costs what the difference costs. `one_line`: the other is an ancestor (`Tables.descends`).
        """
        with self._reading():
            mine, theirs = delta.differing(self._pinned, older._pinned, one_line=one_line)
            return (
                reading.rows_at(self._pinned, mine, [*columns, ROW_ID]),
                reading.rows_at(older._pinned, theirs, [*older_columns, ROW_ID]),
            )

    def unshared_fragments(self, other: TableReader) -> tuple[int, ...]:
        """The fragments whose files or deletions the other version does not have."""
        with self._reading():
            theirs = set(delta.fragment_keys(other._pinned.dataset).items())
            mine = delta.fragment_keys(self._pinned.dataset)
            return tuple(number for number, key in mine.items() if (number, key) not in theirs)

    def blobs(self, column: str, row_ids: Sequence[int]) -> list[StoredBlob | None]:
        """The blobs of the rows with these row ids, in that order; None for null."""
        return open_blobs(self._pinned, column, row_ids)

    def indexes(self) -> tuple[IndexInfo, ...]:
        """Every index, and how much of the table it covers."""
        return indexes.describe(self._pinned)

    def _reading(self) -> AbstractContextManager[None]:
        return self._pinned.translated(doing="read")
