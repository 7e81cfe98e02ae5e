"""The way from one schema to another, as steps; a pure function of the two.

Whatever cannot be carried out is a step too, with the reason and what to do instead, so that one
plan tells everything. A property's type may change in one way per plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from omnigraph.compiler.schema.compile import with_key_order
from omnigraph.compiler.schema.evolve_types import ENTITY_HINT, Pair, property_steps, type_steps
from omnigraph.compiler.schema.resolve import Matching, match_names
from omnigraph.model.plan import (
    AddType,
    ChangeCardinality,
    Code,
    DropMode,
    DropType,
    RenameType,
    SchemaPlan,
    SchemaStep,
    Tier,
    TypeKind,
    UnsupportedChange,
)
from omnigraph.model.schema import Cardinality, Catalog, EdgeType, EntityType

_UNKNOWN_TYPE = "but no accepted declaration has that name"


def plan_migration(
    accepted: Catalog, desired: Catalog, *, allow_data_loss: bool = False
) -> SchemaPlan:
    """The steps from the accepted schema to the desired one.

    `SchemaError` when a `@rename_from` hint names nothing, or something that another declaration
    is or claims. With `allow_data_loss`, drops are hard: the past goes too.
    """
    mode: DropMode = "hard" if allow_data_loss else "soft"
    nodes = _matched("node", accepted.nodes, desired.nodes)
    edges = _matched("edge", accepted.edges, desired.edges)
    steps: list[SchemaStep] = []
    steps += _interfaces(accepted, desired, mode)
    keys: dict[str, tuple[str, ...]] = {}
    for name in sorted(desired.nodes):
        if name not in nodes.accepted_of:
            steps.append(AddType(type_kind="node", name=name))
            continue
        pair = Pair.of(accepted.nodes[nodes.accepted_of[name]], desired.nodes[name], mode=mode)
        steps += _entity(pair)
        if pair.same_key:
            keys[name] = pair.accepted_key
    for name in sorted(desired.edges):
        if name not in edges.accepted_of:
            steps.append(AddType(type_kind="edge", name=name))
            continue
        old, new = accepted.edges[edges.accepted_of[name]], desired.edges[name]
        steps += _edge(old, new, nodes, mode)
    steps += [_dropped("edge", name, mode) for name in edges.dropped]
    steps += [_dropped("node", name, mode) for name in nodes.dropped]
    # Only now: hints are no part of the hash, and one that cannot be meant has to be told.
    if accepted.hash == desired.hash:
        return SchemaPlan(steps=(), catalog=desired)
    return SchemaPlan(steps=tuple(steps), catalog=with_key_order(desired, keys))


def _matched(
    kind: TypeKind,
    accepted: Mapping[str, EntityType],
    desired: Mapping[str, EntityType],
) -> Matching:
    return match_names(
        label=f"{kind} type ",
        unknown=_UNKNOWN_TYPE,
        accepted={name: made.rename_from for name, made in accepted.items()},
        hints={name: made.rename_from for name, made in desired.items()},
    )


def _dropped(kind: TypeKind, name: str, mode: DropMode) -> DropType:
    code = Code.DROP_NODE_TYPE if kind == "node" else Code.DROP_EDGE_TYPE
    return DropType(type_kind=kind, name=name, mode=mode, code=code.value)


# --- interfaces --------------------------------------------------------------------------------


def _interfaces(accepted: Catalog, desired: Catalog, mode: DropMode) -> Iterator[SchemaStep]:
    for name in sorted(accepted.interfaces.keys() | desired.interfaces.keys()):
        old, new = accepted.interfaces.get(name), desired.interfaces.get(name)
        if new is None:
            yield UnsupportedChange(
                entity=f"interface:{name}",
                reason="removing interface declarations is not supported",
                hint="keep the interface; it costs nothing",
            )
        elif old is None:
            yield AddType(type_kind="interface", name=name)
        else:
            yield from property_steps(Pair.of(old, new, mode=mode))


# --- nodes and edges ---------------------------------------------------------------------------


def _entity(pair: Pair) -> Iterator[SchemaStep]:
    if pair.old.name != pair.new.name:
        yield RenameType(type_kind=pair.kind, from_name=pair.old.name, to=pair.new.name)
    yield from property_steps(pair)
    yield from type_steps(pair)


def _edge(old: EdgeType, new: EdgeType, nodes: Matching, mode: DropMode) -> Iterator[SchemaStep]:
    pair = Pair.of(old, new, mode=mode)
    yield from _entity(pair)
    ends = (nodes.accepted_of.get(new.from_type), nodes.accepted_of.get(new.to_type))
    if ends != (old.from_type, old.to_type):
        yield UnsupportedChange(
            entity=f"edge:{new.name}",
            reason=f"changing edge endpoints from {old.from_type} -> {old.to_type} "
            f"to {new.from_type} -> {new.to_type} is not supported",
            hint=f"declare a new edge type beside it; {ENTITY_HINT}",
        )
    if old.cardinality != new.cardinality:
        yield ChangeCardinality(
            type_name=new.name,
            from_cardinality=old.cardinality,
            to_cardinality=new.cardinality,
            tier=Tier.SAFE if _contains(new.cardinality, old.cardinality) else Tier.VALIDATED,
        )


def _contains(wide: Cardinality, narrow: Cardinality) -> bool:
    if wide.minimum > narrow.minimum:
        return False
    if wide.maximum is None:
        return True
    return narrow.maximum is not None and narrow.maximum <= wide.maximum
