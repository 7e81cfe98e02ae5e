"""The query IR: all that an executor needs to know about a checked query, as frozen values.

Names in a plan are resolved and unique: an executor never looks at source text or at the catalog
to find out what something means. Variables are plain strings; hidden ones (wildcards, shadowed
names of inner blocks) contain a `#`, which no written variable can.

Values inside `Literal` use one Python form per scalar: `str`, `bool`, `int`, `float`,
`datetime.date` for Date, **`int` milliseconds since the epoch (UTC) for DateTime**, `str` for Blob
(`base64:…` or a URI), a tuple for lists and vectors, and None for null. Bound parameters have the
same forms, except that lists and vectors are Python lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import TypeAlias

import msgspec

from omnigraph.compiler.query.expressions import (
    BOOL,
    HOPS_OPEN,
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
    BlockValue,
    Bm25,
    Case,
    Compare,
    CompareOp,
    Degree,
    EndpointRef,
    Expr,
    Filter,
    FunctionCall,
    IdRef,
    InList,
    IsNull,
    KeyRef,
    Leg,
    ListContains,
    Literal,
    MatchBlock,
    Nearest,
    Negation,
    NodeBinding,
    Not,
    Now,
    Optional,
    Or,
    Param,
    PathPart,
    PropertyRef,
    Rrf,
    ScalarValue,
    StartsWith,
    TextContains,
    TextMatch,
    TextMatchKind,
    Traversal,
    TypeRef,
    Value,
    Variable,
    Way,
    asks_graph,
    children,
    variables_of,
    walk,
)
from omnigraph.model.schema import EntityKind, PropertyType

__all__ = [
    "BOOL",
    "HOPS_OPEN",
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
    "BlockValue",
    "Bm25",
    "Case",
    "Compare",
    "CompareOp",
    "Degree",
    "EndpointRef",
    "Expr",
    "Filter",
    "FunctionCall",
    "IdRef",
    "InList",
    "IsNull",
    "KeyRef",
    "Leg",
    "ListContains",
    "Literal",
    "MatchBlock",
    "Nearest",
    "Negation",
    "NodeBinding",
    "Not",
    "Now",
    "Optional",
    "Or",
    "Param",
    "PathPart",
    "PropertyRef",
    "Rrf",
    "ScalarValue",
    "StartsWith",
    "TextContains",
    "TextMatch",
    "TextMatchKind",
    "Traversal",
    "TypeRef",
    "Value",
    "Variable",
    "Way",
    "asks_graph",
    "children",
    "variables_of",
    "walk",
]

# --- the plans -------------------------------------------------------------------------------


class ColumnInfo(msgspec.Struct, frozen=True, kw_only=True):
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


class Projection(msgspec.Struct, frozen=True, kw_only=True):
    """One output column; its name is unique in the result."""

    name: str
    expr: Expr


class Ordering(msgspec.Struct, frozen=True, kw_only=True):
    """One sort key. Nulls come first when ascending and last when descending, except for search
    ranks (`rank` true: the expression is `nearest/bm25/rrf(…)`, written out or called by its
    alias), where rows without a score are left out of the result. `descending` already holds the
    right direction for ranks. `column` is the index of a projection with the same value, if there
    is one."""

    expr: Expr
    descending: bool = False
    rank: bool = False
    column: int | None = None


class Grouping(msgspec.Struct, frozen=True, kw_only=True):
    """Group rows by `keys` (null is a group of its own) and compute `aggregates` per group.

    Projections and orderings of a grouped plan read only `KeyRef` and `AggregateRef` (and
    constants). Without keys there is exactly one row, even over nothing. Of the groups those stay
    for which `having` is true. `row_order` are the ids that order the rows of a group, if an
    aggregate keeps their order.
    """

    keys: tuple[Expr, ...]
    aggregates: tuple[AggregateCall, ...]
    having: Expr | None = None
    row_order: tuple[IdRef, ...] = ()


class ReadPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A read query. Steps: match, group, project, distinct, order, offset, limit.

    `tie_break` lists the expressions that make the order total, to be appended ascending to
    `orderings`: ids of all visible node and edge variables by name, or the group keys; it is empty
    for `distinct`, where the output columns themselves break ties, in written order. Under
    `distinct` every ordering has a `column`.
    """

    params: tuple[Param, ...]
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


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """`property: value`. Literals are already of the property's type; what a parameter or an
    expression gives may be of another number type and must then be range-checked when assigned.
    Expressions of an update read the row (`SELF`) as it was before the statement."""

    property: str
    type: PropertyType
    value: Expr


class Insert(msgspec.Struct, frozen=True, kw_only=True):
    """Insert one entity. Declared defaults of omitted properties are already among the assignments;
    every other property that is not assigned is null. `from_id`/`to_id` are set for edges only."""

    kind: EntityKind
    type_name: str
    assignments: tuple[Assignment, ...]
    from_id: Expr | None = None
    to_id: Expr | None = None


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """Set properties of every entity for which `where` (over `SELF`) is true."""

    kind: EntityKind
    type_name: str
    assignments: tuple[Assignment, ...]
    where: Expr


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Delete every entity for which `where` (over `SELF`) is true; nodes take their edges along."""

    kind: EntityKind
    type_name: str
    where: Expr


Statement: TypeAlias = Insert | Update | Delete


class MutationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A mutation: statements in order, all inserts and updates or all deletes."""

    params: tuple[Param, ...]
    statements: tuple[Statement, ...]


# --- what a plan is made of --------------------------------------------------------------------


def parts_of(plan: ReadPlan) -> Iterator[Expr]:
    """Every expression of a read plan and everything inside it, those of all blocks included."""
    for block in blocks_of(plan):
        yield from chain.from_iterable(map(walk, _expressions_of(block)))
    yield from chain.from_iterable(map(walk, _shown(plan)))


def blocks_of(plan: ReadPlan) -> Iterator[MatchBlock]:
    """The match of a read plan and every block inside it or inside an expression."""
    pending = [plan.match, *_inside(_shown(plan))]
    while pending:
        block = pending.pop()
        yield block
        pending += [item.block for item in block.optionals]
        pending += [item.block for item in block.negations]
        pending += _inside(_expressions_of(block))


def _inside(exprs: Iterable[Expr]) -> list[MatchBlock]:
    parts = chain.from_iterable(map(walk, exprs))
    return [part.block for part in parts if isinstance(part, BlockValue)]


def _shown(plan: ReadPlan) -> Iterator[Expr]:
    yield from (item.expr for item in plan.projections)
    yield from (item.expr for item in plan.orderings)
    if plan.grouping is not None:
        yield from plan.grouping.keys
        yield from plan.grouping.aggregates
        if plan.grouping.having is not None:
            yield plan.grouping.having


def _expressions_of(block: MatchBlock) -> Iterator[Expr]:
    for node in block.bindings:
        yield from node.conditions
    for step in block.traversals:
        yield from step.edge_conditions
    yield from (item.expr for item in (*block.filters, *block.late_filters))
