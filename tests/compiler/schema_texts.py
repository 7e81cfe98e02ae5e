"""Schemas made by hypothesis: syntax trees that print to valid text."""

from __future__ import annotations

from hypothesis import strategies as st

from omnigraph.compiler.schema.parse import (
    AnnotationDecl,
    CardinalityDecl,
    ConstraintDecl,
    EdgeDecl,
    InterfaceDecl,
    NodeDecl,
    PropertyDecl,
    RangeArg,
    Reference,
    TypeExpr,
    Word,
)

_BASES = ("String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime", "Blob")
_NUMBERS = ("I32", "I64", "U32", "U64", "F32", "F64")
_RESERVED = ("from", "to", "id", "src", "dst", "true", "false")
_ENUM_VALUES = st.text(alphabet="abzAZ09_-", min_size=1, max_size=6)
_TEXTS = st.text(
    alphabet=st.characters(codec="utf-8", exclude_categories=("Cs",)), min_size=1, max_size=12
).filter(str.strip)
type_names = st.from_regex(r"[A-Z][a-zA-Z0-9_]{0,6}", fullmatch=True)
property_names = st.from_regex(r"[a-z][a-zA-Z0-9_]{0,6}", fullmatch=True).filter(
    lambda name: name not in _RESERVED
)


@st.composite
def types(draw):
    """A written type of any form."""
    nullable = draw(st.booleans())
    form = draw(st.sampled_from(("base", "base", "list", "enum", "vector")))
    if form == "enum":
        values = tuple(draw(st.lists(_ENUM_VALUES, min_size=1, max_size=4, unique=True)))
        return TypeExpr(base="enum", enum_values=values, nullable=nullable)
    if form == "vector":
        size = draw(st.integers(min_value=1, max_value=4096))
        return TypeExpr(base="Vector", dimension=size, nullable=nullable)
    base = draw(st.sampled_from(_BASES if form == "base" else _BASES[:-1]))
    return TypeExpr(base=base, is_list=form == "list", nullable=nullable)


def _is_plain(kind):
    return not kind.is_list and kind.base not in ("Blob", "Vector")


@st.composite
def properties(draw, *, may_be_key):
    """A property with annotations that its type allows."""
    name, kind = draw(property_names), draw(types())
    words = []
    if _is_plain(kind):
        choices = ("unique", "index", "key") if may_be_key and not kind.nullable else ("unique",)
        words = draw(st.lists(st.sampled_from(choices), max_size=2, unique=True))
    notes = [AnnotationDecl(name=word) for word in words]
    if draw(st.booleans()):
        notes.append(AnnotationDecl(name="description", value=draw(_TEXTS)))
    if draw(st.booleans()):
        notes.append(AnnotationDecl(name="owner", value=draw(_arguments), kwargs=draw(_kwargs)))
    return PropertyDecl(name=name, type=kind, annotations=tuple(notes))


_arguments = st.one_of(
    _TEXTS,
    st.integers(min_value=-(10**12), max_value=10**12),
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9).map(
        lambda number: round(number, 6)
    ),
    st.booleans(),
    property_names.map(Word),
)
_kwargs = st.dictionaries(property_names, _TEXTS, max_size=2).map(lambda d: tuple(d.items()))


def _members(draw, *, kind):
    """Properties with distinct names, at most one of them a key, and constraints over them."""
    drawn = draw(st.lists(properties(may_be_key=kind == "node"), max_size=5))
    found, has_key = {}, False
    for prop in drawn:
        keyed = any(note.name == "key" for note in prop.annotations)
        if prop.name not in found and not (keyed and has_key):
            found[prop.name] = prop
            has_key = has_key or keyed
    members = list(found.values())
    if kind == "interface":
        return tuple(members)
    plain = [prop.name for prop in members if _is_plain(prop.type)]
    columns = plain + (["src", "dst"] if kind == "edge" else [])
    if columns and draw(st.booleans()):
        chosen = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3, unique=True))
        word = draw(st.sampled_from(("unique", "index")))
        members.append(ConstraintDecl(name=word, args=tuple(map(Word, chosen))))
    if kind == "node":
        members += _value_constraints(draw, members)
    return tuple(draw(st.permutations(members)))


def _value_constraints(draw, members):
    for prop in [each for each in members if isinstance(each, PropertyDecl)]:
        if prop.type.base in _NUMBERS and not prop.type.is_list and draw(st.booleans()):
            low = draw(st.none() | st.integers(min_value=-100, max_value=100))
            high = draw(st.integers(min_value=100, max_value=1000))
            yield ConstraintDecl(
                name="range", args=(Word(prop.name), RangeArg(minimum=low, maximum=high))
            )
        if prop.type.base == "String" and not prop.type.is_list and draw(st.booleans()):
            pattern = draw(st.sampled_from(("^a", "[0-9]+", 'x"y', "\\\\", "é|\n")))
            yield ConstraintDecl(name="check", args=(Word(prop.name), pattern))


@st.composite
def schemas(draw):
    """A whole schema that compiles."""
    names = draw(st.lists(type_names, min_size=1, max_size=6, unique_by=str.casefold))
    count = draw(st.integers(min_value=1, max_value=len(names)))
    nodes, edges = names[:count], names[count:]
    declarations = []
    if draw(st.booleans()):
        declarations.append(InterfaceDecl(name="Iface", members=_members(draw, kind="interface")))
    for name in nodes:
        members = _members(draw, kind="node")
        own = {each.name for each in members if isinstance(each, PropertyDecl)}
        free = declarations and isinstance(declarations[0], InterfaceDecl)
        brought = {each.name for each in declarations[0].members} if free else set()
        keyed = any(
            note.name == "key"
            for each in (*members, *(declarations[0].members if free else ()))
            if isinstance(each, PropertyDecl)
            for note in each.annotations
        )
        joins = bool(free) and not (own & brought) and not keyed and draw(st.booleans())
        declarations.append(
            NodeDecl(
                name=name,
                annotations=_header_notes(draw),
                implements=(Reference("Iface"),) if joins else (),
                members=members,
            )
        )
    for name in edges:
        ends = [Reference(draw(st.sampled_from(nodes))) for _ in range(2)]
        low = draw(st.integers(min_value=0, max_value=3))
        high = draw(st.none() | st.integers(min_value=3, max_value=9))
        bounds = CardinalityDecl(minimum=low, maximum=high) if draw(st.booleans()) else None
        declarations.append(
            EdgeDecl(
                name=name,
                source=ends[0],
                target=ends[1],
                cardinality=bounds,
                annotations=_header_notes(draw),
                members=_members(draw, kind="edge"),
            )
        )
    return tuple(draw(st.permutations(declarations)))


def _header_notes(draw):
    names = draw(
        st.lists(st.sampled_from(("description", "instruction", "team")), max_size=2, unique=True)
    )
    return tuple(AnnotationDecl(name=name, value=draw(_TEXTS)) for name in names)
