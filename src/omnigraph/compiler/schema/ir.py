"""The canonical JSON of a schema: the same meaning gives the same text, and so the same hash.

Version 1. Order of declarations, comments, white space and `@rename_from` hints leave no trace; the
order of key columns does, because ids are encoded in it. `decode` reads what `encode` wrote.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import msgspec

from omnigraph.errors import CorruptGraphError
from omnigraph.model.plan import (
    IndexConstraint,
    KeyConstraint,
    SchemaConstraint,
    UniqueConstraint,
    annotation_json,
    constraint_json,
    property_type_json,
)
from omnigraph.model.schema import (
    Annotation,
    Cardinality,
    Check,
    EdgeType,
    Embed,
    InterfaceType,
    LiteralValue,
    NodeType,
    Property,
    PropertyType,
    Range,
    Scalar,
)

IR_VERSION = 1


class Types(msgspec.Struct, frozen=True, kw_only=True):
    """All types of a schema, by name: in the order of its text, or of its IR."""

    interfaces: dict[str, InterfaceType]
    nodes: dict[str, NodeType]
    edges: dict[str, EdgeType]


@lru_cache(maxsize=16_384)
def stable_id(text: str) -> int:
    """FNV-1a of 32 bits, never 0."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value or 1


def hash_of(ir: str) -> str:
    """The name of an IR text: "sha256:<hex>"."""
    return "sha256:" + hashlib.sha256(ir.encode()).hexdigest()


# --- encode ------------------------------------------------------------------------------------


def encode(types: Types) -> str:
    """The canonical text."""
    body = {
        "ir_version": IR_VERSION,
        "interfaces": [_type("interface", made) for _, made in sorted(types.interfaces.items())],
        "nodes": [_type("node", made) for _, made in sorted(types.nodes.items())],
        "edges": [_type("edge", made) for _, made in sorted(types.edges.items())],
    }
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _type(kind: str, made: InterfaceType | NodeType | EdgeType) -> dict[str, Any]:
    """The order of the fields is part of the canonical form."""
    body: dict[str, Any] = {"name": made.name, "type_id": stable_id(f"{kind}:{made.name}")}
    if isinstance(made, EdgeType):
        bounds = {"min": made.cardinality.minimum, "max": made.cardinality.maximum}
        body |= {"from_type": made.from_type, "to_type": made.to_type, "cardinality": bounds}
    if not isinstance(made, InterfaceType):
        body["annotations"] = annotations_json(made.annotations)
    if isinstance(made, NodeType):
        body["implements"] = sorted(set(made.implements))
    body["properties"] = [
        _property(f"{kind}:{made.name}", prop)
        for prop in sorted(made.properties, key=lambda prop: prop.name)
    ]
    if not isinstance(made, InterfaceType):
        constraints = [constraint_json(constraint) for constraint in constraints_of(made)]
        body["constraints"] = sorted(constraints, key=lambda c: json.dumps(c, sort_keys=True))
    return body


def _property(owner: str, made: Property) -> dict[str, Any]:
    body: dict[str, Any] = {
        "name": made.name,
        "prop_id": stable_id(f"{owner}:{made.name}"),
        "prop_type": property_type_json(made.type),
        "annotations": annotations_json(made.annotations),
    }
    if made.inherited_from is not None:
        body["inherited_from"] = made.inherited_from
    return body


def annotations_json(annotations: Iterable[Annotation]) -> list[dict[str, Any]]:
    """The annotations that carry meaning, in canonical order."""
    kept = [annotation_json(note) for note in annotations if note.name != "rename_from"]
    return sorted(kept, key=lambda note: (note["name"], json.dumps(note, sort_keys=True)))


def constraints_of(made: NodeType | EdgeType) -> tuple[SchemaConstraint, ...]:
    """Every constraint of a type as a value. Column sets are sorted, except those of a key."""
    found: list[SchemaConstraint] = [
        *(UniqueConstraint(properties=tuple(sorted(columns))) for columns in made.unique),
        *(IndexConstraint(properties=tuple(sorted(columns))) for columns in made.index),
    ]
    if isinstance(made, NodeType):
        if made.key:
            found.append(KeyConstraint(properties=made.key))
        found += [*made.ranges, *made.checks]
    return tuple(found)


# --- decode ------------------------------------------------------------------------------------


def decode(ir: str) -> Types:
    """The types that an IR text describes, or `CorruptGraphError`."""
    try:
        body = json.loads(ir)
        if body["ir_version"] != IR_VERSION:
            raise CorruptGraphError(
                f"the stored schema has IR version {body['ir_version']}, expected {IR_VERSION}",
                part="schema",
            )
        return Types(
            interfaces={
                each["name"]: InterfaceType(
                    name=each["name"], properties=tuple(map(_read_property, each["properties"]))
                )
                for each in body["interfaces"]
            },
            nodes={each["name"]: _read_node(each) for each in body["nodes"]},
            edges={each["name"]: _read_edge(each) for each in body["edges"]},
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as cause:
        raise CorruptGraphError("the stored schema IR is unreadable", part="schema") from cause


def _read_facts(body: dict[str, Any]) -> Any:
    """What nodes and edges have in common."""
    notes = tuple(map(_read_annotation, body["annotations"]))
    return {
        "name": body["name"],
        "properties": tuple(map(_read_property, body["properties"])),
        "unique": tuple(map(tuple, _constraints(body, "Unique"))),
        "index": tuple(map(tuple, _constraints(body, "Index"))),
        "annotations": notes,
        "description": _text_of(notes, "description"),
        "instruction": _text_of(notes, "instruction"),
    }


def _constraints(body: dict[str, Any], kind: str) -> list[Any]:
    return [each[kind] for each in body["constraints"] if kind in each]


def _read_node(body: dict[str, Any]) -> NodeType:
    keys = _constraints(body, "Key")
    return NodeType(
        **_read_facts(body),
        key=tuple(keys[0]) if keys else (),
        ranges=tuple(map(_read_range, _constraints(body, "Range"))),
        checks=tuple(Check(**each) for each in _constraints(body, "Check")),
        implements=tuple(body["implements"]),
    )


def _read_edge(body: dict[str, Any]) -> EdgeType:
    bounds = body["cardinality"]
    return EdgeType(
        **_read_facts(body),
        from_type=body["from_type"],
        to_type=body["to_type"],
        cardinality=Cardinality(minimum=bounds["min"], maximum=bounds["max"]),
    )


def _read_property(body: dict[str, Any]) -> Property:
    kind = _read_type(body["prop_type"])
    notes = tuple(map(_read_annotation, body["annotations"]))
    embed = next((note for note in notes if note.name == "embed"), None)
    default = next((note.value for note in notes if note.name == "default"), None)
    if kind.scalar in (Scalar.F32, Scalar.F64) and isinstance(default, int):
        default = float(default)
    model = dict(embed.kwargs).get("model") if embed else None
    return Property(
        name=body["name"],
        type=kind,
        annotations=notes,
        embed=Embed(source=str(embed.value), model=None if model is None else str(model))
        if embed
        else None,
        default=default,
        description=_text_of(notes, "description"),
        inherited_from=body.get("inherited_from"),
    )


def _read_type(body: dict[str, Any]) -> PropertyType:
    scalar, dimension = body["scalar"], None
    if scalar.startswith("Vector("):
        scalar, dimension = "Vector", int(scalar[len("Vector(") : -1])
    values = body["enum_values"]
    return PropertyType(
        scalar=Scalar(scalar),
        nullable=body["nullable"],
        is_list=body["list"],
        enum_values=None if values is None else tuple(values),
        dimension=dimension,
    )


def _read_annotation(body: dict[str, Any]) -> Annotation:
    kwargs: dict[str, LiteralValue] = body.get("kwargs", {})
    return Annotation(name=body["name"], value=body["value"], kwargs=tuple(kwargs.items()))


def _read_range(body: dict[str, Any]) -> Range:
    low, high = (
        None if bound is None else next(iter(bound.values()))
        for bound in (body["min"], body["max"])
    )
    return Range(property=body["property"], minimum=low, maximum=high)


def _text_of(notes: tuple[Annotation, ...], name: str) -> str | None:
    value = next((note.value for note in notes if note.name == name), None)
    return value if isinstance(value, str) else None
