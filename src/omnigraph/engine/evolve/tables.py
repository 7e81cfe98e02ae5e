"""What a schema plan means for the tables: pure decisions, before anything is read or written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec

from omnigraph.engine.check.rules import Entity
from omnigraph.model.plan import (
    AddConstraint,
    AddProperty,
    AddType,
    ChangeCardinality,
    DropProperty,
    DropType,
    IndexConstraint,
    RelaxNullability,
    RenameProperty,
    RenameType,
    SchemaPlan,
    SchemaStep,
    Tier,
    WidenProperty,
)
from omnigraph.model.schema import Catalog, Property
from omnigraph.model.values import Misfit, fit
from omnigraph.storage.lance import sql
from omnigraph.storage.lance.columns import property_field
from omnigraph.storage.table.schema_change import AddedColumn, ColumnChanges

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
        checks=tuple(step for step in steps if isinstance(step, Checked) and _is_checked(step)),
        hard=any(step.mode == "hard" for step in drops),
    )


def _is_checked(step: Checked) -> bool:
    index = isinstance(step, AddConstraint) and isinstance(step.value, IndexConstraint)
    return not index and step.tier is not Tier.SAFE


def _default(prop: Property) -> str | None:
    if prop.default is None:
        return None
    value = fit(prop.default, prop.type)
    assert not isinstance(value, Misfit), "the compiler has checked the default"
    return sql.fitted_literal(value, prop.type.scalar)
