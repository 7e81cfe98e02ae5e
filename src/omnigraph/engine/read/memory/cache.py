"""What reading keeps in memory, under one byte budget: frames, and everything derived from them.

Everything is keyed by table version. A newer version is made from the newest older one by the
difference between them, where that is cheaper than reading the table again.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Final, Protocol, TypeVar, cast

import numpy as np

from omnigraph.engine.arrow import flat
from omnigraph.engine.read.explain import Counters
from omnigraph.engine.read.memory.frame import SMALL_TABLE_ROWS, Change, CountedTable, Frame
from omnigraph.engine.read.memory.topology import Lookups, Topology
from omnigraph.engine.read.memory.topology_files import TopologyFiles
from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import READ_CACHE_BYTES_MAX
from omnigraph.storage.table.table import Tables

LOOKUP_EDGES_MIN: Final = 50_000  # smaller edge tables are read whole at once
LOOKUP_WALKS: Final = 2  # walks of a big edge table before its topology is worth building
PUSHED_SCANS: Final = 2  # queries over one big table before it is worth keeping in memory
FRAME_ROWS_MAX: Final = 20_000_000  # a bigger table is never read whole for a query over it alone


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


S = TypeVar("S", bound=Sized)


class Kept:
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
        topology_folder: Path | None = None,
    ) -> None:
        self.counters = Counters()
        self.budget_bytes = budget_bytes
        self._tables = tables
        self._kept = Kept(budget_bytes)
        self._files = TopologyFiles(tables, topology_folder) if topology_folder else None
        self._building = threading.RLock()
        self._reads_at_trim = 0
        self._asked: Counter[Hashable] = Counter()

    def table(self, entry: TableEntry) -> CountedTable:
        return CountedTable(self._tables.open(entry), self.counters)

    def trim_if_grown(self) -> None:
        """Keep the budget; kept values grow only when something was read."""
        reads = self.counters.reads
        if reads != self._reads_at_trim:
            self._reads_at_trim = reads
            self._kept.trim()

    @property
    def nbytes(self) -> int:
        return self._kept.nbytes

    def clear(self) -> None:
        self._kept.clear()

    def _get_or_make(self, key: Hashable, make: Callable[[], S]) -> S:
        """The kept value, or a new one: made by one thread while the others wait for it."""
        found = self._kept.get(key)
        if found is None:
            with self._building:
                found = self._kept.get(key)
                if found is None:
                    found = make()
                    self._kept.put(key, found)
        return cast("S", found)

    def derived(
        self,
        kind: str,
        frame: Frame,
        about: Hashable,
        *,
        build: Callable[[], S],
        move: Callable[[S, Change], S | None],
    ) -> S:
        """What a frame gives (say, the text index of a column): kept, moved from the version before
        where that is known and `move` can, or built."""

        def make() -> S:
            change = frame.change
            if change is not None:
                older = self._kept.get((kind, *change.origin, frame.lineage, about))
                moved = None if older is None else move(cast("S", older), change)
                if moved is not None:
                    return moved
            return build()

        return self._get_or_make((kind, *frame.table.pin, frame.lineage, about), make)

    def _asked_times(self, what: str, entry: TableEntry) -> int:
        with self._building:
            self._asked[what, entry.location, entry.branch] += 1
            return self._asked[what, entry.location, entry.branch]

    # --- frames ---

    def frame(self, entry: TableEntry) -> Frame:
        """The frame of a table version, moved from an older one or read now."""

        def make() -> Frame:
            older = self._older_frame(entry)
            moved = older and older.moved(self.table(entry))
            # Whoever asks for an edge frame first also wants the ends: one scan gives both.
            columns = ["id"] if entry.entity_kind == "node" else ["src", "dst"]
            return moved or Frame.build(self.table(entry), columns)

        return self._get_or_make(_frame_key(entry), make)

    def known_frame(self, entry: TableEntry) -> Frame | None:
        """The frame if it is in memory, also when it first has to be moved forward."""
        if self._kept.get(_frame_key(entry)) is None and self._older_frame(entry) is None:
            return None
        return self.frame(entry)

    def _older_frame(self, entry: TableEntry) -> Frame | None:
        *line, version = _frame_key(entry)

        def is_older(key: Hashable) -> bool:
            return isinstance(key, tuple) and [*key[:3]] == line and key[3] < version

        return cast("Frame | None", self._kept.newest(is_older))

    def wants_pushed_scan(self, entry: TableEntry) -> bool:
        """Whether a query over this table alone should read just its part: big and rarely asked."""
        if entry.row_count <= SMALL_TABLE_ROWS or self.known_frame(entry) is not None:
            return False
        asked = self._asked_times("scan", entry)
        return asked <= PUSHED_SCANS or entry.row_count > FRAME_ROWS_MAX

    # --- topologies ---

    def lookups(self, edges: TableEntry, sources: Frame, targets: Frame) -> Lookups | None:
        """Lookups instead of a topology: for big edge tables, the first time they are walked."""
        if edges.row_count < LOOKUP_EDGES_MIN or self.known_frame(edges) is not None:
            return None
        if self._files is not None and self._files.has(edges, sources, targets):
            return None
        if self._asked_times("walk", edges) > LOOKUP_WALKS:
            return None
        return Lookups(self.table(edges), sources, targets)

    def topology(self, edges: TableEntry, sources: Frame, targets: Frame) -> Topology:
        """The topology of an edge table version between two node frames."""
        frame, stored = self._edge_frame(edges, sources, targets)

        def build() -> Topology:
            if stored is not None:
                return stored
            built = _built_topology(frame, sources, targets)
            if self._files is not None:
                self._files.save(frame, built, sources, targets)
            return built

        def move(older: Topology, change: Change) -> Topology | None:
            return _moved_topology(older, change, sources, targets)

        ends = (sources.lineage, targets.lineage)
        return self.derived("topology", frame, ends, build=build, move=move)

    def _edge_frame(
        self, edges: TableEntry, sources: Frame, targets: Frame
    ) -> tuple[Frame, Topology | None]:
        """The frame of the edges, and their topology if another process has left it in a file."""
        if self._files is None or self.known_frame(edges) is not None:
            return self.frame(edges), None
        stored = self._files.load(edges, sources, targets)
        if stored is None:
            return self.frame(edges), None
        frame = Frame.bare(self.table(edges), stored.row_ids)
        kept = self._get_or_make(_frame_key(edges), lambda: frame)
        # Another thread may have moved a frame here meanwhile, whose positions are not the file's.
        return kept, stored.topology if kept is frame else None


def _frame_key(entry: TableEntry) -> tuple[str, str, str | None, int]:
    return ("frame", *entry.pin)


def _built_topology(frame: Frame, sources: Frame, targets: Frame) -> Topology:
    src, dst = frame.release(["src", "dst"])
    return Topology.build(
        sources.lookup_all(src).astype(np.int32),
        targets.lookup_all(dst).astype(np.int32),
        nodes_from=sources.length,
        nodes_to=targets.length,
    )


def _moved_topology(
    older: Topology, change: Change, sources: Frame, targets: Frame
) -> Topology | None:
    """The topology after a change of its edge table; None if edges were given other ends."""
    if len(change.updated_at):
        src = sources.lookup_all(flat(change.updated["src"]))
        dst = targets.lookup_all(flat(change.updated["dst"]))
        same_src = older.src.view[change.updated_at] == src
        if not (same_src & (older.dst.view[change.updated_at] == dst)).all():
            return None
    return older.moved(
        sources.lookup_all(flat(change.added["src"])).astype(np.int32),
        targets.lookup_all(flat(change.added["dst"])).astype(np.int32),
        change.deleted_at,
    )
