"""How a query ran, as a picture: a line a step, what it gave, and a bar for its time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from omnigraph.model.pictures.svg import COLOURS, cut, escaped, line, svg, text, text_width

_ROW, _INDENT, _MARGIN, _BAR = 20.0, 18.0, 16.0, 140.0
_WORDS_MAX: Final = 90
STEPS_DRAWN_MAX: Final = 300


class StepLike(Protocol):
    """What is drawn of a step."""

    @property
    def name(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def estimated_rows(self) -> int | None: ...
    @property
    def rows(self) -> int | None: ...
    @property
    def took_ms(self) -> float | None: ...
    @property
    def children(self) -> Sequence[StepLike]: ...


def draw_steps(root: StepLike) -> str:
    """The tree of the steps, from the whole to its parts."""
    steps = list(_walk(root, depth=0, above=None))[:STEPS_DRAWN_MAX]
    words = [cut(f"{step.name} {step.detail}".strip(), _WORDS_MAX) for step, _, _ in steps]
    rows = [_rows(step) for step, _, _ in steps]
    left = _MARGIN + max(
        _INDENT * depth + text_width(shown)
        for (_, depth, _), shown in zip(steps, words, strict=True)
    )
    middle = left + 24 + max(text_width(shown) for shown in rows)
    slowest = max((step.took_ms or 0.0 for step, _, _ in steps), default=0.0) or 1.0
    parts: list[str] = []
    for at, ((step, depth, above), shown, gave) in enumerate(zip(steps, words, rows, strict=True)):
        x, y = _MARGIN + _INDENT * depth, _MARGIN + _ROW * at
        if above is not None:
            foot = _MARGIN + _ROW * above + 8
            parts.append(line(x - _INDENT + 5, foot, x - _INDENT + 5, y))
            parts.append(line(x - _INDENT + 5, y, x - 3, y))
        parts.append(text(x, y + 4, escaped(shown)))
        parts.append(text(middle - 12, y + 4, escaped(gave), soft=True, more=' text-anchor="end"'))
        if step.took_ms is not None:
            length = max(1.0, _BAR * step.took_ms / slowest)
            parts.append(
                f'<rect x="{middle:.1f}" y="{y - 5:.1f}" width="{length:.1f}" height="10" '
                f'fill="{COLOURS[0]}"/>'
                + text(middle + length + 6, y + 4, f"{step.took_ms:.2f} ms", soft=True)
            )
    width = middle + _BAR + 80
    return svg(width, 2 * _MARGIN + _ROW * (len(steps) - 1), parts, title="how the query ran")


def _walk(
    step: StepLike, *, depth: int, above: int | None, first: int = 0
) -> Iterator[tuple[StepLike, int, int | None]]:
    yield step, depth, above
    at = first + 1
    for child in step.children:
        below = list(_walk(child, depth=depth + 1, above=first, first=at))
        yield from below
        at += len(below)


def _rows(step: StepLike) -> str:
    if step.rows is None:
        return ""
    expected = f" of about {step.estimated_rows:,}" if step.estimated_rows is not None else ""
    return f"{step.rows:,}{expected} rows"
