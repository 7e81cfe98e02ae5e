"""Applying a schema to a branch: a plan carried out in one commit, or refused as a whole.

A schema belongs to a commit: other branches keep theirs, and their tables, because what changes is
written on the branch's own lines. Renames and new nullable properties touch no row; a type keeps
its table when it gets another name. New types get tables of their own before anything is announced,
so a crash leaves at most an empty dataset that nobody refers to. Older snapshots go on reading
under the schema they were written with.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from omnigraph.compiler.schema import compile_schema, plan_migration
from omnigraph.engine.arguments import FLAG, TEXT, require
from omnigraph.engine.check.findings import Findings
from omnigraph.engine.check.rules import Entity, Unique, check_values
from omnigraph.engine.check.validate import check_unique, degree_broken
from omnigraph.engine.core import Core
from omnigraph.engine.derive import derive
from omnigraph.engine.maintain.retention import Policy, Survey, is_held, survey
from omnigraph.engine.maintain.stored_retention import EVERY, Bounds, Retention
from omnigraph.engine.rows.columns import column_type, default_cell
from omnigraph.engine.runner import Inline
from omnigraph.errors import (
    AlreadyExistsError,
    ConflictError,
    LimitExceededError,
    NotFoundError,
    OmnigraphError,
)
from omnigraph.model.graph import (
    MAIN,
    Commit,
    Registration,
    SchemaRecord,
    Snapshot,
    TableEntry,
    TableUpdate,
    Tombstone,
    WriterKind,
)
from omnigraph.model.limits import LEASE_WAIT_MS_MAX, TYPE_LIVES_MAX
from omnigraph.model.plan import (
    AddConstraint,
    AddProperty,
    AddType,
    ChangeCardinality,
    ChangeIndex,
    DropProperty,
    DropType,
    IndexConstraint,
    RelaxNullability,
    RenameProperty,
    RenameType,
    SchemaPlan,
    SchemaStep,
    Tier,
    UniqueConstraint,
    WidenProperty,
)
from omnigraph.model.requests import KeyedRequest
from omnigraph.model.schema import Cardinality, Catalog, Check, EdgeType, NodeType, Property, Range
from omnigraph.model.values import Misfit, fit
from omnigraph.results.writing import SchemaApplyResult
from omnigraph.storage.commit.prepared import AppliedBeforeError, Intent, Prepared
from omnigraph.storage.commit.writer import WriteContext
from omnigraph.storage.lance import sql
from omnigraph.storage.lance.columns import arrow_schema, property_field
from omnigraph.storage.objects.lease import PAST
from omnigraph.storage.objects.root import dropped_mark, type_folder
from omnigraph.storage.table.schema_change import AddedColumn, ColumnChanges
from omnigraph.storage.table.table import Table

logger = logging.getLogger(__name__)


def plan_schema(
    core: Core, source: str, *, branch: str = MAIN, allow_data_loss: bool = False
) -> SchemaPlan:
    """The steps from the branch's schema to the one in `source`; nothing is written."""
    _require_order(source, allow_data_loss=allow_data_loss)
    accepted = core.catalog(core.head(branch))
    return plan_migration(accepted, compile_schema(source), allow_data_loss=allow_data_loss)


def apply_schema(
    core: Core,
    source: str,
    *,
    branch: str = MAIN,
    allow_data_loss: bool = False,
    actor_id: str | None = None,
    message: str | None = None,
    idempotency_key: str | None = None,
) -> SchemaApplyResult:
    """Bring a branch to the schema in `source` as one commit, or raise and leave all as it was.

    `SchemaUnsupportedError` says which step cannot be taken, `ConstraintViolationError` which rows
    stand against a new constraint.
    """
    core.require_writable()
    _require_order(source, allow_data_loss=allow_data_loss)
    desired = compile_schema(source)
    request = KeyedRequest.of(
        idempotency_key, "schema apply", source=source, allow_data_loss=allow_data_loss
    )
    apply = _Apply(core, desired, allow_data_loss=allow_data_loss)
    intent = Intent(
        branch=core.branch(branch),
        kind=WriterKind.SCHEMA_APPLY,
        actor_id=actor_id,
        message=message,
        request=request,
    )
    try:
        after, planned = core.write(intent, apply.prepare)
    except AppliedBeforeError as before:
        return _told_again(core, before.commit, desired, allow_data_loss=allow_data_loss)
    if after is not None and planned.evolution.hard:
        _quietly("the graph", partial(_take_past, core, planned.evolution, planned.base, after))
    if after is not None and any(map(_is_about_indexes, planned.plan.steps)):
        derive(core, Inline(), after)
    return SchemaApplyResult(
        supported=True,
        applied=after is not None,
        steps=planned.plan.steps,
        graph_manifest_version=(after or planned.base).graph_manifest_version,
        actor_id=actor_id,
        commit=after.head if after else None,
    )


def _is_about_indexes(step: SchemaStep) -> bool:
    return isinstance(step, ChangeIndex) or (
        isinstance(step, AddConstraint) and isinstance(step.value, IndexConstraint)
    )


def _require_order(source: str, *, allow_data_loss: bool) -> None:
    require(TEXT, source=source)
    require(FLAG, allow_data_loss=allow_data_loss)


def _told_again(
    core: Core, commit: Commit, desired: Catalog, *, allow_data_loss: bool
) -> SchemaApplyResult:
    """The answer to the first submission: the steps follow from the schema before the commit, and
    are left out once cleanup has taken that state."""
    assert commit.parent_commit_id is not None, "an apply follows the commit that made the graph"
    steps: tuple[SchemaStep, ...] = ()
    with suppress(NotFoundError):
        before = core.store.manifests.at_commit(commit.parent_commit_id)
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


class _Planned(msgspec.Struct, frozen=True, kw_only=True):
    """What an apply does to one head."""

    base: Snapshot
    plan: SchemaPlan
    evolution: Evolution


class _Apply:
    """One apply, which may have to be prepared several times while others write."""

    def __init__(self, core: Core, desired: Catalog, *, allow_data_loss: bool) -> None:
        self._core, self._desired, self._allow_data_loss = core, desired, allow_data_loss
        self._accepted: str | None = None  # of the schema that the first preparation found
        self._made: dict[str, TableEntry] = {}

    def prepare(self, context: WriteContext) -> tuple[Prepared | None, _Planned]:
        base = context.snapshot
        if self._accepted is None:
            self._accepted = base.schema.fingerprint
        elif base.schema.fingerprint != self._accepted:
            # Going on would undo what somebody else has just applied.
            raise ConflictError("the schema changed during the apply", hint="plan it again")
        accepted = self._core.catalog(base)
        plan = plan_migration(accepted, self._desired, allow_data_loss=self._allow_data_loss)
        plan.require_supported()
        planned = _Planned(base=base, plan=plan, evolution=evolution_of(plan, accepted))
        if not plan.steps:
            return None, planned
        found = Findings()
        for one in planned.evolution.kept:
            if one.checks and base.entries[one.old_key].row_count:
                rows = partial(_rows, one, context.table(one.old_key))
                check_rows(one.entity, one.checks, rows, found)
        found.raise_if_any()
        return self._prepared(planned, context), planned

    def _prepared(self, planned: _Planned, context: WriteContext) -> Prepared:
        entries, evolution, catalog = planned.base.entries, planned.evolution, planned.plan.catalog
        moving = [one for one in evolution.kept if not one.columns.is_empty]
        staged = context.each(
            lambda one: context.writable(one.old_key, renamed=one.entity.table_key).stage_schema(
                one.columns
            ),
            moving,
        )
        moved = {write.table_key for write in staged if write is not None}
        renamed = [one for one in evolution.kept if one.is_renamed]
        new = [self._new_table(entity) for entity in evolution.added]
        calm = [_named(one, entries[one.old_key]) for one in renamed]
        gone = [*evolution.dropped, *(one.old_key for one in renamed)]
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
            schema=SchemaRecord.of(catalog),
            rely_on_head=True,
        )

    def _new_table(self, entity: Entity) -> TableEntry:
        """An empty table for a new type; a repeated preparation uses it again."""
        if entity.table_key not in self._made:
            self._made[entity.table_key] = created(self._core, entity)
        return self._made[entity.table_key]


def created(core: Core, entity: Entity) -> TableEntry:
    """A new empty table for a type, where no table has been; nobody refers to it yet."""
    for life in range(1, TYPE_LIVES_MAX + 1):
        location = type_folder(entity.kind, entity.name, life=life)
        # Old snapshots may still refer to what was there, also when nothing is left of it.
        if core.store.objects.read(dropped_mark(location)) is not None:
            continue
        try:
            version = core.store.tables.create(location, arrow_schema(entity))
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


# --- after a hard drop: the past of what was dropped goes too ---------------------------------

# The drop itself is published before anything is removed. If this is interrupted the rest of the
# past stays readable until `cleanup` takes it. What counts as needed is what `cleanup` would keep
# with the tightest of policies: heads, tags, where branches were made, bases of merges, and what
# unfinished writes stand on; and all that deleted branches need which can still be brought back.


def _take_past(core: Core, evolution: Evolution, before: Snapshot, after: Snapshot) -> None:
    # As in cleanup, nobody may name something in the past between the look and the end of it: no
    # tag is made and no deleted branch comes back.
    core.store.leases.holding(
        PAST,
        lambda _: _collect_dropped(core, evolution, before, after),
        wait_ms=LEASE_WAIT_MS_MAX,
    )


def _collect_dropped(core: Core, evolution: Evolution, before: Snapshot, after: Snapshot) -> None:
    """Remove dropped types altogether, and of tables that lost a property all older versions, as
    far as nobody else needs them."""
    now = core.world.clock.now_us()
    if is_held(core, now, sweep=True):
        logger.warning("the past stays", extra={"why": "a backup is being made"})
        return
    heads_only = Retention(branches={EVERY: Bounds(keep_versions=1)})
    policy = Policy(retention=heads_only, now_us=now, superseded_us=now, deleted_stay=True)
    found = survey(core, policy)
    if found.blind or found.unreadable:
        logger.warning("the past stays", extra={"why": "what a branch shows cannot be read"})
        return
    # A line that the branch only inherits is another branch's, and so is the past on it.
    owns = after.branch.owns
    for key in evolution.dropped:
        entry = before.entries[key]
        if not any(location == entry.location for location, _ in found.pins):
            _quietly(entry.location, partial(core.store.drop_table, entry.location))
        elif owns(entry.branch):
            _quietly(entry.location, partial(_collect, core, found, entry, entry.version + 1))
    for one in evolution.kept:
        entry = after.entries[one.entity.table_key]
        if one.hard and owns(entry.branch):
            _quietly(entry.location, partial(_collect, core, found, entry, entry.version))


def _collect(core: Core, found: Survey, entry: TableEntry, below: int) -> None:
    """The versions of the entry's line below that one which nobody needs."""
    line = (entry.location, entry.branch)
    needed = found.pinned(line)
    stored = core.store.tables.versions(*line)
    core.store.tables.collect(*line, [one for one in stored if one < below and one not in needed])


def _quietly(location: str, deed: Callable[[], None]) -> None:
    """The schema is applied whether or not the past can be removed now."""
    try:
        deed()
    except OmnigraphError as cause:
        logger.warning("the past stays", extra={"location": location, "why": cause.message})


# --- new constraints against the rows that are there, before anything moves --------------------

# Only the columns that a constraint is about are read, as they will be: under their new names, with
# defaults filled in and numbers widened. Rows stay in Arrow, value checks go batch by batch.


RowsOf = Callable[[Sequence[str]], Iterator[pa.Table]]  # some columns of all rows, in pieces


def check_rows(entity: Entity, checks: Sequence[Checked], rows: RowsOf, found: Findings) -> None:
    """Add every way in which the rows break constraints that are new."""
    for check in checks:
        match check:
            case ChangeCardinality(to_cardinality=bounds):
                assert isinstance(entity, EdgeType), "only edges have a cardinality"
                _check_degrees(entity, bounds, pa.concat_tables(rows(["src"])), found)
            case AddConstraint(value=UniqueConstraint(properties=columns)):
                whole = rows(["id", *(name for name in columns if name != "id")])
                check_unique(entity, Unique(columns=columns), pa.concat_tables(whole), found)
            case AddConstraint(value=Range() | Check() as rule):
                # A type with this one property and this one rule is all the check has to know.
                assert isinstance(entity, NodeType), "only nodes have value constraints"
                lone = replace(
                    entity,
                    properties=(entity.by_name[rule.property],),
                    key=(),
                    ranges=(rule,) if isinstance(rule, Range) else (),
                    checks=(rule,) if isinstance(rule, Check) else (),
                )
                for batch in rows(["id", rule.property]):
                    check_values(lone, batch, found)
            case AddConstraint():
                raise AssertionError("keys are never added, and indexes need no check")


def _check_degrees(edge: EdgeType, bounds: Cardinality, rows: pa.Table, found: Findings) -> None:
    counted = rows["src"].value_counts()
    sources, counts = counted.field(0), counted.field(1)
    outside: Any = pc.less(counts, pa.scalar(bounds.minimum))
    if bounds.maximum is not None:
        outside = pc.or_(outside, pc.greater(counts, pa.scalar(bounds.maximum)))
    broken = pa.table({"source": sources, "count": counts}).filter(outside).sort_by("source")
    violations = (
        degree_broken(edge, bounds, row["source"], row["count"], None)
        for row in broken.slice(0, found.room).to_pylist()
    )
    found.add([one for one in violations if one is not None], total=broken.num_rows)


def _rows(evolution: TableEvolution, table: Table, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The columns of all rows as they will be after the evolution, in pieces."""
    added = {prop.name: prop for prop in evolution.added}
    stored = {name: evolution.old_name(name) for name in columns if name not in added}
    for batch in table.scan(columns=list(stored.values())):
        shaped: dict[str, Any] = {}
        for name in columns:
            if name in added:
                shaped[name] = pa.repeat(default_cell(added[name]), batch.num_rows)
                continue
            prop = evolution.entity.by_name.get(name)
            values = batch[stored[name]]
            shaped[name] = values if prop is None else values.cast(column_type(prop.type))
        yield pa.table(shaped)


# --- what a plan means for each table -------------------------------------------------------------

# Pure decisions, before anything is read or written.

Checked = AddConstraint | ChangeCardinality
_AboutType = (
    AddProperty | RenameProperty | WidenProperty | RelaxNullability | DropProperty | Checked
)


class TableEvolution(msgspec.Struct, frozen=True, kw_only=True):
    """How the table of one type that stays goes on.

    `entity` is the type as it will be, `old_key` the table's key so far. `checks` are the
    constraints that its rows have to obey before anything moves.
    """

    entity: Entity
    old_key: str
    renamed: Mapping[str, str] = msgspec.field(default_factory=dict)  # old names to new ones
    added: tuple[Property, ...] = ()
    widened: tuple[str, ...] = ()  # new names
    relaxed: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    regains: bool = False  # an added property was there before, under the same identity
    checks: tuple[Checked, ...] = ()
    hard: bool = False

    @property
    def is_renamed(self) -> bool:
        return self.old_key != self.entity.table_key

    def old_name(self, name: str) -> str:
        """What the table calls a column so far."""
        return next((old for old, new in self.renamed.items() if new == name), name)

    @property
    def columns(self) -> ColumnChanges:
        """The changes of the table's columns, called what they are called so far."""
        wider = [self.entity.by_name[name] for name in self.widened]
        replaced = [self.old_name(name) for name in self.widened]
        added = [AddedColumn(field=property_field(one), value=_default(one)) for one in self.added]
        added += [
            AddedColumn(
                field=property_field(one),
                value=sql.cast(sql.column(self.old_name(one.name)), one.type.scalar),
            )
            for one in wider
        ]
        return ColumnChanges(
            renamed={old: new for old, new in self.renamed.items() if old not in replaced},
            dropped=[*self.dropped, *replaced],
            added=added,
            made_nullable=[self.old_name(name) for name in self.relaxed],
            touches_rows=self.regains,
        )


class Evolution(msgspec.Struct, frozen=True, kw_only=True):
    """A whole plan as the tables see it."""

    added: tuple[Entity, ...]
    kept: tuple[TableEvolution, ...]
    dropped: tuple[str, ...]  # table keys
    hard: bool


def evolution_of(plan: SchemaPlan, accepted: Catalog) -> Evolution:
    """What the plan does to each table of a graph with the accepted schema."""
    by_type: defaultdict[str, list[SchemaStep]] = defaultdict(list)  # by new names
    for step in plan.steps:
        if isinstance(step, RenameType):
            by_type[f"{step.type_kind}:{step.to}"].append(step)
        elif isinstance(step, _AboutType):
            by_type[f"{step.type_kind}:{step.type_name}"].append(step)
    new = {f"{step.type_kind}:{step.name}" for step in plan.steps if isinstance(step, AddType)}
    drops = [step for step in plan.steps if isinstance(step, DropType)]
    dropped = tuple(f"{step.type_kind}:{step.name}" for step in drops)
    kept = tuple(
        _kept(entity, by_type[entity.table_key])
        for entity in plan.catalog.types()
        if entity.table_key not in new
    )
    old_keys = {entity.table_key for entity in accepted.types()}
    assert {one.old_key for one in kept} | set(dropped) == old_keys, "the plan is about other types"
    return Evolution(
        added=tuple(entity for entity in plan.catalog.types() if entity.table_key in new),
        kept=kept,
        dropped=dropped,
        hard=any(step.mode == "hard" for step in drops) or any(one.hard for one in kept),
    )


def _kept(entity: Entity, steps: Sequence[SchemaStep]) -> TableEvolution:
    names = [step.from_name for step in steps if isinstance(step, RenameType)]
    drops = [step for step in steps if isinstance(step, DropProperty)]
    return TableEvolution(
        entity=entity,
        old_key=f"{entity.kind}:{names[-1]}" if names else entity.table_key,
        renamed={step.from_name: step.to for step in steps if isinstance(step, RenameProperty)},
        added=tuple(step.property for step in steps if isinstance(step, AddProperty)),
        widened=tuple(step.property_name for step in steps if isinstance(step, WidenProperty)),
        relaxed=tuple(step.property_name for step in steps if isinstance(step, RelaxNullability)),
        dropped=tuple(step.property_name for step in drops),
        checks=checked(steps),
        hard=any(step.mode == "hard" for step in drops),
    )


def checked(steps: Sequence[SchemaStep]) -> tuple[Checked, ...]:
    """The steps that rows have to obey."""
    return tuple(step for step in steps if isinstance(step, Checked) and _is_checked(step))


def _is_checked(step: Checked) -> bool:
    index = isinstance(step, AddConstraint) and isinstance(step.value, IndexConstraint)
    return not index and step.tier is not Tier.SAFE


def _default(prop: Property) -> str | None:
    if prop.default is None:
        return None
    value = fit(prop.default, prop.type)
    assert not isinstance(value, Misfit), "the compiler has checked the default"
    return sql.fitted_literal(value, prop.type.scalar)
