"""A change: what a write will do to each table, decided in memory before anything is staged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.write.constraints import Cells, Entity
from omnigraph.engine.write.stored import Stored
from omnigraph.engine.write.violations import Place
from omnigraph.storage.blobs import seal
from omnigraph.storage.staged import StagedWrite
from omnigraph.storage.writer import WriteContext

_NO_IDS: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where rows came from: a word and a number for each row (`line 3`)."""

    word: str
    numbers: np.ndarray[Any, Any]

    def of(self, row: int) -> Place:
        number = int(self.numbers[row])
        return Place(f"{self.word} {number}", (0, number))


@dataclass(frozen=True, slots=True, kw_only=True)
class TableChange:
    """New images of rows, or rows to remove, of one table.

    `rows` has the columns of `columns.batch_schema` and each id once. `fresh` says that no id of
    them can be stored already; otherwise stored rows with the same id are replaced. `replaces_all`
    makes the rows the whole table. `touched` names the columns that differ from what is stored
    (None: any may), so that rules about others need no second look. `absent` and `misfits` are for
    `constraints.check_values`. `refused` are ids of records that were left out because of
    something else: what refers to them is not wrong for that. `incomplete` says that any record
    was left out, so that too few edges prove nothing.
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
    refused: frozenset[str] = _NO_IDS
    incomplete: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.rows.num_rows or self.deleted or self.replaces_all)

    def place_of(self, row: int) -> str | None:
        return self.places.of(row) if self.places else None

    def without(self, bad: np.ndarray[Any, np.dtype[np.bool_]]) -> TableChange:
        """The change without these rows, of which is known what is wrong."""
        if not bad.any():
            return self
        ids: Any = self.rows["id"].filter(pa.array(bad)).drop_null()
        places = self.places
        return replace(
            self,
            rows=self.rows.filter(pa.array(~bad)),
            places=places and Places(word=places.word, numbers=places.numbers[~bad]),
            absent=frozenset(),
            misfits=frozenset(),
            refused=self.refused.union(ids.to_pylist()),
            incomplete=True,
        )

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
