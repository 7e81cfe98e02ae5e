"""Applying a schema: a plan carried out in one commit, or refused as a whole.

Renames and new nullable properties touch no row; a type keeps its table when it gets another name.
New types get tables of their own before anything is announced, so a crash leaves at most an empty
dataset that nobody refers to. Older snapshots go on reading under the schema they were written
with.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from omnigraph.compiler.schema import compile_schema, plan_migration
from omnigraph.engine.core import Core
from omnigraph.engine.evolve_check import check_rows
from omnigraph.engine.evolve_collect import collect_dropped
from omnigraph.engine.evolve_tables import Entity, Evolution, TableEvolution, evolution_of
from omnigraph.engine.write.violations import Findings
from omnigraph.errors import (
    AlreadyExistsError,
    ConflictError,
    LimitExceededError,
    NotFoundError,
)
from omnigraph.model.changeset import Registration, TableUpdate, Tombstone, WriterKind
from omnigraph.model.graph import MAIN, Commit, SchemaRecord, Snapshot, TableEntry
from omnigraph.model.limits import TYPE_LIVES_MAX
from omnigraph.model.plan import SchemaPlan, SchemaStep
from omnigraph.model.requests import KeyedRequest
from omnigraph.model.schema import Catalog
from omnigraph.storage.applied import AppliedBeforeError
from omnigraph.storage.arrow_schema import arrow_schema
from omnigraph.storage.layout import dropped_mark, type_folder
from omnigraph.storage.staged import StagedWrite
from omnigraph.storage.writer import Intent, Prepared, WriteContext


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaApplyResult:
    """What an apply did. `commit` is None when the graph had the schema already."""

    supported: bool
    applied: bool
    steps: tuple[SchemaStep, ...]
    graph_manifest_version: int
    actor_id: str | None
    commit: Commit | None
    already_applied: bool = field(default=False, compare=False)

    @property
    def step_count(self) -> int:
        return len(self.steps)

    def to_json(self) -> dict[str, Any]:
        return {
            "supported": self.supported,
            "applied": self.applied,
            "step_count": self.step_count,
            "graph_manifest_version": self.graph_manifest_version,
            "steps": [step.to_json() for step in self.steps],
            **({"already_applied": True} if self.already_applied else {}),
            **({"actor_id": self.actor_id} if self.actor_id else {}),
            "commit": self.commit.to_json() if self.commit else None,
        }


def plan_schema(core: Core, source: str, *, allow_data_loss: bool = False) -> SchemaPlan:
    """The steps from main's schema to the one in `source`; nothing is written."""
    accepted = core.catalog(core.head())
    return plan_migration(accepted, compile_schema(source), allow_data_loss=allow_data_loss)


def apply_schema(
    core: Core,
    source: str,
    *,
    allow_data_loss: bool = False,
    actor_id: str | None = None,
    idempotency_key: str | None = None,
) -> SchemaApplyResult:
    """Bring main to the schema in `source` as one commit, or raise and leave all as it was.

    `SchemaUnsupportedError` says which step cannot be taken, `ConstraintViolationError` which rows
    stand against a new constraint, `ConflictError` that other branches exist.
    """
    core.require_writable()
    desired = compile_schema(source)
    request = KeyedRequest.of(
        idempotency_key, "schema apply", source=source, allow_data_loss=allow_data_loss
    )
    apply = _Apply(core, desired, allow_data_loss=allow_data_loss)
    intent = Intent(
        branch=core.branch(MAIN),
        kind=WriterKind.SCHEMA_APPLY,
        actor_id=actor_id,
        request=request,
    )
    try:
        after = core.write(intent, apply.prepare)
    except AppliedBeforeError as before:
        return _told_again(core, before.commit, desired, allow_data_loss=allow_data_loss)
    if after is not None and apply.evolution.hard:
        collect_dropped(core, apply.evolution, apply.base, after)
    return SchemaApplyResult(
        supported=True,
        applied=after is not None,
        steps=apply.plan.steps,
        graph_manifest_version=(after or apply.base).graph_manifest_version,
        actor_id=actor_id,
        commit=after.head if after else None,
    )


def _told_again(
    core: Core, commit: Commit, desired: Catalog, *, allow_data_loss: bool
) -> SchemaApplyResult:
    """The answer to the first submission: the steps follow from the schema before the commit, and
    are left out once cleanup has taken that state."""
    assert commit.parent_commit_id is not None, "an apply follows the commit that made the graph"
    steps: tuple[SchemaStep, ...] = ()
    with suppress(NotFoundError):
        before = core.rooms.manifests.at_commit(commit.parent_commit_id)
        plan = plan_migration(core.catalog(before), desired, allow_data_loss=allow_data_loss)
        steps = plan.steps
    return SchemaApplyResult(
        supported=True,
        applied=True,
        steps=steps,
        graph_manifest_version=commit.graph_manifest_version,
        actor_id=commit.actor_id,
        commit=commit,
        already_applied=True,
    )


def _require_only_main(core: Core) -> None:
    others = [branch.name for branch in core.rooms.refs.list() if branch.name != MAIN]
    if others:
        raise ConflictError(
            "schema apply requires a graph with only main; "
            f"found non-main branches: {', '.join(others)}",
            hint="merge or delete them first",
            branches=others,
        )


class _Apply:
    """One apply, which may have to be prepared several times while others write."""

    def __init__(self, core: Core, desired: Catalog, *, allow_data_loss: bool) -> None:
        self._core, self._desired, self._allow_data_loss = core, desired, allow_data_loss
        self._accepted_hash: str | None = None  # of the schema that the first preparation found
        self._made: dict[str, TableEntry] = {}
        self.base: Snapshot
        self.plan: SchemaPlan
        self.evolution: Evolution

    def prepare(self, context: WriteContext) -> Prepared | None:
        self.base = context.snapshot
        if self._accepted_hash is None:
            self._accepted_hash = self.base.schema.hash
        elif self.base.schema.hash != self._accepted_hash:
            # Going on would undo what somebody else has just applied.
            raise ConflictError("the schema changed during the apply", hint="plan it again")
        accepted = self._core.catalog(self.base)
        self.plan = plan_migration(accepted, self._desired, allow_data_loss=self._allow_data_loss)
        self.plan.require_supported()
        if not self.plan.steps:
            return None
        _require_only_main(self._core)
        self.evolution = evolution_of(self.plan, accepted)
        self._validate(context)
        return self._prepared(context)

    def _validate(self, context: WriteContext) -> None:
        found = Findings()
        for one in self.evolution.kept:
            if one.checks and context.snapshot.entries[one.old_key].row_count:
                check_rows(one, context.table(one.old_key), found)
        found.raise_if_any()

    def _prepared(self, context: WriteContext) -> Prepared:
        entries = context.snapshot.entries
        staged = context.each(lambda one: self._staged(one, entries[one.old_key]), self._moving())
        moved = {write.table_key for write in staged if write is not None}
        renamed = [one for one in self.evolution.kept if one.is_renamed]
        new = [self._new_table(entity) for entity in self.evolution.added]
        calm = [_named(one, entries[one.old_key]) for one in renamed]
        gone = [*self.evolution.dropped, *(one.old_key for one in renamed)]
        return Prepared(
            staged=tuple(write for write in staged if write is not None),
            repoints=tuple(
                TableUpdate.pointing_to(entry)
                for entry in (*new, *calm)
                if entry.table_key not in moved
            ),
            registrations=tuple(
                Registration(table_key=entry.table_key, location=entry.location)
                for entry in (*new, *calm)
            ),
            tombstones=tuple(
                Tombstone(table_key=key, version=entries[key].version) for key in gone
            ),
            schema=_record(self.plan.catalog),
            rely_on_head=True,
            # A branch is made under main's lease too: whatever is not there now comes after us.
            last_look=lambda: _require_only_main(self._core),
        )

    def _moving(self) -> list[TableEvolution]:
        return [one for one in self.evolution.kept if not one.columns.is_empty]

    def _staged(self, one: TableEvolution, entry: TableEntry) -> StagedWrite | None:
        table = self._core.rooms.tables.open(_named(one, entry))
        return table.stage_schema(one.columns)

    def _new_table(self, entity: Entity) -> TableEntry:
        """An empty table for a new type; a repeated preparation uses it again."""
        made = self._made.get(entity.table_key)
        if made is None:
            made = self._made[entity.table_key] = _created(self._core, entity)
        return made


def _created(core: Core, entity: Entity) -> TableEntry:
    for life in range(1, TYPE_LIVES_MAX + 1):
        location = type_folder(entity.kind, entity.name, life=life)
        # Old snapshots may still refer to what was there, also when nothing is left of it.
        if core.store.read(dropped_mark(location)) is not None:
            continue
        try:
            version = core.rooms.tables.create(location, arrow_schema(entity))
        except AlreadyExistsError:
            continue
        return TableEntry(table_key=entity.table_key, location=location, version=version)
    raise LimitExceededError(
        resource=f"lives of the type name '{entity.name}'",
        limit=TYPE_LIVES_MAX,
        actual=TYPE_LIVES_MAX + 1,
        hint="choose another name",
    )


def _named(one: TableEvolution, entry: TableEntry) -> TableEntry:
    return replace(entry, table_key=one.entity.table_key)


def _record(catalog: Catalog) -> SchemaRecord:
    return SchemaRecord(source=catalog.source, ir=catalog.ir, hash=catalog.hash)
