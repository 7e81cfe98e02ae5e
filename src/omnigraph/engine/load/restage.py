"""Writing staged parts again: without the rows that are given up, or with the rows that replace
stored ones in front, carrying their row ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from omnigraph.engine.arrow import Ints, picked
from omnigraph.engine.check.decide import Located
from omnigraph.engine.load.stage import Notes, write_part
from omnigraph.engine.rows.columns import batch_schema
from omnigraph.engine.rows.parts import GraphAccess, Part, packed
from omnigraph.model.graph import TableEntry
from omnigraph.model.ports import Runner
from omnigraph.model.schema import Catalog, EdgeType, NodeType
from omnigraph.storage.table.stage import StagedWrite, take_out
from omnigraph.storage.table.table import Table

_NONE: Ints = np.empty(0, dtype=np.int64)
_TAKEN_AT_ONCE = 8  # fragments, by one task


class RewriteTask(msgspec.Struct, frozen=True, kw_only=True):
    """Write the part again: `dropped` rows left out, `leading` rows first with these row ids."""

    notes: Notes
    entity: NodeType | EdgeType
    part: Part
    dropped: Ints
    leading: Ints
    row_ids: Ints


def rewrite(task: RewriteTask) -> Part:
    """The part as it was written again; the old files are left for the driver to delete."""
    old, leads = task.part, len(task.leading) > 0
    rows = old.all_rows(task.notes.graph, batch_schema(task.entity).names)
    stays = np.ones(rows.num_rows, dtype=bool)
    stays[task.dropped] = False
    stays[task.leading] = False
    order = np.concatenate([task.leading, np.flatnonzero(stays)])
    chosen: pa.Table = picked(rows, order)
    # Numbers are packed growing; a part with leading rows is never asked for places again.
    numbers = () if leads else (packed(old.record_numbers()[order]),)
    part = replace(old, receipts=(), held=(), rows=0, numbers=numbers, keys=(), spills=(), notes=())
    if old.entry is None:
        assert not leads, "rows that replace others are put in front when written"
        return replace(part, held=(chosen,) if chosen.num_rows else (), rows=chosen.num_rows)
    return write_part(
        task.notes,
        task.entity,
        old.entry,
        part,
        chosen,
        buckets=old.keys[0].count if old.keys and not leads else 1,
        keeps_blobs=bool(old.spills) and not leads,
        row_ids=task.row_ids.tolist(),
    )


def without_rows(
    runner: Runner,
    notes: Notes,
    catalog: Catalog,
    parts: Mapping[str, tuple[Part, ...]],
    dropped: Mapping[str, Mapping[int, Ints]],
) -> dict[str, tuple[Part, ...]]:
    """The parts without the dropped rows (table → part → ordinals); other parts as they are."""
    tasks = [
        RewriteTask(
            notes=notes,
            entity=catalog.type_of(key),
            part=part,
            dropped=dropped[key][part.number],
            leading=_NONE,
            row_ids=_NONE,
        )
        for key in sorted(dropped)
        for part in parts[key]
        if part.number in dropped[key]
    ]
    written = runner.run(tasks, rewrite, stage="rewrite")
    again = {(part.table_key, part.number): part for part in written}
    return {
        key: tuple(again.get((key, part.number), part) for part in some)
        for key, some in parts.items()
    }


def replacing(
    runner: Runner,
    notes: Notes,
    table: Table,
    entity: NodeType | EdgeType,
    parts: Sequence[Part],
    matches: Mapping[int, Located],
) -> tuple[StagedWrite, list[Part]]:
    """The upsert of the parts, and those of them that were written again for it; `matches` say
    which rows of each part replace which."""
    rewrites = [
        RewriteTask(
            notes=notes,
            entity=entity,
            part=part,
            dropped=_NONE,
            leading=matches[part.number].rows,
            row_ids=matches[part.number].row_ids,
        )
        for part in parts
        if part.number in matches
    ]
    written = runner.run(rewrites, rewrite, stage="merge")
    again = {part.number: part for part in written}
    addresses = np.concatenate([_NONE, *(match.addresses for match in matches.values())])
    reduced, removed = _taken_out(runner, notes.graph, table.entry, addresses)
    staged = table.stage_upsert_fragments(
        [receipt for part in parts for receipt in again.get(part.number, part).receipts],
        reduced=reduced,
        removed=removed,
        rows_updated=len(addresses),
    )
    return staged, written


def _taken_out(
    runner: Runner, access: GraphAccess, target: TableEntry, addresses: Ints
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The receipts of stored fragments without these rows, and which fragments have none left."""
    fragments = addresses >> 32
    losing = [
        (int(number), addresses[fragments == number] & 0xFFFFFFFF)
        for number in np.unique(fragments)
    ]
    tasks = [losing[at : at + _TAKEN_AT_ONCE] for at in range(0, len(losing), _TAKEN_AT_ONCE)]
    found = runner.run(tasks, partial(take_rows_out, access, target), stage="merge")
    answers = [one for some in found for one in some]
    reduced = tuple(receipt for _, receipt in answers if receipt is not None)
    return reduced, tuple(number for number, receipt in answers if receipt is None)


def take_rows_out(
    access: GraphAccess, entry: TableEntry, losing: Sequence[tuple[int, Ints]]
) -> list[tuple[int, str | None]]:
    """Each fragment without the rows at its offsets: number, and receipt or None if it is empty."""
    folder, version = access.folder(entry), entry.version
    return [
        (number, take_out(folder, access.options, version, number, offsets.tolist()))
        for number, offsets in losing
    ]
