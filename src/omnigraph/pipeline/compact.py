"""Maintenance with many hands: the compaction and indexing of `optimize`, done by executors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import msgspec
from pyspark.sql import SparkSession

from omnigraph.engine.core import OpenMode, open_core
from omnigraph.engine.load.report import Listener
from omnigraph.engine.maintain.optimize import OptimizeReport, Work
from omnigraph.engine.maintain.optimize import optimize as optimize_branch
from omnigraph.engine.rows.parts import GraphAccess
from omnigraph.model.graph import MAIN, TableEntry
from omnigraph.model.limits import INDEX_TASK_ROWS
from omnigraph.pipeline.runner import fan_out
from omnigraph.storage.objects.root import aws_environment
from omnigraph.storage.table.fragments import run_upkeep
from omnigraph.storage.table.table import Table
from omnigraph.storage.table.upkeep import UpkeepTask


class TableTask(msgspec.Struct, frozen=True, kw_only=True):
    """One task of a table's upkeep: fragments to compact, or a piece of an index to build."""

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
