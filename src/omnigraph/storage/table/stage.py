"""Turning rows into uncommitted Lance transactions that can land on one version only.

Lance happily rebases an append or a deletion over what others committed meanwhile. Each
transaction made here therefore carries a *guard*: it claims to change a fragment that it leaves as
it is, so any other commit to the table makes Lance refuse it. A table without fragments is replaced
as a whole, which Lance never rebases.

*Executors* of a bulk job write, read and delete files that nobody sees yet, by plain functions of
addresses and text that run in any process. A *receipt* is the text form of one uncommitted
fragment; a `Table` stages receipts like rows. To replace rows, some executors write new images of
rows and hand them the row ids of the old ones, others take the old rows out of their fragments.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance import LanceOperation as Op
from lance.dataset import Transaction
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata, RowIdSequence
from lance.fragment import write_fragments as lance_write_fragments

from omnigraph.model.graph import UNCHANGED, TableEntry, TypeCounts
from omnigraph.model.ports import World
from omnigraph.model.structs import HidingStruct
from omnigraph.storage.lance import pylance
from omnigraph.storage.lance.columns import as_stored, standard
from omnigraph.storage.lance.digests import NONE, Digests, Written, joined, of_files
from omnigraph.storage.lance.files import Flusher, data_paths, delete_data
from omnigraph.storage.lance.pylance import translated
from omnigraph.storage.objects.root import Root, store_at
from omnigraph.storage.table.pinned import OFFSET_BITS, Pinned

Rows = pa.Table | pa.RecordBatch | pa.RecordBatchReader
Batches = pa.Table | pa.RecordBatchReader | Iterable[pa.RecordBatch]
Receipts = Sequence[str]
U64 = npt.NDArray[np.uint64]

COMMIT_PROPERTY: Final = "omnigraph.commit"
FRAGMENT_ROWS_MAX: Final = 1024 * 1024
_DIGESTS: Final = "omnigraph_sha256"  # of a receipt: Lance ignores what it does not know
_OFFSET_MASK: Final = np.uint64((1 << OFFSET_BITS) - 1)


class Rewrites(msgspec.Struct, frozen=True, kw_only=True):
    """The results of compaction tasks (Lance's own JSON), to be committed together.

    `first` is an index transaction that they rely on and that lands right before them. The uuid is
    a name only: Lance makes up those of the rewrite.
    """

    results: tuple[str, ...]
    first: Any = None
    uuid: str


class Evolving(msgspec.Struct, frozen=True, kw_only=True):
    """Other columns and, right behind them, rows in those columns: several versions of a table that
    land one after the other.

    `before` are transactions, each on the version of the one before it. What comes last is one too,
    or rows: they can only be written in columns that are there, so they wait in memory. The uuid is
    that of the last version, which is there only if all are.
    """

    before: tuple[Any, ...]
    last: Any = None
    rows: pa.Table | None = None
    delete_ids: tuple[str, ...] = ()
    existing: pa.Table | None = None  # where stored rows are that the rows replace or that go
    uuid: str

    @property
    def transactions(self) -> tuple[Any, ...]:
        """Those that are there to be committed already."""
        return self.before if self.last is None else (*self.before, self.last)


class StagedWrite(HidingStruct, frozen=True, kw_only=True):
    """One uncommitted Lance transaction, pinned to the version it was made on.

    The head of the table has not moved. `version_after` is the version that the table will have if
    the write lands. `operation` says "append", "upsert", "overwrite", "delete", "index",
    "compaction", "schema" or "restore".
    """

    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"transaction"})
    UNSHOWN: ClassVar[frozenset[str]] = frozenset({"transaction", "digests"})

    table_key: str
    location: str
    branch: str | None
    pinned_version: int
    version_after: int
    operation: str
    row_count_after: int
    counts: TypeCounts = UNCHANGED
    commit_id: str | None = None
    digests: Digests = NONE  # of the files that it brings, as far as they are known
    transaction: Any  # opaque: only `Tables.apply` looks inside

    @property
    def transaction_uuid(self) -> str:
        """What recovery looks for."""
        return str(self.transaction.uuid)

    def for_commit(self, commit_id: str) -> StagedWrite:
        """The same write, to be landed in the name of a graph commit."""
        return msgspec.structs.replace(self, commit_id=commit_id)


def written(pinned: Pinned, rows: Rows | Receipts) -> Written:
    """The rows as uncommitted fragments in the table's folder, on disk."""
    if not isinstance(rows, Rows):
        return received(rows)
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table) and rows.num_rows == 0:
        return Written(fragments=[])
    rows = as_stored(rows, pinned.dataset.schema)
    with translated(pinned.folder, doing="write rows to"):
        fragments: list[FragmentMetadata] = lance_write_fragments(
            rows, pinned.dataset, allow_external_blob_outside_bases=True
        )
    digests = pinned.lines.flusher.keep(pinned.folder, data_paths(pinned.folder, fragments))
    if isinstance(rows, pa.Table) and len(fragments) == 1:
        pinned.narrowing.wrote(pinned.dataset, fragments[0].files[0].path, rows)
    return Written(fragments=fragments, digests=digests)


def without_rows(pinned: Pinned, addresses: U64) -> tuple[Written, list[int]]:
    """The fragments that lose some rows, with their deletion files, and those that lose all."""
    places = np.sort(addresses)
    numbers, starts = np.unique(places >> np.uint64(OFFSET_BITS), return_index=True)
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
    paths = _deletion_paths(pinned.folder, updated)
    digests = pinned.lines.flusher.keep(pinned.folder, paths)
    return Written(fragments=updated, digests=digests), removed


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
    return _update(
        pinned.dataset.lance_schema, removed=removed, updated=[*guard, *updated], added=added
    )


def refilled(fragments: Sequence[FragmentMetadata], schema: Any) -> Any:
    """All fragments of a table with further files for columns of the schema: no row changes."""
    return _update(schema, updated=fragments)


def _update(
    schema: Any,
    *,
    removed: Sequence[int] = (),
    updated: Sequence[FragmentMetadata] = (),
    added: Sequence[FragmentMetadata] = (),
) -> Any:
    return Op.Update(
        removed_fragment_ids=list(removed),
        updated_fragments=list(updated),
        new_fragments=list(added),
        fields_for_preserving_frag_bitmap=[field.id() for field in schema.fields()],
        update_mode="rewrite_rows",
    )


def staged(
    pinned: Pinned,
    operation: str,
    lance_operation: Any,
    counts: TypeCounts = UNCHANGED,
    *,
    digests: Digests = NONE,
) -> StagedWrite:
    """The operation as a write that waits for `Tables.apply`, and what it does to rows."""
    rows = int(pinned.dataset.count_rows()) + counts.inserted - counts.deleted
    version = pinned.entry.version
    transaction = Transaction(version, lance_operation, str(uuid.uuid4()), {})
    write = staged_on(pinned.entry, operation, transaction, rows=rows)
    return msgspec.structs.replace(write, counts=counts, digests=digests)


def staged_on(
    entry: TableEntry, operation: str, transaction: Any, *, rows: int, versions: int = 1
) -> StagedWrite:
    """A transaction on the entry's version that makes so many versions and leaves so many rows."""
    return StagedWrite(
        table_key=entry.table_key,
        location=entry.location,
        branch=entry.branch,
        pinned_version=entry.version,
        version_after=entry.version + versions,
        operation=operation,
        row_count_after=rows,
        transaction=transaction,
    )


def row_files(write: StagedWrite) -> list[str]:
    """The data files that a write of rows brings with it; none for other writes."""
    operation = getattr(write.transaction, "operation", None)
    fragments: Iterable[FragmentMetadata] = ()
    if isinstance(operation, Op.Update):
        fragments = operation.new_fragments
    elif isinstance(operation, Op.Overwrite):
        fragments = operation.fragments
    return [name for fragment in fragments for name in pylance.file_names(fragment)]


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


def received(receipts: Receipts) -> Written:
    """What receipts of executors tell."""
    return Written(
        fragments=[receipt_fragment(receipt) for receipt in receipts],
        digests=joined(json.loads(receipt).get(_DIGESTS, NONE) for receipt in receipts),
    )


def _receipt(fragment: FragmentMetadata, digests: Digests) -> str:
    return json.dumps({**fragment.to_json(), **({_DIGESTS: digests} if digests else {})})


def _receipts(made: Written) -> list[str]:
    """A receipt per fragment, with the digests of its data files."""
    names = [pylance.file_names(fragment) for fragment in made.fragments]
    told = of_files(made.digests, names)
    return [_receipt(one, digests) for one, digests in zip(made.fragments, told, strict=True)]


def receipt_files(receipt: str) -> tuple[str, ...]:
    """The names of the data files that a receipt tells of."""
    return pylance.file_names(receipt_fragment(receipt))


def _deletion_paths(folder: str, fragments: Iterable[FragmentMetadata]) -> list[str]:
    return [
        f"{folder}/{one.deletion_file.path(one.id)}"
        for one in fragments
        if one.deletion_file is not None
    ]


# --- what executors do -----------------------------------------------------------------------


def write_fragments(
    uri: str,
    storage_options: Mapping[str, str],
    batches: Batches,
    schema: pa.Schema,
    *,
    fragment_rows: int = FRAGMENT_ROWS_MAX,
) -> list[str]:
    """Write rows into the folder of an existing table and return a receipt per fragment.

    `uri` is the table's folder (for a branch `…/tree/<branch>`). Local files are on disk when this
    returns. No rows, no receipts.
    """
    if isinstance(batches, pa.Table):
        batches = batches.to_reader()
    elif not isinstance(batches, pa.RecordBatchReader):
        batches = pa.RecordBatchReader.from_batches(schema, iter(batches))
    with translated(uri, doing="write rows to"):
        dataset = pylance.opened(uri, storage_options)
        fragments: list[FragmentMetadata] = lance_write_fragments(
            as_stored(batches, dataset.schema),
            dataset,
            max_rows_per_file=fragment_rows,
            storage_options=dict(storage_options) or None,
            allow_external_blob_outside_bases=True,
        )
    kept = [fragment for fragment in fragments if fragment.physical_rows]
    digests = _keep(uri, storage_options, data_paths(uri, kept))
    return _receipts(Written(fragments=kept, digests=digests))


def write_images(
    uri: str, storage_options: Mapping[str, str], rows: pa.Table, row_ids: Sequence[int]
) -> list[str]:
    """Write rows of which the first ones are new images of the rows with these row ids."""
    receipts = write_fragments(uri, storage_options, rows, rows.schema)
    made = received(receipts)
    hand_over_row_ids(made.fragments, row_ids)
    return _receipts(made)


def take_out(
    uri: str,
    storage_options: Mapping[str, str],
    version: int,
    fragment: int,
    offsets: Sequence[int],
) -> str | None:
    """The fragment without these rows, as a receipt; None if no row is left. Nothing is visible."""
    with translated(uri, doing="delete rows of"):
        dataset = pylance.opened(uri, storage_options, version=version)
        left = dataset.get_fragment(fragment).delete_rows(list(offsets))
    if left is None:
        return None
    return _receipt(left, _keep(uri, storage_options, _deletion_paths(uri, [left])))


def read_columns(
    uri: str, storage_options: Mapping[str, str], receipt: str, columns: Sequence[str]
) -> pa.Table:
    """Some columns of a fragment that nobody else can see yet, in the order it was written."""
    options = dict(storage_options) or None
    parts: list[pa.Table] = []
    with translated(uri, doing="read staged rows of"):
        for name in receipt_files(receipt):
            reader = LanceFileReader(
                f"{uri}/data/{name}", storage_options=options, columns=list(columns)
            )
            parts.append(standard(reader.read_all(batch_size=64 * 1024).to_table()))
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts)


def row_count(receipt: str) -> int:
    """How many rows the fragment holds."""
    return int(json.loads(receipt)["physical_rows"])


def data_files(uri: str, receipts: Iterable[str]) -> frozenset[str]:
    """The addresses of the data files that the receipts tell of."""
    return frozenset(f"{uri}/data/{name}" for one in receipts for name in receipt_files(one))


def delete_files(uri: str, storage_options: Mapping[str, str], receipts: Sequence[str]) -> int:
    """Remove staged files after a failure; returns how many were there. Never for landed writes."""
    names = (name for one in receipts for name in receipt_files(one))
    return delete_data(store_at(uri, storage_options), "", names)


def _keep(uri: str, storage_options: Mapping[str, str], paths: Iterable[str]) -> Digests:
    return NONE if storage_options else Flusher(Root.parse(uri, {}), World()).keep(uri, paths)
