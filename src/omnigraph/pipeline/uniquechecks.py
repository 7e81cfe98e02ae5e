"""One range of the values of one `@unique` rule: rows that agree where no two may.

Values become text keys that are equal exactly when the values are; rows with a null among them are
exempt. Stored rows that a merge replaces are not known here: pairs with a stored row are told as
candidates, and `absent_ids` says which of the stored ids are not restaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import numpy as np
import pyarrow as pa

from omnigraph.engine.write.constraints import repeats, tuple_text
from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import VIOLATIONS_LISTED_MAX
from omnigraph.pipeline.arrow import Column, Ints, as_mask, flat, pc, picked
from omnigraph.pipeline.parts import GraphAccess, KeyRange, Part

_SEPARATOR: Final = "\x1f"
_ESCAPE: Final = "\x1e"


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueTask:
    """One range of keys of one rule of one table; `stored` holds rows that stay."""

    access: GraphAccess
    table_key: str
    columns: tuple[str, ...]
    within: KeyRange
    parts: tuple[Part, ...]
    stored: TableEntry | None
    list_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Clash:
    """A staged row whose values another row has: an earlier staged one, or a stored one."""

    part: int
    ordinal: int
    row_id: str
    holder_id: str
    value: str
    holder: tuple[int, int] | None  # the first staged row with these values; None if stored

    @property
    def order(self) -> tuple[int, int]:
        return self.part, self.ordinal


@dataclass(frozen=True, slots=True, kw_only=True)
class UniqueAnswer:
    """Clashes among the staged rows (the first ones, and how many values are shared), and all
    clashes with stored rows."""

    staged: tuple[Clash, ...] = ()
    staged_total: int = 0
    stored: tuple[Clash, ...] = ()


def check_unique_range(task: UniqueTask) -> UniqueAnswer:
    """Everything about one range of one rule."""
    names = ["id", *(name for name in task.columns if name != "id")]
    tables, keys, parts, ordinals = [], [], [], []
    for part in task.parts:
        rows = part.columns(task.access, names)
        key = unique_keys(rows, task.columns)
        at = _positions(key, task.within)
        at = at[part.judged(at)]
        tables.append(picked(rows, at))
        keys.append(picked(key, at))
        parts.append(np.full(len(at), part.number, dtype=np.int64))
        ordinals.append(at)
    if not tables:
        return UniqueAnswer()
    staged = _Staged(
        rows=pa.concat_tables(tables),
        keys=pa.concat_arrays(keys),
        parts=np.concatenate(parts),
        ordinals=np.concatenate(ordinals),
    )
    shared, total = _among_staged(task, staged)
    return UniqueAnswer(staged=shared, staged_total=total, stored=_with_stored(task, staged))


def unique_keys(rows: pa.Table | pa.RecordBatch, columns: Sequence[str]) -> Column:
    """The values of the columns as one text each; null where any of them is null."""
    texts = [_text(flat(rows.column(name))) for name in columns]
    if len(texts) == 1:
        return texts[0]
    escaped = [
        reduce(
            lambda text, pair: pc.replace_substring(text, pair[0], pair[1]),
            ((_ESCAPE, _ESCAPE + "e"), (_SEPARATOR, _ESCAPE + "s")),
            text,
        )
        for text in texts
    ]
    return pc.binary_join_element_wise(*escaped, _SEPARATOR)


def absent_ids(task: tuple[GraphAccess, tuple[Part, ...], Column]) -> Column:
    """Those of the ids that these parts do not hold."""
    access, parts, wanted = task
    for part in parts:
        ids = flat(part.columns(access, ["id"])["id"])
        wanted = wanted.filter(pc.invert(pc.is_in(wanted, value_set=ids)))
    return wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class _Staged:
    rows: pa.Table
    keys: Column
    parts: Ints
    ordinals: Ints


def _text(values: Column) -> Column:
    if pa.types.is_floating(values.type):
        # -0 and 0 are equal; adding zero gives them one spelling.
        return pc.add(values, pa.scalar(0, values.type)).cast(pa.string())
    if pa.types.is_timestamp(values.type):
        return values.cast(pa.int64()).cast(pa.string())
    return values if pa.types.is_string(values.type) else values.cast(pa.string())


def _positions(keys: Column, within: KeyRange) -> Ints:
    mask = within.mask(keys)
    return np.flatnonzero(as_mask(pc.is_valid(keys) if mask is None else mask))


def _among_staged(task: UniqueTask, staged: _Staged) -> tuple[tuple[Clash, ...], int]:
    if pc.count_distinct(staged.keys).as_py() == len(staged.keys):
        return (), 0
    first, second = repeats(staged.keys.dictionary_encode().indices)
    rows = np.flatnonzero(second)
    total = len(rows)
    if task.list_all:
        rows = np.flatnonzero(first != np.arange(len(first)))
    ids = staged.rows["id"]
    return tuple(
        Clash(
            part=int(staged.parts[row]),
            ordinal=int(staged.ordinals[row]),
            row_id=str(ids[int(row)].as_py()),
            holder_id=str(ids[int(first[row])].as_py()),
            value=_shown(staged.rows, task.columns, int(row)),
            holder=(int(staged.parts[first[row]]), int(staged.ordinals[first[row]])),
        )
        for row in rows[: len(rows) if task.list_all else VIOLATIONS_LISTED_MAX]
    ), total


def _with_stored(task: UniqueTask, staged: _Staged) -> tuple[Clash, ...]:
    if task.stored is None or task.stored.row_count == 0:
        return ()
    keys, owners = _stored_keys(task, task.stored)
    here = pc.index_in(staged.keys, value_set=keys)
    ids = staged.rows["id"]
    clashes = []
    for row in np.flatnonzero(np.asarray(pc.is_valid(here))):
        holder = str(owners[here[int(row)].as_py()].as_py())
        mine = str(ids[int(row)].as_py())
        if holder == mine:
            continue
        clashes.append(
            Clash(
                part=int(staged.parts[row]),
                ordinal=int(staged.ordinals[row]),
                row_id=mine,
                holder_id=holder,
                value=_shown(staged.rows, task.columns, int(row)),
                holder=None,
            )
        )
    return tuple(clashes)


def _stored_keys(task: UniqueTask, entry: TableEntry) -> tuple[Column, Column]:
    """The keys of the stored rows in range, and the ids that hold them."""
    names = ["id", *(name for name in task.columns if name != "id")]
    none: Column = pa.array([], pa.string())
    keys, owners = [none], [none]
    for batch in task.access.table(entry).scan(columns=names):
        found = unique_keys(batch, task.columns)
        at = _positions(found, task.within)
        keys.append(picked(found, at))
        owners.append(picked(batch["id"], at))
    return pa.concat_arrays(keys), pa.concat_arrays(owners)


def _shown(rows: pa.Table, columns: Sequence[str], row: int) -> str:
    return tuple_text([rows[name][row].as_py() for name in columns])
