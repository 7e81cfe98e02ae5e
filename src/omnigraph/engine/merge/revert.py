"""Undoing one commit by a new one: a merge whose base is the commit and whose source its parent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from omnigraph.engine.core import Core
from omnigraph.engine.merge.base import Base
from omnigraph.engine.merge.conflicts import TypeCounts
from omnigraph.engine.merge.run import Merge, prepared_changes, three_way
from omnigraph.errors import (
    ConflictError,
    MergeConflictsError,
    NotFoundError,
    ParentlessCommitError,
)
from omnigraph.model.changeset import WriterKind
from omnigraph.model.graph import Commit
from omnigraph.storage.writer import Intent, Prepared, WriteContext


@dataclass(frozen=True, slots=True, kw_only=True)
class RevertResult:
    """What a revert undid. `commit` is None when nothing of the reverted commit was left."""

    reverted_commit_id: str
    branch: str
    actor_id: str | None
    commit: Commit | None
    changes: dict[str, TypeCounts]

    def to_json(self) -> dict[str, Any]:
        return {
            "reverted_commit_id": self.reverted_commit_id,
            "branch": self.branch,
            **({"actor_id": self.actor_id} if self.actor_id else {}),
            "commit": self.commit.to_json() if self.commit else None,
            "changes": {key: counts.to_json() for key, counts in self.changes.items()},
        }


def revert(core: Core, commit_id: str, branch: str, *, actor_id: str | None) -> RevertResult:
    """Undo what the commit did to its first parent; `MergeConflictsError` if later commits of the
    branch touched the same entities."""
    target = core.branch(branch)
    commit = core.rooms.manifests.find_commit(target, commit_id)
    if commit is None:
        raise NotFoundError(
            f"commit '{commit_id}' is not in the history of branch '{branch}'",
            kind="commit",
            name=commit_id,
        )
    if commit.parent_commit_id is None:
        raise ParentlessCommitError(commit_id=commit_id)
    done = core.rooms.manifests.at_commit(commit_id)
    undone = core.rooms.manifests.at_commit(commit.parent_commit_id)
    worked: Merge | None = None

    def prepare(context: WriteContext) -> Prepared | None:
        nonlocal worked
        if len({one.schema.hash for one in (done, undone, context.snapshot)}) > 1:
            raise ConflictError(
                f"commit '{commit_id}' cannot be undone across a change of the schema",
                hint="apply the earlier schema, or change the entities by hand",
                commit_id=commit_id,
            )
        worked = three_way(core, Base(snapshots=(done,)), undone, context, strategy="fail")
        if worked.conflicts:
            raise MergeConflictsError(
                source=f"revert of {commit_id}", target=branch, conflicts=worked.conflicts
            )
        prepared = prepared_changes(replace(worked, repoints=()), context)
        return replace(prepared, properties={"reverts": commit_id})

    intent = Intent(branch=target, kind=WriterKind.BRANCH_MERGE, actor_id=actor_id)
    after = core.write(intent, prepare)
    assert worked is not None, "a write prepares at least once"
    return RevertResult(
        reverted_commit_id=commit_id,
        branch=branch,
        actor_id=actor_id,
        commit=after.head if after else None,
        changes=worked.counts,
    )
