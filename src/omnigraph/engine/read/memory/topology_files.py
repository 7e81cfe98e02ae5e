"""Topologies in files, so that a new process does not build them again.

A file is named after the exact table versions it was made from, down to the transaction that made
each of them; it is written under another name first and its parts carry checksums. A missing, stale
or damaged file costs the time of a rebuild and nothing else.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import zipfile
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.engine.read.memory.frame import Frame
from omnigraph.engine.read.memory.topology import Csr, Topology
from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import TOPOLOGY_FILE_EDGES_MIN, TOPOLOGY_FILES_BYTES_MAX
from omnigraph.storage.table.table import Tables

logger = logging.getLogger(__name__)

FORMAT: Final = 1
_SIDES: Final = ("out", "in")
_UNREADABLE: Final = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)


def user_topology_folder() -> Path:
    """The folder for the topologies of all graphs of this user."""
    return Path.home() / ".cache" / "omnigraph" / "topology"


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """What a file gives back: the row ids of the edges, and their shape."""

    row_ids: npt.NDArray[np.uint64]
    topology: Topology


class TopologyFiles:
    """The files of one folder, the oldest of which go when there are too many bytes."""

    def __init__(self, tables: Tables, folder: Path) -> None:
        self._tables = tables
        self._folder = folder
        self._names: dict[Any, Path | None] = {}

    def has(self, edges: TableEntry, sources: Frame, targets: Frame) -> bool:
        name = self._file(edges, sources, targets)
        return name is not None and name.exists()

    def load(self, edges: TableEntry, sources: Frame, targets: Frame) -> Stored | None:
        """The topology, if it was stored for exactly these versions and is whole."""
        name = self._file(edges, sources, targets)
        if name is None or not name.exists():
            return None
        try:
            # numpy leaks a file that it opened itself when that is no archive.
            with name.open("rb") as file, np.load(file, allow_pickle=False) as parts:
                stored = _decode(dict(parts), nodes=(sources.length, targets.length))
        except _UNREADABLE as cause:
            logger.warning("topology unreadable", extra={"file": str(name), "why": str(cause)})
            return None
        return stored if len(stored.row_ids) == edges.row_count else None

    def save(self, frame: Frame, topology: Topology, sources: Frame, targets: Frame) -> None:
        """Store a topology that was built from scratch; a failure only costs the next process."""
        entry = frame.table.entry
        name = self._file(entry, sources, targets)
        if (
            name is None
            or frame.change is not None
            or topology.edge_count < TOPOLOGY_FILE_EDGES_MIN
        ):
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
        rows = topology.compressed(side)
        parts[f"{side}_starts"] = rows.starts
        parts[f"{side}_targets"] = rows.targets
        parts[f"{side}_edges"] = rows.edges
        parts[f"{side}_parallel"] = np.array([rows.parallel])
    return parts


def _decode(parts: dict[str, Any], *, nodes: tuple[int, int]) -> Stored:
    topology = Topology.build(parts["src"], parts["dst"], nodes_from=nodes[0], nodes_to=nodes[1])
    for side, count in zip(_SIDES, nodes, strict=True):
        rows = Csr(
            parts[f"{side}_starts"],
            parts[f"{side}_targets"],
            parts[f"{side}_edges"],
            bool(parts[f"{side}_parallel"][0]),
        )
        if len(rows.starts) != count + 1 or rows.starts[-1] != len(rows.targets):
            raise ValueError("the rows do not fit the nodes")
        topology.adopt(side, rows)
    if not len(parts["row_ids"]) == len(parts["src"]) == len(parts["dst"]):
        raise ValueError("the ends do not fit the edges")
    return Stored(row_ids=parts["row_ids"], topology=topology)
