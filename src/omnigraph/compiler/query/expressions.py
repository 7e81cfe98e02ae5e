"""The typed expressions of the query IR, and how to walk them.

Values inside `Literal` use one Python form per scalar: `str`, `bool`, `int`, `float`,
`datetime.date` for Date, **`int` milliseconds since the epoch (UTC) for DateTime**, `str` for Blob
(`base64:…` or a URI), a tuple for lists and vectors, and None for null. Bound parameters have the
same forms, except that lists and vectors are Python lists.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal as Choice
from typing import TypeAlias

from omnigraph.model.schema import PropertyType, Scalar

ScalarValue: TypeAlias = str | bool | int | float | dt.date
Value: TypeAlias = ScalarValue | tuple[ScalarValue, ...] | None

BOOL = PropertyType(scalar=Scalar.BOOL)
ID = PropertyType(scalar=Scalar.STRING)
TIMESTAMP = PropertyType(scalar=Scalar.DATETIME)
SCORE = PropertyType(scalar=Scalar.F64, nullable=True)

# The variable of a mutation's `where`: the entity that the statement looks at.
SELF = "#self"


class CompareOp(StrEnum):
    """How two values are compared; a comparison with null is null, hence not true."""

    EQ = "="
    NE = "!="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


class ArithmeticOp(StrEnum):
    """Arithmetic on numbers; null in, null out; division and remainder by zero give null.

    Integers stay integers under `+ - * %`; `/` is always a float division. `%` takes the sign of
    its left side, as in SQL.
    """

    ADD = "+"
    SUB = "-"
    MUL = "*"
    DIV = "/"
    MOD = "%"


class AggregateFn(StrEnum):
    """Aggregates skip nulls; over nothing `count` is 0 and the others are null."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"


class TextMatchKind(StrEnum):
    """`search`: any term occurs; `fuzzy`: a term within `max_edits`; `phrase`: terms in a row."""

    SEARCH = "search"
    FUZZY = "fuzzy"
    PHRASE = "phrase"


# --- expressions: leaves ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A constant, already in the Python form of its type."""

    value: Value
    type: PropertyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Param:
    """The value that `bind_params` gives for `name` (without `$`)."""

    name: str
    type: PropertyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """The one timestamp of this run: DateTime, milliseconds."""

    type: PropertyType = TIMESTAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyRef:
    """A declared property of the node or edge that `var` stands for."""

    var: str
    prop: str
    type: PropertyType


@dataclass(frozen=True, slots=True, kw_only=True)
class IdRef:
    """The entity id behind `var` (a bare `$p`, `$p.id`, `$w.id`); null only for optional ones."""

    var: str
    type: PropertyType = ID


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointRef:
    """The stored source or target id of the edge behind `var` (`$w.src`, `where from = …`)."""

    var: str
    side: Choice["src", "dst"]
    type: PropertyType = ID


# --- expressions: logic ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """Numbers of any two types compare by value, without loss; false < true; text by code point."""

    op: CompareOp
    left: Expr
    right: Expr
    type: PropertyType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class And:
    """Three-valued conjunction."""

    items: tuple[Expr, ...]
    type: PropertyType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Or:
    """Three-valued disjunction."""

    items: tuple[Expr, ...]
    type: PropertyType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """Three-valued negation: not null is null."""

    item: Expr
    type: PropertyType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class InList:
    """`needle in options`; options is a list Literal or a list Param. A null needle gives null, a
    null list gives null, a null among the options never matches and is otherwise ignored."""

    needle: Expr
    options: Literal | Param
    type: PropertyType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNull:
    """True or false, never null."""

    item: Expr
    negated: bool = False
    type: PropertyType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class ListContains:
    """Membership of a scalar in a list property; null when either side is null."""

    items: Expr
    needle: Expr
    type: PropertyType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class TextContains:
    """Case-sensitive substring; null when either side is null."""

    text: Expr
    part: Expr
    type: PropertyType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsWith:
    """Case-sensitive prefix; null when either side is null."""

    text: Expr
    prefix: Expr
    type: PropertyType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """See `ArithmeticOp`. A unary minus is `0 - x`."""

    op: ArithmeticOp
    left: Expr
    right: Expr
    type: PropertyType


# --- expressions: search ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TextMatch:
    """A full-text predicate on a String property of a node. `max_edits` only for fuzzy."""

    kind: TextMatchKind
    field: PropertyRef
    query: Expr
    max_edits: Expr | None = None
    type: PropertyType = BOOL


@dataclass(frozen=True, slots=True, kw_only=True)
class Bm25:
    """Full-text relevance, higher is better; null where the text does not match at all."""

    field: PropertyRef
    query: Expr
    type: PropertyType = SCORE


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """Vector distance, smaller is better; null where the property is null.

    When `embed_text` is true the query is a String to be embedded first to `dimension` numbers;
    `embed_model` is the model the schema declares for the property (None: any will do).
    """

    field: PropertyRef
    query: Expr
    dimension: int
    embed_text: bool = False
    embed_model: str | None = None
    type: PropertyType = SCORE


@dataclass(frozen=True, slots=True, kw_only=True)
class Rrf:
    """Reciprocal rank fusion: the sum of 1 / (k + rank + 1), ranks from 0; higher is better."""

    first: Nearest | Bm25
    second: Nearest | Bm25
    k: Expr
    type: PropertyType = SCORE


# --- expressions: aggregation ----------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateCall:
    """One aggregate. `arg` None is `count(*)`. Lives only in `Grouping.aggregates`."""

    fn: AggregateFn
    arg: Expr | None
    distinct: bool = False
    type: PropertyType


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRef:
    """The value of `Grouping.keys[index]`, in projections and orderings of a grouped plan."""

    index: int
    type: PropertyType


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregateRef:
    """The value of `Grouping.aggregates[index]`, in projections and orderings of a grouped plan."""

    index: int
    type: PropertyType


Expr: TypeAlias = (
    Literal
    | Param
    | Now
    | PropertyRef
    | IdRef
    | EndpointRef
    | Compare
    | And
    | Or
    | Not
    | InList
    | IsNull
    | ListContains
    | TextContains
    | StartsWith
    | Arithmetic
    | TextMatch
    | Bm25
    | Nearest
    | Rrf
    | AggregateCall
    | KeyRef
    | AggregateRef
)


# --- walking ---------------------------------------------------------------------------------


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct parts of an expression."""
    match expr:
        case Compare() | Arithmetic():
            return (expr.left, expr.right)
        case And() | Or():
            return expr.items
        case Not() | IsNull():
            return (expr.item,)
        case InList():
            return (expr.needle, expr.options)
        case ListContains():
            return (expr.items, expr.needle)
        case TextContains():
            return (expr.text, expr.part)
        case StartsWith():
            return (expr.text, expr.prefix)
        case TextMatch():
            parts: tuple[Expr, ...] = (expr.field, expr.query)
            return (*parts, expr.max_edits) if expr.max_edits is not None else parts
        case Bm25() | Nearest():
            return (expr.field, expr.query)
        case Rrf():
            return (expr.first, expr.second, expr.k)
        case AggregateCall():
            return (expr.arg,) if expr.arg is not None else ()
        case _:
            return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and everything inside it, parents first."""
    pending = [expr]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(children(current)))


def variables_of(expr: Expr) -> frozenset[str]:
    """The variables that an expression reads."""
    return frozenset(
        part.var for part in walk(expr) if isinstance(part, PropertyRef | IdRef | EndpointRef)
    )


def properties_of(expr: Expr) -> frozenset[tuple[str, str]]:
    """The (variable, property) pairs that an expression reads."""
    return frozenset((part.var, part.prop) for part in walk(expr) if isinstance(part, PropertyRef))
