"""A stage of a read: its match, and what `return` or `with`, `having`, `order`, `limit` and
`offset` make of the rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.check_expr import ExprChecker
from omnigraph.compiler.query.check_match import MatchChecker
from omnigraph.compiler.query.scope import Context, Scope, Unwound
from omnigraph.compiler.query.types import (
    I64,
    core,
    is_integer,
    kind_word,
)
from omnigraph.compiler.text import RefusedError, each_checked
from omnigraph.model.schema import Scalar
from omnigraph.model.values import in_bounds

_RANKS = (ir.Nearest, ir.Bm25, ir.Rrf)
_SEARCHES = (*_RANKS, ir.TextMatch)
_OF_ENTITIES = (
    ir.IdRef, ir.PropertyRef, ir.EndpointRef, ir.TypeRef, ir.Degree, ir.BlockValue, ir.PathPart
)  # fmt: skip


class StageChecker(msgspec.Struct, kw_only=True):
    """Checks one stage of a read query. `stage` is the only door; then `written` has the columns as
    they were written, with stars replaced, and `handed_on` the scope of the stage behind."""

    context: Context
    scope: Scope
    written: tuple[ast.Projection, ...] = ()
    _row: str = ""
    _carried: dict[str, ir.Variable] = msgspec.field(default_factory=dict)
    _unwound: dict[str, Unwound] = msgspec.field(default_factory=dict)
    _paths: dict[str, ast.Var] = msgspec.field(default_factory=dict)
    _projected: list[ir.Expr | None] = msgspec.field(default_factory=list)
    _aliases: dict[str, int] = msgspec.field(default_factory=dict)
    # Expressions are values, so equal ones share a place; the number is the place.
    _keys: dict[ir.Expr, int] = msgspec.field(default_factory=dict)
    _aggregates: dict[ir.AggregateCall, int] = msgspec.field(default_factory=dict)
    _columns_by_expr: dict[ir.Expr, int] = msgspec.field(default_factory=dict)

    def stage(self, body: ast.Stage, *, row: str, whole: bool = False) -> ir.Stage | None:
        """The stage, or None when the context holds problems. `row` names what later stages read
        its columns of; the last one has none. With `whole` its order is that of a union."""
        self._row = row
        given, given_order = set(self.scope.plan_names()), self.scope.row_order()
        block = MatchChecker(context=self.context, scope=self.scope).block(body.clauses)
        projections = self._without_stars(body.projections)
        body = replace(body, projections=self._handing_on(projections) if row else projections)
        self.written = body.projections
        self._project(body.projections)
        exprs = [item.expr for item in body.projections] + [item.expr for item in body.orderings]
        exprs += [] if body.having is None else [body.having]
        # Different rows of a `with` are groups, so that an entity's properties can order them.
        distinct = body.distinct and not row
        grouped = (body.distinct and not distinct) or any(
            isinstance(part, ast.Aggregate) for expr in exprs for part in ast.walk(expr)
        )
        orderings = self._order(body, grouped=grouped)
        limit = self._window(body.limit, "limit")
        offset = self._window(body.offset, "offset")
        projected = [expr for expr in self._projected if expr is not None]
        having = self._having(body, filters=grouped or bool(row))
        if having is not None and not grouped:
            # Rows that are not grouped go on as they are, so it is one more condition on them.
            late = ir.Filter(expr=having, variables=ir.variables_of(having))
            block = replace(block, late_filters=(*block.late_filters, late))
        if grouped:
            projected, orderings = self._group(body, projected, orderings)
            if having is not None and body.having is not None:
                with suppress(RefusedError):
                    having = self._over_groups(having, body.having.at)
        if whole or (distinct and not grouped):
            self._require_returned(body, orderings, whole=whole)
        if self.context.problems:
            return None
        tie_break = self._tie_break(grouped=grouped, distinct=distinct)
        plain = not (grouped or distinct or whole)
        keys = self._keys if grouped else {}
        return ir.Stage(
            match=block,
            grouping=self._grouping(having) if grouped else None,
            projections=tuple(
                ir.Projection(name=name, expr=expr)
                for name, expr in zip(_unique_names(body.projections), projected, strict=True)
            ),
            distinct=distinct,
            orderings=tuple(orderings),
            tie_break=tie_break,
            limit=limit,
            offset=offset,
            carries=tuple(
                ir.Carried(var=bound.name, key=keys.get(ir.Position(var=bound.name)))
                for bound in self._carried.values()
            ),
            row=row,
            each_by=given_order if plain and _ranks_each(orderings, given) else (),
        )

    def _grouping(self, having: ir.Expr | None) -> ir.Grouping:
        collects = any(call.fn is ir.AggregateFn.COLLECT for call in self._aggregates)
        return ir.Grouping(
            keys=tuple(self._keys),
            aggregates=tuple(self._aggregates),
            having=having,
            row_order=self.scope.row_order() if collects else (),
        )

    # --- with ---

    def _handing_on(self, projections: Sequence[ast.Projection]) -> tuple[ast.Projection, ...]:
        """What becomes a column of a `with`; variables go on as what they are."""
        report, columns = self.context.problems.report, []
        for item in projections:
            expr = item.expr
            if not isinstance(expr, ast.Var) or item.alias is not None:
                if isinstance(expr, ast.Word) and item.alias is None:
                    item = replace(item, alias=expr.name)
                if item.alias is None:
                    message = "a column that goes on needs a name"
                    report(item.at, message, hint="write `... as name`, and `name` behind it")
                columns.append(item)
                continue
            bound, unwound = self.scope.get(expr.name), self.scope.unwound.get(expr.name)
            if expr.name in {*self._carried, *self._unwound, *self._paths}:
                report(item.at, f"`${expr.name}` is given twice")
            elif bound is not None:
                self._carried[expr.name] = bound
            elif unwound is not None:
                columns += self._carry_values(expr, unwound)
            elif expr.name in self.scope.paths:
                self._paths[expr.name] = expr
            else:
                with suppress(RefusedError):
                    self._check(expr)
                    hint = "it is known in every stage" if expr.name in self.context.params else ""
                    report(item.at, f"parameter `${expr.name}` is no variable", hint=hint or None)
        self._require_ends()
        return tuple(columns)

    def _require_ends(self) -> None:
        """A path follows from its ends, so that they go on with it."""
        carried = {bound.name for bound in self._carried.values()}
        for name, var in self._paths.items():
            way = self.scope.paths[name]
            if not {way.src, way.dst} <= carried:
                message = f"the path `${name}` goes on only with both of its ends"
                hint = (
                    "name the variables at its ends in `with` too, or a column such as its length"
                )
                self.context.problems.report(var.at, message, hint=hint)

    def _carry_values(self, var: ast.Var, unwound: Unwound) -> list[ast.Projection]:
        """The columns by which an unwound value goes on under its own name."""
        ref, name = partial(ir.RowRef, var=self._row), f"${var.name}"
        if unwound.element is not None:
            element = ref(column=name, type=unwound.element.type)
            self._unwound[var.name] = Unwound(name=self._row, element=element)
            return [ast.Projection(var, name, var.at)]
        fields = {
            field: ref(column=f"{name}.{field}", type=value.type)
            for field, value in unwound.fields.items()
        }
        self._unwound[var.name] = Unwound(name=self._row, fields=fields)
        return [
            ast.Projection(ast.Access(var.name, field, var.at), f"{name}.{field}", var.at)
            for field in fields
        ]

    def handed_on(self) -> Scope:
        """What the next stage knows."""
        scope = Scope(self._carried)
        for item, expr in zip(self.written, self._projected, strict=True):
            assert expr is not None, "a stage without problems has no missing expressions"
            assert item.alias is not None, "a column that goes on has a name"
            if not item.alias.startswith("$"):
                found = ir.RowRef(var=self._row, column=item.alias, type=expr.type)
                scope.columns[item.alias] = found
        scope.unwound |= self._unwound
        scope.paths |= {name: self.scope.paths[name] for name in self._paths}
        return scope

    def _without_stars(self, projections: Sequence[ast.Projection]) -> tuple[ast.Projection, ...]:
        """The projections, with `$p.*` as the properties that can be shown in a table."""
        found: list[ast.Projection] = []
        for item in projections:
            if not isinstance(item.expr, ast.Star):
                found.append(item)
                continue
            bound = self.scope.get(item.expr.var)
            if bound is None:  # told as any other name that is not bound
                found.append(replace(item, expr=ast.Access(item.expr.var, "id", item.at)))
                continue
            properties = self.context.properties(bound)
            found += [
                ast.Projection(ast.Access(item.expr.var, name, item.at), None, item.at)
                for name in self.context.property_names(bound)
                if name not in properties
                or properties[name].type.scalar not in {Scalar.BLOB, Scalar.VECTOR}
            ]
        return tuple(found)

    def columns(self) -> tuple[ir.ColumnInfo, ...]:
        """The columns of the result, of a stage that has no problems."""
        names = _unique_names(self.written)
        found: list[ir.ColumnInfo] = []
        for name, written, expr in zip(names, self.written, self._projected, strict=True):
            assert expr is not None, "a query without problems has no missing expressions"
            node = isinstance(expr, ir.IdRef) and isinstance(written.expr, ast.Var)
            bound = self.scope.get(written.expr.name) if isinstance(written.expr, ast.Var) else None
            found.append(
                ir.ColumnInfo(
                    name=name,
                    type=expr.type,
                    kind="object" if node else kind_word(expr.type),
                    label=_label(written),
                    node_types=bound.types if node and bound is not None else (),
                )
            )
        return tuple(found)

    # --- return ---

    def _check(self, expr: ast.Expr) -> ir.Expr:
        return self._checker().check(expr)

    def _checker(self) -> ExprChecker:
        return ExprChecker(
            context=self.context,
            scope=self.scope,
            aliases=self._alias,
            aggregates=True,
            inside=self._inside,
        )

    def _inside(self, _word: ast.Word) -> ir.Expr | None:
        """What a bare word inside an aggregate means, if it is no column of the stage before."""
        return None

    def _project(self, projections: Sequence[ast.Projection]) -> None:
        for index, projection in enumerate(projections):
            expr = None
            with suppress(RefusedError):
                expr = self._check(projection.expr)
                self._columns_by_expr.setdefault(expr, index)
            self._projected.append(expr)
            if projection.alias is None:
                continue
            if projection.alias in self._aliases:
                message = f"column name `{projection.alias}` is given twice"
                self.context.problems.report(projection.at, message)
            self._aliases[projection.alias] = index

    def _alias(self, word: ast.Word) -> ir.Expr:
        """A column named earlier in `return`, seen from a later projection or from `order`."""
        index = self._aliases.get(word.name)
        if index is not None:
            found = self._projected[index]
            if found is None:  # its problem is told where it stands
                raise RefusedError
            return found
        column = self.scope.columns.get(word.name)
        if column is not None:
            return column
        known = [*self._aliases, *self.scope.columns]
        hint = self.context.problems.suggest(word.name, known)
        if hint is None:
            hint = f"name a column first: `$x.p as {word.name}`"
        raise self.context.problems.refused(word.at, f"unknown alias `{word.name}`", hint=hint)

    def _having(self, body: ast.Stage, *, filters: bool) -> ir.Expr | None:
        """The condition on groups, as yet over rows, or on the rows of a `with` without groups."""
        if body.having is None:
            return None
        if not filters:
            message = "having filters groups, and nothing is grouped here"
            hint = "a condition on rows is a clause of `match`; an aggregate makes groups"
            self.context.problems.report(body.having.at, message, code="T9", hint=hint)
            return None
        with suppress(RefusedError):
            return self._checker().condition(body.having)
        return None

    # --- order ---

    def _order(self, body: ast.Stage, *, grouped: bool) -> list[ir.Ordering]:
        found: list[ir.Ordering] = []
        for ordering in body.orderings:
            with suppress(RefusedError):
                expr = self._check(ordering.expr)
                self._require_orderable(ordering, expr, body, grouped=grouped)
                # A score orders like itself, whether it is written out or called by its alias.
                rank = isinstance(expr, _RANKS)
                descending = ordering.direction == "desc"
                if rank and not isinstance(expr, ir.Nearest):
                    # A relevance is ordered best first unless the query says otherwise.
                    descending = ordering.direction != "asc"
                column = self._columns_by_expr.get(expr)
                found.append(
                    ir.Ordering(expr=expr, descending=descending, rank=rank, column=column)
                )
        return found

    def _require_orderable(
        self, ordering: ast.Ordering, expr: ir.Expr, body: ast.Stage, *, grouped: bool
    ) -> None:
        refused = partial(self.context.problems.refused, ordering.at)
        if isinstance(ordering.expr, ast.Call) and body.limit is None:
            hint = "add `limit 10` after the order block"
            if isinstance(expr, ir.Nearest):
                raise refused("nearest ordering requires a limit clause", code="T17", hint=hint)
            if isinstance(expr, ir.Rrf):
                raise refused("rrf ordering requires a limit clause", code="T21", hint=hint)
        if isinstance(expr, _RANKS) and grouped:
            hint = "return the rank in a query of its own"
            raise refused("search ranks cannot order grouped rows", code="T9", hint=hint)
        calls = {item.expr.name for item in body.orderings if isinstance(item.expr, ast.Call)}
        if isinstance(ordering.expr, ast.Word) and "nearest" in calls:
            message = f"ordering by alias `{ordering.expr.name}` cannot stand beside nearest"
            hint = "order by the expression itself, or by nearest alone"
            raise refused(message, code="T18", hint=hint)
        if expr.type.is_list or expr.type.scalar is Scalar.VECTOR:
            raise refused(f"{core(expr.type)} values have no order", code="T7")

    def _require_returned(
        self, body: ast.Stage, orderings: Sequence[ir.Ordering], *, whole: bool
    ) -> None:
        """Under `distinct` a row stands for many matches, which share only what is returned; and
        the rows of a union share only that."""
        for ordering, written in zip(orderings, body.orderings, strict=False):
            if ordering.column is None:
                message = "with `distinct`, order by what is returned"
                hint = "add the sort key to `return`, or leave out `distinct`"
                if whole:
                    message = "the order behind a union is that of the whole; order by its columns"
                    hint = "add the sort key to every `return`"
                self.context.problems.report(written.at, message, hint=hint)

    def _window(self, written: ast.Lit | ast.Var | None, word: str) -> ir.Literal | ir.Param | None:
        """`limit` or `offset`; None also for one that was refused."""
        if written is None:
            return None
        report = partial(self.context.problems.report, written.at)
        if isinstance(written, ast.Lit):
            assert isinstance(written.value, int), "the grammar takes nothing else"
            if not in_bounds(written.value, Scalar.I64):
                report(f"{word} {written.value} is too large")
            return ir.Literal(value=written.value, type=I64)
        declared = self.context.params.get(written.name)
        if declared is None:
            hint = self.context.problems.suggest(written.name, self.context.params)
            report(f"{word} `${written.name}` must be a declared query parameter", hint=hint)
            return None
        if not is_integer(declared):
            report(f"{word} `${written.name}` must be an integer, got {core(declared)}")
        return ir.Param(name=written.name, type=declared)

    # --- grouping ---

    def _group(
        self, body: ast.Stage, projected: list[ir.Expr], orderings: list[ir.Ordering]
    ) -> tuple[list[ir.Expr], list[ir.Ordering]]:
        """Rewrite projections and orderings over group keys and aggregates."""
        written = [
            (item, expr)
            for item, expr in zip(body.projections, self._projected, strict=True)
            if expr is not None
        ]
        for bound in self._carried.values():
            self._keys.setdefault(ir.Position(var=bound.name), len(self._keys))
        plain = [
            (item, expr)
            for item, expr in written
            if not any(isinstance(part, ir.AggregateCall) for part in ir.walk(expr))
        ]
        for item, expr in plain:
            self._add_key(item, expr)
        if body.distinct and self._row and not self._keys and len(plain) == len(written):
            # Of no rows nothing is different, even where all of them would be the same.
            self._keys.update((expr, 0) for _, expr in plain[:1])
        shown: list[ir.Expr] = []
        for item, expr in written:
            with suppress(RefusedError):
                shown.append(self._over_groups(expr, item.at))
        ordered = []
        # An ordering that was refused is missing; then the places do not matter.
        for ordering, place in zip(orderings, body.orderings, strict=False):
            with suppress(RefusedError):
                expr = self._over_groups(ordering.expr, place.at)
                ordered.append(replace(ordering, expr=expr))
        return (shown if len(shown) == len(projected) else projected), ordered

    def _add_key(self, written: ast.Projection, expr: ir.Expr) -> None:
        if any(isinstance(part, _SEARCHES) for part in ir.walk(expr)):
            message = "rows cannot be grouped by a search"
            hint = "aggregate it, or project it in a query of its own"
            self.context.problems.report(written.at, message, code="T9", hint=hint)
        elif ir.variables_of(expr):  # what is the same in all rows tells no groups apart
            self._keys.setdefault(expr, len(self._keys))
            if isinstance(expr, ir.IdRef) and isinstance(written.expr, ast.Var):
                # A node of several types is told apart by its type too.
                bound = self.context.variables[expr.var]
                if bound.is_open:
                    kind = ir.TypeRef(var=bound.name, type=bound.id.type)
                    self._keys.setdefault(kind, len(self._keys))

    def _over_groups(self, expr: ir.Expr, at: int) -> ir.Expr:
        if isinstance(expr, ir.AggregateCall):
            place = self._aggregates.setdefault(expr, len(self._aggregates))
            return ir.AggregateRef(index=place, type=expr.type)
        if isinstance(expr, ir.Literal | ir.Param | ir.Now) and expr not in self._keys:
            return expr
        if expr not in self._keys and isinstance(expr, _OF_ENTITIES):
            # With the entities as keys, each of their properties has one value per group.
            of = ir.variables_of(expr)
            if of and all(map(self._is_key, of)):
                self._keys.setdefault(expr, len(self._keys))
        if expr in self._keys:
            return ir.KeyRef(index=self._keys[expr], type=expr.type)
        if not ir.children(expr):
            message = "not constant in a group; group by it or aggregate it"
            raise self.context.problems.refused(at, message, code="T9")
        return self._rebuilt(expr, at)

    def _is_key(self, var: str) -> bool:
        if ir.Position(var=var) in self._keys:
            return True
        bound = self.context.variables[var]
        if bound.is_open and ir.TypeRef(var=var, type=bound.id.type) not in self._keys:
            return False
        return any(isinstance(key, ir.IdRef) and key.var == var for key in self._keys)

    def _rebuilt(self, expr: ir.Expr, at: int) -> ir.Expr:
        """The same operation over groups; only operators of plain values can be rebuilt."""
        names: tuple[str, ...]
        match expr:
            case ir.Compare() | ir.Arithmetic():
                names = ("left", "right")
            case ir.Not() | ir.IsNull():
                names = ("item",)
            case ir.InList():
                names = ("needle",)
            case ir.TextContains():
                names = ("text", "part")
            case ir.StartsWith():
                names = ("text", "prefix")
            case ir.And() | ir.Or():
                items = each_checked(lambda item: self._over_groups(item, at), expr.items)
                return replace(expr, items=items)
            case ir.FunctionCall():
                args = each_checked(lambda arg: self._over_groups(arg, at), expr.args)
                return replace(expr, args=args)
            case ir.Case():
                *flat, otherwise = each_checked(
                    lambda part: self._over_groups(part, at), ir.children(expr)
                )
                whens = tuple(zip(flat[::2], flat[1::2], strict=True))
                return replace(expr, whens=whens, otherwise=otherwise)
            case ir.ListContains():
                names = ("items", "needle")
            case _:
                message = "searches cannot be used on grouped rows"
                raise self.context.problems.refused(at, message, code="T9")
        parts = each_checked(lambda name: self._over_groups(getattr(expr, name), at), names)
        return replace(expr, **dict(zip(names, parts, strict=True)))

    def _tie_break(self, *, grouped: bool, distinct: bool) -> tuple[ir.Expr, ...]:
        if distinct:
            return ()
        if not grouped:
            return self.scope.row_order()
        # Entities are told apart by their positions, and ordered by their ids.
        keys: dict[ir.Expr, None] = {}
        for key in self._keys:
            if isinstance(key, ir.Position):
                keys |= dict.fromkeys(self._names(self.context.variables[key.var]))
            else:
                keys[key] = None
        return tuple(
            ir.KeyRef(index=self._keys.setdefault(key, len(self._keys)), type=key.type)
            for key in keys
        )

    def _names(self, bound: ir.Variable) -> list[ir.Expr]:
        """What tells an entity from all others, in words: its id, and its type if it is open."""
        kind = [ir.TypeRef(var=bound.name, type=bound.id.type)] if bound.is_open else []
        return [bound.id, *kind]


# --- column names ---


def _ranks_each(orderings: Sequence[ir.Ordering], given: Collection[str]) -> bool:
    """Whether rows are ranked first by what they are near to, in each row of the stage before:
    that row brings the vector, and the entities that are measured are found for it."""
    first = orderings[0].expr if orderings else None
    if not isinstance(first, ir.Nearest) or not isinstance(first.query, ir.PropertyRef):
        return False
    return first.query.var in given and first.field.var not in given


def _unique_names(projections: Sequence[ast.Projection]) -> tuple[str, ...]:
    """The column names: the alias, else a name made from the expression; a made name that is taken
    gets a number."""
    taken = {projection.alias for projection in projections if projection.alias}
    names: list[str] = []
    for projection in projections:
        name = projection.alias
        if name is None:
            plain = name = _generated_name(projection.expr)
            number = 1
            while name in taken:
                number += 1
                name = f"{plain}_{number}"
            taken.add(name)
        names.append(name)
    return tuple(names)


def _generated_name(expr: ast.Expr) -> str:
    """`var.prop`, the variable, the name of an aggregate's argument, or the kind of expression."""
    match expr:
        case ast.Access():
            return f"{expr.var}.{expr.prop}"
        case ast.Var() | ast.Word():
            return expr.name
        case ast.Aggregate():
            return expr.name if expr.arg is None else _generated_name(expr.arg)
        case ast.Call() | ast.Block():
            return expr.name if isinstance(expr, ast.Call) else expr.word
        case ast.Case():
            return "case"
        case ast.Index():
            return _generated_name(expr.items)
        case ast.NowCall():
            return "now"
        case ast.Lit() | ast.ListLit():
            return "literal"
        case _:
            return "expr"


def _label(projection: ast.Projection) -> str:
    """The short name of lint descriptions: the alias, else the property alone."""
    if projection.alias is not None:
        return projection.alias
    expr = projection.expr
    while isinstance(expr, ast.Aggregate) and expr.arg is not None:
        expr = expr.arg
    return expr.prop if isinstance(expr, ast.Access) else _generated_name(expr)
