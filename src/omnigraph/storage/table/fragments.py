"""The rows of a table fragment by fragment, as derived files know them.

A row's number in its fragment is that of its data file, so it never changes; which row id it has
and whether it is still there is told by the version.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.model.schema import ROW_ADDRESS, ROW_ID
from omnigraph.storage.derived import DerivedFile, DerivedName
from omnigraph.storage.lance import pylance, row_ids
from omnigraph.storage.lance.columns import standard
from omnigraph.storage.lance.files import deleted_offsets
from omnigraph.storage.lance.row_ids import U64
from omnigraph.storage.table.pinned import OFFSET_BITS, Pinned, column_numbers

_OFFSET: int = (1 << OFFSET_BITS) - 1
_MADE_BY_LANCE = ".lance"
_BATCH_BYTES: Final = 32 << 20  # of values that are read together


class ColumnFile(msgspec.Struct, frozen=True, kw_only=True):
    """Where a fragment has its values of a column."""

    fragment: int
    data: str  # the name of the data file, without its ending
    column: int  # Lance's number of the column
    rows: int  # deleted ones included


def column_files(pinned: Pinned, column: str) -> dict[int, ColumnFile]:
    """The data file of the column in each fragment; one that has none (all its values are null, or
    some of them lie elsewhere) is left out."""
    number = column_numbers(pinned.dataset)[column]
    found: dict[int, ColumnFile] = {}
    for fragment in pinned.dataset.get_fragments():
        told = fragment.metadata
        holding = [file for file in told.files if number in file.fields]
        if len(holding) == 1 and not getattr(told, "overlays", None):
            found[told.id] = ColumnFile(
                fragment=told.id,
                data=str(holding[0]._path).removesuffix(_MADE_BY_LANCE),  # noqa: SLF001
                column=number,
                rows=int(fragment.physical_rows),
            )
    return found


def stored_values(
    pinned: Pinned, fragment: int, column: str, *, bytes_max: int
) -> Iterator[pa.Array[Any]]:
    """The values of the column in a fragment, also of rows that are deleted, one array after the
    other: each of at most so many bytes, or of one row."""
    batches = pinned.dataset.scanner(
        columns=[column],
        fragments=[pinned.dataset.get_fragment(fragment)],
        with_row_id=True,
        include_deleted_rows=True,
        scan_in_order=True,
        batch_size_bytes=min(bytes_max, _BATCH_BYTES),
        scan_stats_callback=pinned.meter.add,
    ).to_batches()
    held: list[pa.Array[Any]] = []
    size = 0
    for batch in batches:
        for values in _pieces(standard(pa.table(batch))[column], bytes_max):
            if held and size + values.nbytes > bytes_max:
                yield pa.concat_arrays(held)
                held, size = [], 0
            held.append(values)
            size += values.nbytes
    if held:
        yield pa.concat_arrays(held)


def _pieces(values: pa.ChunkedArray[Any], bytes_max: int) -> Iterator[pa.Array[Any]]:
    """The same in pieces that are not too big, if they have more than one row."""
    for chunk in values.chunks:
        if chunk.nbytes <= bytes_max or len(chunk) < 2:
            yield chunk
            continue
        half = len(chunk) // 2
        for part in (chunk.slice(0, half), chunk.slice(half)):
            yield from _pieces(pa.chunked_array([part]), bytes_max)


# --- files made of them ------------------------------------------------------------------------


class DerivedRows(msgspec.Struct, frozen=True):
    """A derived file of some rows of a fragment, or of all of them."""

    first: int
    last: int  # the row after these
    file: DerivedFile

    def of(self, rows: FragmentRows) -> FragmentRows:
        """Its own among the rows of the fragment."""
        some = slice(self.first, self.last)
        return FragmentRows(rows.row_ids[some], None if rows.alive is None else rows.alive[some])


def name_of(file: ColumnFile, kind: str, first: int, last: int) -> DerivedName:
    """The name of the derived file of that kind and these rows."""
    rows = None if (first, last) == (0, file.rows) else (first, last)
    return DerivedName(data=file.data, column=file.column, kind=kind, rows=rows)


def derived(pinned: Pinned, column: str, kind: str) -> dict[int, tuple[DerivedRows, ...]]:
    """The derived files of a column, by fragment, where they tell of all its rows."""
    location = pinned.entry.location
    stored = pinned.derived.stored(location)
    known = _by_data_file(stored)
    found: dict[int, tuple[DerivedRows, ...]] = {}
    for number, file in (column_files(pinned, column) if stored else {}).items():
        opened: list[DerivedRows] = []
        names = _covering(known, file, kind) or []
        for first, last, name in names:
            body = pinned.derived.open(location, name, stored[name])
            if body is not None:
                opened.append(DerivedRows(first, last, body))
        if opened and len(opened) == len(names):
            found[number] = tuple(opened)
    return found


_Known = Mapping[tuple[str, int, str], Sequence[DerivedName]]


def _by_data_file(stored: Iterable[DerivedName]) -> _Known:
    """The names by what they are made of."""
    found: dict[tuple[str, int, str], list[DerivedName]] = {}
    for name in stored:
        found.setdefault((name.data, name.column, name.kind), []).append(name)
    return found


def _covering(
    known: _Known, file: ColumnFile, kind: str
) -> list[tuple[int, int, DerivedName]] | None:
    """The files that together tell of each row of a data file once, in its order; None if some are
    missing. Another version may have cut the rows elsewhere."""
    spans = {
        (name.rows or (0, file.rows)): name
        for name in known.get((file.data, file.column, kind), ())
    }
    longest = {first: (last, name) for (first, last), name in sorted(spans.items())}
    found: list[tuple[int, int, DerivedName]] = []
    at = 0
    while at < file.rows:
        last, name = longest.get(at, (0, None))
        if name is None or last <= at:
            return None
        found.append((at, last, name))
        at = last
    return found if at == file.rows else None


def underived(
    pinned: Pinned, column: str, kind: str, *, rows_min: int, thorough: bool
) -> list[ColumnFile]:
    """The fragments of so many rows or more without a derived file of that kind."""
    location = pinned.entry.location
    big = [file for file in column_files(pinned, column).values() if file.rows >= rows_min]
    stored = pinned.derived.stored(location) if big else {}
    known = _by_data_file(stored)

    def is_there(file: ColumnFile) -> bool:
        names = _covering(known, file, kind)
        if names is None or not thorough:
            return names is not None
        return all(pinned.derived.is_sound(location, name, stored[name]) for *_, name in names)

    return [file for file in big if not is_there(file)]


# --- rows --------------------------------------------------------------------------------------


class FragmentRows(msgspec.Struct, frozen=True):
    """The rows of a fragment by their number in it."""

    row_ids: npt.NDArray[np.uint64]
    alive: npt.NDArray[np.bool_] | None  # None: all of them


def fragment_rows(pinned: Pinned, fragment: int) -> FragmentRows:
    """The row id of every row of a fragment, and which rows are not deleted. The row ids of
    deleted ones mean nothing."""
    handle = pinned.dataset.get_fragment(fragment)
    told, count = handle.metadata, int(handle.physical_rows)
    ids = _told_row_ids(pinned, fragment, count)
    gone = _deleted(pinned, told) if ids is not None else None
    if ids is None or gone is None:
        return _scanned(pinned, handle, count)
    if not len(gone):
        return FragmentRows(ids, None)
    alive = np.ones(count, dtype=np.bool_)
    alive[gone] = False
    return FragmentRows(ids, alive)


def _told_row_ids(pinned: Pinned, fragment: int, count: int) -> U64 | None:
    """None if they are not told in the version itself."""
    note = pylance.row_notes(pinned.dataset, (fragment,)).get(fragment)
    runs = None if note is None else row_ids.decode(note.row_ids)
    return None if runs is None or int(runs[1].sum()) != count else row_ids.counted_up(*runs)


def _deleted(pinned: Pinned, told: Any) -> npt.NDArray[np.int64] | None:
    """The numbers of the rows that the deletion file names; None if it lies elsewhere."""
    deletions = told.deletion_file
    if deletions is None:
        return np.zeros(0, dtype=np.int64)
    if deletions.base_id is not None:
        return None
    found = pinned.lines.store.read(f"{pinned.place}/{deletions.path(told.id)}")
    if found is None:
        return None
    return np.asarray(list(deleted_offsets(deletions.file_type, found.body)), dtype=np.int64)


def _scanned(pinned: Pinned, handle: Any, count: int) -> FragmentRows:
    rows = pinned.dataset.scanner(
        columns=[ROW_ID, ROW_ADDRESS],
        fragments=[handle],
        scan_stats_callback=pinned.meter.add,
    ).to_table()
    at = np.asarray(rows[ROW_ADDRESS]).astype(np.int64) & _OFFSET
    row_ids, alive = np.zeros(count, dtype=np.uint64), np.zeros(count, dtype=np.bool_)
    row_ids[at] = np.asarray(rows[ROW_ID])
    alive[at] = True
    return FragmentRows(row_ids, None if alive.all() else alive)
