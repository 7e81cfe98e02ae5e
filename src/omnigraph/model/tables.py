"""Rows as a table of text, for terminals and for `print`: fitted, and safe to show."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

Layout = Literal["truncate", "wrap"]
COLUMN_WIDTH_MIN: Final = 4


class TableStyle(msgspec.Struct, frozen=True, kw_only=True):
    """How a table is fitted: the widest a column may be, and what happens to longer cells."""

    column_width_max: int = 80
    layout: Layout = "truncate"
    total_width: int | None = None  # None = nobody is looking; do not fit to a terminal


def json_line(payload: Any) -> str:
    """One value as one line of JSON."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"), default=str)


def cell(value: Any) -> str:
    """A value as text for people: strings as they are, null as nothing, the rest as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json_line(value)


def table_lines(
    columns: Sequence[str], rows: Sequence[Mapping[str, Any]], *, style: TableStyle
) -> Iterator[str]:
    """A table with a header and a rule, its columns fitted to their content and the terminal.

    Columns of numbers stand at the right, so that their digits can be compared.
    """
    grid = [[one_line(cell(row[name])) for name in columns] for row in rows]
    widths = _widths(columns, grid, style)
    at_right = [_holds_numbers(row[name] for row in rows) for name in columns]
    yield _line([_cut(name, w) for name, w in zip(columns, widths, strict=True)], widths, at_right)
    yield "  ".join("-" * w for w in widths)
    for record in grid:
        cells = [_fit(text, w, style.layout) for text, w in zip(record, widths, strict=True)]
        for height in range(max((len(lines) for lines in cells), default=0)):
            parts = [lines[height] if height < len(lines) else "" for lines in cells]
            yield _line(parts, widths, at_right)


def _holds_numbers(values: Iterable[Any]) -> bool:
    """Whether there are numbers among the values, and nothing else but nulls."""
    kinds = {type(value) for value in values} - {type(None)}
    return bool(kinds) and kinds <= {int, float}


def _line(parts: Sequence[str], widths: Sequence[int], at_right: Sequence[bool]) -> str:
    cells = zip(parts, widths, at_right, strict=True)
    return "  ".join(padded(part, w, at_right=right) for part, w, right in cells).rstrip()


def _widths(columns: Sequence[str], grid: list[list[str]], style: TableStyle) -> list[int]:
    widths = [
        min(
            max([display_width(name), *(display_width(record[index]) for record in grid)]),
            style.column_width_max,
        )
        for index, name in enumerate(columns)
    ]
    if style.total_width is not None and widths:
        room = style.total_width - 2 * (len(widths) - 1)
        # The widest column gives first, until all fit or none can give any more.
        while sum(widths) > room and max(widths) > COLUMN_WIDTH_MIN:
            widths[widths.index(max(widths))] -= 1
    return [max(width, 1) for width in widths]


def _fit(text: str, width: int, layout: Layout) -> list[str]:
    if display_width(text) <= width or layout == "truncate":
        return [_cut(text, width)]
    lines, line = [], ""
    for char in text:
        if display_width(line + char) > width:
            lines.append(line)
            line = ""
        line += char
    return [*lines, line]


def _cut(text: str, width: int) -> str:
    if display_width(text) <= width:
        return text
    kept = ""
    for char in text:
        if display_width(kept + char) > width - 1:
            break
        kept += char
    return kept + "…"


def one_line(text: str) -> str:
    """Control characters spelled out, so that a cell cannot break the table or the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def padded(text: str, width: int, *, at_right: bool = False) -> str:
    room = " " * (width - display_width(text))
    return room + text if at_right else text + room


def display_width(text: str) -> int:
    """How many cells of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
