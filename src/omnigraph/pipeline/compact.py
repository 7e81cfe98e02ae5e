"""Maintenance with many hands: the folding and indexing of `optimize`, done by executors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from omnigraph.engine.core import OpenMode, open_core
from omnigraph.engine.maintain.optimize import OptimizeReport, Work
from omnigraph.engine.maintain.optimize import optimize as optimize_branch
from omnigraph.model.graph import MAIN, TableEntry
from omnigraph.model.limits import INDEX_TASK_ROWS
from omnigraph.pipeline.fanout import fan_out
from omnigraph.pipeline.parts import GraphAccess
from omnigraph.pipeline.progress import Listener
from omnigraph.storage.fragments import run_upkeep
from omnigraph.storage.objects import aws_environment
from omnigraph.storage.table import Table
from omnigraph.storage.upkeep import UpkeepTask


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTask:
    """One task of a table's upkeep: fragments to fold, or a piece of an index to build."""

    access: GraphAccess
    entry: TableEntry
    task: UpkeepTask


def optimize(
    spark: SparkSession,
    uri: str | os.PathLike[str],
    *,
    branch: str = MAIN,
    listener: Listener | None = None,
    index_task_rows: int = INDEX_TASK_ROWS,
) -> OptimizeReport:
    """The same as `Graph.optimize()`: same plan, same one commit, tasks run by executors.

    An index is built in pieces of about `index_task_rows` rows, which are joined here.
    """
    core = open_core(os.fspath(uri), mode=OpenMode.READ_WRITE)
    access = GraphAccess(uri=core.root.uri, environ=dict(aws_environment()))

    def run_tasks(table: Table, tasks: Sequence[UpkeepTask]) -> Sequence[Any]:
        payloads = [TableTask(access=access, entry=table.entry, task=task) for task in tasks]
        return fan_out(spark, payloads, run_task, stage="optimize", listener=listener)

    try:
        how = Work(run_tasks=run_tasks, index_task_rows=index_task_rows)
        return optimize_branch(core, branch, how)
    finally:
        core.close()


def run_task(task: TableTask) -> Any:
    """Carry out one task into new files; nothing is visible until the driver commits."""
    folder = task.access.folder(task.entry)
    return run_upkeep(folder, task.access.options, task.entry.version, task.task)
