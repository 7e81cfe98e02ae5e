"""One task's reading: what it reads with, and parsed rows shaped into rows of a table: ids made,
values checked, the bad ones taken out and named.

What is wrong with a record is data (`Problem`): raising would make Spark run the task again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

import msgspec
import numpy as np
import pyarrow as pa

from omnigraph.engine.arrow import Ints, Mask, as_mask, flat, pc
from omnigraph.engine.check.findings import Findings, Place, PlaceWord, Violation, kind_rank
from omnigraph.engine.check.rules import Cells, Entity, check_values, foreign_id
from omnigraph.engine.load.vectors import FillError, Gap, VectorFiller, gaps_of
from omnigraph.engine.rows.keys import canonical_ids, fresh_ids
from omnigraph.errors import OmnigraphError
from omnigraph.model.limits import VIOLATIONS_LISTED_MAX
from omnigraph.model.schema import Catalog, NodeType
from omnigraph.storage.objects.files import FileAccess


class ShapedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Good rows with ids, in order, and the numbers of their records.

    `lost` counts the rows that went, `refused` are the ids by which others may refer to them.
    """

    rows: pa.Table
    numbers: Ints
    fresh_ids: bool
    lost: int = 0
    refused: tuple[str, ...] = ()


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one record: a violation, or (None) a record that cannot be read.

    `number` is the record's line or row within its task; `raw` its text where it is wanted.
    `error` is set where more than a record is to blame: its vector could not be made, or it is
    longer than a record may be.
    """

    number: int
    kind: str
    text: str
    table_key: str | None = None
    violation: Violation | None = None
    hint: str | None = None
    raw: str | None = None
    property: str | None = None
    error: OmnigraphError | None = None


class Problems:
    """The first problems of a task and the count of all, by kind; or all of them if wanted.

    Records that cannot be read, values that are wrong and errors have a list each, because the
    first of each decides what a load says.
    """

    def __init__(self, *, keep_all: bool = False) -> None:
        self.keep_all = keep_all
        self.by_kind: dict[str, int] = {}
        self._lists: tuple[list[Problem], list[Problem], list[Problem]] = ([], [], [])

    @property
    def total(self) -> int:
        return sum(self.by_kind.values())

    @property
    def listed(self) -> list[Problem]:
        """In the order of their records."""
        return sorted((one for some in self._lists for one in self._first(some)), key=_rank)

    def add(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            self.count(problem.kind, 1)
            unreadable, values, failed = self._lists
            some = failed if problem.error else unreadable if problem.violation is None else values
            some.append(problem)
            if len(some) > 8 * VIOLATIONS_LISTED_MAX:
                some[:] = self._first(some)

    def count(self, kind: str, more: int) -> None:
        """Problems that are counted but not described."""
        if more > 0:
            self.by_kind[kind] = self.by_kind.get(kind, 0) + more

    def _first(self, some: list[Problem]) -> list[Problem]:
        return some if self.keep_all else sorted(some, key=_rank)[:VIOLATIONS_LISTED_MAX]


def _rank(problem: Problem) -> tuple[int, int]:
    return problem.number, kind_rank(problem.kind)


class Reading:
    """What a task reads with, and how many lines and records there have been so far."""

    def __init__(
        self,
        catalog: Catalog,
        files: FileAccess,
        *,
        keep_all: bool = False,
        filler: VectorFiller | None = None,
    ) -> None:
        self.catalog, self.files, self.filler = catalog, files, filler
        self.problems = Problems(keep_all=keep_all)
        self.lines = 0  # the driver adds them up to the line numbers of a file
        self.records = 0


class Input(Protocol):
    """What one task reads: a value that travels to where it is read."""

    @property
    def address(self) -> str:
        """Where it lies, as messages say it; empty for the data of the request itself."""
        ...

    @property
    def word(self) -> PlaceWord:
        """What its records are counted by."""
        ...

    @property
    def first(self) -> int:
        """The number of its first row; lines and records are counted up from task to task."""
        ...

    def shaped(self, reading: Reading) -> Iterator[tuple[str, ShapedRows]]:
        """The good rows by table key, piece after piece, in the order of their records."""
        ...


# --- shaping, the same for every source -------------------------------------------------------

_NO_CELLS: Cells = frozenset()
TextOf = Callable[[int], str]  # of the record with a number
EMBEDDING = "embedding"  # the kind of a problem that is not the record's fault


class RawRows(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one type in the columns of `batch_schema`; ids may still be null.

    `numbers` says which record of the split each row was. `violations` were found while reading:
    all of them, because their rows go no further. `foreign` are ids that rows cannot have.
    """

    entity: Entity
    rows: pa.Table
    numbers: Ints
    absent: Cells = _NO_CELLS
    misfits: Cells = _NO_CELLS
    violations: tuple[Violation, ...] = ()  # their place is that of `place_of`
    foreign: frozenset[str] = frozenset()


def shape(raw: RawRows, reading: Reading, text_of: TextOf | None = None) -> ShapedRows:
    """The good rows of the raw ones; what is wrong with the others goes to the problems.

    `text_of` gives the text of records where a quarantine will want it. With a `filler`, vectors
    that rows lack are made from their text, for good rows only.
    """
    problems, filler = reading.problems, reading.filler
    rows, made = _with_ids(raw)
    found = Findings(listed_max=1 << 62) if problems.keep_all else Findings()
    numbers = raw.numbers

    def place(row: int) -> Place:
        return place_of(int(numbers[row]))

    gaps = gaps_of(raw.entity, rows, raw.misfits) if filler is not None else []
    # A cell that will be filled is no missing value, as a misfit is none.
    misfits = raw.misfits.union(*({(int(r), gap.prop.name) for r in gap.rows} for gap in gaps))
    bad = check_values(raw.entity, rows, found, place_of=place, absent=raw.absent, misfits=misfits)
    foreign, wrong = _foreign_ids(raw, rows, place)
    found.add(foreign)
    known = [*raw.violations, *found.listed]
    problems.add(problem_of(violation, raw.entity.table_key, text_of) for violation in known)
    for kind, count in found.by_kind.items():
        problems.count(kind, count - sum(one.kind == kind for one in found.listed))
    bad |= wrong | np.isin(numbers, [number_of(violation) for violation in raw.violations])
    shaped = _without(raw, rows, bad, made=made)
    if bad.any():
        gaps = gaps_of(raw.entity, shaped.rows, _NO_CELLS) if gaps else []
    if gaps and filler is not None:
        shaped = _filled(raw.entity, shaped, gaps, filler, problems)
    return shaped


def _without(raw: RawRows, rows: pa.Table, bad: Mask, *, made: bool) -> ShapedRows:
    if not bad.any():
        return ShapedRows(rows=rows, numbers=raw.numbers, fresh_ids=made)
    refused: set[str] = set()
    if isinstance(raw.entity, NodeType):
        for ids in (rows["id"], raw.rows["id"]):
            refused.update(flat(ids).filter(pa.array(bad)).drop_null().to_pylist())
    return ShapedRows(
        rows=rows.filter(pa.array(~bad)),
        numbers=raw.numbers[~bad],
        fresh_ids=made,
        lost=int(bad.sum()),
        refused=tuple(sorted(refused | raw.foreign)),
    )


def _filled(
    entity: Entity,
    shaped: ShapedRows,
    gaps: Sequence[Gap],
    filler: VectorFiller,
    problems: Problems,
) -> ShapedRows:
    """The rows with their vectors. Nothing is embedded for a load that has failed already: then
    no row is left, because none of them will be written."""
    rows, numbers = shaped.rows, shaped.numbers
    hopeless = problems.total and (not problems.keep_all or EMBEDDING in problems.by_kind)
    if not hopeless:
        try:
            for gap in gaps:
                rows = filler.filled(rows, gap)
        except FillError as stopped:
            hopeless = True
            problem = Problem(
                number=int(numbers[stopped.row]),
                kind=EMBEDDING,
                text=stopped.error.message,
                table_key=entity.table_key,
                hint=stopped.error.hint,
                property=stopped.prop.name,
                error=stopped.error,
            )
            problems.add([problem])
    if not hopeless:
        return msgspec.structs.replace(shaped, rows=rows)
    ids = flat(shaped.rows["id"]).to_pylist() if isinstance(entity, NodeType) else []
    return msgspec.structs.replace(
        shaped,
        rows=rows.slice(0, 0),
        numbers=numbers[:0],
        lost=shaped.lost + rows.num_rows,
        refused=(*shaped.refused, *ids),
    )


def problem_of(violation: Violation, table_key: str, text_of: TextOf | None = None) -> Problem:
    """A violation with the number that its place tells."""
    number = number_of(violation)
    return Problem(
        number=number,
        kind=violation.kind,
        text=violation.text,
        table_key=table_key,
        violation=violation,
        raw=text_of(number) if text_of else None,
    )


def place_of(number: int) -> Place:
    """The place of a record within its task, until the driver knows where that was."""
    return Place(word="line", number=number, at=(0, number))


def number_of(violation: Violation) -> int:
    assert violation.place is not None, "rows of a load have places"
    return violation.place.at[1]


def _with_ids(raw: RawRows) -> tuple[pa.Table, bool]:
    """The rows with every id that can be known, and whether we made all of them."""
    if isinstance(raw.entity, NodeType) and raw.entity.key:
        return raw.rows.set_column(0, "id", canonical_ids(raw.entity, raw.rows)), False
    given = flat(raw.rows["id"])
    if not given.null_count:
        return raw.rows, raw.rows.num_rows == 0
    fresh = fresh_ids(len(given))
    ids = fresh if given.null_count == len(given) else pc.coalesce(given, fresh)
    return raw.rows.set_column(0, "id", ids), given.null_count == len(given)


def _foreign_ids(
    raw: RawRows, rows: pa.Table, place: Callable[[int], Place]
) -> tuple[list[Violation], Mask]:
    """Explicit ids of keyed nodes that are not what their key gives, and whose rows those are."""
    node = raw.entity
    given = flat(raw.rows["id"])
    if not isinstance(node, NodeType) or not node.key or given.null_count == len(given):
        return [], np.zeros(len(given), dtype=bool)
    derived = flat(rows["id"])
    differs = as_mask(pc.not_equal(given, derived))
    violations = [
        foreign_id(
            node, given[int(row)].as_py(), derived[int(row)].as_py(), place(int(row)), strict=True
        )
        for row in np.flatnonzero(differs)
    ]
    return violations, differs
