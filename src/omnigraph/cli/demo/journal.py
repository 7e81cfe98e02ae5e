"""What the demo tells: to the terminal while it happens, and as a page when it is over."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from omnigraph.cli.output import TableStyle, table_lines
from omnigraph.model import html
from omnigraph.model.drawing import draw_bars


class Journal:
    """Chapters in the order told, each with its time and its part of the page."""

    def __init__(self, say: Callable[[str], None], *, width: int | None) -> None:
        self._say = say
        room = None if width is None else width - 3  # what is told is indented by three
        self._style = TableStyle(column_width_max=60, total_width=room)
        self._parts: list[str] = []
        self.times: list[tuple[str, float]] = []

    @contextmanager
    def chapter(self, title: str) -> Iterator[None]:
        """Everything told inside belongs to the chapter, and its time is taken."""
        self._say(f"\n== {title}")
        self._parts.append(f"<h2>{html.text(title)}</h2>")
        started = time.monotonic()
        yield
        seconds = time.monotonic() - started
        self.times.append((title, seconds))
        self._say(f"   ({seconds:.1f} s)")

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """A time of its own, without a chapter."""
        started = time.monotonic()
        yield
        self.times.append((name, time.monotonic() - started))

    def tell(self, text: str) -> None:
        self._say(f"   {text}")
        self._parts.append(f"<p>{html.text(text)}</p>")

    def show(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """A table, on the terminal and on the page."""
        for line in table_lines(columns, rows, style=self._style):
            self._say(f"   {line}")
        cells = [[row[name] for name in columns] for row in rows]
        self._parts.append(f"<section>{html.table(columns, cells)}</section>")

    def page_only(self, markup: str) -> None:
        """Something that a terminal cannot show."""
        self._parts.append(f"<section>{markup}</section>")

    def source(self, text: str) -> None:
        """The text of a query, for the page."""
        self._parts.append(html.code("query", text))

    def page(self, title: str, facts: Mapping[str, Any]) -> str:
        """The whole story as one document."""
        bars = draw_bars(self.times, unit="s")
        return html.page(
            title,
            [html.facts(facts), *self._parts, "<h2>where the time went</h2>", bars],
        )
