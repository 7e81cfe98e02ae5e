"""What one bucket of a check holds, and what is found wrong in it.

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
from omnigraph.engine.check.change import Changes, TableChange
from omnigraph.engine.rows.parts import Stored
from omnigraph.model.schema import ROW_ADDRESS, ROW_ID

STORED: Final = -1  # the number of a row that is not new
NO_IDS: Final = pa.array([], pa.string())

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
        listed.sort(key=_stored_order if section.kind == "kept" else _order)
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


def _order(offence: Offence) -> tuple[bool, int, str]:
    """As the input is ordered; what concerns no new row comes last."""
    return offence.row < 0, offence.row, offence.value


def _stored_order(offence: Offence) -> str:
    return offence.row_id


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
