"""What reading cost, counted where it happens: tests assert these, `explain` shows them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCost:
    """How often tables were read, how many rows came, and how often each column of which table."""

    reads: int = 0
    rows: int = 0
    columns: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def since(self, earlier: ReadCost) -> ReadCost:
        """What was added after `earlier`."""
        added = {key: often - earlier.columns.get(key, 0) for key, often in self.columns.items()}
        return ReadCost(
            reads=self.reads - earlier.reads,
            rows=self.rows - earlier.rows,
            columns={key: often for key, often in added.items() if often},
        )

    def by_table(self) -> dict[str, list[str]]:
        """The columns that were read, by table key."""
        found: dict[str, list[str]] = {}
        for table_key, column in sorted(self.columns):
            found.setdefault(table_key, []).append(column)
        return found


class Counters:
    """A running total, shared by the threads of one reader."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads = 0
        self._rows = 0
        self._columns: Counter[tuple[str, str]] = Counter()

    def add(self, table_key: str, columns: Sequence[str], rows: int) -> None:
        with self._lock:
            self._reads += 1
            self._rows += rows
            self._columns.update((table_key, column) for column in columns)

    @property
    def reads(self) -> int:
        return self._reads

    def total(self) -> ReadCost:
        with self._lock:
            return ReadCost(reads=self._reads, rows=self._rows, columns=dict(self._columns))
