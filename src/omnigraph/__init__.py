"""OmniGraph: a typed property-graph database on Lance, with a data pipeline on Spark.

Only names live here, and each is looked up when it is first used, so that `import omnigraph`
loads neither Lance nor Arrow nor Spark. Start reading at `omnigraph.engine.graph.Graph`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph import errors, pipeline
    from omnigraph.engine.graph import Graph, OpenMode

__version__ = "0.10.0"

__all__ = ["Graph", "OpenMode", "__version__", "errors", "pipeline"]

_ROOMS = frozenset({"errors", "pipeline"})
_HOMES = {
    "Graph": "omnigraph.engine.graph",
    "OpenMode": "omnigraph.engine.graph",
}


def __getattr__(name: str) -> Any:
    """Load the home of a public name on first use (PEP 562)."""
    if name in _ROOMS:
        return import_module(f"omnigraph.{name}")
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
