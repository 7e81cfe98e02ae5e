"""What a `.pg` text says, before anyone asks whether it makes sense.

Equality ignores where things stand in the text, so that "parse, print, parse" can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from omnigraph.model.schema import LiteralValue


@dataclass(frozen=True, slots=True)
class Word:
    """A bare name in argument position: `@embed(title)`."""

    text: str


Argument = LiteralValue | Word


@dataclass(frozen=True, slots=True)
class Reference:
    """A type name that should be declared elsewhere."""

    name: str
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeExpr:
    """A written type. `base` is the word as written, even when no such type exists."""

    base: str
    nullable: bool = False
    is_list: bool = False
    enum_values: tuple[str, ...] | None = None
    dimension: int | None = None
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnotationDecl:
    """`@name`, `@name(value)` or `@name(value, key=value)`."""

    name: str
    value: Argument | None = None
    kwargs: tuple[tuple[str, LiteralValue], ...] = ()
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeArg:
    """`lo..hi`, `lo..` or `..hi`."""

    minimum: int | float | None
    maximum: int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintDecl:
    """`@key(a, b)` and its like in a body."""

    name: str
    args: tuple[Argument | RangeArg, ...]
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyDecl:
    """`name: Type @annotation …`."""

    name: str
    type: TypeExpr
    annotations: tuple[AnnotationDecl, ...] = ()
    offset: int = field(default=0, compare=False)


Member = PropertyDecl | ConstraintDecl


@dataclass(frozen=True, slots=True, kw_only=True)
class InterfaceDecl:
    """`interface Name { … }`."""

    name: str
    members: tuple[PropertyDecl, ...]
    offset: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDecl:
    """`node Name … implements … { … }`."""

    name: str
    annotations: tuple[AnnotationDecl, ...]
    implements: tuple[Reference, ...]
    members: tuple[Member, ...]
    offset: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardinalityDecl:
    """`@card(min..max)`; an absent maximum means no bound."""

    minimum: int
    maximum: int | None
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeDecl:
    """`edge Name: From -> To … { … }`."""

    name: str
    source: Reference
    target: Reference
    cardinality: CardinalityDecl | None
    annotations: tuple[AnnotationDecl, ...]
    members: tuple[Member, ...]
    offset: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)


Declaration = InterfaceDecl | NodeDecl | EdgeDecl


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaDecl:
    """A whole file."""

    declarations: tuple[Declaration, ...]
