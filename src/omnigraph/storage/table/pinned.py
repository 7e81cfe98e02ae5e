"""One version of a table, opened: what reading, staging and upkeep share."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from omnigraph.model.graph import TableEntry
from omnigraph.model.ports import ObjectStore
from omnigraph.storage.lance.fsync import Flusher
from omnigraph.storage.lance.line import Lines
from omnigraph.storage.lance.pylance import is_damaged_read, told_by
from omnigraph.storage.objects.root import branch_folder
from omnigraph.storage.table.narrow import Narrowing


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """What was read from tables: finished scans, rows looked at, bytes and requests to storage."""

    scans: int = 0
    rows: int = 0
    bytes: int = 0
    requests: int = 0


class Meter:
    """Adds up what Lance says about each finished scan. Costs are tested by it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total = Readings()

    @property
    def total(self) -> Readings:
        return self._total

    def add(self, scan: Any) -> None:
        """Called by Lance at the end of a scan."""
        with self._lock:
            total = self._total
            self._total = Readings(
                scans=total.scans + 1,
                rows=total.rows + int(scan.all_counts.get("rows_scanned", 0)),
                bytes=total.bytes + int(scan.bytes_read),
                requests=total.requests + int(scan.requests),
            )


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset at exactly the version its entry names. Nobody may move it."""

    entry: TableEntry
    dataset: Any
    lines: Lines
    meter: Meter
    narrowing: Narrowing

    @property
    def place(self) -> str:
        """Where the version's own files are, below the graph root."""
        return branch_folder(self.entry.location, self.entry.branch)

    @property
    def folder(self) -> str:
        """The same place as lance knows it: absolute."""
        return self.lines.root.child(self.place)

    @property
    def flusher(self) -> Flusher:
        return self.lines.flusher

    @property
    def store(self) -> ObjectStore:
        return self.lines.store

    def read_file(self, path: str) -> bytes | None:
        """A file of the table's own folder; None if it is not there."""
        found = self.store.read(f"{self.place}/{path}")
        return None if found is None else found.body

    def translated(self, *, doing: str) -> AbstractContextManager[None]:
        """Run the body on this version; whatever the library raises leaves as one of ours."""
        return told_by(
            lambda cause: self.lines.unreadable(
                (self.entry.location, self.entry.branch),
                self.dataset,
                cause,
                doing=doing,
                named=f"'{self.entry.table_key}'",
                is_damaged=is_damaged_read,
            )
        )
