"""Parsed rows to rows of a table: ids made, values checked, the bad ones taken out and named.

The one shaping function for every source. What is wrong with a row is data (`Problem`), because
raising would make Spark run the task again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.engine.write.constraints import Cells, Entity, check_values, foreign_id
from omnigraph.engine.write.keys import canonical_ids
from omnigraph.engine.write.violations import Findings, Violation
from omnigraph.errors import OmnigraphError
from omnigraph.model.limits import VIOLATIONS_LISTED_MAX
from omnigraph.model.schema import NodeType
from omnigraph.pipeline.arrow import Ints, as_mask, flat, pc
from omnigraph.pipeline.ulids import fresh_ids
from omnigraph.pipeline.vectors import FillError, Gap, VectorFiller, gaps_of

_NO_CELLS: Cells = frozenset()
EMBEDDING = "embedding"  # the kind of a problem that is not the record's fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong with one record: a violation, or (None) a record that cannot be read.

    `number` is the record's line or row within its split; `raw` its text where it is wanted.
    `error` is set where the record is not to blame: its vector could not be made.
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


@dataclass(slots=True)
class Problems:
    """The first problems of a task and the count of all, by kind; or all of them if wanted."""

    keep_all: bool = False
    listed: list[Problem] = field(default_factory=list)
    by_kind: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.by_kind.values())

    def add(self, problems: Sequence[Problem]) -> None:
        for problem in problems:
            self.by_kind[problem.kind] = self.by_kind.get(problem.kind, 0) + 1
        room = len(problems) if self.keep_all else VIOLATIONS_LISTED_MAX - len(self.listed)
        self.listed += problems[: max(0, room)]

    def count(self, kind: str, more: int) -> None:
        """Problems that are counted but not described."""
        if more > 0:
            self.by_kind[kind] = self.by_kind.get(kind, 0) + more


class AllFindings(Findings):
    """Findings without a limit, for callers that must know every bad row."""

    @property
    def room(self) -> int:
        return 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRows:
    """Rows of one type in the columns of `batch_schema`; ids may still be null.

    `numbers` says which record of the split each row was. `violations` were found while reading.
    """

    entity: Entity
    rows: pa.Table
    numbers: Ints
    absent: Cells = _NO_CELLS
    misfits: Cells = _NO_CELLS
    violations: tuple[Violation, ...] = ()  # their place is `line <number>`


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedRows:
    """Good rows with ids, in order, and the numbers of their records."""

    rows: pa.Table
    numbers: Ints
    fresh_ids: bool


def shape(
    raw: RawRows,
    problems: Problems,
    lines: Mapping[int, str] | None = None,
    filler: VectorFiller | None = None,
) -> ShapedRows:
    """The good rows of the raw ones; what is wrong with the others goes to `problems`.

    `lines` gives the text of records where a quarantine will want it. With a `filler`, vectors
    that rows lack are made from their text, for good rows only.
    """
    rows, made = _with_ids(raw)
    found = AllFindings() if problems.keep_all else Findings()
    numbers = raw.numbers

    def place_of(row: int) -> str:
        return f"line {numbers[row]}"

    gaps = gaps_of(raw.entity, rows, raw.misfits) if filler is not None else []
    # A cell that will be filled is no missing value, as a misfit is none.
    misfits = raw.misfits.union(*({(int(r), gap.prop.name) for r in gap.rows} for gap in gaps))
    check_values(raw.entity, rows, found, place_of=place_of, absent=raw.absent, misfits=misfits)
    found.add(_foreign_ids(raw, rows, place_of))
    bad = [*raw.violations, *found.listed]
    problems.add([problem_of(violation, raw.entity.table_key, lines) for violation in bad])
    problems.count("value", found.total - len(found.listed))
    if bad:
        refused = np.isin(numbers, np.array([number_of(violation) for violation in bad]))
        rows, numbers = rows.filter(pa.array(~refused)), numbers[~refused]
        gaps = gaps_of(raw.entity, rows, _NO_CELLS) if gaps else []
    if gaps and filler is not None:
        rows, numbers = _filled(raw.entity, rows, numbers, gaps, filler, problems)
    return ShapedRows(rows=rows, numbers=numbers, fresh_ids=made)


def _filled(
    entity: Entity,
    rows: pa.Table,
    numbers: Ints,
    gaps: Sequence[Gap],
    filler: VectorFiller,
    problems: Problems,
) -> tuple[pa.Table, Ints]:
    """The rows with their vectors. Nothing is embedded for a load that has failed already: then
    no row is left, because none of them will be written."""
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
    return (rows.slice(0, 0), numbers[:0]) if hopeless else (rows, numbers)


def problem_of(
    violation: Violation, table_key: str, lines: Mapping[int, str] | None = None
) -> Problem:
    """A violation with the number that its place tells."""
    number = number_of(violation)
    return Problem(
        number=number,
        kind=violation.kind,
        text=violation.text,
        table_key=table_key,
        violation=violation,
        raw=lines.get(number) if lines else None,
    )


def number_of(violation: Violation) -> int:
    assert violation.place is not None, "rows of a load have places"
    return int(violation.place.rpartition(" ")[2])


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


def _foreign_ids(raw: RawRows, rows: pa.Table, place_of: Any) -> list[Violation]:
    """Explicit ids of keyed nodes that are not what their key gives."""
    node = raw.entity
    given = flat(raw.rows["id"])
    if not isinstance(node, NodeType) or not node.key or given.null_count == len(given):
        return []
    derived = flat(rows["id"])
    differs = as_mask(pc.not_equal(given, derived))
    return [
        foreign_id(
            node, given[int(row)].as_py(), derived[int(row)].as_py(), place_of(row), strict=True
        )
        for row in np.flatnonzero(differs)
    ]
