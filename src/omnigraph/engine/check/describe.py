"""Offences in words: the same ones, in the same order, for every kind of write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from omnigraph.engine.check.bucket import Offence, Offences, Section
from omnigraph.engine.check.decide import Kind
from omnigraph.engine.check.findings import Findings, Place, Violation
from omnigraph.engine.check.rules import Endpoint, Entity, OutDegree, label_of, rules_of
from omnigraph.model.schema import Catalog, EdgeType, NodeType


class RowNames(Protocol):
    """Where new rows came from, and what they are called."""

    def place(self, table_key: str, row: int) -> Place | None: ...

    def entity_id(self, table_key: str, row: int) -> str: ...


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
            return existing(entity, offence.value, place)
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
            return degree_broken(entity, rules.out_degree, offence.value, offence.count, place)


def repeated(
    entity: Entity, columns: Sequence[str], value: str, ids: Sequence[str], place: Place | None
) -> Violation:
    """Two rows that agree where no two may; `ids` names their entities."""
    held = " and ".join(f"'{one}'" for one in ids[:2])
    return Violation(
        kind="unique",
        entity_kind=entity.kind,
        type_name=entity.name,
        property=label_of(columns),
        value=value,
        ids=tuple(ids),
        text=f"@unique violation on {entity.name}.{label_of(columns)}: "
        f"value '{value}' held by {held}",
        place=place,
    )


def repeated_id(entity: Entity, entity_id: str, places: Sequence[Place | None]) -> Violation:
    """One id given to several rows of one batch."""
    key = entity.key if isinstance(entity, NodeType) else ()
    columns = key or ("id",)
    where = " and ".join(str(place) for place in places[:2] if place)
    return Violation(
        kind="unique",
        entity_kind=entity.kind,
        type_name=entity.name,
        property=label_of(columns),
        value=entity_id,
        ids=(entity_id,),
        text=f"@unique violation on {entity.name}.{label_of(columns)}: "
        f"value '{entity_id}' appears in {where or 'several rows'}",
        place=places[1] if len(places) > 1 else None,
    )


def existing(entity: Entity, entity_id: str, place: Place | None) -> Violation:
    """A record of a strict insert whose id is stored already."""
    key = entity.key if isinstance(entity, NodeType) else ()
    return Violation(
        kind="conflict",
        entity_kind=entity.kind,
        type_name=entity.name,
        property=label_of(key or ("id",)),
        value=entity_id,
        ids=(entity_id,),
        text=f"{entity.kind} {entity.name} '{entity_id}' already exists",
        place=place,
    )


def dangling(
    edge: EdgeType, rule: Endpoint, endpoint: str, edge_id: str, place: Place | None
) -> Violation:
    """An edge whose end is no node."""
    return Violation(
        kind="endpoint",
        entity_kind="edge",
        type_name=edge.name,
        property=rule.column,
        value=endpoint,
        ids=(edge_id,),
        text=f"edge {edge.name}: {rule.column} '{endpoint}' not found in {rule.node_type}",
        place=place,
    )


def degree_broken(
    edge: EdgeType, rule: OutDegree, source: str, count: int, place: Place | None
) -> Violation | None:
    """A source with too many or too few edges, or None if the number is right."""
    if rule.maximum is not None and count > rule.maximum:
        bound = f"max {rule.maximum}"
    elif count < rule.minimum:
        bound = f"min {rule.minimum}"
    else:
        return None
    return Violation(
        kind="cardinality",
        entity_kind="edge",
        type_name=edge.name,
        property="src",
        value=source,
        ids=(source,),
        text=f"@card violation on edge {edge.name}: source '{source}' has {count} edges ({bound})",
        place=place,
    )
