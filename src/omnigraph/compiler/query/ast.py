"""The syntax tree of a `.gq` file. Places (`at`, a character offset) do not count in comparisons,
so two texts that say the same have equal trees."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from omnigraph.model.schema import PropertyType


@dataclass(frozen=True, slots=True)
class Lit:
    """A literal. `kind` is string, int, float, bool, null, date or datetime; the last two keep
    their text, which the checker reads."""

    kind: str
    value: str | int | float | bool | None
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class ListLit:
    items: tuple[Lit, ...]
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Var:
    """`$name`; the name is kept without the dollar sign, a wildcard is `_`."""

    name: str
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Access:
    """`$var.prop`."""

    var: str
    prop: str
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Word:
    """A bare identifier: an alias in reads, a property in the `where` of a mutation."""

    name: str
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class NowCall:
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """A comparison (`= != < <= > >= contains starts_with`) or arithmetic (`+ - * / %`)."""

    op: str
    left: Expr
    right: Expr
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Logic:
    """`and` or `or` over two or more items."""

    op: str
    items: tuple[Expr, ...]
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Negated:
    """`not x`."""

    item: Expr
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Minus:
    """`-x`, where x is not a number literal."""

    item: Expr
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class In:
    """`item in options` or `item not in options`."""

    item: Expr
    options: Expr
    negated: bool
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class NullTest:
    """`item is null` or `item is not null`."""

    item: Expr
    negated: bool
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A search function: nearest, bm25, search, fuzzy, match_text or rrf."""

    name: str
    args: tuple[Expr, ...]
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """`count(x)`, `count(distinct x)`, `count(*)` (no argument), `sum(x)` …"""

    name: str
    arg: Expr | None
    distinct: bool
    at: int = field(compare=False)


Expr: TypeAlias = (
    Lit
    | ListLit
    | Var
    | Access
    | Word
    | NowCall
    | Binary
    | Logic
    | Negated
    | Minus
    | In
    | NullTest
    | Call
    | Aggregate
)


# --- match -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PropMatch:
    """`property: value` inside a binding."""

    name: str
    value: Expr
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Binding:
    """`$var: Type { … }`."""

    var: str
    type_name: str
    matches: tuple[PropMatch, ...]
    at: int = field(compare=False)
    type_at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Traversal:
    """`$src [$edge:] name[{min,max}] $dst`, or `<name>` when undirected. `max_hops` is None when
    the upper bound was left open."""

    src: Var
    edge_var: Var | None
    edge: str
    undirected: bool
    min_hops: int
    max_hops: int | None
    bounded: bool
    dst: Var
    at: int = field(compare=False)
    edge_at: int = field(compare=False)
    bounds_at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class FilterClause:
    expr: Expr
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class BlockClause:
    """`not { … }` or `optional { … }`."""

    word: str
    clauses: tuple[Clause, ...]
    at: int = field(compare=False)


Clause: TypeAlias = Binding | Traversal | FilterClause | BlockClause


# --- queries ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ParamDecl:
    name: str
    type: PropertyType
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Projection:
    expr: Expr
    alias: str | None
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Ordering:
    """`direction` is asc, desc, or None when not written."""

    expr: Expr
    direction: str | None
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class ReadBody:
    clauses: tuple[Clause, ...]
    projections: tuple[Projection, ...]
    distinct: bool
    orderings: tuple[Ordering, ...]
    limit: Lit | Var | None
    offset: Lit | Var | None
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Assign:
    name: str
    value: Expr
    at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Insert:
    type_name: str
    assigns: tuple[Assign, ...]
    at: int = field(compare=False)
    type_at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Update:
    type_name: str
    assigns: tuple[Assign, ...]
    where: Expr
    at: int = field(compare=False)
    type_at: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Delete:
    type_name: str
    where: Expr
    at: int = field(compare=False)
    type_at: int = field(compare=False)


Statement: TypeAlias = Insert | Update | Delete


@dataclass(frozen=True, slots=True)
class MutationBody:
    statements: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Query:
    name: str
    params: tuple[ParamDecl, ...]
    description: str | None
    instruction: str | None
    body: ReadBody | MutationBody
    at: int = field(compare=False)
    end: int = field(compare=False)

    @property
    def kind(self) -> str:
        """ "read" or "mutation"."""
        return "read" if isinstance(self.body, ReadBody) else "mutation"


@dataclass(frozen=True, slots=True)
class QueryFile:
    """A parsed file: its queries in written order."""

    queries: tuple[Query, ...]
