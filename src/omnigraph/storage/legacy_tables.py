"""Whether the tables of an old graph are whole and fit its schema: looked at before a migration.

A migration does not touch tables, but it takes the graph from the release that could have repaired
it. So every row of every version that a commit names is read once, each file only once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import lance
import pyarrow as pa

from omnigraph.errors import CorruptGraphError, NotFoundError
from omnigraph.model.graph import TableEntry
from omnigraph.model.schema import Catalog
from omnigraph.storage.arrow_schema import arrow_schema
from omnigraph.storage.column_types import standard_schema
from omnigraph.storage.damage import require_home
from omnigraph.storage.delta import FragmentKey, fragment_keys
from omnigraph.storage.faults import is_foreign
from omnigraph.storage.layout import branch_folder
from omnigraph.storage.legacy import fault
from omnigraph.storage.manifest import ManifestStore
from omnigraph.storage.manifest_dataset import Opened
from omnigraph.storage.objects import Root
from omnigraph.storage.torn import version_file

Pin = tuple[str, str | None, int]


class OldTables:
    """Reads the tables of an old graph through and says what is wrong with them."""

    def __init__(self, manifests: ManifestStore) -> None:
        self._manifests = manifests
        self._root: Root = manifests.root
        self._pins: set[Pin] = set()
        self._files: set[tuple[str, FragmentKey]] = set()

    def check(self, lines: Iterable[Opened]) -> None:
        """`CorruptGraphError` names the first table that is damaged or does not fit."""
        opened = list(lines)
        for head in opened:
            self._check_head(head)
        for head in opened:
            self._check_past(head)

    def settled(self, entries: Mapping[str, TableEntry]) -> dict[str, TableEntry]:
        """The same tables, each at its newest version if that has the very same rows and columns.

        0.7 leaves such versions behind, unpublished (a delete that met no row): to a writer of ours
        they would look like somebody else's unfinished work. Real ones stay, for repair to judge.
        """
        return {key: self._settled(entry) for key, entry in entries.items()}

    def _settled(self, entry: TableEntry) -> TableEntry:
        folder = branch_folder(entry.location, entry.branch)
        uri, options = self._root.child(folder), self._root.storage_options
        with self._reading(folder):
            pinned: Any = lance.dataset(uri, version=entry.version, storage_options=options)
            newest: Any = lance.dataset(uri, storage_options=options)
        same = newest.schema.equals(pinned.schema, check_metadata=True) and (
            fragment_keys(newest) == fragment_keys(pinned)
        )
        return replace(entry, version=int(newest.version)) if same else entry

    def _check_head(self, head: Opened) -> None:
        tail = self._manifests.legacy.tail(head)
        catalog = self._manifests.old_schemas.read(tail.schema.ir, tail.schema.source)
        _check_keys(catalog, tail.entries)
        for entity in catalog.types():
            entry = tail.entries[entity.table_key]
            stored = self._read(entry, needed=True)
            assert stored is not None, "a table of a head is there or it is an error"
            _check_columns(entry, stored, arrow_schema(entity))

    def _check_past(self, head: Opened) -> None:
        datasets = self._manifests.datasets
        for row in self._manifests.legacy.tail(head).commits:
            try:
                then = datasets.open_version(row.branch_id, row.commit.graph_manifest_version)
                entries = self._manifests.legacy.entries(then)
            except NotFoundError:
                continue  # cleaned up
            for entry in entries.values():
                self._read(entry, needed=False)

    def _read(self, entry: TableEntry, *, needed: bool) -> pa.Schema | None:
        """Read what was not read yet of the version; its columns, or None if it is gone."""
        folder = branch_folder(entry.location, entry.branch)
        file = f"{folder}/_versions/{version_file(entry.version)}"
        if not needed and not self._manifests.store.keys_beginning(file):
            return None
        with self._reading(folder):
            dataset: Any = lance.dataset(
                self._root.child(folder),
                version=entry.version,
                storage_options=self._root.storage_options,
            )
            require_home(dataset, self._root, folder)
            schema: pa.Schema = dataset.schema
            pin = (entry.location, entry.branch, entry.version)
            if pin not in self._pins:
                self._pins.add(pin)
                self._read_rows(entry, dataset)
        return schema

    @contextmanager
    def _reading(self, folder: str) -> Iterator[None]:
        try:
            yield
        except BaseException as cause:
            if not is_foreign(cause):
                raise
            raise fault(cause, folder=folder, uri=self._root.child(folder)) from cause

    def _read_rows(self, entry: TableEntry, dataset: Any) -> None:
        rows = int(dataset.count_rows())
        if rows != entry.row_count:
            raise CorruptGraphError(
                f"'{entry.table_key}' has {rows} rows at version {entry.version}, the manifest "
                f"says {entry.row_count}",
                part=entry.location,
            )
        for number, key in fragment_keys(dataset).items():
            if (entry.location, key) not in self._files:
                self._files.add((entry.location, key))
                for _ in dataset.get_fragment(number).to_batches():
                    pass


def _check_keys(catalog: Catalog, entries: Mapping[str, TableEntry]) -> None:
    wanted = {entity.table_key for entity in catalog.types()}
    for key in sorted(wanted ^ entries.keys()):
        told = "has no table" if key in wanted else "has a table, but the schema does not have it"
        raise CorruptGraphError(f"'{key}' {told}", part="__manifest", table_key=key)


def _check_columns(entry: TableEntry, stored: pa.Schema, wanted: pa.Schema) -> None:
    found = {column.name: column.type for column in standard_schema(stored)}
    for column in wanted:
        kind = found.pop(column.name, None)
        if kind is None or not kind.equals(column.type):
            told = "is missing" if kind is None else f"is {kind}"
            raise CorruptGraphError(
                f"column '{column.name}' of '{entry.table_key}' {told}, expected {column.type}",
                part=entry.location,
            )
    if found:
        raise CorruptGraphError(
            f"'{entry.table_key}' has the column '{min(found)}', which the schema does not know",
            part=entry.location,
        )
