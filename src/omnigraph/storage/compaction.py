"""Compaction in three parts: plan, run each task anywhere, commit all results together.

Tasks and results are Lance's own JSON, so that tasks can run in other processes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import lance
from lance.optimize import Compaction, CompactionTask

from omnigraph.storage.faults import translated
from omnigraph.storage.handles import Pinned
from omnigraph.storage.staged import Rewrites, StagedWrite

TARGET_FRAGMENT_ROWS: Final = 1024 * 1024
DELETED_SHARE_MAX: Final = 0.1
_VERSIONS: Final = 2  # Lance commits the fragment numbers first, then the rewrite


def plan(pinned: Pinned, *, target_fragment_rows: int = TARGET_FRAGMENT_ROWS) -> tuple[str, ...]:
    """The tasks that would leave the table with few big fragments; none if it is fine."""
    options: Any = {
        "target_rows_per_fragment": target_fragment_rows,
        "materialize_deletions": True,
        "materialize_deletions_threshold": DELETED_SHARE_MAX,
    }
    with translated(pinned.folder, doing="plan compaction of table"):
        tasks: Sequence[Any] = Compaction.plan(pinned.dataset, options).tasks
        return tuple(task.json() for task in tasks)


def run(pinned: Pinned, task: str) -> str:
    """Rewrite the fragments of one task into new files; nobody sees them yet."""
    result = _execute(pinned.dataset, task, pinned.folder)
    pinned.flusher.flush(new_files(pinned.folder, result))
    return result


def run_at(uri: str, storage_options: dict[str, str], version: int, task: str) -> str:
    """The same for an executor that has nothing but the table's address."""
    with translated(uri, doing="open table"):
        dataset = lance.dataset(uri, version=version, storage_options=storage_options or None)
    return _execute(dataset, task, uri)


def stage(pinned: Pinned, results: Sequence[str]) -> StagedWrite | None:
    """All results as one write; None if there are none."""
    if not results:
        return None
    entry = pinned.entry
    pinned.flusher.flush(path for one in results for path in new_files(pinned.folder, one))
    return StagedWrite(
        table_key=entry.table_key,
        location=entry.location,
        branch=entry.branch,
        pinned_version=entry.version,
        version_after=entry.version + _VERSIONS,
        transaction_uuid="",  # Lance makes it up while it commits
        operation="compaction",
        row_count_after=int(pinned.dataset.count_rows()),
        transaction=Rewrites(results=tuple(results)),
    )


def new_files(folder: str, result: str) -> list[str]:
    """The data files that a task wrote."""
    fragments = json.loads(result)["new_fragments"]
    return [f"{folder}/data/{file['path']}" for one in fragments for file in one["files"]]


def counts(result: str) -> tuple[int, int]:
    """How many fragments a task took away and how many it made."""
    metrics = json.loads(result)["metrics"]
    return int(metrics["fragments_removed"]), int(metrics["fragments_added"])


def _execute(dataset: Any, task: str, uri: str) -> str:
    decode: Any = CompactionTask  # its stub forgets `from_json`
    with translated(uri, doing="compact table"):
        return str(decode.from_json(task).execute(dataset).json())
