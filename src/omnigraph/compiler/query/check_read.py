"""A read query as a whole: match, return, order, limit and offset become one plan."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.check_expr import Context, ExprChecker, Scope
from omnigraph.compiler.query.check_match import MatchChecker
from omnigraph.compiler.query.types import I64, core, is_integer, kind_word, nullable
from omnigraph.model.schema import PropertyType, Scalar
from omnigraph.model.values import in_bounds

_RANKS = (ir.Nearest, ir.Bm25, ir.Rrf)


class ReadChecker(msgspec.Struct, kw_only=True):
    """Checks one read query. `plan()` is the only door."""

    context: Context
    params: tuple[ir.ParamDecl, ...]
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
        self._project(body.projections)
        grouped = _is_grouped(body)
        orderings = self._order(body, grouped=grouped)
        limit = self._window(body.limit, "limit")
        offset = self._window(body.offset, "offset")
        projected = [expr for expr in self._projected if expr is not None]
        if grouped:
            projected, orderings = self._group(body, projected, orderings)
        elif body.distinct:
            self._require_returned(body, orderings)
        if self.context.problems:
            return None
        names = _unique_names(body.projections)
        return ir.ReadPlan(
            params=self.params,
            variables=self._variables(),
            match=block,
            grouping=self._grouping() if grouped else None,
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

    def _columns(self, body: ast.ReadBody, names: Sequence[str]) -> tuple[ir.ColumnInfo, ...]:
        found: list[ir.ColumnInfo] = []
        for name, written, expr in zip(names, body.projections, self._projected, strict=True):
            assert expr is not None, "a query without problems has no missing expressions"
            entity = isinstance(expr, ir.IdRef) and isinstance(written.expr, ast.Var)
            found.append(_column_info(name, written, expr.type, entity=entity))
        return tuple(found)

    def _variables(self) -> dict[str, ir.Variable]:
        return {
            name: ir.Variable(
                name=name,
                kind=bound.kind,
                type_name=bound.type_name,
                nullable=bound.nullable,
                hidden=bound.hidden,
            )
            for name, bound in self.context.variables.items()
        }

    # --- return ---

    def _project(self, projections: Sequence[ast.Projection]) -> None:
        checker = ExprChecker(
            context=self.context, scope=self.scope, aliases=self._alias, aggregates=True
        )
        for index, projection in enumerate(projections):
            expr = checker.check(projection.expr)
            self._projected.append(expr)
            if expr is not None:
                self._columns_by_expr.setdefault(expr, index)
            if projection.alias is None:
                continue
            if projection.alias in self._aliases:
                message = f"column name `{projection.alias}` is given twice"
                self.context.problems.report(projection.at, message)
            self._aliases[projection.alias] = index

    def _alias(self, word: ast.Word) -> ir.Expr | None:
        """A column named earlier in `return`, seen from a later projection or from `order`."""
        index = self._aliases.get(word.name)
        if index is not None:
            return self._projected[index]
        message = f"unknown alias `{word.name}`"
        hint = self.context.problems.suggest(word.name, self._aliases)
        if hint is None:
            hint = f"name a column first: `$x.p as {word.name}`"
        self.context.problems.report(word.at, message, hint=hint)
        return None

    # --- order ---

    def _order(self, body: ast.ReadBody, *, grouped: bool) -> list[ir.Ordering]:
        checker = ExprChecker(
            context=self.context, scope=self.scope, aliases=self._alias, aggregates=True
        )
        found: list[ir.Ordering] = []
        for ordering in body.orderings:
            expr = checker.check(ordering.expr)
            if expr is None:
                continue
            if not self._may_order(ordering, expr, body, grouped=grouped):
                continue
            # A score orders like itself, whether it is written out or called by its alias.
            rank = isinstance(expr, _RANKS)
            descending = ordering.direction == "desc"
            if rank and not isinstance(expr, ir.Nearest):
                # A relevance is ordered best first unless the query says otherwise.
                descending = ordering.direction != "asc"
            column = self._columns_by_expr.get(expr)
            found.append(ir.Ordering(expr=expr, descending=descending, rank=rank, column=column))
        return found

    def _may_order(
        self,
        ordering: ast.Ordering,
        expr: ir.Expr,
        body: ast.ReadBody,
        *,
        grouped: bool,
    ) -> bool:
        report = self.context.problems.report
        called = isinstance(ordering.expr, ast.Call)
        if called and body.limit is None:
            hint = "add `limit 10` after the order block"
            if isinstance(expr, ir.Nearest):
                message = "nearest ordering requires a limit clause"
                report(ordering.at, message, code="T17", hint=hint)
                return False
            if isinstance(expr, ir.Rrf):
                report(ordering.at, "rrf ordering requires a limit clause", code="T21", hint=hint)
                return False
        if isinstance(expr, _RANKS) and grouped:
            hint = "return the rank in a query of its own"
            report(ordering.at, "search ranks cannot order grouped rows", code="T9", hint=hint)
            return False
        if isinstance(ordering.expr, ast.Word) and _has_nearest(body):
            message = f"ordering by alias `{ordering.expr.name}` cannot stand beside nearest"
            hint = "order by the expression itself, or by nearest alone"
            report(ordering.at, message, code="T18", hint=hint)
            return False
        if expr.type.is_list or expr.type.scalar is Scalar.VECTOR:
            report(ordering.at, f"{core(expr.type)} values have no order", code="T7")
            return False
        return True

    def _require_returned(self, body: ast.ReadBody, orderings: Sequence[ir.Ordering]) -> None:
        """Under `distinct` a row stands for many matches, which share only what is returned."""
        for ordering, written in zip(orderings, body.orderings, strict=False):
            if ordering.column is None:
                message = "with `distinct`, order by what is returned"
                hint = "add the sort key to `return`, or leave out `distinct`"
                self.context.problems.report(written.at, message, hint=hint)

    def _window(self, written: ast.Lit | ast.Var | None, word: str) -> ir.Literal | ir.Param | None:
        if written is None:
            return None
        if isinstance(written, ast.Lit):
            assert isinstance(written.value, int), "the grammar takes nothing else"
            if not in_bounds(written.value, Scalar.I64):
                message = f"{word} {written.value} is too large"
                self.context.problems.report(written.at, message)
                return None
            return ir.Literal(value=written.value, type=I64)
        declared = self.context.params.get(written.name)
        if declared is None:
            message = f"{word} `${written.name}` must be a declared query parameter"
            hint = self.context.problems.suggest(written.name, self.context.params)
            self.context.problems.report(written.at, message, hint=hint)
            return None
        if not is_integer(declared):
            message = f"{word} `${written.name}` must be an integer, got {core(declared)}"
            self.context.problems.report(written.at, message)
            return None
        return ir.Param(name=written.name, type=declared)

    # --- grouping ---

    def _group(
        self, body: ast.ReadBody, projected: list[ir.Expr], orderings: list[ir.Ordering]
    ) -> tuple[list[ir.Expr], list[ir.Ordering]]:
        """Rewrite projections and orderings over group keys and aggregates."""
        for written, expr in zip(body.projections, self._projected, strict=True):
            if expr is not None and not _has_aggregate(expr):
                self._add_key(written, expr)
        shown = [
            self._over_groups(expr, written.at)
            for written, expr in zip(body.projections, self._projected, strict=True)
            if expr is not None
        ]
        ordered = []
        places = [written.at for written in body.orderings]
        for index, ordering in enumerate(orderings):
            at = places[min(index, len(places) - 1)]
            expr = self._over_groups(ordering.expr, at)
            if expr is not None:
                ordered.append(replace(ordering, expr=expr))
        sound = [expr for expr in shown if expr is not None]
        return (sound if len(sound) == len(projected) else projected), ordered

    def _add_key(self, written: ast.Projection, expr: ir.Expr) -> None:
        if not isinstance(written.expr, ast.Access | ast.Var | ast.Word):
            message = (
                "in a query with aggregates every other projection must be a property access or "
                "a variable"
            )
            hint = "aggregate it, or project it in a query of its own"
            self.context.problems.report(written.at, message, code="T9", hint=hint)
            return
        self._keys.setdefault(expr, len(self._keys))

    def _over_groups(self, expr: ir.Expr, at: int) -> ir.Expr | None:
        if isinstance(expr, ir.AggregateCall):
            place = self._aggregates.setdefault(expr, len(self._aggregates))
            return ir.AggregateRef(index=place, type=expr.type)
        if expr in self._keys:
            return ir.KeyRef(index=self._keys[expr], type=expr.type)
        if isinstance(expr, ir.Literal | ir.Param | ir.Now):
            return expr
        if isinstance(expr, ir.PropertyRef | ir.EndpointRef) and self._is_key(expr.var):
            # The entity is a key, so each of its properties has one value per group.
            place = self._keys.setdefault(expr, len(self._keys))
            return ir.KeyRef(index=place, type=expr.type)
        if not ir.children(expr):
            message = "not constant in a group; group by it or aggregate it"
            self.context.problems.report(at, message, code="T9")
            return None
        return self._rebuilt(expr, at)

    def _is_key(self, var: str) -> bool:
        return any(isinstance(key, ir.IdRef) and key.var == var for key in self._keys)

    def _rebuilt(self, expr: ir.Expr, at: int) -> ir.Expr | None:
        """The same operation over groups; only operators of plain values can be rebuilt."""
        parts: dict[str, ir.Expr] = {}
        match expr:
            case ir.Compare() | ir.Arithmetic():
                parts = {"left": expr.left, "right": expr.right}
            case ir.Not() | ir.IsNull():
                parts = {"item": expr.item}
            case ir.InList():
                parts = {"needle": expr.needle}
            case ir.TextContains():
                parts = {"text": expr.text, "part": expr.part}
            case ir.StartsWith():
                parts = {"text": expr.text, "prefix": expr.prefix}
            case ir.And() | ir.Or():
                items = self._all_over_groups(expr.items, at)
                return None if items is None else replace(expr, items=items)
            case ir.FunctionCall():
                args = self._all_over_groups(expr.args, at)
                return None if args is None else replace(expr, args=args)
            case _:
                message = "search and list functions cannot be used on grouped rows"
                self.context.problems.report(at, message, code="T9")
                return None
        rebuilt = {name: self._over_groups(part, at) for name, part in parts.items()}
        if any(part is None for part in rebuilt.values()):
            return None
        return replace(expr, **rebuilt)

    def _all_over_groups(self, exprs: Sequence[ir.Expr], at: int) -> tuple[ir.Expr, ...] | None:
        items = [self._over_groups(expr, at) for expr in exprs]
        sound = tuple(item for item in items if item is not None)
        return sound if len(sound) == len(items) else None

    def _grouping(self) -> ir.Grouping:
        return ir.Grouping(keys=tuple(self._keys), aggregates=tuple(self._aggregates))

    def _tie_break(self, *, grouped: bool, distinct: bool) -> tuple[ir.Expr, ...]:
        if distinct:
            return ()
        if grouped:
            return tuple(
                ir.KeyRef(index=index, type=key.type) for index, key in enumerate(self._keys)
            )
        visible = sorted((self.scope[name] for name in self.scope), key=lambda b: b.plan_name)
        return tuple(
            ir.IdRef(var=bound.plan_name, type=nullable(ir.ID) if bound.nullable else ir.ID)
            for bound in visible
        )


def _is_grouped(body: ast.ReadBody) -> bool:
    written = [item.expr for item in body.projections] + [item.expr for item in body.orderings]
    return any(isinstance(part, ast.Aggregate) for expr in written for part in ast.walk(expr))


def _has_aggregate(expr: ir.Expr) -> bool:
    return any(isinstance(part, ir.AggregateCall) for part in ir.walk(expr))


def _has_nearest(body: ast.ReadBody) -> bool:
    return any(
        isinstance(item.expr, ast.Call) and item.expr.name == "nearest" for item in body.orderings
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
        case ast.Call():
            return expr.name
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


def _column_info(
    name: str, projection: ast.Projection, kind: PropertyType, *, entity: bool
) -> ir.ColumnInfo:
    """The column of a projection; `entity` says that it is a bare node variable."""
    shown = "object" if entity else kind_word(kind)
    return ir.ColumnInfo(name=name, type=kind, kind=shown, label=_label(projection))
