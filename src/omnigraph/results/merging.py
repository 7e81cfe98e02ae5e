"""What a merge can end in: conflicts, a result, a preview."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

from omnigraph.model.graph import Commit, TypeCounts
from omnigraph.model.plan import SchemaStep, TypeKind
from omnigraph.model.requests import result_of
from omnigraph.model.structs import HidingStruct, JsonStruct, html_block, html_table

ConflictKind = Literal[
    "divergent_insert",
    "divergent_update",
    "delete_vs_update",
    "orphan_edge",
    "unique_violation",
    "cardinality_violation",
    "value_constraint_violation",
    "schema_conflict",
]


Outcome = Literal["already_up_to_date", "fast_forward", "merged"]


Strategy = Literal["fail", "ours", "theirs", "property"]


_WORDS: Mapping[ConflictKind, str] = {
    "divergent_insert": "divergent insert",
    "divergent_update": "divergent update",
    "delete_vs_update": "delete/update conflict",
}


class PropertyConflict(NamedTuple):
    """One property that the sides do not agree on, with its value on each, as JSON shows values:
    a blob is its size and its SHA-256 or URI. An edge's ends are `from` and `to`."""

    property: str
    base: Any
    ours: Any
    theirs: Any


class MergeConflict(JsonStruct, frozen=True, kw_only=True):
    """One reason why two branches cannot be merged by themselves.

    `properties` are the properties in question, for conflicts of both sides' changes. `deleted_by`
    is the side, "ours" or "theirs", that deleted the entity. `step_ours` and `step_theirs` are the
    steps that stand against each other in a conflict of schemas.
    """

    entity_kind: TypeKind
    type_name: str
    entity_id: str | None
    kind: ConflictKind
    message: str
    properties: list[PropertyConflict] = msgspec.field(default_factory=list)
    deleted_by: Literal["ours", "theirs"] | None = None
    step_ours: SchemaStep | None = None
    step_theirs: SchemaStep | None = None

    @builtins.property
    def type_key(self) -> str:
        return f"{self.entity_kind}:{self.type_name}"

    @builtins.property
    def can_be_resolved(self) -> bool:
        """Whether a resolution can settle it: it is about what both sides did to an entity."""
        return self.kind in _WORDS

    @builtins.property
    def _first(self) -> PropertyConflict | None:
        return self.properties[0] if self.properties else None

    @builtins.property
    def property(self) -> str | None:
        """The first property in question; None if there is none."""
        return self._first.property if self._first else None

    @builtins.property
    def base(self) -> Any:
        """The first property as both sides found it."""
        return self._first.base if self._first else None

    @builtins.property
    def ours(self) -> Any:
        """The first property as the target has it."""
        return self._first.ours if self._first else None

    @builtins.property
    def theirs(self) -> Any:
        """The first property as the source has it."""
        return self._first.theirs if self._first else None

    def to_json(self) -> dict[str, Any]:
        body = super().to_json()
        body["properties"] = [one._asdict() for one in self.properties]
        if self.deleted_by is None:
            del body["deleted_by"]
        for name, step in (("step_ours", self.step_ours), ("step_theirs", self.step_theirs)):
            del body[name]
            if step is not None:
                body[name] = step.to_json()
        return body


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
        conflicts = [one.to_json() for one in self.conflicts]
        return super().to_json() | {"outcome": self._told, "conflicts": conflicts}

    def _repr_html_(self) -> str:
        """For notebooks: what would come in, and what stands against it."""
        counts = [
            (key, one.inserted, one.updated, one.deleted) for key, one in self.changes.items()
        ]
        conflicts = [
            (
                one.kind,
                one.type_key,
                one.entity_id,
                each.property,
                each.base,
                each.ours,
                each.theirs,
            )
            for one in self.conflicts
            for each in one.properties or [PropertyConflict("", "", one.message, "")]
        ]
        return html_block(
            f"merge of {self.source} into {self.target}: {self._told}",
            html_table(("type", "inserted", "updated", "deleted"), counts) if counts else "",
            html_table(("conflict", "type", "id", "property", "base", "ours", "theirs"), conflicts)
            if conflicts
            else "",
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
