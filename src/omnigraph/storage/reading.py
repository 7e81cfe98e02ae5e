"""Reading one version of a table: scans, lookups, vector and full-text search."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance.dataset import ColumnOrdering
from lance.query import FullTextOperator, MatchQuery, PhraseQuery

from omnigraph.storage import sql
from omnigraph.storage.column_types import (
    standard,
    standard_batches,
    standard_schema,
    stored_condition,
)
from omnigraph.storage.faults import is_foreign, reason_of
from omnigraph.storage.handles import Pinned

logger = logging.getLogger(__name__)

ROW_ID: Final = "_rowid"
ROW_ADDRESS: Final = "_rowaddr"
BlobForm = Literal["descriptors", "bytes"]

_BLOBS: Final = {"descriptors": "blobs_descriptions", "bytes": "all_binary"}
_VALUE_LIST_MAX: Final = 10_000  # values of one SQL condition
_ROWS_PER_VALUE: Final = 100  # fewer rows than this for each value are read and compared here
_LOCATED_FIELDS: Final[list[tuple[str, pa.DataType]]] = [
    ("id", pa.string()),
    (ROW_ID, pa.uint64()),
    (ROW_ADDRESS, pa.uint64()),
]
_LOCATED: Final = pa.schema(_LOCATED_FIELDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One column to sort by; nulls come first ascending and last descending."""

    column: str
    descending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What to read. `columns=None` is every column; `fragments=None` the whole table."""

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


def rows(pinned: Pinned, scan: Scan) -> pa.Table:
    """The rows of the request, all at once; a damaged index only costs time."""
    try:
        found: pa.Table = scanner(pinned, scan).to_table()
    except BaseException as cause:
        if scan.where is None or not is_foreign(cause):
            raise
        _warn(pinned, cause)
        found = scanner(pinned, scan, use_indexes=False).to_table()
    return standard(found)


def batches(pinned: Pinned, scan: Scan) -> pa.RecordBatchReader:
    """The same, batch by batch."""
    reader: pa.RecordBatchReader = standard_batches(scanner(pinned, scan).to_reader())
    if scan.where is None:
        return reader
    try:
        # Lance asks its indexes before the first batch comes.
        first = next(iter(reader), None)
    except BaseException as cause:
        if not is_foreign(cause):
            raise
        _warn(pinned, cause)
        return standard_batches(scanner(pinned, scan, use_indexes=False).to_reader())
    begun = [] if first is None else [first]
    return pa.RecordBatchReader.from_batches(reader.schema, chain(begun, reader))


def count(pinned: Pinned, where: str | None) -> int:
    """How many rows there are, or how many satisfy the condition."""
    try:
        return int(pinned.dataset.count_rows(stored_condition(where, pinned.dataset.schema)))
    except BaseException as cause:
        if where is None or not is_foreign(cause):
            raise
        _warn(pinned, cause)
        request = Scan(columns=[], where=where, with_row_id=True)
        return int(scanner(pinned, request, use_indexes=False).count_rows())


def _warn(pinned: Pinned, cause: BaseException) -> None:
    """An error of the data, or of the condition, comes again when all rows are looked at."""
    logger.warning(
        "reading without indexes",
        extra={"table": pinned.entry.table_key, "why": reason_of(cause)},
    )


def scanner(pinned: Pinned, scan: Scan, *, use_indexes: bool = True) -> Any:
    """The Lance scanner for the request; it reports to the meter when it is done."""
    dataset = pinned.dataset
    chosen = scan.fragments
    return dataset.scanner(
        columns=None if scan.columns is None else list(scan.columns),
        filter=stored_condition(scan.where, dataset.schema),
        limit=scan.limit,
        offset=scan.offset,
        order_by=[_ordering(order) for order in scan.order_by] or None,
        with_row_id=scan.with_row_id,
        with_row_address=scan.with_row_address,
        batch_size=scan.batch_rows,
        fragments=None if chosen is None else [dataset.get_fragment(one) for one in chosen],
        scan_in_order=True,
        use_scalar_index=use_indexes,
        blob_handling=_BLOBS[scan.blobs],
        scan_stats_callback=pinned.meter.add,
    )


def locate(pinned: Pinned, ids: Sequence[str]) -> pa.Table:
    """`id`, `_rowid` and `_rowaddr` of the rows with these ids; missing ones are left out."""
    if not ids or not pinned.dataset.count_rows():
        return _LOCATED.empty_table()
    found = lookup(pinned, {"id": ids}, _LOCATED.names)
    return found.select(_LOCATED.names)


def lookup(pinned: Pinned, wanted: Mapping[str, Sequence[Any]], columns: Sequence[str]) -> pa.Table:
    """The columns of the rows that hold one of the wanted values in every column named there.

    Of floats, -0.0 is 0.0, and NaN is NaN whatever its bits.
    """
    short = {name: values for name, values in wanted.items() if len(values) <= _VALUE_LIST_MAX}
    chosen = _narrowed(pinned, short)
    if chosen is not None and not chosen:
        return _nothing(pinned, columns)
    fewest = min(len(values) for values in wanted.values())
    if len(short) == len(wanted) and fewest * _ROWS_PER_VALUE < _rows(pinned, chosen):
        where = sql.all_of(*(sql.in_list(name, values) for name, values in wanted.items()))
        request = Scan(columns=columns, where=where, fragments=chosen)
        return rows(pinned, request)
    # Comparing every row with many values is cheaper here than in Lance's filters.
    names = [*columns, *(name for name in wanted if name not in columns)]
    found = rows(pinned, Scan(columns=names, fragments=chosen))
    for name, values in wanted.items():
        held = _one_zero_one_nan(found[name])
        options = _one_zero_one_nan(pa.array(values, held.type))
        found = found.filter(pc.is_in(held, value_set=options, skip_nulls=True))
    return found.select(list(columns))


def _one_zero_one_nan(values: Any) -> Any:
    """Floats as Arrow looks them up, which is by their bits."""
    if not pa.types.is_floating(values.type):
        return values
    values = pc.add(values, pa.scalar(0, values.type))
    return pc.if_else(pc.is_nan(values), pa.scalar(float("nan"), values.type), values)


def _narrowed(pinned: Pinned, wanted: Mapping[str, Sequence[Any]]) -> list[int] | None:
    """The fragments that may hold rows with all the wanted values; None means any may."""
    chosen: list[int] | None = None
    for name, values in wanted.items():
        holding = pinned.narrowing.fragments(pinned.dataset, name, values)
        if holding is None:
            return None
        chosen = holding if chosen is None else [one for one in holding if one in set(chosen)]
    return chosen


def _rows(pinned: Pinned, fragments: Sequence[int] | None) -> int:
    if fragments is None:
        return int(pinned.dataset.count_rows())
    return sum(int(pinned.dataset.get_fragment(one).physical_rows) for one in fragments)


def _nothing(pinned: Pinned, columns: Sequence[str]) -> pa.Table:
    stored, located = standard_schema(pinned.dataset.schema), _LOCATED
    fields = [
        located.field(name) if name in (ROW_ID, ROW_ADDRESS) else stored.field(name)
        for name in columns
    ]
    return pa.schema(fields).empty_table()


def take(pinned: Pinned, row_ids: Any, columns: Sequence[str] | None) -> pa.Table:
    """The rows with these row ids, in this order; ids that are gone are left out."""
    wanted = row_ids if isinstance(row_ids, pa.Array) else pa.array(row_ids, pa.uint64())
    names = list(pinned.dataset.schema.names) if columns is None else list(columns)
    return standard(pinned.dataset._take_rows(wanted, names))  # noqa: SLF001


def rows_at(pinned: Pinned, addresses: npt.NDArray[np.uint64], columns: Sequence[str]) -> pa.Table:
    """The rows at these places of the table.

    Cheaper than `take` on a version that is read for the first time: Lance needs no map from row
    ids to places.
    """
    if not len(addresses):
        request = Scan(columns=columns, limit=0)
    elif len(addresses) <= _VALUE_LIST_MAX:
        listed = ", ".join(str(address) for address in addresses.tolist())
        request = Scan(columns=columns, where=f"{ROW_ADDRESS} IN ({listed})")
    else:
        fragments = np.unique(addresses >> np.uint64(32)).tolist()
        request = Scan(columns=[*columns, ROW_ADDRESS], fragments=fragments)
    found = rows(pinned, request)
    if len(addresses) > _VALUE_LIST_MAX:
        found = found.filter(pc.is_in(found[ROW_ADDRESS], value_set=pa.array(addresses)))
    return found.select(list(columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """The `k` rows whose vectors are closest; `_distance` is smaller for closer rows."""

    column: str
    vector: Sequence[float]
    k: int
    metric: Literal["cosine", "l2", "dot"] = "cosine"
    where: str | None = None
    use_index: bool = True
    nprobes: int | None = None
    refine_factor: int | None = None


def nearest(pinned: Pinned, request: Nearest, columns: Sequence[str]) -> pa.Table:
    """The nearest rows with `_rowid` and `_distance`, closest first; the filter applies first."""
    query = {
        "column": request.column,
        "q": pa.array(request.vector, pa.float32()),
        "k": request.k,
        "metric": request.metric,
        "use_index": request.use_index,
        "nprobes": request.nprobes,
        "refine_factor": request.refine_factor,
    }
    found: pa.Table = pinned.dataset.scanner(
        columns=[*columns, "_distance"],
        nearest={name: value for name, value in query.items() if value is not None},
        filter=stored_condition(request.where, pinned.dataset.schema),
        prefilter=True,
        with_row_id=True,
        scan_stats_callback=pinned.meter.add,
    ).to_table()
    return standard(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class FullText:
    """Rows whose text matches the words of `text`; `limit=None` is all of them.

    `phrase` wants the words in this order next to each other; otherwise `all_words` says whether
    one is enough, and `fuzziness` how many letters may differ.
    """

    column: str
    text: str
    phrase: bool = False
    all_words: bool = False
    fuzziness: int = 0
    limit: int | None = None
    where: str | None = None


def full_text(pinned: Pinned, request: FullText, columns: Sequence[str]) -> pa.Table:
    """The matching rows with `_rowid` and `_score`, best first; the filter applies first."""
    found: pa.Table = pinned.dataset.scanner(
        columns=[*columns, "_score"],
        full_text_query=_text_query(request),
        filter=stored_condition(request.where, pinned.dataset.schema),
        prefilter=True,
        limit=request.limit,
        with_row_id=True,
        scan_stats_callback=pinned.meter.add,
    ).to_table()
    # Without an index Lance does not sort.
    return standard(found).sort_by([("_score", "descending"), (ROW_ID, "ascending")])


def _text_query(request: FullText) -> PhraseQuery | MatchQuery:
    if request.phrase:
        return PhraseQuery(request.text, request.column)
    return MatchQuery(
        request.text,
        request.column,
        fuzziness=request.fuzziness,
        operator=FullTextOperator.AND if request.all_words else FullTextOperator.OR,
    )


def texts(column: pa.ChunkedArray[Any]) -> list[str]:
    """The values of a text column that has no nulls."""
    values: list[Any] = column.to_pylist()
    return values


def _ordering(order: Order) -> ColumnOrdering:
    return ColumnOrdering(
        order.column, ascending=not order.descending, nulls_first=not order.descending
    )
