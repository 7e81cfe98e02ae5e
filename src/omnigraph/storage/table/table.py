"""Tables: sealed read handles, staged writes, and the one call through which a table moves.

A `Table` is one version of one table. It can be read from many threads and can stage writes, but it
never moves the head: only `Tables.apply` commits, and only on the version a write was staged on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import AlreadyExistsError, NotFoundError
from omnigraph.model.graph import TableEntry, TableUpdate, type_words
from omnigraph.model.limits import AUTO_RUN_FRAGMENTS_MAX, TARGET_FRAGMENT_ROWS
from omnigraph.model.ports import World
from omnigraph.model.schema import ROW_ADDRESS, ROW_ID
from omnigraph.storage.lance import pylance
from omnigraph.storage.lance.line import Lines
from omnigraph.storage.lance.pylance import translated
from omnigraph.storage.objects.root import Root, branch_folder
from omnigraph.storage.table import index as indexes
from omnigraph.storage.table import land, schema_change, stage, upkeep
from omnigraph.storage.table.index import IndexSpec
from omnigraph.storage.table.narrow import Narrowing
from omnigraph.storage.table.pinned import Meter, Pinned
from omnigraph.storage.table.read import TableReader, texts
from omnigraph.storage.table.schema_change import ColumnChanges
from omnigraph.storage.table.stage import Rows, StagedWrite, receipt_fragment, u64
from omnigraph.storage.table.upkeep import (
    Fragmentation,
    StagedUpkeep,
    UpkeepPlan,
    UpkeepTask,
    UpkeepWork,
)

_FILE_VERSION: Final = "2.2"  # of Lance's data files: the first with blobs of its second kind


class Table(TableReader):
    """A version that writes can be staged on; staging never moves the head."""

    def stage_append(self, data: Rows) -> StagedWrite | None:
        """Add rows without looking at their ids; None if there are none."""
        return self._appended(stage.written(self._pinned, data))

    def stage_append_fragments(self, receipts: Sequence[str]) -> StagedWrite | None:
        """Add what executors wrote (`fragments.write_fragments`); None if that is no row."""
        return self._appended([receipt_fragment(one) for one in receipts])

    def _appended(self, fragments: Sequence[Any]) -> StagedWrite | None:
        added = sum(fragment.physical_rows for fragment in fragments)
        if added == 0:
            return None
        operation = stage.change(self._pinned, added=fragments)
        return stage.staged(self._pinned, "append", operation, inserted=added)

    def stage_overwrite(self, data: Rows) -> StagedWrite:
        """Replace all rows; zero rows empty the table."""
        return self._overwritten(stage.written(self._pinned, data))

    def stage_overwrite_fragments(self, receipts: Sequence[str]) -> StagedWrite:
        """Replace all rows by what executors wrote."""
        return self._overwritten([receipt_fragment(one) for one in receipts])

    def _overwritten(self, fragments: Sequence[Any]) -> StagedWrite:
        kept = [fragment for fragment in fragments if fragment.physical_rows]
        return stage.staged(
            self._pinned,
            "overwrite",
            stage.replacement(self._pinned, kept),
            inserted=sum(fragment.physical_rows for fragment in kept),
            deleted=int(self._pinned.dataset.count_rows()),
        )

    def stage_upsert(
        self, data: pa.Table, *, existing: pa.Table | None = None
    ) -> StagedWrite | None:
        """Replace rows by id (keeping their row ids) and add the rest; each id only once.

        A caller who has located the ids on this very table passes the answer as `existing` and
        saves the lookup.
        """
        if existing is None:
            existing = self.locate(texts(data["id"]))
        return self._changed(data, existing, ())

    def stage_change(self, data: pa.Table, *, delete_ids: Sequence[str]) -> StagedWrite | None:
        """Replace or add rows by id and remove others, in one version; None if nothing changes."""
        existing = self.locate([*texts(data["id"]), *delete_ids])
        return self._changed(data, existing, delete_ids)

    def stage_delete_ids(self, ids: Sequence[str]) -> StagedWrite | None:
        """Remove the rows with these ids; None if none of them is there."""
        return self._deleted(self.locate(ids)[ROW_ADDRESS])

    def stage_upsert_fragments(
        self,
        added: Sequence[str],
        *,
        reduced: Sequence[str],
        removed: Sequence[int],
        rows_updated: int,
    ) -> StagedWrite:
        """Add and replace rows as executors prepared it (`fragments.write_images`, `take_out`):
        new fragments, fragments that lost rows, and the numbers of those that lost all."""
        new = [receipt_fragment(one) for one in added]
        operation = stage.change(
            self._pinned,
            updated=[receipt_fragment(one) for one in reduced],
            removed=removed,
            added=new,
        )
        inserted = sum(fragment.physical_rows for fragment in new) - rows_updated
        return stage.staged(self._pinned, "upsert", operation, inserted=inserted)

    def _changed(
        self, rows: pa.Table, existing: pa.Table, delete_ids: Sequence[str]
    ) -> StagedWrite | None:
        """`rows` holds each id once; `existing` has `id`, `_rowid` and `_rowaddr`. Replaced rows
        keep their row id, so history and caches can follow them."""
        going = pa.array(delete_ids, pa.string())
        gone = existing.filter(pc.is_in(existing["id"], value_set=going))
        if rows.num_rows == 0:
            return self._deleted(gone[ROW_ADDRESS])
        if existing.num_rows == 0:
            return self.stage_append(rows)
        assert pc.count_distinct(rows["id"]).as_py() == rows.num_rows, "each id is named once"
        place = pc.index_in(rows["id"], value_set=existing["id"].combine_chunks())
        known = np.asarray(place.is_valid())
        old, new = np.flatnonzero(known), np.flatnonzero(~known)
        places = np.asarray(place.drop_null())
        row_ids = u64(existing[ROW_ID])[places]
        # Ascending row ids take next to no room in the manifest, and come first because Lance
        # gives fresh ones only to the rows after them.
        ascending = np.argsort(row_ids)
        ordered = rows.take(pa.array(np.concatenate([old[ascending], new])))
        fragments = stage.written(self._pinned, ordered)
        stage.hand_over_row_ids(fragments, row_ids[ascending].tolist())
        replaced = u64(existing[ROW_ADDRESS])[places]
        leaving = np.concatenate([replaced, u64(gone[ROW_ADDRESS])])
        updated, removed = stage.without_rows(self._pinned, leaving)
        operation = stage.change(self._pinned, updated=updated, removed=removed, added=fragments)
        return stage.staged(
            self._pinned, "upsert", operation, inserted=len(new), deleted=gone.num_rows
        )

    def _deleted(self, addresses: pa.ChunkedArray[Any]) -> StagedWrite | None:
        if not len(addresses):
            return None
        updated, removed = stage.without_rows(self._pinned, u64(addresses))
        operation = stage.change(self._pinned, updated=updated, removed=removed)
        return stage.staged(self._pinned, "delete", operation, deleted=len(addresses))

    # --- columns and upkeep ------------------------------------------------------------------

    def stage_schema(self, changes: ColumnChanges) -> StagedWrite | None:
        """Rename, drop and add columns in one step; None if there is nothing to do."""
        return schema_change.stage(self._pinned, changes)

    def why_untrainable(self, spec: IndexSpec) -> str | None:
        """Why the index cannot be built yet; None if it can."""
        return indexes.untrainable(self._pinned, spec)

    def fragmentation(self) -> Fragmentation:
        """How fragmented the table is; no data is read for it."""
        return upkeep.fragmentation(self._pinned)

    def plan_upkeep(
        self,
        specs: Sequence[IndexSpec],
        *,
        tiered: bool = False,
        compact: bool = True,
        check_indexes: bool = False,
        drop_undeclared: bool = False,
        index_task_rows: int | None = None,
    ) -> UpkeepPlan:
        """What the table needs to be fast again: fragments to compact, index segments to build.

        `tiered` compacts only small fragments, so that frequent upkeep stays cheap; `compact=False`
        looks after indexes alone. The tasks are for `run_upkeep_task`, or for
        `fragments.run_upkeep` on an executor.
        """
        rows = upkeep.tier_rows(upkeep.parts(self._pinned)) if tiered else TARGET_FRAGMENT_ROWS
        return upkeep.plan(
            self._pinned,
            specs,
            target_rows=rows,
            parts_max=AUTO_RUN_FRAGMENTS_MAX if tiered else None,
            compact=compact,
            check_indexes=check_indexes,
            drop_undeclared=drop_undeclared,
            index_task_rows=index_task_rows,
        )

    def run_upkeep_task(self, task: UpkeepTask) -> Any:
        """Carry out one task of the plan; nobody sees the files it makes."""
        return upkeep.run(self._pinned, task)

    def finish_upkeep(self, plan: UpkeepPlan, answers: Sequence[Any]) -> UpkeepWork:
        """What the plan's tasks made, with the pieces of indexes joined; nobody sees it."""
        return upkeep.done(self._pinned, plan, answers)

    def stage_upkeep(self, work: UpkeepWork) -> StagedUpkeep | None:
        """What still fits of work that was done on an older version; None if nothing does."""
        return upkeep.stage(self._pinned, work)

    def discard_upkeep(self, work: UpkeepWork, staged: StagedUpkeep | None) -> None:
        """Delete what was made for upkeep and is no part of the write that landed."""
        upkeep.discard(self._pinned, work, staged)


class Tables(Lines):
    """All tables of one graph root. One per open graph; safe to share between threads."""

    def __init__(self, root: Root, world: World) -> None:
        super().__init__(root, world)
        self.meter = Meter()  # what was read through these tables so far
        self._narrowing = Narrowing()

    def open(self, entry: TableEntry) -> Table:
        """The table at exactly the entry's location, branch and version."""
        with _named(entry):
            return self._table(entry, self.at(entry.location, entry.branch, entry.version))

    def open_alone(self, entry: TableEntry) -> Table:
        """The same through a handle that nobody else uses: building an index locks its handle."""
        with _named(entry):
            return self._table(entry, self.own(entry.location, entry.branch, entry.version))

    def _table(self, entry: TableEntry, dataset: Any) -> Table:
        return Table(
            Pinned(
                entry=entry,
                dataset=dataset,
                lines=self,
                meter=self.meter,
                narrowing=self._narrowing,
            )
        )

    def create(self, location: str, schema: pa.Schema) -> int:
        """Make an empty table and return its version; exactly one of several racers succeeds."""
        uri, options = self.root.child(location), self.root.storage_options
        with translated(uri, doing="create table"):
            try:
                draft = pylance.drafted(
                    uri, schema.empty_table(), options, file_version=_FILE_VERSION
                )
                made = pylance.commit_first(uri, draft, options)
            except OSError as cause:
                if not self.exists(location):
                    raise
                raise AlreadyExistsError(
                    f"a table is at '{location}' already", kind="table", name=location
                ) from cause
        if self.root.local_path is not None:
            self.flusher.flush_tree(uri)
        return int(made.version)

    def apply(self, write: StagedWrite) -> TableUpdate:
        """Land a staged write on its pinned version, or raise and change nothing."""
        after = land.land(self, write)
        return TableUpdate(
            table_key=write.table_key,
            version=int(after.version),
            branch=write.branch,
            row_count=write.row_count_after,
        )

    def discard(self, write: StagedWrite) -> None:
        """Delete the rows of a write that nobody will ever land or stage again."""
        folder = branch_folder(write.location, write.branch)
        for file in stage.row_files(write):
            key = f"{folder}/data/{file}"
            self.store.delete(key)
            self.store.delete_prefix(key.removesuffix(".lance"))

    def restore(self, location: str, branch: str | None, version: int, *, commit_id: str) -> int:
        """Bring an older version back as a new head (recovery only); returns the new version."""
        return int(land.restore(self, location, branch, version, commit_id=commit_id).version)

    def stage_restore(self, entry: TableEntry, *, over: int) -> StagedWrite:
        """The entry's version as the newest one again, in place of all up to the version `over`."""
        return land.staged_restore(entry, over=over)


@contextmanager
def _named(entry: TableEntry) -> Iterator[None]:
    """Run the body; a version that is gone is told as people know it: by its type."""
    try:
        yield
    except NotFoundError as cause:
        raise NotFoundError(
            f"the data that {type_words(entry.table_key)} had at that commit is not kept any more",
            hint="cleanup removed it, or a schema change that drops data for good",
            kind="data",
            name=entry.table_key,
            location=entry.location,
            branch=entry.branch,
            version=entry.version,
        ) from cause
