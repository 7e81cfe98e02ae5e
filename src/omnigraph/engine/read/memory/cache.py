"""What reading keeps in memory: frames and everything derived from them, under one byte budget.

Everything is keyed by table version. A newer version is made from the newest older one by the
difference between them, where that is cheaper than reading the table again. Whoever makes a value
holds up only those who want the same one.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache, partial
from time import perf_counter
from types import TracebackType
from typing import Any, Final, Generic

import msgspec
import numpy as np

from omnigraph.engine.arrow import Array, flat, pa
from omnigraph.engine.read.memory import threads
from omnigraph.engine.read.memory.arrays import Positions, SmallPositions
from omnigraph.engine.read.memory.builds import Builds, Thing
from omnigraph.engine.read.memory.change import Change
from omnigraph.engine.read.memory.compressed import Checkpoint, no_checkpoint
from omnigraph.engine.read.memory.counted import CountedTable, ReadCost
from omnigraph.engine.read.memory.files import StoredEdges, TopologyFiles, user_topology_folder
from omnigraph.engine.read.memory.frame import (
    SMALL_TABLE_ROWS,
    Frame,
    column_bytes,
)
from omnigraph.engine.read.memory.kept import Kept, Key, S
from omnigraph.engine.read.memory.prints import PRINT_BYTES, Prints
from omnigraph.engine.read.memory.topology import ENDS, Bulk, End, Lookups, Topology
from omnigraph.errors import OmnigraphError
from omnigraph.model.graph import PendingEntry, TableEntry
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
FORKS_KNOWN_MAX: Final = 4_096
ASKED_KNOWN_MAX: Final = 4_096
WAITED_SECONDS: Final = 0.05  # for a build, before a query looks whether its time is over
LONG_MS: Final = 5  # a query that took less has made nothing that counts


class _TooBig(Exception):  # noqa: N818 - not an error: it is answered without
    """What was asked for does not fit the budget."""


class _OfColumn(msgspec.Struct, Generic[S], frozen=True):
    """What one column of a table version gives."""

    table: CountedTable
    value: S

    def buffers(self) -> Mapping[int, int]:
        return self.value.buffers()


def usual_budget() -> int:
    """How many bytes reading may keep where nobody has said it."""
    return max(READ_CACHE_BYTES_MIN, int(memory_bytes() * READ_CACHE_SHARE))


class Caches:
    """One per open graph; shared by its queries and threads."""

    def __init__(self, tables: Tables, *, budget_bytes: int | None = None) -> None:
        self.cost = ReadCost()
        self._tables = tables
        self._files = TopologyFiles(tables, user_topology_folder())
        self._kept = Kept(usual_budget() if budget_bytes is None else budget_bytes)
        self._lock = threading.Lock()  # guards what follows
        self._asked: Counter[Hashable] = Counter()
        self._sizes: dict[tuple[str, str, str], int] = {}  # of what did not fit
        self._builds = Builds()
        # What was forked from where never changes; looking it up reads a file.
        self._is_fork = lru_cache(FORKS_KNOWN_MAX)(self._is_forked_from)
        self._can_have_prints = lru_cache(ASKED_KNOWN_MAX)(
            lambda entry, column: Prints.can_be(self.table(entry), column)
        )

    def table(self, entry: TableEntry) -> CountedTable:
        return CountedTable(self._tables.open(entry), self.cost)

    def bytes_by_kind(self) -> dict[str, int]:
        """How much is kept of each kind of thing."""
        return self._kept.bytes_by_kind()

    def close(self) -> None:
        """Stop what is being built, between two slices, and drop everything."""
        self._builds.close()
        self._kept.clear()

    def query(self) -> _Query:
        """Around one query: what it uses stays until it is done, then the budget is kept."""
        return _Query(self._kept, self.cost)

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
        rests_on: frozenset[int] = frozenset(),
    ) -> S:
        """What a frame gives (say, the text index of a column): kept, moved from a version before
        where one is known and `move` can, or built. `rests_on` are other lineages it is about."""

        which = (frame.lineage, about)

        def make() -> S:
            found: S | None = self._by_changes(kind, frame, which, move)
            return build() if found is None else found

        key = (kind, *frame.table.entry.pin, *which)
        return self._kept.get_or_make(key, make, rests_on=rests_on | {frame.lineage})

    def _by_changes(
        self, kind: str, frame: Frame, which: Key, move: Callable[[Any, Change], Any]
    ) -> Any:
        """What the changes that the frame remembers make of the newest version that is known; it
        may be several commits back. None if there is none."""
        for at in reversed(range(len(frame.changes))):
            found = self._kept.get((kind, *frame.changes[at].origin, *which))
            if found is not None:
                for change in frame.changes[at:]:
                    found = None if found is None else move(found, change)
                return found
        return None

    def of_column(
        self,
        kind: str,
        frame: Frame,
        column: str,
        *,
        nbytes: int,
        build: Callable[[], S | None],
        move: Callable[[S, Change], S | None],
    ) -> S | None:
        """What one column gives (say, its words): kept, moved from any version before, or built.
        None if it would not fit: it has so many bytes at least, or `build` gave up."""
        frame.follow(column)
        which = (frame.lineage, column)
        key = (kind, *frame.table.entry.pin, *which)
        found: _OfColumn[S] | None = self._kept.get(key)
        if found is not None:
            return found.value

        def moved(older: _OfColumn[S], change: Change) -> _OfColumn[S] | None:
            value = move(older.value, change)
            return None if value is None else _OfColumn(frame.table, value)

        def make() -> _OfColumn[S]:
            made: _OfColumn[S] | None = self._by_changes(kind, frame, which, moved)
            made = made or self._by_difference(kind, frame, which, moved)
            if made is None and self._make_room(max(nbytes, self._noted_size(kind, frame, column))):
                value = build()
                made = None if value is None else _OfColumn(frame.table, value)
            if made is None:
                raise _TooBig
            return made

        try:
            return self._kept.get_or_make(key, make, rests_on=frozenset({frame.lineage})).value
        except _TooBig:
            return None

    def forget_column(self, kind: str, frame: Frame, column: str) -> None:
        """Drop what a column gives, of every version of its table."""
        location = frame.table.entry.location
        self._kept.forget_where(lambda key: key[:2] == (kind, location) and key[-1] == column)

    def _by_difference(
        self,
        kind: str,
        frame: Frame,
        which: Key,
        move: Callable[[_OfColumn[S], Change], _OfColumn[S] | None],
    ) -> _OfColumn[S] | None:
        """What the difference to the newest earlier version that is known makes of it, however many
        commits lie between; None if there is none."""
        entry = frame.table.entry
        known: list[_OfColumn[S]] = self._kept.matching(
            lambda key: key[:2] == (kind, entry.location) and key[4:] == which
        )
        older = self._newest_before(entry, [one.table for one in known])
        if older is None:
            return None
        try:
            change = frame.change_since(older, which[1])
        except OmnigraphError as cause:  # the version is not in storage any more
            logger.info("difference unknown", extra={"why": cause.message})
            return None
        (found,) = (one for one in known if one.table is older)
        return None if change is None else move(found, change)

    def _make_room(self, nbytes: int) -> bool:
        """Whether so many bytes are free now, without what a running query uses. What would go
        again at once had better be streamed."""
        if not self.can_keep(nbytes):
            return False
        self._kept.trim(room=nbytes)
        return self._kept.held_bytes() + nbytes <= self._kept.budget_bytes

    def note_size(self, kind: str, frame: Frame, column: str, nbytes: int) -> None:
        """Remember what would take so many bytes, so that it is not tried again in vain."""
        with self._lock:
            if len(self._sizes) >= ASKED_KNOWN_MAX:
                self._sizes.clear()
            self._sizes[kind, frame.table.entry.location, column] = nbytes

    def _noted_size(self, kind: str, frame: Frame, column: str) -> int:
        return self._sizes.get((kind, frame.table.entry.location, column), 0)

    def _asked_times(self, what: str, entry: TableEntry) -> int:
        about = (what, entry.location, entry.branch)
        with self._lock:
            if about not in self._asked and len(self._asked) >= ASKED_KNOWN_MAX:
                self._asked.clear()  # a table that is asked often soon shows again
            self._asked[about] += 1
            return self._asked[about]

    # --- frames ---

    def frame(self, entry: TableEntry) -> Frame:
        """The frame of a table version, moved from an older one or read now."""

        def make() -> Frame:
            older, table = self._older_frame(entry), self.table(entry)
            moved = older and older.moved(table)
            # Whoever asks for a frame first also wants the ids, or the ends: one scan gives both.
            # Of a big table a few ids may be enough, and ends are turned into positions in slices.
            columns = ["id"] if entry.entity_kind == "node" else ["src", "dst"]
            if moved is not None:
                return moved
            if entry.row_count <= IDS_AT_ONCE_ROWS:
                return Frame.of(table, table.read(columns))
            row_ids = table.row_ids_without_gaps()
            if row_ids is None:
                made = Frame.of(table, table.read([]))
            else:
                made = Frame.bare(table, row_ids, self._files.prints)
            made.builds = self._builds
            return made

        return self._kept.get_or_make(_frame_key(entry), make)

    def known_frame(self, entry: TableEntry) -> Frame | None:
        """The frame if it is in memory, also when it first has to be moved forward."""
        found: Frame | None = self._kept.get(_frame_key(entry))
        if found is None and self._older_frame(entry) is not None:
            return self.frame(entry)
        return found

    def follow(self, entries: Sequence[TableEntry]) -> None:
        """Move the frames of these tables that are of earlier versions, if there are several."""
        behind = [
            entry
            for entry in entries
            if self._kept.get(_frame_key(entry)) is None and self._older_frame(entry) is not None
        ]
        if len(behind) > 1:
            threads.in_parallel(self.frame, behind, threads.PARALLEL_ROWS_MIN)

    def _older_frame(self, entry: TableEntry) -> Frame | None:
        """The newest frame of an earlier version; else one of a version that the line of this table
        was forked from."""
        frames: list[Frame] = self._kept.matching(lambda key: key[:2] == ("frame", entry.location))
        older = self._newest_before(entry, [one.table for one in frames])
        return next((one for one in frames if one.table is older), None)

    def _newest_before(
        self, entry: TableEntry, tables: Sequence[CountedTable]
    ) -> CountedTable | None:
        # The newest of its own branch first: the least has changed since.
        tables = sorted(tables, key=lambda one: one.entry.version, reverse=True)
        tables.sort(key=lambda one: one.entry.branch != entry.branch)
        return next((one for one in tables if self._is_older(one.entry, entry)), None)

    def _is_older(self, older: TableEntry, newer: TableEntry) -> bool:
        if isinstance(older, PendingEntry):
            return False  # it is in no history, so that nothing came from it
        if isinstance(newer, PendingEntry):
            # By its number it would be newer than everything, also than what it knows nothing of.
            if older.branch == newer.branch:
                return older.version <= newer.stands_on
            newer = TableEntry(
                table_key=newer.table_key,
                location=newer.location,
                branch=newer.branch,
                version=newer.stands_on,
            )
        if older.branch == newer.branch:
            return older.version < newer.version
        return newer.branch is not None and self._is_fork(newer, older)

    def _is_forked_from(self, newer: TableEntry, older: TableEntry) -> bool:
        try:
            return self._tables.shared(newer, older) == older.version
        except OmnigraphError as cause:  # then the frame is read as if there were no other
            logger.warning("fork unknown", extra={"why": cause.message})
            return False

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
        if not self._has_only_lookups(edges, sources, targets):
            return None
        often = self._asked_times("walk", edges) > LOOKUP_WALKS
        if often and not self._builds_beside(edges, sources, targets):
            return None
        return Lookups(self.table(edges), sources, targets, partial(self._prints, edges))

    def _has_only_lookups(self, edges: TableEntry, sources: Frame, targets: Frame) -> bool:
        if edges.row_count < LOOKUP_EDGES_MIN or self._is_at_hand(edges, sources, targets):
            return False
        return not self._files.has(edges, sources, targets)

    def begin_lookups(self, edges: TableEntry, sources: Frame, targets: Frame, end: End) -> None:
        """Begin to make what the first lookup will wait for, beside the look for its nodes: of a
        new process that asks about one node, these two are nearly all of its first answer."""
        if not self._has_only_lookups(edges, sources, targets):
            return

        def make(checkpoint: Checkpoint) -> None:
            self._prints(edges, end, checkpoint)

        self._builds.going_on(Thing(f"prints of {end}", edges.location), edges.pin, make)

    def known_topology(self, edges: TableEntry, sources: Frame, targets: Frame) -> Topology | None:
        """The topology of this very version, if it is in memory."""
        frame: Frame | None = self._kept.get(_frame_key(edges))
        if frame is None:
            return None
        lineages = (sources.lineage, targets.lineage)
        found: Topology | None = self._kept.get(("topology", *edges.pin, frame.lineage, lineages))
        return found

    def _prints(
        self, edges: TableEntry, end: End, checkpoint: Checkpoint = no_checkpoint
    ) -> Prints | None:
        """The fingerprints of an end of all edges; None where an index of storage is better, or
        where there is no room for them."""
        if not self._can_have_prints(edges, end):
            return None
        if not self.can_keep(edges.row_count * PRINT_BYTES):
            return None
        key = ("prints", *edges.pin, end)
        make = partial(Prints.of, self.table(edges), end, checkpoint)
        return self._kept.get_or_make(key, make)

    def _is_at_hand(self, edges: TableEntry, sources: Frame, targets: Frame) -> bool:
        """Whether the topology is in memory, perhaps of an earlier version that can be moved."""
        frame = self.known_frame(edges)
        if frame is None:
            return False
        which = (frame.lineage, (sources.lineage, targets.lineage))
        if self._kept.get(("topology", *edges.pin, *which)) is not None:
            return True
        added = deleted = 0
        for change in reversed(frame.changes):
            added, deleted = added + change.added.num_rows, deleted + len(change.deleted_at)
            older: Topology | None = self._kept.get(("topology", *change.origin, *which))
            if older is not None:
                return older.has_room(added=added, deleted=deleted)
        return False

    def _builds_beside(self, edges: TableEntry, sources: Frame, targets: Frame) -> bool:
        """Whether a thread is building the topology; one is started if that is worth it."""
        if edges.row_count < BACKGROUND_EDGES_MIN:
            return False

        def build(checkpoint: Checkpoint) -> None:
            self.topology(edges, sources, targets, checkpoint)

        # What it builds of another version is moved to this one.
        return self._builds.going_on(_topology_of(edges), edges.pin, build)

    def _wait_for_build(
        self, edges: TableEntry, sources: Frame, targets: Frame, checkpoint: Checkpoint
    ) -> None:
        """What a thread is building of another version is moved to this one: a second build at the
        same time would take twice the memory and end later."""
        thread = self._builds.thread_of(_topology_of(edges))
        if thread is None:
            return
        # The builder takes no lock that whoever waits here may hold: it makes frames only.
        while thread.is_alive() and not self._is_at_hand(edges, sources, targets):
            checkpoint()  # a query that waits still ends in time
            thread.join(WAITED_SECONDS)

    def topology(
        self,
        edges: TableEntry,
        sources: Frame,
        targets: Frame,
        checkpoint: Checkpoint = no_checkpoint,
    ) -> Topology:
        """The topology of an edge table version between two node frames. `checkpoint` is called
        between the slices of a build and may raise to give it up."""
        self._wait_for_build(edges, sources, targets, checkpoint)
        frame, stored = self._edge_frame(edges, sources, targets)
        ends = _Ends(frame, sources, targets, checkpoint)

        def build() -> Topology:
            if stored is not None:
                return Topology.of(stored.bulk(ends.one))
            bulk = Bulk.of(*ends.both(), (sources.length, targets.length))
            kept = self._files.save(frame, bulk, sources, targets, checkpoint)
            if kept is not None:
                for nodes in {sources, targets}:
                    self._files.save_prints(nodes)
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
        made = self.derived(
            "topology", frame, lineages, build=build, move=move, rests_on=frozenset(lineages)
        )
        self._kept.forget([("prints", *edges.pin, end) for end in ENDS])  # nobody looks up again
        return made

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


class _Query:
    """A query that runs. No generator: every read passes one."""

    __slots__ = ("_began", "_cost", "_kept", "_number", "_reads", "_turn")

    def __init__(self, kept: Kept, cost: ReadCost) -> None:
        self._kept, self._cost = kept, cost

    def __enter__(self) -> None:
        self._turn = threads.begin_turn()
        self._reads, self._began = self._cost.reads, perf_counter()
        self._number = self._kept.begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kept.end(self._number)
        if self._turn:
            threads.end_turn()
        # Values also grow while they are used: by what is read, or by what takes time to compute.
        long = (perf_counter() - self._began) * 1000 > LONG_MS
        if error is None and (long or self._cost.reads != self._reads):
            self._kept.trim()


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
        workers = int(pa.cpu_count())
        with ThreadPoolExecutor(workers, thread_name_prefix="ends") as pool:
            pending: deque[Future[None]] = deque()
            for batch in self._frame.table.batches(ends, batch_rows=SLICE_ROWS):
                self._checkpoint()
                places = self._places(batch[ROW_ID])
                for end, into in zip(ends, found, strict=True):
                    pending.append(pool.submit(self._put, end, batch[end], places, into))
                while len(pending) > workers + len(ends):
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


def _topology_of(edges: TableEntry) -> Thing:
    return Thing("topology", edges.location)


def _frame_key(entry: TableEntry) -> tuple[str, str, str | None, int]:
    return ("frame", *entry.pin)
