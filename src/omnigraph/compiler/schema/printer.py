"""Back to text: a syntax tree or a catalog as a schema that reads well.

Parsing what is printed gives the tree that was printed. `format_schema` lays out a user's own file
and keeps its comments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import assert_never

import msgspec

from omnigraph.compiler.schema.ast import (
    AnnotationDecl,
    Argument,
    CardinalityDecl,
    ConstraintDecl,
    Declaration,
    EdgeDecl,
    InterfaceDecl,
    Member,
    NodeDecl,
    PropertyDecl,
    RangeArg,
    Reference,
    SchemaDecl,
    TypeExpr,
    Word,
)
from omnigraph.compiler.schema.parse import parse_schema
from omnigraph.compiler.text import Lines, SourceText, quoted
from omnigraph.model.schema import (
    Annotation,
    Cardinality,
    Catalog,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    PropertyType,
    Scalar,
)

_INDENT = " " * 4


def print_schema(schema: Catalog | SchemaDecl) -> str:
    """The schema as text, one member a line."""
    tree = schema if isinstance(schema, SchemaDecl) else declared(schema)
    text: list[str] = []
    previous: Declaration | None = None
    for decl in tree.declarations:
        if previous is not None and (
            decl.members or previous.members or not isinstance(decl, EdgeDecl)
        ):
            text.append("")
        text += [line.text for line in _lines(decl)]
        previous = decl
    return "".join(f"{line}\n" for line in text)


def format_schema(source: str, *, name: str = "schema") -> str:
    """A schema file in the house layout, comments and single blank lines kept; or `ParseError`."""
    tree = parse_schema(SourceText(source, name))
    out = Lines(source)
    before = ""
    for line in (line for decl in tree.declarations for line in _lines(decl)):
        out.comments(before=line.start, indent=line.inside, gaps=True)
        # Declarations with a body stand apart, unless a comment above belongs to the line already.
        body = before == "}" or line.text.endswith("{")
        parts = bool(before) and line.opens and body and not out.ends_in_comment
        if out.lines and (parts or out.has_gap(line.start)):
            _blank(out.lines, before=line.text)
        out.add(line.text, end=max(line.start, line.end))
        before = line.text
    out.comments(before=len(source), indent="", gaps=True)
    return str(out)


def _blank(lines: list[str], *, before: str) -> None:
    # No blank line right behind an opening brace, nor right before a closing one.
    if lines[-1] and not lines[-1].endswith("{") and before != "}":
        lines.append("")


# --- syntax tree to lines ----------------------------------------------------------------------


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    """A printed line and the piece of source it stands for, from `start` on.

    `inside` is the indent for comments that stand before it.
    """

    text: str
    start: int
    end: int = -1
    opens: bool = False
    inside: str


def _lines(decl: Declaration) -> Iterator[_Line]:
    header = _header(decl)
    if not decl.members:
        text = header if isinstance(decl, EdgeDecl) else f"{header} {{}}"
        yield _Line(text=text, start=decl.at, end=decl.end, opens=True, inside="")
        return
    yield _Line(text=f"{header} {{", start=decl.at, opens=True, inside="")
    for member in decl.members:
        yield _Line(text=_INDENT + _member(member), start=member.at, inside=_INDENT)
    yield _Line(text="}", start=decl.end - 1, end=decl.end, inside=_INDENT)


def _header(decl: Declaration) -> str:
    match decl:
        case InterfaceDecl():
            return f"interface {decl.name}"
        case NodeDecl():
            names = ", ".join(ref.name for ref in decl.implements)
            parts = [f"node {decl.name}", *map(_annotation, decl.annotations)]
            return " ".join([*parts, f"implements {names}"] if names else parts)
        case EdgeDecl():
            parts = [f"edge {decl.name}: {decl.source.name} -> {decl.target.name}"]
            if decl.cardinality is not None:
                high = decl.cardinality.maximum
                upper = "" if high is None else str(high)
                parts.append(f"@card({decl.cardinality.minimum}..{upper})")
            return " ".join([*parts, *map(_annotation, decl.annotations)])
        case _:
            assert_never(decl)


def _member(member: Member) -> str:
    if isinstance(member, ConstraintDecl):
        return f"@{member.name}({', '.join(map(_argument, member.args))})"
    return " ".join([f"{member.name}: {_type(member.type)}", *map(_annotation, member.annotations)])


def _type(written: TypeExpr) -> str:
    core = written.base
    if written.enum_values is not None:
        core = f"enum({', '.join(written.enum_values)})"
    elif written.dimension is not None:
        core = f"Vector({written.dimension})"
    elif written.is_list:
        core = f"[{written.base}]"
    return f"{core}?" if written.nullable else core


def _annotation(note: AnnotationDecl) -> str:
    if note.value is None:
        return f"@{note.name}"
    named = [f"{key}={_argument(value)}" for key, value in note.kwargs]
    return f"@{note.name}({', '.join([_argument(note.value), *named])})"


def _argument(value: Argument | RangeArg) -> str:
    match value:
        case Word():
            return value.text
        case RangeArg():
            ends = (value.minimum, value.maximum)
            return "..".join("" if end is None else _argument(end) for end in ends)
        case bool():
            return "true" if value else "false"
        case str():
            return quoted(value)
        case float():
            plain = format(Decimal(repr(value)), "f")  # the language has no exponents
            return plain if "." in plain else f"{plain}.0"
        case int():
            return str(value)
        case _:
            assert_never(value)


# --- catalog to syntax tree --------------------------------------------------------------------


class _Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Constraints over columns, split into those that stand behind a property and the others."""

    behind: dict[str, list[str]]
    body: list[ConstraintDecl]


def declared(catalog: Catalog) -> SchemaDecl:
    """A syntax tree that compiles to the meaning of the catalog."""
    return SchemaDecl(
        declarations=(
            *map(_interface_decl, catalog.interfaces.values()),
            *map(_node_decl, catalog.nodes.values()),
            *map(_edge_decl, catalog.edges.values()),
        )
    )


def _interface_decl(made: InterfaceType) -> InterfaceDecl:
    members = tuple(_property_decl(prop, ()) for prop in made.properties)
    return InterfaceDecl(name=made.name, members=members)


def _node_decl(made: NodeType) -> NodeDecl:
    columns = _columns(made, made.key)
    members: list[Member] = [*_own_properties(made, columns), *columns.body]
    members += [
        ConstraintDecl(
            name="range",
            args=(Word(each.property), RangeArg(minimum=each.minimum, maximum=each.maximum)),
        )
        for each in made.ranges
    ]
    members += [
        ConstraintDecl(name="check", args=(Word(each.property), each.pattern))
        for each in made.checks
    ]
    return NodeDecl(
        name=made.name,
        annotations=_annotation_decls(made.annotations),
        implements=tuple(Reference(name) for name in made.implements),
        members=tuple(members),
    )


def _edge_decl(made: EdgeType) -> EdgeDecl:
    columns = _columns(made, ())
    bounds = made.cardinality
    return EdgeDecl(
        name=made.name,
        source=Reference(made.from_type),
        target=Reference(made.to_type),
        cardinality=None
        if bounds == Cardinality()
        else CardinalityDecl(minimum=bounds.minimum, maximum=bounds.maximum),
        annotations=_annotation_decls(made.annotations),
        members=(*_own_properties(made, columns), *columns.body),
    )


def _columns(made: NodeType | EdgeType, key: tuple[str, ...]) -> _Columns:
    own = {prop.name for prop in made.properties if prop.inherited_from is None}
    columns = _Columns(behind={}, body=[])
    groups = (("key", (key,) if key else ()), ("unique", made.unique), ("index", made.index))
    for word, sets in groups:
        for names in sets:
            if len(names) == 1 and names[0] in own:
                columns.behind.setdefault(names[0], []).append(word)
            else:
                columns.body.append(ConstraintDecl(name=word, args=tuple(map(Word, names))))
    return columns


def _own_properties(made: NodeType | EdgeType, columns: _Columns) -> Iterator[PropertyDecl]:
    for prop in made.properties:
        if prop.inherited_from is None:
            yield _property_decl(prop, columns.behind.get(prop.name, ()))


def _property_decl(prop: Property, words: Iterable[str]) -> PropertyDecl:
    return PropertyDecl(
        name=prop.name,
        type=_type_expr(prop.type),
        annotations=(
            *(AnnotationDecl(name=word) for word in words),
            *_annotation_decls(prop.annotations),
        ),
    )


def _annotation_decls(notes: Iterable[Annotation]) -> tuple[AnnotationDecl, ...]:
    return tuple(
        AnnotationDecl(name=note.name, value=note.value, kwargs=note.kwargs) for note in notes
    )


def _type_expr(kind: PropertyType) -> TypeExpr:
    return TypeExpr(
        base="enum" if kind.enum_values is not None else kind.scalar.value,
        nullable=kind.nullable,
        is_list=kind.is_list,
        enum_values=kind.enum_values,
        dimension=kind.dimension if kind.scalar is Scalar.VECTOR else None,
    )
