"""One query, asked in process and on Spark: two answers in one shape, errors among them."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

from omnigraph.errors import OmnigraphError
from omnigraph.pipeline.gq.run import planned


def plain(value: Any) -> Any:
    """A value that is equal to itself: NaN is, and the sign of zero counts."""
    match value:
        case float():
            return "NaN" if math.isnan(value) else repr(value)
        case dt.datetime():
            return value.astimezone(dt.UTC)
        case list() | tuple():
            return [plain(item) for item in value]
        case dict():
            return {name: plain(item) for name, item in value.items()}
        case _:
            return value


def answer(ask: Any) -> Any:
    """The columns with their types and the rows, or the error."""
    try:
        found = ask()
    except OmnigraphError as error:
        return type(error), str(error)
    types = [(field.name, field.type) for field in found.to_arrow().schema]
    return types, [plain(list(row.values())) for row in found.to_pylist()]


def both(spark: Any, graph: Any, source: str, name: str | None = None, **given: Any) -> list[Any]:
    """The answer of the engine in process, and that of Spark."""
    state = {"params": None, "branch": "main", "snapshot": None, **given}
    return [
        answer(lambda: graph.query(source, name, **state)),
        answer(lambda: planned(spark, graph.uri, source, name, **state).result()),
    ]
