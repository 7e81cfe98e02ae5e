"""Every `.gq` text of the page for those who come from Cypher compiles against its schema."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from omnigraph.compiler.query import compile_query, format_source, parse_file
from omnigraph.compiler.schema import compile_schema
from omnigraph.errors import OmnigraphError

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "coming-from-cypher.md"
TEXT = PAGE.read_text("utf-8")
CATALOG = compile_schema(re.search(r"(?s)```pg\n(.*?)```", TEXT).group(1))
PARAMS = {
    "name": "String",
    "other": "String",
    "list": "[String]",
    "rows": "[{name: String}]",
}


def rows():
    """The cells of every row of the tables, without the heads and the rulers under them."""
    for line in TEXT.splitlines():
        if line.startswith("| ") and not line.startswith("| feature"):
            yield [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def whole(text):
    """A query around a text, with the parameters that it uses."""
    if text.startswith("query"):
        return text
    used = [f"${name}: {kind}" for name, kind in PARAMS.items() if re.search(rf"\${name}\b", text)]
    return f"query q({', '.join(used)}) {{ {text} }}"


OURS = [
    (cells[0], cells[2 if len(cells) > 3 else 1].strip("`"), cells[1].strip("`"))
    for cells in rows()
    if len(cells) != 3
]


def test_the_page_has_a_table_worth_the_name():
    assert len(OURS) >= 60
    assert len({feature for feature, *_ in OURS}) == len(OURS)


@pytest.mark.parametrize(
    ("feature", "ours"),
    [pytest.param(feature, ours, id=feature) for feature, ours, _ in OURS],
)
def test_the_text_in_our_column_compiles(feature, ours):
    text = whole(ours)
    compile_query(text, CATALOG)
    assert parse_file(format_source(text)) == parse_file(text)


@pytest.mark.parametrize(
    ("feature", "cypher"),
    [(f, c) for f, ours, c in OURS if c.startswith(("MATCH", "CREATE", "MERGE"))],
)
def test_the_text_in_their_column_is_refused_with_a_hint(feature, cypher):
    with pytest.raises(OmnigraphError) as caught:
        compile_query(cypher, CATALOG)
    assert "`" in (caught.value.hint or "")
