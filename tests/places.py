"""Where a test may keep a graph."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A fresh, empty place for one graph, and the variables a program needs to reach it."""

    uri: str
    environ: dict[str, str]
