"""What a merge can end in: conflicts, a result, a preview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import msgspec

from omnigraph.engine.check.findings import Violation
from omnigraph.engine.check.rules import Entity
from omnigraph.model.graph import Commit, TypeCounts
from omnigraph.model.requests import result_of
from omnigraph.model.schema import EntityKind
from omnigraph.model.structs import HidingStruct, JsonStruct, html_block, html_table

ConflictKind = Literal[
    "divergent_insert",
    "divergent_update",
    "delete_vs_update",
    "orphan_edge",
    "unique_violation",
    "cardinality_violation",
    "value_constraint_violation",
]
Outcome = Literal["already_up_to_date", "fast_forward", "merged"]
Strategy = Literal["fail", "ours", "theirs", "property"]

_BY_RULE: Mapping[str, ConflictKind] = {
    "endpoint": "orphan_edge",
    "unique": "unique_violation",
    "cardinality": "cardinality_violation",
}
_WORDS: Mapping[ConflictKind, str] = {
    "divergent_insert": "divergent insert",
    "divergent_update": "divergent update",
    "delete_vs_update": "delete/update conflict",
}


class MergeConflict(JsonStruct, frozen=True, kw_only=True):
    """One reason why two branches cannot be merged by themselves."""

    entity_kind: EntityKind
    type_name: str
    entity_id: str | None
    kind: ConflictKind
    message: str

    @property
    def type_key(self) -> str:
        return f"{self.entity_kind}:{self.type_name}"


def row_conflict(
    entity: Entity, entity_id: str, kind: ConflictKind, *, sure: bool
) -> MergeConflict:
    """Both sides did different things to one entity; or, if that is not `sure`, they differ and
    nobody can tell from what they share which of them changed it."""
    return MergeConflict(
        entity_kind=entity.kind,
        type_name=entity.name,
        entity_id=entity_id,
        kind=kind,
        message=f"{_WORDS[kind]} for id '{entity_id}'"
        + ("" if sure else ", and what the branches share does not tell which side changed it"),
    )


def rule_conflict(violation: Violation) -> MergeConflict:
    """Each side alone obeys the schema, both together do not."""
    return MergeConflict(
        entity_kind=violation.entity_kind,
        type_name=violation.type_name,
        entity_id=violation.ids[-1] if violation.ids else None,
        kind=_BY_RULE.get(violation.kind, "value_constraint_violation"),
        message=violation.message,
    )


class MergePreview(JsonStruct, frozen=True, kw_only=True):
    """What a merge would do, by type key, without doing it."""

    source: str
    target: str
    outcome: Outcome
    base_commit_id: str | None  # the first of several; None = it cannot be read any more
    changes: Mapping[str, TypeCounts] = msgspec.field(default_factory=dict)
    conflicts: tuple[MergeConflict, ...] = ()

    @property
    def _told(self) -> str:
        return "conflict" if self.conflicts else self.outcome

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"outcome": self._told}

    def _repr_html_(self) -> str:
        """For notebooks: what would come in, and what stands against it."""
        counts = [
            (key, one.inserted, one.updated, one.deleted) for key, one in self.changes.items()
        ]
        conflicts = [(one.kind, one.type_key, one.entity_id, one.message) for one in self.conflicts]
        return html_block(
            f"merge of {self.source} into {self.target}: {self._told}",
            html_table(("type", "inserted", "updated", "deleted"), counts) if counts else "",
            html_table(("conflict", "type", "id", "message"), conflicts) if conflicts else "",
        )


class MergeResult(HidingStruct, frozen=True, kw_only=True):
    """What a merge did. `commit` is None when there was nothing to merge."""

    UNCOMPARED: ClassVar[frozenset[str]] = frozenset({"already_applied"})

    source: str
    target: str
    outcome: Outcome
    actor_id: str | None
    commit: Commit | None
    changes: Mapping[str, TypeCounts] = msgspec.field(default_factory=dict)
    branch_deleted: bool | None = None  # None = not asked for
    branch_delete_error: str | None = None
    already_applied: bool = False

    @classmethod
    def told_again(cls, commit: Commit, *, source: str, target: str) -> MergeResult:
        """The answer to the first submission of the commit's request."""
        told = result_of(commit)
        return cls(
            source=source,
            target=target,
            outcome=told.get("outcome", "merged"),
            actor_id=commit.actor_id,
            commit=commit,
            changes={key: TypeCounts(**counts) for key, counts in told.get("changes", {}).items()},
            already_applied=True,
        )

    def to_json(self) -> dict[str, Any]:
        perhaps = {
            "already_applied": self.already_applied or None,
            "actor_id": self.actor_id or None,
            "branch_deleted": self.branch_deleted,
            "branch_delete_error": self.branch_delete_error,
        }
        return {
            "source": self.source,
            "target": self.target,
            "outcome": self.outcome,
            **{name: value for name, value in perhaps.items() if value is not None},
            "commit": self.commit.to_json() if self.commit else None,
            "changes": {key: counts.to_json() for key, counts in self.changes.items()},
        }


class RevertResult(msgspec.Struct, frozen=True, kw_only=True):
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
