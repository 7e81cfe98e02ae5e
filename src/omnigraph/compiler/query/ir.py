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
from functools import cached_property
from itertools import chain
from typing import Literal as Choice
from typing import TypeAlias

import msgspec

from omnigraph.compiler.query.expressions import (
    BOOL,
    GIVEN,
    HOPS_OPEN,
    ID,
    PLACE,
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
    Field,
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
    Position,
    PropertyRef,
    RecordParam,
    RowRef,
    Rrf,
    ScalarValue,
    StartsWith,
    TextContains,
    TextMatch,
    TextMatchKind,
    Traversal,
    TypeRef,
    Unwind,
    Value,
    Variable,
    Way,
)
from omnigraph.compiler.text import parents_first
from omnigraph.model.schema import EntityKind, PropertyType

__all__ = [
    "BOOL",
    "GIVEN",
    "HOPS_OPEN",
    "ID",
    "PLACE",
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
    "Field",
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
    "Position",
    "PropertyRef",
    "RecordParam",
    "RowRef",
    "Rrf",
    "ScalarValue",
    "StartsWith",
    "TextContains",
    "TextMatch",
    "TextMatchKind",
    "Traversal",
    "TypeRef",
    "Unwind",
    "Value",
    "Variable",
    "Way",
    "asks_graph",
    "children",
    "variables_of",
    "walk",
]

# --- what an expression is made of -------------------------------------------------------------


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct parts of an expression."""
    match expr:
        case Compare() | Arithmetic():
            return (expr.left, expr.right)
        case And() | Or():
            return expr.items
        case FunctionCall():
            return expr.args
        case Case():
            return (*(part for when in expr.whens for part in when), expr.otherwise)
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
    return parents_first(expr, children)


def variables_of(expr: Expr) -> frozenset[str]:
    """The variables that an expression reads."""
    found: set[str] = set()
    for part in walk(expr):
        if isinstance(
            part, PropertyRef | IdRef | EndpointRef | TypeRef | Degree | RowRef | Position
        ):
            found.add(part.var)
        elif isinstance(part, PathPart):
            found |= {part.way.src, part.way.dst}
        elif isinstance(part, BlockValue):
            found |= part.outer
    return frozenset(found)


def asks_graph(expr: Expr) -> bool:
    """Whether the expression looks at edges, so that it needs more than columns of its rows."""
    return any(isinstance(part, Degree | BlockValue | PathPart) for part in walk(expr))


# --- the plans -------------------------------------------------------------------------------


class ColumnInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A column of the result, exactly as execution returns it.

    `kind` is the word that descriptions use (string, bool, int, bigint, float, date, datetime,
    vector, list, object); `object` is a bare node variable, whose value is the node's id.
    `label` is the short name that lint descriptions show, `node_types` what a bare variable may be.
    """

    name: str
    type: PropertyType
    kind: str
    label: str
    node_types: tuple[str, ...] = ()

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
    for which `having` is true. `row_order` is what orders the rows of a group, if an
    aggregate keeps their order.
    """

    keys: tuple[Expr, ...]
    aggregates: tuple[AggregateCall, ...]
    having: Expr | None = None
    row_order: tuple[IdRef | RowRef, ...] = ()


class Carried(msgspec.Struct, frozen=True, kw_only=True):
    """A variable that a stage hands on: `key` is the place of its `Position` among the keys of the
    stage's grouping, or among its projections if it is distinct; None where rows are neither."""

    var: str
    key: int | None = None


class Stage(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A match, which begins with the rows of the stage before, and what is made of its rows. Steps:
    match, group, project, distinct, order, offset, limit.

    `tie_break` lists the expressions that make the order total, to be appended ascending to
    `orderings`: ids of all visible node and edge variables by name, then values that came with the
    rows; or the group keys; it is empty for `distinct`, where the output columns themselves break
    ties, in written order. Under `distinct` every ordering has a `column`.

    A stage that is not the last one hands on the variables of `carries`, and its projections as the
    columns of the variable `row`. Those of `Position` only tell distinct rows apart.

    With `each_by`, every row of the stage before is ordered, skipped and limited by itself; the
    expressions are the order of those rows.
    """

    match: MatchBlock
    grouping: Grouping | None
    projections: tuple[Projection, ...]
    distinct: bool = False
    orderings: tuple[Ordering, ...] = ()
    tie_break: tuple[Expr, ...] = ()
    limit: Literal | Param | None = None
    offset: Literal | Param | None = None
    carries: tuple[Carried, ...] = ()
    row: str = ""
    each_by: tuple[IdRef | RowRef, ...] = ()

    @cached_property
    def fusions(self) -> frozenset[Rrf]:
        """The fused ranks among all that is shown or ordered by."""
        shown = [projection.expr for projection in self.projections]
        ordered = [ordering.expr for ordering in self.orderings]
        exprs = [*shown, *ordered, *self.tie_break]
        return frozenset(part for expr in exprs for part in walk(expr) if isinstance(part, Rrf))


class ReadPlan(Stage, frozen=True, kw_only=True):
    """A read query without unions: the last stage, and those before it in order."""

    params: tuple[Param | RecordParam, ...]
    variables: Mapping[str, Variable]
    columns: tuple[ColumnInfo, ...]
    before: tuple[Stage, ...] = ()

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (*self.before, self)


class UnionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Queries whose rows are put together, from left to right. `keeps[i]` says of the part behind
    the first i + 1 whether equal rows stay (`union all`). Values become the types of `columns`.
    Then orderings, offset and limit; ties are broken by the columns in their order."""

    params: tuple[Param | RecordParam, ...]
    parts: tuple[ReadPlan, ...]
    keeps: tuple[bool, ...]
    columns: tuple[ColumnInfo, ...]
    orderings: tuple[ColumnOrder, ...] = ()
    limit: Literal | Param | None = None
    offset: Literal | Param | None = None


class ColumnOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A sort key that is a column of the result."""

    column: int
    descending: bool


QueryPlan: TypeAlias = ReadPlan | UnionPlan


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """`property: value`. Literals are already of the property's type; what a parameter or an
    expression gives may be of another number type and must then be range-checked when assigned.
    Expressions of an update read the row (`SELF`) as it was before the statement."""

    property: str
    type: PropertyType
    value: Expr


class Insert(msgspec.Struct, frozen=True, kw_only=True):
    """Insert one entity. Declared defaults of omitted properties are already among the assignments
    (`defaults` of an upsert count only if it inserts); every other property that is not assigned is
    null. `from_id`/`to_id` are set for edges only.

    An entity that has the key already, or an edge between the same ends where only one may be, is
    replaced (`put`), left alone (`nothing`), or gets what is assigned (`upsert`). What is inserted
    or found is called `name` from here on: `Param`s of that name and of `name.property` mean it.
    """

    kind: EntityKind
    type_name: str
    assignments: tuple[Assignment, ...]
    defaults: tuple[Assignment, ...] = ()
    from_id: Expr | None = None
    to_id: Expr | None = None
    mode: Choice["put", "nothing", "upsert"] = "put"
    name: str | None = None
    number: int = 1
    line: int = 1


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """Set properties of every entity for which `where` (over `SELF`) is true."""

    kind: EntityKind
    type_name: str
    assignments: tuple[Assignment, ...]
    where: Expr
    number: int = 1
    line: int = 1


class UpdateFound(msgspec.Struct, frozen=True, kw_only=True):
    """Set properties of the entity with the id that `entity` gives; nothing if that is null."""

    kind: EntityKind
    type_name: str
    entity: Param
    assignments: tuple[Assignment, ...]
    number: int = 1
    line: int = 1


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Delete every entity for which `where` (over `SELF`) is true; nodes take their edges along."""

    kind: EntityKind
    type_name: str
    where: Expr
    number: int = 1
    line: int = 1


class DeleteFound(msgspec.Struct, frozen=True, kw_only=True):
    """Delete the entity with the id that `entity` gives; nothing if that is null."""

    kind: EntityKind
    type_name: str
    entity: Param
    number: int = 1
    line: int = 1


Simple: TypeAlias = Insert | Update | UpdateFound | Delete | DeleteFound


class Loop(msgspec.Struct, frozen=True, kw_only=True):
    """Run the statements for each item of a parameter. `Param`s called `name`, or `name.field` if
    the items are records, mean the item."""

    name: str
    items: str
    fields: tuple[str, ...] | None
    statements: tuple[Simple, ...]


Statement: TypeAlias = Simple | Loop


class Returning(msgspec.Struct, frozen=True, kw_only=True):
    """What a mutation returns: a plan without a match, over the rows that its statements ran for.

    `ids` says for each variable of the plan which `Param` of a row holds its id; None for what the
    last statement, an update or delete of its own, has changed. `values` are columns of `GIVEN`, by
    the `Param` of a row that each is. `before`: properties are those that were there before the
    mutation, because it deletes.
    """

    plan: ReadPlan
    ids: Mapping[str, str | None]
    values: Mapping[str, Param]
    before: bool


class MutationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A mutation: statements in order, all inserts and updates or all deletes.

    With a `match` they run once for each of its rows, in its order. Its columns are what the
    statements want of a row; their names are those of the `Param`s that mean them, and `wanted`
    says which statement is the first to want each: its number and its line.
    """

    params: tuple[Param | RecordParam, ...]
    statements: tuple[Statement, ...]
    match: ReadPlan | None = None
    wanted: Mapping[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    returning: Returning | None = None

    @property
    def simple(self) -> Iterator[Simple]:
        """Every statement that changes something, those of loops too."""
        for statement in self.statements:
            if isinstance(statement, Loop):
                yield from statement.statements
            else:
                yield statement


# --- what a plan is made of --------------------------------------------------------------------


def plans_of(plan: QueryPlan) -> tuple[ReadPlan, ...]:
    """The queries that a union puts together, or the only one."""
    return plan.parts if isinstance(plan, UnionPlan) else (plan,)


def parts_of(plan: QueryPlan) -> Iterator[Expr]:
    """Every expression of a read plan and everything inside it, those of all blocks included."""
    for block in blocks_of(plan):
        yield from chain.from_iterable(map(walk, _expressions_of(block)))
    yield from chain.from_iterable(map(walk, _shown(plan)))


def blocks_of(plan: QueryPlan) -> Iterator[MatchBlock]:
    """The matches of a read plan and every block inside them or inside an expression."""
    pending = [stage.match for part in plans_of(plan) for stage in part.stages]
    pending += _inside(_shown(plan))
    while pending:
        block = pending.pop()
        yield block
        pending += [item.block for item in block.optionals]
        pending += [item.block for item in block.negations]
        pending += _inside(_expressions_of(block))


def _inside(exprs: Iterable[Expr]) -> list[MatchBlock]:
    parts = chain.from_iterable(map(walk, exprs))
    return [part.block for part in parts if isinstance(part, BlockValue)]


def _shown(plan: QueryPlan) -> Iterator[Expr]:
    for stage in chain.from_iterable(part.stages for part in plans_of(plan)):
        yield from (item.expr for item in stage.projections)
        yield from (item.expr for item in stage.orderings)
        if stage.grouping is not None:
            yield from stage.grouping.keys
            yield from stage.grouping.aggregates
            if stage.grouping.having is not None:
                yield stage.grouping.having


def _expressions_of(block: MatchBlock) -> Iterator[Expr]:
    for node in block.bindings:
        yield from node.conditions
    for step in block.traversals:
        yield from step.edge_conditions
    yield from (item.items for item in block.unwinds if not isinstance(item.items, RecordParam))
    yield from (item.expr for item in (*block.filters, *block.late_filters))
