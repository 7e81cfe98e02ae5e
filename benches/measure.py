"""Timing side by side: ours and the raw operations it cannot avoid, turn by turn.

On a shared machine a noisy second then hits both alike, and the ratio stays honest.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One line of a result: medians in milliseconds, and how much more ours takes than raw."""

    name: str
    ours_ms: float
    raw_ms: float
    ratio: float
    rounds: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def side_by_side(
    name: str, *, ours: Callable[[], object], raw: Callable[[], object], rounds: int
) -> Measure:
    """The medians of both, taken in turns after one unmeasured turn each."""
    ours(), raw()
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for work, into in zip((ours, raw), took, strict=True):
            into.append(milliseconds(work))
    ours_ms, raw_ms = (statistics.median(each) for each in took)
    return Measure(
        name=name,
        ours_ms=round(ours_ms, 3),
        raw_ms=round(raw_ms, 3),
        ratio=round(ours_ms / raw_ms, 3),
        rounds=rounds,
    )


def milliseconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    began = time.perf_counter_ns()
    work()
    return (time.perf_counter_ns() - began) / 1e6


def as_text(measures: Sequence[Measure]) -> str:
    """A table for people."""
    width = max(len(each.name) for each in measures)
    head = f"{'':{width}}  {'ours ms':>9}  {'raw ms':>9}  {'ratio':>6}"
    lines = [
        f"{each.name:{width}}  {each.ours_ms:9.3f}  {each.raw_ms:9.3f}  {each.ratio:6.2f}"
        for each in measures
    ]
    return "\n".join([head, *lines])
