"""Back to text: a catalog as a schema that reads well, and a user's own file in the house layout.

What is printed compiles to the meaning of the catalog, or parses to the tree of the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple, assert_never

from omnigraph.compiler.schema.parse import (
    AnnotationDecl,
    Argument,
    ConstraintDecl,
    Declaration,
    EdgeDecl,
    InterfaceDecl,
    Member,
    NodeDecl,
    RangeArg,
    TypeExpr,
    Word,
    parse_schema,
)
from omnigraph.compiler.text import Lines, SourceText, quoted
from omnigraph.model.schema import (
    Annotation,
    Cardinality,
    Catalog,
    EdgeType,
    InterfaceType,
    NodeType,
)

_INDENT = " " * 4
_AnyType = InterfaceType | NodeType | EdgeType


def format_schema(source: str, *, name: str = "schema") -> str:
    """A schema file in the house layout, comments and single blank lines kept; or `ParseError`."""
    return laid_out(parse_schema(SourceText(source, name)), source)


def laid_out(tree: Sequence[Declaration], source: str = "") -> str:
    """The text of a tree, with the comments and single blank lines of its source."""
    out = Lines(source)
    before = ""
    for line in (line for decl in tree for line in _lines(decl)):
        out.comments(before=line.start, indent=line.inside, gaps=True)
        # Declarations with a body stand apart, unless a comment above belongs to the line already.
        body = before == "}" or line.text.endswith("{")
        parts = bool(before) and not line.inside and body and not out.ends_in_comment
        # No blank line right behind an opening brace, nor right before a closing one.
        closed = out.lines and out.lines[-1] and not out.lines[-1].endswith("{")
        if closed and line.text != "}" and (parts or out.has_gap(line.start)):
            out.lines.append("")
        out.add(line.text, end=max(line.start, line.end))
        before = line.text
    out.comments(before=len(source), indent="", gaps=True)
    return str(out)


# --- syntax tree to lines ----------------------------------------------------------------------


class _Line(NamedTuple):
    """A printed line and the piece of source it stands for, from `start` on.

    `inside` is the indent for comments that stand before it, empty before a declaration.
    """

    text: str
    inside: str
    start: int
    end: int = -1


def _lines(decl: Declaration) -> Iterator[_Line]:
    header = _header(decl)
    if not decl.members:
        text = header if isinstance(decl, EdgeDecl) else f"{header} {{}}"
        yield _Line(text, "", decl.at, decl.end)
        return
    yield _Line(f"{header} {{", "", decl.at)
    for member in decl.members:
        yield _Line(_INDENT + _member(member), _INDENT, member.at)
    yield _Line("}", _INDENT, decl.end - 1, decl.end)


def _header(decl: Declaration) -> str:
    match decl:
        case InterfaceDecl():
            return f"interface {decl.name}"
        case NodeDecl():
            return _node_header(decl.name, decl.annotations, [ref.name for ref in decl.implements])
        case EdgeDecl():
            parts = [f"edge {decl.name}: {decl.source.name} -> {decl.target.name}"]
            if decl.cardinality is not None:
                parts.append(_card(decl.cardinality.minimum, decl.cardinality.maximum))
            return " ".join([*parts, *map(_annotation, decl.annotations)])
        case _:
            assert_never(decl)


def _node_header(
    name: str, notes: Sequence[AnnotationDecl | Annotation], implements: Sequence[str]
) -> str:
    parts = [f"node {name}", *map(_annotation, notes)]
    return " ".join([*parts, f"implements {', '.join(implements)}"] if implements else parts)


def _card(minimum: int, maximum: int | None) -> str:
    return f"@card({minimum}..{'' if maximum is None else maximum})"


def _member(member: Member) -> str:
    if isinstance(member, ConstraintDecl):
        return _constraint(member.name, member.args)
    return " ".join([f"{member.name}: {_type(member.type)}", *map(_annotation, member.annotations)])


def _constraint(name: str, args: Sequence[Argument | RangeArg]) -> str:
    return f"@{name}({', '.join(map(_argument, args))})"


def _type(written: TypeExpr) -> str:
    core = written.base
    if written.enum_values is not None:
        core = f"enum({', '.join(written.enum_values)})"
    elif written.dimension is not None:
        core = f"Vector({written.dimension})"
    elif written.is_list:
        core = f"[{written.base}]"
    return f"{core}?" if written.nullable else core


def _annotation(note: AnnotationDecl | Annotation) -> str:
    arguments = [] if note.value is None else [_argument(note.value)]
    arguments += [f"{key}={_argument(value)}" for key, value in note.kwargs]
    return f"@{note.name}({', '.join(arguments)})" if arguments else f"@{note.name}"


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


# --- catalog to text ---------------------------------------------------------------------------


def print_schema(catalog: Catalog) -> str:
    """The schema as text, one member a line."""
    text: list[str] = []
    had_members = False
    types: list[_AnyType] = [*catalog.interfaces.values(), *catalog.nodes.values()]
    for made in (*types, *catalog.edges.values()):
        edge = isinstance(made, EdgeType)
        header, members = _made_header(made), _made_members(made)
        if text and (members or had_members or not edge):
            text.append("")
        if members:
            text += [f"{header} {{", *(_INDENT + member for member in members), "}"]
        else:
            text.append(header if edge else f"{header} {{}}")
        had_members = bool(members)
    return "".join(f"{line}\n" for line in text)


def _made_header(made: _AnyType) -> str:
    if isinstance(made, InterfaceType):
        return f"interface {made.name}"
    if isinstance(made, NodeType):
        return _node_header(made.name, made.annotations, made.implements)
    bounds = made.cardinality
    parts = [f"edge {made.name}: {made.from_type} -> {made.to_type}"]
    if bounds != Cardinality():
        parts.append(_card(bounds.minimum, bounds.maximum))
    return " ".join([*parts, *map(_annotation, made.annotations)])


def annotation_text(note: Annotation) -> str:
    """An annotation as a schema writes it."""
    return _annotation(note)


def constraint_texts(made: NodeType | EdgeType) -> tuple[dict[str, list[str]], list[str]]:
    """The constraints of a type as a schema writes them: behind a property, and all others. Those
    that an interface brought are told like its own."""
    return _constraints(made, {prop.name for prop in made.properties})


def _constraints(made: _AnyType, own: set[str]) -> tuple[dict[str, list[str]], list[str]]:
    behind: dict[str, list[str]] = {prop.name: [] for prop in made.properties if prop.name in own}
    others: list[str] = []
    # `@index(language="german")` is an annotation that says `@index` too.
    told = {(prop.name, note.name) for prop in made.properties for note in prop.annotations}
    key = (made.key,) if isinstance(made, NodeType) and made.key else ()
    if not isinstance(made, InterfaceType):
        for word, groups in (("key", key), ("unique", made.unique), ("index", made.index)):
            for names in groups:
                if len(names) == 1 and names[0] in behind:
                    if (names[0], word) not in told:
                        behind[names[0]].append(f"@{word}")
                else:
                    others.append(_constraint(word, list(map(Word, names))))
    if isinstance(made, NodeType):
        for bound in made.ranges:
            ends = RangeArg(minimum=bound.minimum, maximum=bound.maximum)
            others.append(_constraint("range", (Word(bound.property), ends)))
        others += [
            _constraint("check", (Word(each.property), each.pattern)) for each in made.checks
        ]
    return behind, others


def _made_members(made: _AnyType) -> list[str]:
    """The type's own properties, a constraint on one of them behind it; then all others."""
    own_names = {prop.name for prop in made.properties if prop.inherited_from is None}
    behind, others = _constraints(made, own_names)
    own = [
        " ".join([
            f"{prop.name}: {prop.type}", *behind[prop.name], *map(_annotation, prop.annotations)
        ])
        for prop in made.properties
        if prop.name in behind
    ]  # fmt: skip
    return own + others
