"""What reading keeps in memory: frames, topologies and text indexes under one byte budget.

Everything is keyed by table version and derived. A newer version is made from the newest older one
by the difference between them, where that is cheaper than reading the table again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from omnigraph.engine.arrow import Array, pa
from omnigraph.engine.read.column import PATCH_ROWS_MAX, Positions, one_array
from omnigraph.engine.read.counters import Counters
from omnigraph.engine.read.frame import SMALL_TABLE_ROWS, Change, Frame
from omnigraph.engine.read.lookup import Lookups
from omnigraph.engine.read.shelf import Shelf
from omnigraph.engine.read.source import Source
from omnigraph.engine.read.text_index import TextIndex
from omnigraph.engine.read.topology import Topology
from omnigraph.engine.read.vectors import VectorBlock
from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import READ_CACHE_BYTES_MAX
from omnigraph.storage.table import Tables

LOOKUP_EDGES_MIN: Final = 50_000  # smaller edge tables are read whole at once
LOOKUP_WALKS: Final = 2  # walks of a big edge table before its adjacency is worth building


SLICED_SCANS: Final = 2  # queries over one big table before it is worth keeping in memory
FRAME_ROWS_MAX: Final = 20_000_000  # a bigger table is never read whole for a query over it alone


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


class Store:
    """Least recently used values, together no bigger than the budget (one value always stays)."""

    def __init__(self, budget_bytes: int) -> None:
        self._budget = budget_bytes
        self._lock = threading.RLock()
        self._values: OrderedDict[Hashable, Sized] = OrderedDict()

    def get(self, key: Hashable) -> Sized | None:
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
            return found

    def put(self, key: Hashable, value: Sized) -> None:
        with self._lock:
            self._values[key] = value
            self._values.move_to_end(key)
            self.trim()

    def trim(self) -> None:
        """Values grow while they are used, so the budget is looked at again from time to time."""
        with self._lock:
            sizes = {key: value.nbytes for key, value in self._values.items()}
            total = sum(sizes.values())
            while total > self._budget and len(self._values) > 1:
                key, _ = self._values.popitem(last=False)
                total -= sizes[key]

    def newest(self, matches: Callable[[Hashable], bool]) -> Sized | None:
        """The most recently used value whose key matches."""
        with self._lock:
            for key in reversed(self._values):
                if matches(key):
                    return self._values[key]
        return None

    @property
    def nbytes(self) -> int:
        with self._lock:
            return sum(value.nbytes for value in self._values.values())

    def clear(self) -> None:
        with self._lock:
            self._values.clear()


class Caches:
    """One per open graph; shared by its queries and threads."""

    def __init__(
        self,
        tables: Tables,
        *,
        budget_bytes: int = READ_CACHE_BYTES_MAX,
        shelf_folder: Path | None = None,
    ) -> None:
        self.counters = Counters()
        self.budget_bytes = budget_bytes
        self._tables = tables
        self._store = Store(budget_bytes)
        self._shelf = Shelf(tables, shelf_folder) if shelf_folder is not None else None
        self._building = threading.RLock()
        self._reads_at_trim = 0
        self._walks: dict[Hashable, int] = {}
        self._scans: dict[Hashable, int] = {}

    def source(self, entry: TableEntry) -> Source:
        return Source(self._tables.open(entry), self.counters)

    def frame(self, entry: TableEntry) -> Frame:
        """The frame of a table version, moved from an older one or read now."""
        key = ("frame", entry.location, entry.branch, entry.version)
        found = self._store.get(key)
        if found is None:
            with self._building:
                found = self._store.get(key)
                if found is None:
                    found = self._moved_frame(entry) or self._new_frame(entry)
                    self._store.put(key, found)
        assert isinstance(found, Frame)
        return found

    def known_frame(self, entry: TableEntry) -> Frame | None:
        """The frame if it is in memory, also when it first has to be moved forward."""
        key = ("frame", entry.location, entry.branch, entry.version)
        if self._store.get(key) is None and self._older(entry) is None:
            return None
        return self.frame(entry)

    def wants_slice(self, entry: TableEntry) -> bool:
        """Whether a query over this table alone should read just its part: big and rarely asked."""
        if entry.row_count <= SMALL_TABLE_ROWS or self.known_frame(entry) is not None:
            return False
        key = (entry.location, entry.branch)
        with self._building:
            asked = self._scans[key] = self._scans.get(key, 0) + 1
        return asked <= SLICED_SCANS or entry.row_count > FRAME_ROWS_MAX

    def _new_frame(self, entry: TableEntry) -> Frame:
        # Whoever asks for an edge frame first also wants the ends: one scan gives both.
        columns = ["id"] if entry.entity_kind == "node" else ["src", "dst"]
        return Frame.build(self.source(entry), columns)

    def _older(self, entry: TableEntry) -> Frame | None:
        found = self._store.newest(
            lambda key: (
                isinstance(key, tuple)
                and key[:3] == ("frame", entry.location, entry.branch)
                and key[3] < entry.version
            )
        )
        assert found is None or isinstance(found, Frame)
        return found

    def _moved_frame(self, entry: TableEntry) -> Frame | None:
        older = self._older(entry)
        return older.moved(self.source(entry)) if older is not None else None

    # --- topologies ---

    def lookups(self, edges: TableEntry, sources: Frame, targets: Frame) -> Lookups | None:
        """Lookups instead of a topology: for big edge tables, the first time they are walked."""
        key = (edges.location, edges.branch)
        if edges.row_count < LOOKUP_EDGES_MIN or self.known_frame(edges) is not None:
            return None
        if self._shelf is not None and self._shelf.has(edges, sources, targets):
            return None
        with self._building:
            walked = self._walks[key] = self._walks.get(key, 0) + 1
        return None if walked > LOOKUP_WALKS else Lookups(self.source(edges), sources, targets)

    def topology(self, edges: TableEntry, sources: Frame, targets: Frame) -> Topology:
        """The shape of an edge table version between two node frames."""
        if self._shelf is not None and self.known_frame(edges) is None:
            self._take_from_shelf(self._shelf, edges, sources, targets)
        frame = self.frame(edges)
        ends = (sources.lineage, targets.lineage)
        key = ("topology", *frame.source.pin, frame.lineage, ends)
        found = self._store.get(key)
        if found is None:
            with self._building:
                found = self._store.get(key)
                if found is None:
                    found = self._moved_topology(frame, sources, targets)
                    if found is None:
                        found = _built_topology(frame, sources, targets)
                        if self._shelf is not None:
                            self._shelf.save(frame, found, sources, targets)
                    self._store.put(key, found)
        assert isinstance(found, Topology)
        return found

    def _take_from_shelf(
        self, shelf: Shelf, edges: TableEntry, sources: Frame, targets: Frame
    ) -> None:
        """Put the edge frame and its topology in place as another process has left them."""
        stored = shelf.load(edges, sources, targets)
        if stored is None:
            return
        frame = Frame.bare(self.source(edges), stored.row_ids)
        ends = (sources.lineage, targets.lineage)
        with self._building:
            self._store.put(("frame", *frame.source.pin), frame)
            self._store.put(("topology", *frame.source.pin, frame.lineage, ends), stored.topology)

    def _moved_topology(self, frame: Frame, sources: Frame, targets: Frame) -> Topology | None:
        if frame.change is None:
            return None
        ends = (sources.lineage, targets.lineage)
        older = self._store.get(("topology", *frame.change.origin, frame.lineage, ends))
        if not isinstance(older, Topology):
            return None
        return _followed(older, frame.change, sources, targets)

    # --- text indexes ---

    def text_index(self, frame: Frame, column: str) -> TextIndex:
        """The words of one column of a frame."""
        key = ("text", *frame.source.pin, frame.lineage, column)
        found = self._store.get(key)
        if found is None:
            with self._building:
                found = self._store.get(key)
                if found is None:
                    found = self._moved_text(frame, column)
                    if found is None:
                        found = TextIndex.build(frame.column(column).whole(), frame.positions())
                    self._store.put(key, found)
        assert isinstance(found, TextIndex)
        return found

    def _moved_text(self, frame: Frame, column: str) -> TextIndex | None:
        change = frame.change
        if change is None:
            return None
        older = self._store.get(("text", *change.origin, frame.lineage, column))
        if not isinstance(older, TextIndex):
            return None
        if column not in change.added.column_names:
            return None
        at, values = _changed(frame, change, column)
        return older.moved(
            gone=np.concatenate([change.deleted_at, change.updated_at]),
            values=values,
            positions=at,
        )

    # --- vectors ---

    def vectors(self, frame: Frame, column: str, dimension: int) -> VectorBlock | None:
        """The vectors of a column for quick comparison; None if they would not fit."""
        if frame.length * dimension * 4 > self.budget_bytes // 4:
            return None
        key = ("vectors", *frame.source.pin, frame.lineage, column)
        found = self._store.get(key)
        if found is None:
            with self._building:
                found = self._store.get(key)
                if found is None:
                    found = self._moved_vectors(frame, column)
                    if found is None:
                        found = VectorBlock.build(frame.column(column).whole(), dimension)
                    self._store.put(key, found)
        assert isinstance(found, VectorBlock)
        return found

    def _moved_vectors(self, frame: Frame, column: str) -> VectorBlock | None:
        change = frame.change
        if change is None:
            return None
        older = self._store.get(("vectors", *change.origin, frame.lineage, column))
        if not isinstance(older, VectorBlock) or len(older.patch_at) > PATCH_ROWS_MAX:
            return None
        if not {column} <= set(change.added.column_names):
            return None
        at, values = _changed(frame, change, column)
        return older.moved(at, values, frame.length)

    def trim_if_grown(self) -> None:
        """Keep the budget; kept values grow only when something was read."""
        reads = self.counters.reads
        if reads != self._reads_at_trim:
            self._reads_at_trim = reads
            self._store.trim()

    @property
    def nbytes(self) -> int:
        return self._store.nbytes

    def clear(self) -> None:
        self._store.clear()


def _changed(frame: Frame, change: Change, column: str) -> tuple[Positions, Array]:
    """The positions that changed, updated ones first, and their values now."""
    first = frame.length - change.added.num_rows
    added_at = np.arange(first, frame.length, dtype=np.int64)
    values = pa.concat_arrays([one_array(change.updated[column]), one_array(change.added[column])])
    return np.concatenate([change.updated_at, added_at]), values


def _built_topology(frame: Frame, sources: Frame, targets: Frame) -> Topology:
    src, dst = frame.release(["src", "dst"])
    return Topology.build(
        sources.lookup_all(src).astype(np.int32),
        targets.lookup_all(dst).astype(np.int32),
        nodes_from=sources.length,
        nodes_to=targets.length,
    )


def _followed(older: Topology, change: Change, sources: Frame, targets: Frame) -> Topology | None:
    """The topology after a change of its edge table; None if edges were given other ends."""
    if len(change.updated_at):
        src = sources.lookup_all(one_array(change.updated["src"]))
        dst = targets.lookup_all(one_array(change.updated["dst"]))
        same_src = older.src.view[change.updated_at] == src
        if not (same_src & (older.dst.view[change.updated_at] == dst)).all():
            return None
    return older.moved(
        sources.lookup_all(one_array(change.added["src"])).astype(np.int32),
        targets.lookup_all(one_array(change.added["dst"])).astype(np.int32),
        change.deleted_at,
    )
