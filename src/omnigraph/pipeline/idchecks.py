"""One range of one id space: doubles, ids that exist already, edges that end nowhere, degrees.

A task holds the ids of its range and streams everything that refers to them past it, so its memory
follows the ids of the range, not the edges. The function is pure: a task in, findings out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.write.constraints import repeats
from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import VIOLATIONS_LISTED_MAX
from omnigraph.pipeline.arrow import Column, Ints, Mask, as_mask, flat, pc
from omnigraph.pipeline.degrees import broken_degrees
from omnigraph.pipeline.files import FileAccess
from omnigraph.pipeline.idtasks import (
    End,
    IdAnswer,
    IdTask,
    Match,
    Offence,
    Offences,
    in_range,
    key_groups,
    ranged_keys,
)

_NO_KEYS: Final = pa.array([], pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """The staged ids of a range, with the part and ordinal of each."""

    ids: Column
    parts: Ints
    ordinals: Ints


def check_ids(task: IdTask) -> IdAnswer:
    """Everything about one range of ids."""
    held = _held(task)
    found = _stored_rows(task, held)
    stored = flat(found["id"])
    offences: list[Offences] = []
    repeated = _repeated(task, held)
    refused = np.zeros(len(held.ids), dtype=bool)
    if task.unique and repeated.any():
        offences.append(_doubles(task, held, repeated))
        refused |= repeated
    met = as_mask(pc.is_in(held.ids, value_set=stored))
    matched = int(met.sum())
    if task.fresh_only and matched:
        offences.append(_conflicts(task, held, met if task.list_all else met & ~refused))
        refused |= met
    known = pa.concat_arrays([held.ids, stored]) if len(stored) else held.ids
    offences += _dangling(task, pa.concat_arrays([known, _ghosts(task)]))
    degrees = (broken_degrees(task, rule, known) for rule in task.degrees)
    offences += [broken for broken in degrees if broken is not None]
    return IdAnswer(
        staged=len(held.ids),
        matched=matched,
        offences=tuple(offences),
        losers=() if task.unique else _by_part(held, repeated),
        refused=_by_part(held, refused),
        matches=tuple(_matches(held, found)) if task.locate and matched else (),
    )


# --- the ids themselves -----------------------------------------------------------------------


def _held(task: IdTask) -> _Held:
    arrays: list[Column] = []
    parts: list[Ints] = []
    ordinals: list[Ints] = []
    for part in task.parts:
        ids, at = ranged_keys(task.access, part, "id", task.within)
        arrays.append(ids)
        parts.append(np.full(len(ids), part.number, dtype=np.int64))
        ordinals.append(at)
    none = np.empty(0, dtype=np.int64)
    return _Held(
        ids=pa.concat_arrays(arrays) if arrays else _NO_KEYS,
        parts=np.concatenate([none, *parts]),
        ordinals=np.concatenate([none, *ordinals]),
    )


def _stored_rows(task: IdTask, held: _Held) -> pa.Table:
    """The stored ids of the range, with row ids and addresses if those are wanted."""
    if task.stored is None or task.stored.row_count == 0:
        return pa.table({"id": _NO_KEYS})
    table = task.access.table(task.stored)
    wanted: dict[str, Any] = {
        "columns": ["id"],
        "with_row_id": task.locate,
        "with_row_address": task.locate,
    }
    if not task.lookup:
        return table.read(where=task.within.where("id"), **wanted)
    asked = [held.ids]
    for end in task.ends:
        for keys, _, _ in key_groups(task.access, end.parts, end.column, task.within):
            asked += keys.chunks
    ids = pc.unique(pa.chunked_array(asked, pa.string())).to_pylist()
    return table.lookup("id", ids, ["id", *(("_rowid", "_rowaddr") if task.locate else ())])


def _matches(held: _Held, found: pa.Table) -> Iterator[Match]:
    at = pc.index_in(held.ids, value_set=flat(found["id"]))
    mine = np.flatnonzero(as_mask(pc.is_valid(at)))
    theirs = np.asarray(flat(at.drop_null()))
    row_ids = np.asarray(flat(found["_rowid"])).astype(np.int64)[theirs]
    addresses = np.asarray(flat(found["_rowaddr"])).astype(np.int64)[theirs]
    parts, ordinals = held.parts[mine], held.ordinals[mine]
    for number in np.unique(parts):
        here = parts == number
        yield Match(
            part=int(number),
            ordinals=ordinals[here],
            row_ids=row_ids[here],
            addresses=addresses[here],
        )


def _repeated(task: IdTask, held: _Held) -> Mask:
    """The rows that are not the one that counts among those of their id: the first one, or the
    last one where a later record overrules."""
    none = np.zeros(len(held.ids), dtype=bool)
    if all(part.fresh_ids for part in task.parts):
        return none
    if pc.count_distinct(held.ids).as_py() == len(held.ids):
        return none
    codes = np.asarray(held.ids.dictionary_encode().indices)
    if task.unique:
        return as_mask(pa.array(repeats(codes)[0] != np.arange(len(codes))))
    last = np.full(int(codes.max()) + 1, -1, dtype=np.int64)
    last[codes] = np.arange(len(codes))  # later assignments win, and rows are in input order
    return as_mask(pa.array(last[codes] != np.arange(len(codes))))


def _by_part(held: _Held, rows: Mask) -> tuple[tuple[int, Ints], ...]:
    parts, ordinals = held.parts[rows], held.ordinals[rows]
    return tuple((int(number), ordinals[parts == number]) for number in np.unique(parts))


def _doubles(task: IdTask, held: _Held, repeated: Mask) -> Offences:
    """Ids that are staged twice: told once each, at their second row, or at every later row."""
    first, second = repeats(held.ids.dictionary_encode().indices)
    rows = np.flatnonzero(repeated if task.list_all else second)
    keep = len(rows) if task.list_all else VIOLATIONS_LISTED_MAX
    listed = tuple(
        Offence(
            part=int(held.parts[row]),
            ordinal=int(held.ordinals[row]),
            value=str(held.ids[int(row)].as_py()),
            row_id=str(held.ids[int(row)].as_py()),
            first=(int(held.parts[first[row]]), int(held.ordinals[first[row]])),
        )
        for row in rows[:keep]
    )
    return Offences(
        kind="duplicate",
        table_key=task.table_key,
        column="id",
        listed=listed,
        total=int(second.sum()),
    )


def _ghosts(task: IdTask) -> Column:
    """The ids of the range that belong to records which were refused."""
    files = FileAccess(environ=task.access.environ)
    found = [_NO_KEYS]
    for address in task.ghosts:
        with files.open(address) as file, pa.ipc.open_file(file) as reader:
            found.append(in_range(flat(reader.read_all()["id"]), task.within)[0])
    return pa.concat_arrays(found)


def _conflicts(task: IdTask, held: _Held, met: np.ndarray[Any, Any]) -> Offences:
    rows = np.flatnonzero(met)
    keep = len(rows) if task.list_all else VIOLATIONS_LISTED_MAX
    listed = tuple(
        Offence(
            part=int(held.parts[row]),
            ordinal=int(held.ordinals[row]),
            value=str(held.ids[int(row)].as_py()),
            row_id=str(held.ids[int(row)].as_py()),
        )
        for row in rows[:keep]
    )
    return Offences(
        kind="conflict", table_key=task.table_key, column="id", listed=listed, total=len(rows)
    )


# --- what refers to them ----------------------------------------------------------------------


def _dangling(task: IdTask, known: Column) -> list[Offences]:
    offences = []
    for end in task.ends:
        listed: list[Offence] = []
        total = 0
        for keys, parts, ordinals in key_groups(task.access, end.parts, end.column, task.within):
            lost = np.flatnonzero(~np.asarray(pc.is_in(keys, value_set=known)))
            total += len(lost)
            room = len(lost) if task.list_all else VIOLATIONS_LISTED_MAX - len(listed)
            listed += [
                Offence(
                    part=int(parts[row]),
                    ordinal=int(ordinals[row]),
                    value=str(keys[int(row)].as_py()),
                )
                for row in lost[: max(0, room)]
            ]
        if total:
            offences.append(
                Offences(
                    kind="dangling",
                    table_key=end.table_key,
                    column=end.column,
                    listed=tuple(listed),
                    total=total,
                )
            )
        if end.kept is not None and (found := _kept(task, end, end.kept, known)):
            offences.append(found)
    return offences


def _kept(task: IdTask, end: End, entry: TableEntry, known: Column) -> Offences | None:
    """Stored edges that stay although the nodes of their end are replaced."""
    listed: list[Offence] = []
    total = 0
    table = task.access.table(entry)
    rows = table.scan(columns=["id", end.column], where=task.within.where(end.column))
    for batch in rows:
        lost = np.flatnonzero(~np.asarray(pc.is_in(batch[end.column], value_set=known)))
        total += len(lost)
        listed += [
            Offence(
                value=str(batch[end.column][int(row)].as_py()),
                row_id=str(batch["id"][int(row)].as_py()),
            )
            for row in lost
        ]
        listed = sorted(listed, key=lambda one: one.row_id)[:VIOLATIONS_LISTED_MAX]
    if not total:
        return None
    return Offences(
        kind="kept",
        table_key=end.table_key,
        column=end.column,
        listed=tuple(listed),
        total=total,
    )
