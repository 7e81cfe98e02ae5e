"""The schema of a merge: what three schemas become, and rows of each as the merged one sees them.

A type is known by its identity, so it may have another name on each side, or not be there at all.
Nothing is read here but the rows that somebody asks for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from omnigraph.compiler.schema import SchemaConflict, merge_schemas, steps_between
from omnigraph.engine.check.bucket import TableChange
from omnigraph.engine.check.findings import Findings
from omnigraph.engine.check.rules import Entity, check_values
from omnigraph.engine.core import Core
from omnigraph.engine.evolve import TableEvolution, check_rows, checked
from omnigraph.engine.history.lift import Lift, Seen, lift
from omnigraph.engine.merge.combine import Base, shared_by
from omnigraph.engine.rows.columns import batch_schema, column_type
from omnigraph.engine.rows.parts import Stored
from omnigraph.model.graph import Snapshot
from omnigraph.model.limits import MERGE_BASE_ROUNDS_MAX
from omnigraph.model.schema import Catalog, Property
from omnigraph.storage.commit.writer import WriteContext
from omnigraph.storage.table.table import Table


def merged_schema(
    core: Core, base: Base, ours: Snapshot, theirs: Snapshot
) -> tuple[Catalog, tuple[SchemaConflict, ...]]:
    """The schema that the merge has, or our own and what stands against a merged one."""
    mine = core.catalog(ours)
    if ours.schema.fingerprint == theirs.schema.fingerprint:
        return mine, ()
    found = merge_schemas(base_catalog(core, base), mine, core.catalog(theirs))
    return found.catalog or mine, found.conflicts


def base_catalog(core: Core, base: Base) -> Catalog | None:
    """The schema of the base; several are merged first. None if that gives no single answer."""
    return _merged(core, base, base.snapshots, MERGE_BASE_ROUNDS_MAX)


def _merged(
    core: Core, base: Base, snapshots: Sequence[Snapshot], rounds_left: int
) -> Catalog | None:
    if not snapshots:
        return None
    found = core.catalog(snapshots[0])
    for at, snapshot in enumerate(snapshots[1:], start=1):
        shared = shared_by(core, base, snapshots[:at], snapshot) if rounds_left else ()
        below = _merged(core, base, shared, rounds_left - 1)
        merged = merge_schemas(below, found, core.catalog(snapshot)).catalog
        if merged is None:
            return None
        found = merged
    return found


# --- rows under the merged schema ----------------------------------------------------------------


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """How snapshots are seen under one schema."""

    core: Core
    schema: Catalog

    def twin(self, snapshot: Snapshot, entity: Entity) -> Entity | None:
        """What the type was under the snapshot's own schema; None if it was not there."""
        known = self.core.catalog(snapshot).by_type_id
        return known.get(self.schema.identities.type_id(entity.table_key))

    def of(self, snapshot: Snapshot, entity: Entity) -> Seen | None:
        """The type's table in the snapshot."""
        twin = self.twin(snapshot, entity)
        if twin is None:
            return None
        catalog = self.core.catalog(snapshot)
        return Seen(
            entry=snapshot.entries[twin.table_key],
            lift=lift(catalog, twin.table_key, entity, self.schema),
        )

    def fits(self, snapshot: Snapshot, entity: Entity) -> bool:
        """Whether the type's table has the columns of the type already, and no other."""
        twin = self.twin(snapshot, entity)
        return twin is not None and self.evolution(twin, entity, snapshot).columns.is_empty

    def evolution(self, twin: Entity, entity: Entity, snapshot: Snapshot) -> TableEvolution:
        """What the table of the snapshot's type needs to become one of the type."""
        catalog = self.core.catalog(snapshot)
        before = {one: name for name, one in catalog.property_ids(twin.table_key).items()}
        after = self.schema.property_ids(entity.table_key)
        kept = {name: before[one] for name, one in after.items() if one in before}
        types = {
            name: (twin.by_name[old].type, entity.by_name[name].type) for name, old in kept.items()
        }
        widened = [
            name for name, (old, new) in types.items() if column_type(old) != column_type(new)
        ]
        added = [one for one in entity.properties if one.name not in kept]
        return TableEvolution(
            entity=entity,
            old_key=twin.table_key,
            renamed={old: name for name, old in kept.items() if old != name},
            added=tuple(self._added(entity, one) for one in added),
            # Ours dropped a property that theirs has too: what rows hold in it now is not what they
            # held, though nobody touches them.
            regains=any(after[one.name] in catalog.identities.retired for one in added),
            widened=tuple(widened),
            relaxed=tuple(
                name
                for name, (old, new) in types.items()
                if new.nullable and not old.nullable and name not in widened
            ),
            dropped=tuple(name for one, name in before.items() if one not in after.values()),
        )

    def _added(self, entity: Entity, prop: Property) -> Property:
        """With the value that older entities get as its default."""
        return replace(prop, default=self.schema.filling(entity.table_key, prop))


class SeenRows(Stored):
    """The target's rows as the merged schema sees them, by its names."""

    def __init__(self, sight: Sight, context: WriteContext) -> None:
        snapshot = context.snapshot
        super().__init__(snapshot, lambda key: context.table(self._seen(key).entry.table_key))
        self._sight = sight
        self._found: dict[str, Seen | None] = {}

    def _perhaps(self, table_key: str) -> Seen | None:
        if table_key not in self._found:
            entity = self._sight.schema.type_of(table_key)
            self._found[table_key] = self._sight.of(self._snapshot, entity)
        return self._found[table_key]

    def _seen(self, table_key: str) -> Seen:
        seen = self._perhaps(table_key)
        assert seen is not None, "a table that is not there has no rows"
        return seen

    def is_empty(self, table_key: str) -> bool:
        seen = self._perhaps(table_key)
        return seen is None or seen.entry.row_count == 0

    def rows(self, table_key: str, columns: Sequence[str]) -> pa.Table:
        if self.is_empty(table_key):
            return self._no_rows(table_key, columns)
        seen = self._seen(table_key)
        return seen.lift.rows(
            self.table(table_key).read(columns=seen.lift.stored(columns)), columns
        )

    def _no_rows(self, table_key: str, columns: Sequence[str]) -> pa.Table:
        schema = batch_schema(self._sight.schema.type_of(table_key))
        return pa.schema([schema.field(name) for name in columns]).empty_table()

    def rows_where_in(
        self,
        table_key: str,
        column: str,
        values: pa.Array[Any],
        columns: Sequence[str],
        *,
        and_in: Mapping[str, pa.Array[Any]] | None = None,
    ) -> pa.Table:
        if len(values) == 0 or self.is_empty(table_key):
            return self._no_rows(table_key, columns)
        seen, table = self._seen(table_key), self.table(table_key)
        wanted = {column: values, **(and_in or {})}
        names = list(dict.fromkeys((*columns, *wanted)))
        asked = {
            str(seen.lift.stored_as.get(name, name)): some.to_pylist()
            for name, some in wanted.items()
            if self._as_stored(seen.lift, table, name)
        }
        stored = seen.lift.stored(names)
        if asked:
            first, *more = asked
            also = {name: asked[name] for name in more}
            found = table.lookup(first, asked[first], stored, and_in=also)
        else:
            found = table.read(columns=stored)
        rows = seen.lift.rows(found, names)
        for name, some in wanted.items():
            listed: Any = some.cast(rows.schema.field(name).type)
            rows = rows.filter(pc.is_in(rows[name], value_set=listed))
        return rows.select(list(columns))

    @staticmethod
    def _as_stored(lifting: Lift, table: Table, name: str) -> bool:
        """Whether the values of a column are stored as they are seen, so that the table can be
        asked for them."""
        source = lifting.stored_as.get(name, name)
        if source is None:
            return False
        return bool(
            table.schema.field(source).type == batch_schema(lifting.entity).field(name).type
        )


def check_new_rules(
    sight: Sight, changes: Mapping[str, TableChange], stored: SeenRows, found: Findings
) -> None:
    """What the other side asks of our rows that our schema did not: rules, and values that have to
    be there. All rows of the type count, as they will be."""
    snapshot = stored.snapshot
    steps = steps_between(sight.core.catalog(snapshot), sight.schema)
    for entity in sight.schema.types():
        key = entity.table_key
        twin = sight.twin(snapshot, entity)
        if twin is None or stored.is_empty(key):
            continue
        named = [one for one in checked(steps) if f"{one.type_kind}:{one.type_name}" == key]
        rows = partial(_rows_after, stored, changes.get(key), key)
        check_rows(entity, named, rows, found)
        for prop in sight.evolution(twin, entity, snapshot).added:
            if not prop.type.nullable and prop.default is None:
                for batch in rows(["id", prop.name]):
                    check_values(_lone(entity, prop), batch, found)


def _lone(entity: Entity, prop: Property) -> Entity:
    """A type with that one property is all that a check of its values has to know."""
    bare: Any = {"ranges": (), "checks": (), "key": ()} if entity.kind == "node" else {}
    return replace(entity, properties=(prop,), **bare)


def _rows_after(
    stored: SeenRows, change: TableChange | None, key: str, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Some columns of all rows of a type after the merge."""
    names = list(dict.fromkeys((*columns, "id")))
    rows = stored.rows(key, names)
    if change is not None:
        touched: Any = pa.array(
            sorted({*change.deleted, *change.rows["id"].to_pylist()}), pa.string()
        )
        rows = rows.filter(pc.invert(pc.is_in(rows["id"], value_set=touched)))
        rows = pa.concat_tables([rows, change.rows.select(names).cast(rows.schema)])
    yield rows.select(list(columns))
