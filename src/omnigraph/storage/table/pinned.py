"""One version of a table, opened: what reading, staging and upkeep share.

*Narrowing* is for lookups that do not slow down with every small commit. Each adds a fragment, and
a filtered scan visits all of them. A fragment's files never change, so the values of small ones are
remembered, and a lookup scans only those that hold one of the wanted values, and the big ones. What
is remembered is keyed by the files of a fragment, its deletions included; forgetting or not knowing
only costs time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec
import pyarrow as pa

from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import NARROW_FRAGMENTS_MIN, NARROW_ROWS_MAX, NARROW_VALUES_MAX
from omnigraph.model.schema import ROW_ADDRESS
from omnigraph.model.structs import Recent
from omnigraph.storage.derived import DerivedFiles
from omnigraph.storage.lance.files import FragmentKey, fragment_keys
from omnigraph.storage.lance.line import Lines
from omnigraph.storage.lance.pylance import is_damaged_read, told_by
from omnigraph.storage.objects.root import branch_folder

OFFSET_BITS: Final = 32  # of a row's address: the number of its fragment stands above them
_WRITTEN_MAX: Final = 256
_WRITTEN_BYTES_MAX: Final = 1 << 17  # of more, only plain values are remembered

Fragments = Mapping[int, FragmentKey]
Key = tuple[FragmentKey, int]  # what makes a fragment, and a column's field number


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
        self.total = Readings()

    def add(self, scan: Any) -> None:
        """Called by Lance at the end of a scan."""
        with self._lock:
            total = self.total
            self.total = Readings(
                scans=total.scans + 1,
                rows=total.rows + int(scan.all_counts.get("rows_scanned", 0)),
                bytes=total.bytes + int(scan.bytes_read),
                requests=total.requests + int(scan.requests),
            )


class Narrowing:
    """Remembers the values of small fragments, the most recently used ones first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: OrderedDict[Key, frozenset[Any]] = OrderedDict()
        self._count = 0
        self._fragments: WeakKeyDictionary[Any, Fragments] = WeakKeyDictionary()
        self._written: Recent[str, dict[int, Any]] = Recent(_WRITTEN_MAX)

    def wrote(self, dataset: Any, path: str, rows: pa.Table) -> None:
        """A data file with these rows has just been written: no need to read it back."""
        if rows.num_rows <= NARROW_ROWS_MAX:
            lists = rows.nbytes <= _WRITTEN_BYTES_MAX
            kept = [one.name for one in rows.schema if _is_plain(one.type, lists=lists)]
            numbers = column_numbers(dataset)
            self._written.put(path, {numbers[name]: rows[name] for name in kept})

    def rows(
        self,
        dataset: Any,
        fragments: Collection[int],
        columns: Mapping[int, pa.Field[Any]],
    ) -> pa.Table | None:
        """All rows of these fragments, one after the other, if this process has written them not
        long ago; None if they have to be read. Columns are told by their numbers."""
        parts = []
        schema = pa.schema(list(columns.values()))
        for key in fragment_keys(dataset, fragments).values():
            written = self._written.get(key.files[0]) if len(key.files) == 1 else None
            if written is None or key.deletions is not None:
                return None
            known = [written[number] for number in columns if number in written]
            if [column.type for column in known] != schema.types:
                return None
            parts.append(pa.Table.from_arrays(known, schema=schema))
        return pa.concat_tables(parts) if parts else None

    def fragments(self, dataset: Any, column: str, wanted: Collection[Any]) -> list[int] | None:
        """The fragments that may hold one of the values in the column; None means any may."""
        if len(dataset.fragment_ids()) < NARROW_FRAGMENTS_MIN:
            return None
        if any(value != value for value in wanted):
            return None  # NaN equals no remembered value, though a filter finds it
        # By number: a name may pass from one column to another.
        field = column_numbers(dataset).get(column)
        if field is None:
            return None
        fragments = self._fragments_of(dataset)
        values = set(wanted)
        self._learn(dataset, fragments, column, field)
        with self._lock:
            return [
                number
                for number, key in fragments.items()
                if (known := self._values.get((key, field))) is None or not values.isdisjoint(known)
            ]

    def _fragments_of(self, dataset: Any) -> Fragments:
        # By handle and not by address: a handle cannot come to mean another version.
        with self._lock:
            known = self._fragments.get(dataset)
        if known is None:
            known = fragment_keys(dataset)
            with self._lock:
                self._fragments[dataset] = known
        return known

    def _learn(self, dataset: Any, fragments: Fragments, column: str, field: int) -> None:
        """Read the column of every small fragment that is not known yet, all in one scan."""
        unknown: list[int] = []
        with self._lock:
            for number, key in fragments.items():
                if (key, field) in self._values:
                    continue
                # Of a fragment of one file that this process wrote, deleted rows included.
                written = self._written.get(key.files[0]) if len(key.files) == 1 else None
                if written is not None and field in written:
                    self._remember((key, field), frozenset(written[field].to_pylist()))
                else:
                    unknown.append(number)
        handles = [dataset.get_fragment(number) for number in unknown]
        small = [handle for handle in handles if handle.physical_rows <= NARROW_ROWS_MAX]
        if small:
            found = _read_values(dataset, column, small)
            with self._lock:
                for handle in small:
                    number = handle.fragment_id
                    values = frozenset(found.get(number, ()))
                    self._remember((fragments[number], field), values)

    def _remember(self, key: Key, values: frozenset[Any]) -> None:
        self._values[key] = values
        self._count += len(values)
        while self._count > NARROW_VALUES_MAX and len(self._values) > 1:
            _, gone = self._values.popitem(last=False)
            self._count -= len(gone)


class Pinned(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset at exactly the version its entry names. Nobody may move it."""

    entry: TableEntry
    dataset: Any
    lines: Lines
    meter: Meter
    narrowing: Narrowing
    derived: DerivedFiles

    @property
    def place(self) -> str:
        """Where the version's own files are, below the graph root."""
        return branch_folder(self.entry.location, self.entry.branch)

    @property
    def folder(self) -> str:
        """The same place as lance knows it: absolute."""
        return self.lines.root.child(self.place)

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


def column_numbers(dataset: Any) -> dict[str, int]:
    """Lance's number of each column; a column that was dropped and made again has another."""
    return {field.name(): int(field.id()) for field in dataset.lance_schema.fields()}


def _is_plain(kind: pa.DataType, *, lists: bool) -> bool:
    nested = pa.types.is_nested(kind) and not lists
    return not (nested or isinstance(kind, pa.BaseExtensionType))


def _read_values(dataset: Any, column: str, fragments: list[Any]) -> dict[int, list[Any]]:
    """The column's values by fragment number, in one scan."""
    rows = dataset.scanner(columns=[column], with_row_address=True, fragments=fragments).to_table()
    found: dict[int, list[Any]] = {}
    pairs = zip(rows[column].to_pylist(), rows[ROW_ADDRESS].to_pylist(), strict=True)
    for value, address in pairs:
        found.setdefault(address >> OFFSET_BITS, []).append(value)
    return found
