"""What became of a schema's things, one step a fact.

A plan tells what an apply has to do; these steps tell what was done, by one apply or by many, so
that a merge can name them. They are found by id: a rename hides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from omnigraph.compiler.schema.compile import annotations_json
from omnigraph.compiler.schema.evolve import changed_index, contains
from omnigraph.compiler.schema.things import UNSAID, PropertyThing, Things, TypeThing
from omnigraph.model import plan
from omnigraph.model.plan import SchemaStep, Tier
from omnigraph.model.schema import InterfaceType, Range

_DROPS: Final = {"node": plan.Code.DROP_NODE_TYPE, "edge": plan.Code.DROP_EDGE_TYPE}


def changes(base: Things, side: Things) -> Iterator[tuple[str, SchemaStep]]:
    """Every step from the base to the side, with the id of the type that it is about."""
    for id_, thing in side.types.items():
        before = base.types.get(id_)
        if before is None:
            yield id_, added_type(thing)
        else:
            yield from ((id_, step) for step in type_changes(before, thing))
    for id_, before in base.types.items():
        if id_ not in side.types:
            yield id_, dropped_type(before)


def type_changes(base: TypeThing, side: TypeThing) -> Iterator[SchemaStep]:
    """What was done to a type. What it inherits is told by its interface."""
    for name in dict.fromkeys((*base.facts, *side.facts)):
        if base.facts.get(name, UNSAID) != side.facts.get(name, UNSAID):
            yield type_step(base, side, name)
    for id_, made in side.properties.items():
        before = base.properties.get(id_)
        if before is not None:
            yield from property_changes(side, before, made)
        elif made.origin is None:
            yield added_property(side, made)
    for id_, before in base.properties.items():
        if id_ not in side.properties and before.origin is None:
            yield dropped_property(side, before)
    for each, value in side.constraints.items():
        if each not in base.constraints:
            yield added_constraint(side, value)
    for each, value in base.constraints.items():
        # A constraint goes with the last of its properties, without words.
        if each not in side.constraints and each[1] & side.properties.keys():
            yield removed_constraint(side, value)


def property_changes(
    owner: TypeThing, base: PropertyThing, side: PropertyThing
) -> Iterator[SchemaStep]:
    """What was done to a property."""
    for name in dict.fromkeys((*base.facts, *side.facts)):
        if base.facts.get(name, UNSAID) != side.facts.get(name, UNSAID):
            yield property_step(owner, base, side, name)


# --- types -------------------------------------------------------------------------------------


def added_type(made: TypeThing) -> SchemaStep:
    return plan.AddType(type_kind=made.kind, name=made.name)


def dropped_type(made: TypeThing) -> SchemaStep:
    code = _DROPS.get(made.kind, plan.Code.DROP_GRAPH)
    return plan.DropType(type_kind=made.kind, name=made.name, mode="soft", code=code.value)


def type_step(base: TypeThing | None, side: TypeThing, fact: str) -> SchemaStep:
    """The step that gave the type of a side this fact."""
    if base is None:
        return added_type(side)
    match fact:
        case "name":
            return plan.RenameType(type_kind=side.kind, from_name=base.name, to=side.name)
        case "cardinality":
            before, after = base.facts[fact], side.facts[fact]
            return plan.ChangeCardinality(
                type_name=side.name,
                from_cardinality=before,
                to_cardinality=after,
                tier=Tier.SAFE if contains(after, before) else Tier.VALIDATED,
            )
        case "@description" | "@instruction":
            assert not isinstance(side.made, InterfaceType), "interfaces have no texts"
            notes = [note for note in side.made.annotations if f"@{note.name}" in _TEXTS]
            return plan.UpdateTypeMetadata(
                type_kind=side.kind, name=side.name, annotations=[*annotations_json(notes)]
            )
        case _:  # No apply can do this; a graph of another release may have done it.
            reason = f"changing its {fact} is not supported"
            return plan.UnsupportedChange(entity=f"{side.kind}:{side.name}", reason=reason)


_TEXTS: Final = frozenset({"@description", "@instruction"})
_PROPERTY_TEXTS: Final = frozenset({"@description", "@default"})


# --- constraints -------------------------------------------------------------------------------


def added_constraint(owner: TypeThing, value: plan.SchemaConstraint) -> SchemaStep:
    free = isinstance(value, plan.IndexConstraint)
    return plan.AddConstraint(
        **_type_of(owner),
        constraint=plan.constraint_json(value),
        value=value,
        tier=Tier.SAFE if free else Tier.VALIDATED,
    )


def removed_constraint(owner: TypeThing, value: plan.SchemaConstraint) -> SchemaStep:
    return plan.RemoveConstraint(
        **_type_of(owner), constraint=plan.constraint_json(value), value=value
    )


def _type_of(owner: TypeThing) -> Any:
    """How steps name a type."""
    return {"type_kind": owner.kind, "type_name": owner.name}


# --- properties --------------------------------------------------------------------------------


def added_property(owner: TypeThing, made: PropertyThing) -> SchemaStep:
    return plan.AddProperty(
        **_type_of(owner),
        property_name=made.name,
        property_type=plan.property_type_json(made.made.type),
        property=made.made,
    )


def dropped_property(owner: TypeThing, made: PropertyThing) -> SchemaStep:
    return plan.DropProperty(**_type_of(owner), property_name=made.name, mode="soft")


def property_step(
    owner: TypeThing, base: PropertyThing | None, side: PropertyThing, fact: str
) -> SchemaStep:
    """The step that gave the property of a side this fact."""
    if base is None:
        return added_property(owner, side)
    named: Any = {**_type_of(owner), "property_name": side.name}
    match fact:
        case "name":
            return plan.RenameProperty(**_type_of(owner), from_name=base.name, to=side.name)
        case "shape":
            return plan.WidenProperty(
                **named,
                from_type=plan.property_type_json(base.made.type),
                to_type=plan.property_type_json(side.made.type),
            )
        case "nullable":
            return plan.RelaxNullability(**named)
        case "enum":
            new = set(side.facts[fact] or ()) - set(base.facts[fact] or ())
            return plan.ExtendEnum(**named, added_values=sorted(new))
        case "range":
            return _range_step(owner, side, base.facts.get(fact, ()), side.facts.get(fact, ()))
        case "@description" | "@default":
            notes = [note for note in side.made.annotations if f"@{note.name}" in _PROPERTY_TEXTS]
            return plan.UpdatePropertyMetadata(**named, annotations=[*annotations_json(notes)])
        case "@index":
            return changed_index(_type_of(owner), base.made, side.made)
        case _:
            entity = f"{owner.kind}:{owner.name}.{side.name}"
            reason = f"changing its {fact} is not supported"
            return plan.UnsupportedChange(entity=entity, reason=reason)


def _range_step(owner: TypeThing, side: PropertyThing, before: Any, after: Any) -> SchemaStep:
    def named(bounds: Range) -> Range:
        return Range(property=side.name, minimum=bounds.minimum, maximum=bounds.maximum)

    added: Sequence[Range] = sorted(set(after) - set(before), key=repr)
    if added:
        return added_constraint(owner, named(added[0]))
    return removed_constraint(owner, named(min(set(before) - set(after), key=repr)))


# --- in words ----------------------------------------------------------------------------------


def told(step: SchemaStep) -> str:
    """A step in a few words."""
    match step:
        case plan.RenameType() | plan.RenameProperty():
            return f"{step.kind} {step.from_name} to {step.to}"
        case plan.AddType() | plan.DropType() | plan.UpdateTypeMetadata():
            return f"{step.kind} {step.name}"
        case plan.AddConstraint() | plan.RemoveConstraint():
            return f"{step.kind} {_constraint_words(step.value)} of {step.type_name}"
        case plan.ChangeCardinality():
            high = step.to_cardinality.maximum
            bounds = f"{step.to_cardinality.minimum}..{'' if high is None else high}"
            return f"{step.kind} of {step.type_name} to {bounds}"
        case plan.UnsupportedChange():
            return f"{step.entity}: {step.reason}"
        case plan.WidenProperty():
            to = step.to_type["scalar"]
            return f"{step.kind} {step.type_name}.{step.property_name} to {to}"
        case plan.ExtendEnum():
            values = ", ".join(step.added_values)
            return f"{step.kind} {step.type_name}.{step.property_name} by {values}"
        case _:
            return f"{step.kind} {step.type_name}.{step.property_name}"


def _constraint_words(value: plan.SchemaConstraint) -> str:
    kind, body = next(iter(plan.constraint_json(value).items()))
    names = ", ".join(body) if isinstance(body, list) else body["property"]
    return f"@{kind.lower()}({names})"


def subject(step: SchemaStep) -> tuple[plan.TypeKind, str, str | None]:
    """The kind and name of the type that a step is about, and the name of the property."""
    match step:
        case plan.AddType() | plan.DropType() | plan.UpdateTypeMetadata():
            return step.type_kind, step.name, None
        case plan.RenameType():
            return step.type_kind, step.to, None
        case plan.RenameProperty():
            return step.type_kind, step.type_name, step.to
        case plan.AddConstraint() | plan.RemoveConstraint() | plan.ChangeCardinality():
            return step.type_kind, step.type_name, None
        case plan.UnsupportedChange():
            kind, _, rest = step.entity.partition(":")
            name, _, prop = rest.partition(".")
            known: plan.TypeKind = "edge" if kind == "edge" else "node"
            return known, name, prop or None
        case _:
            return step.type_kind, step.type_name, step.property_name
