"""Which fragments can hold a value: lookups that do not slow down with every small commit.

Each small commit adds a fragment, and a filtered scan visits all of them. A fragment's files never
change, so the values of small ones are remembered here, and a lookup scans only those that hold one
of the wanted values, and the big ones. What is remembered is keyed by the files of a fragment, its
deletions included; forgetting or not knowing only costs time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

import pyarrow as pa

from omnigraph.model.limits import NARROW_FRAGMENTS_MIN, NARROW_ROWS_MAX, NARROW_VALUES_MAX
from omnigraph.model.schema import ROW_ADDRESS
from omnigraph.storage.lance.files import FragmentKey, fragment_keys

_WRITTEN_MAX: Final = 256
_OFFSET_BITS: Final = 32

Fragments = Mapping[int, FragmentKey]
Key = tuple[FragmentKey, int]  # what makes a fragment, and a column's field number


class Narrowing:
    """Remembers the values of small fragments, the most recently used ones first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: OrderedDict[Key, frozenset[Any]] = OrderedDict()
        self._count = 0
        self._fragments: WeakKeyDictionary[Any, Fragments] = WeakKeyDictionary()
        self._written: OrderedDict[str, dict[int, Any]] = OrderedDict()

    def wrote(self, dataset: Any, path: str, rows: pa.Table) -> None:
        """A data file with these rows has just been written: no need to read it back."""
        if rows.num_rows <= NARROW_ROWS_MAX:
            plain = [field.name for field in rows.schema if _is_plain(field.type)]
            numbers = {field.name(): int(field.id()) for field in dataset.lance_schema.fields()}
            with self._lock:
                self._written[path] = {numbers[name]: rows[name] for name in plain}
                while len(self._written) > _WRITTEN_MAX:
                    self._written.popitem(last=False)

    def fragments(self, dataset: Any, column: str, wanted: Collection[Any]) -> list[int] | None:
        """The fragments that may hold one of the values in the column; None means any may."""
        if len(dataset.fragment_ids()) < NARROW_FRAGMENTS_MIN:
            return None
        if any(value != value for value in wanted):
            return None  # NaN equals no remembered value, though a filter finds it
        # By number: a name may pass from one column to another.
        field = _field_number(dataset, column)
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
                values = self._written_values(key, field)
                if values is None:
                    unknown.append(number)
                else:
                    self._remember((key, field), frozenset(values.to_pylist()))
        handles = [dataset.get_fragment(number) for number in unknown]
        small = [handle for handle in handles if handle.physical_rows <= NARROW_ROWS_MAX]
        if small:
            found = _read_values(dataset, column, small)
            with self._lock:
                for handle in small:
                    number = handle.fragment_id
                    values = frozenset(found.get(number, ()))
                    self._remember((fragments[number], field), values)

    def _written_values(self, key: FragmentKey, field: int) -> Any | None:
        """The values of a fragment of one file that this process wrote, deleted rows included."""
        if len(key.files) != 1:
            return None
        return self._written.get(key.files[0], {}).get(field)

    def _remember(self, key: Key, values: frozenset[Any]) -> None:
        self._values[key] = values
        self._count += len(values)
        while self._count > NARROW_VALUES_MAX and len(self._values) > 1:
            _, gone = self._values.popitem(last=False)
            self._count -= len(gone)


def _is_plain(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType))


def _read_values(dataset: Any, column: str, fragments: list[Any]) -> dict[int, list[Any]]:
    """The column's values by fragment number, in one scan."""
    rows = dataset.scanner(columns=[column], with_row_address=True, fragments=fragments).to_table()
    found: dict[int, list[Any]] = {}
    pairs = zip(rows[column].to_pylist(), rows[ROW_ADDRESS].to_pylist(), strict=True)
    for value, address in pairs:
        found.setdefault(address >> _OFFSET_BITS, []).append(value)
    return found


def _field_number(dataset: Any, column: str) -> int | None:
    numbers = (int(f.id()) for f in dataset.lance_schema.fields() if f.name() == column)
    return next(numbers, None)
