"""What agents can read about the languages, search and data: short pages beside this file."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

# By name, what each page is about.
GUIDES: Final = {
    "queries": "how to write queries and mutations",
    "schema": "how to read a schema",
    "search": "full text, vectors, and both",
    "data": "how data is loaded and reviewed",
}


@cache
def guide(name: str) -> str:
    """The text of a page."""
    assert name in GUIDES, f"there is no guide {name}"
    return Path(__file__).with_name("guides").joinpath(f"{name}.md").read_text(encoding="utf-8")
