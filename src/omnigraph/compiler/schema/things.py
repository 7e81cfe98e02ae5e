"""A schema taken apart by identity: every type and property by its id, with what is said of it.

Names are facts like any other here, and whatever refers to a type or property does so by id. So two
schemas can be compared, and merged, whatever their things are called. `whole` puts a schema
together again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.schema.compile import compile_schema, constraints_of, with_key_order
from omnigraph.compiler.schema.identity import AnyType, all_types, fresh, retiring, type_key
from omnigraph.compiler.schema.printer import print_schema
from omnigraph.model import plan
from omnigraph.model.schema import (
    Annotation,
    Cardinality,
    Catalog,
    Check,
    EdgeType,
    Identities,
    InterfaceType,
    LiteralValue,
    NodeType,
    Property,
    PropertyType,
    Range,
)

Facts = Mapping[str, Any]
# A kind and what it is about: ("unique", {ids}), ("index", {ids}), ("check", {id}, pattern).
ConstraintId = tuple[Any, ...]

UNSAID: Final = ()  # of a fact that a thing does not have
_ENDS: Final = ("src", "dst")


class PropertyThing(msgspec.Struct, frozen=True, kw_only=True):
    """A property. An inherited one is told by its interface: it has only its own range."""

    id: str
    facts: Facts
    origin: str | None = None  # the id of the interface's property, if inherited
    filling: LiteralValue | None = None  # what entities have that were there before it
    made: Property  # as its catalog has it

    @property
    def name(self) -> str:
        return self.made.name


class TypeThing(msgspec.Struct, frozen=True, kw_only=True):
    """A type with its properties by id, in the order of their declaration."""

    id: str
    kind: plan.TypeKind
    facts: Facts
    properties: Mapping[str, PropertyThing]
    constraints: Mapping[ConstraintId, plan.SchemaConstraint]
    made: AnyType

    @property
    def name(self) -> str:
        return self.made.name


class Things(msgspec.Struct, frozen=True, kw_only=True):
    """A schema, taken apart."""

    types: Mapping[str, TypeThing]

    def has(self, id_: str) -> bool:
        """Whether there is a type or a property with that id."""
        return id_ in self.types or any(id_ in one.properties for one in self.types.values())


def things_of(catalog: Catalog) -> Things:
    """The schema's things by id."""
    types: tuple[AnyType, ...] = (
        *catalog.interfaces.values(),
        *catalog.nodes.values(),
        *catalog.edges.values(),
    )
    made = [_type(one, catalog) for one in types]
    return Things(types={one.id: one for one in made})


def _type(made: AnyType, catalog: Catalog) -> TypeThing:
    identities, key = catalog.identities, type_key(made)
    ids = {prop.name: identities.property_id(key, prop.name) for prop in made.properties}
    facts: dict[str, Any] = {"name": made.name}
    constraints: dict[ConstraintId, plan.SchemaConstraint] = {}
    ranges: dict[str, set[Range]] = {}
    if not isinstance(made, InterfaceType):
        facts |= _notes(made.annotations)
        for each in constraints_of(made):
            match each:
                case plan.KeyConstraint():
                    facts["key"] = tuple(ids[name] for name in each.properties)
                case Range():
                    ranges.setdefault(each.property, set()).add(replace(each, property=""))
                case _:
                    constraints[_constraint_id(each, ids)] = each
    if isinstance(made, NodeType):
        facts["interfaces"] = frozenset(
            identities.type_id(f"interface:{name}") for name in made.implements
        )
    if isinstance(made, EdgeType):
        ends = (made.from_type, made.to_type)
        facts["ends"] = tuple(identities.type_id(f"node:{name}") for name in ends)
        facts["cardinality"] = made.cardinality
    properties = [
        _property(prop, ids, frozenset(ranges.get(prop.name, ())), catalog, key)
        for prop in made.properties
    ]
    return TypeThing(
        id=identities.type_id(key),
        kind="interface" if isinstance(made, InterfaceType) else made.kind,
        facts=facts,
        properties={one.id: one for one in properties},
        constraints=constraints,
        made=made,
    )


def _constraint_id(each: plan.SchemaConstraint, ids: Mapping[str, str]) -> ConstraintId:
    match each:
        case plan.UniqueConstraint():
            return ("unique", frozenset(ids.get(name, name) for name in each.properties))
        case plan.IndexConstraint():
            return ("index", frozenset(ids.get(name, name) for name in each.properties))
        case Check():
            return ("check", frozenset({ids.get(each.property, each.property)}), each.pattern)
        case _:
            raise AssertionError("keys and ranges are facts of their type and property")


def _property(
    made: Property, ids: Mapping[str, str], ranges: frozenset[Range], catalog: Catalog, key: str
) -> PropertyThing:
    facts: dict[str, Any] = {}
    origin = None
    if made.inherited_from is None:
        facts |= {
            "name": made.name,
            "shape": replace(made.type, nullable=False, enum_values=None),
            "nullable": made.type.nullable,
            "enum": made.type.enum_values,
            **_notes(made.annotations, ids),
        }
    else:
        interface = f"interface:{made.inherited_from}"
        origin = catalog.identities.property_id(interface, made.name)
    if ranges:
        facts["range"] = ranges
    return PropertyThing(
        id=ids[made.name],
        facts=facts,
        origin=origin,
        filling=catalog.filling(key, made),
        made=made,
    )


def _notes(notes: Iterable[Annotation], ids: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The annotations by name, `@embed` with the id of its source."""
    found: dict[str, Any] = {}
    for note in notes:
        if note.name == "rename_from":
            continue  # has done its work
        if note.name == "embed" and ids is not None:
            source = str(note.value)
            note = replace(note, value=ids.get(source, source))
        told = replace(note, kwargs=tuple(sorted(note.kwargs)))
        found[f"@{note.name}"] = (*found.get(f"@{note.name}", ()), told)
    return found


# --- together again ----------------------------------------------------------------------------


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A type of a schema to be: its facts, its own and inherited properties', its constraints."""

    id: str
    kind: plan.TypeKind
    facts: Facts
    properties: Mapping[str, Facts]  # own ones first come by their facts; inherited have no name
    origins: Mapping[str, str]  # inherited properties: to those of their interfaces
    constraints: tuple[ConstraintId, ...]
    fillings: Mapping[str, LiteralValue | None] = msgspec.field(default_factory=dict)

    @property
    def name(self) -> str:
        name: str = self.facts["name"]
        return name


class Names(msgspec.Struct, frozen=True, kw_only=True):
    """What the things of some drafts are called."""

    types: Mapping[str, str]
    properties: Mapping[str, Mapping[str, str]]  # by type id; inherited ones included

    @classmethod
    def of(cls, drafts: Iterable[Draft]) -> Names:
        drafts = tuple(drafts)
        own = {
            one.id: {id_: facts["name"] for id_, facts in one.properties.items() if "name" in facts}
            for one in drafts
        }
        at_interface = {id_: name for names in own.values() for id_, name in names.items()}
        return cls(
            types={one.id: one.name for one in drafts},
            properties={
                one.id: own[one.id]
                | {
                    id_: at_interface[origin]
                    for id_, origin in one.origins.items()
                    if origin in at_interface
                }
                for one in drafts
            },
        )

    def missing(self, draft: Draft) -> Iterator[str]:
        """The ids that the draft refers to and that nothing has."""
        known = self.properties[draft.id]
        wanted = [*draft.facts.get("key", ())]
        wanted += [id_ for each in draft.constraints for id_ in sorted(each[1])]
        for facts in draft.properties.values():
            wanted += [str(note.value) for note in facts.get("@embed", ())]
        yield from (id_ for id_ in dict.fromkeys(wanted) if id_ not in known and id_ not in _ENDS)
        types = [*draft.facts.get("ends", ()), *sorted(draft.facts.get("interfaces", ()))]
        yield from (id_ for id_ in dict.fromkeys(types) if id_ not in self.types)


def whole(drafts: Iterable[Draft], *, retired: frozenset[str]) -> Catalog:
    """The schema of these drafts, compiled from its text; `InputError` if it does not compile."""
    drafts = tuple(drafts)
    names = Names.of(drafts)
    made = [_made(one, names) for one in drafts]
    bare = Catalog(
        interfaces={one.name: one for one in made if isinstance(one, InterfaceType)},
        nodes={one.name: one for one in made if isinstance(one, NodeType)},
        edges={one.name: one for one in made if isinstance(one, EdgeType)},
        source="",
        ir="",
        hash="",
    )
    compiled = compile_schema(print_schema(bare), name="merged schema")
    keys = {one.name: one.key for one in made if isinstance(one, NodeType) and one.key}
    catalog = with_key_order(compiled, keys)
    return replace(catalog, identities=_identities(catalog, drafts, names, retired))


def _made(draft: Draft, names: Names) -> AnyType:
    known = {name: name for name in _ENDS} | dict(names.properties[draft.id])
    properties = tuple(
        _made_property(facts, known) for facts in draft.properties.values() if "name" in facts
    )
    if draft.kind == "interface":
        return InterfaceType(name=draft.name, properties=properties)
    columns: dict[str, list[tuple[str, ...]]] = {"unique": [], "index": []}
    checks: list[Check] = []
    for kind, ids, *pattern in draft.constraints:
        called = tuple(sorted(known[id_] for id_ in ids))
        if kind == "check":
            checks.append(Check(property=called[0], pattern=pattern[0]))
        else:
            columns[kind].append(called)
    ranges = [
        replace(bounds, property=known[id_])
        for id_, facts in draft.properties.items()
        for bounds in sorted(facts.get("range", ()), key=repr)
    ]
    shared: Any = {
        "name": draft.name,
        "properties": properties,
        "unique": tuple(columns["unique"]),
        "index": tuple(columns["index"]),
        "annotations": _annotations(draft.facts),
    }
    if draft.kind == "edge":
        source, target = (names.types[id_] for id_ in draft.facts["ends"])
        bounds: Cardinality = draft.facts["cardinality"]
        return EdgeType(**shared, from_type=source, to_type=target, cardinality=bounds)
    return NodeType(
        **shared,
        key=tuple(known[id_] for id_ in draft.facts.get("key", ())),
        ranges=tuple(ranges),
        checks=tuple(checks),
        implements=tuple(sorted(names.types[id_] for id_ in draft.facts["interfaces"])),
    )


def _made_property(facts: Facts, known: Mapping[str, str]) -> Property:
    shape: PropertyType = facts["shape"]
    notes = (
        replace(note, value=known[str(note.value)]) if note.name == "embed" else note
        for note in _annotations(facts)
    )
    return Property(
        name=facts["name"],
        type=replace(shape, nullable=facts["nullable"], enum_values=facts["enum"]),
        annotations=tuple(notes),
    )


def _annotations(facts: Facts) -> tuple[Annotation, ...]:
    return tuple(note for name in sorted(facts) if name.startswith("@") for note in facts[name])


def _identities(
    catalog: Catalog, drafts: Iterable[Draft], names: Names, retired: frozenset[str]
) -> Identities:
    """Only what the names do not tell is said."""
    born: dict[str, str] = {}
    filled: dict[str, LiteralValue | None] = {}
    alive: set[str] = set()
    types = {type_key(one): one for one in all_types(catalog)}
    for draft in drafts:
        key = f"{draft.kind}:{draft.name}"
        if draft.id != key:
            born[key] = draft.id
        alive.add(draft.id)
        ids = {name: id_ for id_, name in names.properties[draft.id].items()}
        for prop in types[key].properties:
            id_ = ids.get(prop.name) or fresh(f"{draft.id}.{prop.name}", retired)
            if id_ != f"{draft.id}.{prop.name}":
                born[f"{key}.{prop.name}"] = id_
            alive.add(id_)
            filling = draft.fillings.get(id_, prop.default)
            if filling != prop.default:
                filled[id_] = filling
    return retiring(Identities(born=born, filled=filled), retired, alive)
