"""What the snapshot holds, read only where it is needed, and what was relied upon.

Every table that is asked here counts as relied upon, also when the answer is "nothing": the absence
of a row is a fact too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from omnigraph.storage.table import Table
from omnigraph.storage.writer import WriteContext


class Stored:
    """The committed rows of one snapshot, seen by one preparation."""

    def __init__(self, context: WriteContext) -> None:
        self._context = context
        self.relied_on: set[str] = set()

    def table(self, table_key: str) -> Table:
        self.relied_on.add(table_key)
        return self._context.table(table_key)

    def is_empty(self, table_key: str) -> bool:
        self.relied_on.add(table_key)
        return self._context.snapshot.entries[table_key].row_count == 0

    def rows(self, table_key: str, columns: Sequence[str], *, where: str | None = None) -> pa.Table:
        """The columns of all rows, or of those that satisfy the SQL condition."""
        table = self.table(table_key)
        if self.is_empty(table_key) or where == "false":
            return _only(table.schema, columns).empty_table()
        return table.read(columns=list(columns), where=where)

    def rows_where_in(
        self, table_key: str, column: str, values: pa.Array[Any], columns: Sequence[str]
    ) -> pa.Table:
        """The columns of the rows whose `column` is one of the values."""
        if len(values) == 0 or self.is_empty(table_key):
            return _only(self.table(table_key).schema, columns).empty_table()
        return self.table(table_key).lookup(column, values.to_pylist(), columns)

    def present(self, table_key: str, ids: pa.Array[Any]) -> pa.Array[Any]:
        """Those of the ids that are stored."""
        found = self.rows_where_in(table_key, "id", ids, ["id"])["id"]
        return pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], pa.string())


def _only(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in columns])
