"""Compaction in three parts: plan, run each task anywhere, commit all results together.

Tasks and results are Lance's own JSON, so that tasks can run in other processes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from typing import Any, Final

import lance
from lance.optimize import Compaction, CompactionTask

from omnigraph.model.limits import TARGET_FRAGMENT_ROWS
from omnigraph.storage.faults import translated
from omnigraph.storage.handles import Pinned
from omnigraph.storage.staged import Rewrites, StagedWrite

DELETED_SHARE_MAX: Final = 0.1
_ROW_NOTES: Final = frozenset(
    {"row_id_meta", "created_at_version_meta", "last_updated_at_version_meta"}
)
VERSIONS: Final = 2  # Lance commits the fragment numbers first, then the rewrite


def plan(pinned: Pinned, *, target_fragment_rows: int = TARGET_FRAGMENT_ROWS) -> tuple[str, ...]:
    """The tasks that would leave the table with few big fragments; none if it is fine."""
    options: Any = {
        "target_rows_per_fragment": target_fragment_rows,
        "materialize_deletions": True,
        "materialize_deletions_threshold": DELETED_SHARE_MAX,
    }
    with pinned.translated(doing="plan compaction of"):
        tasks: Sequence[Any] = Compaction.plan(pinned.dataset, options).tasks
        return tuple(task.json() for task in tasks)


def tasks(
    pinned: Pinned, groups: Sequence[Sequence[int]], *, target_fragment_rows: int
) -> tuple[str, ...]:
    """One task per group of fragment numbers, whatever Lance itself would have planned."""
    if not groups:
        return ()
    with pinned.translated(doing="plan compaction of"):
        # Lance's own plan tells the full set of options that its tasks carry.
        drafted: Any = Compaction.plan(
            pinned.dataset, {"target_rows_per_fragment": target_fragment_rows}
        )
        template = json.loads(drafted.json())  # a method that its stub forgets
    fragments = {one.fragment_id: one.metadata for one in pinned.dataset.get_fragments()}
    return tuple(
        json.dumps(
            {
                "task": {"fragments": [fragments[number].to_json() for number in group]},
                "read_version": pinned.entry.version,
                "options": {**template["options"], "has_eager_remappable_index": True},
            }
        )
        for group in groups
    )


def sources(result: str) -> tuple[int, ...]:
    """The numbers of the fragments that a result replaces."""
    return tuple(int(one["id"]) for one in json.loads(result)["original_fragments"])


def on_version(result: str, version: int, *, indexed: bool) -> str:
    """The same result, to be committed on a version in which its sources are unchanged.

    Where rows moved to is told for the sake of indexes. On a version without any (a writer may have
    taken away what the first one was built on) Lance would put that aside for later, and refuses.
    """
    fitted = {**json.loads(result), "read_version": version}
    return json.dumps(fitted if indexed else {**fitted, "row_addrs": None})


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
        version_after=entry.version + VERSIONS,
        transaction_uuid=str(uuid.uuid4()),  # a name only: Lance makes up its own
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
        result = json.loads(decode.from_json(task).execute(dataset).json())
    for fragment in result["new_fragments"]:
        # When a row was made is written into every later version and nobody asks for it; when it
        # was last changed stays, because that is how differences are found.
        fragment["created_at_version_meta"] = None
    for fragment in result["original_fragments"]:
        # Lance finds them by number, and would copy all else into the new version for ever.
        fragment.update(dict.fromkeys(_ROW_NOTES & fragment.keys()))
    return json.dumps(result)
