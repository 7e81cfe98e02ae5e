"""What our values share: their JSON, fields kept out of `==` and `repr`, HTML; and a cache."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

import msgspec

K = TypeVar("K")
V = TypeVar("V")


class JsonStruct(msgspec.Struct, frozen=True):
    """A value whose JSON is its fields, in their order; an `error` is told only if there is one."""

    def to_json(self) -> dict[str, Any]:
        # By way of its text: `to_builtins` would leave tuples where JSON has lists.
        body: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self))
        if body.get("error", "") is None:
            del body["error"]
        return body


class HidingStruct(msgspec.Struct, frozen=True):
    """A value of which some fields say where it came from, how it was had, or a secret.

    Two are equal when all fields but those `UNCOMPARED` are; `repr` leaves out those `UNSHOWN`.
    """

    UNCOMPARED: ClassVar[frozenset[str]] = frozenset()
    UNSHOWN: ClassVar[frozenset[str]] = frozenset()

    def _compared(self) -> tuple[object, ...]:
        return tuple(
            getattr(self, name) for name in self.__struct_fields__ if name not in self.UNCOMPARED
        )

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, HidingStruct)
        return self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash((type(self), self._compared()))

    def __repr__(self) -> str:
        shown = (
            f"{name}={getattr(self, name)!r}"
            for name in self.__struct_fields__
            if name not in self.UNSHOWN
        )
        return f"{type(self).__name__}({', '.join(shown)})"


class Recent(Generic[K, V]):
    """The values used last, a bounded number of them. Safe to share between threads."""

    def __init__(self, values_max: int) -> None:
        self._max = values_max
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def put(self, key: K, value: V) -> None:
        with self._lock:
            self._values[key] = value
            while len(self._values) > self._max:
                self._values.popitem(last=False)

    def drop(self, unwanted: Callable[[K], bool]) -> None:
        """Keep none of the values with such a key."""
        with self._lock:
            for key in [key for key in self._values if unwanted(key)]:
                del self._values[key]


# --- values as HTML, for notebooks and reports: escaped, self-contained, limited ---------------

ROWS_SHOWN_MAX: Final = 50
_CELL_CHARACTERS_MAX: Final = 200
_CELL_STYLE: Final = (
    "padding:.2em .8em;text-align:left;vertical-align:top;border-bottom:1px solid #ddd"
)
_PAGE_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:62em;padding:0 1em;"
    "color:#223}h1,h2{line-height:1.2}h2{margin-top:2em}code,pre{background:#f4f5f8}"
    "pre{padding:.8em;overflow:auto;white-space:pre-wrap}svg{max-width:100%;height:auto}"
    "section{overflow-x:auto}"
)


def html_text(value: Any) -> str:
    """One value as escaped text: strings as they are, null as nothing, the rest as JSON."""
    if value is None:
        return ""
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    if len(shown) > _CELL_CHARACTERS_MAX:
        shown = shown[: _CELL_CHARACTERS_MAX - 1] + "…"
    return escaped(shown)


def escaped(text: str) -> str:
    """Text as HTML and XML may hold it."""
    from html import escape  # noqa: PLC0415 - it brings the names of all characters, 4 ms

    return escape(text)


def html_table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, total: int | None = None
) -> str:
    """A table of the first rows, and a line that says how many more there are.

    `total` is how many there are in all where `rows` are only the first of them.
    """
    shown = rows[:ROWS_SHOWN_MAX]
    head = "".join(f'<th style="{_CELL_STYLE}">{html_text(name)}</th>' for name in columns)
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{_CELL_STYLE}">{html_text(cell)}</td>' for cell in row)
        + "</tr>"
        for row in shown
    )
    more = (len(rows) if total is None else total) - len(shown)
    note = f"<p>… and {more:,} more</p>" if more > 0 else ""
    return (
        f'<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table>{note}"
    )


def html_block(title: str, *parts: str) -> str:
    """Several pieces of HTML under one bold line."""
    return f"<div><p><b>{html_text(title)}</b></p>{''.join(parts)}</div>"


def html_facts(values: Mapping[str, Any]) -> str:
    """Names and values, one a line."""
    rows = "".join(
        f'<tr><th style="{_CELL_STYLE}">{html_text(name)}</th>'
        f'<td style="{_CELL_STYLE}">{html_text(value)}</td></tr>'
        for name, value in values.items()
    )
    return f'<table style="border-collapse:collapse"><tbody>{rows}</tbody></table>'


def html_page(title: str, parts: Sequence[str]) -> str:
    """A whole document: no scripts, and nothing is fetched from anywhere."""
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{escaped(title)}</title>',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<style>{_PAGE_STYLE}</style></head><body>",
            f"<h1>{escaped(title)}</h1>",
            *parts,
            "</body></html>",
        ]
    )
