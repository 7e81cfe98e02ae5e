"""Words out: JSON, and the five forms in which rows can be printed."""

from __future__ import annotations

import csv
import io
import json
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import click

from omnigraph.cli.scope import OperatorConfig
from omnigraph.errors import InputError
from omnigraph.model.tables import (
    COLUMN_WIDTH_MIN,
    Layout,
    TableStyle,
    cell,
    display_width,
    one_line,
    padded,
    table_lines,
)

Format = Literal["table", "kv", "csv", "jsonl", "json"]
FORMATS: tuple[Format, ...] = ("table", "kv", "csv", "jsonl", "json")


def emit_json(payload: Any) -> None:
    """Print one value as pretty JSON."""
    click.echo(json.dumps(payload, indent=2, ensure_ascii=False, default=str))


def print_rows(
    config: OperatorConfig,
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    *,
    form: Literal["table", "kv", "csv"],
) -> None:
    """Print rows in one of the forms for people and spreadsheets; heads of tables are bold."""
    lines = render_rows(columns, rows, form=form, style=table_style(config))
    for number, line in enumerate(lines):
        click.echo(click.style(line, bold=True) if form == "table" and number == 0 else line)


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
            yield f"{padded(name, width)}  {one_line(cell(row[name]))}".rstrip()


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
