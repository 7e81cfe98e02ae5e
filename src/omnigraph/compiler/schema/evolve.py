"""The way from one schema to another, as steps; a pure function of the two.

A schema that somebody wants goes on from the accepted one by names and `@rename_from` hints. Two
states of a history are matched by identity: hints are a request, and theirs was granted long ago.

Whatever cannot be carried out is a step too, with the reason and what to do instead, so that one
plan tells everything. In a plan that somebody asks for, a property's type may change in one way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.schema.compile import annotations_json, constraints_of, with_key_order
from omnigraph.compiler.schema.identity import AnyType, identities_after, type_key
from omnigraph.compiler.text import did_you_mean
from omnigraph.errors import SchemaError
from omnigraph.model import plan
from omnigraph.model.plan import SchemaStep, Tier, UnsupportedChange
from omnigraph.model.schema import (
    Annotation,
    Cardinality,
    Catalog,
    Check,
    EdgeType,
    EntityType,
    InterfaceType,
    NodeType,
    Property,
    PropertyType,
    Range,
    Scalar,
)

_ENTITY_HINT = "export the entities, load them into it, then drop the old one"
_UNKNOWN_TYPE = "but no accepted declaration has that name"
_UNKNOWN_PROPERTY = "but no accepted property with that name exists under the stable owner"
_WIDENINGS = frozenset({(Scalar.I32, Scalar.I64), (Scalar.F32, Scalar.F64)})
_TYPE_TEXTS = frozenset({"description", "instruction"})
_PROPERTY_TEXTS = frozenset({"description", "default"})
_MADE_BY_OWN_STEPS = frozenset({"rename_from", "embed", "index"})

_Renamable = EntityType | Property


def plan_migration(
    accepted: Catalog, desired: Catalog, *, allow_data_loss: bool = False
) -> plan.SchemaPlan:
    """The steps from the accepted schema to the desired one.

    `SchemaError` when a `@rename_from` hint names nothing, or something that another declaration
    is or claims. With `allow_data_loss`, drops are hard: the past goes too.
    """
    way = _Way(
        accepted=accepted,
        desired=desired,
        mode="hard" if allow_data_loss else "soft",
        by_id=False,
    )
    steps, keys = _steps(way)
    # Only now: hints are no part of the hash, and one that cannot be meant has to be told.
    if accepted.hash == desired.hash:
        same = replace(desired, identities=accepted.identities)
        return plan.SchemaPlan(steps=(), catalog=same)
    catalog = with_key_order(desired, keys)
    identities = identities_after(accepted, catalog, steps)
    return plan.SchemaPlan(steps=steps, catalog=replace(catalog, identities=identities))


def steps_between(earlier: Catalog, later: Catalog) -> tuple[SchemaStep, ...]:
    """The steps from one state of a history to another, matched by identity; none if both have the
    same schema. What no apply could have done, as on the way back, is an `UnsupportedChange`."""
    if (earlier.hash, earlier.identities) == (later.hash, later.identities):
        return ()
    return _steps(_Way(accepted=earlier, desired=later, mode="soft", by_id=True))[0]


class _Way(msgspec.Struct, frozen=True, kw_only=True):
    """From where to where, and how things that go together are found: by identity, or by names
    and hints."""

    accepted: Catalog
    desired: Catalog
    mode: plan.DropMode
    by_id: bool

    def types(self, kind: str, old: Iterable[EntityType], new: Iterable[EntityType]) -> _Matching:
        if not self.by_id:
            return _matched(f"{kind} type ", _UNKNOWN_TYPE, old, new)
        before, after = self.accepted.identities.type_id, self.desired.identities.type_id
        return _identified(
            {before(f"{kind}:{one.name}"): one.name for one in old},
            {after(f"{kind}:{one.name}"): one.name for one in new},
        )

    def pair(self, old: AnyType, new: AnyType) -> _Pair:
        """A type before and after."""
        kind: plan.TypeKind = "interface" if isinstance(new, InterfaceType) else new.kind
        if self.by_id:
            before, after = self.accepted.identities, self.desired.identities
            matching = _identified(
                {before.property_id(type_key(old), one.name): one.name for one in old.properties},
                {after.property_id(type_key(new), one.name): one.name for one in new.properties},
            )
        else:
            label = f"property {new.name}."
            matching = _matched(label, _UNKNOWN_PROPERTY, old.properties, new.properties)
        return _Pair(
            kind=kind, old=old, new=new, properties=matching, mode=self.mode, any_ways=self.by_id
        )


def _steps(way: _Way) -> tuple[tuple[SchemaStep, ...], dict[str, tuple[str, ...]]]:
    """The steps, and the keys of nodes that go on, in identity order."""
    accepted, desired, mode = way.accepted, way.desired, way.mode
    nodes = way.types("node", accepted.nodes.values(), desired.nodes.values())
    edges = way.types("edge", accepted.edges.values(), desired.edges.values())
    steps: list[SchemaStep] = [*_interfaces(way)]
    keys: dict[str, tuple[str, ...]] = {}
    for name in sorted(desired.nodes):
        if name not in nodes.accepted_of:
            steps.append(plan.AddType(type_kind="node", name=name))
            continue
        pair = way.pair(accepted.nodes[nodes.accepted_of[name]], desired.nodes[name])
        steps += _entity(pair)
        if pair.same_key:
            keys[name] = pair.accepted_key
    for name in sorted(desired.edges):
        if name not in edges.accepted_of:
            steps.append(plan.AddType(type_kind="edge", name=name))
            continue
        pair = way.pair(accepted.edges[edges.accepted_of[name]], desired.edges[name])
        steps += _edge(pair, nodes)
    steps += [
        plan.DropType(type_kind="edge", name=name, mode=mode, code=plan.Code.DROP_EDGE_TYPE.value)
        for name in edges.dropped
    ]
    steps += [
        plan.DropType(type_kind="node", name=name, mode=mode, code=plan.Code.DROP_NODE_TYPE.value)
        for name in nodes.dropped
    ]
    return tuple(steps), keys


# --- interfaces ----------------------------------------------------------------------------


def _interfaces(way: _Way) -> Iterator[SchemaStep]:
    accepted, desired = way.accepted, way.desired
    for name in sorted(accepted.interfaces.keys() | desired.interfaces.keys()):
        old, new = accepted.interfaces.get(name), desired.interfaces.get(name)
        if new is None:
            yield UnsupportedChange(
                entity=f"interface:{name}",
                reason="removing interface declarations is not supported",
                hint="keep the interface; it costs nothing",
            )
        elif old is None:
            yield plan.AddType(type_kind="interface", name=name)
        else:
            yield from _property_steps(way.pair(old, new))


# --- nodes and edges -----------------------------------------------------------------------


def _entity(pair: _Pair) -> Iterator[SchemaStep]:
    if pair.old.name != pair.new.name:
        yield plan.RenameType(type_kind=pair.kind, from_name=pair.old.name, to=pair.new.name)
    yield from _property_steps(pair)
    yield from _type_steps(pair)


def _edge(pair: _Pair, nodes: _Matching) -> Iterator[SchemaStep]:
    yield from _entity(pair)
    old, new = pair.old, pair.new
    assert isinstance(old, EdgeType), "an edge type goes on from one"
    assert isinstance(new, EdgeType), "an edge type goes on as one"
    ends = (nodes.accepted_of.get(new.from_type), nodes.accepted_of.get(new.to_type))
    if ends != (old.from_type, old.to_type):
        yield UnsupportedChange(
            entity=f"edge:{new.name}",
            reason=f"changing edge endpoints from {old.from_type} -> {old.to_type} "
            f"to {new.from_type} -> {new.to_type} is not supported",
            hint=f"declare a new edge type beside it; {_ENTITY_HINT}",
        )
    if old.cardinality != new.cardinality:
        yield plan.ChangeCardinality(
            type_name=new.name,
            from_cardinality=old.cardinality,
            to_cardinality=new.cardinality,
            tier=Tier.SAFE if contains(new.cardinality, old.cardinality) else Tier.VALIDATED,
        )


def contains(wide: Cardinality, narrow: Cardinality) -> bool:
    """Whether the wide bounds allow whatever the narrow ones do."""
    if wide.minimum > narrow.minimum:
        return False
    if wide.maximum is None:
        return True
    return narrow.maximum is not None and narrow.maximum <= wide.maximum


# --- types and properties that go together -----------------------------------------------------


class _Matching(msgspec.Struct, frozen=True, kw_only=True):
    """Desired names to accepted names and back, and what is left on either side, sorted."""

    accepted_of: Mapping[str, str]
    desired_of: Mapping[str, str]
    added: tuple[str, ...]
    dropped: tuple[str, ...]


class _Pair(msgspec.Struct, frozen=True, kw_only=True):
    """A type as accepted and as desired, and which property became which."""

    kind: plan.TypeKind
    old: AnyType
    new: AnyType
    properties: _Matching
    mode: plan.DropMode
    any_ways: bool  # whether a type may have changed in several ways

    @property
    def entity(self) -> str:
        return f"{self.kind}:{self.new.name}"

    @property
    def type(self) -> Any:
        """How steps name the type."""
        return {"type_kind": self.kind, "type_name": self.new.name}

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


def _identified(old: Mapping[str, str], new: Mapping[str, str]) -> _Matching:
    """Match by id; both sides are names by ids."""
    found = {name: old[one] for one, name in new.items() if one in old}
    return _Matching(
        accepted_of=found,
        desired_of={before: after for after, before in found.items()},
        added=tuple(sorted(name for one, name in new.items() if one not in old)),
        dropped=tuple(sorted(name for one, name in old.items() if one not in new)),
    )


def _matched(
    label: str, unknown: str, old: Iterable[_Renamable], new: Iterable[_Renamable]
) -> _Matching:
    """Match by name first, so that a hint that has done its work is harmless; then by hint.

    `label` stands before a name in errors; `unknown` ends the one about a hint that names nothing.
    """
    accepted = {made.name: made.rename_from for made in old}
    hints = {made.name: made.rename_from for made in new}
    known = accepted.keys()
    _check_no_exchange(label, accepted, hints)
    found = {name: name for name in hints if name in known}
    taken = {name: name for name in found}
    for name, hint in hints.items():
        if name in found or hint is None:
            continue
        if hint not in known:
            raise SchemaError(
                f'{label}{name} declares @rename_from("{hint}"), {unknown}',
                hint=did_you_mean(hint, known),
                entity=f"{label}{name}",
            )
        if hint in taken:
            raise SchemaError(
                f"{label}{hint} is consumed by more than one desired declaration: "
                f"{taken[hint]} and {name}",
                hint="only one declaration can go on with its data; the other one starts anew",
                entity=f"{label}{hint}",
            )
        found[name], taken[hint] = hint, name
    return _Matching(
        accepted_of=found,
        desired_of={old: new for new, old in found.items()},
        added=tuple(sorted(name for name in hints if name not in found)),
        dropped=tuple(sorted(known - taken.keys())),
    )


def _check_no_exchange(
    label: str, accepted: Mapping[str, str | None], hints: Mapping[str, str | None]
) -> None:
    """A thing that is there cannot also become another one that is there.

    Matched by name, a swap would mean nothing, or take the values of one for those of the other.
    Only a hint that the accepted declaration had already has done its work: what bears the old
    name now came later.
    """
    for name, hint in hints.items():
        if hint is None or hint == name or name not in accepted or hint not in accepted:
            continue
        if accepted[name] != hint:
            raise SchemaError(
                f'{label}{name} declares @rename_from("{hint}"), but both {name} and {hint} are '
                "there already",
                hint=f"to exchange names, rename {name} to a third name first, in an apply of its "
                "own; if nothing is to be renamed, remove the hint",
                entity=f"{label}{name}",
            )


# --- properties ----------------------------------------------------------------------------


def _property_steps(pair: _Pair) -> Iterator[SchemaStep]:
    """Renames, additions, changes, drops: in the order in which they make sense to a reader."""
    old_by_name = {prop.name: prop for prop in pair.old.properties}
    new_by_name = {prop.name: prop for prop in pair.new.properties}
    kept = sorted(pair.properties.accepted_of.items())
    for name, before in kept:
        if name != before:
            yield plan.RenameProperty(**pair.type, from_name=before, to=name)
    for name in pair.properties.added:
        yield _added(pair, new_by_name[name])
    for name, before in kept:
        yield from _changed(pair, old_by_name[before], new_by_name[name])
    for name in pair.properties.dropped:
        yield plan.DropProperty(**pair.type, property_name=name, mode=pair.mode)


def _added(pair: _Pair, made: Property) -> SchemaStep:
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
            code=plan.Code.REQUIRED_WITHOUT_DEFAULT.value,
            hint=f"make it nullable (`{made.name}: {made.type}?`){choice}",
            tier=Tier.VALIDATED,
        )
    return plan.AddProperty(
        **pair.type,
        property_name=made.name,
        property_type=plan.property_type_json(made.type),
        property=made,
    )


def _changed(pair: _Pair, old: Property, new: Property) -> Iterator[SchemaStep]:
    entity = f"{pair.entity}.{new.name}"
    if old.type != new.type:
        yield from _type_changes(pair, new.name, old.type, new.type)
    if _provenance_moved(pair, old, new):
        yield UnsupportedChange(
            entity=entity,
            reason="changing declaration provenance (the type's own or an interface's) "
            "is not supported",
            hint="leave the property declared where it was",
        )
    embed = old.embed and replace(old.embed, source=pair.now(old.embed.source))
    if embed != new.embed:
        yield UnsupportedChange(
            entity=entity,
            reason="changing @embed is not supported: stored vectors came from the old source "
            "and model",
            hint="add a new Vector property with the new @embed, fill it, then drop this one",
        )
    if old.indexing != new.indexing:
        yield changed_index(pair.type, old, new)
    yield from _annotation_steps(
        entity,
        (old.annotations, new.annotations),
        _PROPERTY_TEXTS,
        partial(plan.UpdatePropertyMetadata, **pair.type, property_name=new.name),
    )


def changed_index(owner: Any, before: Property, after: Property) -> SchemaStep:
    """Another language, tokenizer or kind of index."""
    return plan.ChangeIndex(
        **owner,
        property_name=after.name,
        before=plan.indexing_json(before.indexing),
        after=plan.indexing_json(after.indexing),
    )


def _provenance_moved(pair: _Pair, old: Property, new: Property) -> bool:
    if not isinstance(pair.old, NodeType) or not isinstance(pair.new, NodeType):
        return False
    same_interfaces = set(pair.old.implements) == set(pair.new.implements)
    return same_interfaces and (old.inherited_from is None) != (new.inherited_from is None)


def _type_changes(
    pair: _Pair, name: str, old: PropertyType, new: PropertyType
) -> Iterator[SchemaStep]:
    ways = _ways(old, new)
    in_key = isinstance(pair.new, NodeType) and name in pair.new.key
    found: list[SchemaStep] = []
    if "widen" in ways and not (in_key and new.scalar is Scalar.F64):
        # A wider float is printed with other digits, and ids are printed keys.
        found.append(
            plan.WidenProperty(
                **pair.type,
                property_name=name,
                from_type=plan.property_type_json(old),
                to_type=plan.property_type_json(new),
            )
        )
    if "extend" in ways:
        added = sorted(set(new.enum_values or ()) - set(old.enum_values or ()))
        found.append(plan.ExtendEnum(**pair.type, property_name=name, added_values=added))
    if "relax" in ways:
        found.append(plan.RelaxNullability(**pair.type, property_name=name))
    if len(found) == len(ways) and (len(ways) == 1 or pair.any_ways):
        yield from found
        return
    yield UnsupportedChange(
        entity=f"{pair.entity}.{name}",
        reason=f"changing property type from {old} to {new} is not supported",
        code=plan.Code.CHANGE_TYPE.value,
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


def _annotation_steps(
    entity: str,
    notes: tuple[Iterable[Annotation], Iterable[Annotation]],
    texts: frozenset[str],
    update: Callable[..., SchemaStep],
) -> Iterator[SchemaStep]:
    """From the old notes to the new ones: those of `texts` may change, by an `update`."""
    known = texts | _MADE_BY_OWN_STEPS
    before, after = (
        annotations_json(note for note in side if note.name not in known) for side in notes
    )
    if before != after:
        yield UnsupportedChange(
            entity=entity,
            reason="changing annotations beyond @description/@instruction is not supported",
            hint="leave the annotation as it was",
        )
    before, after = (
        annotations_json(note for note in side if note.name in texts) for side in notes
    )
    if before != after:
        yield update(annotations=after)


# --- the type itself -----------------------------------------------------------------------


def _type_steps(pair: _Pair) -> Iterator[SchemaStep]:
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
    yield from _annotation_steps(
        pair.entity,
        (old.annotations, new.annotations),
        _TYPE_TEXTS,
        partial(plan.UpdateTypeMetadata, type_kind=pair.kind, name=new.name),
    )


def _key_steps(pair: _Pair, new: NodeType) -> Iterator[SchemaStep]:
    if pair.same_key:
        return
    hint = f"ids are made from the key: declare a new type with the new key; {_ENTITY_HINT}"
    one = "adding a property-level @key constraint is not supported"
    many = "adding constraint {} is not supported"
    other = "removing property constraints is not supported for @key"
    others = "removing constraints is not supported for {}"
    for key, reason, of_several in ((new.key, one, many), (pair.accepted_key, other, others)):
        if len(key) == 1:
            yield UnsupportedChange(entity=f"{pair.entity}.{key[0]}", reason=reason, hint=hint)
        elif key:
            reason = of_several.format(f"@key({', '.join(key)})")
            yield UnsupportedChange(entity=pair.entity, reason=reason, hint=hint)


def _constraint_steps(
    pair: _Pair, old: NodeType | EdgeType, new: NodeType | EdgeType
) -> Iterator[SchemaStep]:
    before = {_renamed(pair, each): each for each in _keyless(old)}
    after = dict.fromkeys(_keyless(new))
    dropped = set(pair.properties.dropped)
    for constraint in before:
        # A constraint goes with the last of its properties, without words.
        if constraint not in after and not set(_columns(constraint)) <= dropped:
            yield plan.RemoveConstraint(
                **pair.type, constraint=plan.constraint_json(constraint), value=constraint
            )
    facts = [*before, plan.KeyConstraint(properties=pair.accepted_key)]
    for constraint in after:
        if constraint not in before:
            yield plan.AddConstraint(
                **pair.type,
                constraint=plan.constraint_json(constraint),
                value=constraint,
                tier=Tier.SAFE if _holds_already(constraint, facts) else Tier.VALIDATED,
            )


def _keyless(made: NodeType | EdgeType) -> list[plan.SchemaConstraint]:
    found = [each for each in constraints_of(made) if not isinstance(each, plan.KeyConstraint)]
    return sorted(found, key=lambda each: (type(each).__name__, repr(each)))


def _columns(constraint: plan.SchemaConstraint) -> tuple[str, ...]:
    if isinstance(constraint, Range | Check):
        return (constraint.property,)
    return constraint.properties


def _renamed(pair: _Pair, constraint: plan.SchemaConstraint) -> plan.SchemaConstraint:
    if isinstance(constraint, Range | Check):
        return replace(constraint, property=pair.now(constraint.property))
    return replace(constraint, properties=tuple(sorted(map(pair.now, constraint.properties))))


def _holds_already(wanted: plan.SchemaConstraint, facts: list[plan.SchemaConstraint]) -> bool:
    """Whether what was enforced so far implies the constraint, so that no data need be read."""
    if isinstance(wanted, plan.IndexConstraint):
        return True
    for fact in facts:
        match wanted, fact:
            case plan.UniqueConstraint(), plan.UniqueConstraint() | plan.KeyConstraint():
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
