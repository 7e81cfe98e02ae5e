"""What a query did and why, as a tree that people can read: `explain`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any


@dataclass(slots=True)
class Step:
    """One operator: what it does, how many rows were expected, how many came, how long it took."""

    name: str
    detail: str = ""
    estimated_rows: int | None = None
    rows: int | None = None
    took_ms: float | None = None
    children: list[Step] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "detail": self.detail,
            "estimated_rows": self.estimated_rows,
            "rows": self.rows,
            "took_ms": None if self.took_ms is None else round(self.took_ms, 3),
            "children": [child.to_json() for child in self.children],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
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
