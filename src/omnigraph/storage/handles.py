"""Open Lance datasets: one session for all of them, and the most recent versions kept open."""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import lance

from omnigraph.errors import CorruptGraphError, NotFoundError, OmnigraphError
from omnigraph.model.graph import TableEntry, type_words
from omnigraph.model.limits import (
    SESSION_INDEX_BYTES_MAX,
    SESSION_METADATA_BYTES_MAX,
    TABLE_HANDLES_MAX,
)
from omnigraph.model.ports import ObjectStore, World
from omnigraph.storage.damage import blamed, require_home
from omnigraph.storage.durable import Flusher
from omnigraph.storage.faults import (
    as_ours,
    corrupt,
    is_damaged_read,
    is_damaged_version,
    is_foreign,
    is_missing,
    reason_of,
)
from omnigraph.storage.layout import branch_folder, dropped_mark
from omnigraph.storage.narrow import Narrowing
from omnigraph.storage.objects import Root, open_store
from omnigraph.storage.torn import hinted_torn, is_whole, newest_whole, version_file

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
    root: Root
    flusher: Flusher
    meter: Meter
    store: ObjectStore
    narrowing: Narrowing

    @property
    def folder(self) -> str:
        """Where the version's own files are: absolute, as lance knows it."""
        return self.root.child(self._place)

    @property
    def _place(self) -> str:
        return branch_folder(self.entry.location, self.entry.branch)

    def read_file(self, path: str) -> bytes | None:
        """A file of the table's own folder; None if it is not there."""
        found = self.store.read(f"{self._place}/{path}")
        return None if found is None else found.body

    @contextmanager
    def translated(self, *, doing: str) -> Iterator[None]:
        """Run the body on this version; whatever the library raises leaves as one of ours."""
        try:
            yield
        except BaseException as cause:
            if not is_foreign(cause):
                raise
            raise self.fault(cause, doing=doing) from cause

    def fault(self, cause: BaseException, *, doing: str) -> OmnigraphError:
        """The error of ours for what the library raised while it worked on this version.

        A file that is gone is damage if the version is still kept; else cleanup took both.
        """
        missing = is_missing(cause)
        if not missing and not is_damaged_read(cause):
            return as_ours(cause, uri=self.folder, doing=doing)
        try:
            kept = self.read_file(f"_versions/{version_file(self.entry.version)}") is not None
            if missing and not kept:
                return as_ours(cause, uri=self.folder, doing=doing)
            part, reason = self._blamed(), reason_of(cause)
        except OmnigraphError as second:  # the store cannot be asked: that is all we know
            return second
        return corrupt(part, doing=f"{doing} '{self.entry.table_key}'", reason=reason)

    def _blamed(self) -> str:
        """The damaged file, relative to the graph; the table's folder where it cannot be told."""
        root = self.root.local_path
        return (blamed(self.dataset, self.folder, root) if root else None) or self._place


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
        with _named(entry):
            return self._pinned(entry, self.at(entry.location, entry.branch, entry.version))

    def pinned_alone(self, entry: TableEntry) -> Pinned:
        """The same through a handle of one's own: building an index locks the handle for others."""
        with _named(entry):
            return self._pinned(entry, self.unshared(entry.location, entry.branch, entry.version))

    def _pinned(self, entry: TableEntry, dataset: Any) -> Pinned:
        return Pinned(
            entry=entry,
            dataset=dataset,
            root=self.root,
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
        """A handle of one's own, for the few calls that move or lock the one they are made on."""
        return self._load(location, branch, version)

    def head(self, location: str, branch: str | None) -> Any:
        """The dataset at its newest version; `CorruptGraphError` if that one is not whole."""
        if self.root.local_path is not None and hinted_torn(self.versions_folder(location, branch)):
            raise self._damaged(location, branch, None, reason="it is not whole")
        dataset = self._load(location, branch, None)
        self._require_whole(location, branch, int(dataset.version))
        return dataset

    def whole_head(self, location: str, branch: str | None) -> Any:
        """The dataset at its newest whole version, for recovery and for taking things away: what
        lies torn above it was never acknowledged, or is not asked for."""
        if self.root.local_path is not None:
            found = newest_whole(self.versions_folder(location, branch))
            if found.torn and found.version is not None:
                logger.warning("read around a torn version", extra={"table": location})
                return self._load(location, branch, found.version)
        return self._load(location, branch, None)

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
        if version is not None:
            self._require_whole(location, branch, version)
        try:
            dataset = lance.dataset(
                self.uri(location, branch),
                version=version,
                session=self.session,
                storage_options=self._options,
            )
            _ = dataset.schema  # Lance reads it only now, and panics over a type it does not know
        except BaseException as cause:
            if not is_foreign(cause):
                raise
            raise self._cannot_open(cause, location, branch, version) from cause
        if branch is not None:
            require_home(dataset, self.root, branch_folder(location, branch))
        return dataset

    def _require_whole(self, location: str, branch: str | None, version: int) -> None:
        """Look before Lance does: it panics over some of what it finds in a damaged file."""
        if self.root.local_path is None:
            return
        folder = self.versions_folder(location, branch)
        there = os.path.exists(os.path.join(folder, version_file(version)))
        if there and not is_whole(folder, version):
            raise self._damaged(location, branch, version, reason="it is not whole")

    def _cannot_open(
        self, cause: BaseException, location: str, branch: str | None, version: int | None
    ) -> OmnigraphError:
        reason = reason_of(cause)
        if is_missing(cause):
            if version is not None and self._is_owed(location, branch, version):
                return self._damaged(location, branch, version, reason="it is not there")
            at = f" at version {version}" if version is not None else ""
            return NotFoundError(
                f"table '{location}'{at} is not there",
                kind="table-version" if version is not None else "table",
                name=location,
                branch=branch,
                version=version,
                reason=reason,
            )
        if is_damaged_version(cause):
            return self._damaged(location, branch, version, reason=reason)
        return as_ours(cause, uri=self.uri(location, branch), doing="open table")

    def _is_owed(self, location: str, branch: str | None, version: int) -> bool:
        """Whether a version that is not there should be. Cleanup never takes the newest of a line,
        so one above the newest was lost; a line or table that is gone as a whole was dropped if
        nothing refers to it any more."""
        try:
            return int(self._load(location, branch, None).version) < version
        except NotFoundError:
            if branch is not None:
                return self.store.read(f"{location}/_refs/branches/{branch}.json") is not None
            return self.store.read(dropped_mark(location)) is None
        except CorruptGraphError:
            return True

    def _damaged(
        self, location: str, branch: str | None, version: int | None, *, reason: str
    ) -> CorruptGraphError:
        folder = f"{branch_folder(location, branch)}/_versions"
        if version is None and self.root.local_path is not None:
            torn = newest_whole(self.versions_folder(location, branch)).torn
            version = torn[0] if torn else None
        part = folder if version is None else f"{folder}/{version_file(version)}"
        return corrupt(part, doing="open table", reason=reason)


@contextmanager
def _named(entry: TableEntry) -> Iterator[None]:
    """Run the body; a version that is gone is told as people know it: by its type."""
    try:
        yield
    except NotFoundError as cause:
        raise NotFoundError(
            f"the data that {type_words(entry.table_key)} had at that commit is not kept any more",
            hint="cleanup removed it, or a schema change that drops data for good",
            kind="data",
            name=entry.table_key,
            location=entry.location,
            branch=entry.branch,
            version=entry.version,
        ) from cause
