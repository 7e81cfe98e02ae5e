"""Rows that were stored under one schema, shown under another one of the same history.

What goes together is found by identity, never by name or by a number of Lance's: a renamed property
is read from where it is stored, a wider one is cast, one that was not there holds what an apply
would have filled in, and one that is gone is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from omnigraph.engine.arrow import nulls
from omnigraph.engine.check.rules import Entity
from omnigraph.engine.rows.columns import batch_schema, column_type, default_cell
from omnigraph.model.graph import TableEntry
from omnigraph.model.schema import ROW_ID, Catalog, LiteralValue, Property, PropertyType, Scalar

# Of two types of one property, the one that can say every value of the other.
_WIDER: Final = frozenset({(Scalar.I64, Scalar.I32), (Scalar.F64, Scalar.F32)})


class Lift(msgspec.Struct, frozen=True, kw_only=True):
    """How a table's rows are seen as rows of `entity`."""

    entity: Entity
    # What each column is called where it is stored, if not by its name; None = it is not there.
    stored_as: Mapping[str, str | None] = msgspec.field(default_factory=dict)
    # What entities hold for a property that is not there, if not null.
    filled: Mapping[str, LiteralValue] = msgspec.field(default_factory=dict)
    # Whether entities that nobody touched may differ too: the stored schema dropped a property that
    # is shown, or filled it with something else (both added it, each on a branch of its own).
    untouched_differ: bool = False

    def stored(self, columns: Sequence[str]) -> list[str]:
        """What has to be read of the table to show these columns."""
        names = (self.stored_as.get(name, name) for name in columns)
        return [name for name in names if name is not None]

    def rows(self, stored: pa.Table, columns: Sequence[str]) -> pa.Table:
        """The stored rows in these columns of the entity; a row id stays."""
        types = {field.name: field.type for field in batch_schema(self.entity)}
        wanted = [(name, types[name]) for name in columns]
        if ROW_ID in stored.column_names:
            wanted.append((ROW_ID, stored[ROW_ID].type))
        return pa.Table.from_arrays(
            [self._column(stored, name, kind) for name, kind in wanted],
            names=[name for name, _ in wanted],
        )

    def _column(self, stored: pa.Table, name: str, to: Any) -> Any:
        source = self.stored_as.get(name, name)
        if source is not None:
            column = stored[source]
            return column if column.type == to else column.cast(to)
        if name in self.filled:
            prop = replace(self.entity.by_name[name], default=self.filled[name])
            return pa.repeat(default_cell(prop), stored.num_rows)
        return nulls(stored.num_rows, to)


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a table, and how its rows are to be seen."""

    entry: TableEntry
    lift: Lift

    @classmethod
    def plain(cls, entity: Entity, entry: TableEntry) -> Seen:
        """As they are: the entity is the one that they were stored as."""
        return cls(entry=entry, lift=Lift(entity=entity))


def lift(stored: Catalog, key: str, entity: Entity, shown: Catalog) -> Lift:
    """How rows of the table `key` of the stored schema are seen as rows of `entity`, a type of the
    shown schema (or that type with wider properties)."""
    if stored is shown and key == entity.table_key:
        return Lift(entity=entity)
    names = {one: name for name, one in stored.property_ids(key).items()}
    ids = shown.property_ids(entity.table_key)
    stored_as = {name: names.get(one) for name, one in ids.items() if names.get(one) != name}
    filled: dict[str, LiteralValue] = {}
    untouched_differ = False
    for prop in shown.type_of(entity.table_key).properties:
        value = shown.filling(entity.table_key, prop)
        source = names.get(ids[prop.name])
        old = None if source is None else stored.type_of(key).by_name[source]
        if old is not None and _can_be_seen(old.type, entity.by_name[prop.name].type):
            untouched_differ |= not _fill_alike((old, stored.filling(key, old)), (prop, value))
            continue
        # Two branches may have added one property with types that say nothing of each other; graphs
        # of older releases may take another one for it, by its name. Either is not there.
        if old is not None:
            stored_as[prop.name] = None
        untouched_differ |= ids[prop.name] in stored.identities.retired
        if value is not None:
            filled[prop.name] = value
    return Lift(
        entity=entity, stored_as=stored_as, filled=filled, untouched_differ=untouched_differ
    )


def _can_be_seen(stored: PropertyType, shown: PropertyType) -> bool:
    """Whether values of the one type are values of the other, or become such by a cast."""
    return column_type(stored) == column_type(shown) or _is_wider(shown, stored)


def _fill_alike(*each: tuple[Property, LiteralValue | None]) -> bool:
    """Whether two fillings of one property are the same, stored as wide as each has it: 0.1 in 32
    bits is another number than in 64."""
    (one, value), (other, another) = each
    if value is None or another is None or column_type(one.type) == column_type(other.type):
        return value == another
    cells = (default_cell(replace(prop, default=filling)).as_py() for prop, filling in each)
    return bool(next(cells) == next(cells))


def comparable(entity: Entity, catalog: Catalog, other: Catalog) -> Entity:
    """The type as `catalog` has it, with every property as wide as either schema has it, so that
    rows of both can be compared."""
    twin = other.by_type_id.get(catalog.identities.type_id(entity.table_key))
    if twin is None or twin == entity:
        return entity
    theirs = {
        other.identities.property_id(twin.table_key, one.name): one for one in twin.properties
    }
    ids = catalog.property_ids(entity.table_key)
    properties = tuple(_wide(one, theirs.get(ids[one.name])) for one in entity.properties)
    return entity if properties == entity.properties else replace(entity, properties=properties)


def _wide(prop: Property, other: Property | None) -> Property:
    if other is None or not _is_wider(other.type, prop.type):
        return prop
    return replace(prop, type=replace(prop.type, scalar=other.type.scalar))


def _is_wider(one: PropertyType, other: PropertyType) -> bool:
    return (one.scalar, other.scalar) in _WIDER and one.is_list == other.is_list
