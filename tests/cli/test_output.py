"""How rows look in each of the forms for people."""

from __future__ import annotations

import csv
import io

import pytest

from omnigraph.cli.output import render_rows
from omnigraph.model.tables import TableStyle, display_width, table_lines

COLUMNS = ("p.name", "p.age", "p.tags")
ROWS = (
    {"p.name": "Ada", "p.age": 36, "p.tags": ["a", "b"]},
    {"p.name": 'Grace "Amazing"', "p.age": None, "p.tags": []},
)


def lines(form, columns=COLUMNS, rows=ROWS, **style):
    return list(render_rows(columns, rows, form=form, style=TableStyle(**style)))


def test_a_table_has_a_header_a_rule_and_a_line_a_row():
    assert lines("table") == [
        "p.name           p.age  p.tags",
        "---------------  -----  ---------",
        'Ada                 36  ["a","b"]',
        'Grace "Amazing"         []',
    ]


def test_a_table_without_rows_still_names_its_columns():
    assert lines("table", rows=()) == ["p.name  p.age  p.tags", "------  -----  ------"]


def test_key_value_blocks_are_apart_by_a_blank_line():
    assert lines("kv") == [
        "p.name  Ada",
        "p.age   36",
        'p.tags  ["a","b"]',
        "",
        'p.name  Grace "Amazing"',
        "p.age",
        "p.tags  []",
    ]


def test_csv_can_be_read_back_whatever_is_in_the_cells():
    rows = [{"a": 'say "hi", then\nleave', "b": None}, {"a": "x,y", "b": True}]
    text = "\r\n".join(lines("csv", ("a", "b"), rows))
    assert list(csv.reader(io.StringIO(text, newline=""))) == [
        ["a", "b"],
        ['say "hi", then\nleave', ""],
        ["x,y", "true"],
    ]


def test_a_long_cell_is_cut_or_wrapped_as_asked():
    row = [{"x": "abcdefghij"}]
    assert lines("table", ("x",), row, column_width_max=4) == ["x", "----", "abc…"]
    assert lines("table", ("x",), row, column_width_max=4, layout="wrap") == [
        "x",
        "----",
        "abcd",
        "efgh",
        "ij",
    ]


@pytest.mark.parametrize("width", [20, 31, 40])
def test_a_table_fits_the_terminal(width):
    row = [{"a": "x" * 60, "b": "short", "c": "y" * 30}]
    found = lines("table", ("a", "b", "c"), row, total_width=width)
    assert all(display_width(line) <= width for line in found)
    assert "short" in found[2]


def test_control_characters_cannot_break_a_table():
    found = list(table_lines(("x",), [{"x": "a\x1b[31mb\nc"}], style=TableStyle()))
    assert found[2] == "a\\x1b[31mb\\nc"


def test_wide_characters_take_two_cells():
    assert display_width("日本") == 4
    assert display_width("e\u0301") == 1
