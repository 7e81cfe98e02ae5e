"""A change: what a write will do to each table, decided in memory before anything is staged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.write.constraints import Cells, Entity
from omnigraph.engine.write.stored import Stored
from omnigraph.storage.blobs import seal
from omnigraph.storage.staged import StagedWrite
from omnigraph.storage.writer import WriteContext

_NO_IDS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where rows came from: a word and a number for each row (`line 3`)."""

    word: str
    numbers: np.ndarray[Any, Any]

    def of(self, row: int) -> str | None:
        return f"{self.word} {self.numbers[row]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """New images of rows, or rows to remove, of one table.

    `rows` has the columns of `columns.batch_schema` and each id once. `fresh` says that no id of
    them can be stored already; otherwise stored rows with the same id are replaced. `replaces_all`
    makes the rows the whole table. `touched` names the columns that differ from what is stored
    (None: any may), so that rules about others need no second look. `absent` and `misfits` are for
    `constraints.check_values`.
    """

    entity: Entity
    rows: pa.Table
    deleted: frozenset[str] = _NO_IDS
    fresh: bool = False
    replaces_all: bool = False
    touched: frozenset[str] | None = None
    places: Places | None = None
    absent: Cells = frozenset()
    misfits: Cells = frozenset()

    @property
    def is_empty(self) -> bool:
        return not (self.rows.num_rows or self.deleted or self.replaces_all)

    def place_of(self, row: int) -> str | None:
        return self.places.of(row) if self.places else None

    def touches(self, columns: Iterable[str]) -> bool:
        """Whether a rule about these columns has to be checked."""
        return self.touched is None or not self.touched.isdisjoint(columns)


Changes = Mapping[str, TableChange]


def stage(changes: Changes, context: WriteContext, stored: Stored) -> tuple[StagedWrite, ...]:
    """The uncommitted writes of every table that changes, staged side by side; no head moves."""
    some = [(key, change) for key, change in sorted(changes.items()) if not change.is_empty]
    staged = context.each(lambda one: _stage(one[0], one[1], context, stored), some)
    return tuple(write for write in staged if write is not None)


def _stage(
    table_key: str, change: TableChange, context: WriteContext, stored: Stored
) -> StagedWrite | None:
    table = context.writable(table_key)
    if change.deleted and change.rows.num_rows:
        return table.stage_change(
            seal(change.rows, table.schema), delete_ids=sorted(change.deleted)
        )
    if change.deleted:
        return table.stage_delete_ids(sorted(change.deleted))
    rows = seal(change.rows, table.schema)
    if change.replaces_all:
        return table.stage_overwrite(rows)
    if change.fresh or context.snapshot.entries[table_key].row_count == 0:
        return table.stage_append(rows)
    # Where rows are is the same on a branch's own line of a table, right after the fork.
    existing = stored.located(table_key, [str(one) for one in rows["id"].to_pylist()])
    return table.stage_upsert(rows, existing=existing)
