"""The body of a read becomes a plan: match, return, order, limit and offset."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.check_expr import ExprChecker
from omnigraph.compiler.query.check_match import MatchChecker
from omnigraph.compiler.query.scope import Context, Scope
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
    ir.PropertyRef, ir.EndpointRef, ir.TypeRef, ir.Degree, ir.BlockValue, ir.PathPart
)  # fmt: skip


class ReadChecker(msgspec.Struct, kw_only=True):
    """Checks one read query. `plan()` is the only door."""

    context: Context
    params: tuple[ir.Param, ...]
    scope: Scope = msgspec.field(default_factory=Scope)
    _projected: list[ir.Expr | None] = msgspec.field(default_factory=list)
    _aliases: dict[str, int] = msgspec.field(default_factory=dict)
    # Expressions are values, so equal ones share a place; the number is the place.
    _keys: dict[ir.Expr, int] = msgspec.field(default_factory=dict)
    _aggregates: dict[ir.AggregateCall, int] = msgspec.field(default_factory=dict)
    _columns_by_expr: dict[ir.Expr, int] = msgspec.field(default_factory=dict)

    def plan(self, body: ast.ReadBody) -> ir.ReadPlan | None:
        """The plan, or None when the context holds problems."""
        block = MatchChecker(context=self.context, scope=self.scope).block(body.clauses)
        body = replace(body, projections=self._without_stars(body.projections))
        self._project(body.projections)
        written = [item.expr for item in body.projections] + [item.expr for item in body.orderings]
        written += [] if body.having is None else [body.having]
        grouped = any(
            isinstance(part, ast.Aggregate) for expr in written for part in ast.walk(expr)
        )
        orderings = self._order(body, grouped=grouped)
        limit = self._window(body.limit, "limit")
        offset = self._window(body.offset, "offset")
        projected = [expr for expr in self._projected if expr is not None]
        having = self._having(body, grouped=grouped)
        if grouped:
            projected, orderings = self._group(body, projected, orderings)
            if having is not None and body.having is not None:
                with suppress(RefusedError):
                    having = self._over_groups(having, body.having.at)
        elif body.distinct:
            self._require_returned(body, orderings)
        if self.context.problems:
            return None
        names = _unique_names(body.projections)
        collects = any(call.fn is ir.AggregateFn.COLLECT for call in self._aggregates)
        grouping = ir.Grouping(
            keys=tuple(self._keys),
            aggregates=tuple(self._aggregates),
            having=having,
            row_order=self._row_order() if collects else (),
        )
        return ir.ReadPlan(
            params=self.params,
            variables=self.context.variables,
            match=block,
            grouping=grouping if grouped else None,
            projections=tuple(
                ir.Projection(name=name, expr=expr)
                for name, expr in zip(names, projected, strict=True)
            ),
            columns=self._columns(body, names),
            distinct=body.distinct,
            orderings=tuple(orderings),
            tie_break=self._tie_break(grouped=grouped, distinct=body.distinct),
            limit=limit,
            offset=offset,
        )

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

    def _columns(self, body: ast.ReadBody, names: Sequence[str]) -> tuple[ir.ColumnInfo, ...]:
        found: list[ir.ColumnInfo] = []
        for name, written, expr in zip(names, body.projections, self._projected, strict=True):
            assert expr is not None, "a query without problems has no missing expressions"
            node = isinstance(expr, ir.IdRef) and isinstance(written.expr, ast.Var)
            kind = "object" if node else kind_word(expr.type)
            label = _label(written)
            found.append(ir.ColumnInfo(name=name, type=expr.type, kind=kind, label=label))
        return tuple(found)

    # --- return ---

    def _check(self, expr: ast.Expr) -> ir.Expr:
        return ExprChecker(
            context=self.context, scope=self.scope, aliases=self._alias, aggregates=True
        ).check(expr)

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
        hint = self.context.problems.suggest(word.name, self._aliases)
        if hint is None:
            hint = f"name a column first: `$x.p as {word.name}`"
        raise self.context.problems.refused(word.at, f"unknown alias `{word.name}`", hint=hint)

    def _having(self, body: ast.ReadBody, *, grouped: bool) -> ir.Expr | None:
        """The condition on groups, as yet over rows."""
        if body.having is None:
            return None
        if not grouped:
            message = "having filters groups, and nothing is grouped here"
            hint = "a condition on rows is a clause of `match`; an aggregate makes groups"
            self.context.problems.report(body.having.at, message, code="T9", hint=hint)
            return None
        with suppress(RefusedError):
            return ExprChecker(
                context=self.context, scope=self.scope, aliases=self._alias, aggregates=True
            ).condition(body.having)
        return None

    # --- order ---

    def _order(self, body: ast.ReadBody, *, grouped: bool) -> list[ir.Ordering]:
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
        self, ordering: ast.Ordering, expr: ir.Expr, body: ast.ReadBody, *, grouped: bool
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

    def _require_returned(self, body: ast.ReadBody, orderings: Sequence[ir.Ordering]) -> None:
        """Under `distinct` a row stands for many matches, which share only what is returned."""
        for ordering, written in zip(orderings, body.orderings, strict=False):
            if ordering.column is None:
                message = "with `distinct`, order by what is returned"
                hint = "add the sort key to `return`, or leave out `distinct`"
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
        self, body: ast.ReadBody, projected: list[ir.Expr], orderings: list[ir.Ordering]
    ) -> tuple[list[ir.Expr], list[ir.Ordering]]:
        """Rewrite projections and orderings over group keys and aggregates."""
        written = [
            (item, expr)
            for item, expr in zip(body.projections, self._projected, strict=True)
            if expr is not None
        ]
        for item, expr in written:
            if not any(isinstance(part, ir.AggregateCall) for part in ir.walk(expr)):
                self._add_key(item, expr)
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
        if grouped:
            return tuple(
                ir.KeyRef(index=index, type=key.type) for index, key in enumerate(self._keys)
            )
        return self._row_order()

    def _row_order(self) -> tuple[ir.IdRef, ...]:
        """The order that rows have by themselves: by the ids of their variables."""
        return tuple(
            bound.id for bound in sorted(self.scope.values(), key=lambda bound: bound.name)
        )


# --- column names ---


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
