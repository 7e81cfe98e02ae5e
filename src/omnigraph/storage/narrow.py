"""Which fragments can hold a value: lookups that do not slow down with every small commit.

Each small commit adds a fragment, and a filtered scan visits all of them. A fragment's files never
change, so the values of small ones are remembered here, and a lookup scans only those that hold one
of the wanted values, and the big ones. What is remembered is keyed by everything that the
manifest says about a fragment, deletions included; forgetting or not knowing only costs time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import pyarrow as pa

from omnigraph.model.limits import NARROW_FRAGMENTS_MIN, NARROW_ROWS_MAX, NARROW_VALUES_MAX

# Field numbers of Lance's manifest message, of the fragments in it and of the files in these.
_FRAGMENTS: Final = 2
_FILES: Final = 2
_PATH: Final = 1
_WRITTEN_MAX: Final = 256
_OFFSET_BITS: Final = 32

Part = tuple[int, bytes]  # a fragment's number, and all that the manifest says about it
Key = tuple[bytes, int]  # what the manifest says about a fragment, and a column's field number


class Narrowing:
    """Remembers the values of small fragments, the most recently used ones first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: OrderedDict[Key, frozenset[Any]] = OrderedDict()
        self._count = 0
        self._parts: WeakKeyDictionary[Any, tuple[Part, ...]] = WeakKeyDictionary()
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
            return None
        parts = self._parts_of(dataset)
        if not parts:
            return None
        # By number: a name may pass from one column to another.
        field = _field_number(dataset, column)
        if field is None:
            return None
        values = set(wanted)
        self._learn(dataset, parts, column, field)
        with self._lock:
            return [
                number
                for number, about in parts
                if (known := self._values.get((about, field))) is None
                or not values.isdisjoint(known)
            ]

    def _parts_of(self, dataset: Any) -> tuple[Part, ...]:
        # By handle and not by address: a handle cannot come to mean another version.
        with self._lock:
            known = self._parts.get(dataset)
        if known is None:
            known = _parts(dataset)
            with self._lock:
                self._parts[dataset] = known
        return known

    def _learn(self, dataset: Any, parts: Sequence[Part], column: str, field: int) -> None:
        """Read the column of every small fragment that is not known yet, all in one scan."""
        with self._lock:
            unknown = [part for part in parts if (part[1], field) not in self._values]
            for part in list(unknown):
                values = self._written.get(_data_file(part[1]), {}).get(field)
                if values is not None:
                    self._remember((part[1], field), frozenset(values.to_pylist()))
                    unknown.remove(part)
        handles = [dataset.get_fragment(number) for number, _ in unknown]
        small = {
            number: about
            for (number, about), handle in zip(unknown, handles, strict=True)
            if handle.physical_rows <= NARROW_ROWS_MAX
        }
        if small:
            read = [handle for handle in handles if handle.fragment_id in small]
            found = _read_values(dataset, column, read)
            with self._lock:
                for number, about in small.items():
                    self._remember((about, field), frozenset(found.get(number, ())))

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
    pairs = zip(rows[column].to_pylist(), rows["_rowaddr"].to_pylist(), strict=True)
    for value, address in pairs:
        found.setdefault(address >> _OFFSET_BITS, []).append(value)
    return found


def _data_file(about: bytes) -> str:
    """The path of a fragment's only data file; empty if it has several."""
    files = _fields(about, _FILES)
    paths = _fields(files[0], _PATH) if len(files) == 1 else []
    return paths[0].decode() if len(paths) == 1 else ""


def _field_number(dataset: Any, column: str) -> int | None:
    numbers = (int(f.id()) for f in dataset.lance_schema.fields() if f.name() == column)
    return next(numbers, None)


def _parts(dataset: Any) -> tuple[Part, ...]:
    """Every fragment with its bytes in the manifest; nothing if they cannot be told apart."""
    numbers = dataset.fragment_ids()
    try:
        manifest = bytes(dataset._ds.serialized_manifest())  # noqa: SLF001 - the cheap way
        slices = _fields(manifest, _FRAGMENTS)
    except (AttributeError, IndexError, ValueError):
        return ()
    if len(slices) != len(numbers) or len(set(slices)) != len(slices):
        return ()
    return tuple(zip(numbers, slices, strict=True))


def _fields(message: bytes, wanted: int) -> list[bytes]:
    """The length-delimited fields of that number in a protobuf message."""
    found: list[bytes] = []
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        match tag & 7:
            case 0:
                _, at = _varint(message, at)
            case 1:
                at += 8
            case 2:
                size, at = _varint(message, at)
                if tag >> 3 == wanted:
                    found.append(message[at : at + size])
                at += size
            case 5:
                at += 4
            case _:
                raise ValueError(f"wire type {tag & 7}")
    return found


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
