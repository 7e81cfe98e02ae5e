"""Text to catalog, and a stored catalog back from its canonical form.

A catalog is the checked declarations put together: interfaces flow into nodes, edges find their
ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.schema.ast import (
    ConstraintDecl,
    EdgeDecl,
    InterfaceDecl,
    Member,
    NodeDecl,
    PropertyDecl,
    Reference,
    SchemaDecl,
)
from omnigraph.compiler.schema.check import (
    Constraints,
    Draft,
    Owner,
    as_value,
    check_constraint,
    check_embed_source,
    check_property,
    check_type_annotations,
)
from omnigraph.compiler.schema.ir import Types, decode, encode, hash_of, stable_id
from omnigraph.compiler.schema.parse import parse_schema
from omnigraph.compiler.text import Problems, SourceText, facts_of
from omnigraph.errors import CorruptGraphError, InputError, ParseError, SchemaError
from omnigraph.model.limits import COMPILED_SCHEMAS_CACHED_MAX
from omnigraph.model.schema import (
    Cardinality,
    Catalog,
    EdgeType,
    InterfaceType,
    NodeType,
    PropertyType,
    Scalar,
)
from omnigraph.model.values import in_bounds

_Decl = TypeVar("_Decl", InterfaceDecl, NodeDecl, EdgeDecl)


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a declaration after their own checks."""

    drafts: dict[str, Draft]
    types: dict[str, PropertyType | None]  # None: declared with a type we do not understand
    constraints: tuple[ConstraintDecl, ...]


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
        f"{kind}:{name}": made.properties
        for kind, group in (
            ("interface", types.interfaces),
            ("node", types.nodes),
            ("edge", types.edges),
        )
        for name, made in group.items()
    }
    _check_distinct(list(owners), problems)
    for owner, properties in owners.items():
        _check_distinct([f"{owner}:{prop.name}" for prop in properties], problems)


def _check_distinct(names: list[str], problems: Problems) -> None:
    seen: dict[int, str] = {}
    for name in names:
        other = seen.setdefault(stable_id(name), name)
        if other != name:
            problems.report(
                0,
                f"the names {name} and {other} hash to the same id",
                stage="catalog",
                hint="rename one of them",
            )


# --- declarations put together -----------------------------------------------------------------


def _build_types(schema: SchemaDecl, problems: Problems) -> Types:
    """Every type that could be understood; whatever could not is in `problems`."""
    declared = schema.declarations
    interfaces = [decl for decl in declared if isinstance(decl, InterfaceDecl)]
    interfaces = _unique_names("interface", interfaces, problems)
    nodes = [decl for decl in declared if isinstance(decl, NodeDecl)]
    nodes = _unique_names("node type", nodes, problems)
    edges = [decl for decl in declared if isinstance(decl, EdgeDecl)]
    edges = _unique_names("edge type", edges, problems)
    _check_letter_case(edges, problems)
    bodies = {
        decl.name: _body(Owner(kind="interface", name=decl.name), decl.members, problems)
        for decl in interfaces
    }
    return Types(
        interfaces={
            name: InterfaceType(
                name=name, properties=tuple(draft.property for draft in body.drafts.values())
            )
            for name, body in bodies.items()
        },
        nodes={decl.name: _node(decl, bodies, problems) for decl in nodes},
        edges={decl.name: _edge(decl, {n.name for n in nodes}, problems) for decl in edges},
    )


def _unique_names(what: str, decls: Sequence[_Decl], problems: Problems) -> list[_Decl]:
    kept: dict[str, _Decl] = {}
    for decl in decls:
        if decl.name not in kept:
            kept[decl.name] = decl
        else:
            problems.report(decl.at, f"duplicate {what}: {decl.name}", stage="catalog")
    return list(kept.values())


def _check_letter_case(edges: Iterable[EdgeDecl], problems: Problems) -> None:
    folded: dict[str, str] = {}
    for decl in edges:
        other = folded.setdefault(decl.name.casefold(), decl.name)
        if other != decl.name:
            problems.report(
                decl.at,
                f"duplicate edge type: {decl.name} differs from {other} only in letter case",
                stage="catalog",
                hint="queries find edges in any letter case, so their names must differ otherwise",
            )


def _body(owner: Owner, members: Sequence[Member], problems: Problems) -> _Body:
    drafts: dict[str, Draft] = {}
    types: dict[str, PropertyType | None] = {}
    for decl in members:
        if not isinstance(decl, PropertyDecl):
            continue
        if decl.name in types:
            problems.report(
                decl.at, f"duplicate property '{decl.name}' in {owner.kind} {owner.name}"
            )
            continue
        draft = check_property(owner, decl, problems)
        types[decl.name] = draft.property.type if draft else None
        if draft:
            drafts[decl.name] = draft
    constraints = tuple(decl for decl in members if isinstance(decl, ConstraintDecl))
    return _Body(drafts=drafts, types=types, constraints=constraints)


# --- nodes ---------------------------------------------------------------------------------


def _node(decl: NodeDecl, interfaces: dict[str, _Body], problems: Problems) -> NodeType:
    owner = Owner(kind="node", name=decl.name)
    texts = check_type_annotations(owner, decl.annotations, problems)
    body = _body(owner, decl.members, problems)
    _inherit(decl, body, interfaces, problems)
    properties = {name: draft.property for name, draft in body.drafts.items()}
    for draft in body.drafts.values():
        check_embed_source(owner, draft, properties, problems)
    constraints = _constraints(owner, body, problems)
    _check_single_key(decl, constraints, problems)
    _check_defaults(owner, body, constraints, problems)
    return NodeType(
        name=decl.name,
        properties=tuple(properties.values()),
        # Identity order: a fresh type encodes its ids by property name (see NodeType).
        key=tuple(sorted(constraints.keys[0])) if constraints.keys else (),
        unique=tuple(constraints.unique.values()),
        index=tuple(constraints.index.values()),
        ranges=tuple(constraints.ranges),
        checks=tuple(constraints.checks),
        implements=tuple(dict.fromkeys(ref.name for ref in decl.implements)),
        annotations=tuple(as_value(note) for note in decl.annotations),
        description=texts.get("description"),
        instruction=texts.get("instruction"),
        rename_from=texts.get("rename_from"),
    )


def _inherit(decl: NodeDecl, body: _Body, interfaces: dict[str, _Body], problems: Problems) -> None:
    """Add the properties of the interfaces behind the node's own; its own declarations win."""
    own = frozenset(body.types)
    seen: set[str] = set()
    for ref in decl.implements:
        if ref.name in seen:
            continue
        seen.add(ref.name)
        source = interfaces.get(ref.name)
        if source is None:
            problems.report(
                ref.at,
                f"node {decl.name} implements unknown interface '{ref.name}'",
                hint=problems.suggest(ref.name, interfaces),
            )
            continue
        for name in source.types:
            if name in own:
                _check_redeclared(decl, name, body, source, ref, problems)
            else:
                _bring(decl, name, body, source, ref, problems)


def _check_redeclared(
    decl: NodeDecl, name: str, body: _Body, source: _Body, ref: Reference, problems: Problems
) -> None:
    mine, theirs = body.types[name], source.types[name]
    if mine is not None and theirs is not None and mine != theirs:
        problems.report(
            body.drafts[name].at,
            f"node {decl.name} property '{name}' has type {mine} "
            f"but interface {ref.name} declares it as {theirs}",
        )


def _bring(
    decl: NodeDecl, name: str, body: _Body, source: _Body, ref: Reference, problems: Problems
) -> None:
    """One property of one interface. Two interfaces may bring the same one if the types agree;
    then the node has the constraints of both, whatever the order of their names."""
    theirs = source.drafts.get(name)
    present = body.drafts.get(name)
    if name not in body.types or (present is None and theirs is not None):
        body.types[name] = source.types[name]
        if theirs is not None:
            made = replace(theirs.property, inherited_from=ref.name)
            body.drafts[name] = replace(theirs, property=made, at=ref.at)
        return
    if present is None or theirs is None:
        return
    if present.property.type != theirs.property.type:
        problems.report(
            ref.at,
            f"node {decl.name} has conflicting declarations of property '{name}': "
            f"interface {present.property.inherited_from} declares it as {present.property.type}, "
            f"interface {ref.name} as {theirs.property.type}",
        )
        return
    first = min(str(present.property.inherited_from), ref.name)
    chosen = present.property if first != ref.name else theirs.property
    body.drafts[name] = replace(
        present,
        property=replace(chosen, inherited_from=first),
        words=present.words | theirs.words,
    )


def _constraints(owner: Owner, body: _Body, problems: Problems) -> Constraints:
    constraints = Constraints()
    for name, draft in body.drafts.items():
        for word in sorted(draft.words):
            constraints.add_columns(word, (name,))
    for decl in body.constraints:
        check_constraint(owner, decl, body.types, constraints, problems)
    return constraints


def _check_single_key(decl: NodeDecl, constraints: Constraints, problems: Problems) -> None:
    if len(constraints.keys) > 1:
        names = ", ".join(dict.fromkeys(name for key in constraints.keys for name in key))
        problems.report(
            decl.at,
            f"node type {decl.name} declares multiple @key constraints",
            hint=f"a key of several properties is written once, in the body: `@key({names})`",
        )


def _check_defaults(
    owner: Owner, body: _Body, constraints: Constraints, problems: Problems
) -> None:
    """A default that the type itself forbids would fail at the first insert; say so now."""
    for bound in constraints.ranges:
        draft = body.drafts.get(bound.property)
        value = draft.property.default if draft else None
        if draft is None or value is None or isinstance(value, str | bool):
            continue
        below = bound.minimum is not None and value < bound.minimum
        above = bound.maximum is not None and value > bound.maximum
        if below or above:
            problems.report(
                draft.at,
                f"@default({value}) of {owner.name}.{bound.property} is outside of its @range",
            )
    for name in constraints.keys[0] if constraints.keys else ():
        draft = body.drafts.get(name)
        if draft is not None and draft.property.default is not None and "key" not in draft.words:
            problems.report(
                draft.at, f"@default is not supported on key property {owner.name}.{name}"
            )


# --- edges ---------------------------------------------------------------------------------


def _edge(decl: EdgeDecl, nodes: set[str], problems: Problems) -> EdgeType:
    owner = Owner(kind="edge", name=decl.name)
    texts = check_type_annotations(owner, decl.annotations, problems)
    for end, ref in (("source", decl.source), ("target", decl.target)):
        if ref.name not in nodes:
            problems.report(
                ref.at,
                f"edge {decl.name} references unknown {end} type: {ref.name}",
                stage="catalog",
                hint=problems.suggest(ref.name, nodes) or f"declare it: `node {ref.name} {{ … }}`",
            )
    body = _body(owner, decl.members, problems)
    constraints = _constraints(owner, body, problems)
    return EdgeType(
        name=decl.name,
        from_type=decl.source.name,
        to_type=decl.target.name,
        cardinality=_cardinality(decl, problems),
        properties=tuple(draft.property for draft in body.drafts.values()),
        unique=tuple(constraints.unique.values()),
        index=tuple(constraints.index.values()),
        annotations=tuple(as_value(note) for note in decl.annotations),
        description=texts.get("description"),
        instruction=texts.get("instruction"),
        rename_from=texts.get("rename_from"),
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
