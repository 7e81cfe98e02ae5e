"""What executors of a bulk job may do to a table: write, read and delete files nobody sees yet.

Plain functions of addresses and text, so that they run in any process. A *receipt* is the text form
of one uncommitted fragment; `Table.stage_append_fragments` and its like make a write of receipts.
To replace rows, some executors write new images of rows and hand them the row ids of the old ones,
others take the old rows out of their fragments.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from lance.file import LanceFileReader
from lance.fragment import FragmentMetadata
from lance.fragment import write_fragments as lance_write_fragments

from omnigraph.model.ports import World
from omnigraph.storage.lance import pylance
from omnigraph.storage.lance.columns import as_stored_batches, standard
from omnigraph.storage.lance.files import data_paths
from omnigraph.storage.lance.fsync import Flusher
from omnigraph.storage.lance.pylance import translated
from omnigraph.storage.objects.root import Root, store_at
from omnigraph.storage.table import upkeep
from omnigraph.storage.table.stage import hand_over_row_ids, receipt_fragment
from omnigraph.storage.table.upkeep import UpkeepTask

Batches = pa.Table | pa.RecordBatchReader | Iterable[pa.RecordBatch]
FRAGMENT_ROWS_MAX: Final = 1024 * 1024


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
    options = dict(storage_options) or None
    with translated(uri, doing="write rows to"):
        dataset = pylance.opened(uri, storage_options)
        fragments: list[FragmentMetadata] = lance_write_fragments(
            as_stored_batches(_reader(batches, schema), dataset.schema),
            dataset,
            max_rows_per_file=fragment_rows,
            storage_options=options,
            allow_external_blob_outside_bases=True,
        )
    kept = [fragment for fragment in fragments if fragment.physical_rows]
    if not storage_options:
        flusher = Flusher(Root.parse(uri, {}), World())
        flusher.flush(data_paths(uri, kept))
    return [json.dumps(fragment.to_json()) for fragment in kept]


def read_columns(
    uri: str, storage_options: Mapping[str, str], receipt: str, columns: Sequence[str]
) -> pa.Table:
    """Some columns of a fragment that nobody else can see yet, in the order it was written."""
    options = dict(storage_options) or None
    parts: list[pa.Table] = []
    with translated(uri, doing="read staged rows of"):
        for file in receipt_fragment(receipt).files:
            reader = LanceFileReader(
                f"{uri}/data/{file.path}", storage_options=options, columns=list(columns)
            )
            parts.append(standard(reader.read_all(batch_size=64 * 1024).to_table()))
    return parts[0] if len(parts) == 1 else pa.concat_tables(parts)


def row_count(receipt: str) -> int:
    """How many rows the fragment holds."""
    return int(json.loads(receipt)["physical_rows"])


def data_files(uri: str, receipts: Iterable[str]) -> frozenset[str]:
    """The addresses of the data files that the receipts tell of."""
    return frozenset(
        f"{uri}/data/{file.path}"
        for receipt in receipts
        for file in receipt_fragment(receipt).files
    )


def delete_files(uri: str, storage_options: Mapping[str, str], receipts: Sequence[str]) -> int:
    """Remove staged files after a failure; returns how many were there. Never for landed writes."""
    store = store_at(uri, storage_options)
    removed = 0
    for receipt in receipts:
        for file in receipt_fragment(receipt).files:
            key = f"data/{file.path}"
            removed += int(store.delete(key))
            store.delete_prefix(key.removesuffix(".lance"))
    return removed


def run_upkeep(uri: str, storage_options: Mapping[str, str], version: int, task: UpkeepTask) -> Any:
    """Run one task of `Table.plan_upkeep`; the answer is for `Table.finish_upkeep`."""
    return upkeep.run_at(uri, storage_options, version, task)


def write_images(
    uri: str,
    storage_options: Mapping[str, str],
    rows: pa.Table,
    row_ids: Sequence[int],
) -> list[str]:
    """Write rows of which the first ones are new images of the rows with these row ids."""
    receipts = write_fragments(uri, storage_options, rows, rows.schema)
    written = [receipt_fragment(receipt) for receipt in receipts]
    hand_over_row_ids(written, row_ids)
    return [json.dumps(fragment.to_json()) for fragment in written]


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
    if not storage_options:
        path = left.deletion_file.path(left.id)
        Flusher(Root.parse(uri, {}), World()).flush([f"{uri}/{path}"])
    return json.dumps(left.to_json())


def _reader(batches: Batches, schema: pa.Schema) -> pa.RecordBatchReader:
    if isinstance(batches, pa.RecordBatchReader):
        return batches
    if isinstance(batches, pa.Table):
        return batches.to_reader()
    return pa.RecordBatchReader.from_batches(schema, iter(batches))
