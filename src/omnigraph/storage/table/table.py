"""Tables: sealed read handles, staged writes, and the one call through which a table moves.

A `Table` is one version of one table. It can be read from many threads and can stage writes, but it
never moves the head: only `Tables` commits, and only on the version a write was staged on.

Danger: a commit has three outcomes. It landed; it did not, and never will; or the store did not
say. The last two are different errors, and nothing may be deleted after the third.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceOperation as Op
from lance.commit import CommitConflictError
from lance.dataset import Transaction
from lance.optimize import Compaction, RewriteResult

from omnigraph.errors import (
    AlreadyExistsError,
    ConflictError,
    CorruptGraphError,
    ExpectedVersionMismatchError,
    IntegrityError,
    NotFoundError,
    OmnigraphError,
    OutcomeUnknownError,
)
from omnigraph.model.graph import PendingEntry, TableEntry, TableUpdate, TypeCounts, type_words
from omnigraph.model.ports import World
from omnigraph.model.schema import ROW_ADDRESS, ROW_ID
from omnigraph.model.steps import Step
from omnigraph.storage.derived import DerivedFiles, Sections
from omnigraph.storage.lance import digests, pylance
from omnigraph.storage.lance.columns import seal
from omnigraph.storage.lance.files import delete_data, index_paths
from omnigraph.storage.lance.line import Lines
from omnigraph.storage.lance.pylance import reason_of, translated
from omnigraph.storage.objects.root import Root, branch_folder
from omnigraph.storage.table import fragments, schema_change, stage, upkeep
from omnigraph.storage.table import index as indexes
from omnigraph.storage.table.index import IndexSpec
from omnigraph.storage.table.pinned import Meter, Narrowing, Pinned
from omnigraph.storage.table.read import TableReader, texts
from omnigraph.storage.table.stage import COMMIT_PROPERTY, Receipts, Rows, StagedWrite, u64
from omnigraph.storage.table.upkeep import StagedUpkeep, Upkeep, UpkeepPlan, UpkeepTask, UpkeepWork

logger = logging.getLogger(__name__)

_FILE_VERSION: Final = "2.2"  # of Lance's data files: the first with blobs of its second kind
# No guard fits into these: look first, under the lease.
_SHOWN: Final = re.compile(r"d\d+\.manifest")  # a version in no history
_REBASED: Final = frozenset({"index", "schema", "restore"})


class Table(TableReader):
    """A version that writes can be staged on; staging never moves the head."""

    def stage_append(self, data: Rows | Receipts) -> StagedWrite | None:
        """Add rows, or what executors wrote, without looking at their ids; None if that is no
        row."""
        new = stage.written(self._pinned, data)
        added = sum(fragment.physical_rows for fragment in new.fragments)
        if added == 0:
            return None
        operation = stage.change(self._pinned, added=new.fragments)
        counts = TypeCounts(inserted=added)
        return stage.staged(self._pinned, "append", operation, counts, digests=new.digests)

    def stage_overwrite(self, data: Rows | Receipts) -> StagedWrite:
        """Replace all rows, also by what executors wrote; zero rows empty the table."""
        new = stage.written(self._pinned, data)
        kept = [fragment for fragment in new.fragments if fragment.physical_rows]
        return stage.staged(
            self._pinned,
            "overwrite",
            stage.replacement(self._pinned, kept),
            TypeCounts(
                inserted=sum(fragment.physical_rows for fragment in kept),
                deleted=int(self._pinned.dataset.count_rows()),
            ),
            digests=new.digests,
        )

    def stage_change(
        self, rows: pa.Table, *, delete_ids: Sequence[str] = (), existing: pa.Table | None = None
    ) -> StagedWrite | None:
        """Replace or add rows by id and remove others, in one version; None if nothing changes.

        `rows` holds each id once. Replaced rows keep their row id, so history and caches can follow
        them. A caller who has located the ids on this very table passes the answer as `existing`
        and saves the lookup.
        """
        if existing is None:
            existing = self.locate([*texts(rows["id"]), *delete_ids])
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
        written = stage.written(self._pinned, ordered)
        stage.hand_over_row_ids(written.fragments, row_ids[ascending].tolist())
        replaced = u64(existing[ROW_ADDRESS])[places]
        leaving = np.concatenate([replaced, u64(gone[ROW_ADDRESS])])
        reduced, removed = stage.without_rows(self._pinned, leaving)
        operation = stage.change(
            self._pinned, updated=reduced.fragments, removed=removed, added=written.fragments
        )
        counts = TypeCounts(inserted=len(new), updated=len(old), deleted=gone.num_rows)
        told = {**written.digests, **reduced.digests}
        return stage.staged(self._pinned, "upsert", operation, counts, digests=told)

    # --- fragment by fragment, for derived files ---

    def column_files(self, column: str) -> dict[int, fragments.ColumnFile]:
        """Where each fragment has its values of the column; see `fragments.py`."""
        with self._reading():
            return fragments.column_files(self._pinned, column)

    def stored_values(
        self, fragment: int, column: str, *, bytes_max: int
    ) -> Iterator[pa.Array[Any]]:
        """The values of the column in a fragment, also of rows that are deleted, in arrays of at
        most so many bytes."""
        with self._reading():
            yield from fragments.stored_values(self._pinned, fragment, column, bytes_max=bytes_max)

    def derived(self, column: str, kind: str) -> dict[int, tuple[fragments.DerivedRows, ...]]:
        """The derived files of the column, by fragment, where they tell of all its rows."""
        with self._reading():
            return fragments.derived(self._pinned, column, kind)

    def underived(
        self, column: str, kind: str, *, rows_min: int, thorough: bool = False
    ) -> list[fragments.ColumnFile]:
        """The fragments of so many rows or more that have no such file; with `thorough` also those
        whose file is damaged."""
        with self._reading():
            return fragments.underived(
                self._pinned, column, kind, rows_min=rows_min, thorough=thorough
            )

    def put_derived(
        self,
        file: fragments.ColumnFile,
        kind: str,
        rows: tuple[int, int],
        sections: Sections,
        facts: object,
    ) -> None:
        """Keep what was made of a fragment's values of a column, from one row to before another."""
        name = fragments.name_of(file, kind, *rows)
        self._pinned.derived.put(self._pinned.entry.location, name, sections, facts)

    def fragment_rows(self, fragment: int) -> fragments.FragmentRows:
        """The row ids of a fragment by row number, and which rows are not deleted."""
        with self._reading():
            return fragments.fragment_rows(self._pinned, fragment)

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
        """Add and replace rows as executors prepared it (`stage.write_images`, `take_out`):
        new fragments, fragments that lost rows, and the numbers of those that lost all."""
        new, less = stage.received(added), stage.received(reduced)
        operation = stage.change(
            self._pinned, updated=less.fragments, removed=removed, added=new.fragments
        )
        inserted = sum(fragment.physical_rows for fragment in new.fragments) - rows_updated
        counts = TypeCounts(inserted=inserted, updated=rows_updated)
        told = {**new.digests, **less.digests}
        return stage.staged(self._pinned, "upsert", operation, counts, digests=told)

    def _deleted(self, addresses: pa.ChunkedArray[Any]) -> StagedWrite | None:
        if not len(addresses):
            return None
        left, removed = stage.without_rows(self._pinned, u64(addresses))
        operation = stage.change(self._pinned, updated=left.fragments, removed=removed)
        counts = TypeCounts(deleted=len(addresses))
        return stage.staged(self._pinned, "delete", operation, counts, digests=left.digests)

    # --- columns and upkeep ------------------------------------------------------------------

    def stage_schema(self, changes: schema_change.ColumnChanges) -> StagedWrite | None:
        """Rename, drop and add columns in one step; None if there is nothing to do."""
        return schema_change.stage(self._pinned, changes)

    def stage_evolution(
        self, changes: schema_change.ColumnChanges, rows: pa.Table, delete_ids: Sequence[str]
    ) -> StagedWrite | None:
        """Change the columns, then replace or add rows in the new ones and remove others: two
        versions of the table that land together. `rows` have the columns as they will be."""
        existing = self.locate([*texts(rows["id"]), *delete_ids])
        first = self.stage_schema(changes)
        if first is None:
            rows = seal(rows, self.schema)
            return self.stage_change(rows, delete_ids=delete_ids, existing=existing)
        there = set(texts(existing["id"]))
        gone = [one for one in delete_ids if one in there]
        if not (rows.num_rows or gone):
            return first
        known = sum(one in there for one in texts(rows["id"]))
        counts = TypeCounts(inserted=rows.num_rows - known, updated=known, deleted=len(gone))
        staged = first.transaction
        before = staged.transactions if isinstance(staged, stage.Evolving) else (staged,)
        # Other columns leave rows where they are, so that what was located stays true.
        evolving = stage.Evolving(
            before=before,
            rows=rows,
            delete_ids=tuple(gone),
            existing=existing,
            uuid=str(uuid.uuid4()),
        )
        count = first.row_count_after + counts.inserted - counts.deleted
        versions = len(before) + 1
        entry = self._pinned.entry
        write = stage.staged_on(entry, "evolution", evolving, rows=count, versions=versions)
        return msgspec.structs.replace(write, counts=counts, digests=first.digests)

    def neighbours(self, asked: indexes.Neighbours) -> pa.Array[Any]:
        """The row ids of about the nearest rows, by a vector index."""
        with self._reading():
            return indexes.neighbours(self._pinned, asked)

    def why_untrainable(self, spec: IndexSpec) -> str | None:
        """Why the index cannot be built yet; None if it can."""
        return indexes.untrainable(self._pinned, spec)

    def broken_indexes(self) -> list[str]:
        """The indexes that cannot be read through; reads do without them."""
        return indexes.broken(self._pinned)

    def fragmentation(self) -> upkeep.Fragmentation:
        """How fragmented the table is; no data is read for it."""
        return upkeep.fragmentation(self._pinned)

    def plan_upkeep(self, specs: Sequence[IndexSpec], how: Upkeep | None = None) -> UpkeepPlan:
        """What the table needs to be fast again: fragments to compact, index segments to build.

        The tasks are for `run_upkeep_task`, or for `upkeep.run_at` on an executor.
        """
        return upkeep.plan(self._pinned, specs, how or Upkeep())

    def run_upkeep_task(self, task: UpkeepTask) -> Any:
        """Carry out one task of the plan; nobody sees the files it makes."""
        return upkeep.run(self._pinned.dataset, task, self._pinned.folder)

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
        self.derived = DerivedFiles(root, world, self.store)
        self._narrowing = Narrowing()

    def open(self, entry: TableEntry, *, alone: bool = False) -> Table:
        """The table at exactly the entry's location, branch and version; `alone` through a handle
        that nobody else uses, because building an index locks its handle."""
        try:
            line, version = (entry.location, entry.branch), entry.version
            dataset = self.sound(*line, self.own(*line, version)) if alone else self.at(*entry.pin)
        except NotFoundError as cause:
            # A version that is gone is told as people know it: by its type.
            raise NotFoundError(
                f"the data that {type_words(entry.table_key)} had at that commit is not kept "
                "any more",
                hint="cleanup removed it, or a schema change that drops data for good",
                kind="data",
                name=entry.table_key,
                location=entry.location,
                branch=entry.branch,
                version=entry.version,
            ) from cause
        return Table(
            Pinned(
                entry=entry,
                dataset=dataset,
                lines=self,
                meter=self.meter,
                narrowing=self._narrowing,
                derived=self.derived,
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
        if isinstance(write.transaction, stage.Rewrites):
            after, made = self._compact(write, write.transaction), None
        elif isinstance(write.transaction, stage.Evolving):
            after, made = self._evolve(write, write.transaction), None
        else:
            after, made = self._commit(write), write.transaction_uuid
        version = int(after.version)
        if version != write.version_after:
            raise IntegrityError(
                f"'{write.table_key}' landed at version {version}, not {write.version_after}",
                table_key=write.table_key,
                expected=write.version_after,
                actual=version,
            )
        self.sync(write.location, write.branch, after, since=write.pinned_version, uuid=made)
        self.remember(write.location, write.branch, after)
        return TableUpdate(
            table_key=write.table_key,
            version=version,
            branch=write.branch,
            row_count=write.row_count_after,
        )

    def discard(self, write: StagedWrite) -> None:
        """Delete the rows of a write that nobody will ever land or stage again."""
        folder = branch_folder(write.location, write.branch)
        delete_data(self.store, folder, stage.row_files(write))

    def show(self, write: StagedWrite) -> PendingEntry:
        """The table as it would be if the write landed, for whoever is given the entry. The head
        does not move, and the write may still be applied or discarded; then `hide` it."""
        dataset = self.at(write.location, write.branch, write.pinned_version)
        with translated(self.uri(write.location, write.branch), doing="show changes of"):
            shown = pylance.commit_detached(dataset, write.transaction)
        self.world.steps.reach(Step.PENDING_SHOWN)
        self.remember(write.location, write.branch, shown)
        return PendingEntry(
            table_key=write.table_key,
            location=write.location,
            branch=write.branch,
            version=int(shown.version),
            row_count=write.row_count_after,
            stands_on=write.pinned_version,
        )

    def hide(self, entry: PendingEntry) -> None:
        """Forget what `show` made; the rows stay as long as their write is needed."""
        self._open.drop(lambda pin: pin == entry.pin)
        folder = branch_folder(entry.location, entry.branch)
        self.store.delete(f"{folder}/_versions/d{entry.version}.manifest")

    def drop_shown(self, location: str, branch: str | None) -> None:
        """Forget all that was ever shown: whoever did so has died. Nobody may show anything now."""
        folder = f"{branch_folder(location, branch)}/_versions"
        for key in self.store.keys_beginning(f"{folder}/d"):
            if _SHOWN.fullmatch(key.rpartition("/")[2]):
                self.store.delete(key)

    def restore(self, location: str, branch: str | None, version: int, *, commit_id: str) -> int:
        """Make the content of an older version the newest one again, in the name of a graph commit
        (recovery only); whatever came after is buried. Returns the new version."""
        head, _ = self.whole_head(location, branch)
        since = int(head.version)
        with translated(self.uri(location, branch), doing="restore table"):
            transaction = Transaction(
                since, Op.Restore(version), str(uuid.uuid4()), {COMMIT_PROPERTY: commit_id}
            )
            after = pylance.commit(head, transaction)
        # Lance moves a restore over whatever came in between, so the version is not certain.
        self.sync(location, branch, after, since=since)
        self.remember(location, branch, after)
        return int(after.version)

    def stage_restore(self, entry: TableEntry, *, over: int) -> StagedWrite:
        """The entry's version as the newest one again, in place of all up to the version `over`;
        it lands on that one alone."""
        assert over > entry.version, "there is nothing to bury"
        transaction = Transaction(over, Op.Restore(entry.version), str(uuid.uuid4()), {})
        pin = msgspec.structs.replace(entry, version=over)
        return stage.staged_on(pin, "restore", transaction, rows=entry.row_count)

    # --- landing -----------------------------------------------------------------------------

    def _commit(self, write: StagedWrite) -> Any:
        dataset = self.at(write.location, write.branch, write.pinned_version)
        if write.operation in _REBASED:
            self._require_head(write)
        draft = write.transaction
        assert draft.read_version == write.pinned_version, "a write lands on what it was made on"
        properties = digests.as_properties(write.digests)
        if write.commit_id is not None:
            properties[COMMIT_PROPERTY] = write.commit_id
        transaction = Transaction(draft.read_version, draft.operation, draft.uuid, properties)
        try:
            return pylance.commit(dataset, transaction)
        except CommitConflictError as cause:
            landed = self._already_landed(write)
            if landed is not None:
                return landed
            raise self._moved(write) from cause
        except (OSError, ValueError) as cause:
            if pylance.is_refusal(cause):
                raise _refused(write, cause) from cause
            return self._after_a_fault(write, cause)

    def _compact(self, write: StagedWrite, rewrites: stage.Rewrites) -> Any:
        """Compaction takes two versions: Lance first reserves fragment numbers, then rewrites.

        Index segments that it relies on take one more before it.
        """
        self._require_head(write)
        base = write.pinned_version
        if rewrites.first is not None:
            part = msgspec.structs.replace(
                write,
                operation="index",
                version_after=base + 1,
                transaction=rewrites.first,
                digests=digests.NONE,
            )
            base = int(self._commit(part).version)
        note: str | None = None
        try:
            # Lance moves the handle it commits through, so it must be nobody else's.
            own = self.own(write.location, write.branch, base)
            before = pylance.segment_names(own)
            decode: Any = RewriteResult  # its stub forgets `from_json`
            results = [
                decode.from_json(upkeep.on_version(result, base, indexed=bool(before)))
                for result in rewrites.results
            ]
            # Before the commit: what Lance moves with it cannot carry a word of ours.
            note = self._note(write, write.digests)
            Compaction.commit(own, results, {})
        except (OSError, ValueError) as cause:
            sure = pylance.is_conflict(cause) or pylance.is_refusal(cause)
            # Danger: only what certainly did not land is taken back; its files go as well.
            if sure and note is not None:
                self.store.delete(note)
            if pylance.is_conflict(cause):
                raise self._moved(write) from cause
            if sure:
                raise _refused(write, cause) from cause
            raise self._unknown(write, cause) from cause
        after = self.head(write.location, write.branch)
        folder = self.uri(write.location, write.branch)
        # It made the indexes anew that its rows are in.
        moved = index_paths(folder, pylance.segment_names(after) - before)
        self._note(write, self.flusher.keep(folder, moved))
        return after

    def _note(self, write: StagedWrite, told: digests.Digests) -> str | None:
        return digests.note(self.store, branch_folder(write.location, write.branch), told)

    def _evolve(self, write: StagedWrite, evolving: stage.Evolving) -> Any:
        """The columns, then the rows. Who dies in between has left versions too few: the table does
        not stand where the sidecar promised it, so recovery puts it back."""
        for transaction in evolving.before:
            self._commit(_part(write, transaction))
            self.world.steps.reach(Step.TABLE_EVOLVED)
        if evolving.rows is None:
            return self._commit(_part(write, evolving.last))
        entry = TableEntry(
            table_key=write.table_key,
            location=write.location,
            version=write.pinned_version + len(evolving.before),
            branch=write.branch,
        )
        table = self.open(entry)
        rows = seal(evolving.rows, table.schema)
        staged = table.stage_change(
            rows, delete_ids=evolving.delete_ids, existing=evolving.existing
        )
        assert staged is not None, "rows that change nothing were not staged"
        assert staged.row_count_after == write.row_count_after, "what is told is what is done"
        draft = staged.transaction
        last = Transaction(draft.read_version, draft.operation, evolving.uuid, {})
        return self._commit(
            msgspec.structs.replace(staged, commit_id=write.commit_id, transaction=last)
        )

    def _require_head(self, write: StagedWrite) -> None:
        if self.head_version(write.location, write.branch) != write.pinned_version:
            raise self._moved(write)

    def _already_landed(self, write: StagedWrite) -> Any | None:
        """Our own write, if a lost answer made the client send it twice."""
        head = self.head(write.location, write.branch)
        if int(head.version) < write.version_after:
            return None
        # By identity, not by number: another writer may own the version.
        if pylance.transaction(head, write.version_after).uuid != write.transaction_uuid:
            return None
        return self.at(write.location, write.branch, write.version_after)

    def _after_a_fault(self, write: StagedWrite, cause: Exception) -> Any:
        """The store failed in the middle: find out whether the write landed all the same."""
        local = self.root.local_path is not None
        try:
            landed = self._already_landed(write)
        except OmnigraphError as second:
            if isinstance(second, CorruptGraphError) and local:
                raise  # a damaged version stands where ours belongs, so ours did not land
            raise self._unknown(write, cause) from cause
        if landed is not None:
            logger.warning("landed despite a fault", extra={"table": write.table_key})
            return landed
        if not local:
            # A request that we gave up on may still be on its way to the server.
            raise self._unknown(write, cause) from cause
        uri = self.uri(write.location, write.branch)
        raise pylance.unavailable(cause, uri=uri, doing="commit to table") from cause

    def _moved(self, write: StagedWrite) -> ExpectedVersionMismatchError:
        return ExpectedVersionMismatchError(
            table_key=write.table_key,
            expected=write.pinned_version,
            actual=self.head_version(write.location, write.branch),
        )

    def _unknown(self, write: StagedWrite, cause: BaseException) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"the store failed while '{write.table_key}' was being committed: {reason_of(cause)}",
            graph_commit_id=write.commit_id,
            table_key=write.table_key,
            uri=self.uri(write.location, write.branch),
        )


def _part(write: StagedWrite, transaction: Any) -> StagedWrite:
    """One of the versions that a write of several makes."""
    first = transaction.read_version == write.pinned_version
    return msgspec.structs.replace(
        write,
        operation="schema",
        pinned_version=transaction.read_version,
        version_after=transaction.read_version + 1,
        transaction=transaction,
        # Whichever part brings the files: all of them land, or the table is put back.
        digests=write.digests if first else digests.NONE,
    )


def _refused(write: StagedWrite, cause: BaseException) -> ConflictError:
    """A definite no. The writer undoes what landed before it, so that nothing of it stays."""
    return ConflictError(
        f"the change of '{write.table_key}' was refused: {reason_of(cause)}",
        hint="nothing was written; try again, and report this if it happens again",
        table_key=write.table_key,
    )
