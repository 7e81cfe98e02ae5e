"""Words out: JSON, and the five forms in which rows can be printed."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import click
import msgspec

from omnigraph.cli.scope import OperatorConfig
from omnigraph.errors import InputError

Format = Literal["table", "kv", "csv", "jsonl", "json"]
FORMATS: tuple[Format, ...] = ("table", "kv", "csv", "jsonl", "json")
Layout = Literal["truncate", "wrap"]
COLUMN_WIDTH_MIN = 4


class TableStyle(msgspec.Struct, frozen=True, kw_only=True):
    """How a table is fitted: the widest a column may be, and what happens to longer cells."""

    column_width_max: int = 80
    layout: Layout = "truncate"
    total_width: int | None = None  # None = nobody is looking; do not fit to a terminal


def emit_json(payload: Any) -> None:
    """Print one value as pretty JSON."""
    click.echo(json.dumps(payload, indent=2, ensure_ascii=False, default=str))


def json_line(payload: Any) -> str:
    """One value as one line of JSON."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"), default=str)


def cell(value: Any) -> str:
    """A value as text for people: strings as they are, null as nothing, the rest as JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json_line(value)


def render_rows(
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    *,
    form: Literal["table", "kv", "csv"],
    style: TableStyle,
) -> Iterator[str]:
    """Rows as lines of text in one of the three forms for people and spreadsheets."""
    match form:
        case "table":
            return table_lines(columns, rows, style=style)
        case "kv":
            return kv_lines(columns, rows)
        case "csv":
            return csv_lines(columns, rows)


def csv_lines(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """A header and one record a row, quoted as RFC 4180 says."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="")
    for record in (list(columns), *([cell(row[name]) for name in columns] for row in rows)):
        writer.writerow(record)
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()


def kv_lines(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """A block a row, a line a column, blocks apart by a blank line."""
    width = max((display_width(name) for name in columns), default=0)
    for number, row in enumerate(rows):
        if number:
            yield ""
        for name in columns:
            yield f"{_pad(name, width)}  {_one_line(cell(row[name]))}".rstrip()


def table_lines(
    columns: Sequence[str], rows: Sequence[Mapping[str, Any]], *, style: TableStyle
) -> Iterator[str]:
    """A table with a header and a rule, its columns fitted to their content and the terminal."""
    grid = [[_one_line(cell(row[name])) for name in columns] for row in rows]
    widths = _widths(columns, grid, style)
    yield "  ".join(
        _pad(_cut(name, w), w) for name, w in zip(columns, widths, strict=True)
    ).rstrip()
    yield "  ".join("-" * w for w in widths)
    for record in grid:
        cells = [_fit(text, w, style.layout) for text, w in zip(record, widths, strict=True)]
        for height in range(max((len(lines) for lines in cells), default=0)):
            parts = (lines[height] if height < len(lines) else "" for lines in cells)
            yield "  ".join(_pad(part, w) for part, w in zip(parts, widths, strict=True)).rstrip()


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


def _one_line(text: str) -> str:
    """Control characters spelled out, so that a cell cannot break the table or the terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _pad(text: str, width: int) -> str:
    return text + " " * (width - display_width(text))


def display_width(text: str) -> int:
    """How many cells of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


# --- what the operator chose ----------------------------------------------------------------------


def default_format(config: OperatorConfig) -> Format:
    """The operator's choice, or a table."""
    chosen = str(config.defaults.get("output", "table"))
    if chosen not in FORMATS:
        raise InputError(
            f"'{config.path}': defaults.output is '{chosen}'",
            hint=f"one of: {', '.join(FORMATS)}",
        )
    return chosen


def table_style(config: OperatorConfig) -> TableStyle:
    """How tables look: the operator's settings, fitted to the terminal if there is one."""
    defaults = config.defaults
    width = defaults.get("table_max_column_width", 80)
    layout = defaults.get("table_cell_layout", "truncate")
    if not isinstance(width, int) or width < COLUMN_WIDTH_MIN:
        raise InputError(f"'{config.path}': defaults.table_max_column_width is {width!r}")
    if layout not in ("truncate", "wrap"):
        raise InputError(
            f"'{config.path}': defaults.table_cell_layout is '{layout}'",
            hint="one of: truncate, wrap",
        )
    return fitted_style(column_width_max=width, layout=layout)


def fitted_style(*, column_width_max: int = 80, layout: Layout = "truncate") -> TableStyle:
    """A style that fits the terminal, if there is one."""
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return TableStyle(column_width_max=column_width_max, layout=layout, total_width=room)
