"""`repair`: tables whose head is ahead of what is published, explained and, if told to, healed.

An unfinished write leaves a sidecar, and recovery settles it; so drift is somebody else's work, or
a write of ours that landed on the table after it had been given up. What a table's own history says
happened since decides which: harmless drift is published, a given up write is undone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from omnigraph.engine.core import Core, OpenMode
from omnigraph.engine.maintain.optimize import require_settled
from omnigraph.errors import InputError, IntegrityError, OmnigraphError
from omnigraph.model.changeset import TableUpdate, WriterKind
from omnigraph.model.graph import MAIN, Branch, Snapshot, TableEntry
from omnigraph.storage.landing import VersionTransaction
from omnigraph.storage.staged import COMMIT_PROPERTY, StagedWrite
from omnigraph.storage.writer import Intent, Prepared, WriteContext

Classification = Literal[
    "no_drift", "verified_maintenance", "unpublished_write", "suspicious", "unverifiable"
]
Action = Literal["no_op", "preview", "healed", "undone", "refused", "forced"]

REPAIR_ACTOR: Final = "omnigraph:repair"
FORCE_ACTOR: Final = "omnigraph:repair:force"
# These change how rows are stored and found, never which rows there are.
_HARMLESS: Final = frozenset({"Rewrite", "ReserveFragments", "CreateIndex"})
_UNTOLD: Final = frozenset({"Unknown", "Unreadable"})
_CHANGES: Final = frozenset({"healed", "undone", "forced"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairStats:
    """One table: where it stands, what that means and what was done about it."""

    type_key: str
    published_dataset_version: int
    lance_head_version: int
    classification: Classification
    action: Action
    operations: tuple[str, ...] = ()
    error: str | None = None

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "type_key": self.type_key,
            "published_dataset_version": self.published_dataset_version,
            "lance_head_version": self.lance_head_version,
            "classification": self.classification,
            "action": self.action,
            "operations": list(self.operations),
        }
        return body if self.error is None else {**body, "error": self.error}


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    """All tables of a branch; `graph_manifest_version` is None if nothing was published."""

    uri: str
    branch: str
    confirm: bool
    force: bool
    graph_manifest_version: int | None
    datasets: tuple[RepairStats, ...]

    @property
    def refused(self) -> bool:
        return any(one.action == "refused" for one in self.datasets)

    def to_json(self) -> dict[str, Any]:
        return {
            "uri": self.uri,
            "confirm": self.confirm,
            "force": self.force,
            "graph_manifest_version": self.graph_manifest_version,
            "datasets": [one.to_json() for one in self.datasets],
        }


def repair(
    core: Core, branch: str = MAIN, *, confirm: bool = False, force: bool = False
) -> RepairReport:
    """Explain every table of the branch; with `confirm` publish harmless heads and undo writes of
    ours that were given up, with `force` publish everything else too.

    Only the branch's own tables can drift; those it inherits are looked at where they belong.
    """
    if force and not confirm:
        raise InputError("repair --force requires --confirm")
    found: tuple[RepairStats, ...] = ()
    report = RepairReport(
        uri=core.root.uri,
        branch=branch,
        confirm=confirm,
        force=force,
        graph_manifest_version=None,
        datasets=(),
    )
    if core.mode is OpenMode.READ_WRITE:
        require_settled(core, "repair")
    found = _explained(core, core.head(branch), confirm=confirm, force=force)
    if not any(one.action in _CHANGES for one in found):
        return replace(report, datasets=found)

    def prepare(context: WriteContext) -> Prepared | None:
        # Under the lease of the branch nobody is in the middle of a write.
        nonlocal found
        found = _explained(core, context.snapshot, confirm=confirm, force=force)
        entries = context.snapshot.entries
        updates = tuple(
            _repoint(core, entries[one.type_key], one)
            for one in found
            if one.action in ("healed", "forced")
        )
        undone = tuple(
            _undoing(core, entries[one.type_key], one) for one in found if one.action == "undone"
        )
        return Prepared(staged=undone, repoints=updates, strict=True)

    forced = any(one.action == "forced" for one in found)
    intent = Intent(
        branch=core.branch(branch),
        kind=WriterKind.REPAIR,
        actor_id=FORCE_ACTOR if forced else REPAIR_ACTOR,
    )
    after = core.write(intent, prepare)
    version = after.manifest_version if after is not None else None
    return replace(report, datasets=found, graph_manifest_version=version)


def _repoint(core: Core, entry: TableEntry, stats: RepairStats) -> TableUpdate:
    head = replace(entry, version=stats.lance_head_version)
    return TableUpdate(
        table_key=entry.table_key,
        version=head.version,
        branch=head.branch,
        row_count=core.rooms.tables.open(head).count(),
    )


def _undoing(core: Core, entry: TableEntry, stats: RepairStats) -> StagedWrite:
    """What is published becomes the newest version again."""
    return core.rooms.tables.stage_restore(entry, over=stats.lance_head_version)


def _explained(
    core: Core, snapshot: Snapshot, *, confirm: bool, force: bool
) -> tuple[RepairStats, ...]:
    own = [entry for entry in snapshot.datasets if snapshot.branch.owns(entry.branch)]
    return tuple(
        _explain(core, entry, snapshot.branch, confirm=confirm, force=force) for entry in own
    )


def _explain(
    core: Core, entry: TableEntry, branch: Branch, *, confirm: bool, force: bool
) -> RepairStats:
    head = core.rooms.tables.head_version(entry.location, entry.branch)
    if head < entry.version:
        raise IntegrityError(
            f"'{entry.table_key}' is at version {head}, behind its published version "
            f"{entry.version}",
            table_key=entry.table_key,
            expected=entry.version,
            actual=head,
        )
    made, problem = _between(core, entry, head)
    ours = [one for one in made if _is_unpublished(core, branch, one)]
    operations = [one.operation for one in made if one not in ours]
    classification = classify(operations, problem, given_up=len(ours))
    return RepairStats(
        type_key=entry.table_key,
        published_dataset_version=entry.version,
        lance_head_version=head,
        classification=classification,
        action=action_for(classification, confirm=confirm, force=force),
        operations=tuple(one.operation for one in made),
        error=problem,
    )


def _between(
    core: Core, entry: TableEntry, head: int
) -> tuple[Sequence[VersionTransaction], str | None]:
    """What made each version since the published one, and the first one that does not tell."""
    found: list[VersionTransaction] = []
    problem: str | None = None
    for version in range(entry.version + 1, head + 1):
        try:
            (made,) = core.rooms.tables.transactions(
                entry.location, entry.branch, after=version - 1, upto=version
            )
            found.append(made)
            told = made.operation not in _UNTOLD
            why = "its transaction is missing"
        except OmnigraphError as cause:
            told, why = False, cause.message
        if not told and problem is None:
            problem = f"version {version}: {why}"
    return found, problem


def _is_unpublished(core: Core, branch: Branch, made: VersionTransaction) -> bool:
    """Whether a write of ours made the version and no commit of the branch knows about it.

    A commit publishes its tables all at once, so one that is not in the history never happened.
    """
    commit_id = made.properties.get(COMMIT_PROPERTY)
    if commit_id is None:
        return False
    return core.rooms.manifests.find_commit(branch, commit_id) is None


def classify(
    operations: Iterable[str], problem: str | None, *, given_up: int = 0
) -> Classification:
    """What drift means, from what happened in between beside `given_up` versions of our own."""
    if problem is not None:
        return "unverifiable"
    happened = set(operations)
    if not happened and not given_up:
        return "no_drift"
    if not happened <= _HARMLESS:
        return "suspicious"
    # Its callers were told that nothing happened: publishing it now would make that a lie.
    return "unpublished_write" if given_up else "verified_maintenance"


def action_for(classification: Classification, *, confirm: bool, force: bool) -> Action:
    """What to do about it."""
    if classification == "no_drift":
        return "no_op"
    if not confirm:
        return "preview"
    if classification == "verified_maintenance":
        return "healed"
    if classification == "unpublished_write":
        return "undone"
    return "forced" if force else "refused"
