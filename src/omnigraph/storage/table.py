"""Tables: sealed read handles, staged writes, and the one door through which a table moves.

A `Table` is one version of one table. It can be read from many threads and can stage writes, but it
never moves the head: only `Tables.apply` commits, and only on the version a write was staged on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from omnigraph.errors import (
    AlreadyExistsError,
    NotFoundError,
)
from omnigraph.model.changeset import TableUpdate
from omnigraph.model.graph import TableEntry
from omnigraph.model.ports import World
from omnigraph.storage import (
    compaction,
    delta,
    evolution,
    indexes,
    landing,
    reading,
    retention,
    staging,
)
from omnigraph.storage.blobs import StoredBlob, open_blobs
from omnigraph.storage.evolution import ColumnChanges
from omnigraph.storage.faults import translated
from omnigraph.storage.forks import Forks
from omnigraph.storage.fragments import decode_receipt
from omnigraph.storage.handles import Handles, Meter, Pinned
from omnigraph.storage.indexes import IndexInfo, IndexSpec, StagedIndexes
from omnigraph.storage.landing import VersionTransaction
from omnigraph.storage.objects import Root
from omnigraph.storage.reading import (
    ROW_ADDRESS,
    ROW_ID,
    BlobForm,
    FullText,
    Nearest,
    Order,
    Scan,
    texts,
)
from omnigraph.storage.retention import Collected
from omnigraph.storage.staged import StagedWrite
from omnigraph.storage.staging import Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDelta:
    """What changed since an older version. The rows are those of the newer one, with `_rowid`."""

    inserted: pa.Table
    updated: pa.Table
    deleted_row_ids: pa.Array[Any]

    @property
    def is_empty(self) -> bool:
        return not (self.inserted.num_rows or self.updated.num_rows or len(self.deleted_row_ids))


class Table:
    """One version of a table. Reads are safe from any thread; staging never moves the head."""

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
        schema: pa.Schema = self._pinned.dataset.schema
        return schema

    @property
    def fragment_ids(self) -> tuple[int, ...]:
        """The numbers of the table's fragments, for scans of parts."""
        return tuple(self._pinned.dataset.fragment_ids())

    # --- reading ---

    def count(self, where: str | None = None) -> int:
        """How many rows there are, or how many satisfy the SQL condition."""
        with self._reading():
            return int(self._pinned.dataset.count_rows(where))

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
            batches: pa.RecordBatchReader = reading.scanner(self._pinned, request).to_reader()
            return batches

    def read(self, **options: Any) -> pa.Table:
        """The same as `scan`, all at once."""
        with self._reading():
            rows: pa.Table = reading.scanner(self._pinned, Scan(**options)).to_table()
            return rows

    def locate(self, ids: Sequence[str]) -> pa.Table:
        """Where the rows with these ids are: `id`, `_rowid`, `_rowaddr`; missing ones left out."""
        with self._reading():
            return reading.locate(self._pinned, ids)

    def lookup(self, column: str, values: Sequence[Any], columns: Sequence[str]) -> pa.Table:
        """The columns of the rows whose `column` holds one of the values; `_rowid` and `_rowaddr`
        may be among them. The cost does not grow with the number of small commits."""
        with self._reading():
            return reading.lookup(self._pinned, column, values, columns)

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

    def changes_since(self, older: Table, *, columns: Sequence[str] | None = None) -> TableDelta:
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
        self, older: Table, *, one_line: bool, columns: Sequence[str]
    ) -> tuple[pa.Table, pa.Table]:
        """The rows of this version and of the other that may differ, each with its row id.

        Costs what the difference costs. `one_line`: the other is an ancestor (`Tables.descends`).
        """
        with self._reading():
            mine, theirs = delta.differing(self._pinned, older._pinned, one_line=one_line)
            names = [*(name for name in columns if name != ROW_ID), ROW_ID]
            return (
                reading.rows_at(self._pinned, mine, names),
                reading.rows_at(older._pinned, theirs, names),
            )

    def unshared_fragments(self, other: Table) -> tuple[int, ...]:
        """The fragments whose files or deletions the other version does not have."""
        with self._reading():
            theirs = set(delta.fragment_keys(other._pinned.dataset).items())
            mine = delta.fragment_keys(self._pinned.dataset)
            return tuple(number for number, key in mine.items() if (number, key) not in theirs)

    def blobs(self, column: str, row_ids: Sequence[int]) -> list[StoredBlob | None]:
        """The blobs of the rows with these row ids, in that order; None for null."""
        return open_blobs(self._pinned, column, row_ids)

    # --- staging ---

    def stage_append(self, data: Rows) -> StagedWrite | None:
        """Add rows without looking at their ids; None if there are none."""
        return staging.append(self._pinned, data)

    def stage_upsert(
        self, data: pa.Table, *, existing: pa.Table | None = None
    ) -> StagedWrite | None:
        """Replace rows by id (keeping their row ids) and add the rest; each id only once.

        A caller who has located the ids on this very table passes the answer as `existing` and
        saves the lookup.
        """
        if existing is None:
            existing = self.locate(texts(data["id"]))
        return staging.upsert(self._pinned, data, existing)

    def stage_overwrite(self, data: Rows) -> StagedWrite:
        """Replace all rows; zero rows empty the table."""
        return staging.overwrite(self._pinned, data)

    def stage_change(self, data: pa.Table, *, delete_ids: Sequence[str]) -> StagedWrite | None:
        """Replace or add rows by id and remove others, in one version; None if nothing changes."""
        ids = [*texts(data["id"]), *delete_ids]
        return staging.change_rows(self._pinned, data, self.locate(ids), delete_ids)

    def stage_delete_ids(self, ids: Sequence[str]) -> StagedWrite | None:
        """Remove the rows with these ids; None if none of them is there."""
        return staging.delete(self._pinned, self.locate(ids)[ROW_ADDRESS])

    def stage_delete_where(self, where: str) -> StagedWrite | None:
        """Remove the rows that satisfy the SQL condition; None if no row does."""
        found = self.read(columns=[ROW_ADDRESS], where=where)
        return staging.delete(self._pinned, found[ROW_ADDRESS])

    # --- indexes, compaction, columns ---

    def indexes(self) -> tuple[IndexInfo, ...]:
        """Every index, and how much of the table it covers."""
        return indexes.describe(self._pinned)

    def stage_index(self, specs: Sequence[IndexSpec]) -> StagedIndexes:
        """Build what the specs ask for and the table lacks; say what cannot be built yet."""
        return indexes.stage(self._pinned, specs)

    def stage_drop_index(self, names: Sequence[str]) -> StagedWrite | None:
        """Take indexes away; None if none of them is there."""
        return indexes.stage_drop(self._pinned, names)

    def compaction_tasks(
        self, *, target_fragment_rows: int = compaction.TARGET_FRAGMENT_ROWS
    ) -> tuple[str, ...]:
        """Tasks for `run_compaction_task` here or `fragments.compact` on an executor."""
        return compaction.plan(self._pinned, target_fragment_rows=target_fragment_rows)

    def run_compaction_task(self, task: str) -> str:
        """Rewrite one task's fragments into new files; the result is for `stage_compaction`."""
        return compaction.run(self._pinned, task)

    def stage_compaction(self, results: Sequence[str]) -> StagedWrite | None:
        """All results of the tasks as one write; None if there are none."""
        return compaction.stage(self._pinned, results)

    def stage_schema(self, changes: ColumnChanges) -> StagedWrite | None:
        """Rename, drop and add columns in one step; None if there is nothing to do."""
        return evolution.stage(self._pinned, changes)

    def stage_append_fragments(self, receipts: Sequence[str]) -> StagedWrite | None:
        """Add what executors wrote (`fragments.write_fragments`); None if that is no row."""
        return staging.append_fragments(self._pinned, [decode_receipt(one) for one in receipts])

    def stage_overwrite_fragments(self, receipts: Sequence[str]) -> StagedWrite:
        """Replace all rows by what executors wrote."""
        return staging.overwrite_fragments(self._pinned, [decode_receipt(one) for one in receipts])

    def stage_upsert_fragments(
        self,
        added: Sequence[str],
        *,
        reduced: Sequence[str],
        removed: Sequence[int],
        rows_updated: int,
    ) -> StagedWrite:
        """Add and replace rows as executors prepared it (`rewriting`): new fragments, fragments
        that lost rows, and the numbers of those that lost all."""
        return staging.upsert_fragments(
            self._pinned,
            [decode_receipt(one) for one in added],
            reduced=[decode_receipt(one) for one in reduced],
            removed=removed,
            updated=rows_updated,
        )

    def _reading(self) -> Any:
        return translated(self._pinned.folder, doing="read table")


class Tables:
    """All tables of one graph root. One per open graph; safe to share between threads."""

    def __init__(self, root: Root, world: World) -> None:
        self._root = root
        self._world = world
        self._handles = Handles(root, world)
        self._forks = Forks(self._handles)

    @property
    def meter(self) -> Meter:
        """What was read through these tables so far."""
        return self._handles.meter

    def open(self, entry: TableEntry) -> Table:
        """The table at exactly the entry's location, branch and version."""
        return Table(self._handles.pinned(entry))

    def exists(self, location: str) -> bool:
        try:
            self._handles.head(location, None)
        except NotFoundError:
            return False
        return True

    def head_version(self, location: str, branch: str | None) -> int:
        """The newest version that Lance has, published or not."""
        return int(self._handles.head(location, branch).version)

    def create(self, location: str, schema: pa.Schema) -> int:
        """Make an empty table and return its version; exactly one of several racers succeeds."""
        uri = self._root.child(location)
        if not self.exists(location):
            with translated(uri, doing="create table"):
                try:
                    made = landing.create(uri, schema, self._root.storage_options)
                except OSError:
                    if not self.exists(location):
                        raise
                else:
                    if self._root.local_path is not None:
                        self._handles.flusher.flush_tree(uri)
                    return int(made.version)
        raise AlreadyExistsError(f"a table is at '{location}' already", kind="table", name=location)

    def apply(self, write: StagedWrite) -> TableUpdate:
        """Land a staged write on its pinned version, or raise and change nothing."""
        after = landing.land(self._handles, write)
        return TableUpdate(
            table_key=write.table_key,
            version=int(after.version),
            branch=write.branch,
            row_count=write.row_count_after,
        )

    def restore(self, location: str, branch: str | None, version: int) -> int:
        """Bring an older version back as a new head (recovery only); returns the new version."""
        return int(landing.restore(self._handles, location, branch, version).version)

    def transactions(
        self, location: str, branch: str | None, *, after: int, upto: int
    ) -> list[VersionTransaction]:
        """What made the versions in (after, upto], oldest first."""
        return landing.transactions(self._handles, location, branch, after=after, upto=upto)

    def versions(self, location: str, branch: str | None) -> tuple[int, ...]:
        """Every version of the table that is still stored, ascending."""
        return retention.versions(self._handles, location, branch)

    def collect(self, location: str, branch: str | None, unwanted: Collection[int]) -> Collected:
        """Remove versions and the files that only they use; the head and fork bases stay."""
        return retention.collect(self._handles, location, branch, unwanted)

    def fork(
        self, location: str, *, source_branch: str | None, version: int, branch_id: str
    ) -> None:
        """Have a branch of the table that starts at (source_branch, version).

        Repeating it is fine as long as the fork did not move; then it is AlreadyExistsError.
        """
        self._forks.fork(
            location, source_branch=source_branch, version=version, branch_id=branch_id
        )

    def descends(self, newer: TableEntry, older: TableEntry) -> bool:
        """Whether one version of a table came from the other, on one line or across forks."""
        return newer.location == older.location and self._forks.descends(newer, older)

    def drop_branch(self, location: str, branch_id: str) -> bool:
        """Remove a branch of the table, also a half-made one; False if there was none."""
        return self._forks.drop(location, branch_id)

    def branches(self, location: str) -> list[str]:
        """Every branch of the table that has a ref or files."""
        return self._forks.names(location)
