"""OmniGraph: a typed property-graph database on Lance, with a data pipeline on Spark.

Only names live here, and each is looked up when it is first used, so that `import omnigraph`
loads neither Lance nor Arrow nor Spark. Start reading at `omnigraph.engine.graph.Graph`.
"""

from __future__ import annotations

import gc
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omnigraph import errors, pipeline
    from omnigraph.compiler.query import LintReport
    from omnigraph.engine.core import OpenMode
    from omnigraph.engine.graph import Graph
    from omnigraph.engine.load.inputs.objects import from_networkx
    from omnigraph.engine.load.inputs.sources import Source
    from omnigraph.engine.load.report import PipelineReport
    from omnigraph.engine.maintain.optimize import MaintenancePolicy
    from omnigraph.engine.maintain.relocate import relocate
    from omnigraph.engine.read.export import BlobReader
    from omnigraph.model.graph import Branch, Commit, Snapshot
    from omnigraph.model.plan import SchemaPlan
    from omnigraph.results.changes import ChangeSet
    from omnigraph.results.merging import MergePreview, MergeResult
    from omnigraph.results.rows import QueryResult
    from omnigraph.results.writing import LoadResult, MutationResult, SchemaApplyResult
    from omnigraph.storage.commit.audit import RecoveryRecord
    from omnigraph.storage.commit.sidecar import Sidecar

__version__ = "0.10.0"

__all__ = [
    "BlobReader",
    "Branch",
    "ChangeSet",
    "Commit",
    "Graph",
    "LintReport",
    "LoadResult",
    "MaintenancePolicy",
    "MergePreview",
    "MergeResult",
    "MutationResult",
    "OpenMode",
    "PipelineReport",
    "QueryResult",
    "RecoveryRecord",
    "SchemaApplyResult",
    "SchemaPlan",
    "Sidecar",
    "Snapshot",
    "Source",
    "__version__",
    "errors",
    "from_networkx",
    "pipeline",
    "relocate",
]

_MODULES = frozenset({"errors", "pipeline", "schema"})
_MODULE_OF = {
    "BlobReader": "omnigraph.engine.read.export",
    "Branch": "omnigraph.model.graph",
    "ChangeSet": "omnigraph.results.changes",
    "Commit": "omnigraph.model.graph",
    "Graph": "omnigraph.engine.graph",
    "LintReport": "omnigraph.compiler.query",
    "LoadResult": "omnigraph.results.writing",
    "MaintenancePolicy": "omnigraph.engine.maintain.optimize",
    "MergePreview": "omnigraph.results.merging",
    "MergeResult": "omnigraph.results.merging",
    "MutationResult": "omnigraph.results.writing",
    "OpenMode": "omnigraph.engine.core",
    "PipelineReport": "omnigraph.engine.load.report",
    "QueryResult": "omnigraph.results.rows",
    "RecoveryRecord": "omnigraph.storage.commit.audit",
    "SchemaApplyResult": "omnigraph.results.writing",
    "SchemaPlan": "omnigraph.model.plan",
    "Sidecar": "omnigraph.storage.commit.sidecar",
    "Snapshot": "omnigraph.model.graph",
    "Source": "omnigraph.engine.load.inputs.sources",
    "from_networkx": "omnigraph.engine.load.inputs.objects",
    "relocate": "omnigraph.engine.maintain.relocate",
}


def __getattr__(name: str) -> Any:
    """Load the module of a public name on first use (PEP 562)."""
    if name in _MODULES:
        return _imported(f"omnigraph.{name}")
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
    value = getattr(_imported(module), name)
    globals()[name] = value
    return value


def _imported(module: str) -> Any:
    """Import a module with the collector of garbage at rest: modules make none, and it is slow."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return import_module(module)
    finally:
        if collects:
            gc.enable()


def __dir__() -> list[str]:
    return sorted(__all__)
