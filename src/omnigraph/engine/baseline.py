"""Where a consumer of the change feed starts: the whole state, and the cursor that follows it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from omnigraph.engine.changes import ChangeFilter
from omnigraph.engine.core import Core
from omnigraph.engine.feed import cursor_after
from omnigraph.engine.read.export import table_lines
from omnigraph.model.graph import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """One snapshot as NDJSON lines. Apply them all, then poll from `resume_cursor`."""

    snapshot_commit_id: str
    resume_cursor: str
    lines: Iterator[str]


def baseline(core: Core, branch: str, wanted: ChangeFilter) -> Baseline:
    """The head of the branch, as far as the filter's kinds and types want it."""
    target = core.branch(branch)
    snapshot = core.rooms.manifests.head(target)
    return Baseline(
        snapshot_commit_id=snapshot.graph_commit_id,
        resume_cursor=cursor_after(core, target, wanted, snapshot.graph_commit_id),
        lines=_lines(core, snapshot, wanted),
    )


def _lines(core: Core, snapshot: Snapshot, wanted: ChangeFilter) -> Iterator[str]:
    for one in core.catalog(snapshot).types():
        if wanted.kinds is not None and one.kind not in wanted.kinds:
            continue
        if wanted.types is not None and one.name not in wanted.types:
            continue
        entry = snapshot.entries[one.table_key]
        if entry.row_count:
            yield from table_lines(core.rooms.tables.open(entry), one)
