"""One range of one id space: doubles, ids that exist already, edges that end nowhere, degrees.

A task holds the ids of its range and streams everything that refers to them past it, so its memory
follows the ids of the range, not the edges. The function is pure: a task in, findings out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa

from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import CHECK_GROUP_KEYS, VIOLATIONS_LISTED_MAX
from omnigraph.pipeline.arrow import Column, Ints, as_mask, flat, pc
from omnigraph.pipeline.parts import GraphAccess, KeyRange, Part

OffenceKind = Literal["duplicate", "conflict", "dangling", "kept", "degree"]

_NO_KEYS: Final = pa.array([], pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A column of an edge type that must name ids of the space.

    `parts` are the staged edges; `kept` are stored edges to be checked because the nodes they name
    are being replaced.
    """

    table_key: str
    column: str
    parts: tuple[Part, ...]
    kept: TableEntry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Degree:
    """How many edges may start at each id: staged ones and stored ones that stay."""

    table_key: str
    parts: tuple[Part, ...]
    stored: TableEntry | None
    shadowing: bool  # staged edges may replace stored ones of the same id
    minimum: int
    maximum: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdTask:
    """What is known about one range of the ids of one table.

    `stored` holds rows that stay beside the staged ones (None: there are none, or all are being
    replaced). `unique` refuses doubles among the staged ids; otherwise the last one wins and the
    others are named as losers. `fresh_only` refuses ids that are stored already.
    """

    access: GraphAccess
    table_key: str
    within: KeyRange
    parts: tuple[Part, ...]
    stored: TableEntry | None
    unique: bool
    fresh_only: bool
    ends: tuple[End, ...] = ()
    degrees: tuple[Degree, ...] = ()
    list_all: bool = False
    lookup: bool = False  # few keys come in: ask the stored table for those instead of for all
    locate: bool = False  # say where the stored rows of staged ids are


@dataclass(frozen=True, slots=True, kw_only=True)
class Offence:
    """One thing found. `part` and `ordinal` name a staged row; `first` the row it collides with."""

    part: int = -1
    ordinal: int = -1
    value: str = ""
    row_id: str = ""
    first: tuple[int, int] | None = None
    count: int = 0
    surplus: tuple[tuple[int, int], ...] = ()  # the staged rows that a degree could do without

    @property
    def order(self) -> tuple[int, int]:
        return self.part, self.ordinal


@dataclass(frozen=True, slots=True, kw_only=True)
class Offences:
    """Things of one kind found in one range: the first of them, and how many there are."""

    kind: OffenceKind
    table_key: str
    column: str
    listed: tuple[Offence, ...]
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Staged rows of one part that are new images of stored rows: where each of those is."""

    part: int
    ordinals: Ints
    row_ids: Ints
    addresses: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class IdAnswer:
    """What a range holds, and what is wrong in it."""

    staged: int
    matched: int  # staged ids that are stored too
    offences: tuple[Offences, ...] = ()
    losers: tuple[tuple[int, Ints], ...] = ()  # part number, ordinals of overruled rows
    matches: tuple[Match, ...] = ()


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
    doubles, losers = _doubles(task, held)
    if doubles is not None:
        offences.append(doubles)
    met = pc.is_in(held.ids, value_set=stored) if len(stored) else None
    matched = 0
    if met is not None:
        flags = np.asarray(met)
        matched = int(flags.sum())
        if task.fresh_only and matched:
            offences.append(_conflicts(task, held, flags))
    known = pa.concat_arrays([held.ids, stored]) if len(stored) else held.ids
    offences += _dangling(task, known)
    offences += [found for rule in task.degrees if (found := _degrees(task, rule, known))]
    return IdAnswer(
        staged=len(held.ids),
        matched=matched,
        offences=tuple(offences),
        losers=losers,
        matches=tuple(_matches(held, found)) if task.locate and matched else (),
    )


# --- the ids themselves -----------------------------------------------------------------------


def _held(task: IdTask) -> _Held:
    arrays: list[Column] = []
    parts: list[Ints] = []
    ordinals: list[Ints] = []
    for part in task.parts:
        ids = flat(part.columns(task.access, ["id"])["id"])
        ids, at = _in_range(ids, task.within)
        arrays.append(ids)
        parts.append(np.full(len(ids), part.number, dtype=np.int64))
        ordinals.append(at)
    none = np.empty(0, dtype=np.int64)
    return _Held(
        ids=pa.concat_arrays(arrays) if arrays else _NO_KEYS,
        parts=np.concatenate([none, *parts]),
        ordinals=np.concatenate([none, *ordinals]),
    )


def _in_range(keys: Column, within: KeyRange) -> tuple[Column, Ints]:
    mask = within.mask(keys)
    if mask is None:
        return keys, np.arange(len(keys), dtype=np.int64)
    return keys.filter(mask), np.flatnonzero(as_mask(mask))


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
        for keys, _, _ in _groups(task.access, end.parts, end.column, task.within):
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


def _doubles(task: IdTask, held: _Held) -> tuple[Offences | None, tuple[tuple[int, Ints], ...]]:
    """Ids that are staged twice: refused, or all but the last given up."""
    if all(part.fresh_ids for part in task.parts):
        return None, ()
    if pc.count_distinct(held.ids).as_py() == len(held.ids):
        return None, ()
    codes = np.asarray(held.ids.dictionary_encode().indices)
    if task.unique:
        return _repeated(task, held, codes), ()
    last = np.full(int(codes.max()) + 1, -1, dtype=np.int64)
    last[codes] = np.arange(len(codes))  # later assignments win, and rows are in input order
    loses = last[codes] != np.arange(len(codes))
    parts, ordinals = held.parts[loses], held.ordinals[loses]
    return None, tuple((int(number), ordinals[parts == number]) for number in np.unique(parts))


def _repeated(task: IdTask, held: _Held, codes: Ints) -> Offences:
    order = np.argsort(codes, kind="stable")
    sorted_codes = codes[order]
    is_first = np.concatenate([[True], sorted_codes[1:] != sorted_codes[:-1]])
    first_of = order[np.maximum.accumulate(np.where(is_first, np.arange(len(order)), 0))]
    later = ~is_first
    rows, firsts = order[later], first_of[later]
    by_place = np.argsort(rows, kind="stable")
    rows, firsts = rows[by_place], firsts[by_place]
    total = len(np.unique(codes[rows]))
    keep = len(rows) if task.list_all else VIOLATIONS_LISTED_MAX
    listed = tuple(
        Offence(
            part=int(held.parts[row]),
            ordinal=int(held.ordinals[row]),
            value=str(held.ids[int(row)].as_py()),
            row_id=str(held.ids[int(row)].as_py()),
            first=(int(held.parts[first]), int(held.ordinals[first])),
        )
        for row, first in zip(rows[:keep], firsts[:keep], strict=True)
    )
    return Offences(
        kind="duplicate", table_key=task.table_key, column="id", listed=listed, total=total
    )


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


@dataclass(slots=True)
class _Group:
    """Keys of several parts, looked up together because building the lookup is what costs."""

    keys: list[Column] = field(default_factory=list)
    parts: list[Ints] = field(default_factory=list)
    ordinals: list[Ints] = field(default_factory=list)
    size: int = 0


def _groups(
    access: GraphAccess, parts: Sequence[Part], column: str, within: KeyRange
) -> Iterator[tuple[Any, Ints, Ints]]:
    """The column of the parts, only the keys in range, in groups of bounded size."""
    group = _Group()
    for part in parts:
        keys, at = _in_range(flat(part.columns(access, [column])[column]), within)
        if len(keys):
            group.keys.append(keys)
            group.parts.append(np.full(len(keys), part.number, dtype=np.int64))
            group.ordinals.append(at)
            group.size += len(keys)
        if group.size >= CHECK_GROUP_KEYS:
            yield _closed(group)
            group = _Group()
    if group.size:
        yield _closed(group)


def _closed(group: _Group) -> tuple[Any, Ints, Ints]:
    return (
        pa.chunked_array(group.keys, pa.string()),
        np.concatenate(group.parts),
        np.concatenate(group.ordinals),
    )


def _dangling(task: IdTask, known: Column) -> list[Offences]:
    offences = []
    for end in task.ends:
        listed: list[Offence] = []
        total = 0
        for keys, parts, ordinals in _groups(task.access, end.parts, end.column, task.within):
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
            for row in lost[: max(0, VIOLATIONS_LISTED_MAX - len(listed))]
        ]
    if not total:
        return None
    return Offences(
        kind="kept",
        table_key=end.table_key,
        column=end.column,
        listed=tuple(listed),
        total=total,
    )


# --- how many refer to them -------------------------------------------------------------------


def _degrees(task: IdTask, rule: Degree, known: Column) -> Offences | None:
    known, staged = _staged_degrees(task, rule, known)
    touched = staged > 0
    counts = staged.copy()
    if rule.stored is not None and rule.stored.row_count:
        replaced = _staged_ids(task, rule)
        table = task.access.table(rule.stored)
        for batch in table.scan(columns=["id", "src"], where=task.within.where("src")):
            codes = pc.index_in(batch["src"], value_set=known)
            valid = np.asarray(pc.is_valid(codes))
            numbers = np.asarray(pc.fill_null(codes, 0))
            gone = (
                np.asarray(pc.is_in(batch["id"], value_set=replaced))
                if replaced is not None
                else np.zeros(len(batch), dtype=bool)
            )
            counts += np.bincount(numbers[valid & ~gone], minlength=len(known))
            if rule.minimum > 0:
                touched[numbers[valid & gone]] = True
    wrong = touched & (counts < rule.minimum)
    if rule.maximum is not None:
        wrong |= touched & (counts > rule.maximum)
    at = np.flatnonzero(wrong)
    if not len(at):
        return None
    return _degree_offences(task, rule, known, at, counts)


def _staged_degrees(task: IdTask, rule: Degree, known: Column) -> tuple[Column, Ints]:
    """How many staged edges start at each id; sources that are no nodes are counted as well."""
    counts = np.zeros(len(known), dtype=np.int64)
    for keys, _, _ in _groups(task.access, rule.parts, "src", task.within):
        codes = pc.index_in(keys, value_set=known)
        if codes.null_count:
            strangers = pc.unique(keys.filter(pc.is_null(codes)))
            known = pa.concat_arrays([known, strangers])
            counts = np.concatenate([counts, np.zeros(len(strangers), dtype=np.int64)])
            codes = pc.index_in(keys, value_set=known)
        counts += np.bincount(np.asarray(flat(codes)), minlength=len(known))
    return known, counts


def _staged_ids(task: IdTask, rule: Degree) -> Column | None:
    """The ids of the staged edges, if any of them may replace a stored one."""
    explicit = [part for part in rule.parts if not part.fresh_ids]
    if not rule.shadowing or not explicit:
        return None
    return pa.concat_arrays([flat(part.columns(task.access, ["id"])["id"]) for part in explicit])


def _degree_offences(task: IdTask, rule: Degree, known: Column, at: Ints, counts: Ints) -> Offences:
    sources = known.take(pa.array(at))
    edges: dict[int, list[tuple[int, int]]] = {int(code): [] for code in range(len(at))}
    for keys, parts, ordinals in _groups(task.access, rule.parts, "src", task.within):
        codes = pc.index_in(keys, value_set=sources)
        valid = np.flatnonzero(np.asarray(pc.is_valid(codes)))
        numbers = np.asarray(flat(codes.drop_null()))
        for row, code in zip(valid, numbers, strict=True):
            edges[int(code)].append((int(parts[row]), int(ordinals[row])))
    listed = []
    for code in range(len(at)):
        rows, count = edges[code], int(counts[at[code]])
        over = 0 if rule.maximum is None else count - rule.maximum
        surplus = rows[len(rows) - over :] if 0 < over < len(rows) else rows
        part, ordinal = rows[0] if rows else (-1, -1)
        listed.append(
            Offence(
                part=part,
                ordinal=ordinal,
                value=str(sources[code].as_py()),
                count=count,
                surplus=tuple(surplus) if task.list_all else (),
            )
        )
    listed.sort(key=lambda offence: offence.order)
    keep = len(listed) if task.list_all else VIOLATIONS_LISTED_MAX
    return Offences(
        kind="degree",
        table_key=rule.table_key,
        column="src",
        listed=tuple(listed[:keep]),
        total=len(at),
    )
