"""The syntax tree of a `.gq` file. Places (`at`, a character offset) do not count in comparisons,
so two texts that say the same have equal trees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from omnigraph.compiler.text import Node, parents_first
from omnigraph.model.schema import PropertyType


class Lit(Node, frozen=True):
    """A literal. `kind` is string, int, float, bool, null, date or datetime; the last two keep
    their text, which the checker reads."""

    kind: str
    value: str | int | float | bool | None
    at: int


class ListLit(Node, frozen=True):
    items: tuple[Lit, ...]
    at: int


class Var(Node, frozen=True):
    """`$name`; the name is kept without the dollar sign, a wildcard is `_`."""

    name: str
    at: int


class Access(Node, frozen=True):
    """`$var.prop`."""

    var: str
    prop: str
    at: int


class Word(Node, frozen=True):
    """A bare identifier: an alias in reads, a property in the `where` of a mutation."""

    name: str
    at: int


class NowCall(Node, frozen=True):
    at: int


class Binary(Node, frozen=True):
    """A comparison (`= != < <= > >= contains starts_with ends_with like matches`) or arithmetic
    (`+ - * / %`)."""

    op: str
    left: Expr
    right: Expr
    at: int


class Logic(Node, frozen=True):
    """`and` or `or` over two or more items."""

    op: str
    items: tuple[Expr, ...]
    at: int


class Unary(Node, frozen=True):
    """`not x`, or `-x` where x is not a number literal."""

    op: str
    item: Expr
    at: int


class In(Node, frozen=True):
    """`item in options` or `item not in options`."""

    item: Expr
    options: Expr
    negated: bool
    at: int


class Between(Node, frozen=True):
    """`item between low and high`."""

    item: Expr
    low: Expr
    high: Expr
    at: int


class NullTest(Node, frozen=True):
    """`item is null` or `item is not null`."""

    item: Expr
    negated: bool
    at: int


class Index(Node, frozen=True):
    """`items[low]`, or `items[low..high]` if `sliced`, where either place may be left out."""

    items: Expr
    low: Expr | None
    high: Expr | None
    sliced: bool
    at: int


class Case(Node, frozen=True):
    """`case [subject] when … then … else … end`."""

    subject: Expr | None
    whens: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr | None
    at: int


class Block(Node, frozen=True):
    """`exists { … }` or `count { … }`, as a value."""

    word: str
    clauses: tuple[Clause, ...]
    at: int


class EdgeName(Node, frozen=True):
    """The edge of `degree($p, edge)`, or `<edge>`; for `shortest` also several: `one|other`."""

    name: str
    undirected: bool
    at: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.name.split("|"))


class Call(Node, frozen=True):
    """A call of a function of `functions.py` that is no aggregate."""

    name: str
    args: tuple[Expr, ...]
    at: int


class Aggregate(Node, frozen=True):
    """`count(x)`, `count(distinct x)`, `count(*)` (no argument), `percentile(x, share)` …"""

    name: str
    arg: Expr | None
    distinct: bool
    at: int
    share: Expr | None = None


class Star(Node, frozen=True):
    """`$var.*`: a column for every property; stands in `return` only."""

    var: str
    at: int


Expr: TypeAlias = (
    Lit
    | ListLit
    | Var
    | Access
    | Word
    | NowCall
    | Binary
    | Logic
    | Unary
    | In
    | Between
    | NullTest
    | Index
    | Case
    | Block
    | EdgeName
    | Call
    | Aggregate
    | Star
)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct parts of an expression."""
    match expr:
        case Binary():
            return (expr.left, expr.right)
        case Logic():
            return expr.items
        case Unary() | NullTest():
            return (expr.item,)
        case In():
            return (expr.item, expr.options)
        case Between():
            return (expr.item, expr.low, expr.high)
        case Index():
            return tuple(part for part in (expr.items, expr.low, expr.high) if part is not None)
        case Case():
            parts = (expr.subject, *(part for when in expr.whens for part in when), expr.otherwise)
            return tuple(part for part in parts if part is not None)
        case Call():
            return expr.args
        case Aggregate():
            return tuple(part for part in (expr.arg, expr.share) if part is not None)
        case _:
            return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and everything inside it, parents first."""
    return parents_first(expr, children)


# --- match -----------------------------------------------------------------------------------


class Entry(Node, frozen=True):
    """`property: value`, matched in a binding or assigned in a mutation."""

    name: str
    value: Expr
    at: int


class Binding(Node, frozen=True):
    """`$var: Type { … }`."""

    var: str
    type_name: str
    matches: tuple[Entry, ...]
    at: int
    type_at: int


class Traversal(Node, frozen=True):
    """`$src [$edge:] name[{min,max}] $dst`, or `<name>` when undirected; `edge` is one name, or
    several as `one|other`. `max_hops` is None when the upper bound was left open."""

    src: Var
    edge_var: Var | None
    edge: str
    undirected: bool
    min_hops: int
    max_hops: int | None
    bounded: bool
    dst: Var
    at: int
    edge_at: int
    bounds_at: int

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the edges."""
        return tuple(self.edge.split("|"))


class FilterClause(Node, frozen=True):
    expr: Expr
    at: int


class BlockClause(Node, frozen=True):
    """`not { … }` or `optional { … }`."""

    word: str
    clauses: tuple[Clause, ...]
    at: int


class Unwind(Node, frozen=True):
    """`unwind items as $var`: a row for every element of a list."""

    items: Expr
    var: Var
    at: int


Clause: TypeAlias = Binding | Traversal | FilterClause | BlockClause | Unwind


# --- queries ---------------------------------------------------------------------------------


class TypeOf(Node, frozen=True):
    """`Person.role` as the type of a parameter: that of the property, an enum's values included."""

    type_name: str
    prop: str
    nullable: bool
    is_list: bool
    at: int


class FieldDecl(Node, frozen=True):
    name: str
    type: PropertyType | TypeOf
    at: int


class RecordDecl(Node, frozen=True):
    """`{name: String, age: I32?}`, or a list of such records."""

    fields: tuple[FieldDecl, ...]
    nullable: bool
    is_list: bool
    at: int


class ParamDecl(Node, frozen=True):
    name: str
    type: PropertyType | TypeOf | RecordDecl
    at: int
    default: Lit | ListLit | None = None


class Projection(Node, frozen=True):
    expr: Expr
    alias: str | None
    at: int


class Ordering(Node, frozen=True):
    """`direction` is asc, desc, or None when not written."""

    expr: Expr
    direction: str | None
    at: int


class Stage(Node, frozen=True):
    """A match and what is made of its rows: `match … with …`. Only a stage behind a `with` may have
    no clauses; then there is no match."""

    clauses: tuple[Clause, ...]
    projections: tuple[Projection, ...]
    distinct: bool
    orderings: tuple[Ordering, ...]
    limit: Lit | Var | None
    offset: Lit | Var | None
    at: int
    having: Expr | None = None


class UnionPart(Node, frozen=True):
    """`union [all] match … return …`."""

    all: bool
    body: ReadBody
    at: int


class ReadBody(Stage, frozen=True):
    """The last stage, which returns, with the stages before it and the queries that are joined to
    it. Of these the last one's order, limit and offset are those of the whole."""

    before: tuple[Stage, ...] = ()
    unions: tuple[UnionPart, ...] = ()


class Insert(Node, frozen=True):
    """`insert`, `insert … or nothing` or `upsert` (`mode` put, nothing or upsert); `var` is the
    name that the entity has from here on."""

    type_name: str
    assigns: tuple[Entry, ...]
    at: int
    type_at: int
    mode: Literal["put", "nothing", "upsert"] = "put"
    var: Var | None = None


class Update(Node, frozen=True):
    type_name: str
    assigns: tuple[Entry, ...]
    where: Expr
    at: int
    type_at: int


class UpdateFound(Node, frozen=True):
    """`update $var set { … }`: what the match found."""

    var: Var
    assigns: tuple[Entry, ...]
    at: int


class Delete(Node, frozen=True):
    type_name: str
    where: Expr
    at: int
    type_at: int


class DeleteFound(Node, frozen=True):
    """`delete $var`: a node or an edge that the match found."""

    var: Var
    at: int


Simple: TypeAlias = Insert | Update | UpdateFound | Delete | DeleteFound


class For(Node, frozen=True):
    """`for $var in $items`, with one statement or several in braces."""

    var: Var
    items: Var
    statements: tuple[Simple, ...]
    braces: bool
    at: int


Statement: TypeAlias = Simple | For


class MutationBody(Node, frozen=True):
    """[`match`] → statements → [`returning`]."""

    statements: tuple[Statement, ...]
    at: int = 0
    clauses: tuple[Clause, ...] = ()
    returning: tuple[Projection, ...] = ()

    @property
    def simple(self) -> Iterator[Simple]:
        """Every statement that changes something, those inside `for` too."""
        for statement in self.statements:
            if isinstance(statement, For):
                yield from statement.statements
            else:
                yield statement


class Query(Node, frozen=True):
    name: str
    params: tuple[ParamDecl, ...]
    description: str | None
    instruction: str | None
    body: ReadBody | MutationBody
    at: int
    end: int

    @property
    def kind(self) -> str:
        """ "read" or "mutation"."""
        return "read" if isinstance(self.body, ReadBody) else "mutation"


class QueryFile(msgspec.Struct, frozen=True):
    """A parsed file: its queries in written order."""

    queries: tuple[Query, ...]
