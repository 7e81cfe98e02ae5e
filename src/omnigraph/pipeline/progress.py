"""Bars on the terminal for those who want to see how far a run is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from omnigraph.engine.arguments import Kind, require
from omnigraph.engine.load.report import Listener, Tick

_PROGRESS: Final = Kind(
    "Callable or bool or None",
    lambda value: value is None or isinstance(value, bool) or callable(value),
)


@contextmanager
def terminal_bars(*, after_seconds: float = 0.0) -> Iterator[Listener]:
    """A listener that draws a bar a stage, for as long as the `with` block lasts; nothing is drawn
    for what is over before `after_seconds`."""
    progress = Progress(
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[rate]}"),
        console=Console(stderr=True),
    )
    bars: dict[str, TaskID] = {}

    def draw(tick: Tick) -> None:
        if tick.stage not in bars:
            bars[tick.stage] = progress.add_task(tick.stage, total=tick.tasks_total, rate="")
        rate = tick.records_per_second
        progress.update(
            bars[tick.stage],
            total=tick.tasks_total,
            completed=min(tick.tasks_done, tick.tasks_total),
            rate="" if rate is None else f"{tick.records:,} records, {rate:,.0f}/s",
        )

    begin = threading.Timer(after_seconds, progress.start)
    begin.daemon = True
    begin.start()
    try:
        yield draw
    finally:
        begin.cancel()
        begin.join()  # it may be about to begin
        if progress.live.is_started:
            progress.stop()


@contextmanager
def status_line(text: str) -> Iterator[None]:
    """A line on the terminal that moves while the `with` block lasts, and is gone after it."""
    with Console(stderr=True).status(text):
        yield


@contextmanager
def listening(
    progress: Listener | bool | None,  # noqa: FBT001  (as callers give it)
) -> Iterator[Listener | None]:
    """Who hears of a run: the listener that the caller gave, or (True) bars on the terminal."""
    require(_PROGRESS, progress=progress)
    if progress is True:
        with terminal_bars() as bars:
            yield bars
    else:
        yield progress or None
