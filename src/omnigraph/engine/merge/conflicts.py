"""What a merge can end in: conflicts, a result, a preview."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from omnigraph.compiler.schema import SchemaConflict
from omnigraph.engine.check.findings import Violation
from omnigraph.engine.check.rules import Entity
from omnigraph.results.merging import _WORDS, ConflictKind, MergeConflict, PropertyConflict

_BY_RULE: Mapping[str, ConflictKind] = {
    "endpoint": "orphan_edge",
    "unique": "unique_violation",
    "cardinality": "cardinality_violation",
}


def entity_words(type_key: str, entity_id: str) -> str:
    """One entity for people: `node Person 'ada'`."""
    return f"{type_key.replace(':', ' ', 1)} '{entity_id}'"


def row_conflict(
    entity: Entity,
    entity_id: str,
    kind: ConflictKind,
    *,
    sure: bool,
    properties: Sequence[PropertyConflict] = (),
    deleted_by: Literal["ours", "theirs"] | None = None,
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
        properties=list(properties),
        deleted_by=deleted_by,
    )


def schema_conflict(found: SchemaConflict) -> MergeConflict:
    """Both sides changed the schema, and both changes cannot be."""
    return MergeConflict(
        entity_kind=found.type_kind,
        type_name=found.type_name,
        entity_id=None,
        kind="schema_conflict",
        message=f"{found.message}; no strategy settles that: apply on one branch what the other "
        "has, then merge again",
        step_ours=found.step_ours,
        step_theirs=found.step_theirs,
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
