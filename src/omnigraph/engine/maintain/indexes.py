"""Which physical indexes a schema means. Indexes are derived: reads are right without any."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from omnigraph.model.schema import EdgeType, EntityType, NodeType, Property, Scalar
from omnigraph.storage.indexes import IndexKind, IndexSpec

# Phrases need the places of words; folding and stop words are as the engine's own search has them.
_TEXT: Mapping[str, Any] = {
    "with_position": True,
    "base_tokenizer": "simple",
    "stem": False,
    "remove_stop_words": False,
}
_VECTOR: Mapping[str, Any] = {"metric": "cosine"}
_CHEAP: frozenset[IndexKind] = frozenset({"btree"})


def index_specs(entity: NodeType | EdgeType) -> tuple[IndexSpec, ...]:
    """Every index that a type should have.

    `id`, and the ends of edges, always have one. Keys, unique and indexed properties have a B-tree,
    indexed free text a full-text index beside it, and indexed vectors a vector index. Lists and
    blobs have none.
    """
    found = [_spec(column, "btree") for column in _always(entity)]
    for name in _declared(entity):
        prop = entity.by_name.get(name)
        if prop is not None:
            found += [_spec(name, kind) for kind in _kinds(prop, indexed=_is_indexed(entity, name))]
    return tuple({spec.name: spec for spec in found}.values())


def cheap_specs(entity: NodeType | EdgeType) -> tuple[IndexSpec, ...]:
    """Those that are quick to extend, for upkeep that runs beside the writers."""
    return tuple(spec for spec in index_specs(entity) if spec.kind in _CHEAP)


def _always(entity: EntityType) -> tuple[str, ...]:
    return ("id", "src", "dst") if isinstance(entity, EdgeType) else ("id",)


def _declared(entity: EntityType) -> Iterable[str]:
    if isinstance(entity, NodeType):
        yield from entity.key
    for names in (*entity.unique, *entity.index):
        yield from names


def _is_indexed(entity: EntityType, name: str) -> bool:
    return any(name in names for names in entity.index)


def _kinds(prop: Property, *, indexed: bool) -> tuple[IndexKind, ...]:
    kind = prop.type
    if kind.is_list or kind.scalar is Scalar.BLOB:
        return ()
    if kind.scalar is Scalar.VECTOR:
        return ("vector",) if indexed else ()
    if kind.scalar is Scalar.STRING and kind.enum_values is None and indexed:
        return ("btree", "inverted")
    return ("btree",)


def _spec(column: str, kind: IndexKind) -> IndexSpec:
    parameters = {"inverted": _TEXT, "vector": _VECTOR}.get(kind, {})
    return IndexSpec(name=f"{column}_{kind}", column=column, kind=kind, parameters=parameters)
