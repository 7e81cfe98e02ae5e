"""What a `.pg` text says, before anyone asks whether it makes sense.

Equality ignores where things stand in the text, so that "parse, print, parse" can be compared.
"""

from __future__ import annotations

import msgspec

from omnigraph.compiler.text import Node
from omnigraph.model.schema import LiteralValue


class Word(msgspec.Struct, frozen=True):
    """A bare name in argument position: `@embed(title)`."""

    text: str


Argument = LiteralValue | Word


class Reference(Node, frozen=True):
    """A type name that should be declared elsewhere."""

    name: str
    at: int = 0


class TypeExpr(Node, frozen=True, kw_only=True):
    """A written type. `base` is the word as written, even when no such type exists."""

    base: str
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[str, ...] | None = None
    dimension: int | None = None
    at: int = 0


class AnnotationDecl(Node, frozen=True, kw_only=True):
    """`@name`, `@name(value)` or `@name(value, key=value)`."""

    name: str
    value: Argument | None = None
    kwargs: tuple[tuple[str, LiteralValue], ...] = ()
    at: int = 0


class RangeArg(msgspec.Struct, frozen=True, kw_only=True):
    """`lo..hi`, `lo..` or `..hi`."""

    minimum: int | float | None
    maximum: int | float | None


class ConstraintDecl(Node, frozen=True, kw_only=True):
    """`@key(a, b)` and its like in a body."""

    name: str
    args: tuple[Argument | RangeArg, ...]
    at: int = 0


class PropertyDecl(Node, frozen=True, kw_only=True):
    """`name: Type @annotation …`."""

    name: str
    type: TypeExpr
    annotations: tuple[AnnotationDecl, ...] = ()
    at: int = 0


Member = PropertyDecl | ConstraintDecl


class InterfaceDecl(Node, frozen=True, kw_only=True):
    """`interface Name { … }`."""

    name: str
    members: tuple[PropertyDecl, ...]
    at: int = 0
    end: int = 0


class NodeDecl(Node, frozen=True, kw_only=True):
    """`node Name … implements … { … }`."""

    name: str
    annotations: tuple[AnnotationDecl, ...]
    implements: tuple[Reference, ...]
    members: tuple[Member, ...]
    at: int = 0
    end: int = 0


class CardinalityDecl(Node, frozen=True, kw_only=True):
    """`@card(min..max)`; an absent maximum means no bound."""

    minimum: int
    maximum: int | None
    at: int = 0


class EdgeDecl(Node, frozen=True, kw_only=True):
    """`edge Name: From -> To … { … }`."""

    name: str
    source: Reference
    target: Reference
    cardinality: CardinalityDecl | None
    annotations: tuple[AnnotationDecl, ...]
    members: tuple[Member, ...]
    at: int = 0
    end: int = 0


Declaration = InterfaceDecl | NodeDecl | EdgeDecl


class SchemaDecl(msgspec.Struct, frozen=True, kw_only=True):
    """A whole file."""

    declarations: tuple[Declaration, ...]
