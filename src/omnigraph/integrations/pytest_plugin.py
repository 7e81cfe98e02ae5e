"""Fixtures for the tests of programs that use graphs; pytest finds them by itself.

`omnigraph_factory(schema, data=None)` makes graphs in the test's own folder, and closes them.
`omnigraph_graph` is the one that the mark `omnigraph(schema=…, data=…)` describes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.addinivalue_line(
        "markers", "omnigraph(schema, data=None): the graph of the fixture `omnigraph_graph`"
    )


@pytest.fixture
def omnigraph_factory(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Makes graphs: `omnigraph_factory(schema, data=None, **options)`."""
    with ExitStack() as opened:

        def make(schema: str, data: Any = None, **options: Any) -> Any:
            from omnigraph import Graph  # noqa: PLC0415 - tests that use no graph load nothing

            number = len(list(tmp_path.glob("graph-*.omni")))
            settings = {"durability": "process", **options}
            graph = Graph.init(tmp_path / f"graph-{number}.omni", schema, **settings)
            opened.enter_context(graph)
            if data is not None:
                graph.load(data, mode="append")
            return graph

        yield make


@pytest.fixture
def omnigraph_graph(request: pytest.FixtureRequest, omnigraph_factory: Callable[..., Any]) -> Any:
    """The graph that the test's mark `omnigraph` describes."""
    mark = request.node.get_closest_marker("omnigraph")
    if mark is None:
        raise pytest.UsageError(
            "omnigraph_graph needs a mark: @pytest.mark.omnigraph(schema=…), or use "
            "omnigraph_factory(schema)"
        )
    return omnigraph_factory(*mark.args, **mark.kwargs)
