"""What the snapshot holds, read only where it is needed, and what was relied upon.

Every table that is asked here counts as relied upon, also when the answer is "nothing": the absence
of a row is a fact too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

from omnigraph.model.graph import Snapshot
from omnigraph.model.schema import ROW_ADDRESS, ROW_ID
from omnigraph.storage.lance.columns import LOCATED
from omnigraph.storage.table.table import Table


class StoredTables(Protocol):
    """Where stored rows are: a write's context, or the plan of a check."""

    @property
    def snapshot(self) -> Snapshot: ...

    def table(self, table_key: str) -> Table: ...


class Stored:
    """The committed rows of one snapshot, seen by one preparation."""

    def __init__(self, context: StoredTables) -> None:
        self._context = context
        self.relied_on: set[str] = set()
        self._places: dict[str, dict[str, dict[str, Any] | None]] = {}

    def table(self, table_key: str) -> Table:
        self.relied_on.add(table_key)
        return self._context.table(table_key)

    def is_empty(self, table_key: str) -> bool:
        self.relied_on.add(table_key)
        return self._context.snapshot.entries[table_key].row_count == 0

    def rows(self, table_key: str, columns: Sequence[str]) -> pa.Table:
        """The columns of all rows."""
        if self.is_empty(table_key):
            return _only(self.table(table_key).schema, columns).empty_table()
        return self.table(table_key).read(columns=list(columns))

    def placed_rows(
        self,
        table_key: str,
        columns: Sequence[str],
        *,
        where: str | None,
        among: tuple[str, Sequence[Any]] | None,
    ) -> pa.Table:
        """The columns, `_rowid` and `_rowaddr` of the rows that satisfy the SQL condition.

        `among`, if there is one, is a column and values one of which it must hold; the condition
        may then be ignored, because the caller judges every row anyway.
        """
        names = [*columns, ROW_ID, ROW_ADDRESS]
        if self.is_empty(table_key) or where == "false":
            return _only(self.table(table_key).schema, columns).empty_table()
        if among is not None:
            return self.table(table_key).lookup(among[0], among[1], names)
        return self.table(table_key).read(columns=names, where=where)

    def remember_places(self, table_key: str, rows: pa.Table) -> list[int]:
        """Keep where these rows of `placed_rows` are; their row ids in order."""
        if not rows.num_rows:
            return []
        places = rows.select(LOCATED.names).to_pylist()
        self._places.setdefault(table_key, {}).update({place["id"]: place for place in places})
        return [int(place[ROW_ID]) for place in places]

    def rows_where_in(
        self,
        table_key: str,
        column: str,
        values: pa.Array[Any],
        columns: Sequence[str],
        *,
        and_in: Mapping[str, pa.Array[Any]] | None = None,
    ) -> pa.Table:
        """The columns of the rows whose `column` is one of the values, and so for `and_in`."""
        if len(values) == 0 or self.is_empty(table_key):
            return _only(self.table(table_key).schema, columns).empty_table()
        more = {name: others.to_pylist() for name, others in (and_in or {}).items()}
        return self.table(table_key).lookup(column, values.to_pylist(), columns, and_in=more)

    def locate(self, table_key: str, ids: Collection[str]) -> None:
        """Look up where these ids are, or that they are not there; later questions are free."""
        known = self._places.setdefault(table_key, {})
        asked = [one for one in ids if one not in known]
        if not asked:
            return
        known.update(dict.fromkeys(asked))
        if self.is_empty(table_key):
            return
        for row in self.table(table_key).lookup("id", asked, LOCATED.names).to_pylist():
            known[row["id"]] = row

    def located(self, table_key: str, ids: Sequence[str]) -> pa.Table | None:
        """`id`, `_rowid` and `_rowaddr` of the ids that are stored; None if not looked up yet."""
        known = self._places.get(table_key, {})
        if not known.keys() >= set(ids):
            return None
        found = [row for one in ids if (row := known[one]) is not None]
        return pa.Table.from_pylist(found, schema=LOCATED)

    def present(self, table_key: str, ids: pa.Array[Any]) -> pa.Array[Any]:
        """Those of the ids that are stored."""
        asked = [str(one) for one in ids.to_pylist()] if table_key in self._places else []
        located = self.located(table_key, asked) if asked else None
        if located is None:
            located = self.rows_where_in(table_key, "id", ids, ["id"])
        found = located["id"]
        return pa.concat_arrays(found.chunks) if found.num_chunks else pa.array([], pa.string())


def _only(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in columns])
