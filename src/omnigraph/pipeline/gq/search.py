"""Search on executors."""

from __future__ import annotations

from omnigraph.engine.expr.evaluate import Search
from omnigraph.errors import InputError
from omnigraph.pipeline.gq.rows import Found, Reading


def scored(reading: Reading, rows: Found, expr: Search) -> Found:
    """The rows with the answer of a search for each."""
    del reading, rows
    raise InputError(
        f"{type(expr).__name__.lower()}: text and vector search are not answered on Spark yet",
        hint="run the query in process, with `Graph.query`",
    )
