"""Text to catalog, and a stored catalog back from its canonical form, the IR.

A catalog is the checked declarations put together: interfaces flow into nodes, edges find their
ends. Its IR is JSON, version 1: the same meaning gives the same text, and so the same hash. Order
of declarations, comments, white space and `@rename_from` hints leave no trace in it; the order of
key columns does, because ids are encoded in it. `decode` reads what `encode` wrote.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.schema.check import TypeChecker, as_value
from omnigraph.compiler.schema.parse import (
    Declaration,
    EdgeDecl,
    InterfaceDecl,
    NodeDecl,
    Reference,
    parse_schema,
)
from omnigraph.compiler.text import Problems, SourceText, facts_of
from omnigraph.errors import CorruptGraphError, InputError, ParseError, SchemaError
from omnigraph.model.limits import COMPILED_SCHEMAS_CACHED_MAX
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
    Catalog,
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
from omnigraph.model.values import in_bounds

IR_VERSION = 1
_Decl = TypeVar("_Decl", InterfaceDecl, NodeDecl, EdgeDecl)


class Types(msgspec.Struct, frozen=True, kw_only=True):
    """All types of a schema, by name: in the order of its text, or of its IR."""

    interfaces: dict[str, InterfaceType]
    nodes: dict[str, NodeType]
    edges: dict[str, EdgeType]


@lru_cache(maxsize=COMPILED_SCHEMAS_CACHED_MAX)
def _compiled(source: str, name: str) -> Catalog:
    text = SourceText(source, name)
    problems = Problems(text, stage="parse")
    types = _build_types(parse_schema(text), problems)
    _check_ids(types, problems)
    if problems:
        found = problems.found(ordered=True)
        family = ParseError if found[0].stage == "parse" else SchemaError
        raise family(found[0].message, **facts_of(found, text))
    return catalog_of(types, source=source)


def compile_schema(source: str, *, name: str = "schema") -> Catalog:
    """The checked meaning of a schema text.

    `ParseError` when a declaration is wrong by itself, `SchemaError` when declarations do not fit
    together. Both have `line`, `column`, `excerpt`, and all problems under `errors`.
    """
    return _compiled(source, name)


def catalog_of(types: Types, *, source: str) -> Catalog:
    """The catalog of checked types."""
    ir = encode(types)
    return Catalog(
        nodes=types.nodes,
        edges=types.edges,
        interfaces=types.interfaces,
        source=source,
        ir=ir,
        hash=hash_of(ir),
    )


def with_key_order(catalog: Catalog, keys: dict[str, tuple[str, ...]]) -> Catalog:
    """The catalog with the key columns of some node types in another (identity) order."""
    changed = {name: key for name, key in keys.items() if catalog.nodes[name].key != key}
    if not changed:
        return catalog
    nodes: dict[str, NodeType] = {
        name: replace(node, key=changed.get(name, node.key)) for name, node in catalog.nodes.items()
    }
    types = Types(interfaces=dict(catalog.interfaces), nodes=nodes, edges=dict(catalog.edges))
    return catalog_of(types, source=catalog.source)


def catalog_from_ir(ir: str, source: str) -> Catalog:
    """The catalog that a graph stored as its IR and source text.

    The IR is the authority, identities included; the source adds what the IR leaves out (order of
    properties, rename hints). A source that compiles to another meaning is `CorruptGraphError`; one
    that this version no longer accepts is kept as text only.
    """
    stored = decode(ir)
    try:
        compiled = compile_schema(source)
    except InputError:
        return replace(catalog_of(stored, source=source), ir=ir, hash=hash_of(ir))
    keys = {
        name: node.key
        for name, node in stored.nodes.items()
        if name in compiled.nodes and set(node.key) == set(compiled.nodes[name].key)
    }
    restored = with_key_order(compiled, keys)
    if restored.ir != ir:
        raise CorruptGraphError(
            "the stored schema source does not compile to the stored schema",
            part="schema",
            expected=hash_of(ir),
            actual=restored.hash,
        )
    return restored


def _check_ids(types: Types, problems: Problems) -> None:
    """Two names with one id would be one thing to whoever reads the IR by id."""
    owners = {
        **{f"interface:{name}": made.properties for name, made in types.interfaces.items()},
        **{f"node:{name}": made.properties for name, made in types.nodes.items()},
        **{f"edge:{name}": made.properties for name, made in types.edges.items()},
    }
    members = ([f"{owner}:{prop.name}" for prop in owners[owner]] for owner in owners)
    for names in (owners, *members):
        seen: dict[int, str] = {}
        for name in names:
            other = seen.setdefault(stable_id(name), name)
            if other != name:
                message = f"the names {name} and {other} hash to the same id"
                problems.report(0, message, stage="catalog", hint="rename one of them")


# --- declarations put together -----------------------------------------------------------------


def _build_types(declared: Sequence[Declaration], problems: Problems) -> Types:
    """Every type that could be understood; whatever could not is in `problems`."""
    interfaces = _unique_names("interface", InterfaceDecl, declared, problems)
    nodes = _unique_names("node type", NodeDecl, declared, problems)
    edges = _unique_names("edge type", EdgeDecl, declared, problems)
    _check_letter_case(edges, problems)
    bodies: dict[str, TypeChecker] = {}
    for name, decl in interfaces.items():
        bodies[name] = TypeChecker(kind="interface", name=name, problems=problems)
        bodies[name].check_properties(decl.members)
    return Types(
        interfaces={
            name: InterfaceType(
                name=name, properties=tuple(draft.property for draft in body.drafts.values())
            )
            for name, body in bodies.items()
        },
        nodes={name: _node(decl, bodies, problems) for name, decl in nodes.items()},
        edges={name: _edge(decl, nodes, problems) for name, decl in edges.items()},
    )


def _unique_names(
    what: str, kind: type[_Decl], decls: Sequence[Declaration], problems: Problems
) -> dict[str, _Decl]:
    kept: dict[str, _Decl] = {}
    for decl in decls:
        if not isinstance(decl, kind):
            continue
        if kept.setdefault(decl.name, decl) is not decl:
            problems.report(decl.at, f"duplicate {what}: {decl.name}", stage="catalog")
    return kept


def _check_letter_case(edges: Mapping[str, EdgeDecl], problems: Problems) -> None:
    folded: dict[str, str] = {}
    for name, decl in edges.items():
        other = folded.setdefault(name.casefold(), name)
        if other != name:
            problems.report(
                decl.at,
                f"duplicate edge type: {name} differs from {other} only in letter case",
                stage="catalog",
                hint="queries find edges in any letter case, so their names must differ otherwise",
            )


def _facts(checker: TypeChecker, decl: NodeDecl | EdgeDecl, texts: dict[str, str]) -> Any:
    """What nodes and edges have in common."""
    return {
        "name": decl.name,
        "properties": tuple(draft.property for draft in checker.drafts.values()),
        "unique": tuple(checker.unique.values()),
        "index": tuple(checker.index.values()),
        "annotations": tuple(map(as_value, decl.annotations)),
        **texts,
    }


# --- nodes ---------------------------------------------------------------------------------


def _node(decl: NodeDecl, interfaces: dict[str, TypeChecker], problems: Problems) -> NodeType:
    checker = TypeChecker(kind="node", name=decl.name, problems=problems)
    texts = checker.texts(decl.annotations)
    checker.check_properties(decl.members)
    _inherit(decl, checker, interfaces)
    checker.check_embed_sources()
    checker.check_constraints(decl.members)
    if len(checker.keys) > 1:
        names = ", ".join(dict.fromkeys(name for key in checker.keys for name in key))
        problems.report(
            decl.at,
            f"node type {decl.name} declares multiple @key constraints",
            hint=f"a key of several properties is written once, in the body: `@key({names})`",
        )
    _check_defaults(checker)
    return NodeType(
        **_facts(checker, decl, texts),
        # Identity order: a fresh type encodes its ids by property name (see NodeType).
        key=tuple(sorted(checker.keys[0])) if checker.keys else (),
        ranges=tuple(checker.ranges),
        checks=tuple(checker.checks),
        implements=tuple(dict.fromkeys(ref.name for ref in decl.implements)),
    )


def _inherit(decl: NodeDecl, node: TypeChecker, interfaces: dict[str, TypeChecker]) -> None:
    """Add the properties of the interfaces behind the node's own; its own declarations win."""
    own = dict(node.types)
    seen: set[str] = set()
    for ref in decl.implements:
        if ref.name in seen:
            continue
        seen.add(ref.name)
        source = interfaces.get(ref.name)
        if source is None:
            node.problems.report(
                ref.at,
                f"node {decl.name} implements unknown interface '{ref.name}'",
                hint=node.problems.suggest(ref.name, interfaces),
            )
            continue
        for name, theirs in source.types.items():
            if name not in own:
                _bring(name, node, source, ref)
            elif own[name] is not None and theirs is not None and own[name] != theirs:
                node.problems.report(
                    node.drafts[name].at,
                    f"node {decl.name} property '{name}' has type {own[name]} "
                    f"but interface {ref.name} declares it as {theirs}",
                )


def _bring(name: str, node: TypeChecker, source: TypeChecker, ref: Reference) -> None:
    """One property of one interface. Two interfaces may bring the same one if the types agree;
    then the node has the constraints of both, whatever the order of their names."""
    theirs, present = source.drafts.get(name), node.drafts.get(name)
    if theirs is None:
        node.types.setdefault(name, None)
        return
    if present is None:
        node.types[name] = theirs.property.type
        made = replace(theirs.property, inherited_from=ref.name)
        node.drafts[name] = replace(theirs, property=made, at=ref.at)
        return
    if present.property.type != theirs.property.type:
        node.problems.report(
            ref.at,
            f"node {node.name} has conflicting declarations of property '{name}': "
            f"interface {present.property.inherited_from} declares it as {present.property.type}, "
            f"interface {ref.name} as {theirs.property.type}",
        )
        return
    first = min(str(present.property.inherited_from), ref.name)
    chosen = present.property if first != ref.name else theirs.property
    made = replace(chosen, inherited_from=first)
    node.drafts[name] = replace(present, property=made, words=present.words | theirs.words)


def _check_defaults(node: TypeChecker) -> None:
    """A default that the type itself forbids would fail at the first insert; say so now."""
    for bound in node.ranges:
        draft = node.drafts.get(bound.property)
        value = draft.property.default if draft else None
        if draft is None or value is None or isinstance(value, str | bool):
            continue
        below = bound.minimum is not None and value < bound.minimum
        above = bound.maximum is not None and value > bound.maximum
        if below or above:
            message = f"@default({value}) of {node.name}.{bound.property} is outside of its @range"
            node.problems.report(draft.at, message)
    for name in node.keys[0] if node.keys else ():
        draft = node.drafts.get(name)
        if draft is not None and draft.property.default is not None and "key" not in draft.words:
            message = f"@default is not supported on key property {node.name}.{name}"
            node.problems.report(draft.at, message)


# --- edges ---------------------------------------------------------------------------------


def _edge(decl: EdgeDecl, nodes: Mapping[str, NodeDecl], problems: Problems) -> EdgeType:
    checker = TypeChecker(kind="edge", name=decl.name, problems=problems)
    texts = checker.texts(decl.annotations)
    for end, ref in (("source", decl.source), ("target", decl.target)):
        if ref.name not in nodes:
            problems.report(
                ref.at,
                f"edge {decl.name} references unknown {end} type: {ref.name}",
                stage="catalog",
                hint=problems.suggest(ref.name, nodes) or f"declare it: `node {ref.name} {{ … }}`",
            )
    checker.check_properties(decl.members)
    checker.check_constraints(decl.members)
    return EdgeType(
        **_facts(checker, decl, texts),
        from_type=decl.source.name,
        to_type=decl.target.name,
        cardinality=_cardinality(decl, problems),
    )


def _cardinality(decl: EdgeDecl, problems: Problems) -> Cardinality:
    written = decl.cardinality
    if written is None:
        return Cardinality()
    low, high = written.minimum, written.maximum
    if high is not None and low > high:
        problems.report(
            written.at,
            f"@card on edge {decl.name} has min {low} > max {high}",
            hint=f"write `@card({high}..{low})`",
        )
    elif not in_bounds(max(low, high or 0), Scalar.I64):
        problems.report(written.at, f"@card on edge {decl.name} counts too far")
    return Cardinality(minimum=low, maximum=high)


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


# --- catalog to IR --------------------------------------------------------------------------------


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


# --- IR to catalog --------------------------------------------------------------------------------


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
