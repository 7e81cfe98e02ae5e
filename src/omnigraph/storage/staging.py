"""Turning rows into uncommitted Lance transactions that can land on one version only.

Lance happily rebases an append or a deletion over what others committed meanwhile. Each
transaction made here therefore carries a *guard*: it claims to change a fragment that it leaves as
it is, so any other commit to the table makes Lance refuse it. A table without fragments is replaced
as a whole, which Lance never rebases.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from glob import escape, glob
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from lance import LanceOperation as Op
from lance.dataset import Transaction
from lance.fragment import FragmentMetadata, RowIdSequence, write_fragments

from omnigraph.storage.column_types import as_stored, as_stored_batches
from omnigraph.storage.faults import translated
from omnigraph.storage.handles import Pinned
from omnigraph.storage.reading import ROW_ADDRESS, ROW_ID
from omnigraph.storage.staged import StagedWrite

Rows = pa.Table | pa.RecordBatch | pa.RecordBatchReader
U64 = npt.NDArray[np.uint64]

_OFFSET_BITS: Final = np.uint64(32)
_OFFSET_MASK: Final = np.uint64((1 << 32) - 1)


def append(pinned: Pinned, rows: Rows) -> StagedWrite | None:
    """Add the rows; None if there are none."""
    return append_fragments(pinned, written(pinned, rows))


def append_fragments(pinned: Pinned, fragments: Sequence[FragmentMetadata]) -> StagedWrite | None:
    """Add fragments that are written already."""
    added = sum(fragment.physical_rows for fragment in fragments)
    if added == 0:
        return None
    return staged(pinned, "append", addition(pinned, fragments), inserted=added)


def overwrite(pinned: Pinned, rows: Rows) -> StagedWrite:
    """Replace all rows; no rows leave an empty table."""
    return overwrite_fragments(pinned, written(pinned, rows))


def overwrite_fragments(pinned: Pinned, fragments: Sequence[FragmentMetadata]) -> StagedWrite:
    """Replace all rows by fragments that are written already."""
    added = sum(fragment.physical_rows for fragment in fragments)
    gone = int(pinned.dataset.count_rows())
    operation = replacement(pinned, [one for one in fragments if one.physical_rows])
    return staged(pinned, "overwrite", operation, inserted=added, deleted=gone)


def upsert(pinned: Pinned, rows: pa.Table, existing: pa.Table) -> StagedWrite | None:
    """Replace the rows that `existing` locates by id and add the others.

    `rows` holds each id once; `existing` has `id`, `_rowid` and `_rowaddr`. Replaced rows keep
    their row id, so history and caches can follow them.
    """
    return change_rows(pinned, rows, existing, ())


def change_rows(
    pinned: Pinned, rows: pa.Table, existing: pa.Table, delete_ids: Sequence[str]
) -> StagedWrite | None:
    """The same, and remove the rows with these ids in the same version."""
    gone = existing.filter(pc.is_in(existing["id"], value_set=pa.array(delete_ids, pa.string())))
    if rows.num_rows == 0:
        return delete(pinned, gone[ROW_ADDRESS])
    if existing.num_rows == 0:
        return append(pinned, rows)
    assert pc.count_distinct(rows["id"]).as_py() == rows.num_rows, "an upsert names each id once"
    place = pc.index_in(rows["id"], value_set=existing["id"].combine_chunks())
    known = np.asarray(place.is_valid())
    old, new = np.flatnonzero(known), np.flatnonzero(~known)
    places = np.asarray(place.drop_null())
    row_ids = _u64(existing[ROW_ID])[places]
    # Ascending row ids take next to no room in the manifest, and come first because Lance gives
    # fresh ones only to the rows after them.
    ascending = np.argsort(row_ids)
    ordered = rows.take(pa.array(np.concatenate([old[ascending], new])))
    fragments = _with_row_ids(written(pinned, ordered), row_ids[ascending].tolist())
    replaced = _u64(existing[ROW_ADDRESS])[places]
    updated, removed = without_rows(pinned, np.concatenate([replaced, _u64(gone[ROW_ADDRESS])]))
    operation = change(pinned, updated=updated, removed=removed, added=fragments)
    return staged(
        pinned,
        "upsert",
        operation,
        inserted=len(new),
        updated=len(old),
        deleted=gone.num_rows,
    )


def upsert_fragments(
    pinned: Pinned,
    added: Sequence[FragmentMetadata],
    *,
    reduced: Sequence[FragmentMetadata],
    removed: Sequence[int],
    updated: int,
) -> StagedWrite:
    """Replace and add rows that are written already; `updated` of the added ones replace others."""
    inserted = sum(fragment.physical_rows for fragment in added) - updated
    operation = change(pinned, updated=reduced, removed=removed, added=added)
    return staged(pinned, "upsert", operation, inserted=inserted, updated=updated)


def delete(pinned: Pinned, addresses: pa.ChunkedArray[Any]) -> StagedWrite | None:
    """Remove the rows at these addresses; None if there are none."""
    if not len(addresses):
        return None
    updated, removed = without_rows(pinned, _u64(addresses))
    operation = change(pinned, updated=updated, removed=removed, added=[])
    return staged(pinned, "delete", operation, deleted=len(addresses))


# --- the pieces ---


def written(pinned: Pinned, rows: Rows) -> list[FragmentMetadata]:
    """The rows as uncommitted fragments in the table's folder, on disk."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table) and rows.num_rows == 0:
        return []
    if isinstance(rows, pa.Table):
        rows = as_stored(rows, pinned.dataset.schema)
    else:
        rows = as_stored_batches(rows, pinned.dataset.schema)
    with translated(pinned.folder, doing="write rows to"):
        fragments: list[FragmentMetadata] = write_fragments(
            rows, pinned.dataset, allow_external_blob_outside_bases=True
        )
    if pinned.flusher.active:
        pinned.flusher.flush(data_paths(pinned.folder, fragments))
    if isinstance(rows, pa.Table) and len(fragments) == 1:
        pinned.narrowing.wrote(pinned.dataset, fragments[0].files[0].path, rows)
    return fragments


def without_rows(pinned: Pinned, addresses: U64) -> tuple[list[FragmentMetadata], list[int]]:
    """The fragments that lose some rows, with their deletion files, and those that lose all."""
    places = np.sort(addresses)
    numbers, starts = np.unique(places >> _OFFSET_BITS, return_index=True)
    offsets = places & _OFFSET_MASK
    updated: list[FragmentMetadata] = []
    removed: list[int] = []
    with pinned.translated(doing="delete rows of"):
        for number, part in zip(numbers.tolist(), np.split(offsets, starts[1:]), strict=True):
            left = pinned.dataset.get_fragment(number).delete_rows(part.tolist())
            if left is None:
                removed.append(number)
            else:
                updated.append(left)
    pinned.flusher.flush(_deletion_paths(pinned.folder, updated))
    return updated, removed


def addition(pinned: Pinned, fragments: Sequence[FragmentMetadata]) -> Any:
    """An append that refuses to be rebased."""
    return change(pinned, updated=[], removed=[], added=fragments)


def replacement(pinned: Pinned, fragments: Sequence[FragmentMetadata]) -> Any:
    """The same table with other rows: columns, their numbers and their metadata stay."""
    return Op.Overwrite(pinned.dataset.lance_schema, list(fragments))


def change(
    pinned: Pinned,
    *,
    updated: Sequence[FragmentMetadata],
    removed: Sequence[int],
    added: Sequence[FragmentMetadata],
) -> Any:
    """A guarded update: strict on the pinned version whatever it changes."""
    first = next(iter(pinned.dataset.fragment_ids()), None)
    if first is None:
        return replacement(pinned, added)
    touched = {*removed, *(fragment.id for fragment in updated)}
    # Every writer claims the same fragment, so that any two of them meet there.
    guard = [] if first in touched else [pinned.dataset.get_fragment(first).metadata]
    return Op.Update(
        removed_fragment_ids=list(removed),
        updated_fragments=[*guard, *updated],
        new_fragments=list(added),
        fields_for_preserving_frag_bitmap=[
            field.id() for field in pinned.dataset.lance_schema.fields()
        ],
        update_mode="rewrite_rows",
    )


def staged(
    pinned: Pinned,
    operation: str,
    lance_operation: Any,
    *,
    inserted: int = 0,
    updated: int = 0,
    deleted: int = 0,
) -> StagedWrite:
    """The operation as a write that waits for `Tables.apply`."""
    entry = pinned.entry
    before = int(pinned.dataset.count_rows())
    transaction = Transaction(entry.version, lance_operation, str(uuid.uuid4()), {})
    return StagedWrite(
        table_key=entry.table_key,
        location=entry.location,
        branch=entry.branch,
        pinned_version=entry.version,
        version_after=entry.version + 1,
        transaction_uuid=transaction.uuid,
        operation=operation,
        row_count_after=before + inserted - deleted,
        rows_inserted=inserted,
        rows_updated=updated,
        rows_deleted=deleted,
        transaction=transaction,
    )


def row_files(write: StagedWrite) -> list[str]:
    """The data files that a write of rows brings with it; none for other writes."""
    operation = getattr(write.transaction, "operation", None)
    if isinstance(operation, Op.Update):
        return [file.path for one in operation.new_fragments for file in one.files]
    if isinstance(operation, Op.Overwrite):
        return [file.path for one in operation.fragments for file in one.files]
    return []


def _u64(column: pa.ChunkedArray[Any]) -> U64:
    return np.asarray(column, dtype=np.uint64)


def _with_row_ids(
    fragments: list[FragmentMetadata], row_ids: Sequence[int]
) -> list[FragmentMetadata]:
    """Hand the known row ids to the first rows of the new fragments, in order."""
    start = 0
    for fragment in fragments:
        part = row_ids[start : start + fragment.physical_rows]
        if part:
            fragment.row_id_meta = RowIdSequence(part).to_inline_metadata()
        start += fragment.physical_rows
    return fragments


def data_paths(
    folder: str, fragments: Iterable[FragmentMetadata], *, last_only: bool = False
) -> list[str]:
    """The data files of fragments (or only their newest ones), with the blobs beside them."""
    paths: list[str] = []
    for fragment in fragments:
        for file in fragment.files[-1:] if last_only else fragment.files:
            path = f"{folder}/data/{file.path}"
            paths.append(path)
            paths.extend(glob(f"{escape(path.removesuffix('.lance'))}/*"))
    return paths


def _deletion_paths(folder: str, fragments: Iterable[FragmentMetadata]) -> list[str]:
    return [
        f"{folder}/{one.deletion_file.path(one.id)}"
        for one in fragments
        if one.deletion_file is not None
    ]
