"""What the snapshot holds, read only where it is needed, and what was relied upon.

Every table that is asked here counts as relied upon, also when the answer is "nothing": the absence
of a row is a fact too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from omnigraph.storage.table import Table
from omnigraph.storage.writer import WriteContext

_FIELDS: Final[list[tuple[str, pa.DataType]]] = [
    ("id", pa.string()),
    ("_rowid", pa.uint64()),
    ("_rowaddr", pa.uint64()),
]
_LOCATED: Final = pa.schema(_FIELDS)


class Stored:
    """The committed rows of one snapshot, seen by one preparation."""

    def __init__(self, context: WriteContext) -> None:
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
        names = [*columns, "_rowid", "_rowaddr"]
        if self.is_empty(table_key) or where == "false":
            return _only(self.table(table_key).schema, columns).empty_table()
        if among is not None:
            return self.table(table_key).lookup(among[0], among[1], names)
        return self.table(table_key).read(columns=names, where=where)

    def remember_places(self, table_key: str, rows: Iterable[dict[str, Any]]) -> list[int]:
        """Take `_rowid` and `_rowaddr` out of the rows and keep them; the row ids in order."""
        known = self._places.setdefault(table_key, {})
        row_ids = []
        for row in rows:
            place = {"id": row["id"], "_rowid": row.pop("_rowid"), "_rowaddr": row.pop("_rowaddr")}
            known[row["id"]] = place
            row_ids.append(int(place["_rowid"]))
        return row_ids

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
        for row in self.table(table_key).lookup("id", asked, _LOCATED.names).to_pylist():
            known[row["id"]] = row

    def located(self, table_key: str, ids: Sequence[str]) -> pa.Table | None:
        """`id`, `_rowid` and `_rowaddr` of the ids that are stored; None if not looked up yet."""
        known = self._places.get(table_key, {})
        if not known.keys() >= set(ids):
            return None
        found = [row for one in ids if (row := known[one]) is not None]
        return pa.Table.from_pylist(found, schema=_LOCATED)

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
