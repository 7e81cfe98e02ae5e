"""Maintenance with many hands: the rewriting of `optimize`, carried out by executors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from omnigraph.engine.core import OpenMode, open_core
from omnigraph.engine.maintain.optimize import OptimizeReport, Work
from omnigraph.engine.maintain.optimize import optimize as optimize_branch
from omnigraph.model.graph import MAIN, TableEntry
from omnigraph.pipeline.fanout import fan_out
from omnigraph.pipeline.parts import GraphAccess
from omnigraph.pipeline.progress import Listener
from omnigraph.storage.fragments import compact
from omnigraph.storage.objects import aws_environment
from omnigraph.storage.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactTask:
    """One task of a table's compaction plan."""

    access: GraphAccess
    entry: TableEntry
    task: str


def optimize(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    *,
    branch: str = MAIN,
    listener: Listener | None = None,
) -> OptimizeReport:
    """The same as `Graph.optimize()`: same plan, same one commit, tasks run by executors."""
    core = open_core(os.fspath(uri), mode=OpenMode.READ_WRITE)
    access = GraphAccess(uri=core.root.uri, environ=dict(aws_environment()))

    def run_tasks(table: Table, tasks: Sequence[str]) -> Sequence[str]:
        payloads = [CompactTask(access=access, entry=table.entry, task=task) for task in tasks]
        return fan_out(spark, payloads, run_compaction, stage="compact", listener=listener)

    try:
        return optimize_branch(core, branch, Work(run_tasks=run_tasks))
    finally:
        core.close()


def run_compaction(task: CompactTask) -> str:
    """Rewrite the fragments of one task; nothing is visible until the driver commits."""
    folder = task.access.folder(task.entry)
    return compact(folder, task.access.options, task.entry.version, task.task)
