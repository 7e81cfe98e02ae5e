"""What the demo tells: to the terminal while it happens, and as a page with pictures."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

from omnigraph.cli.output import TableStyle, table_lines
from omnigraph.engine.read.network import COLOURS, WIDTH, Point, escaped, label, svg
from omnigraph.model.graph import Commit
from omnigraph.model.structs import html_facts, html_page, html_table, html_text


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
        self._parts.append(f"<h2>{html_text(title)}</h2>")
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
        self._parts.append(f"<p>{html_text(text)}</p>")

    def show(self, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        """A table, on the terminal and on the page."""
        for line in table_lines(columns, rows, style=self._style):
            self._say(f"   {line}")
        cells = [[row[name] for name in columns] for row in rows]
        self._parts.append(f"<section>{html_table(columns, cells)}</section>")

    def page_only(self, markup: str) -> None:
        """Something that a terminal cannot show."""
        self._parts.append(f"<section>{markup}</section>")

    def source(self, text: str) -> None:
        """The text of a query, for the page."""
        self._parts.append(f"<details><summary>query</summary><pre>{escape(text)}</pre></details>")

    def page(self, title: str, facts: Mapping[str, Any]) -> str:
        """The whole story as one document."""
        bars = draw_bars(self.times, unit="s")
        return html_page(
            title, [html_facts(facts), *self._parts, "<h2>where the time went</h2>", bars]
        )


# --- pictures, as SVG text ------------------------------------------------------------------------


def draw_history(commits: Sequence[Commit], labels: Mapping[str, str] | None = None) -> str:
    """Commits from left to right, a row a branch, lines to both parents; labels by commit id."""
    known = {commit.graph_commit_id: commit for commit in commits}
    ordered = sorted(known.values(), key=lambda one: (one.created_at, one.graph_commit_id))
    rows = {name: row for row, name in enumerate(dict.fromkeys(c.graph_branch for c in ordered))}
    step = 96
    place = {
        commit.graph_commit_id: (150.0 + step * column, 40.0 + 70 * rows[commit.graph_branch])
        for column, commit in enumerate(ordered)
    }
    parts = [
        f'<text x="10" y="{44 + 70 * row}" font-weight="bold">{label(name)}</text>'
        for name, row in rows.items()
    ]
    parts += [
        _link(place[parent], place[commit.graph_commit_id])
        for commit in ordered
        for parent in (commit.parent_commit_id, commit.merged_parent_commit_id)
        if parent in place
    ]
    for commit in ordered:
        x, y = place[commit.graph_commit_id]
        fill = COLOURS[rows[commit.graph_branch] % len(COLOURS)]
        name = (labels or {}).get(commit.graph_commit_id, commit.graph_commit_id[-6:])
        parts.append(
            f"<g><title>{escaped(commit.graph_commit_id)} by "
            f'{escaped(commit.actor_id or "nobody")}</title><circle cx="{x}" cy="{y}" r="7" '
            f'fill="{fill}"/><text x="{x}" y="{y + 22}" text-anchor="middle">{label(name)}</text>'
            "</g>"
        )
    return svg(170 + step * len(ordered), 50 + 70 * len(rows), parts, title="history")


def _link(start: Point, end: Point) -> str:
    bend = (start[0] + end[0]) / 2
    return (
        f'<path d="M{start[0]},{start[1]} C{bend},{start[1]} {bend},{end[1]} {end[0]},{end[1]}" '
        'fill="none" stroke="#99a" stroke-width="2"/>'
    )


def draw_bars(values: Sequence[tuple[str, float]], *, unit: str) -> str:
    """One bar a value, each with its name and number."""
    longest = max([value for _, value in values], default=0.0) or 1.0
    parts = []
    for row, (name, value) in enumerate(values):
        y = 8 + 24 * row
        width = max(value / longest * 360, 1)
        parts.append(
            f'<text x="274" y="{y + 13}" text-anchor="end">{label(name, limit=44)}</text>'
            f'<rect x="282" y="{y}" width="{width:.1f}" height="17" fill="{COLOURS[0]}"/>'
            f'<text x="{288 + width:.1f}" y="{y + 13}">{value:,.2f} {escaped(unit)}</text>'
        )
    return svg(WIDTH, 16 + 24 * len(values), parts, title="times")
