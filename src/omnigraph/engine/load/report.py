"""How far a run is, told to a listener, and what it did: as JSON, as text and as a page.

Granularity is finished tasks, because that is what Spark tells while a job runs; exact record
counts arrive with the last event of a stage.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import msgspec

from omnigraph.engine.check.findings import Offender
from omnigraph.model.graph import Commit
from omnigraph.model.structs import html_facts, html_page
from omnigraph.results.writing import entity_counts

Status = Literal["loaded", "already_loaded", "unchanged", "exported"]


class PipelineReport(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a load or an export. `commit` is None when nothing changed.

    `nodes` and `edges` count entities by type name; `rejected` counts records that a quarantine
    took out, by what was wrong with them, and `offenders` shows the first of those.
    """

    status: Status
    uri: str
    branch: str
    mode: str | None = None
    base_branch: str | None = None
    branch_created: bool = False
    nodes: Mapping[str, int] = msgspec.field(default_factory=dict)
    edges: Mapping[str, int] = msgspec.field(default_factory=dict)
    # Of those, replaced by a merge
    updated: Mapping[str, int] = msgspec.field(default_factory=dict)
    rejected: Mapping[str, int] = msgspec.field(default_factory=dict)
    offenders: tuple[Offender, ...] = ()
    quarantine: str | None = None
    files: int = 0
    records: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    fragments: int = 0
    vectors: int = 0  # made from text while loading
    steps: tuple[StepTime, ...] = ()
    actor_id: str | None = None
    commit: Commit | None = None
    output: tuple[str, ...] = ()

    @property
    def total_entities(self) -> int:
        return sum(self.nodes.values()) + sum(self.edges.values())

    @property
    def already_applied(self) -> bool:
        """Whether an earlier submission of the same load made the commit."""
        return self.status == "already_loaded"

    @property
    def rejected_total(self) -> int:
        return sum(self.rejected.values())

    @property
    def seconds(self) -> float:
        return sum(step.seconds for step in self.steps)

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """The names of the in-process load, and what only a pipeline knows."""
        return {
            "status": self.status,
            "uri": self.uri,
            "branch": self.branch,
            **({"mode": self.mode} if self.mode else {}),
            **({"base_branch": self.base_branch} if self.base_branch else {}),
            "branch_created": self.branch_created,
            "nodes": entity_counts(self.nodes),
            "edges": entity_counts(self.edges),
            "total_entities": self.total_entities,
            "updated": dict(self.updated),
            "rejected": dict(self.rejected),
            "rejected_total": self.rejected_total,
            "offenders": [offender.to_json() for offender in self.offenders],
            **({"quarantine": self.quarantine} if self.quarantine else {}),
            "files": self.files,
            "records": self.records,
            "bytes_read": self.bytes_read,
            "bytes_written": self.bytes_written,
            "fragments": self.fragments,
            **({"vectors": self.vectors} if self.vectors else {}),
            "seconds": round(self.seconds, 3),
            "steps": [step.to_json() for step in self.steps],
            **({"output": list(self.output)} if self.output else {}),
            **({"actor_id": self.actor_id} if self.actor_id else {}),
            "commit": None if self.commit is None else self.commit.to_json(),
        }

    def to_text(self) -> str:
        """A few lines for a terminal."""
        lines = [f"{self.status} {self.total_entities:,} entities, branch {self.branch}"]
        for name, count in [*sorted(self.nodes.items()), *sorted(self.edges.items())]:
            updated = self.updated.get(name, 0)
            note = f"  ({updated:,} updated)" if updated else ""
            lines.append(f"  {name:<24} {count:>14,}{note}")
        if self.rejected_total:
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in sorted(self.rejected.items()))
            lines.append(f"rejected {self.rejected_total:,} records: {kinds}")
            lines += [f"  {one.place}: {one.message}" for one in self.offenders]
            if self.quarantine:
                lines.append(f"  written to {self.quarantine}")
        rate = f", {self.records_per_second:,.0f} records/s" if self.records else ""
        size = self.bytes_read + self.bytes_written
        lines.append(
            f"{self.files} files, {size:,} bytes, {self.fragments} fragments, "
            f"{self.seconds:.1f} s{rate}"
        )
        if self.vectors:
            lines.append(f"{self.vectors:,} vectors made from text")
        lines += [f"  {step.name:<24} {step.seconds:>10.2f} s" for step in self.steps]
        if self.commit is not None:
            lines.append(f"commit {self.commit.graph_commit_id}")
        return "\n".join(lines)

    def to_html(self) -> str:
        """The same as one small page without scripts."""
        facts = {
            "graph": self.uri,
            "branch": self.branch,
            "mode": self.mode or "",
            "commit": self.commit.graph_commit_id if self.commit else "none",
            "records": f"{self.records:,}",
            "bytes": f"{self.bytes_read:,}",
            "fragments": str(self.fragments),
            "seconds": f"{self.seconds:.2f}",
        }
        types = {**self.nodes, **self.edges}
        chapters = {
            "Run": facts,
            "Entities": {name: f"{count:,}" for name, count in sorted(types.items())},
            "Steps": {step.name: f"{step.seconds:.2f} s" for step in self.steps},
            "Rejected": {kind: f"{count:,}" for kind, count in sorted(self.rejected.items())},
            "First offenders": {one.place: one.message for one in self.offenders},
        }
        return html_page(
            f"{self.status}: {self.total_entities:,} entities",
            [f"<h2>{title}</h2>{html_facts(rows)}" for title, rows in chapters.items() if rows],
        )


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """Where a stage stands. `records` is None until the stage is over."""

    stage: str
    tasks_done: int
    tasks_total: int
    seconds: float
    records: int | None = None

    @property
    def records_per_second(self) -> float | None:
        if self.records is None:
            return None
        return self.records / self.seconds if self.seconds > 0 else float(self.records)


Listener = Callable[[Tick], None]


def teller(listener: Listener) -> Callable[[str, int, int], None]:
    """What tells a listener about the tasks of a stage while it runs: (stage, done, of)."""
    began: dict[str, float] = {}

    def tell(stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        seconds = now - began.setdefault(stage, now)
        listener(Tick(stage=stage, tasks_done=done, tasks_total=total, seconds=seconds))

    return tell


class StepTime(msgspec.Struct, kw_only=True):
    """One step of a run: how long it took, in how many tasks, over how many records."""

    name: str
    seconds: float = 0.0
    tasks: int = 0
    records: int | None = None

    def to_json(self) -> dict[str, Any]:
        facts = {"name": self.name, "seconds": round(self.seconds, 3), "tasks": self.tasks}
        return facts | ({} if self.records is None else {"records": self.records})


class Stopwatch:
    """Collects steps in order; a step that runs again adds to its time."""

    def __init__(self, listener: Listener | None) -> None:
        self._listener = listener
        self._done: dict[str, StepTime] = {}
        self._open: StepTime | None = None
        self._started = 0.0

    @contextmanager
    def step(self, name: str) -> Iterator[StepTime]:
        """Time the block; its counts are filled in as they become known."""
        running = self.start(name)
        try:
            yield running
        finally:
            self.finish()

    def start(self, name: str) -> StepTime:
        """Begin a step; the one before ends."""
        self.finish()
        self._open, self._started = StepTime(name=name), time.monotonic()
        return self._open

    def finish(self) -> None:
        """End the step that is under way, if there is one."""
        step, self._open = self._open, None
        if step is None:
            return
        step.seconds = time.monotonic() - self._started
        if self._listener is not None:
            tasks = max(1, step.tasks)
            self._listener(
                Tick(
                    stage=step.name,
                    tasks_done=tasks,
                    tasks_total=tasks,
                    seconds=step.seconds,
                    records=step.records,
                )
            )
        before = self._done.setdefault(step.name, step)
        if before is not step:
            before.seconds += step.seconds
            before.tasks += step.tasks
            before.records = before.records if step.records is None else step.records

    @property
    def steps(self) -> tuple[StepTime, ...]:
        return tuple(self._done.values())
