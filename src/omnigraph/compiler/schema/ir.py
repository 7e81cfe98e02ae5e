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
        "interfaces": [_interface(types.interfaces[name]) for name in sorted(types.interfaces)],
        "nodes": [_node(types.nodes[name]) for name in sorted(types.nodes)],
        "edges": [_edge(types.edges[name]) for name in sorted(types.edges)],
    }
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _interface(made: InterfaceType) -> dict[str, Any]:
    return {
        "name": made.name,
        "type_id": stable_id(f"interface:{made.name}"),
        "properties": _properties("interface", made.name, made.properties),
    }


def _node(made: NodeType) -> dict[str, Any]:
    return {
        "name": made.name,
        "type_id": stable_id(f"node:{made.name}"),
        "annotations": annotations_json(made.annotations),
        "implements": sorted(set(made.implements)),
        "properties": _properties("node", made.name, made.properties),
        "constraints": _constraints(made),
    }


def _edge(made: EdgeType) -> dict[str, Any]:
    return {
        "name": made.name,
        "type_id": stable_id(f"edge:{made.name}"),
        "from_type": made.from_type,
        "to_type": made.to_type,
        "cardinality": {"min": made.cardinality.minimum, "max": made.cardinality.maximum},
        "annotations": annotations_json(made.annotations),
        "properties": _properties("edge", made.name, made.properties),
        "constraints": _constraints(made),
    }


def _properties(kind: str, owner: str, properties: Iterable[Property]) -> list[dict[str, Any]]:
    found = []
    for made in sorted(properties, key=lambda prop: prop.name):
        body: dict[str, Any] = {
            "name": made.name,
            "prop_id": stable_id(f"{kind}:{owner}:{made.name}"),
            "prop_type": property_type_json(made.type),
            "annotations": annotations_json(made.annotations),
        }
        if made.inherited_from is not None:
            body["inherited_from"] = made.inherited_from
        found.append(body)
    return found


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


def _constraints(made: NodeType | EdgeType) -> list[dict[str, Any]]:
    bodies = [constraint_json(constraint) for constraint in constraints_of(made)]
    return sorted(bodies, key=lambda body: json.dumps(body, sort_keys=True))


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
            interfaces={each["name"]: _read_interface(each) for each in body["interfaces"]},
            nodes={each["name"]: _read_node(each) for each in body["nodes"]},
            edges={each["name"]: _read_edge(each) for each in body["edges"]},
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as cause:
        raise CorruptGraphError("the stored schema IR is unreadable", part="schema") from cause


def _read_interface(body: dict[str, Any]) -> InterfaceType:
    return InterfaceType(name=body["name"], properties=_read_properties(body["properties"]))


def _read_node(body: dict[str, Any]) -> NodeType:
    constraints = body["constraints"]
    notes = tuple(_read_annotation(note) for note in body["annotations"])
    keys = [tuple(each["Key"]) for each in constraints if "Key" in each]
    return NodeType(
        name=body["name"],
        properties=_read_properties(body["properties"]),
        key=keys[0] if keys else (),
        unique=tuple(tuple(each["Unique"]) for each in constraints if "Unique" in each),
        index=tuple(tuple(each["Index"]) for each in constraints if "Index" in each),
        ranges=tuple(_read_range(each["Range"]) for each in constraints if "Range" in each),
        checks=tuple(Check(**each["Check"]) for each in constraints if "Check" in each),
        implements=tuple(body["implements"]),
        annotations=notes,
        description=_text_of(notes, "description"),
        instruction=_text_of(notes, "instruction"),
    )


def _read_edge(body: dict[str, Any]) -> EdgeType:
    constraints = body["constraints"]
    notes = tuple(_read_annotation(note) for note in body["annotations"])
    return EdgeType(
        name=body["name"],
        from_type=body["from_type"],
        to_type=body["to_type"],
        cardinality=Cardinality(
            minimum=body["cardinality"]["min"], maximum=body["cardinality"]["max"]
        ),
        properties=_read_properties(body["properties"]),
        unique=tuple(tuple(each["Unique"]) for each in constraints if "Unique" in each),
        index=tuple(tuple(each["Index"]) for each in constraints if "Index" in each),
        annotations=notes,
        description=_text_of(notes, "description"),
        instruction=_text_of(notes, "instruction"),
    )


def _read_properties(bodies: list[dict[str, Any]]) -> tuple[Property, ...]:
    return tuple(_read_property(body) for body in bodies)


def _read_property(body: dict[str, Any]) -> Property:
    kind = _read_type(body["prop_type"])
    notes = tuple(_read_annotation(note) for note in body["annotations"])
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
