"""A frame: one table version as columns in memory, where positions 0, 1, 2, … stand for entities.

Positions follow row ids. Within one *lineage* (a frame and those moved from it) a position keeps
its meaning for ever: new rows come at the end, deleted rows leave a hole. Columns are loaded when
they are needed, by a table that counts what was read of it. Everything here is derived from
storage and may be dropped at any time.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Final, TypeVar

import numpy as np

from omnigraph.engine.arrow import Array, ArrowTable, flat, pa, pc, picked, uint64_array
from omnigraph.engine.read.memory.arrays import (
    NO_POSITIONS,
    PATCH_ROWS_MAX,
    Column,
    Mask,
    Positions,
    RowIdList,
    RowIds,
    SmallPositions,
    array_bytes,
    distinct_sorted,
    places_among,
)
from omnigraph.engine.read.memory.builds import Builds, Thing
from omnigraph.engine.read.memory.change import Change, last_changes
from omnigraph.engine.read.memory.codes import Coded
from omnigraph.engine.read.memory.compressed import Checkpoint, no_checkpoint
from omnigraph.engine.read.memory.counted import CountedTable
from omnigraph.engine.read.memory.id_order import IdOrder
from omnigraph.engine.read.memory.ids import ONE_BY_ONE_MAX, IdTable, id_array, places_of
from omnigraph.engine.read.memory.prints import Prints
from omnigraph.engine.read.memory.selection import Selection
from omnigraph.engine.read.memory.threads import end_turn, work_alone
from omnigraph.model.schema import ROW_ID

SMALL_TABLE_ROWS: Final = 16_384  # below this a whole column is read at the first touch
HOT_FETCHES: Final = 2  # a column asked for this often is read whole
ROWS_PER_FETCH: Final = 1 << 19  # or by a few positions as often as it has so many rows
WHOLE_SHARE: Final = 8  # from this part of the rows on, the whole column is read
CODED_SHARE: Final = 8  # and from this part on, the whole column gets codes
MOVED_SHARE_MAX: Final = 0.25  # a bigger difference than this share of the table is a rebuild
COLUMN_BYTES_MAX: Final = 512 * 1024 * 1024  # a bigger column is never kept whole
GONE_SHARE_MAX: Final = 0.5  # more holes than this share of the positions are a rebuild
SEARCHED_IDS_MAX: Final = 1024  # more ids are looked up in a table of all ids, which is made then
SEARCHES_MAX: Final = 16  # from this search of a walk on, a table is better
PRINTED_ROWS_MIN: Final = 1 << 17  # fewer ids are read whole at once
BESIDE_IDS_MIN: Final = 1 << 19  # of so many ids the table is made while queries go on without it

T = TypeVar("T")

_lineages = itertools.count(1)


class Frame:
    """One table version. Safe to share between threads."""

    def __init__(
        self,
        table: CountedTable,
        row_ids: RowIdList,
        columns: dict[str, Column],
        *,
        lineage: int,
        gone: Positions = NO_POSITIONS,
        ids: IdTable | None = None,
        changes: tuple[Change, ...] = (),
        fresh: bool = True,
        part: bool = False,
    ) -> None:
        self.table = table
        self.lineage = lineage
        self.changes = changes  # the last ones that led here, one after the other
        self.fresh = fresh  # positions are those of a table that was just read
        self.part = part
        self.gone = gone  # the positions that are not alive, ascending
        self.length = row_ids.length
        self._row_ids = row_ids
        self._columns = columns
        self._ids = ids
        self._fetches: dict[str, int] = {}
        self._followed: frozenset[str] = frozenset()
        self._alive: Mask | None = None
        self._living: Selection | None = None
        self._id_searches = 0
        self._printable: bool | None = None
        self._prints: Prints | None = None  # of the ids, while they are looked for in storage
        self._stored_prints: Callable[[Frame], Prints | None] = lambda _: None
        self.builds: Builds | None = None  # who makes the table of many ids beside queries
        self._id_order = IdOrder()
        self._coded: dict[str, Coded] = {}
        # Codes of earlier versions, and the positions that changed since: moved when asked for.
        self._coded_before: dict[str, tuple[Coded, Positions]] = {}
        # Held for moments only: whoever makes something holds the lock of that thing.
        self._lock = threading.Lock()
        self._making: dict[Hashable, threading.RLock] = {}

    @classmethod
    def of(cls, table: CountedTable, rows: ArrowTable, *, part: bool = False) -> Frame:
        """From rows that were read already. Of a `part` of the table, no column is read whole."""
        rows = _by_row_id(rows)
        names = [name for name in rows.column_names if name != ROW_ID]
        loaded = {name: Column.of(flat(rows[name])) for name in names}
        row_ids = RowIdList.of(_row_ids(rows))
        return cls(table, row_ids, loaded, lineage=next(_lineages), part=part)

    @classmethod
    def bare(
        cls,
        table: CountedTable,
        row_ids: RowIdList,
        stored_prints: Callable[[Frame], Prints | None] = lambda _: None,
    ) -> Frame:
        """A frame of which nothing but row ids is known, and what others have left of its ids."""
        made = cls(table, row_ids, {}, lineage=next(_lineages))
        made._stored_prints = stored_prints
        return made

    def release(self, names: Sequence[str]) -> list[Array] | None:
        """Hand whole columns over and keep them no longer; None if they are not all here."""
        with self._lock:
            if not all(name in self._columns for name in names):
                return None
            return [self._columns.pop(name).whole() for name in names]

    # --- positions ---

    @property
    def row_ids(self) -> RowIdList:
        return self._row_ids

    @property
    def alive(self) -> Mask | None:
        """Which positions are alive; None if all are."""
        if self._alive is None and len(self.gone):
            alive = np.ones(self.length, dtype=np.bool_)
            alive[self.gone] = False
            self._alive = alive
        return self._alive

    def living(self) -> Selection:
        """Every living position."""
        if self._living is None:
            self._living = Selection.without(self.length, self.gone)
        return self._living

    def at_row_ids(self, row_ids: RowIds) -> Positions:
        """The positions of these rows, -1 for rows that are not here."""
        return self._row_ids.places(row_ids)

    def lookup(self, ids: Sequence[str]) -> Positions:
        """The living positions of these ids, -1 for unknown ones."""
        known = self._ids
        if known is None:
            self._id_searches += 1
            # Whoever asks a second time will ask again.
            known = self._ids_soon() if self._id_searches >= HOT_FETCHES else None
        if known is not None and len(ids) <= ONE_BY_ONE_MAX:
            found = np.fromiter(map(known.get, ids), dtype=np.int64, count=len(ids))
        else:
            found = self._find(id_array(ids))
        return self._only_living(found)

    def lookup_all(self, ids: Array) -> Positions:
        """The same for a column of ids, which may have nulls. Other threads go on meanwhile."""
        return self._only_living(self._find(flat(ids)))

    def _find(self, ids: Array) -> Positions:
        """The positions of these ids, also of rows that are gone, -1 for unknown ones."""
        known = self._ids
        if known is None and len(ids) <= SEARCHED_IDS_MAX < self.length:
            self._id_searches += 1
            known = self._ids_soon() if self._id_searches > SEARCHES_MAX else None
            if known is None:
                return self._searched(ids)
        return (known or self._id_table()).find(ids)

    def _searched(self, ids: Array) -> Positions:
        """The same for few ids without a table: by storage, or by a look at every id in memory."""
        column = self._columns.get("id")
        if column is not None and self._prints is None:
            at = places_of(column, ids.unique().drop_null())
            known = column.take(at)
        else:
            assert not len(self.gone), "storage knows nothing of the ids of rows that are gone"
            rows = self._meant(ids)
            known, at = flat(rows["id"]), self.at_row_ids(_row_ids(rows))
        places = pc.index_in(ids, value_set=known, skip_nulls=True).fill_null(len(at))
        found: Positions = np.append(at, -1)[places.to_numpy(zero_copy_only=False)]
        return found

    def _meant(self, ids: Array) -> ArrowTable:
        """The rows of storage that have these ids, and perhaps others."""
        prints = self._prints
        if prints is None and self._can_have_prints():
            with self._lock_of("prints"):
                known = self._prints or self._stored_prints(self)
                prints = self._prints = known or Prints.of(self.table, "id")
        meant = None if prints is None else prints.meant(ids)
        if meant is None:
            return self.table.lookup(ids)
        column = self.table.take(meant, ["id"])
        return column.append_column(ROW_ID, uint64_array(meant))

    def prints_of_ids(self) -> Prints | None:
        """The fingerprints of ids that are in memory, if they are many and row ids are places."""
        ids = self._columns.get("id")
        if ids is None or self.length <= PRINTED_ROWS_MIN or self._row_ids.first_of_range != 0:
            return None
        return Prints.of_texts(ids)

    def _can_have_prints(self) -> bool:
        if self._printable is None:
            big = not self.part and self.length > PRINTED_ROWS_MIN
            self._printable = big and Prints.can_be(self.table, "id")
        return self._printable

    def _ids_soon(self) -> IdTable | None:
        """The table of all ids; None while another thread makes one of many ids."""
        if self.builds is None or self.length < BESIDE_IDS_MIN:
            return self._id_table()

        def make(checkpoint: Checkpoint) -> None:
            work_alone()  # whoever moves this frame waits for it, also in a thread of the pool
            self._id_table(checkpoint)

        version = (self.lineage, self.table.entry.pin)
        if self.builds.going_on(self._ids_of_table, version, make):
            return self._ids
        return self._id_table()

    @property
    def _ids_of_table(self) -> Thing:
        return Thing("ids", self.table.entry.location)

    def _id_table(self, checkpoint: Checkpoint = no_checkpoint) -> IdTable:
        if self._ids is None:
            with self._lock_of("id table"):
                if self._ids is None:
                    self._ids = IdTable.of(self.column("id"), checkpoint)
                    self._prints = None  # nobody asks storage again
        return self._ids

    def _wait_for_ids(self) -> None:
        """What another thread is making is worth more than a wait for it: it follows the frame."""
        thread = None if self.builds is None else self.builds.thread_of(self._ids_of_table)
        if thread is not None:
            end_turn()
            thread.join()

    def _only_living(self, positions: Positions) -> Positions:
        if not len(self.gone):
            return positions
        if len(positions) <= SEARCHED_IDS_MAX:  # without a mask of everything
            return np.where(places_among(self.gone, positions) < 0, positions, -1)
        assert self.alive is not None, "there are positions that are not alive"
        return np.where((positions >= 0) & self.alive[positions], positions, -1)

    # --- values ---

    @property
    def nbytes(self) -> int:
        return sum(self.buffers().values())

    def buffers(self) -> dict[int, int]:
        """The size of each buffer that is held, by its address: versions share most of them."""
        with self._lock:
            columns, coded = [*self._columns.values()], [*self._coded.values()]
            coded += [codes for codes, _ in self._coded_before.values()]
            arrays: list[Any] = [self.gone, self._alive, *self._id_order.arrays()]
        held = self._row_ids.buffers() | ({} if self._ids is None else self._ids.buffers())
        prints = self._prints
        held |= {} if prints is None else prints.buffers()
        for array in arrays:
            if array is not None:
                held |= array_bytes(array)
        for column in columns:
            held |= column.buffers()
        for codes in coded:
            held |= codes.buffers()
        for change in self.changes:
            held[id(change)] = change.nbytes
        return held

    def parts(self) -> dict[str, dict[int, int]]:
        """The buffers of every column that can be let go of and read again, and of its codes. Ids
        go with the frame: other things rest on them, and storage forgets those of rows that are
        gone."""
        with self._lock:
            columns = {name: one for name, one in self._columns.items() if name != "id"}
            coded = dict(self._coded)
        return {
            name: column.buffers() | (coded[name].buffers() if name in coded else {})
            for name, column in columns.items()
        }

    def shed(self, name: str) -> None:
        """Let go of a column of `parts`; whoever needs it reads it again."""
        assert name != "id", "ids go with the frame"
        with self._lock:
            for kept in (self._columns, self._coded, self._coded_before):
                kept.pop(name, None)

    def is_hot(self, name: str) -> bool:
        """Whether the column is in memory, or has been asked for so often that it should be."""
        return name in self._columns or self._fetches.get(name, 0) >= HOT_FETCHES

    def is_kept(self, name: str) -> bool:
        """Whether the column is in memory."""
        return name in self._columns

    def note_use(self, name: str) -> int:
        """Count a use of a column that is not in memory."""
        with self._lock:
            asked = self._fetches[name] = self._fetches.get(name, 0) + 1
        return asked

    def follow(self, name: str) -> None:
        """From now on every change tells what became of the column, whether it is kept or not."""
        with self._lock:
            self._followed |= {name}

    def column(self, name: str) -> Column:
        """The whole column, read now if it is not in memory."""
        return self._kept(self._columns, name, lambda: Column.of(self.load([name])[0]))

    def load(self, names: Sequence[str]) -> list[Array]:
        """Whole columns by position, read from storage and not kept."""
        rows = _by_row_id(self.table.read(names))
        arrays, row_ids = [flat(rows[name]) for name in names], _row_ids(rows)
        if self._row_ids.equal(row_ids):
            return arrays
        places = places_among(row_ids, self._row_ids.all())  # the frame has holes, or is a part
        return [Column.of(array).take(places) for array in arrays]

    def held(self, name: str, rows: int) -> Column | None:
        """The whole column if it is in memory, or is worth reading now for so many rows."""
        known = self._columns.get(name)
        if known is None and self._worth_keeping(name, rows):
            known = self.column(name)
        return known

    def fetch(self, name: str, rows: Positions | Selection) -> Array:
        """The values at the positions (null at -1): from memory, or only these rows' from storage.

        A column that is asked for again and again is read whole and kept.
        """
        known = self.held(name, rows.count if isinstance(rows, Selection) else len(rows))
        if isinstance(rows, Selection):
            if known is not None:
                return rows.values(known)
            rows = rows.positions()
        if known is not None:
            return known.take(rows)
        return self.taken(name, rows)

    def taken(self, name: str, rows: Positions) -> Array:
        """The values at the positions (null at -1), from storage whatever is in memory."""
        wanted, back = np.unique(rows, return_inverse=True)
        holes = int(len(wanted) > 0 and wanted[0] < 0)
        values = flat(self.table.take(self._row_ids.take(wanted[holes:]), [name])[name])
        return Column.of(values).take(back - holes)

    def slices(
        self, name: str, *, rows: int, nbytes: int, fragments: Sequence[int] | None = None
    ) -> Iterator[tuple[Positions, Array]]:
        """The values of a whole column with their positions, or of some fragments of the table, in
        slices of about so many rows, or fewer where these have so many bytes. A column that is not
        in memory is not kept."""
        known = self._columns.get(name)
        if known is None or fragments is not None:
            for some in self.table.slices([name], rows=rows, nbytes=nbytes, fragments=fragments):
                yield self.at_row_ids(_row_ids(some)), flat(some[name])
            return
        for part in self.living().parts:
            positions, values = part.positions(), part.of(known)
            step = max(1, min(rows, len(values) * nbytes // max(values.nbytes, 1)))
            for first in range(0, len(values), step):
                yield positions[first : first + step], values.slice(first, step)

    def codes_for(self, name: str, rows: int) -> Coded | None:
        """The codes of a column, if they pay for so many rows or are there already."""
        worth = rows * CODED_SHARE > self.length and self.held(name, rows) is not None
        return self.coded(name) if worth or name in self._coded else None

    def coded(self, name: str) -> Coded:
        """The column as numbers, equal where its values are equal in groups."""

        def make() -> Coded:
            column = self.column(name)
            with self._lock:
                before = self._coded_before.pop(name, None)
            moved = before and before[0].moved(column, before[1], self.alive)
            return moved or Coded.of(column, self.alive)

        return self._kept(self._coded, name, make)

    def ids_ascend(self) -> bool:
        """Whether ids have the order of their positions."""
        return self._id_order.ascends(self.column("id"))

    def id_order(self) -> SmallPositions:
        """Every position, by the ids."""
        return self._id_order.order(self.column("id"))

    def id_ranks(self) -> SmallPositions:
        """By position: the place of the id among all ids of the table."""
        return self._id_order.ranks(self.column("id"))

    def _kept(self, kept: dict[str, T], name: str, make: Callable[[], T]) -> T:
        """What is kept under the name, or made now, by one thread while others wait for it."""
        found = kept.get(name)
        if found is None:
            end_turn()
            with self._lock_of((id(kept), name)):
                found = kept.get(name)
                if found is None:
                    found = make()
                    with self._lock:
                        kept[name] = found
        return found

    def _lock_of(self, what: Hashable) -> threading.RLock:
        with self._lock:
            return self._making.setdefault(what, threading.RLock())

    def _worth_keeping(self, name: str, wanted: int) -> bool:
        if self.part:
            return False
        asked = self.note_use(name)
        if self.length <= SMALL_TABLE_ROWS:
            return True
        # A few rows of a big table are read in the time that so many others of it take. One query
        # may ask twice, for its order and for its answer.
        hot = max(HOT_FETCHES + 1, self.length // ROWS_PER_FETCH)
        often = wanted * WHOLE_SHARE >= self.length or asked >= hot
        return often and self.fits(name)

    def fits(self, name: str) -> bool:
        """Whether the column is in memory or small enough to be."""
        if name in self._columns:
            return True
        return column_bytes(self.table, [name]) <= COLUMN_BYTES_MAX

    # --- moving on ---

    def moved(self, table: CountedTable) -> Frame | None:
        """This frame at a later version of its table; None when building it anew is better."""
        new, old = table.stored, self.table.stored
        # The numbers tell a column from an earlier one of the same name and type.
        if new.schema != old.schema or new.column_numbers != old.column_numbers:
            return None
        self._wait_for_ids()
        with self._lock:
            loaded = dict(self._columns)
        kind = table.entry.entity_kind
        always = ("id",) if kind == "node" else ("src", "dst")
        wanted = dict.fromkeys([*always, *loaded, *sorted(self._followed)])
        delta = table.changes_since(self.table, [*wanted])
        changed = delta.inserted.num_rows + delta.updated.num_rows + len(delta.deleted_row_ids)
        if changed > max(64, self.length * MOVED_SHARE_MAX):
            return None
        added = _by_row_id(delta.inserted)
        # Positions follow row ids: a new row before the last known one would shift the others.
        row_ids = self._row_ids.extended(_row_ids(added))
        deleted_at = self.at_row_ids(np.asarray(delta.deleted_row_ids, dtype=np.uint64))
        updated_at = self.at_row_ids(_row_ids(delta.updated))
        # A row that this frame never had: it was not made from the version that we compare with.
        if row_ids is None or (deleted_at < 0).any() or (updated_at < 0).any():
            return None
        gone = np.union1d(self.gone, deleted_at) if len(deleted_at) else self.gone
        if len(gone) > max(64, row_ids.length * GONE_SHARE_MAX):
            return None
        if kind == "node":
            # Storage forgets the ids of rows that are gone, and the next look is for them too.
            if len(gone):
                loaded["id"] = self.column("id")
            # An id that comes back has a new row. Edges of other tables still mean the old
            # position, so the lineage ends here. Ids of rows that are there do not come again.
            if added.num_rows and len(gone):
                before = loaded["id"].take(gone)
                if pc.is_in(flat(added["id"]), value_set=before).true_count:
                    return None
        change = Change(
            origin=self.table.entry.pin,
            added=added,
            added_at=np.arange(self.length, row_ids.length, dtype=np.int64),
            updated_at=updated_at,
            updated=delta.updated,
            deleted_at=deleted_at,
            length=row_ids.length,
            nbytes=added.nbytes + delta.updated.nbytes,
        )
        return self._followed_by(table, change, row_ids, gone, loaded)

    def change_since(self, older: CountedTable, column: str) -> Change | None:
        """What became of a column since an earlier version that a frame of this lineage had; None
        when it is better to begin anew."""
        delta = self.table.changes_since(older, [column])
        added = _by_row_id(delta.inserted)
        added_at, updated_at = (
            self.at_row_ids(_row_ids(added)),
            self.at_row_ids(_row_ids(delta.updated)),
        )
        deleted_at = self.at_row_ids(np.asarray(delta.deleted_row_ids, dtype=np.uint64))
        touched = np.concatenate([added_at, updated_at, deleted_at])
        if len(touched) > max(64, self.length * MOVED_SHARE_MAX) or (touched < 0).any():
            return None
        return Change(
            origin=older.entry.pin,
            added=added,
            added_at=added_at,
            updated_at=updated_at,
            updated=delta.updated,
            deleted_at=deleted_at,
            length=self.length,
            nbytes=added.nbytes + delta.updated.nbytes,
        )

    def _followed_by(
        self,
        table: CountedTable,
        change: Change,
        row_ids: RowIdList,
        gone: Positions,
        loaded: dict[str, Column],
    ) -> Frame:
        """The frame after the change, with what is known of the columns before it."""
        frame = Frame(
            table,
            row_ids,
            loaded,
            lineage=self.lineage,
            gone=gone,
            changes=last_changes([*self.changes, change]),
            fresh=False,
        )
        for name, column in loaded.items():
            changes = change.values(name)
            if changes is not None and len(changes[0]):
                loaded[name] = column.patched(*changes, row_ids.length)
        if table.entry.entity_kind == "node" and self._ids is not None:
            frame._ids = self._ids.extended(frame.column("id"))
        frame.builds = self.builds
        frame._followed = self._followed
        frame._coded_before = self._coded_since(change)
        frame._id_order = self._id_order.moved()
        frame._fetches = dict(self._fetches)
        frame._id_searches = self._id_searches
        return frame

    def _coded_since(self, change: Change) -> dict[str, tuple[Coded, Positions]]:
        """What is known here of codes, with all positions that changed up to after the change."""
        changed = change.touched
        with self._lock:
            known = {name: (codes, changed) for name, codes in self._coded.items()}
            for name, (codes, earlier) in self._coded_before.items():
                known[name] = (codes, np.concatenate([earlier, changed]))
        return {
            name: (codes, distinct_sorted(at))
            for name, (codes, at) in known.items()
            if len(at) <= PATCH_ROWS_MAX
        }


def column_bytes(table: CountedTable, names: Sequence[str]) -> int:
    """About how many bytes whole columns would take."""
    return table.entry.row_count * sum(
        _width(table.stored.schema.field(name).type) for name in names
    )


def _width(kind: Any) -> int:
    """How many bytes a value has, about."""
    if pa.types.is_fixed_size_list(kind):
        return int(4 * kind.list_size)
    return max(1, kind.bit_width // 8) if pa.types.is_primitive(kind) else 32


def _row_ids(rows: ArrowTable) -> RowIds:
    found: RowIds = flat(rows[ROW_ID]).to_numpy(zero_copy_only=False)
    return found


def _by_row_id(rows: ArrowTable) -> ArrowTable:
    row_ids = _row_ids(rows)
    if len(row_ids) < 2 or (row_ids[1:] > row_ids[:-1]).all():
        return rows
    ordered: ArrowTable = picked(rows, np.argsort(row_ids))
    return ordered
