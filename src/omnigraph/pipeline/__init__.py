"""Work on Spark: sessions, loads, exports, streams, queries, and the `omnigraph` data source.

The only room that says `pyspark`. Spark schedules, distributes and retries; rows travel as Arrow
in its Python workers, which write Lance fragments through `storage`, and the driver commits them
through the same one writer as everything else. Start reading at `loads.py`; `runner.py` is under
all of it. Names are loaded when they are first used, because a Spark worker opens this room for one
task function and should not pay for the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from omnigraph.model.machine import extra_for

if TYPE_CHECKING:
    from omnigraph.engine.load.inputs.sources import Source
    from omnigraph.engine.load.report import PipelineReport
    from omnigraph.pipeline.datasource import register
    from omnigraph.pipeline.exports import export, optimize
    from omnigraph.pipeline.gq.run import query
    from omnigraph.pipeline.loads import load, load_job
    from omnigraph.pipeline.reads import frames, read, register_views
    from omnigraph.pipeline.sessions import session
    from omnigraph.pipeline.streams import stream

__all__ = [
    "PipelineReport",
    "Source",
    "export",
    "frames",
    "load",
    "load_job",
    "optimize",
    "query",
    "read",
    "register",
    "register_views",
    "session",
    "stream",
]

_MODULE_OF = {
    "PipelineReport": "omnigraph.engine.load.report",
    "Source": "omnigraph.engine.load.inputs.sources",
    "export": "omnigraph.pipeline.exports",
    "frames": "omnigraph.pipeline.reads",
    "load": "omnigraph.pipeline.loads",
    "load_job": "omnigraph.pipeline.loads",
    "optimize": "omnigraph.pipeline.exports",
    "query": "omnigraph.pipeline.gq.run",
    "read": "omnigraph.pipeline.reads",
    "register": "omnigraph.pipeline.datasource",
    "register_views": "omnigraph.pipeline.reads",
    "session": "omnigraph.pipeline.sessions",
    "stream": "omnigraph.pipeline.streams",
}


def __getattr__(name: str) -> Any:
    """Load the module of a public name on first use (PEP 562)."""
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'omnigraph.pipeline' has no attribute {name!r}")
    with extra_for(f"pipeline.{name}"):
        value = getattr(import_module(module), name)
    globals()[name] = value
    return value
