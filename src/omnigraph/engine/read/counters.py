"""What reading cost, counted where it happens: tests assert these, `explain` shows them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadCost:
    """How often tables were read, how many rows came, and which columns of which table."""

    reads: int = 0
    rows: int = 0
    columns: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def since(self, earlier: ReadCost) -> ReadCost:
        """What was added after `earlier`; columns are those that are new since then."""
        fresh = {
            table: names - earlier.columns.get(table, frozenset())
            for table, names in self.columns.items()
        }
        return ReadCost(
            reads=self.reads - earlier.reads,
            rows=self.rows - earlier.rows,
            columns={table: names for table, names in fresh.items() if names},
        )


class Counters:
    """A running total, shared by the threads of one reader."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reads = 0
        self._rows = 0
        self._columns: dict[str, set[str]] = {}

    def add(self, table_key: str, columns: Sequence[str], rows: int) -> None:
        with self._lock:
            self._reads += 1
            self._rows += rows
            self._columns.setdefault(table_key, set()).update(columns)

    @property
    def reads(self) -> int:
        return self._reads

    def total(self) -> ReadCost:
        with self._lock:
            return ReadCost(
                reads=self._reads,
                rows=self._rows,
                columns={table: frozenset(names) for table, names in self._columns.items()},
            )

    def reset(self) -> None:
        with self._lock:
            self._reads = self._rows = 0
            self._columns.clear()
