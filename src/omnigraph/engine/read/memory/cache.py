"""What reading keeps: frames and everything derived from them in memory, under one byte budget, and
topologies in files, so that a new process does not build them again.

Everything is keyed by table version. A newer version is made from the newest older one by the
difference between them, where that is cheaper than reading the table again.

A file is named after the exact table versions it was made from, down to the transaction that made
each of them; it is written under another name first and its parts carry checksums. A missing, stale
or damaged file costs the time of a rebuild and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, cast

import numpy as np
from msgspec.structs import asdict

from omnigraph.engine.arrow import Array
from omnigraph.engine.read.memory.arrays import RowIds, SmallPositions
from omnigraph.engine.read.memory.frame import (
    SMALL_TABLE_ROWS,
    Change,
    CountedTable,
    Frame,
    ReadCost,
)
from omnigraph.engine.read.memory.topology import Csr, Lookups, Topology
from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import (
    READ_CACHE_BYTES_MAX,
    TOPOLOGY_FILE_EDGES_MIN,
    TOPOLOGY_FILES_BYTES_MAX,
)
from omnigraph.storage.table.table import Tables

logger = logging.getLogger(__name__)

LOOKUP_EDGES_MIN: Final = 50_000  # smaller edge tables are read whole at once
LOOKUP_WALKS: Final = 2  # walks of a big edge table before its topology is worth building
PUSHED_SCANS: Final = 2  # queries over one big table before it is worth keeping in memory
FRAME_ROWS_MAX: Final = 20_000_000  # a bigger table is never read whole for a query over it alone

FORMAT: Final = 1  # of topology files
_SIDES: Final = ("out", "in")
_UNREADABLE: Final = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)


class Sized(Protocol):
    @property
    def nbytes(self) -> int: ...


S = TypeVar("S", bound=Sized)


class Caches:
    """One per open graph; shared by its queries and threads.

    The least recently used values go when all together are bigger than the budget; one always
    stays.
    """

    def __init__(self, tables: Tables) -> None:
        self.cost = ReadCost()
        self._tables = tables
        self._files = TopologyFiles(tables, user_topology_folder())
        self._values: OrderedDict[tuple[Any, ...], Sized] = OrderedDict()
        self._lock = threading.RLock()  # guards the values
        self._building = threading.RLock()  # held by the thread that makes a value
        self._reads_at_trim = 0
        self._asked: Counter[Hashable] = Counter()

    def table(self, entry: TableEntry) -> CountedTable:
        return CountedTable(self._tables.open(entry), self.cost)

    def clear(self) -> None:
        with self._lock:
            self._values.clear()

    def trim_if_grown(self) -> None:
        """Keep the budget; kept values grow while they are used, but only by what was read."""
        if self.cost.reads != self._reads_at_trim:
            self._reads_at_trim = self.cost.reads
            self._trim()

    def _trim(self) -> None:
        with self._lock:
            sizes = {key: value.nbytes for key, value in self._values.items()}
            total = sum(sizes.values())
            while total > READ_CACHE_BYTES_MAX and len(self._values) > 1:
                key, _ = self._values.popitem(last=False)
                total -= sizes[key]

    def _get(self, key: tuple[Any, ...]) -> Any:
        with self._lock:
            found = self._values.get(key)
            if found is not None:
                self._values.move_to_end(key)
            return found

    def _get_or_make(self, key: tuple[Any, ...], make: Callable[[], S]) -> S:
        """The kept value, or a new one: made by one thread while the others wait for it."""
        found: S | None = self._get(key)
        if found is not None:
            return found
        with self._building:
            found = self._get(key)
            if found is None:
                found = make()
                with self._lock:
                    self._values[key] = found
                    self._trim()
            return found

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
                older: S | None = self._get((kind, *change.origin, frame.lineage, about))
                moved = None if older is None else move(older, change)
                if moved is not None:
                    return moved
            return build()

        return self._get_or_make((kind, *frame.table.entry.pin, frame.lineage, about), make)

    def _asked_times(self, what: str, entry: TableEntry) -> int:
        with self._building:
            self._asked[what, entry.location, entry.branch] += 1
            return self._asked[what, entry.location, entry.branch]

    # --- frames ---

    def frame(self, entry: TableEntry) -> Frame:
        """The frame of a table version, moved from an older one or read now."""

        def make() -> Frame:
            older, table = self._older_frame(entry), self.table(entry)
            moved = older and older.moved(table)
            # Whoever asks for an edge frame first also wants the ends: one scan gives both.
            columns = ["id"] if entry.entity_kind == "node" else ["src", "dst"]
            return moved or Frame.of(table, table.read(columns))

        return self._get_or_make(_frame_key(entry), make)

    def known_frame(self, entry: TableEntry) -> Frame | None:
        """The frame if it is in memory, also when it first has to be moved forward."""
        if self._get(_frame_key(entry)) is None and self._older_frame(entry) is None:
            return None
        return self.frame(entry)

    def _older_frame(self, entry: TableEntry) -> Frame | None:
        """The most recently used frame of an earlier version."""
        *line, version = _frame_key(entry)
        with self._lock:
            for key in reversed(self._values):
                if [*key[:3]] == line and key[3] < version:
                    return cast("Frame", self._values[key])
        return None

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
        if self._files.has(edges, sources, targets):
            return None
        if self._asked_times("walk", edges) > LOOKUP_WALKS:
            return None
        return Lookups(self.table(edges), sources, targets)

    def topology(self, edges: TableEntry, sources: Frame, targets: Frame) -> Topology:
        """The topology of an edge table version between two node frames."""
        frame, stored = self._edge_frame(edges, sources, targets)

        def at(src: Array, dst: Array) -> tuple[SmallPositions, SmallPositions]:
            found = sources.lookup_all(src), targets.lookup_all(dst)
            return found[0].astype(np.int32), found[1].astype(np.int32)

        def build() -> Topology:
            if stored is not None:
                return stored
            ends = at(*frame.release(["src", "dst"]))
            built = Topology.build(*ends, nodes_from=sources.length, nodes_to=targets.length)
            self._files.save(frame, built, sources, targets)
            return built

        def move(older: Topology, change: Change) -> Topology | None:
            rows = change.updated_at
            if len(rows):
                src, dst = at(change.updated["src"], change.updated["dst"])
                if not ((older.src.view[rows] == src) & (older.dst.view[rows] == dst)).all():
                    return None  # edges were given other ends
            added = at(change.added["src"], change.added["dst"])
            return older.moved(*added, change.deleted_at)

        lineages = (sources.lineage, targets.lineage)
        return self.derived("topology", frame, lineages, build=build, move=move)

    def _edge_frame(
        self, edges: TableEntry, sources: Frame, targets: Frame
    ) -> tuple[Frame, Topology | None]:
        """The frame of the edges, and their topology if another process has left it in a file."""
        known = self.known_frame(edges)
        stored = None if known else self._files.load(edges, sources, targets)
        if stored is None:
            return self.frame(edges), None
        row_ids, topology = stored
        frame = Frame.bare(self.table(edges), row_ids)
        kept = self._get_or_make(_frame_key(edges), lambda: frame)
        # Another thread may have moved a frame here meanwhile, whose positions are not the file's.
        return kept, topology if kept is frame else None


def _frame_key(entry: TableEntry) -> tuple[str, str, str | None, int]:
    return ("frame", *entry.pin)


# --- in files ----------------------------------------------------------------------------------


def user_topology_folder() -> Path:
    """The folder for the topologies of all graphs of this user."""
    return Path.home() / ".cache" / "omnigraph" / "topology"


class TopologyFiles:
    """The files of one folder, the oldest of which go when there are too many bytes."""

    def __init__(self, tables: Tables, folder: Path) -> None:
        self._tables = tables
        self._folder = folder
        self._names: dict[Any, Path | None] = {}

    def has(self, edges: TableEntry, sources: Frame, targets: Frame) -> bool:
        name = self._file(edges, sources, targets)
        return name is not None and name.exists()

    def load(
        self, edges: TableEntry, sources: Frame, targets: Frame
    ) -> tuple[RowIds, Topology] | None:
        """The row ids of the edges and their topology, if they were stored for exactly these
        versions and are whole."""
        name = self._file(edges, sources, targets)
        if name is None or not name.exists():
            return None
        try:
            # numpy leaks a file that it opened itself when that is no archive.
            with name.open("rb") as file, np.load(file, allow_pickle=False) as parts:
                found = _decode(dict(parts), nodes=(sources.length, targets.length))
        except _UNREADABLE as cause:
            logger.warning("topology unreadable", extra={"file": str(name), "why": str(cause)})
            return None
        return found if len(found[0]) == edges.row_count else None

    def save(self, frame: Frame, topology: Topology, sources: Frame, targets: Frame) -> None:
        """Store a topology that was built from scratch; a failure only costs the next process."""
        name = self._file(frame.table.entry, sources, targets)
        if name is None or frame.change is not None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            # A reader sees the whole file or none; two writers at once leave equal files.
            draft = name.with_suffix(f".{os.getpid()}.tmp")
            with draft.open("wb") as file:
                np.savez(file, **_encode(frame, topology))
            draft.replace(name)
            self._trim()
        except OSError as cause:
            logger.info("topology not stored", extra={"file": str(name), "why": str(cause)})

    def _file(self, edges: TableEntry, sources: Frame, targets: Frame) -> Path | None:
        """The file for these versions; None where positions are not those of a fresh build."""
        if edges.row_count < TOPOLOGY_FILE_EDGES_MIN or sources.change or targets.change:
            return None
        entries = (edges, sources.table.entry, targets.table.entry)
        key = tuple(entry.pin for entry in entries)
        if key not in self._names:
            self._names[key] = self._named(entries)
        return self._names[key]

    def _named(self, entries: tuple[TableEntry, ...]) -> Path | None:
        facts: list[Any] = [FORMAT]
        for entry in entries:
            made = self._tables.transactions(
                entry.location, entry.branch, after=entry.version - 1, upto=entry.version
            )
            if not made or made[-1].uuid is None:
                return None
            facts.append([*entry.pin, made[-1].uuid])
        digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        return self._folder / f"{digest[:40]}.npz"

    def _trim(self) -> None:
        """Delete the oldest files until the rest fits."""
        files = sorted(self._folder.glob("*.npz"), key=lambda file: file.stat().st_mtime)
        total = sum(file.stat().st_size for file in files)
        for file in files[:-1]:
            if total <= TOPOLOGY_FILES_BYTES_MAX:
                break
            total -= file.stat().st_size
            file.unlink(missing_ok=True)


def _encode(frame: Frame, topology: Topology) -> dict[str, Any]:
    parts: dict[str, Any] = {
        "row_ids": frame.row_ids,
        "src": topology.src.view,
        "dst": topology.dst.view,
    }
    for side in _SIDES:
        rows = asdict(topology.compressed(side))
        parts |= {f"{side}_{name}": np.asarray(part) for name, part in rows.items()}
    return parts


def _decode(parts: dict[str, Any], *, nodes: tuple[int, int]) -> tuple[RowIds, Topology]:
    topology = Topology.build(parts["src"], parts["dst"], nodes_from=nodes[0], nodes_to=nodes[1])
    for side, count in zip(_SIDES, nodes, strict=True):
        starts, targets, edges, parallel = (
            parts[f"{side}_{name}"] for name in Csr.__struct_fields__
        )
        rows = Csr(starts, targets, edges, bool(parallel))
        if len(rows.starts) != count + 1 or rows.starts[-1] != len(rows.targets):
            raise ValueError("the rows do not fit the nodes")
        topology.adopt(side, rows)
    if not len(parts["row_ids"]) == len(parts["src"]) == len(parts["dst"]):
        raise ValueError("the ends do not fit the edges")
    return parts["row_ids"], topology
