"""Replacing rows from many processes at once: the pieces of an upsert that executors carry out.

Some of them write new images of rows and hand them the row ids of the old ones, others take the old
rows out of their fragments; `Table.stage_upsert_fragments` puts the receipts of both together.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata, RowIdSequence

from omnigraph.model.ports import World
from omnigraph.storage.durable import Flusher
from omnigraph.storage.faults import translated
from omnigraph.storage.fragments import write_fragments
from omnigraph.storage.objects import Root


def write_images(
    uri: str,
    storage_options: Mapping[str, str],
    rows: pa.Table,
    row_ids: Sequence[int],
) -> list[str]:
    """Write rows of which the first ones are new images of the rows with these row ids."""
    receipts = write_fragments(uri, storage_options, rows, rows.schema)
    marked: list[str] = []
    start = 0
    for receipt in receipts:
        fragment = FragmentMetadata.from_json(receipt)
        known = list(row_ids[start : start + fragment.physical_rows])
        start += fragment.physical_rows
        if known:
            fragment.row_id_meta = RowIdSequence(known).to_inline_metadata()
        marked.append(json.dumps(fragment.to_json()))
    return marked


def take_out(
    uri: str,
    storage_options: Mapping[str, str],
    version: int,
    fragment: int,
    offsets: Sequence[int],
) -> str | None:
    """The fragment without these rows, as a receipt; None if no row is left. Nothing is visible."""
    with translated(uri, doing="delete rows of"):
        dataset = lance.dataset(uri, version=version, storage_options=dict(storage_options) or None)
        found: Any = dataset.get_fragment(fragment)
        left = found.delete_rows(list(offsets))
    if left is None:
        return None
    if not storage_options:
        path = left.deletion_file.path(left.id)
        Flusher(Root.parse(uri, {}), World()).flush([f"{uri}/{path}"])
    return json.dumps(left.to_json())
