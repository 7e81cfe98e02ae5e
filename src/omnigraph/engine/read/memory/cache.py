"""What reading keeps in memory: frames and everything derived from them, under one byte budget.

Everything is keyed by table version. A newer version is made from the newest older one by the
difference between them, where that is cheaper than reading the table again. Whoever makes a value
holds up only those who want the same one.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final, Protocol, TypeVar

import numpy as np

from omnigraph.engine.arrow import Array, flat, pa
from omnigraph.engine.read.memory.arrays import Positions, SmallPositions
from omnigraph.engine.read.memory.compressed import Checkpoint, no_checkpoint
from omnigraph.engine.read.memory.files import StoredEdges, TopologyFiles, user_topology_folder
from omnigraph.engine.read.memory.frame import (
    SMALL_TABLE_ROWS,
    Change,
    CountedTable,
    Frame,
    ReadCost,
    column_bytes,
)
from omnigraph.engine.read.memory.topology import ENDS, Bulk, End, Lookups, Topology
from omnigraph.errors import OmnigraphError
from omnigraph.model.graph import Pin, TableEntry
from omnigraph.model.limits import READ_CACHE_BYTES_MIN, READ_CACHE_SHARE
from omnigraph.model.machine import memory_bytes
from omnigraph.model.schema import ROW_ID
from omnigraph.storage.table.table import Tables

logger = logging.getLogger(__name__)

LOOKUP_EDGES_MIN: Final = 50_000  # smaller edge tables are read whole at once
LOOKUP_WALKS: Final = 2  # walks of a big edge table before its topology is worth building
BACKGROUND_EDGES_MIN: Final = 1_000_000  # so many edges are built while lookups answer
SLICE_ROWS: Final = 1 << 19  # of an edge table, turned into positions at once
IDS_AT_ONCE_ROWS: Final = 1 << 17  # of more rows, ids and ends are read when they are needed
PUSHED_SCANS: Final = 2  # queries over one big table before it is worth keeping in memory
FRAME_ROWS_MAX: Final = 20_000_000  # a bigger table is never read whole for a query over it alone
LONG_MS: Final = 5  # a query that took less has made nothing that counts
RETURNED_BYTES: Final = 64 << 20  # when so much is let go of, the allocator gives it back at once

# What a byte of each kind costs to make again, beside a byte of a column (about 2 ns).
REBUILD_COST: Final[Mapping[str, int]] = {"frame": 1, "vectors": 1, "topology": 4, "text": 16}


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


S = TypeVar("S", bound=Sized)
Key = tuple[Any, ...]  # its first part is the kind
Piece = tuple[Key, str | None]  # a column of a value, or the value without these


class Kept:
    """Values under a byte budget, each made by one thread while others wait for that one only.

    When all together are bigger than the budget, the piece goes first (a column of a frame, or a
    whole value) whose bytes, times the queries since it was last used, divided by the cost of a
    byte of its kind, are the most. What a running query has used stays until that is done. Bytes
    that versions share count once.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self._values: OrderedDict[Key, Sized] = OrderedDict()  # the last used are last
        self._used: dict[Key, int] = {}  # the query that used it last
        self._query = 0
        self._running: Counter[int] = Counter()
        self._making: dict[Key, threading.RLock] = {}
        self._lock = threading.Lock()

    @contextmanager
    def query(self) -> Iterator[None]:
        """While this runs, what it has used is not let go of."""
        with self._lock:
            self._query += 1
            number = self._query
            self._running[number] += 1
        try:
            yield
        finally:
            with self._lock:
                del self._running[number]

    def get(self, key: Key) -> Any:
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
                self._used[key] = self._query
            return found

    def get_or_make(self, key: Key, make: Callable[[], S]) -> S:
        """The kept value, or a new one: made by one thread while the others wait for it."""
        found: S | None = self.get(key)
        if found is not None:
            return found
        with self._lock:
            making = self._making.setdefault(key, threading.RLock())
        with making:
            found = self.get(key)
            if found is None:
                try:
                    found = make()
                    with self._lock:
                        self._values[key] = found
                        self._used[key] = self._query
                finally:
                    with self._lock:
                        self._making.pop(key, None)
                self.trim()
            return found

    def matching(self, wanted: Callable[[Key], bool]) -> list[Any]:
        """The values whose key is wanted, the one used last first."""
        with self._lock:
            return [self._values[key] for key in reversed(self._values) if wanted(key)]

    def clear(self) -> None:
        with self._lock:
            self._values.clear()
            self._used.clear()

    def held_bytes(self, *, but: str | None = None) -> int:
        """What all values hold, or those of all kinds but one."""
        with self._lock:
            values = {key: value for key, value in self._values.items() if key[0] != but}
        return sum(_sizes(_buffers(values)).values())

    def trim(self) -> None:
        """Let go of values, or of columns of frames, until the rest fits the budget."""
        with self._lock:
            values = dict(self._values)
        sizes = _sizes(_buffers(values))
        total = sum(sizes.values())
        if total <= self.budget_bytes:
            return
        pieces = _pieces(values)
        holders = Counter(at for held in pieces.values() for at in held)
        with self._lock:
            oldest = min(self._running, default=self._query + 1)
            ages = {key: 1 + self._query - used for key, used in self._used.items()}
            idle = [piece for piece in pieces if self._used.get(piece[0], 0) < oldest]

        def worth_going(piece: Piece) -> float:
            own = sum(size / holders[at] for at, size in pieces[piece].items())
            return own * ages.get(piece[0], 1) / REBUILD_COST.get(piece[0][0], 1)

        gone = 0
        for key, name in sorted(idle, key=worth_going, reverse=True):
            if total - gone <= self.budget_bytes:
                break
            self._let_go(key, name)
            for at in pieces[key, name]:
                holders[at] -= 1
                gone += 0 if holders[at] else sizes.get(at, 0)
        logger.debug("let go", extra={"bytes": gone, "held": total - gone})
        if gone >= RETURNED_BYTES:
            pa.default_memory_pool().release_unused()

    def _let_go(self, key: Key, name: str | None) -> None:
        with self._lock:
            value = self._values.get(key)
            if name is None:
                self._values.pop(key, None)
                self._used.pop(key, None)
        if name is not None and isinstance(value, Frame):
            value.shed(name)


def _buffers(values: Mapping[Key, Sized]) -> dict[Key, dict[int, int]]:
    """The buffers of each value by address; a value that does not tell has one of its own."""
    return {
        key: value.buffers() if hasattr(value, "buffers") else {id(value): value.nbytes}
        for key, value in values.items()
    }


def _pieces(values: Mapping[Key, Sized]) -> dict[Piece, dict[int, int]]:
    """What can be let go of by itself: columns of frames, and values with what is left of them."""
    found: dict[Piece, dict[int, int]] = {}
    for key, held in _buffers(values).items():
        value = values[key]
        parts = value.parts() if isinstance(value, Frame) else {}
        found |= {(key, name): buffers for name, buffers in parts.items()}
        inside = {at for buffers in parts.values() for at in buffers}
        found[key, None] = {at: size for at, size in held.items() if at not in inside}
    return found


def _sizes(buffers: Mapping[Key, Mapping[int, int]]) -> dict[int, int]:
    return {at: size for held in buffers.values() for at, size in held.items()}


class _Stopped(Exception):  # noqa: N818 - not an error: nobody wants the build any more
    """The graph was closed, or the program is ending."""


class Caches:
    """One per open graph; shared by its queries and threads."""

    def __init__(self, tables: Tables, *, budget_bytes: int | None = None) -> None:
        self.cost = ReadCost()
        self._tables = tables
        self._files = TopologyFiles(tables, user_topology_folder())
        if budget_bytes is None:
            budget_bytes = max(READ_CACHE_BYTES_MIN, int(memory_bytes() * READ_CACHE_SHARE))
        self._kept = Kept(budget_bytes)
        self._lock = threading.Lock()  # guards what follows
        self._asked: Counter[Hashable] = Counter()
        self._builds: dict[Hashable, threading.Thread] = {}
        self._forks: dict[tuple[Pin, Pin], bool] = {}
        self._closed = False

    def table(self, entry: TableEntry) -> CountedTable:
        return CountedTable(self._tables.open(entry), self.cost)

    def close(self) -> None:
        """Stop what is being built, between two slices, and drop everything."""
        with self._lock:
            self._closed = True
            builds = list(self._builds.values())
        for build in builds:
            build.join()
        self._kept.clear()

    @contextmanager
    def query(self) -> Iterator[None]:
        """Around one query: what it uses stays until it is done, then the budget is kept."""
        reads, began = self.cost.reads, perf_counter()
        with self._kept.query():
            yield
        # Values also grow while they are used: by what is read, or by what takes time to compute.
        if self.cost.reads != reads or (perf_counter() - began) * 1000 > LONG_MS:
            self._kept.trim()

    def can_keep(self, column_bytes: int) -> bool:
        """Whether columns of this size fit beside what is dearer to make; other columns go for
        them."""
        return self._kept.held_bytes(but="frame") + column_bytes <= self._kept.budget_bytes

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
                older: S | None = self._kept.get((kind, *change.origin, frame.lineage, about))
                moved = None if older is None else move(older, change)
                if moved is not None:
                    return moved
            return build()

        return self._kept.get_or_make((kind, *frame.table.entry.pin, frame.lineage, about), make)

    def _asked_times(self, what: str, entry: TableEntry) -> int:
        with self._lock:
            self._asked[what, entry.location, entry.branch] += 1
            return self._asked[what, entry.location, entry.branch]

    # --- frames ---

    def frame(self, entry: TableEntry) -> Frame:
        """The frame of a table version, moved from an older one or read now."""

        def make() -> Frame:
            older, table = self._older_frame(entry), self.table(entry)
            moved = older and older.moved(table)
            # Whoever asks for a frame first also wants the ids, or the ends: one scan gives both.
            # Of a big table a few ids may be enough, and ends are turned into positions in slices.
            columns = ["id"] if entry.entity_kind == "node" else ["src", "dst"]
            at_once = entry.row_count <= IDS_AT_ONCE_ROWS
            return moved or Frame.of(table, table.read(columns if at_once else []))

        return self._kept.get_or_make(_frame_key(entry), make)

    def known_frame(self, entry: TableEntry) -> Frame | None:
        """The frame if it is in memory, also when it first has to be moved forward."""
        if self._kept.get(_frame_key(entry)) is None and self._older_frame(entry) is None:
            return None
        return self.frame(entry)

    def _older_frame(self, entry: TableEntry) -> Frame | None:
        """The most recently used frame of an earlier version; else one of a version that the line
        of this table was forked from."""
        frames: list[Frame] = self._kept.matching(lambda key: key[:2] == ("frame", entry.location))
        before = [one for one in frames if self._is_older(one.table.entry, entry)]
        own = [one for one in before if one.table.entry.branch == entry.branch]
        return next(iter([*own, *before]), None)

    def _is_older(self, older: TableEntry, newer: TableEntry) -> bool:
        if older.branch == newer.branch:
            return older.version < newer.version
        if newer.branch is None:
            return False
        # What was forked from where never changes; looking it up reads a file.
        pins = (older.pin, newer.pin)
        known = self._forks.get(pins)
        if known is None:
            try:
                known = self._tables.shared(newer, older) == older.version
            except OmnigraphError as cause:  # then the frame is read as if there were no other
                logger.warning("fork unknown", extra={"why": cause.message})
                known = False
            self._forks[pins] = known
        return known

    def wants_pushed_scan(self, entry: TableEntry) -> bool:
        """Whether a query over this table alone should read just its part: big and rarely asked."""
        if entry.row_count <= SMALL_TABLE_ROWS or self.known_frame(entry) is not None:
            return False
        asked = self._asked_times("scan", entry)
        return asked <= PUSHED_SCANS or entry.row_count > FRAME_ROWS_MAX

    def wants_stream(self, entry: TableEntry, columns: Sequence[str]) -> bool:
        """Whether a question about the whole table should pass by its rows and keep none: as above,
        or its columns do not fit the budget."""
        if self.wants_pushed_scan(entry):
            return True
        known = self.known_frame(entry)
        if entry.row_count <= SMALL_TABLE_ROWS or (known and all(map(known.is_kept, columns))):
            return False
        return not self.can_keep(column_bytes(self.table(entry), columns))

    # --- topologies ---

    def lookups(self, edges: TableEntry, sources: Frame, targets: Frame) -> Lookups | None:
        """Lookups instead of a topology: for big edge tables, until they have been walked often.

        A very big one is then built in a thread of its own, and lookups go on until it is there.
        """
        if edges.row_count < LOOKUP_EDGES_MIN or self._is_at_hand(edges, sources, targets):
            return None
        if self._files.has(edges, sources, targets):
            return None
        often = self._asked_times("walk", edges) > LOOKUP_WALKS
        if often and not self._builds_beside(edges, sources, targets):
            return None
        return Lookups(self.table(edges), sources, targets)

    def _is_at_hand(self, edges: TableEntry, sources: Frame, targets: Frame) -> bool:
        """Whether the topology is in memory, perhaps of an earlier version that can be moved."""
        frame = self._kept.get(_frame_key(edges)) or self._older_frame(edges)
        if frame is None:
            return False
        about = (sources.lineage, targets.lineage)
        pins = [frame.table.entry.pin, *([frame.change.origin] if frame.change else [])]
        return any(self._kept.get(("topology", *pin, frame.lineage, about)) for pin in pins)

    def _builds_beside(self, edges: TableEntry, sources: Frame, targets: Frame) -> bool:
        """Whether a thread is building the topology; one is started if that is worth it."""
        if edges.row_count < BACKGROUND_EDGES_MIN:
            return False

        def checkpoint() -> None:
            # A program that ends waits for its threads, so this one must notice.
            if self._closed or not threading.main_thread().is_alive():
                raise _Stopped

        def build() -> None:
            try:
                self.topology(edges, sources, targets, checkpoint)
            except (_Stopped, OmnigraphError, RuntimeError) as cause:
                # Whoever needs the topology builds it, and meets the error if it is one.
                logger.info("topology not built beside", extra={"why": str(cause)})

        with self._lock:
            known = self._builds.get(edges.pin)
            if known is not None:
                return known.is_alive()
            if self._closed:
                return False
            self._builds[edges.pin] = threading.Thread(target=build, name="topology")
            self._builds[edges.pin].start()
            return True

    def topology(
        self,
        edges: TableEntry,
        sources: Frame,
        targets: Frame,
        checkpoint: Checkpoint = no_checkpoint,
    ) -> Topology:
        """The topology of an edge table version between two node frames. `checkpoint` is called
        between the slices of a build and may raise to give it up."""
        frame, stored = self._edge_frame(edges, sources, targets)
        ends = _Ends(frame, sources, targets, checkpoint)

        def build() -> Topology:
            if stored is not None:
                return Topology.of(stored.bulk(ends.one))
            bulk = Bulk.of(*ends.both(), (sources.length, targets.length))
            kept = self._files.save(frame, bulk, sources, targets, checkpoint)
            if bulk.count >= BACKGROUND_EDGES_MIN:
                pa.default_memory_pool().release_unused()
            # From here on the pages of the file are as good as memory, and need not be held.
            return Topology.of(bulk if kept is None else kept.bulk(ends.one))

        def move(older: Topology, change: Change) -> Topology | None:
            rows = change.updated_at
            if len(rows):
                src, dst = ends.at(change.updated["src"], change.updated["dst"])
                same = (older.ends_at("src", rows) == src) & (older.ends_at("dst", rows) == dst)
                if not same.all():
                    return None  # edges were given other ends
            added = ends.at(change.added["src"], change.added["dst"])
            return older.moved(*added, change.deleted_at)

        lineages = (sources.lineage, targets.lineage)
        return self.derived("topology", frame, lineages, build=build, move=move)

    def _edge_frame(
        self, edges: TableEntry, sources: Frame, targets: Frame
    ) -> tuple[Frame, StoredEdges | None]:
        """The frame of the edges, and their topology if another process has left it in a file."""
        known = self.known_frame(edges)
        stored = None if known else self._files.load(edges, sources, targets)
        row_ids = None if stored is None else stored.row_ids()
        if row_ids is None:
            return self.frame(edges), None
        frame = Frame.bare(self.table(edges), row_ids)
        kept = self._kept.get_or_make(_frame_key(edges), lambda: frame)
        # Another thread may have moved a frame here meanwhile, whose positions are not the file's.
        return kept, stored if kept is frame else None


class _Ends:
    """The ends of edges as positions of nodes, by the positions of an edge frame."""

    def __init__(
        self, frame: Frame, sources: Frame, targets: Frame, checkpoint: Checkpoint
    ) -> None:
        self._frame = frame
        self._nodes: dict[End, Frame] = {"src": sources, "dst": targets}
        self._checkpoint = checkpoint

    def at(self, src: Array, dst: Array) -> tuple[SmallPositions, SmallPositions]:
        return self._found("src", src), self._found("dst", dst)

    def one(self, end: End) -> SmallPositions:
        return self._read([end])[0]

    def both(self) -> tuple[SmallPositions, SmallPositions]:
        here = self._frame.release(ENDS)
        if here is not None:
            return self.at(*here)
        src, dst = self._read(ENDS)
        return src, dst

    def _found(self, end: End, ids: Array) -> SmallPositions:
        return self._nodes[end].lookup_all(ids).astype(np.int32)

    def _read(self, ends: Sequence[End]) -> list[SmallPositions]:
        """The columns of the whole table, a slice at a time: what is read is turned into positions
        by as many threads as there are cores, and never more than one slice waits."""
        found = [np.full(self._frame.length, -1, dtype=np.int32) for _ in ends]
        threads = int(pa.cpu_count())
        with ThreadPoolExecutor(threads, thread_name_prefix="ends") as pool:
            pending: deque[Future[None]] = deque()
            for batch in self._frame.table.batches(ends, batch_rows=SLICE_ROWS):
                self._checkpoint()
                places = self._places(batch[ROW_ID])
                for end, into in zip(ends, found, strict=True):
                    pending.append(pool.submit(self._put, end, batch[end], places, into))
                while len(pending) > threads + len(ends):
                    pending.popleft().result()
            while pending:
                pending.popleft().result()
        return found

    def _put(self, end: End, ids: Array, places: Positions, into: SmallPositions) -> None:
        into[places] = self._found(end, ids)

    def _places(self, row_ids: Array) -> Positions:
        """The positions of rows, in whatever order they come."""
        places = self._frame.at_row_ids(flat(row_ids).to_numpy(zero_copy_only=False))
        assert not len(places) or int(places.min()) >= 0, "a frame has every row of its version"
        return places


def _frame_key(entry: TableEntry) -> tuple[str, str, str | None, int]:
    return ("frame", *entry.pin)
