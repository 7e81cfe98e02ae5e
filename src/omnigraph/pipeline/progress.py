"""A listener that draws bars on the terminal."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from omnigraph.engine.load.report import Tick


class RichListener:
    """Bars on a terminal, one a stage, for as long as the `with` block lasts."""

    def __init__(self, console: Console | None = None) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<12}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[rate]}"),
            console=console or Console(stderr=True),
        )
        self._bars: dict[str, int] = {}

    def __enter__(self) -> RichListener:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def __call__(self, tick: Tick) -> None:
        if tick.stage not in self._bars:
            self._bars[tick.stage] = self._progress.add_task(
                tick.stage, total=tick.tasks_total, rate=""
            )
        rate = tick.records_per_second
        self._progress.update(
            self._bars[tick.stage],  # type: ignore[arg-type]
            total=tick.tasks_total,
            completed=min(tick.tasks_done, tick.tasks_total),
            rate="" if rate is None else f"{tick.records:,} records, {rate:,.0f}/s",
        )

    def advance(self, what: str, done: int, total: int) -> None:
        """The same for work that is told in these words."""
        self(Tick(stage=what, tasks_done=done, tasks_total=total, seconds=0.0))
