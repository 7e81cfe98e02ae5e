"""The query IR: all that an executor needs to know about a checked query, as frozen values.

Names in a plan are resolved and unique: an executor never looks at source text or at the catalog
to find out what something means. Variables are plain strings; hidden ones (wildcards, shadowed
names of inner blocks) contain a `#`, which no written variable can. Expressions live next door in
`expressions.py` (with the Python form of every value) and are all exported from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from omnigraph.compiler.query.expressions import (
    BOOL,
    ID,
    SCORE,
    SELF,
    TIMESTAMP,
    AggregateCall,
    AggregateFn,
    AggregateRef,
    And,
    Arithmetic,
    ArithmeticOp,
    Bm25,
    Compare,
    CompareOp,
    EndpointRef,
    Expr,
    IdRef,
    InList,
    IsNull,
    KeyRef,
    ListContains,
    Literal,
    Nearest,
    Not,
    Now,
    Or,
    Param,
    PropertyRef,
    Rrf,
    ScalarValue,
    StartsWith,
    TextContains,
    TextMatch,
    TextMatchKind,
    Value,
    children,
    properties_of,
    variables_of,
    walk,
)
from omnigraph.model.schema import EntityKind, PropertyType

__all__ = [
    "BOOL",
    "ID",
    "SCORE",
    "SELF",
    "TIMESTAMP",
    "AggregateCall",
    "AggregateFn",
    "AggregateRef",
    "And",
    "Arithmetic",
    "ArithmeticOp",
    "Assignment",
    "Bm25",
    "ColumnInfo",
    "Compare",
    "CompareOp",
    "Delete",
    "EndpointRef",
    "Expr",
    "Filter",
    "Grouping",
    "IdRef",
    "InList",
    "Insert",
    "IsNull",
    "KeyRef",
    "ListContains",
    "Literal",
    "MatchBlock",
    "MutationPlan",
    "Nearest",
    "Negation",
    "NodeBinding",
    "Not",
    "Now",
    "Optional",
    "Or",
    "Ordering",
    "Param",
    "ParamDecl",
    "Projection",
    "PropertyRef",
    "ReadPlan",
    "Rrf",
    "ScalarValue",
    "StartsWith",
    "Statement",
    "TextContains",
    "TextMatch",
    "TextMatchKind",
    "Traversal",
    "Update",
    "Value",
    "Variable",
    "children",
    "properties_of",
    "variables_of",
    "walk",
]


# --- match -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """What a plan variable stands for. `nullable`: it comes from an `optional` block."""

    name: str
    kind: EntityKind
    type_name: str
    nullable: bool = False
    hidden: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBinding:
    """A node variable that its block introduces, with every condition on it alone.

    `declared` is false when the variable only appears as an end of a traversal: it is then reached
    by that traversal and never scanned. Conditions may use parameters and `now()`.
    """

    var: str
    type_name: str
    conditions: tuple[Expr, ...] = ()
    declared: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Traversal:
    """A walk along one edge type from `src` to `dst` (`from` side to `to` side).

    Either end may be bound first. An `edge_var` means exactly one hop and one row per stored edge;
    without it parallel edges fold into one row. When the two endpoint types differ `max_hops` is at
    most 1, so `min_hops > max_hops` is possible and matches nothing.
    """

    src: str
    dst: str
    edge_type: str
    from_type: str
    to_type: str
    edge_var: str | None = None
    undirected: bool = False
    min_hops: int = 1
    max_hops: int = 1
    edge_conditions: tuple[Expr, ...] = ()  # conditions on `edge_var` alone

    @property
    def variables(self) -> frozenset[str]:
        ends = {self.src, self.dst}
        return frozenset(ends | {self.edge_var} if self.edge_var else ends)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A condition over more than one variable, over none, or over variables of an outer block."""

    expr: Expr
    variables: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Negation:
    """Keep a row when `block`, with the row's variables fixed, matches nothing.

    `outer` names the outer variables that the block uses, at any depth.
    """

    block: MatchBlock
    outer: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Optional:
    """Extend a row by every match of `block`, or by nulls when there is none.

    `outer` names the outer variables that the block uses, `introduces` those that it adds.
    """

    block: MatchBlock
    outer: frozenset[str]
    introduces: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchBlock:
    """One level of `match`. Order of meaning: bindings, traversals and `filters` together; then
    `optionals` one after the other; then `late_filters` (they use variables of optionals); then
    `negations`. Bindings that nothing connects form a cross product. The block of a negation may
    hold nothing but filters on outer variables."""

    bindings: tuple[NodeBinding, ...] = ()
    traversals: tuple[Traversal, ...] = ()
    filters: tuple[Filter, ...] = ()
    optionals: tuple[Optional, ...] = ()
    late_filters: tuple[Filter, ...] = ()
    negations: tuple[Negation, ...] = ()


# --- the plans -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamDecl:
    """A declared parameter; `type.nullable` says whether it may be left out."""

    name: str
    type: PropertyType


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnInfo:
    """A column of the result, exactly as execution returns it.

    `kind` is the word that descriptions use (string, bool, int, bigint, float, date, datetime,
    vector, list, object); `object` is a bare node variable, whose value is the node's id.
    `label` is the short name that lint descriptions show.
    """

    name: str
    type: PropertyType
    kind: str
    label: str

    @property
    def nullable(self) -> bool:
        return self.type.nullable


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """One output column; its name is unique in the result."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordering:
    """One sort key. Nulls come first when ascending and last when descending, except for search
    ranks (`rank` true: the expression is `nearest/bm25/rrf(…)`, written out or called by its
    alias), where rows without a score are left out of the result. `descending` already holds the
    right direction for ranks. `column` is the index of a projection with the same value, if there
    is one."""

    expr: Expr
    descending: bool = False
    rank: bool = False
    column: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Group rows by `keys` (null is a group of its own) and compute `aggregates` per group.

    Projections and orderings of a grouped plan read only `KeyRef` and `AggregateRef` (and
    constants). Without keys there is exactly one row, even over nothing.
    """

    keys: tuple[Expr, ...]
    aggregates: tuple[AggregateCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """A read query. Steps: match, group, project, distinct, order, offset, limit.

    `tie_break` lists the expressions that make the order total, to be appended ascending to
    `orderings`: ids of all visible node and edge variables by name, or the group keys; it is empty
    for `distinct`, where the output columns themselves break ties, in written order. Under
    `distinct` every ordering has a `column`.
    """

    params: tuple[ParamDecl, ...]
    variables: Mapping[str, Variable]
    match: MatchBlock
    grouping: Grouping | None
    projections: tuple[Projection, ...]
    columns: tuple[ColumnInfo, ...]
    distinct: bool = False
    orderings: tuple[Ordering, ...] = ()
    tie_break: tuple[Expr, ...] = ()
    limit: Literal | Param | None = None
    offset: Literal | Param | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """`property: value`. Literals are already of the property's type; a parameter may be of another
    number type than the property and must then be range-checked when assigned."""

    property: str
    type: PropertyType
    value: Literal | Param | Now


@dataclass(frozen=True, slots=True, kw_only=True)
class Insert:
    """Insert one entity. Declared defaults of omitted properties are already among the assignments;
    every other property that is not assigned is null. `from_id`/`to_id` are set for edges only."""

    kind: EntityKind
    type_name: str
    assignments: tuple[Assignment, ...]
    from_id: Literal | Param | None = None
    to_id: Literal | Param | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Set properties of every entity for which `where` (over `SELF`) is true."""

    kind: EntityKind
    type_name: str
    assignments: tuple[Assignment, ...]
    where: Expr


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Delete every entity for which `where` (over `SELF`) is true; nodes take their edges along."""

    kind: EntityKind
    type_name: str
    where: Expr


Statement: TypeAlias = Insert | Update | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class MutationPlan:
    """A mutation: statements in order, all inserts and updates or all deletes."""

    params: tuple[ParamDecl, ...]
    statements: tuple[Statement, ...]
