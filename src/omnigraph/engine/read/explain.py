"""What a query did and why, as a tree that people can read, and what it read from storage."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import msgspec


class Step(msgspec.Struct):
    """One operator: what it does, how many rows were expected, how many came, how long it took."""

    name: str
    detail: str = ""
    estimated_rows: int | None = None
    rows: int | None = None
    took_ms: float | None = None
    children: list[Step] = msgspec.field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "detail": self.detail,
            "estimated_rows": self.estimated_rows,
            "rows": self.rows,
            "took_ms": None if self.took_ms is None else round(self.took_ms, 3),
            "children": [child.to_json() for child in self.children],
        }


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The plan as it ran, and what it read from storage. `str()` of it is the tree."""

    root: Step
    reads: int
    rows_read: int
    columns_read: Mapping[str, list[str]]  # by table key

    def to_json(self) -> dict[str, Any]:
        return {
            **self.root.to_json(),
            "reads": self.reads,
            "rows_read": self.rows_read,
            "columns_read": dict(self.columns_read),
        }

    def __str__(self) -> str:
        lines = list(_lines(self.root, "", ""))
        lines.append(f"storage: {self.reads} reads, {self.rows_read} rows")
        lines += [f"  {table}: {', '.join(names)}" for table, names in self.columns_read.items()]
        return "\n".join(lines)


def _lines(step: Step, lead: str, below: str) -> Iterator[str]:
    facts = []
    if step.estimated_rows is not None:
        facts.append(f"about {step.estimated_rows} rows")
    if step.rows is not None:
        facts.append(f"{step.rows} rows")
    if step.took_ms is not None:
        facts.append(f"{step.took_ms:.2f} ms")
    detail = f" {step.detail}" if step.detail else ""
    yield f"{lead}{step.name}{detail}" + (f"  [{', '.join(facts)}]" if facts else "")
    for at, child in enumerate(step.children):
        last = at == len(step.children) - 1
        yield from _lines(
            child, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")
        )


class Trace:
    """Records steps when asked to, and costs next to nothing otherwise."""

    def __init__(self, *, recording: bool) -> None:
        self.recording = recording
        self.root = Step("query")
        self._stack = [self.root]

    @contextmanager
    def step(self, name: str, detail: str = "", estimate: int | None = None) -> Iterator[Step]:
        step = Step(name, detail, estimate)
        if not self.recording:
            yield step
            return
        self._stack[-1].children.append(step)
        self._stack.append(step)
        began = perf_counter()
        try:
            yield step
        finally:
            step.took_ms = (perf_counter() - began) * 1000
            self._stack.pop()


# --- costs: asserted by tests, shown by `explain` ------------------------------------------------


class ReadCost(msgspec.Struct, frozen=True, kw_only=True):
    """How often tables were read, how many rows came, and how often each column of which table."""

    reads: int = 0
    rows: int = 0
    columns: Mapping[tuple[str, str], int] = msgspec.field(default_factory=dict)

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
