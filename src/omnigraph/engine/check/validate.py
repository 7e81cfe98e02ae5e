"""The change of a mutation or a merge against the graph that it would make, and offences in words:
the same ones, in the same order, for every kind of write.

Values first: rows that are not what they should be make no sense to the rest. Then uniqueness, ends
and number of edges, all findings together. Stored rows count unless the change replaces or deletes
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Protocol

import pyarrow as pa

from omnigraph.engine.check.bucket import (
    Changes,
    MemoryBucket,
    Offence,
    Offences,
    Section,
)
from omnigraph.engine.check.decide import Kind, decide, decide_unique_in
from omnigraph.engine.check.findings import Findings, Place, Violation, violated
from omnigraph.engine.check.rules import (
    Endpoint,
    Entity,
    Unique,
    check_values,
    label_of,
    rules_of,
)
from omnigraph.engine.rows.parts import Stored
from omnigraph.model.schema import Cardinality, Catalog, EdgeType, NodeType

PlaceOf = Callable[[str, str], Place | None]  # by table and id


def nowhere(_table_key: str, _entity_id: str) -> None:
    """What a merge writes has no place."""


def validate(
    changes: Changes,
    catalog: Catalog,
    stored: Stored,
    found: Findings,
    *,
    place_of: PlaceOf = nowhere,
) -> None:
    """Raise `ConstraintViolationError` unless the graph after the change obeys the schema."""
    validate_values(changes, catalog, found, place_of=place_of)
    validate_rows(changes, catalog, stored, found, place_of=place_of)


def look_up(changes: Changes, stored: Stored) -> None:
    """Ask each table once for every id that a small change needs to know about."""
    wanted: dict[str, set[str]] = {}
    for key, change in changes.items():
        if not (change.fresh or change.replaces_all):
            wanted.setdefault(key, set()).update(change.rows["id"].to_pylist())
        for rule in rules_of(change.entity).endpoints:
            if change.touches([rule.column]):
                ends = wanted.setdefault(f"node:{rule.node_type}", set())
                ends.update(change.rows[rule.column].to_pylist())
    for key, ids in sorted(wanted.items()):
        stored.locate(key, ids)


def validate_values(
    changes: Changes, catalog: Catalog, found: Findings, *, place_of: PlaceOf = nowhere
) -> None:
    """The first half: each value by itself. `found` may already hold values of wrong types."""
    names = _Names(changes, place_of)
    for entity in catalog.types():
        if entity.table_key in changes:
            rows = changes[entity.table_key].rows
            check_values(entity, rows, found, place_of=partial(names.place, entity.table_key))
    found.raise_if_any()


def validate_rows(
    changes: Changes,
    catalog: Catalog,
    stored: Stored,
    found: Findings,
    *,
    place_of: PlaceOf = nowhere,
) -> None:
    """The second half: rows against each other and against stored ones."""
    kinds: tuple[Kind, ...] = ("unique", "ends", "degrees")
    _decide(changes, catalog, stored, kinds, found, place_of)
    found.raise_if_any()


def find_orphans(changes: Changes, catalog: Catalog, stored: Stored, found: Findings) -> None:
    """Stored edges whose node the change deletes without them."""
    _decide(changes, catalog, stored, ("orphans",), found)


def _decide(
    changes: Changes,
    catalog: Catalog,
    stored: Stored,
    kinds: Sequence[Kind],
    found: Findings,
    place_of: PlaceOf = nowhere,
) -> None:
    offences = Offences(found.room)
    decide(MemoryBucket(changes, stored), changes, catalog, kinds, offences)
    describe(offences, catalog, _Names(changes, place_of, stored), kinds, found)


class _Names:
    """The rows of changes by their numbers; `stored` tells of edges that are taken away."""

    def __init__(self, changes: Changes, place_of: PlaceOf, stored: Stored | None = None) -> None:
        self._changes, self._place_of, self._stored = changes, place_of, stored

    def place(self, table_key: str, row: int) -> Place | None:
        return self._place_of(table_key, self.entity_id(table_key, row))

    def entity_id(self, table_key: str, row: int) -> str:
        return self._changes[table_key].rows["id"][row].as_py() or ""

    def left(self, table_key: str, source: str) -> Place | None:
        assert self._stored is not None, "only rows against stored ones are counted"
        change = self._changes[table_key]
        ids = pa.array([*change.rows["id"].to_pylist(), *sorted(change.deleted)], pa.string())
        rows = self._stored.rows_where_in(table_key, "id", ids, ["id", "src"])
        pairs = zip(rows["id"].to_pylist(), rows["src"].to_pylist(), strict=True)
        places = (self._place_of(table_key, str(one)) for one, begin in pairs if begin == source)
        return max(filter(None, places), key=lambda place: place.at, default=None)


def check_unique(entity: Entity, rule: Unique, rows: pa.Table, found: Findings) -> None:
    """A rule that a schema adds, over all rows of a table."""
    offences, section = Offences(found.room), Section("unique", entity.table_key, rule.label)
    decide_unique_in(entity.table_key, rule, rows, offences)
    found.add(
        [
            repeated(entity, rule.columns, one.value, (one.rival_id, one.row_id), None)
            for one in offences.listed(section)
        ],
        total=offences.total(section),
    )


# --- offences in words ------------------------------------------------------------------------


class RowNames(Protocol):
    """Where new rows came from, and what they are called."""

    def place(self, table_key: str, row: int) -> Place | None: ...

    def entity_id(self, table_key: str, row: int) -> str: ...

    def left(self, table_key: str, source: str) -> Place | None:
        """Where the last edge was taken away that had begun there."""
        ...


def describe(
    offences: Offences, catalog: Catalog, names: RowNames, kinds: Sequence[Kind], found: Findings
) -> None:
    """Add the offences of these kinds to what was found, rule by rule."""
    for section in sections(catalog, kinds):
        listed = offences.listed(section)[: found.room]
        violations = (_violation(section, offence, catalog, names) for offence in listed)
        found.add([one for one in violations if one], total=offences.total(section))


def sections(catalog: Catalog, kinds: Sequence[Kind]) -> Iterator[Section]:
    """Every rule that rows can break, in the order of checking."""
    types = list(catalog.types())
    if "ids" in kinds:
        keys = sorted(entity.table_key for entity in types)
        yield from (Section("repeated", key, "id") for key in keys)
        yield from (Section("existing", key, "id") for key in keys)
    for entity in types if "unique" in kinds else ():
        for rule in rules_of(entity).unique:
            yield Section("unique", entity.table_key, rule.label)
            yield Section("held", entity.table_key, rule.label)
    for entity in types if "ends" in kinds or "orphans" in kinds else ():
        if isinstance(entity, EdgeType):
            for end in rules_of(entity).endpoints:
                yield Section("dangling", entity.table_key, end.column)
            continue
        for edge in catalog.edges_touching(entity.name):
            for end in rules_of(edge).endpoints:
                if end.node_type == entity.name:
                    yield Section("kept", edge.table_key, end.column)
    for entity in types if "degrees" in kinds else ():
        if rules_of(entity).out_degree:
            yield Section("degree", entity.table_key, "src")


def _violation(
    section: Section, offence: Offence, catalog: Catalog, names: RowNames
) -> Violation | None:
    key = section.table_key
    entity, rules = catalog.type_of(key), rules_of(catalog.type_of(key))
    place = names.place(key, offence.row) if offence.row >= 0 else None
    match section.kind:
        case "repeated":
            return repeated_id(entity, offence.value, [names.place(key, offence.rival), place])
        case "existing":
            return _existing(entity, offence.value, place)
        case "unique" | "held":
            rule = next(rule for rule in rules.unique if rule.label == section.label)
            ids = (offence.rival_id, offence.row_id)
            return repeated(entity, rule.columns, offence.value, ids, place)
        case "dangling" | "kept":
            assert isinstance(entity, EdgeType), "only edges have ends"
            end = next(end for end in rules.endpoints if end.column == section.label)
            edge_id = offence.row_id or names.entity_id(key, offence.row)
            return dangling(entity, end, offence.value, edge_id, place)
        case "degree":
            assert isinstance(entity, EdgeType), "only edges are counted"
            assert rules.out_degree is not None, "what is broken is a rule"
            if offence.count < rules.out_degree.minimum:
                place = names.left(key, offence.value) or place
            return degree_broken(entity, rules.out_degree, offence.value, offence.count, place)


def repeated(
    entity: Entity, columns: Sequence[str], value: str, ids: Sequence[str], place: Place | None
) -> Violation:
    """Two rows that agree where no two may; `ids` names their entities."""
    label, held = label_of(columns), " and ".join(f"'{one}'" for one in ids[:2])
    text = f"@unique violation on {entity.name}.{label}: value '{value}' held by {held}"
    return violated(entity, "unique", label, text, value=value, ids=ids, place=place)


def repeated_id(entity: Entity, entity_id: str, places: Sequence[Place | None]) -> Violation:
    """One id given to several rows of one batch."""
    label = _id_label(entity)
    where = " and ".join(str(place) for place in places[:2] if place) or "several rows"
    text = f"@unique violation on {entity.name}.{label}: value '{entity_id}' appears in {where}"
    place = places[1] if len(places) > 1 else None
    return violated(entity, "unique", label, text, value=entity_id, ids=(entity_id,), place=place)


def _existing(entity: Entity, entity_id: str, place: Place | None) -> Violation:
    """A record of a strict insert whose id is stored already."""
    label, text = _id_label(entity), f"{entity.kind} {entity.name} '{entity_id}' already exists"
    return violated(entity, "conflict", label, text, value=entity_id, ids=(entity_id,), place=place)


def _id_label(entity: Entity) -> str:
    return label_of((entity.key if isinstance(entity, NodeType) else ()) or ("id",))


def dangling(
    edge: EdgeType, rule: Endpoint, endpoint: str, edge_id: str, place: Place | None
) -> Violation:
    """An edge whose end is no node."""
    text = f"edge {edge.name}: {rule.column} '{endpoint}' not found in {rule.node_type}"
    return violated(
        edge, "endpoint", rule.column, text, value=endpoint, ids=(edge_id,), place=place
    )


def degree_broken(
    edge: EdgeType, rule: Cardinality, source: str, count: int, place: Place | None
) -> Violation | None:
    """A source with too many or too few edges, or None if the number is right."""
    if rule.maximum is not None and count > rule.maximum:
        bound = f"max {rule.maximum}"
    elif count < rule.minimum:
        bound = f"min {rule.minimum}"
    else:
        return None
    text = f"@card violation on edge {edge.name}: source '{source}' has {count} edges ({bound})"
    return violated(edge, "cardinality", "src", text, value=source, ids=(source,), place=place)
