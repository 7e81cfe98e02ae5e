"""Topologies and fingerprints of ids in files, so that a new process does not make them again.

A file is named after the exact table versions it was made from, down to the transaction that made
each of them; of versions with the same rows, the first. It is written under another name first. It
holds a head (JSON, with its checksum) and sections, which are mapped into memory and read when they
are first needed; the checksum of a section is verified then, once. A missing, stale or damaged file
costs the time of a rebuild and nothing else; a file of another format is not looked at.

Danger: reading a mapped page of a file that somebody has cut short ends the process. We never
change a file in place and compare its size before we map it; deleting it is harmless.
"""

from __future__ import annotations

import hashlib
import json
import logging
import mmap
import os
import threading
import zlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.engine.read.memory.arrays import RowIdList, SmallPositions
from omnigraph.engine.read.memory.compressed import Checkpoint, Csr
from omnigraph.engine.read.memory.frame import Frame
from omnigraph.engine.read.memory.prints import Prints
from omnigraph.engine.read.memory.topology import ENDS, SIDES, Bulk, End, Side
from omnigraph.errors import OmnigraphError
from omnigraph.model.graph import PendingEntry, Pin, TableEntry
from omnigraph.model.limits import TOPOLOGY_FILE_EDGES_MIN, TOPOLOGY_FILES_BYTES_MAX
from omnigraph.storage.table.table import Tables

logger = logging.getLogger(__name__)

_MAGIC: Final = b"omnigraph topology 3\n"
_SUFFIX: Final = ".topology"
_IDS_SUFFIX: Final = ".ids"
_ALIGNED: Final = 64
_SUMMED_WORDS: Final = 1 << 9
_NAMES_KNOWN_MAX: Final = 1_024
_SAME_ROWS: Final = frozenset({"Rewrite", "ReserveFragments", "CreateIndex"})
_REWRITES_MAX: Final = 64  # versions without a change of rows, one after the other
_UNREADABLE: Final = (OSError, ValueError)

Remake = Callable[[End], SmallPositions]


def user_topology_folder() -> Path:
    """The folder for the topologies of all graphs of this user."""
    return Path.home() / ".cache" / "omnigraph" / "topology"


class _Section(msgspec.Struct, frozen=True):
    """Where an array lies, counted from the end of the head."""

    offset: int
    count: int
    dtype: str
    checksum: int


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """What is in the file. `first_row_id` is there if the row ids of the edges are one range. A
    file of ids has no edges."""

    edges: int = 0
    nodes: tuple[int, int]
    first_row_id: int | None = None
    parallel: dict[Side, bool] = msgspec.field(default_factory=dict)
    sections: dict[str, _Section]
    size: int


class DamagedError(ValueError):
    """A section does not hold what was written; only this folder catches it."""


class _Mapped:
    """The sections of one open file."""

    def __init__(self, path: Path, *, trusted: bool = False) -> None:
        """Of a `trusted` file, which we have just written, no section is verified."""
        self.path = path
        with path.open("rb") as file:
            if file.read(len(_MAGIC)) != _MAGIC:
                raise DamagedError("no topology of this format")
            length, checksum = np.frombuffer(_exactly(file.read(16), 16), dtype=np.uint64).tolist()
            if length > os.fstat(file.fileno()).st_size:
                raise DamagedError("the head is cut")
            text = _exactly(file.read(length), length)
            if zlib.crc32(text) != checksum:
                raise DamagedError("the head is damaged")
            self.head = msgspec.json.decode(text, type=_Head)
            self._begin = _aligned(len(_MAGIC) + 16 + length)
            if os.fstat(file.fileno()).st_size != self._begin + self.head.size:
                raise DamagedError("the file is cut")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._verified = {*self.head.sections} if trusted else set()
        self._lock = threading.Lock()

    def section(self, name: str) -> npt.NDArray[Any]:
        """The array of a section, verified when it is first asked for."""
        at = self.head.sections[name]
        found = np.frombuffer(self._map, at.dtype, at.count, self._begin + at.offset)
        with self._lock:
            if name not in self._verified:
                if _checksum(found) != at.checksum:
                    raise DamagedError(f"section {name} is damaged")
                self._verified.add(name)
        return found


def _checksum(array: npt.NDArray[Any]) -> int:
    """A number that other bytes do not have, made as fast as memory is read: the first answer of a
    process waits for it. Words are added up by blocks, and the sums are hashed."""
    body = array.view(np.uint8)
    blocks, left = divmod(len(body), _SUMMED_WORDS * 8)
    whole = body[: len(body) - left].view(np.uint64).reshape(blocks, _SUMMED_WORDS)
    sums = np.add.reduce(whole, axis=1, dtype=np.uint64)
    return zlib.crc32(body[len(body) - left :].data, zlib.crc32(sums.data))


def _exactly(body: bytes, length: int) -> bytes:
    if len(body) != length:
        raise DamagedError("the file is cut")
    return body


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNED) * _ALIGNED


class StoredEdges:
    """The edges of a topology in a file, for frames whose lengths are those it was made from."""

    def __init__(self, mapped: _Mapped) -> None:
        self._mapped = mapped
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        return self._mapped.head.edges

    def row_ids(self) -> RowIdList | None:
        """The row ids of the edges; None if they are damaged."""
        head = self._mapped.head
        if head.first_row_id is not None:
            return RowIdList.ranging(head.first_row_id, head.edges)
        try:
            return RowIdList.of(self._mapped.section("row_ids"))
        except DamagedError as cause:
            self._tell(cause)
            return None

    def bulk(self, remake: Remake) -> Bulk:
        """The edges as they are stored. Of a damaged section, the ends are made again."""
        head, made = self._mapped.head, dict[End, SmallPositions]()

        def ends(end: End) -> SmallPositions:
            try:
                return self._mapped.section(end)
            except DamagedError as cause:
                self._tell(cause)
                with self._lock:
                    if end not in made:
                        made[end] = remake(end)
                return made[end]

        bulk = Bulk(head.edges, head.nodes, ends=ends, rows=lambda side: self._rows(side, bulk))
        return bulk

    def _rows(self, side: Side, bulk: Bulk) -> Csr | None:
        section, parallel = self._mapped.section, self._mapped.head.parallel[side]
        built: list[SmallPositions] = []

        def edges() -> SmallPositions:
            try:
                return section(f"{side}_edges")
            except DamagedError as cause:
                self._tell(cause)
                with self._lock:  # the same edges give the same rows
                    if not built:
                        built.append(bulk.sorted_anew(side).edges)
                return built[0]

        try:
            starts, targets = section(f"{side}_starts"), section(f"{side}_targets")
            # The numbers of edges are only needed by those who name them: 80 MB of 20 million.
            return Csr(starts, targets, edges, section(f"{side}_looped"), parallel)
        except DamagedError as cause:
            self._tell(cause)
            return None

    def _tell(self, cause: Exception) -> None:
        extra = {"file": str(self._mapped.path), "why": str(cause)}
        logger.warning("topology unreadable", extra=extra)


class TopologyFiles:
    """The files of one folder, the oldest of which go when there are too many bytes."""

    def __init__(self, tables: Tables, folder: Path) -> None:
        self._tables = tables
        self._folder = folder
        self._name = lru_cache(_NAMES_KNOWN_MAX)(self._named)

    def has(self, edges: TableEntry, sources: Frame, targets: Frame) -> bool:
        name = self._file(edges, sources, targets)
        return name is not None and name.exists()

    def load(self, edges: TableEntry, sources: Frame, targets: Frame) -> StoredEdges | None:
        """The topology that was stored for exactly these versions, if its head is whole."""
        name = self._file(edges, sources, targets)
        if name is None or not name.exists():
            return None
        try:
            mapped = _Mapped(name)
        except (*_UNREADABLE, msgspec.MsgspecError) as cause:
            logger.warning("topology unreadable", extra={"file": str(name), "why": str(cause)})
            return None
        head = mapped.head
        fits = head.edges == edges.row_count and head.nodes == (sources.length, targets.length)
        return StoredEdges(mapped) if fits else None

    def save(
        self, frame: Frame, bulk: Bulk, sources: Frame, targets: Frame, checkpoint: Checkpoint
    ) -> StoredEdges | None:
        """Store the edges of a build from scratch, and give them back as they are stored; a failure
        only costs the next process."""
        name = self._file(frame.table.entry, sources, targets)
        if name is None or not frame.fresh:
            return None
        for side in SIDES:
            bulk.rows(side, checkpoint)
        mapped = self._stored(name, lambda draft: _write(draft, frame.row_ids, bulk))
        return None if mapped is None else StoredEdges(mapped)

    def prints(self, frame: Frame) -> Prints | None:
        """The fingerprints that were stored of the ids of exactly this version."""
        name = self._ids_file(frame)
        if name is None or not name.exists():
            return None
        try:
            mapped = _Mapped(name)
            found = mapped.section("prints")
        except (*_UNREADABLE, KeyError, msgspec.MsgspecError) as cause:
            logger.warning("fingerprints unreadable", extra={"file": str(name), "why": str(cause)})
            return None
        return Prints(found) if len(found) == frame.length else None

    def save_prints(self, frame: Frame) -> None:
        """Store the fingerprints of the ids of a big frame, which has them in memory."""
        name = self._ids_file(frame)
        if name is None or name.exists():
            return
        made = frame.prints_of_ids()
        if made is not None:
            self._stored(name, lambda draft: _write_prints(draft, made))

    def _ids_file(self, frame: Frame) -> Path | None:
        entry = frame.table.entry
        if isinstance(entry, PendingEntry) or not frame.fresh:
            return None
        found = self._name(entry.pin)
        return None if found is None else found.with_suffix(_IDS_SUFFIX)

    def _stored(self, name: Path, write: Callable[[Path], None]) -> _Mapped | None:
        """The file of this name, written now."""
        # A reader sees the whole file or none; two writers at once leave equal files.
        draft = name.with_suffix(f".{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                write(draft)
                mapped = _Mapped(draft, trusted=True)
                draft.replace(name)
            finally:
                draft.unlink(missing_ok=True)
            self._trim()
        except _UNREADABLE as cause:
            logger.info("not stored", extra={"file": str(name), "why": str(cause)})
            return None
        return mapped

    def _file(self, edges: TableEntry, sources: Frame, targets: Frame) -> Path | None:
        """The file for these versions; None where positions are not those of a fresh build, or
        where nobody will ever ask for them again."""
        if any(
            isinstance(one, PendingEntry)
            for one in (edges, sources.table.entry, targets.table.entry)
        ):
            return None
        if edges.row_count < TOPOLOGY_FILE_EDGES_MIN or not (sources.fresh and targets.fresh):
            return None
        return self._name(edges.pin, sources.table.entry.pin, targets.table.entry.pin)

    def _named(self, *pins: Pin) -> Path | None:
        facts = [self._made_by(*pin) for pin in pins]
        if None in facts:
            return None
        # Of another format, another name: an earlier release finds its own file.
        digest = hashlib.sha256(_MAGIC + json.dumps(facts).encode()).hexdigest()
        return self._folder / f"{digest[:40]}{_SUFFIX}"

    def _made_by(self, location: str, branch: str | None, version: int) -> list[Any] | None:
        """The version that last changed rows, with the transaction that made it: neither compacting
        nor indexing changes a row or its id, so a file outlives `optimize`."""
        for at in range(version, max(0, version - _REWRITES_MAX), -1):
            try:
                made = self._tables.transactions(location, branch, after=at - 1, upto=at)
            except OmnigraphError as cause:  # cleanup has let go of the versions before
                logger.debug("no name for a topology", extra={"why": cause.message})
                return None
            if not made:
                return None
            if made[-1].operation not in _SAME_ROWS:
                return None if made[-1].uuid is None else [location, branch, at, made[-1].uuid]
        return None

    def _trim(self) -> None:
        """Delete the oldest files, also those of earlier formats, until the rest fits."""
        ours = (_SUFFIX, _IDS_SUFFIX)
        files = sorted(
            (file for file in self._folder.iterdir() if file.suffix in (*ours, ".npz")),
            key=lambda file: (file.suffix in ours, file.stat().st_mtime),
        )
        total = sum(file.stat().st_size for file in files)
        for file in files[:-1]:
            if total <= TOPOLOGY_FILES_BYTES_MAX:
                break
            total -= file.stat().st_size
            file.unlink(missing_ok=True)


def _write(path: Path, row_ids: RowIdList, bulk: Bulk) -> None:
    first = row_ids.first_of_range
    arrays: dict[str, npt.NDArray[Any]] = {} if first is not None else {"row_ids": row_ids.all()}
    for side in SIDES:
        rows = bulk.rows(side)
        arrays |= {
            f"{side}_starts": rows.starts,
            f"{side}_targets": rows.targets,
            f"{side}_edges": rows.edges,
            f"{side}_looped": rows.looped,
        }
    arrays |= {end: bulk.ends(end) for end in ENDS}
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    sections, size = _laid_out(arrays)
    head = _Head(
        edges=bulk.count,
        nodes=bulk.nodes,
        first_row_id=first,
        parallel={side: bulk.rows(side).parallel for side in SIDES},
        sections=sections,
        size=size,
    )
    _put(path, msgspec.json.encode(head), arrays, sections)


def _write_prints(path: Path, prints: Prints) -> None:
    arrays = {"prints": prints.marks}
    sections, size = _laid_out(arrays)
    head = _Head(nodes=(len(prints.marks), 0), sections=sections, size=size)
    _put(path, msgspec.json.encode(head), arrays, sections)


def _laid_out(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[dict[str, _Section], int]:
    """Where each array comes to lie, and the bytes of all."""
    sections: dict[str, _Section] = {}
    size = 0
    for name, array in arrays.items():
        sections[name] = _Section(size, len(array), array.dtype.str, _checksum(array))
        size = _aligned(size + array.nbytes)
    return sections, size


def _put(
    path: Path, head: bytes, arrays: Mapping[str, npt.NDArray[Any]], sections: dict[str, _Section]
) -> None:
    with path.open("wb") as file:
        file.write(_MAGIC)
        file.write(np.array([len(head), zlib.crc32(head)], dtype=np.uint64).tobytes())
        file.write(head)
        begin = _aligned(file.tell())
        for name, array in arrays.items():
            file.seek(begin + sections[name].offset)
            file.write(array.data)
        # The last section may end before the next aligned place.
        file.truncate(begin + max((_end(one) for one in sections.values()), default=0))


def _end(section: _Section) -> int:
    return _aligned(section.offset + section.count * np.dtype(section.dtype).itemsize)
