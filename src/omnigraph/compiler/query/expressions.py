"""Expressions and matches of the query IR, as frozen values; `ir` has the plans made of them.

Names are resolved and unique. Variables are plain strings; hidden ones (wildcards, shadowed names
of inner blocks) contain a `#`, which no written variable can.
"""

from __future__ import annotations

import datetime as dt
from enum import StrEnum
from typing import Literal as Choice
from typing import TypeAlias

import msgspec

from omnigraph.model.schema import EntityKind, PropertyType, Scalar

ScalarValue: TypeAlias = str | bool | int | float | dt.date
Value: TypeAlias = ScalarValue | tuple[ScalarValue, ...] | None

BOOL = PropertyType(scalar=Scalar.BOOL)
ID = PropertyType(scalar=Scalar.STRING)
_ABSENT_ID = PropertyType(scalar=Scalar.STRING, nullable=True)
_PLACE = PropertyType(scalar=Scalar.I64, nullable=True)
TIMESTAMP = PropertyType(scalar=Scalar.DATETIME)
SCORE = PropertyType(scalar=Scalar.F64, nullable=True)

# The variable of a mutation's `where`: the entity that the statement looks at.
SELF = "#self"
# What `RowRef` reads of the rows that a mutation's `returning` is given.
GIVEN = "#given"

# So many hops that no walk is stopped by their number.
HOPS_OPEN = 2**31


# The column of an unwound list that holds the place of each element in its list.
PLACE = "#place"


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
    """Aggregates skip nulls; over nothing `count` is 0, `collect` is empty and the others are null.
    `percentile` interpolates linearly, `median` is the middle one; `stddev` is the sample's."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    COLLECT = "collect"
    MEDIAN = "median"
    STDDEV = "stddev"
    PERCENTILE = "percentile"


class TextMatchKind(StrEnum):
    """`search`: any term occurs; `fuzzy`: a term within `max_edits`; `phrase`: terms in a row."""

    SEARCH = "search"
    FUZZY = "fuzzy"
    PHRASE = "phrase"


# --- expressions: leaves ---------------------------------------------------------------------


class Literal(msgspec.Struct, frozen=True, kw_only=True):
    """A constant, already in the Python form of its type."""

    value: Value
    type: PropertyType


class Param(msgspec.Struct, frozen=True, kw_only=True):
    """The value that `bind_params` gives for `name` (without `$`). Where it is declared,
    `type.nullable` or a `default` says that it may be left out."""

    name: str
    type: PropertyType
    default: Literal | None = None


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """The one timestamp of this run: DateTime, milliseconds."""

    type: PropertyType = TIMESTAMP


class PropertyRef(msgspec.Struct, frozen=True, kw_only=True):
    """A declared property of the node or edge that `var` stands for."""

    var: str
    prop: str
    type: PropertyType


class IdRef(msgspec.Struct, frozen=True, kw_only=True):
    """The entity id behind `var` (a bare `$p`, `$p.id`, `$w.id`); null only for optional ones."""

    var: str
    type: PropertyType = ID


class RowRef(msgspec.Struct, frozen=True, kw_only=True):
    """A value that comes with a row of the match and belongs to no entity: a column of an earlier
    stage, or an element of a list that was unwound (`column` is "" for the element itself, else a
    field of the record or `PLACE`). `var` is the plan name of that stage or list."""

    var: str
    column: str
    type: PropertyType


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The entity behind `var` itself, as an executor knows it. Lives only among the keys of a stage
    that hands the variable on."""

    var: str
    type: PropertyType = _PLACE


class EndpointRef(msgspec.Struct, frozen=True, kw_only=True):
    """The stored source or target id of the edge behind `var` (`$w.src`, `where from = …`)."""

    var: str
    side: Choice["src", "dst"]
    type: PropertyType = ID


class TypeRef(msgspec.Struct, frozen=True, kw_only=True):
    """The name of the type of the entity behind an open variable; null only for optional ones."""

    var: str
    type: PropertyType = ID


# --- expressions: logic ----------------------------------------------------------------------


class Compare(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of any two types compare by value, without loss; false < true; text by code point."""

    op: CompareOp
    left: Expr
    right: Expr
    type: PropertyType = BOOL


class And(msgspec.Struct, frozen=True, kw_only=True):
    """Three-valued conjunction."""

    items: tuple[Expr, ...]
    type: PropertyType = BOOL


class Or(msgspec.Struct, frozen=True, kw_only=True):
    """Three-valued disjunction."""

    items: tuple[Expr, ...]
    type: PropertyType = BOOL


class Not(msgspec.Struct, frozen=True, kw_only=True):
    """Three-valued negation: not null is null."""

    item: Expr
    type: PropertyType = BOOL


class InList(msgspec.Struct, frozen=True, kw_only=True):
    """`needle in options`; options is a list Literal or a list Param. A null needle gives null, a
    null list gives null, a null among the options never matches and is otherwise ignored."""

    needle: Expr
    options: Literal | Param
    type: PropertyType = BOOL


class IsNull(msgspec.Struct, frozen=True, kw_only=True):
    """True or false, never null."""

    item: Expr
    negated: bool = False
    type: PropertyType = BOOL


class ListContains(msgspec.Struct, frozen=True, kw_only=True):
    """Membership of a scalar in a list property; null when either side is null."""

    items: Expr
    needle: Expr
    type: PropertyType = BOOL


class TextContains(msgspec.Struct, frozen=True, kw_only=True):
    """Case-sensitive substring; null when either side is null."""

    text: Expr
    part: Expr
    type: PropertyType = BOOL


class StartsWith(msgspec.Struct, frozen=True, kw_only=True):
    """Case-sensitive prefix; null when either side is null."""

    text: Expr
    prefix: Expr
    type: PropertyType = BOOL


class Arithmetic(msgspec.Struct, frozen=True, kw_only=True):
    """See `ArithmeticOp`. A unary minus is `0 - x`."""

    op: ArithmeticOp
    left: Expr
    right: Expr
    type: PropertyType


class FunctionCall(msgspec.Struct, frozen=True, kw_only=True):
    """A scalar function of `functions.py`. If its result is "common", `type` is also what the
    arguments become first."""

    name: str
    args: tuple[Expr, ...]
    type: PropertyType


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """The value of the first condition that is true, else `otherwise`. All values become `type`; a
    condition or value is only looked at for rows that get so far."""

    whens: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr
    type: PropertyType


# --- expressions: the graph ------------------------------------------------------------------


class Degree(msgspec.Struct, frozen=True, kw_only=True):
    """How many stored edges of the type start at the node (`out`), end there (`in`), or touch it
    (`both`); null where there is no node."""

    var: str
    edge_type: str
    direction: Choice["out", "in", "both"]
    type: PropertyType


class BlockValue(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the block, with the variables of the row fixed, matches anything (`exists`), or how
    often (`count`). `outer` names the variables of the row that it uses, at any depth."""

    word: Choice["exists", "count"]
    block: MatchBlock
    outer: frozenset[str]
    type: PropertyType


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """How a path goes from one node to another: the shortest way along the legs, of a length within
    the bounds, or with a `weight` the one with the least sum of that property.

    Of several such ways it is the one whose nodes come first by id (then by type), compared from
    the end backwards; between two nodes it takes the edge that comes first by id, of those with the
    least weight if there is one. Of equally light ways it is one of the fewest edges. An edge
    without a weight is not walked. `nullable`: a row may be without a path.
    """

    src: str
    dst: str
    legs: tuple[Leg, ...]
    undirected: bool = False
    min_hops: int = 0
    max_hops: int = HOPS_OPEN
    weight: str | None = None
    nullable: bool = True


class PathPart(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a path: how many edges it has, or the ids of its nodes or edges."""

    part: Choice["length", "nodes", "edges"]
    way: Way
    type: PropertyType


# --- expressions: search ---------------------------------------------------------------------


class TextMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A full-text predicate on a String property of a node. `max_edits` only for fuzzy."""

    kind: TextMatchKind
    field: PropertyRef
    query: Expr
    max_edits: Expr | None = None
    type: PropertyType = BOOL


class Bm25(msgspec.Struct, frozen=True, kw_only=True):
    """Full-text relevance, higher is better; null where the text does not match at all."""

    field: PropertyRef
    query: Expr
    type: PropertyType = SCORE


class Nearest(msgspec.Struct, frozen=True, kw_only=True):
    """Vector distance, smaller is better; null where the property is null.

    When `embed_text` is true the query is a String to be embedded first to `dimension` numbers;
    `embed_model` is the model the schema declares for the property (None: any will do). With
    `approximate`, an order may take its candidates from an index, as the schema wishes and the
    query does not forbid (`exact`).
    """

    field: PropertyRef
    query: Expr
    dimension: int
    embed_text: bool = False
    embed_model: str | None = None
    approximate: bool = False
    type: PropertyType = SCORE


class Rrf(msgspec.Struct, frozen=True, kw_only=True):
    """Reciprocal rank fusion: the sum of 1 / (k + rank + 1), ranks from 0; higher is better."""

    first: Nearest | Bm25
    second: Nearest | Bm25
    k: Expr
    type: PropertyType = SCORE


# --- expressions: aggregation ----------------------------------------------------------------


class AggregateCall(msgspec.Struct, frozen=True, kw_only=True):
    """One aggregate. `arg` None is `count(*)`; `share` is the place of a percentile, from 0 to 1.
    Lives only in `Grouping.aggregates`."""

    fn: AggregateFn
    arg: Expr | None
    distinct: bool = False
    share: Literal | Param | None = None
    type: PropertyType


class KeyRef(msgspec.Struct, frozen=True, kw_only=True):
    """The value of `Grouping.keys[index]`, in projections and orderings of a grouped plan."""

    index: int
    type: PropertyType


class AggregateRef(msgspec.Struct, frozen=True, kw_only=True):
    """The value of `Grouping.aggregates[index]`, in projections and orderings of a grouped plan."""

    index: int
    type: PropertyType


Expr: TypeAlias = (
    Literal
    | Param
    | Now
    | PropertyRef
    | IdRef
    | RowRef
    | Position
    | EndpointRef
    | TypeRef
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
    | FunctionCall
    | Case
    | Degree
    | BlockValue
    | PathPart
    | TextMatch
    | Bm25
    | Nearest
    | Rrf
    | AggregateCall
    | KeyRef
    | AggregateRef
)


# --- match -----------------------------------------------------------------------------------


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan variable stands for: an entity of one type, or of one of several (an *open*
    variable). `types` are by name. `nullable`: it comes from an `optional` block."""

    name: str
    kind: EntityKind
    types: tuple[str, ...]
    nullable: bool = False
    hidden: bool = False

    @property
    def type_name(self) -> str:
        """The type, or all of them as `One|Other`."""
        return "|".join(self.types)

    @property
    def is_open(self) -> bool:
        return len(self.types) > 1

    @property
    def id(self) -> IdRef:
        return IdRef(var=self.name, type=_ABSENT_ID if self.nullable else ID)


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A named value of a record."""

    name: str
    type: PropertyType

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


class RecordParam(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter whose value is a record, or a list of records. The fields of a single one are
    bound as parameters of their own, called `name.field`."""

    name: str
    fields: tuple[Field, ...]
    is_list: bool
    nullable: bool

    def __str__(self) -> str:
        core = f"{{{', '.join(map(str, self.fields))}}}"
        return (f"[{core}]" if self.is_list else core) + ("?" if self.nullable else "")


class Unwind(msgspec.Struct, frozen=True, kw_only=True):
    """A row for every element of a list; none for a null list. `var` is what `RowRef` reads,
    `variables` are those that the list is computed from."""

    var: str
    items: Expr | RecordParam
    variables: frozenset[str] = frozenset()


class NodeBinding(msgspec.Struct, frozen=True, kw_only=True):
    """A node variable that its block introduces, with every condition on it alone.

    `declared` is false when the variable only appears as an end of a traversal: it is then reached
    by that traversal and never scanned. Conditions may use parameters and `now()`.
    """

    var: str
    types: tuple[str, ...]
    conditions: tuple[Expr, ...] = ()
    declared: bool = True

    @property
    def type_name(self) -> str:
        return "|".join(self.types)


class Leg(msgspec.Struct, frozen=True, kw_only=True):
    """An edge type that a walk may go along, and the types of its ends."""

    edge_type: str
    from_type: str
    to_type: str


class Traversal(msgspec.Struct, frozen=True, kw_only=True):
    """A walk along edges of one or several types from `src` to `dst` (`from` side to `to` side).

    Either end may be bound first. An `edge_var` means exactly one hop and one row per stored edge;
    without it parallel edges fold into one row, whatever their types. Legs are by edge type; only
    those are there that can fit the types of the ends. Where the ends of a single leg differ
    `max_hops` is at most 1, so `min_hops > max_hops` is possible and matches nothing. With no hops
    at all, `min_hops` 0, `dst` is `src` itself.
    """

    src: str
    dst: str
    legs: tuple[Leg, ...]
    edge_var: str | None = None
    undirected: bool = False
    min_hops: int = 1
    max_hops: int = 1
    edge_conditions: tuple[Expr, ...] = ()  # conditions on `edge_var` alone

    @property
    def edge_type(self) -> str:
        """The edge type, or all of them as `One|Other`."""
        return "|".join(leg.edge_type for leg in self.legs)

    @property
    def variables(self) -> frozenset[str]:
        ends = {self.src, self.dst}
        return frozenset(ends | {self.edge_var} if self.edge_var else ends)


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """A condition over more than one variable, over none, or over variables of an outer block."""

    expr: Expr
    variables: frozenset[str]


class Negation(msgspec.Struct, frozen=True, kw_only=True):
    """Keep a row when `block`, with the row's variables fixed, matches nothing.

    `outer` names the outer variables that the block uses, at any depth.
    """

    block: MatchBlock
    outer: frozenset[str]


class Optional(msgspec.Struct, frozen=True, kw_only=True):
    """Extend a row by every match of `block`, or by nulls when there is none.

    `outer` names the outer variables that the block uses, `introduces` those that it adds.
    """

    block: MatchBlock
    outer: frozenset[str]
    introduces: tuple[str, ...]


class MatchBlock(msgspec.Struct, frozen=True, kw_only=True):
    """One level of `match`. Order of meaning: bindings, traversals, `unwinds` and `filters`
    together; then `optionals` one after the other; then `late_filters` (they use variables of
    optionals); then `negations`. Bindings that nothing connects form a cross product. The block of
    a negation, or of a later stage, may hold nothing but filters on outer variables."""

    bindings: tuple[NodeBinding, ...] = ()
    traversals: tuple[Traversal, ...] = ()
    filters: tuple[Filter, ...] = ()
    optionals: tuple[Optional, ...] = ()
    late_filters: tuple[Filter, ...] = ()
    negations: tuple[Negation, ...] = ()
    unwinds: tuple[Unwind, ...] = ()
