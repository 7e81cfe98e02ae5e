"""Writing staged parts again: without the rows that are given up, or with the rows that replace
stored ones in front, carrying their row ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from omnigraph.engine.write.columns import batch_schema
from omnigraph.model.graph import TableEntry
from omnigraph.model.schema import EdgeType, NodeType
from omnigraph.pipeline.arrow import Ints, picked
from omnigraph.pipeline.fanout import fan_out
from omnigraph.pipeline.files import FileAccess
from omnigraph.pipeline.idtasks import Match
from omnigraph.pipeline.notes import Notes, Written
from omnigraph.pipeline.parts import GraphAccess, Part, packed, write_spill
from omnigraph.storage.arrow_schema import arrow_schema
from omnigraph.storage.blobs import seal
from omnigraph.storage.fragments import row_count
from omnigraph.storage.rewriting import take_out, write_images

_NONE: Ints = np.empty(0, dtype=np.int64)
_FRAGMENTS_PER_TASK = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteTask:
    """Write the part again: `dropped` rows left out, `leading` rows first with these row ids."""

    notes: Notes
    entity: NodeType | EdgeType
    part: Part
    dropped: Ints
    leading: Ints
    row_ids: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOutTask:
    """Rows to be taken out of stored fragments: fragment number and offsets in it."""

    access: GraphAccess
    entry: TableEntry
    fragments: tuple[tuple[int, Ints], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """What an upsert of one table consists of."""

    added: tuple[str, ...]
    reduced: tuple[str, ...]
    removed: tuple[int, ...]
    rows_updated: int
    made: tuple[Part, ...]  # parts that were written only for this


def rewrite(task: RewriteTask) -> Part:
    """The part as it was written again; the old files are left for the driver to delete."""
    schema = batch_schema(task.entity)
    access = task.notes.graph
    rows = task.part.all_rows(access, schema.names)
    numbers = task.part.record_numbers()
    stays = np.ones(rows.num_rows, dtype=bool)
    stays[task.dropped] = False
    stays[task.leading] = False
    order = np.concatenate([task.leading, np.flatnonzero(stays)])
    chosen: pa.Table = picked(rows, order)
    spills: tuple[str, ...] = ()
    if task.part.spills and not len(task.leading):
        files = FileAccess(environ=access.environ)
        folder = task.part.spills[0].rpartition("/")[0]
        spills = (write_spill(files, folder, chosen),)
    sealed = seal(chosen, arrow_schema(task.entity))
    folder = access.folder(task.part.entry)
    row_ids = [int(one) for one in task.row_ids]
    receipts = tuple(write_images(folder, access.options, sealed, row_ids))
    note = task.notes.add(Written(folder=folder, receipts=receipts))
    return replace(
        task.part,
        receipts=receipts,
        notes=(note,),
        rows=sum(row_count(receipt) for receipt in receipts),
        # Numbers are packed growing; a part with leading rows is never asked for places again.
        numbers=() if len(task.leading) else (packed(numbers[order]),),
        spills=spills,
    )


def without_rows(
    spark: SparkSession | None,
    notes: Notes,
    entities: Mapping[str, NodeType | EdgeType],
    parts: Mapping[str, tuple[Part, ...]],
    dropped: Mapping[str, Mapping[int, Ints]],
) -> dict[str, tuple[Part, ...]]:
    """The parts without the dropped rows (table → part → ordinals); other parts as they are."""
    tasks = [
        RewriteTask(
            notes=notes,
            entity=entities[key],
            part=part,
            dropped=dropped[key][part.number],
            leading=_NONE,
            row_ids=_NONE,
        )
        for key in sorted(dropped)
        for part in parts[key]
        if part.number in dropped[key]
    ]
    written = fan_out(spark, tasks, rewrite, stage="rewrite")
    again = {(part.table_key, part.number): part for part in written}
    return {
        key: tuple(again.get((key, part.number), part) for part in some)
        for key, some in parts.items()
    }


def replacing(
    spark: SparkSession | None,
    notes: Notes,
    entity: NodeType | EdgeType,
    target: TableEntry,
    parts: Sequence[Part],
    matches: Sequence[Match],
) -> Replacement:
    """Everything an upsert of the parts needs; `matches` say which rows replace which."""
    by_part: dict[int, list[Match]] = {}
    for match in matches:
        by_part.setdefault(match.part, []).append(match)
    rewrites = [
        RewriteTask(
            notes=notes,
            entity=entity,
            part=part,
            dropped=_NONE,
            leading=np.concatenate([match.ordinals for match in by_part[part.number]]),
            row_ids=np.concatenate([match.row_ids for match in by_part[part.number]]),
        )
        for part in parts
        if part.number in by_part
    ]
    written = fan_out(spark, rewrites, rewrite, stage="merge")
    again = {part.number: part for part in written}
    addresses = np.concatenate([_NONE, *(match.addresses for match in matches)])
    reduced, removed = _taken_out(spark, notes.graph, target, addresses)
    return Replacement(
        added=tuple(r for part in parts for r in again.get(part.number, part).receipts),
        reduced=reduced,
        removed=removed,
        rows_updated=len(addresses),
        made=tuple(written),
    )


def _taken_out(
    spark: SparkSession | None, access: GraphAccess, target: TableEntry, addresses: Ints
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    fragments = addresses >> 32
    by_fragment = [
        (int(number), addresses[fragments == number] & 0xFFFFFFFF)
        for number in np.unique(fragments)
    ]
    tasks = [
        TakeOutTask(
            access=access,
            entry=target,
            fragments=tuple(by_fragment[at : at + _FRAGMENTS_PER_TASK]),
        )
        for at in range(0, len(by_fragment), _FRAGMENTS_PER_TASK)
    ]
    answers = [one for some in fan_out(spark, tasks, take_rows_out, stage="merge") for one in some]
    reduced = tuple(receipt for _, receipt in answers if receipt is not None)
    return reduced, tuple(number for number, receipt in answers if receipt is None)


def take_rows_out(task: TakeOutTask) -> list[tuple[int, str | None]]:
    """Each fragment without its rows: number, and receipt or None if nothing is left of it."""
    return [
        (
            number,
            take_out(
                task.access.folder(task.entry),
                task.access.options,
                task.entry.version,
                number,
                [int(one) for one in offsets],
            ),
        )
        for number, offsets in task.fragments
    ]
