"""A change, what one bucket of it holds for a check, and what is found wrong in it.

A check sees new rows (of a load, a mutation or a merge) and stored rows that stay beside them. All
rows that can collide or refer to each other are in one bucket, so each bucket is judged by itself.
Small changes are one bucket in memory; big loads are many, read from key files (`keyfiles.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.engine.arrow import ArrowTable, Column, Ints, flat, pa, pc
from omnigraph.engine.check.rules import Entity
from omnigraph.engine.rows.parts import Stored
from omnigraph.model.schema import ROW_ADDRESS, ROW_ID
from omnigraph.storage.commit.writer import WriteContext
from omnigraph.storage.lance.columns import seal
from omnigraph.storage.table.stage import StagedWrite

STORED: Final = -1  # the number of a row that is not new
NO_IDS: Final = pa.array([], pa.string())

# --- a change ---------------------------------------------------------------------------------


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What a change does to one table, as far as checks must know."""

    entity: Entity
    fresh: bool = False  # no id of the new rows can be met twice or be stored
    replaces_all: bool = False  # no stored row stays
    last_counts: bool = False  # of rows with one id the last one counts; else the first
    strictly_new: bool = False  # ids that are stored are refused
    locates: bool = False  # say where the stored rows are that new ones replace
    touched: frozenset[str] | None = None  # columns that may differ from what is stored; None: all
    incomplete: bool = False  # records were refused, so that too few edges prove nothing

    def touches(self, columns: Iterable[str]) -> bool:
        """Whether a rule about these columns has to be checked."""
        return self.touched is None or not self.touched.isdisjoint(columns)


class TableChange(Terms, frozen=True, kw_only=True):
    """New images of rows, or rows to remove, of one table.

    `rows` has the columns of `columns.batch_schema` and each id once. Unless it is `fresh`, stored
    rows with the same id are replaced. `refused` are ids of records that were left out because of
    something else: what refers to them is not wrong for that.
    """

    rows: pa.Table
    deleted: frozenset[str] = frozenset()
    refused: frozenset[str] = frozenset()

    @property
    def is_empty(self) -> bool:
        return not (self.rows.num_rows or self.deleted or self.replaces_all)


Changes = Mapping[str, TableChange]


def stage(changes: Changes, context: WriteContext, stored: Stored) -> tuple[StagedWrite, ...]:
    """The uncommitted writes of every table that changes, staged side by side; no head moves."""
    some = [(key, change) for key, change in sorted(changes.items()) if not change.is_empty]
    staged = context.each(lambda one: _stage(one[0], one[1], context, stored), some)
    return tuple(write for write in staged if write is not None)


def _stage(
    table_key: str, change: TableChange, context: WriteContext, stored: Stored
) -> StagedWrite | None:
    table = context.writable(table_key)
    if change.deleted and change.rows.num_rows:
        return table.stage_change(
            seal(change.rows, table.schema), delete_ids=sorted(change.deleted)
        )
    if change.deleted:
        return table.stage_delete_ids(sorted(change.deleted))
    rows = seal(change.rows, table.schema)
    if change.replaces_all:
        return table.stage_overwrite(rows)
    if change.fresh or context.snapshot.entries[table_key].row_count == 0:
        return table.stage_append(rows)
    # Where rows are is the same on a branch's own line of a table, right after the fork.
    existing = stored.located(table_key, [str(one) for one in rows["id"].to_pylist()])
    return table.stage_change(rows, existing=existing)


# --- what is wrong ----------------------------------------------------------------------------

OffenceKind = Literal["repeated", "existing", "unique", "held", "dangling", "kept", "degree"]


class NewRows(NamedTuple):
    """New rows of a bucket. `numbers` name them, and order them as their input was ordered."""

    rows: ArrowTable
    numbers: Ints


class Section(NamedTuple):
    """One rule of one table that rows can break; `label` names its columns."""

    kind: OffenceKind
    table_key: str
    label: str


class Offence(msgspec.Struct, frozen=True, kw_only=True):
    """One way in which a rule is broken. `row` is a new row, or `STORED`; `rival` is the row that
    it collides with. `value` is the id, end, source or unique value as messages show it."""

    value: str
    row: int = STORED
    row_id: str = ""
    rival: int = STORED
    rival_id: str = ""
    count: int = 0  # of edges
    surplus: tuple[int, ...] = ()  # new edges that the source could do without


class Offences:
    """What is wrong, by rule: the first offences of each in order, and how many there are.

    `listed_max` is how many are described; None means all of them.
    """

    def __init__(self, listed_max: int | None) -> None:
        self.listed_max = listed_max
        self._listed: dict[Section, list[Offence]] = {}
        self._totals: dict[Section, int] = {}

    def add(self, section: Section, offences: Sequence[Offence], total: int) -> None:
        """Take offences of one rule, the first of `total`."""
        if not total:
            return
        listed = [*self._listed.get(section, ()), *offences]
        if section.kind == "kept":
            listed.sort(key=lambda one: one.row_id)
        else:  # as the input is ordered; what concerns no new row comes last
            listed.sort(key=lambda one: (one.row < 0, one.row, one.value))
        self._listed[section] = listed[: self.listed_max]
        self._totals[section] = self._totals.get(section, 0) + total

    def merge(self, other: Offences) -> None:
        """Take what another bucket found."""
        for section in other.sections():
            self.add(section, other.listed(section), other.total(section))

    def sections(self) -> Iterable[Section]:
        return self._totals.keys()

    def listed(self, section: Section) -> list[Offence]:
        return self._listed.get(section, [])

    def total(self, section: Section) -> int:
        return self._totals.get(section, 0)

    def first(self, rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Those of the rows that are described."""
        return rows if self.listed_max is None else rows[: self.listed_max]


class Bucket(Protocol):
    """The rows of one bucket. `by` is the key by which it was cut: ids, ends or unique columns."""

    def new_rows(self, table_key: str, by: Sequence[str], also: Sequence[str]) -> Iterator[NewRows]:
        """New rows with the columns `by` and `also`, in pieces, in the order of the input."""
        ...

    def stored_rows(
        self,
        table_key: str,
        by: Sequence[str],
        also: Sequence[str],
        asked: Mapping[str, Column] | None,
    ) -> ArrowTable:
        """The stored rows that the change leaves as they are. If `asked` is given, only rows with
        one of its values in each of its columns matter."""
        ...

    def stored_ids(self, table_key: str, asked: Column, *, located: bool) -> ArrowTable:
        """The stored ids, also of rows that the change replaces; only the asked ones matter. With
        `_rowid` and `_rowaddr` if they are `located`."""
        ...

    def left_sources(self, table_key: str) -> Column:
        """Where the stored edges began that the change replaces or deletes."""
        ...

    def refused_ids(self, table_key: str) -> Column:
        """The ids of records that were refused: an edge that names one only follows from that."""
        ...

    def deleted_ids(self, table_key: str) -> Column: ...

    @property
    def asks(self) -> bool:
        """Whether stored rows are looked up, so that asking for few of them pays."""
        ...


def gathered(pieces: Iterator[NewRows]) -> NewRows | None:
    """All pieces as one; None if there is no row."""
    some = [piece for piece in pieces if piece.rows.num_rows]
    if len(some) <= 1:
        return some[0] if some else None
    return NewRows(
        pa.concat_tables([piece.rows for piece in some]),
        np.concatenate([piece.numbers for piece in some]),
    )


def without(values: Any, column: Any, others: Column) -> Any:
    """The values (or rows) whose column holds none of the others."""
    if not len(others) or not len(column):
        return values
    return values.filter(pc.invert(pc.is_in(column, value_set=others)))


class MemoryBucket:
    """The one bucket of a change in memory; stored rows are looked up where they are needed."""

    asks = True

    def __init__(
        self, changes: Changes, stored: Stored, numbers: Mapping[str, Ints] | None = None
    ) -> None:
        self._changes, self._stored, self._numbers = changes, stored, numbers or {}

    def new_rows(self, table_key: str, by: Sequence[str], also: Sequence[str]) -> Iterator[NewRows]:
        change = self._changes.get(table_key)
        if change is None or not change.rows.num_rows:
            return
        names = list(dict.fromkeys((*by, *also)))
        numbers = self._numbers.get(table_key)
        if numbers is None:
            numbers = np.arange(change.rows.num_rows, dtype=np.int64)
        yield NewRows(change.rows.select(names), numbers)

    def stored_rows(
        self,
        table_key: str,
        by: Sequence[str],
        also: Sequence[str],
        asked: Mapping[str, Column] | None,
    ) -> ArrowTable:
        names = list(dict.fromkeys(("id", *by, *also)))
        if asked is None:
            rows = self._stored.rows(table_key, names)
        elif names == ["id"]:
            rows = pa.table({"id": self._stored.present(table_key, asked["id"])})
        else:
            first, *others = asked
            few = any(not len(values) for values in asked.values())
            rows = self._stored.rows_where_in(
                table_key,
                first,
                asked[first].slice(0, 0) if few else asked[first],
                names,
                and_in={name: asked[name] for name in others},
            )
        change = self._changes.get(table_key)
        found: ArrowTable = rows if change is None else _unshadowed(rows, change)
        return found

    def stored_ids(self, table_key: str, asked: Column, *, located: bool) -> ArrowTable:
        if located:
            return self._stored.rows_where_in(table_key, "id", asked, ["id", ROW_ID, ROW_ADDRESS])
        found: ArrowTable = pa.table({"id": self._stored.present(table_key, asked)})
        return found

    def left_sources(self, table_key: str) -> Column:
        change = self._changes[table_key]
        touched = pa.concat_arrays([flat(change.rows["id"]), self.deleted_ids(table_key)])
        return flat(self._stored.rows_where_in(table_key, "id", touched, ["id", "src"])["src"])

    def refused_ids(self, table_key: str) -> Column:
        change = self._changes.get(table_key)
        return pa.array(sorted(change.refused), pa.string()) if change else NO_IDS

    def deleted_ids(self, table_key: str) -> Column:
        change = self._changes.get(table_key)
        return pa.array(sorted(change.deleted), pa.string()) if change else NO_IDS


def _unshadowed(rows: Any, change: TableChange) -> Any:
    """The stored rows that will still be there, unchanged, after the change."""
    if rows.num_rows == 0 or change.fresh:
        return rows
    if change.rows.num_rows:
        rows = without(rows, rows["id"], flat(change.rows["id"]))
    return without(rows, rows["id"], pa.array(sorted(change.deleted), pa.string()))
