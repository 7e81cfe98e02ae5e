"""Values as HTML, for notebooks and reports: escaped, self-contained, limited."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

ROWS_SHOWN_MAX: Final = 50
CELL_CHARACTERS_MAX: Final = 200

CELL_STYLE: Final = (
    "padding:.2em .8em;text-align:left;vertical-align:top;border-bottom:1px solid #ddd"
)
_PAGE_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:62em;padding:0 1em;"
    "color:#223}h1,h2{line-height:1.2}h2{margin-top:2em}code,pre{background:#f4f5f8}"
    "pre{padding:.8em;overflow:auto;white-space:pre-wrap}svg{max-width:100%;height:auto}"
    "section{overflow-x:auto}"
)


def text(value: Any) -> str:
    """One value as escaped text: strings as they are, null as nothing, the rest as JSON."""
    if value is None:
        return ""
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(shown) > CELL_CHARACTERS_MAX:
        shown = shown[: CELL_CHARACTERS_MAX - 1] + "…"
    return escape(shown)


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, total: int | None = None
) -> str:
    """A table of the first rows, and a line that says how many more there are.

    `total` is how many there are in all where `rows` are only the first of them.
    """
    shown = rows[:ROWS_SHOWN_MAX]
    head = "".join(f'<th style="{CELL_STYLE}">{text(name)}</th>' for name in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="{CELL_STYLE}">{text(cell)}</td>' for cell in row) + "</tr>"
        for row in shown
    )
    more = (len(rows) if total is None else total) - len(shown)
    note = f"<p>… and {more:,} more</p>" if more > 0 else ""
    return (
        f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>{note}"
    )


def block(title: str, *parts: str) -> str:
    """Several pieces of HTML under one bold line."""
    return f"<div><p><b>{text(title)}</b></p>{''.join(parts)}</div>"


def facts(values: Mapping[str, Any]) -> str:
    """Names and values, one a line."""
    rows = "".join(
        f'<tr><th style="{CELL_STYLE}">{text(name)}</th>'
        f'<td style="{CELL_STYLE}">{text(value)}</td></tr>'
        for name, value in values.items()
    )
    return f'<table style="border-collapse:collapse"><tbody>{rows}</tbody></table>'


def code(summary: str, source: str) -> str:
    """A piece of program text, whole, folded under its summary."""
    return f"<details><summary>{text(summary)}</summary><pre>{escape(source)}</pre></details>"


def page(title: str, parts: Sequence[str]) -> str:
    """A whole document: no scripts, and nothing is fetched from anywhere."""
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<style>{_PAGE_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *parts,
            "</body></html>",
        ]
    )
