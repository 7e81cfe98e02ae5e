"""Open Lance datasets: one session for all of them, and the most recent versions kept open."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import lance

from omnigraph.errors import NotFoundError, StorageUnavailableError
from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import (
    SESSION_INDEX_BYTES_MAX,
    SESSION_METADATA_BYTES_MAX,
    TABLE_HANDLES_MAX,
)
from omnigraph.model.ports import ObjectStore, World
from omnigraph.storage.durable import Flusher
from omnigraph.storage.faults import is_missing, reason_of, translated
from omnigraph.storage.layout import branch_folder
from omnigraph.storage.narrow import Narrowing
from omnigraph.storage.objects import Root, open_store
from omnigraph.storage.torn import newest_whole

logger = logging.getLogger(__name__)

Pin = tuple[str, str | None, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """A dataset at exactly the version its entry names. Nobody may move it."""

    entry: TableEntry
    dataset: Any
    folder: str  # absolute, as lance knows it
    flusher: Flusher
    meter: Meter
    store: ObjectStore
    narrowing: Narrowing

    def read_file(self, path: str) -> bytes | None:
        """A file of the table's own folder; None if it is not there."""
        key = f"{branch_folder(self.entry.location, self.entry.branch)}/{path}"
        found = self.store.read(key)
        return None if found is None else found.body


class Handles:
    """Opens datasets by (location, branch, version) and remembers them, newest last."""

    def __init__(self, root: Root, world: World) -> None:
        self.root = root
        self.world = world
        self.store = open_store(root, world)
        self.session: Any = lance.Session(  # type: ignore[attr-defined]  # not in its __all__
            index_cache_size_bytes=SESSION_INDEX_BYTES_MAX,
            metadata_cache_size_bytes=SESSION_METADATA_BYTES_MAX,
        )
        self.meter = Meter()
        self.narrowing = Narrowing()
        self.flusher = Flusher(root, world)
        self._options = root.storage_options or None
        self._lock = threading.Lock()
        self._open: OrderedDict[Pin, Any] = OrderedDict()

    def uri(self, location: str, branch: str | None) -> str:
        """The address under which Lance opens a branch of a table."""
        return self.root.child(branch_folder(location, branch))

    def pinned(self, entry: TableEntry) -> Pinned:
        """The dataset at the entry's version; NotFoundError if it was cleaned up or never was."""
        return self._pinned(entry, self.at(entry.location, entry.branch, entry.version))

    def pinned_alone(self, entry: TableEntry) -> Pinned:
        """The same through a handle of one's own: building an index locks the handle for others."""
        return self._pinned(entry, self.unshared(entry.location, entry.branch, entry.version))

    def _pinned(self, entry: TableEntry, dataset: Any) -> Pinned:
        return Pinned(
            entry=entry,
            dataset=dataset,
            folder=self.uri(entry.location, entry.branch),
            flusher=self.flusher,
            meter=self.meter,
            store=self.store,
            narrowing=self.narrowing,
        )

    def at(self, location: str, branch: str | None, version: int) -> Any:
        """The dataset at one version."""
        pin = (location, branch, version)
        with self._lock:
            known = self._open.get(pin)
            if known is not None:
                self._open.move_to_end(pin)
                return known
        dataset = self._load(location, branch, version)
        self.remember(location, branch, dataset)
        return dataset

    def unshared(self, location: str, branch: str | None, version: int) -> Any:
        """A handle of one's own, for the few calls that move the handle they are made on."""
        return self._load(location, branch, version)

    def head(self, location: str, branch: str | None) -> Any:
        """The dataset at its newest version, not counting what a power cut left torn."""
        try:
            return self._load(location, branch, None)
        except (NotFoundError, StorageUnavailableError):
            if self.root.local_path is None:
                raise
            found = newest_whole(self.versions_folder(location, branch))
            if found.version is None or not found.torn:
                raise
            logger.warning("read around a torn version", extra={"table": location})
            return self._load(location, branch, found.version)

    def versions_folder(self, location: str, branch: str | None) -> str:
        """Where Lance keeps the version files of a table line."""
        return f"{self.uri(location, branch)}/_versions"

    def remember(self, location: str, branch: str | None, dataset: Any) -> None:
        """Keep a handle that is at hand already, for example the one that a commit returned."""
        with self._lock:
            self._open[(location, branch, int(dataset.version))] = dataset
            while len(self._open) > TABLE_HANDLES_MAX:
                self._open.popitem(last=False)

    def forget(self, location: str, branch: str | None) -> None:
        """Drop every handle of a table branch that was removed."""
        with self._lock:
            for pin in [pin for pin in self._open if pin[:2] == (location, branch)]:
                del self._open[pin]
        self.flusher.forget(self.uri(location, branch))

    def forget_versions(self, location: str, branch: str | None, versions: Collection[int]) -> None:
        """Drop the handles of versions that were removed."""
        with self._lock:
            for version in versions:
                self._open.pop((location, branch, version), None)

    def _load(self, location: str, branch: str | None, version: int | None) -> Any:
        uri = self.uri(location, branch)
        with translated(uri, doing="open table"):
            try:
                return lance.dataset(
                    uri, version=version, session=self.session, storage_options=self._options
                )
            except (ValueError, OSError) as cause:
                if not is_missing(cause):
                    raise
                at = f" at version {version}" if version is not None else ""
                raise NotFoundError(
                    f"table '{location}'{at} is not there",
                    kind="table-version" if version is not None else "table",
                    name=location,
                    branch=branch,
                    version=version,
                    reason=reason_of(cause),
                ) from cause
