"""A change: what a write will do to each table, decided in memory before anything is staged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import pyarrow as pa

from omnigraph.engine.check.rules import Entity
from omnigraph.engine.rows.parts import Stored
from omnigraph.storage.commit.writer import WriteContext
from omnigraph.storage.lance.columns import seal
from omnigraph.storage.table.stage import StagedWrite

_NO_IDS: frozenset[str] = frozenset()


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a change does to one table, as far as checks must know."""

    entity: Entity
    fresh: bool = False  # no id of the new rows can be met twice or be stored
    replaces_all: bool = False  # no stored row stays
    last_counts: bool = False  # of rows with one id the last one counts; else the first
    strictly_new: bool = False  # ids that are stored are refused
    locates: bool = False  # say where the stored rows are that new ones replace
    touched: frozenset[str] | None = None  # columns that may differ from what is stored; None: all
    incomplete: bool = False  # records were refused, so that too few edges prove nothing

    def touches(self, columns: Iterable[str]) -> bool:
        """Whether a rule about these columns has to be checked."""
        return self.touched is None or not self.touched.isdisjoint(columns)


class TableChange(msgspec.Struct, frozen=True, kw_only=True):
    """New images of rows, or rows to remove, of one table.

    `rows` has the columns of `columns.batch_schema` and each id once. `fresh` says that no id of
    them can be stored already; otherwise stored rows with the same id are replaced. `replaces_all`
    makes the rows the whole table. `touched` names the columns that differ from what is stored
    (None: any may), so that rules about others need no second look. `refused` are ids of records
    that were left out because of something else: what refers to them is not wrong for that.
    `incomplete` says that any record was left out, so that too few edges prove nothing.
    """

    entity: Entity
    rows: pa.Table
    deleted: frozenset[str] = _NO_IDS
    fresh: bool = False
    replaces_all: bool = False
    touched: frozenset[str] | None = None
    refused: frozenset[str] = _NO_IDS
    incomplete: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.rows.num_rows or self.deleted or self.replaces_all)

    @property
    def terms(self) -> Terms:
        return Terms(
            entity=self.entity,
            fresh=self.fresh,
            replaces_all=self.replaces_all,
            touched=self.touched,
            incomplete=self.incomplete,
        )


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
