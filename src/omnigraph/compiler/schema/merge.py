"""Two schemas that came from one become one; a pure function of the three.

Types and properties are told apart by their ids, so what was renamed is still the same thing. What
only one side did is done; what both did alike is done once; an enum that both extended gets the
values of both. Two different changes of one fact are a conflict, so is a change of what the other
side dropped, and whatever does not make sense together: a name that two things got, an end, a key
or a constraint whose node type or property the other side dropped. Each conflict names the step of
either side. Which side is called ours makes no difference but to the order of declarations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import msgspec

from omnigraph.compiler.schema.changes import (
    added_constraint,
    added_property,
    added_type,
    changes,
    dropped_property,
    dropped_type,
    property_changes,
    property_step,
    removed_constraint,
    subject,
    told,
    type_changes,
    type_step,
)
from omnigraph.compiler.schema.things import (
    UNSAID,
    ConstraintId,
    Draft,
    Facts,
    Names,
    Things,
    TypeThing,
    things_of,
    whole,
)
from omnigraph.errors import InputError
from omnigraph.model import plan
from omnigraph.model.plan import SchemaStep
from omnigraph.model.schema import Catalog

_Steps = tuple[SchemaStep, SchemaStep]  # of ours, of theirs
_UNKNOWN: Final = "the sides differ, and what they share does not tell which of them changed it"


class SchemaConflict(msgspec.Struct, frozen=True, kw_only=True):
    """Two steps that cannot both be taken, and what they are about."""

    type_kind: plan.TypeKind
    type_name: str
    property_name: str | None
    message: str
    step_ours: SchemaStep
    step_theirs: SchemaStep


class SchemaMerge(msgspec.Struct, frozen=True, kw_only=True):
    """The merged schema, or what stands against it: one of the two is there."""

    catalog: Catalog | None
    conflicts: tuple[SchemaConflict, ...] = ()


def merge_schemas(base: Catalog | None, ours: Catalog, theirs: Catalog) -> SchemaMerge:
    """What both sides made of the base. Without a base (None: nobody knows it), all that differs
    between the sides is a conflict."""
    if _same(ours, theirs) or (base is not None and _same(base, theirs)):
        return SchemaMerge(catalog=ours)
    if base is not None and _same(base, ours):
        return SchemaMerge(catalog=theirs)
    sides = _Sides(
        base=things_of(base) if base is not None else None,
        ours=things_of(ours),
        theirs=things_of(theirs),
    )
    drafts = [draft for draft in map(sides.merged_type, sides.type_ids()) if draft is not None]
    if not sides.conflicts:
        sides.check_names(drafts)
    if not sides.conflicts:
        sides.check_references(drafts)
    if sides.conflicts:
        return SchemaMerge(catalog=None, conflicts=tuple(sides.conflicts))
    retired = frozenset(ours.identities.retired) | frozenset(theirs.identities.retired)
    try:
        catalog = whole(drafts, retired=retired)
    except InputError as cause:
        return SchemaMerge(catalog=None, conflicts=(sides.senseless(cause.message),))
    # A text that somebody wrote is better than one that was printed.
    kept = next((side for side in (ours, theirs) if _same(side, catalog)), catalog)
    return SchemaMerge(catalog=kept)


def _same(one: Catalog, other: Catalog) -> bool:
    return one.hash == other.hash and one.identities == other.identities


class _Sides(msgspec.Struct, kw_only=True):
    """The three schemas of one merge, and the conflicts found so far."""

    base: Things | None
    ours: Things
    theirs: Things
    conflicts: list[SchemaConflict] = msgspec.field(default_factory=list)

    def type_ids(self) -> Iterator[str]:
        """Ours in their order, then theirs."""
        yield from self.ours.types
        yield from (id_ for id_ in self.theirs.types if id_ not in self.ours.types)

    def _three(self, id_: str) -> tuple[TypeThing | None, TypeThing | None, TypeThing | None]:
        base = self.base.types.get(id_) if self.base is not None else None
        return base, self.ours.types.get(id_), self.theirs.types.get(id_)

    # --- types ---------------------------------------------------------------------------------

    def merged_type(self, id_: str) -> Draft | None:
        """The type as both sides together have it; None if it is gone, or in conflict."""
        base, ours, theirs = self._three(id_)
        one = ours or theirs
        assert one is not None, "a type is on one of the sides"
        if ours is not None and theirs is not None:
            return self._both(base, ours, theirs)
        if self.base is None:
            added, dropped = added_type(one), dropped_type(one)
            steps = (added, dropped) if ours is not None else (dropped, added)
            self._found(one, None, steps, _UNKNOWN)
            return None
        if base is None:
            return _as_it_is(one)
        change = _more_than_less(type_changes(base, one))
        if change is not None:
            dropped = dropped_type(base)
            steps = (change, dropped) if ours is not None else (dropped, change)
            self._found(one, None, steps, "one side changed what the other dropped")
        return None

    def _both(self, base: TypeThing | None, ours: TypeThing, theirs: TypeThing) -> Draft:
        facts = self._facts(
            (base.facts if base is not None else None, ours.facts, theirs.facts),
            lambda name: (type_step(base, ours, name), type_step(base, theirs, name)),
            lambda steps, why: self._found(ours, None, steps, why),
        )
        properties: dict[str, Facts] = {}
        origins: dict[str, str] = {}
        fillings: dict[str, Any] = {}
        for id_ in dict.fromkeys((*ours.properties, *theirs.properties)):
            merged = self._property(id_, base, ours, theirs)
            if merged is None:
                continue
            properties[id_] = merged
            for one in (side.properties.get(id_) for side in (theirs, ours)):
                if one is None:
                    continue
                # Of a number that one side widened, what it is in the wider type.
                if id_ not in fillings or one.facts.get("shape") == merged.get("shape"):
                    fillings[id_] = one.filling
                if one.origin is not None and "name" not in merged:
                    origins[id_] = one.origin
        return Draft(
            id=ours.id,
            kind=ours.kind,
            facts=facts,
            properties=properties,
            origins=origins,
            constraints=self._constraints(base, ours, theirs),
            fillings=fillings,
        )

    def _facts(
        self,
        three: tuple[Facts | None, Facts, Facts],
        steps: Callable[[str], _Steps],
        found: Callable[[_Steps, str], None],
    ) -> Facts:
        """Fact by fact: what one side changed, or both alike; anything else is `found`."""
        base, ours, theirs = three
        merged: dict[str, Any] = {}
        for name in dict.fromkeys((*ours, *theirs)):
            mine, other = ours.get(name, UNSAID), theirs.get(name, UNSAID)
            before = base.get(name, UNSAID) if base is not None else None
            if mine == other or (base is not None and other == before):
                chosen = mine
            elif base is not None and mine == before:
                chosen = other
            elif base is not None and name == "enum" and _extends(before, mine, other):
                chosen = tuple(sorted({*mine, *other}))
            else:
                why = "the sides changed it in different ways" if base else "the sides differ"
                found(steps(name), why if self.base is not None else _UNKNOWN)
                continue
            if chosen != UNSAID:
                merged[name] = chosen
        return merged

    def _constraints(
        self, base: TypeThing | None, ours: TypeThing, theirs: TypeThing
    ) -> tuple[ConstraintId, ...]:
        """What both have, and what one side added; what either removed is gone."""
        kept: list[ConstraintId] = []
        for each in dict.fromkeys((*ours.constraints, *theirs.constraints)):
            mine, other = each in ours.constraints, each in theirs.constraints
            if mine and other:
                kept.append(each)
            elif self.base is None:
                value = (ours if mine else theirs).constraints[each]
                added, removed = added_constraint(ours, value), removed_constraint(ours, value)
                steps = (added, removed) if mine else (removed, added)
                self._found(ours, None, steps, _UNKNOWN)
            elif base is None or each not in base.constraints:
                kept.append(each)
        return tuple(kept)

    # --- properties ----------------------------------------------------------------------------

    def _property(
        self, id_: str, base: TypeThing | None, ours: TypeThing, theirs: TypeThing
    ) -> Facts | None:
        before = base.properties.get(id_) if base is not None else None
        mine, other = ours.properties.get(id_), theirs.properties.get(id_)
        if mine is not None and other is not None:
            # What one side declares itself and the other inherits is declared.
            if before is None and ("name" in mine.facts) != ("name" in other.facts):
                return mine.facts if "name" in mine.facts else other.facts
            if before is None and mine.filling != other.filling:
                steps = (added_property(ours, mine), added_property(theirs, other))
                self._found(ours, mine.name, steps, "older entities got different values by it")
            return self._facts(
                (before.facts if before is not None else None, mine.facts, other.facts),
                lambda name: (
                    property_step(ours, before, mine, name),
                    property_step(theirs, before, other, name),
                ),
                lambda steps, why: self._found(ours, mine.name, steps, why),
            )
        one, owner = (mine, ours) if mine is not None else (other, theirs)
        assert one is not None, "a property is on one of the sides"
        if self.base is None:
            added, dropped = added_property(owner, one), dropped_property(owner, one)
            steps = (added, dropped) if mine is not None else (dropped, added)
            self._found(owner, one.name, steps, _UNKNOWN)
            return None
        if before is None:
            return one.facts
        changed = _more_than_less(property_changes(owner, before, one))
        if changed is not None:
            dropped = dropped_property(theirs if mine is not None else ours, before)
            steps = (changed, dropped) if mine is not None else (dropped, changed)
            self._found(owner, one.name, steps, "one side changed what the other dropped")
        return None

    # --- what makes no sense together ------------------------------------------------------------

    def check_names(self, drafts: Sequence[Draft]) -> None:
        """Two things may not have one name."""
        taken: dict[tuple[str, str], str] = {}
        names = Names.of(drafts)
        for draft in drafts:
            # Queries find edges in any letter case.
            folded = draft.name.casefold() if draft.kind == "edge" else draft.name
            other = taken.setdefault((draft.kind, folded), draft.id)
            if other != draft.id:
                namings = [
                    (self._type_naming(id_, 0), self._type_naming(id_, 1))
                    for id_ in (other, draft.id)
                ]
                self._one_name(draft, None, namings)
            holders: dict[str, str] = {}
            for id_, name in names.properties[draft.id].items():
                holder = holders.setdefault(name, id_)
                if holder != id_:
                    namings = [
                        (self._naming(draft, one, 0), self._naming(draft, one, 1))
                        for one in (holder, id_)
                    ]
                    self._one_name(draft, name, namings)

    def _one_name(
        self,
        draft: Draft,
        property_name: str | None,
        namings: Sequence[tuple[SchemaStep | None, SchemaStep | None]],
    ) -> None:
        """Two things, each with the steps of both sides that may have named it."""
        where = self.ours.types.get(draft.id) or self.theirs.types[draft.id]
        why = f"two things get the name {property_name or draft.name}"
        for (mine, _), (_, other) in (namings, namings[::-1]):
            if mine is not None and other is not None:
                self._found(where, property_name, (mine, other), why)
                return
        self.conflicts.append(self.senseless(why))

    def _type_naming(self, id_: str, side: int) -> SchemaStep | None:
        """The step of a side, if any, that gave the type its name."""
        base, *sides = self._three(id_)
        made = sides[side]
        if made is None or (base is not None and base.name == made.name):
            return None
        return type_step(base, made, "name")

    def _naming(self, draft: Draft, id_: str, side: int) -> SchemaStep | None:
        """The step of a side, if any, that gave the property its name: also by its interface."""
        base, *sides = self._three(draft.id)
        owner = sides[side]
        made = owner.properties.get(id_) if owner is not None else None
        if owner is not None and made is not None:
            before = base.properties.get(id_) if base is not None else None
            if base is None:
                return added_type(owner)
            if before is None or before.name != made.name:
                return property_step(owner, before, made, "name")
        things = (self.ours, self.theirs)[side]
        for one in things.types.values() if id_ in draft.origins else ():
            inherited = one.properties.get(draft.origins[id_])
            if inherited is not None and self.base is not None and one.id in self.base.types:
                before = self.base.types[one.id].properties.get(inherited.id)
                if before is None or before.name != inherited.name:
                    return property_step(one, before, inherited, "name")
        return None

    def check_references(self, drafts: Sequence[Draft]) -> None:
        """Whatever a type refers to has to be there."""
        names = Names.of(drafts)
        for draft in drafts:
            for missing in names.missing(draft):
                base, ours, theirs = self._three(draft.id)
                dropped_by_ours = not self.ours.has(missing)
                holder = theirs if dropped_by_ours else ours
                assert holder is not None, "who did not drop it refers to it"
                drop = self._drop_of(missing)
                held = _step_about(base, holder, missing)
                steps = (drop, held) if dropped_by_ours else (held, drop)
                self._found(holder, None, steps, "one side refers to what the other dropped")

    def _drop_of(self, missing: str) -> SchemaStep:
        """The step that dropped a type or property, or what a property was inherited from."""
        assert self.base is not None, "without a base, all that differs is a conflict"
        if missing in self.base.types:
            return dropped_type(self.base.types[missing])
        for things in (self.base, self.ours, self.theirs):
            for owner in things.types.values():
                made = owner.properties.get(missing)
                if made is not None and made.origin is not None:
                    return self._drop_of(made.origin)
                if made is not None:
                    return dropped_property(owner, made)
        raise AssertionError(f"{missing} was never there")

    def senseless(self, problem: str) -> SchemaConflict:
        """Both sides compile by themselves and not together: the steps that this may be about."""
        assert self.base is not None, "without a base, all that differs is a conflict"
        mine, others = (list(changes(self.base, side)) for side in (self.ours, self.theirs))
        assert mine, "theirs alone is a schema that compiles"
        assert others, "ours alone is a schema that compiles"
        about = {id_ for id_, _ in mine} & {id_ for id_, _ in others}
        step_ours, step_theirs = (_likeliest(found, problem, about) for found in (mine, others))
        kind, name, prop = subject(step_ours)
        return SchemaConflict(
            type_kind=kind,
            type_name=name,
            property_name=prop,
            message=f"schema conflict at {kind}:{name}: what the sides did does not fit together, "
            f"{problem} (ours: {told(step_ours)}; theirs: {told(step_theirs)})",
            step_ours=step_ours,
            step_theirs=step_theirs,
        )

    def _found(
        self,
        thing: TypeThing,
        property_name: str | None,
        steps: _Steps,
        why: str,
    ) -> None:
        where = f"{thing.kind}:{thing.name}" + (f".{property_name}" if property_name else "")
        conflict = SchemaConflict(
            type_kind=thing.kind,
            type_name=thing.name,
            property_name=property_name,
            message=f"schema conflict at {where}: {why} (ours: {told(steps[0])}; "
            f"theirs: {told(steps[1])})",
            step_ours=steps[0],
            step_theirs=steps[1],
        )
        if conflict not in self.conflicts:
            self.conflicts.append(conflict)


def _as_it_is(one: TypeThing) -> Draft:
    """A type that only one side has."""
    return Draft(
        id=one.id,
        kind=one.kind,
        facts=one.facts,
        properties={id_: prop.facts for id_, prop in one.properties.items()},
        origins={id_: prop.origin for id_, prop in one.properties.items() if prop.origin},
        constraints=tuple(one.constraints),
        fillings={id_: prop.filling for id_, prop in one.properties.items()},
    )


def _more_than_less(steps: Iterator[SchemaStep]) -> SchemaStep | None:
    """The first step that does more than take something away: what goes anyway may lose that."""
    less = plan.RemoveConstraint | plan.DropProperty
    return next((step for step in steps if not isinstance(step, less)), None)


def _extends(before: Any, mine: Any, other: Any) -> bool:
    """Whether both made more of the values that there were."""
    return None not in (before, mine, other) and set(before) <= set(mine) & set(other)


def _step_about(base: TypeThing | None, holder: TypeThing, wanted: str) -> SchemaStep:
    """The step by which a type came to refer to something."""
    if base is None:
        return added_type(holder)
    for each, value in holder.constraints.items():
        if each not in base.constraints and wanted in each[1]:
            return added_constraint(holder, value)
    for id_, made in holder.properties.items():
        sources = [note.value for note in made.facts.get("@embed", ())]
        if id_ not in base.properties and wanted in sources:
            return added_property(holder, made)
    raise AssertionError(f"{holder.id} does not refer to {wanted}")


def _likeliest(
    found: Sequence[tuple[str, SchemaStep]], problem: str, about: set[str]
) -> SchemaStep:
    """The step whose type and property the problem names, of a type that both sides changed."""

    def fits(one: tuple[str, SchemaStep]) -> tuple[bool, bool, bool]:
        _, name, prop = subject(one[1])
        return (prop is not None and prop in problem, name in problem, one[0] in about)

    return max(found, key=fits)[1]
