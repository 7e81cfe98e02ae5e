"""One range of one id space: what a task is told, what it answers, and how it reads keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from omnigraph.model.graph import TableEntry
from omnigraph.model.limits import CHECK_GROUP_KEYS
from omnigraph.pipeline.arrow import Column, Ints, as_mask, flat
from omnigraph.pipeline.files import FileAccess
from omnigraph.pipeline.parts import GraphAccess, KeyRange, Part

OffenceKind = Literal["duplicate", "conflict", "dangling", "kept", "degree"]


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
    replaced). `unique` refuses doubles among the staged ids: the first one stays; otherwise the
    last one wins and the others are named as losers. `fresh_only` refuses ids that are stored
    already.
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
    ghosts: tuple[str, ...] = ()  # files with ids of refused records: edges may name them


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
    refused: tuple[tuple[int, Ints], ...] = ()  # the same of rows that no other check may see
    matches: tuple[Match, ...] = ()


def in_range(keys: Column, within: KeyRange) -> tuple[Column, Ints]:
    """The keys that lie in the range, and where they were."""
    mask = within.mask(keys)
    if mask is None:
        return keys, np.arange(len(keys), dtype=np.int64)
    return keys.filter(mask), np.flatnonzero(as_mask(mask))


def ranged_keys(
    access: GraphAccess, part: Part, column: str, within: KeyRange
) -> tuple[Column, Ints]:
    """The part's keys in the range, and where they were: from its column, or, if the keys were
    sorted into ranges before, from that range alone."""
    sorted_file = part.sorted_keys.get(column)
    if sorted_file is None:
        keys, at = in_range(flat(part.columns(access, [column])[column]), within)
    else:
        with FileAccess(environ=access.environ).open(sorted_file) as file:
            batch = pa.ipc.open_file(file).get_batch(within.number)
        keys, at = batch.column(0), np.asarray(batch.column(1))
    if not part.left_out:
        return keys, at
    judged = part.judged(at)
    return keys.filter(pa.array(judged)), at[judged]


@dataclass(slots=True)
class _Group:
    """Keys of several parts, looked up together because building the lookup is what costs."""

    keys: list[Column] = field(default_factory=list)
    parts: list[Ints] = field(default_factory=list)
    ordinals: list[Ints] = field(default_factory=list)
    size: int = 0


def key_groups(
    access: GraphAccess, parts: Sequence[Part], column: str, within: KeyRange
) -> Iterator[tuple[Any, Ints, Ints]]:
    """The column of the parts, only the keys in range, in groups of bounded size."""
    group = _Group()
    for part in parts:
        keys, at = ranged_keys(access, part, column, within)
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
