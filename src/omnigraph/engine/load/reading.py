"""One task's reading: what it reads with, what it has counted, and what is wrong with records.

What is wrong with a record is data (`Problem`): raising would make Spark run the task again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec
import pyarrow as pa

from omnigraph.engine.arrow import Ints
from omnigraph.engine.check.findings import PlaceWord, Violation, kind_rank
from omnigraph.engine.load.vectors import VectorFiller
from omnigraph.errors import OmnigraphError
from omnigraph.model.limits import VIOLATIONS_LISTED_MAX
from omnigraph.model.schema import Catalog
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
