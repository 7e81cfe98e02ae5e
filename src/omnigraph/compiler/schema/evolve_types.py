"""What changes inside one type that both schemas have: its properties, constraints, annotations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from omnigraph.compiler.schema.ir import annotations_json, constraints_of
from omnigraph.compiler.schema.resolve import Matching, match_names
from omnigraph.model.plan import (
    AddConstraint,
    AddProperty,
    Code,
    DropMode,
    DropProperty,
    ExtendEnum,
    IndexConstraint,
    JsonObject,
    KeyConstraint,
    RelaxNullability,
    RemoveConstraint,
    RenameProperty,
    SchemaConstraint,
    SchemaStep,
    Tier,
    TypeKind,
    UniqueConstraint,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
    WidenProperty,
    constraint_json,
    property_type_json,
)
from omnigraph.model.schema import (
    Annotation,
    Check,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    PropertyType,
    Range,
    Scalar,
)

ENTITY_HINT = "export the entities, load them into it, then drop the old one"
_UNKNOWN_PROPERTY = "but no accepted property with that name exists under the stable owner"
_WIDENINGS = frozenset({(Scalar.I32, Scalar.I64), (Scalar.F32, Scalar.F64)})
_TYPE_TEXTS = frozenset({"description", "instruction"})
_PROPERTY_TEXTS = frozenset({"description", "default"})
_MADE_BY_OWN_STEPS = frozenset({"rename_from", "embed"})

AnyType = InterfaceType | NodeType | EdgeType


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A type as accepted and as desired, and which property became which."""

    kind: TypeKind
    old: AnyType
    new: AnyType
    properties: Matching
    mode: DropMode

    @classmethod
    def of(cls, old: AnyType, new: AnyType, *, mode: DropMode) -> Pair:
        kind: TypeKind = "interface" if isinstance(new, InterfaceType) else new.kind
        matching = match_names(
            label=f"property {new.name}.",
            unknown=_UNKNOWN_PROPERTY,
            accepted={prop.name: prop.rename_from for prop in old.properties},
            hints={prop.name: prop.rename_from for prop in new.properties},
        )
        return cls(kind=kind, old=old, new=new, properties=matching, mode=mode)

    @property
    def entity(self) -> str:
        return f"{self.kind}:{self.new.name}"

    def now(self, name: str) -> str:
        """The desired name of an accepted property; dropped ones and `src`, `dst` keep theirs."""
        return self.properties.desired_of.get(name, name)

    @property
    def accepted_key(self) -> tuple[str, ...]:
        """The accepted key under the desired names, in identity order."""
        return tuple(map(self.now, self.old.key)) if isinstance(self.old, NodeType) else ()

    @property
    def same_key(self) -> bool:
        return isinstance(self.new, NodeType) and set(self.accepted_key) == set(self.new.key)


# --- properties --------------------------------------------------------------------------------


def property_steps(pair: Pair) -> Iterator[SchemaStep]:
    """Renames, additions, changes, drops: in the order in which they make sense to a reader."""
    old_by_name = {prop.name: prop for prop in pair.old.properties}
    new_by_name = {prop.name: prop for prop in pair.new.properties}
    kept = sorted(pair.properties.accepted_of.items())
    for name, before in kept:
        if name != before:
            yield RenameProperty(
                type_kind=pair.kind, type_name=pair.new.name, from_name=before, to=name
            )
    for name in pair.properties.added:
        yield _added(pair, new_by_name[name])
    for name, before in kept:
        yield from _changed(pair, old_by_name[before], new_by_name[name])
    for name in pair.properties.dropped:
        yield DropProperty(
            type_kind=pair.kind, type_name=pair.new.name, property_name=name, mode=pair.mode
        )


def _added(pair: Pair, made: Property) -> SchemaStep:
    needs_value = not made.type.nullable and made.default is None
    # An interface stores nothing; the nodes that implement it have steps of their own.
    if needs_value and pair.kind != "interface":
        has_defaults = not made.type.is_list and made.type.scalar not in (
            Scalar.VECTOR,
            Scalar.BLOB,
        )
        choice = " or give it a `@default(…)`" if has_defaults else ""
        return UnsupportedChange(
            entity=f"{pair.entity}.{made.name}",
            reason="adding a required property without a default is not supported: "
            "existing entities would have no value",
            code=Code.REQUIRED_WITHOUT_DEFAULT.value,
            hint=f"make it nullable (`{made.name}: {made.type}?`){choice}",
            tier=Tier.VALIDATED,
        )
    return AddProperty(
        type_kind=pair.kind,
        type_name=pair.new.name,
        property_name=made.name,
        property_type=property_type_json(made.type),
        property=made,
    )


def _changed(pair: Pair, old: Property, new: Property) -> Iterator[SchemaStep]:
    entity = f"{pair.entity}.{new.name}"
    if old.type != new.type:
        yield _type_change(pair, new.name, old.type, new.type)
    if _provenance_moved(pair, old, new):
        yield UnsupportedChange(
            entity=entity,
            reason="changing declaration provenance (the type's own or an interface's) "
            "is not supported",
            hint="leave the property declared where it was",
        )
    if _renamed_embed(pair, old) != new.embed:
        yield UnsupportedChange(
            entity=entity,
            reason="changing @embed is not supported: stored vectors came from the old source "
            "and model",
            hint="add a new Vector property with the new @embed, fill it, then drop this one",
        )
    yield from _annotation_steps(pair, old, new)


def _renamed_embed(pair: Pair, old: Property) -> object:
    return old.embed and replace(old.embed, source=pair.now(old.embed.source))


def _provenance_moved(pair: Pair, old: Property, new: Property) -> bool:
    if not isinstance(pair.old, NodeType) or not isinstance(pair.new, NodeType):
        return False
    same_interfaces = set(pair.old.implements) == set(pair.new.implements)
    return same_interfaces and (old.inherited_from is None) != (new.inherited_from is None)


def _type_change(pair: Pair, name: str, old: PropertyType, new: PropertyType) -> SchemaStep:
    ways = _ways(old, new)
    in_key = isinstance(pair.new, NodeType) and name in pair.new.key
    match ways:
        case ("relax",):
            return RelaxNullability(
                type_kind=pair.kind, type_name=pair.new.name, property_name=name
            )
        case ("extend",):
            added = sorted(set(new.enum_values or ()) - set(old.enum_values or ()))
            return ExtendEnum(
                type_kind=pair.kind,
                type_name=pair.new.name,
                property_name=name,
                added_values=added,
            )
        # A wider float is printed with other digits, and ids are printed keys.
        case ("widen",) if not (in_key and new.scalar is Scalar.F64):
            return WidenProperty(
                type_kind=pair.kind,
                type_name=pair.new.name,
                property_name=name,
                from_type=property_type_json(old),
                to_type=property_type_json(new),
            )
    return UnsupportedChange(
        entity=f"{pair.entity}.{name}",
        reason=f"changing property type from {old} to {new} is not supported",
        code=Code.CHANGE_TYPE.value,
        hint=_type_hint(ways, old, new),
        tier=Tier.DESTRUCTIVE,
    )


def _ways(old: PropertyType, new: PropertyType) -> tuple[str, ...]:
    """In which ways two types differ."""
    ways: list[str] = []
    if old.nullable != new.nullable:
        ways.append("relax" if new.nullable else "tighten")
    shapes = [replace(kind, nullable=False, enum_values=None) for kind in (old, new)]
    if shapes[0] != shapes[1]:
        plain = not old.is_list and not new.is_list
        widens = plain and (old.scalar, new.scalar) in _WIDENINGS
        ways.append("widen" if widens else "other")
    elif old.enum_values != new.enum_values:
        both = old.enum_values is not None and new.enum_values is not None
        grows = both and set(old.enum_values or ()) < set(new.enum_values or ())
        ways.append("extend" if grows else "other")
    return tuple(ways)


def _type_hint(ways: tuple[str, ...], old: PropertyType, new: PropertyType) -> str:
    if set(ways) <= {"relax", "extend", "widen"} and len(ways) > 1:
        first = replace(old, nullable=new.nullable)
        return f"change one thing at a time: apply `{first}` first, then `{new}`"
    if ways == ("tighten",):
        return "keep it nullable, or add a new required property with a `@default(…)`"
    if old.enum_values is not None and new.enum_values is not None:
        return "enum values can be added, not removed: keep the old ones"
    return "add a new property beside it, fill it, then drop this one"


def _annotation_steps(pair: Pair, old: Property, new: Property) -> Iterator[SchemaStep]:
    if _others(old.annotations, _PROPERTY_TEXTS) != _others(new.annotations, _PROPERTY_TEXTS):
        yield _annotation_refusal(f"{pair.entity}.{new.name}")
    texts = _texts(new.annotations, _PROPERTY_TEXTS)
    if _texts(old.annotations, _PROPERTY_TEXTS) != texts:
        yield UpdatePropertyMetadata(
            type_kind=pair.kind,
            type_name=pair.new.name,
            property_name=new.name,
            annotations=texts,
        )


def _texts(notes: Iterable[Annotation], names: frozenset[str]) -> list[JsonObject]:
    return list(annotations_json(note for note in notes if note.name in names))


def _others(notes: Iterable[Annotation], names: frozenset[str]) -> list[JsonObject]:
    known = names | _MADE_BY_OWN_STEPS
    return list(annotations_json(note for note in notes if note.name not in known))


def _annotation_refusal(entity: str) -> UnsupportedChange:
    return UnsupportedChange(
        entity=entity,
        reason="changing annotations beyond @description/@instruction is not supported",
        hint="leave the annotation as it was",
    )


# --- the type itself ---------------------------------------------------------------------------


def type_steps(pair: Pair) -> Iterator[SchemaStep]:
    """Constraints, interfaces and annotations of a node or edge type."""
    old, new = pair.old, pair.new
    assert not isinstance(old, InterfaceType), "an interface has no constraints"
    assert not isinstance(new, InterfaceType), "an interface has no constraints"
    if isinstance(old, NodeType) and isinstance(new, NodeType):
        yield from _key_steps(pair, new)
        if set(old.implements) != set(new.implements):
            yield UnsupportedChange(
                entity=pair.entity,
                reason="changing implemented interfaces is not supported",
                hint="declare the properties in the node itself",
            )
    yield from _constraint_steps(pair, old, new)
    if _others(old.annotations, _TYPE_TEXTS) != _others(new.annotations, _TYPE_TEXTS):
        yield _annotation_refusal(pair.entity)
    texts = _texts(new.annotations, _TYPE_TEXTS)
    if _texts(old.annotations, _TYPE_TEXTS) != texts:
        yield UpdateTypeMetadata(type_kind=pair.kind, name=new.name, annotations=texts)


def _key_steps(pair: Pair, new: NodeType) -> Iterator[SchemaStep]:
    if pair.same_key:
        return
    hint = f"ids are made from the key: declare a new type with the new key; {ENTITY_HINT}"
    if len(new.key) == 1:
        yield UnsupportedChange(
            entity=f"{pair.entity}.{new.key[0]}",
            reason="adding a property-level @key constraint is not supported",
            hint=hint,
        )
    elif new.key:
        yield UnsupportedChange(
            entity=pair.entity,
            reason=f"adding constraint @key({', '.join(new.key)}) is not supported",
            hint=hint,
        )
    key = pair.accepted_key
    if len(key) == 1:
        yield UnsupportedChange(
            entity=f"{pair.entity}.{key[0]}",
            reason="removing property constraints is not supported for @key",
            hint=hint,
        )
    elif key:
        yield UnsupportedChange(
            entity=pair.entity,
            reason=f"removing constraints is not supported for @key({', '.join(key)})",
            hint=hint,
        )


def _constraint_steps(
    pair: Pair, old: NodeType | EdgeType, new: NodeType | EdgeType
) -> Iterator[SchemaStep]:
    before = {_renamed(pair, each): each for each in _keyless(old)}
    after = dict.fromkeys(_keyless(new))
    dropped = set(pair.properties.dropped)
    for constraint in before:
        # A constraint goes with the last of its properties, without words.
        if constraint not in after and not set(_columns(constraint)) <= dropped:
            yield RemoveConstraint(
                type_kind=pair.kind,
                type_name=new.name,
                constraint=constraint_json(constraint),
                value=constraint,
            )
    facts = [*before, KeyConstraint(properties=pair.accepted_key)]
    for constraint in after:
        if constraint not in before:
            yield AddConstraint(
                type_kind=pair.kind,
                type_name=new.name,
                constraint=constraint_json(constraint),
                value=constraint,
                tier=Tier.SAFE if _holds_already(constraint, facts) else Tier.VALIDATED,
            )


def _keyless(made: NodeType | EdgeType) -> list[SchemaConstraint]:
    found = [each for each in constraints_of(made) if not isinstance(each, KeyConstraint)]
    return sorted(found, key=lambda each: (type(each).__name__, repr(each)))


def _columns(constraint: SchemaConstraint) -> tuple[str, ...]:
    if isinstance(constraint, Range | Check):
        return (constraint.property,)
    return constraint.properties


def _renamed(pair: Pair, constraint: SchemaConstraint) -> SchemaConstraint:
    if isinstance(constraint, Range | Check):
        return replace(constraint, property=pair.now(constraint.property))
    return replace(constraint, properties=tuple(sorted(map(pair.now, constraint.properties))))


def _holds_already(wanted: SchemaConstraint, facts: list[SchemaConstraint]) -> bool:
    """Whether what was enforced so far implies the constraint, so that no data need be read."""
    if isinstance(wanted, IndexConstraint):
        return True
    for fact in facts:
        match wanted, fact:
            case UniqueConstraint(), UniqueConstraint() | KeyConstraint():
                if fact.properties and set(fact.properties) <= set(wanted.properties):
                    return True
            case Range(), Range() if fact.property == wanted.property:
                low = wanted.minimum is None or (
                    fact.minimum is not None and wanted.minimum <= fact.minimum
                )
                high = wanted.maximum is None or (
                    fact.maximum is not None and wanted.maximum >= fact.maximum
                )
                if low and high:
                    return True
    return False
