"""Reading one version of a table: scans, lookups, differences and blobs.

*Differences* between two versions cost what changed. Fragments that both versions share are never
looked at. Where a fragment only lost rows, the deletion files say which ones. Rows keep their row
id when they are updated or moved by compaction, so row ids tell inserted, updated and deleted rows
apart (`differences.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from itertools import chain
from typing import Any, Final, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance.dataset import ColumnOrdering

from omnigraph.model.graph import TableEntry
from omnigraph.model.schema import ROW_ADDRESS, ROW_ID
from omnigraph.storage.lance import pylance, sql
from omnigraph.storage.lance.columns import (
    LOCATED,
    equal_floats,
    standard,
    standard_schema,
    stored_condition,
)
from omnigraph.storage.lance.pylance import is_foreign, reason_of
from omnigraph.storage.table import differences
from omnigraph.storage.table import index as indexes
from omnigraph.storage.table.blobs import StoredBlob, stored_blobs
from omnigraph.storage.table.differences import STAMP, Places, Runs
from omnigraph.storage.table.index import IndexInfo
from omnigraph.storage.table.pinned import OFFSET_BITS, Pinned, column_numbers

logger = logging.getLogger(__name__)

BlobForm = Literal["descriptors", "bytes"]
U64 = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

_Answer = TypeVar("_Answer")

_BLOBS: Final = {"descriptors": "blobs_descriptions", "bytes": "all_binary"}
_VALUE_LIST_MAX: Final = 10_000  # values of one SQL condition
_ROWS_PER_VALUE: Final = 100  # fewer rows than this for each value are read and compared here
FEW_ROWS_MAX: Final = 4096  # of new fragments that are read whole to find what changed in them


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One column to sort by; nulls come first ascending and last descending."""

    column: str
    descending: bool = False

    def for_lance(self) -> ColumnOrdering:
        up = not self.descending
        return ColumnOrdering(self.column, ascending=up, nulls_first=up)


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """What to read. `columns=None` is every column; `fragments=None` the whole table.

    The names `_rowid`, `_rowaddr` and `_row_last_updated_at_version` may be asked for like columns.
    """

    columns: Sequence[str] | None = None
    where: str | None = None
    limit: int | None = None
    offset: int | None = None
    order_by: Sequence[Order] = ()
    with_row_id: bool = False
    with_row_address: bool = False
    batch_rows: int | None = None
    fragments: Sequence[int] | None = None
    blobs: BlobForm = "descriptors"


class TableDelta(msgspec.Struct, frozen=True, kw_only=True):
    """What changed since an older version. The rows are those of the newer one, with `_rowid`."""

    inserted: pa.Table
    updated: pa.Table
    deleted_row_ids: pa.Array[Any]

    @classmethod
    def only(cls, inserted: pa.Table) -> TableDelta:
        """Nothing but new rows."""
        nobody = pa.array([], pa.uint64())
        return cls(inserted=inserted, updated=inserted.slice(0, 0), deleted_row_ids=nobody)

    @property
    def is_empty(self) -> bool:
        return not (self.inserted.num_rows or self.updated.num_rows or len(self.deleted_row_ids))


class TableReader:
    """One version of a table. Nothing here moves it, and any thread may read."""

    def __init__(self, pinned: Pinned) -> None:
        self._pinned = pinned

    @property
    def entry(self) -> TableEntry:
        return self._pinned.entry

    @property
    def version(self) -> int:
        return self._pinned.entry.version

    @cached_property
    def schema(self) -> pa.Schema:
        return standard_schema(self._pinned.dataset.schema)

    @cached_property
    def column_numbers(self) -> dict[str, int]:
        """Lance's number of each column; a column that was dropped and made again has another."""
        return column_numbers(self._pinned.dataset)

    @property
    def fragment_ids(self) -> tuple[int, ...]:
        """The numbers of the table's fragments, for scans of parts."""
        return tuple(self._pinned.dataset.fragment_ids())

    def count(self, where: str | None = None) -> int:
        """How many rows there are, or how many satisfy the SQL condition."""
        with self._reading():
            if where is None:
                return int(self._pinned.dataset.count_rows())
            request = Scan(columns=[], where=where, with_row_id=True)
            return self._asked(request, lambda scanner: int(scanner.count_rows()))

    def scan(self, **options: Any) -> pa.RecordBatchReader:
        """The rows that a `Scan` of these options asks for, batch by batch, in table order unless
        told otherwise."""
        with self._reading():
            reader = self._batches(Scan(**options))
        # Lance reads when the batches are asked for, long after this call.
        return pa.RecordBatchReader.from_batches(reader.schema, self._guarded(reader))

    def read(self, **options: Any) -> pa.Table:
        """The same as `scan`, all at once."""
        with self._reading():
            return self._rows(Scan(**options))

    def locate(self, ids: Sequence[str]) -> pa.Table:
        """Where the rows with these ids are: `id`, `_rowid`, `_rowaddr`; missing ones left out."""
        with self._reading():
            if not ids or not self._pinned.dataset.count_rows():
                return LOCATED.empty_table()
            return self._lookup({"id": ids}, LOCATED.names)

    def lookup(
        self,
        column: str,
        values: Sequence[Any],
        columns: Sequence[str],
        *,
        and_in: Mapping[str, Sequence[Any]] | None = None,
    ) -> pa.Table:
        """The columns of the rows whose `column` holds one of the values, and whose columns in
        `and_in` hold one of theirs; `_rowid` and `_rowaddr` may be asked for.

        Of floats, -0.0 is 0.0, and NaN is NaN whatever its bits. The cost does not grow with the
        number of small commits.
        """
        with self._reading():
            return self._lookup({column: values, **(and_in or {})}, columns)

    def take(self, row_ids: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows with these `_rowid`s, in the order given; ids that are gone are left out."""
        wanted = row_ids if isinstance(row_ids, pa.Array) else pa.array(row_ids, pa.uint64())
        dataset = self._pinned.dataset
        with self._reading():
            names = dataset.schema.names if columns is None else columns
            return standard(pylance.take_rows(dataset, wanted, names))

    def changed_at(self, entity_id: str) -> int | None:
        """A version from which on the row of that id is as it is here: the one that last changed
        it, or one not long after. None if there is no such row."""
        with self._reading():
            if not self._pinned.dataset.count_rows():
                return None
            places = self._lookup({"id": [entity_id]}, [ROW_ADDRESS])[ROW_ADDRESS].to_pylist()
            if not len(places):
                return None
            found = self._rows(Scan(columns=[STAMP], where=f"{ROW_ADDRESS} = {places[0]}"))
            return int(found[STAMP][0].as_py())

    @property
    def rows_lost(self) -> int | None:
        """How many rows were ever deleted on the way to this version, however long ago; it never
        shrinks from one version to the next. None if this release of Lance does not tell."""
        with self._reading():
            given = pylance.row_ids_given(self._pinned.dataset)
            return None if given is None else given - int(self._pinned.dataset.count_rows())

    def changes_since(
        self, older: TableReader, *, columns: Sequence[str] | None = None
    ) -> TableDelta:
        """What happened between an ancestor of this version and this version.

        Costs what the difference costs: shared fragments are not read, and compaction is no change.
        """
        with self._reading():
            mine, theirs = differences.apart(self._pinned, older._pinned)
            names = list(self.schema.names) if columns is None else list(columns)
            names = [*(name for name in names if name != ROW_ID), ROW_ID]
            rows, runs = self._written_rows(mine, names) or self._few_rows(mine, names)
            if rows is not None and not (theirs.fragments or theirs.addresses):
                return TableDelta.only(rows.select(names))
            new, old = differences.cut(runs, differences.runs_at(older._pinned, theirs))
            unlike, _ = differences.unlike(
                new, old, shared=older.version, versions=(self.version, older.version)
            )
            known = differences.among(new, old)
            touched, added = new.places(known & unlike), new.places(~known)
            gone = old.row_ids(~differences.among(old, new))
            if rows is None:
                rows = self._rows_at(np.concatenate([added, touched]), [*names, ROW_ADDRESS])
            return TableDelta(
                inserted=_at(rows, added).select(names),
                updated=_at(rows, touched).select(names),
                deleted_row_ids=pa.array(gone, pa.uint64()),
            )

    def _written_rows(self, places: Places, names: Sequence[str]) -> tuple[pa.Table, Runs] | None:
        """All rows of these fragments, if this process still has what it wrote to them: a scan of
        one row takes longer than all else that a difference costs."""
        if places.addresses or not places.fragments:
            return None
        numbers, stored = self.column_numbers, (name for name in names if name != ROW_ID)
        columns = {numbers[name]: self.schema.field(name) for name in stored}
        found = self._pinned.narrowing.rows(self._pinned.dataset, places.fragments, columns)
        if found is None:
            return None
        runs = differences.runs_at(self._pinned, places)
        every = np.ones(len(runs.ids), dtype=np.bool_)
        row_ids, addresses = runs.row_ids(every), runs.places(every)
        if len(row_ids) != found.num_rows:
            return None
        rows = found.append_column(ROW_ID, pa.array(row_ids))
        return rows.append_column(ROW_ADDRESS, pa.array(addresses)), runs

    def _few_rows(self, places: Places, names: Sequence[str]) -> tuple[pa.Table | None, Runs]:
        """All rows of these fragments, if they are so few that a second scan for those that are
        wanted would cost more than reading the others; and their runs."""
        few = not places.addresses and len(places.fragments) > 0
        if few and self._row_count(places.fragments) <= FEW_ROWS_MAX:
            columns = [*names, STAMP, ROW_ADDRESS]
            rows = self._rows(Scan(columns=columns, fragments=places.fragments))
            return rows, Runs.of_rows(rows)
        return None, differences.runs_at(self._pinned, places)

    def differing_rows(
        self,
        older: TableReader,
        *,
        shared: int,
        columns: Sequence[str],
        older_columns: Sequence[str],
    ) -> tuple[pa.Table, pa.Table]:
        """The rows of this version and of the other that may differ, each with its row id; of the
        other version, the columns that it has.

        Costs what the difference costs. `shared` is the newest version that both came from
        (`Tables.shared`): what neither has touched since is the same row, wherever it was moved.
        """
        with self._reading():
            mine, theirs = differences.apart(self._pinned, older._pinned)
            new, old = differences.cut(
                differences.runs_at(self._pinned, mine), differences.runs_at(older._pinned, theirs)
            )
            unlike_new, unlike_old = differences.unlike(
                new, old, shared=shared, versions=(self.version, older.version)
            )
            return (
                self._rows_at(new.places(unlike_new), [*columns, ROW_ID]),
                older._rows_at(old.places(unlike_old), [*older_columns, ROW_ID]),
            )

    def blobs(self, column: str, row_ids: Sequence[int]) -> list[StoredBlob | None]:
        """The blobs of the rows with these row ids, in that order; None for null."""
        return stored_blobs(self._pinned, column, row_ids)

    def indexes(self) -> tuple[IndexInfo, ...]:
        """Every index, and how much of the table it covers."""
        return indexes.describe(self._pinned)

    def _reading(self) -> AbstractContextManager[None]:
        return self._pinned.translated(doing="read")

    # --- scans -------------------------------------------------------------------------------

    def _rows(self, scan: Scan) -> pa.Table:
        found: pa.Table = self._asked(scan, lambda scanner: scanner.to_table())
        return standard(found)

    def _batches(self, scan: Scan) -> pa.RecordBatchReader:
        def begun(scanner: Any) -> pa.RecordBatchReader:
            reader: pa.RecordBatchReader = scanner.to_reader()
            if scan.where is None:
                return reader
            # Lance asks its indexes before the first batch comes.
            first = next(iter(reader), None)
            begin = [] if first is None else [first]
            return pa.RecordBatchReader.from_batches(reader.schema, chain(begin, reader))

        return standard(self._asked(scan, begun))

    def _guarded(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with self._reading():
            yield from reader

    def _asked(self, scan: Scan, ask: Callable[[Any], _Answer]) -> _Answer:
        """What the scanner answers; a damaged index only costs time."""
        try:
            return ask(self._scanner(scan))
        except BaseException as cause:
            if scan.where is None or not is_foreign(cause):
                raise
            # An error of the data, or of the condition, comes again when all rows are looked at.
            logger.warning(
                "reading without indexes",
                extra={"table": self.entry.table_key, "why": reason_of(cause)},
            )
            return ask(self._scanner(scan, use_indexes=False))

    def _scanner(self, scan: Scan, *, use_indexes: bool = True) -> Any:
        """The Lance scanner for the request; it reports to the meter when it is done."""
        dataset = self._pinned.dataset
        chosen = scan.fragments
        return dataset.scanner(
            columns=None if scan.columns is None else list(scan.columns),
            filter=stored_condition(scan.where, dataset.schema),
            limit=scan.limit,
            offset=scan.offset,
            order_by=[order.for_lance() for order in scan.order_by] or None,
            with_row_id=scan.with_row_id,
            with_row_address=scan.with_row_address,
            batch_size=scan.batch_rows,
            fragments=None if chosen is None else [dataset.get_fragment(one) for one in chosen],
            scan_in_order=True,
            use_scalar_index=use_indexes,
            blob_handling=_BLOBS[scan.blobs],
            scan_stats_callback=self._pinned.meter.add,
        )

    # --- lookups -----------------------------------------------------------------------------

    def _lookup(self, wanted: Mapping[str, Sequence[Any]], columns: Sequence[str]) -> pa.Table:
        """The columns of the rows that hold one of the wanted values in every column named."""
        short = {name: values for name, values in wanted.items() if len(values) <= _VALUE_LIST_MAX}
        chosen = self._narrowed(short)
        if chosen is not None and not chosen:
            return self._nothing(columns)
        fewest = min(len(values) for values in wanted.values())
        if len(short) == len(wanted) and fewest * _ROWS_PER_VALUE < self._row_count(chosen):
            where = sql.all_of(*(sql.in_list(name, values) for name, values in wanted.items()))
            return self._rows(Scan(columns=columns, where=where, fragments=chosen))
        # Comparing every row with many values is cheaper here than in Lance's filters.
        names = [*columns, *(name for name in wanted if name not in columns)]
        found = self._rows(Scan(columns=names, fragments=chosen))
        for name, values in wanted.items():
            held = equal_floats(found[name])
            options = equal_floats(pa.array(values, held.type))
            found = found.filter(pc.is_in(held, value_set=options, skip_nulls=True))
        return found.select(list(columns))

    def _narrowed(self, wanted: Mapping[str, Sequence[Any]]) -> list[int] | None:
        """The fragments that may hold rows with all the wanted values; None means any may."""
        pinned = self._pinned
        chosen: list[int] | None = None
        for name, values in wanted.items():
            holding = pinned.narrowing.fragments(pinned.dataset, name, values)
            if holding is None:
                return None
            chosen = holding if chosen is None else [one for one in holding if one in set(chosen)]
        return chosen

    def _row_count(self, fragments: Sequence[int] | None) -> int:
        dataset = self._pinned.dataset
        if fragments is None:
            return int(dataset.count_rows())
        return sum(int(dataset.get_fragment(one).physical_rows) for one in fragments)

    def _nothing(self, columns: Sequence[str]) -> pa.Table:
        stored = self.schema
        hidden = (ROW_ID, ROW_ADDRESS)
        fields = [(LOCATED if name in hidden else stored).field(name) for name in columns]
        return pa.schema(fields).empty_table()

    def _rows_at(self, addresses: U64, columns: Sequence[str]) -> pa.Table:
        """The rows at these places of the table.

        Cheaper than `take` on a version that is read for the first time: Lance needs no map from
        row ids to places.
        """
        if not len(addresses):
            return self._rows(Scan(columns=columns, limit=0))
        if len(addresses) <= _VALUE_LIST_MAX:
            listed = ", ".join(str(address) for address in addresses.tolist())
            return self._rows(Scan(columns=columns, where=f"{ROW_ADDRESS} IN ({listed})"))
        fragments = np.unique(addresses >> np.uint64(OFFSET_BITS)).tolist()
        names = [*columns, *([ROW_ADDRESS] if ROW_ADDRESS not in columns else [])]
        found = self._rows(Scan(columns=names, fragments=fragments))
        return _at(found, addresses).select(list(columns))


def _at(rows: pa.Table, addresses: U64) -> pa.Table:
    """Those of the rows that are at these places."""
    if not len(addresses):
        return rows.slice(0, 0)
    return rows.filter(pc.is_in(rows[ROW_ADDRESS], value_set=pa.array(addresses)))


def texts(column: pa.ChunkedArray[Any]) -> list[str]:
    """The values of a text column that has no nulls."""
    values: list[Any] = column.to_pylist()
    return values
