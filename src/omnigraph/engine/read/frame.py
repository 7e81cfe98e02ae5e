"""A table version as columns in memory: positions 0, 1, 2, … stand for entities.

Positions follow row ids. Within one *lineage* (a frame and those moved from it) a position keeps
its meaning for ever: new rows come at the end, deleted rows leave a hole. Columns are loaded when
they are needed; everything here is derived from storage and may be dropped at any time.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from omnigraph.engine.arrow import Array, ArrowTable, pa, pc
from omnigraph.engine.expr.order import equal_codes
from omnigraph.engine.read.column import Column, Growable, Mask, Positions, one_array
from omnigraph.engine.read.source import ROW_ID, RowIds, Source

SMALL_TABLE_ROWS: Final = 16_384  # below this a whole column is read at the first touch
HOT_FETCHES: Final = 2  # a column asked for this often by position is read whole
MOVED_SHARE_MAX: Final = 0.25  # a bigger difference than this share of the table is a rebuild
ADDED_IDS_MAX: Final = 4096
COLUMN_BYTES_MAX: Final = 512 * 1024 * 1024  # a bigger column is never kept whole
SEARCHED_IDS_MAX: Final = 4  # so few ids are looked for one by one before there is a map

_ID_ORDER, _ID_RANKS = "#order", "#ranks"  # beside the codes of columns, whose names are others
_lineages = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How a frame came from an older one: what a topology needs to follow it."""

    origin: tuple[str, str | None, int]
    added: ArrowTable  # rows at the new positions, in their order
    updated_at: Positions
    updated: ArrowTable
    deleted_at: Positions


class Frame:
    """One table version. Safe to share between threads."""

    def __init__(
        self,
        source: Source,
        row_ids: Growable,
        alive: Mask | None,
        columns: dict[str, Column],
        *,
        lineage: int,
        ids: IdMap | None = None,
        change: Change | None = None,
        part: bool = False,
    ) -> None:
        self.source = source
        self.lineage = lineage
        self.change = change
        self.part = part
        self.alive = alive
        self.length = row_ids.length
        self.live = self.length if alive is None else int(np.count_nonzero(alive))
        self._row_ids = row_ids
        self._columns = columns
        self._ids = ids
        self._fetches: dict[str, int] = {}
        self._living: Positions | None = None
        self._codes: dict[str, Positions] = {}
        self._lock = threading.RLock()

    @classmethod
    def build(cls, source: Source, columns: Sequence[str]) -> Frame:
        """Read the columns (and the row ids) of the whole table once."""
        return cls.of(source, source.read(columns))

    @classmethod
    def of(cls, source: Source, table: ArrowTable, *, part: bool = False) -> Frame:
        """From rows that were read already. Of a `part` of the table, no column is read whole."""
        row_ids = one_array(table[ROW_ID]).to_numpy(zero_copy_only=False)
        if len(row_ids) > 1 and not (row_ids[1:] > row_ids[:-1]).all():
            order = np.argsort(row_ids)
            row_ids = row_ids[order]
            table = table.take(pa.array(order))
        names = [name for name in table.column_names if name != ROW_ID]
        loaded = {name: Column.of(one_array(table[name])) for name in names}
        return cls(source, Growable(row_ids), None, loaded, lineage=next(_lineages), part=part)

    @classmethod
    def bare(cls, source: Source, row_ids: RowIds) -> Frame:
        """A frame whose row ids are known already and whose columns are all still to be read."""
        return cls(source, Growable(row_ids), None, {}, lineage=next(_lineages))

    def release(self, names: Sequence[str]) -> list[Array]:
        """Hand whole columns over and keep them no longer; read them if they are not here."""
        with self._lock:
            if not all(name in self._columns for name in names):
                return self.load(names)
            return [self._columns.pop(name).whole() for name in names]

    # --- positions ---

    @property
    def row_ids(self) -> RowIds:
        return self._row_ids.view

    def positions(self) -> Positions:
        """Every living position, ascending."""
        if self._living is None:
            if self.alive is None:
                self._living = np.arange(self.length, dtype=np.int64)
            else:
                self._living = np.flatnonzero(self.alive)
        return self._living

    def at_row_ids(self, row_ids: RowIds) -> Positions:
        """The positions of these rows, -1 for rows that are not here."""
        if not len(self.row_ids):
            return np.full(len(row_ids), -1, dtype=np.int64)
        found = np.searchsorted(self.row_ids, row_ids)
        found[found == self.length] = 0
        return np.where(self.row_ids[found] == row_ids, found, -1)

    def lookup(self, ids: Sequence[str]) -> Positions:
        """The living positions of these ids, -1 for unknown ones."""
        if self._ids is None and len(ids) <= SEARCHED_IDS_MAX and not self._asked_often():
            column = self.column("id").whole()
            found = np.asarray([pc.index(column, one).as_py() for one in ids], dtype=np.int64)
            return self._only_living(found)
        known = self.id_map
        found = np.fromiter((known.get(one) for one in ids), dtype=np.int64, count=len(ids))
        return self._only_living(found)

    def lookup_all(self, ids: Array) -> Positions:
        """The same for a long column of ids."""
        if len(ids) <= ADDED_IDS_MAX and self._ids is not None:
            return self.lookup(ids.to_pylist())
        found = pc.index_in(ids, value_set=self.column("id").whole())
        return self._only_living(
            pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        )

    def _asked_often(self) -> bool:
        """A map of all ids pays from the second lookup on."""
        return self.note_use("#ids") >= HOT_FETCHES

    def _only_living(self, positions: Positions) -> Positions:
        if self.alive is None or not len(positions):
            return positions
        return np.where((positions >= 0) & self.alive[positions], positions, -1)

    @property
    def id_map(self) -> IdMap:
        with self._lock:
            if self._ids is None:
                self._ids = IdMap.of(self.column("id").whole())
            return self._ids

    # --- values ---

    @property
    def nbytes(self) -> int:
        with self._lock:
            columns = sum(column.nbytes for column in self._columns.values())
            columns += sum(codes.nbytes for codes in self._codes.values())
        ids = 0 if self._ids is None else self._ids.nbytes
        return columns + ids + int(self.row_ids.nbytes)

    def is_hot(self, name: str) -> bool:
        """Whether the column is in memory, or has been asked for so often that it should be."""
        return name in self._columns or self._fetches.get(name, 0) >= HOT_FETCHES

    def note_use(self, name: str) -> int:
        """Count a use of a column that is not in memory."""
        with self._lock:
            asked = self._fetches[name] = self._fetches.get(name, 0) + 1
        return asked

    def column(self, name: str) -> Column:
        """The whole column, read now if it is not in memory."""
        known = self._columns.get(name)
        if known is not None:
            return known
        with self._lock:
            known = self._columns.get(name)
            if known is None:
                known = Column.of(self.load([name])[0])
                self._columns[name] = known
            return known

    def load(self, names: Sequence[str]) -> list[Array]:
        """Whole columns by position, read from storage and not kept."""
        table = self.source.read(names)
        row_ids = one_array(table[ROW_ID]).to_numpy(zero_copy_only=False)
        arrays = [one_array(table[name]) for name in names]
        if len(row_ids) == self.length and (row_ids == self.row_ids).all():
            return arrays
        at = self.at_row_ids(row_ids)
        here = np.flatnonzero(at >= 0)  # the frame may be a part of its table
        place = np.full(self.length, -1, dtype=np.int64)
        place[at[here]] = here
        indices = pa.array(place, mask=place < 0)
        return [array.take(indices) for array in arrays]

    def fetch(self, name: str, positions: Positions) -> Array:
        """The values at the positions (null at -1): from memory, or only these rows' from storage.

        A column that is asked for again and again is read whole and kept.
        """
        known = self._columns.get(name)
        if known is None and self._worth_keeping(name, len(positions)):
            known = self.column(name)
        if known is not None:
            everything = positions is self._living and self.alive is None
            return known.whole() if everything else known.take(positions)
        wanted, back = np.unique(positions, return_inverse=True)
        holes = int(len(wanted) > 0 and wanted[0] < 0)
        values = one_array(self.source.take(self.row_ids[wanted[holes:]], [name])[name])
        back = back - holes
        return values.take(pa.array(back, mask=back < 0) if holes else pa.array(back))

    def codes(self, name: str) -> Positions:
        """By position: equal values have equal numbers, null is -1."""
        return self._made(name, lambda: equal_codes(self.column(name).whole()))

    def id_order(self) -> Positions:
        """Every position, by the ids."""
        return self._made(_ID_ORDER, self._sorted_ids)

    def id_ranks(self) -> Positions:
        """By position: the place of the id among all ids of the table."""
        return self._made(_ID_RANKS, lambda: _inverse(self.id_order()))

    def _sorted_ids(self) -> Positions:
        order = pc.sort_indices(self.column("id").whole()).to_numpy()
        return np.asarray(order, dtype=np.int64)

    def _made(self, key: str, make: Callable[[], Positions]) -> Positions:
        with self._lock:
            known = self._codes.get(key)
        if known is None:
            known = make()
            with self._lock:
                self._codes[key] = known
        return known

    def _worth_keeping(self, name: str, wanted: int) -> bool:
        if self.part:
            return False
        asked = self.note_use(name)
        if self.length <= SMALL_TABLE_ROWS:
            return True
        often = wanted * 8 >= self.length or asked >= HOT_FETCHES
        return often and self.length * self._width(name) <= COLUMN_BYTES_MAX

    def fits(self, name: str) -> bool:
        """Whether the column is in memory or small enough to be."""
        return name in self._columns or self.length * self._width(name) <= COLUMN_BYTES_MAX

    def _width(self, name: str) -> int:
        """About how many bytes a value takes."""
        kind = self.source.schema.field(name).type
        return 4 * kind.list_size if pa.types.is_fixed_size_list(kind) else 32

    # --- moving on ---

    def moved(self, source: Source) -> Frame | None:
        """This frame at a later version of its table; None when building it anew is better."""
        if source.schema != self.source.schema:
            return None
        if source.column_numbers != self.source.column_numbers:
            return None
        with self._lock:
            loaded = dict(self._columns)
        kind = source.entry.entity_kind
        always = ("id",) if kind == "node" else ("src", "dst")
        delta = source.changes_since(self.source, [*dict.fromkeys([*always, *loaded])])
        changed = delta.inserted.num_rows + delta.updated.num_rows + len(delta.deleted_row_ids)
        if changed > max(64, self.length * MOVED_SHARE_MAX):
            return None
        added = _by_row_id(delta.inserted)
        new_ids = one_array(added[ROW_ID]).to_numpy(zero_copy_only=False)
        if len(new_ids) and self.length and new_ids[0] <= self.row_ids[-1]:
            return None
        deleted_at = self.at_row_ids(np.asarray(delta.deleted_row_ids, dtype=np.uint64))
        updated_at = self.at_row_ids(
            one_array(delta.updated[ROW_ID]).to_numpy(zero_copy_only=False)
        )
        if (deleted_at < 0).any() or (updated_at < 0).any():
            return None
        ids = self._moved_ids(added)
        if ids is None and kind == "node" and self._ids is not None:
            return None
        if ids is None and kind == "node" and self._returns(added):
            return None
        row_ids = self._row_ids.extended(new_ids)
        changed_at = np.concatenate(
            [updated_at, np.arange(self.length, row_ids.length, dtype=np.int64)]
        )
        columns = {}
        for name, column in loaded.items():
            if len(changed_at):
                values = pa.concat_arrays([one_array(delta.updated[name]), one_array(added[name])])
                column = column.patched(changed_at, values, row_ids.length)
            columns[name] = column
        frame = Frame(
            source,
            row_ids,
            self._moved_alive(row_ids.length, deleted_at),
            columns,
            lineage=self.lineage,
            ids=ids,
            change=Change(
                origin=self.source.pin,
                added=added,
                updated_at=updated_at,
                updated=delta.updated,
                deleted_at=deleted_at,
            ),
        )
        frame._fetches = dict(self._fetches)
        return frame

    def _moved_ids(self, added: ArrowTable) -> IdMap | None:
        if self._ids is None or "id" not in added.column_names:
            return None
        # An id that comes back has a new row. Edges of other tables still mean the old position,
        # so the lineage ends here.
        ids: list[Any] = added["id"].to_pylist()
        return self._ids.extended(ids, self.length)

    def _returns(self, added: ArrowTable) -> bool:
        """Whether a new row has an id that an older row of this lineage had."""
        if not added.num_rows:
            return False
        return bool(pc.any(pc.is_in(added["id"], value_set=self.column("id").whole())).as_py())

    def _moved_alive(self, length: int, deleted_at: Positions) -> Mask | None:
        if self.alive is None and not len(deleted_at):
            return None
        alive = np.ones(length, dtype=np.bool_)
        if self.alive is not None:
            alive[: self.length] = self.alive
        alive[deleted_at] = False
        return alive


def _inverse(order: Positions) -> Positions:
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order), dtype=np.int64)
    return ranks


def _by_row_id(table: ArrowTable) -> ArrowTable:
    row_ids = one_array(table[ROW_ID]).to_numpy(zero_copy_only=False)
    if len(row_ids) < 2 or (row_ids[1:] > row_ids[:-1]).all():
        return table
    return table.take(pa.array(np.argsort(row_ids)))


class IdMap:
    """Id to position. Versions share the big part and copy only the few that were added since."""

    __slots__ = ("_added", "_base")

    def __init__(self, base: dict[str, int], added: dict[str, int]) -> None:
        self._base = base
        self._added = added

    @classmethod
    def of(cls, ids: Array) -> IdMap:
        names = ids.to_pylist()
        return cls(dict(zip(names, range(len(names)), strict=True)), {})

    @property
    def nbytes(self) -> int:
        return 120 * (len(self._base) + len(self._added))  # an entry with its text, roughly

    def get(self, one: str) -> int:
        found = self._base.get(one)
        return found if found is not None else self._added.get(one, -1)

    def extended(self, ids: Sequence[str], first: int) -> IdMap | None:
        """With ids at `first`, `first` + 1, …; None if one of them is known already."""
        if any(self.get(one) >= 0 for one in ids):
            return None
        added = {**self._added, **{one: first + at for at, one in enumerate(ids)}}
        if len(added) > ADDED_IDS_MAX:
            return IdMap({**self._base, **added}, {})
        return IdMap(self._base, added)
