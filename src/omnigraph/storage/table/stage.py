"""Turning rows into uncommitted Lance transactions that can land on one version only.

Lance happily rebases an append or a deletion over what others committed meanwhile. Each
transaction made here therefore carries a *guard*: it claims to change a fragment that it leaves as
it is, so any other commit to the table makes Lance refuse it. A table without fragments is replaced
as a whole, which Lance never rebases.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceOperation as Op
from lance.dataset import Transaction
from lance.fragment import FragmentMetadata, RowIdSequence, write_fragments

from omnigraph.model.structs import HidingStruct
from omnigraph.storage.lance.columns import as_stored, as_stored_batches
from omnigraph.storage.lance.files import data_paths
from omnigraph.storage.lance.pylance import translated
from omnigraph.storage.table.pinned import Pinned

Rows = pa.Table | pa.RecordBatch | pa.RecordBatchReader
U64 = npt.NDArray[np.uint64]

COMMIT_PROPERTY: Final = "omnigraph.commit"
_OFFSET_BITS: Final = np.uint64(32)
_OFFSET_MASK: Final = np.uint64((1 << 32) - 1)


class Rewrites(msgspec.Struct, frozen=True, kw_only=True):
    """The results of compaction tasks (Lance's own JSON), to be committed together.

    `first` is an index transaction that they rely on and that lands right before them.
    """

    results: tuple[str, ...]
    first: Any = None


class StagedWrite(HidingStruct, frozen=True, kw_only=True):
    """One uncommitted Lance transaction, pinned to the version it was made on.

    The head of the table has not moved. `transaction_uuid` is what recovery looks for, and
    `version_after` the version that the table will have if the write lands. `operation` says
    "append", "upsert", "overwrite", "delete", "index", "compaction", "schema" or "restore".
    """

    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"transaction"})
    UNSHOWN: ClassVar[frozenset[str]] = frozenset({"transaction"})

    table_key: str
    location: str
    branch: str | None
    pinned_version: int
    version_after: int
    transaction_uuid: str
    operation: str
    row_count_after: int
    commit_id: str | None = None
    transaction: Any  # opaque: only `Tables.apply` looks inside

    def for_commit(self, commit_id: str) -> StagedWrite:
        """The same write, to be landed in the name of a graph commit."""
        return msgspec.structs.replace(self, commit_id=commit_id)


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


def replacement(pinned: Pinned, fragments: Sequence[FragmentMetadata]) -> Any:
    """The same table with other rows: columns, their numbers and their metadata stay."""
    return Op.Overwrite(pinned.dataset.lance_schema, list(fragments))


def change(
    pinned: Pinned,
    *,
    updated: Sequence[FragmentMetadata] = (),
    removed: Sequence[int] = (),
    added: Sequence[FragmentMetadata] = (),
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


def u64(column: pa.ChunkedArray[Any]) -> U64:
    """Row ids or addresses as numpy knows them."""
    return np.asarray(column, dtype=np.uint64)


def hand_over_row_ids(fragments: Iterable[FragmentMetadata], row_ids: Sequence[int]) -> None:
    """Hand the known row ids to the first rows of the new fragments, in order."""
    start = 0
    for fragment in fragments:
        part = row_ids[start : start + fragment.physical_rows]
        if part:
            fragment.row_id_meta = RowIdSequence(list(part)).to_inline_metadata()
        start += fragment.physical_rows


def receipt_fragment(receipt: str) -> FragmentMetadata:
    """The uncommitted fragment that a receipt of an executor stands for."""
    return FragmentMetadata.from_json(receipt)


def _deletion_paths(folder: str, fragments: Iterable[FragmentMetadata]) -> list[str]:
    return [
        f"{folder}/{one.deletion_file.path(one.id)}"
        for one in fragments
        if one.deletion_file is not None
    ]
