"""What tests see of an open graph that users do not: the one place that reaches into a handle."""

from __future__ import annotations

from omnigraph import Graph
from omnigraph.engine.core import Core
from omnigraph.storage.store import Store
from omnigraph.storage.table.table import Table


def core_of(graph: Graph) -> Core:
    return graph._core


def store_of(graph: Graph) -> Store:
    return graph._core.store


def table_of(graph: Graph, table_key: str, branch: str = "main") -> Table:
    """The table as the newest snapshot of the branch has it."""
    return graph._core.table(graph.snapshot(branch), table_key)
