"""Tables: sealed read handles, staged writes, and the one door through which a table moves.

A `Table` is one version of one table. It can be read from many threads and can stage writes, but it
never moves the head: only `Tables.apply` commits, and only on the version a write was staged on.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from omnigraph.errors import AlreadyExistsError, CorruptGraphError, NotFoundError
from omnigraph.model.changeset import TableUpdate
from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import AUTO_RUN_FRAGMENTS_MAX, TARGET_FRAGMENT_ROWS
from omnigraph.model.ports import World
from omnigraph.storage import compaction, evolution, indexes, landing, retention, staging, upkeep
from omnigraph.storage.evolution import ColumnChanges
from omnigraph.storage.faults import translated
from omnigraph.storage.forks import Forks, Line
from omnigraph.storage.fragments import decode_receipt
from omnigraph.storage.handles import Handles, Meter
from omnigraph.storage.indexes import IndexSpec, StagedIndexes
from omnigraph.storage.landing import VersionTransaction
from omnigraph.storage.layout import branch_folder
from omnigraph.storage.objects import Root
from omnigraph.storage.reader import TableDelta, TableReader
from omnigraph.storage.reading import ROW_ADDRESS, texts
from omnigraph.storage.retention import Collected
from omnigraph.storage.staged import StagedWrite
from omnigraph.storage.staging import Rows
from omnigraph.storage.torn import version_file
from omnigraph.storage.upkeep import StagedUpkeep, UpkeepPlan, UpkeepTask, UpkeepWork, Wear

__all__ = ["Table", "TableDelta", "Tables"]


class Table(TableReader):
    """A version that writes can be staged on; staging never moves the head."""

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

    def stage_index(self, specs: Sequence[IndexSpec]) -> StagedIndexes:
        """Build what the specs ask for and the table lacks; say what cannot be built yet."""
        return indexes.stage(self._pinned, specs)

    def why_untrainable(self, spec: IndexSpec) -> str | None:
        """Why the index cannot be built yet; None if it can."""
        return indexes.untrainable(self._pinned, spec)

    def stage_drop_index(self, names: Sequence[str]) -> StagedWrite | None:
        """Take indexes away; None if none of them is there."""
        return indexes.stage_drop(self._pinned, names)

    def compaction_tasks(
        self, *, target_fragment_rows: int = TARGET_FRAGMENT_ROWS
    ) -> tuple[str, ...]:
        """Tasks for `run_compaction_task` here or `fragments.compact` on an executor."""
        return compaction.plan(self._pinned, target_fragment_rows=target_fragment_rows)

    def run_compaction_task(self, task: str) -> str:
        """Rewrite one task's fragments into new files; the result is for `stage_compaction`."""
        return compaction.run(self._pinned, task)

    def stage_compaction(self, results: Sequence[str]) -> StagedWrite | None:
        """All results of the tasks as one write; None if there are none."""
        return compaction.stage(self._pinned, results)

    def wear(self) -> Wear:
        """How worn the table is; no data is read for it."""
        return upkeep.wear(self._pinned)

    def plan_upkeep(
        self,
        specs: Sequence[IndexSpec],
        *,
        tiered: bool = False,
        fold: bool = True,
        check_indexes: bool = False,
        drop_undeclared: bool = False,
        index_task_rows: int | None = None,
    ) -> UpkeepPlan:
        """What the table needs to be fast again: fragments to fold, index segments to build.

        `tiered` folds only small fragments, so that frequent upkeep stays cheap; `fold=False`
        looks after indexes alone. The tasks are for `run_upkeep_task`, or for
        `fragments.run_upkeep` on an executor.
        """
        rows = upkeep.tier_rows(upkeep.parts(self._pinned)) if tiered else TARGET_FRAGMENT_ROWS
        return upkeep.plan(
            self._pinned,
            specs,
            target_rows=rows,
            parts_max=AUTO_RUN_FRAGMENTS_MAX if tiered else None,
            fold=fold,
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

    def open_alone(self, entry: TableEntry) -> Table:
        """The same through a handle that nobody else uses: for long work beside readers."""
        return Table(self._handles.pinned_alone(entry))

    def exists(self, location: str) -> bool:
        """Whether there is a table, whole or damaged."""
        try:
            self._handles.head(location, None)
        except NotFoundError:
            return False
        except CorruptGraphError:
            return True
        return True

    def head_version(self, location: str, branch: str | None) -> int:
        """The newest version that Lance has, published or not; `CorruptGraphError` if it is not
        whole."""
        return int(self._handles.head(location, branch).version)

    def whole_head_version(self, location: str, branch: str | None) -> int:
        """The newest whole version (recovery only: whose sidecar explains what is torn)."""
        return int(self._handles.whole_head(location, branch).version)

    def clear_torn(self, location: str, branch: str | None, *, above: int) -> None:
        """Take away what a power cut left of the version after `above` (recovery only)."""
        landing.clear_torn(self._handles, location, branch, above=above)

    def is_head(self, location: str, branch: str | None, version: int) -> bool:
        """Whether the version is the newest that Lance has. On local disk that is a look for the
        file of the next version, however many versions there are."""
        if self._root.local_path is not None:
            folder = self._handles.versions_folder(location, branch)
            if not os.path.exists(os.path.join(folder, version_file(version + 1))):
                return os.path.exists(os.path.join(folder, version_file(version)))
        return self.head_version(location, branch) == version

    def create(self, location: str, schema: pa.Schema) -> int:
        """Make an empty table and return its version; exactly one of several racers succeeds."""
        uri = self._root.child(location)
        with translated(uri, doing="create table"):
            try:
                made = landing.create(uri, schema, self._root.storage_options)
            except OSError as cause:
                if not self.exists(location):
                    raise
                raise AlreadyExistsError(
                    f"a table is at '{location}' already", kind="table", name=location
                ) from cause
        if self._root.local_path is not None:
            self._handles.flusher.flush_tree(uri)
        return int(made.version)

    def apply(self, write: StagedWrite) -> TableUpdate:
        """Land a staged write on its pinned version, or raise and change nothing."""
        after = landing.land(self._handles, write)
        return TableUpdate(
            table_key=write.table_key,
            version=int(after.version),
            branch=write.branch,
            row_count=write.row_count_after,
        )

    def discard(self, write: StagedWrite) -> None:
        """Delete the rows of a write that nobody will ever land or stage again."""
        folder = branch_folder(write.location, write.branch)
        for file in staging.row_files(write):
            key = f"{folder}/data/{file}"
            self._handles.store.delete(key)
            self._handles.store.delete_prefix(key.removesuffix(".lance"))

    def restore(self, location: str, branch: str | None, version: int, *, commit_id: str) -> int:
        """Bring an older version back as a new head (recovery only); returns the new version."""
        after = landing.restore(self._handles, location, branch, version, commit_id=commit_id)
        return int(after.version)

    def stage_restore(self, entry: TableEntry, *, over: int) -> StagedWrite:
        """The entry's version as the newest one again, in place of all up to the version `over`."""
        return landing.staged_restore(entry, over=over)

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

    def preview_collect(
        self, location: str, branch: str | None, unwanted: Collection[int]
    ) -> Collected:
        """What `collect` would remove; nothing is touched."""
        return retention.preview(self._handles, location, branch, unwanted)

    def last_written_us(self, location: str) -> int:
        """When the newest version of the table's own line was made."""
        return retention.last_written_us(self._handles, location)

    def forget(self, location: str) -> None:
        """Let go of what is open of a table that is about to be removed."""
        self._handles.forget(location, None)

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

    def lines(self, location: str) -> dict[str, Line]:
        """Every branch of the table with what it was made from; also half-made ones."""
        return self._forks.lines(location)

    def branches(self, location: str) -> list[str]:
        """Every branch of the table that has a ref or files."""
        return self._forks.names(location)
