"""Writing staged parts again: without the rows that are given up, or with the rows that replace
stored ones in front, carrying their row ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from omnigraph.engine.arrow import Ints, picked
from omnigraph.engine.check.checks import Match
from omnigraph.engine.check.keyfiles import write_keys
from omnigraph.engine.load.notes import Notes, Written
from omnigraph.engine.rows.columns import batch_schema
from omnigraph.engine.rows.parts import GraphAccess, KeyFile, Part, packed, write_spill
from omnigraph.model.graph import TableEntry
from omnigraph.model.ports import Runner
from omnigraph.model.schema import EdgeType, NodeType
from omnigraph.storage.lance.columns import arrow_schema, seal
from omnigraph.storage.objects.files import FileAccess
from omnigraph.storage.table.fragments import row_count, take_out, write_images

_NONE: Ints = np.empty(0, dtype=np.int64)
_FRAGMENTS_PER_TASK = 8


class RewriteTask(msgspec.Struct, frozen=True, kw_only=True):
    """Write the part again: `dropped` rows left out, `leading` rows first with these row ids."""

    notes: Notes
    entity: NodeType | EdgeType
    part: Part
    dropped: Ints
    leading: Ints
    row_ids: Ints


class TakeOutTask(msgspec.Struct, frozen=True, kw_only=True):
    """Rows to be taken out of stored fragments: fragment number and offsets in it."""

    access: GraphAccess
    entry: TableEntry
    fragments: tuple[tuple[int, Ints], ...]


class Replacement(msgspec.Struct, frozen=True, kw_only=True):
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
    if task.part.entry is None:
        assert not len(task.leading), "rows that replace others are put in front when written"
        return replace(
            task.part,
            held=(chosen,) if chosen.num_rows else (),
            rows=chosen.num_rows,
            numbers=(packed(numbers[order]),),
        )
    keys: tuple[KeyFile, ...] = ()
    if task.part.keys and not len(task.leading):
        keys = write_keys(
            FileAccess(environ=access.environ),
            task.notes.scratch,
            task.entity,
            chosen,
            first=task.part.first_row,
            fresh=task.part.fresh_ids,
            count=task.part.keys[0].count,
        )
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
        keys=keys,
    )


def without_rows(
    runner: Runner,
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
    written = runner.run(tasks, rewrite, stage="rewrite")
    again = {(part.table_key, part.number): part for part in written}
    return {
        key: tuple(again.get((key, part.number), part) for part in some)
        for key, some in parts.items()
    }


def replacing(
    runner: Runner,
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
    written = runner.run(rewrites, rewrite, stage="merge")
    again = {part.number: part for part in written}
    addresses = np.concatenate([_NONE, *(match.addresses for match in matches)])
    reduced, removed = _taken_out(runner, notes.graph, target, addresses)
    return Replacement(
        added=tuple(r for part in parts for r in again.get(part.number, part).receipts),
        reduced=reduced,
        removed=removed,
        rows_updated=len(addresses),
        made=tuple(written),
    )


def _taken_out(
    runner: Runner, access: GraphAccess, target: TableEntry, addresses: Ints
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
    answers = [one for some in runner.run(tasks, take_rows_out, stage="merge") for one in some]
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
