"""Checked declarations put together: interfaces flow into nodes, edges find their ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from omnigraph.compiler.diagnostics import did_you_mean
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
from omnigraph.compiler.schema.problems import Problems
from omnigraph.model.schema import (
    Cardinality,
    EdgeType,
    InterfaceType,
    NodeType,
    PropertyType,
)

_Decl = TypeVar("_Decl", InterfaceDecl, NodeDecl, EdgeDecl)


@dataclass(frozen=True, slots=True, kw_only=True)
class Types:
    """All types of a schema, in the order of the text."""

    interfaces: dict[str, InterfaceType]
    nodes: dict[str, NodeType]
    edges: dict[str, EdgeType]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Body:
    """The members of a declaration after their own checks."""

    drafts: dict[str, Draft]
    types: dict[str, PropertyType | None]  # None: declared with a type we do not understand
    constraints: tuple[ConstraintDecl, ...]


def build_types(schema: SchemaDecl, problems: Problems) -> Types:
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
            problems.report(f"duplicate {what}: {decl.name}", offset=decl.offset, stage="catalog")
    return list(kept.values())


def _check_letter_case(edges: Iterable[EdgeDecl], problems: Problems) -> None:
    folded: dict[str, str] = {}
    for decl in edges:
        other = folded.setdefault(decl.name.casefold(), decl.name)
        if other != decl.name:
            problems.report(
                f"duplicate edge type: {decl.name} differs from {other} only in letter case",
                offset=decl.offset,
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
                f"duplicate property '{decl.name}' in {owner.kind} {owner.name}",
                offset=decl.offset,
            )
            continue
        draft = check_property(owner, decl, problems)
        types[decl.name] = draft.property.type if draft else None
        if draft:
            drafts[decl.name] = draft
    constraints = tuple(decl for decl in members if isinstance(decl, ConstraintDecl))
    return _Body(drafts=drafts, types=types, constraints=constraints)


# --- nodes -------------------------------------------------------------------------------------


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
                f"node {decl.name} implements unknown interface '{ref.name}'",
                offset=ref.offset,
                hint=partial(did_you_mean, ref.name, interfaces),
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
            f"node {decl.name} property '{name}' has type {mine} "
            f"but interface {ref.name} declares it as {theirs}",
            offset=body.drafts[name].offset,
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
            body.drafts[name] = replace(theirs, property=made, offset=ref.offset)
        return
    if present is None or theirs is None:
        return
    if present.property.type != theirs.property.type:
        problems.report(
            f"node {decl.name} has conflicting declarations of property '{name}': "
            f"interface {present.property.inherited_from} declares it as {present.property.type}, "
            f"interface {ref.name} as {theirs.property.type}",
            offset=ref.offset,
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
            f"node type {decl.name} declares multiple @key constraints",
            offset=decl.offset,
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
                f"@default({value}) of {owner.name}.{bound.property} is outside of its @range",
                offset=draft.offset,
            )
    for name in constraints.keys[0] if constraints.keys else ():
        draft = body.drafts.get(name)
        if draft is not None and draft.property.default is not None and "key" not in draft.words:
            problems.report(
                f"@default is not supported on key property {owner.name}.{name}",
                offset=draft.offset,
            )


# --- edges -------------------------------------------------------------------------------------


def _edge(decl: EdgeDecl, nodes: set[str], problems: Problems) -> EdgeType:
    owner = Owner(kind="edge", name=decl.name)
    texts = check_type_annotations(owner, decl.annotations, problems)
    for end, ref in (("source", decl.source), ("target", decl.target)):
        if ref.name not in nodes:
            problems.report(
                f"edge {decl.name} references unknown {end} type: {ref.name}",
                offset=ref.offset,
                stage="catalog",
                hint=partial(_endpoint_hint, ref.name, nodes),
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


def _endpoint_hint(name: str, nodes: set[str]) -> str:
    return did_you_mean(name, nodes) or f"declare it: `node {name} {{ … }}`"


def _cardinality(decl: EdgeDecl, problems: Problems) -> Cardinality:
    written = decl.cardinality
    if written is None:
        return Cardinality()
    low, high = written.minimum, written.maximum
    if high is not None and low > high:
        problems.report(
            f"@card on edge {decl.name} has min {low} > max {high}",
            offset=written.offset,
            hint=f"write `@card({high}..{low})`",
        )
    elif max(low, high or 0) >= 2**63:
        problems.report(f"@card on edge {decl.name} counts too far", offset=written.offset)
    return Cardinality(minimum=low, maximum=high)
