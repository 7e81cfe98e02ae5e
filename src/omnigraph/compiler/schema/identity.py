"""Who is who after a schema change; a pure function of the schema before it and the steps.

A renamed thing keeps its id, a dropped one retires it, and a new one gets its name for an id, with
the number of its life if somebody had that id before. Nothing here is chosen by chance, so that two
branches which add the same name give it the same id.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator
from itertools import count

import msgspec

from omnigraph.model import plan
from omnigraph.model.schema import (
    Catalog,
    EdgeType,
    Identities,
    InterfaceType,
    LiteralValue,
    NodeType,
    Property,
    Scalar,
)

AnyType = InterfaceType | NodeType | EdgeType


def type_key(made: AnyType) -> str:
    """`interface:T`, `node:T` or `edge:T`."""
    return f"interface:{made.name}" if isinstance(made, InterfaceType) else made.table_key


def all_types(catalog: Catalog) -> Iterator[AnyType]:
    """Interfaces too, each by its name."""
    yield from (made for _, made in sorted(catalog.interfaces.items()))
    yield from catalog.types()


def live_ids(catalog: Catalog) -> frozenset[str]:
    """The ids of everything that the schema declares."""
    found = catalog.identities
    return frozenset(
        one
        for made in all_types(catalog)
        for key in (type_key(made),)
        for one in (
            found.type_id(key),
            *(found.property_id(key, prop.name) for prop in made.properties),
        )
    )


def identities_after(
    accepted: Catalog, desired: Catalog, steps: Iterable[plan.SchemaStep]
) -> Identities:
    """The identities of the desired schema, to which these steps lead from the accepted one."""
    told = _Told.of(steps)
    before = live_ids(accepted)
    taken = before.union(accepted.identities.retired)
    born: dict[str, str] = {}
    live: set[str] = set()
    filled = dict(accepted.identities.filled)
    for made in all_types(desired):
        key = type_key(made)
        is_new = key in told.added
        old_key = told.renamed.get(key, key)
        owner = fresh(key, taken) if is_new else accepted.identities.type_id(old_key)
        live.add(owner)
        if owner != key:
            born[key] = owner
        old = {} if is_new else {one.name: one for one in _type(accepted, old_key).properties}
        for prop in made.properties:
            old_name = told.renamed_properties[key].get(prop.name, prop.name)
            goes_on = prop.name not in told.added_properties[key] and old_name in old
            if goes_on:
                found = accepted.identities.property_id(old_key, old_name)
                _remember_filling(filled, found, old[old_name], prop)
            else:
                found = fresh(f"{owner}.{prop.name}", taken)
            live.add(found)
            if found != f"{owner}.{prop.name}":
                born[f"{key}.{prop.name}"] = found
    return retiring(Identities(born=born, retired=(), filled=filled), taken - live, live)


def retiring(found: Identities, gone: Iterable[str], live: Container[str]) -> Identities:
    """The same, with what is gone: a property goes with its type without words."""
    retired = {one for one in gone if one not in live}
    shown = sorted(one for one in retired if one.partition(".")[0] not in retired or "." not in one)
    kept = {one: value for one, value in found.filled.items() if one in live}
    return msgspec.structs.replace(found, retired=tuple(shown), filled=kept)


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What the steps say of names, by the type keys that types have after them."""

    added: frozenset[str]
    renamed: dict[str, str]  # to the key before
    added_properties: defaultdict[str, set[str]]
    renamed_properties: defaultdict[str, dict[str, str]]  # new names to old ones

    @classmethod
    def of(cls, steps: Iterable[plan.SchemaStep]) -> _Told:
        added: set[str] = set()
        told = cls(
            added=frozenset(),
            renamed={},
            added_properties=defaultdict(set),
            renamed_properties=defaultdict(dict),
        )
        for step in steps:
            match step:
                case plan.AddType():
                    added.add(f"{step.type_kind}:{step.name}")
                case plan.RenameType():
                    told.renamed[f"{step.type_kind}:{step.to}"] = (
                        f"{step.type_kind}:{step.from_name}"
                    )
                case plan.AddProperty():
                    key = f"{step.type_kind}:{step.type_name}"
                    told.added_properties[key].add(step.property_name)
                case plan.RenameProperty():
                    key = f"{step.type_kind}:{step.type_name}"
                    told.renamed_properties[key][step.to] = step.from_name
                case _:
                    pass  # no other step gives or takes a name
        return msgspec.structs.replace(told, added=frozenset(added))


def _type(catalog: Catalog, key: str) -> AnyType:
    kind, _, name = key.partition(":")
    return catalog.interfaces[name] if kind == "interface" else catalog.type_of(key)


def fresh(name: str, taken: Container[str]) -> str:
    """The name as an id, or a later life of it."""
    if name not in taken:
        return name
    return next(one for life in count(2) if (one := f"{name}#{life}") not in taken)


def _remember_filling(
    filled: dict[str, LiteralValue | None], prop_id: str, old: Property, new: Property
) -> None:
    """Older entities keep what they once got, whatever becomes of the default."""
    value = filled.get(prop_id, old.default)
    if isinstance(value, int | float) and old.type.scalar is Scalar.F32 is not new.type.scalar:
        # What was stored in 32 bits is seen in 64 now, digits and all.
        (value,) = struct.unpack("f", struct.pack("f", value))
    if value != new.default:
        filled[prop_id] = value
    else:
        filled.pop(prop_id, None)
