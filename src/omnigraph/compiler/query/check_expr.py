"""Expressions of reads: names resolved, types checked, turned into the typed IR.

Every function returns None after it has reported a problem, so that the caller goes on with the
rest of the query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal as Choice
from typing import assert_never

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.check_search import SearchChecker
from omnigraph.compiler.query.operators import OperatorChecker, negation
from omnigraph.compiler.query.scope import WILDCARD, Bound, Context, Scope
from omnigraph.compiler.query.types import (
    LiteralError,
    core,
    is_number,
    is_text,
    literal,
    nullable,
)
from omnigraph.model.schema import INTEGERS, EdgeType, PropertyType, Scalar

_SUM_INTEGER = PropertyType(scalar=Scalar.I64, nullable=True)
_SUM_FLOAT = PropertyType(scalar=Scalar.F64, nullable=True)
_COUNT = PropertyType(scalar=Scalar.I64)

Aliases = Callable[[ast.Word], ir.Expr | None]


@dataclass(slots=True, kw_only=True)
class ExprChecker:
    """Checks the expressions of one block of one read query.

    `aliases` resolves a bare word; without it (inside `match`) a word is an error. `aggregates`
    says whether aggregate calls may stand here.
    """

    context: Context
    scope: Scope
    aliases: Aliases | None = None
    aggregates: bool = False

    @property
    def operators(self) -> OperatorChecker:
        return OperatorChecker(problems=self.context.problems)

    def check(self, expr: ast.Expr) -> ir.Expr | None:
        """The typed expression, or None when a problem was reported."""
        match expr:
            case ast.Lit() | ast.ListLit():
                return self.literal(expr)
            case ast.Var():
                return self.variable(expr)
            case ast.Access():
                return self.access(expr)
            case ast.NowCall():
                return ir.Now()
            case ast.Word():
                return self._word(expr)
            case ast.Call():
                return SearchChecker(context=self.context, scope=self.scope, check=self.check).call(
                    expr
                )
            case ast.Aggregate():
                return self._aggregate(expr)
            case ast.Binary():
                left, right = self.check(expr.left), self.check(expr.right)
                if left is None or right is None:
                    return None
                return self.operators.binary(expr, left, right)
            case ast.Logic():
                items = [self.condition(item) for item in expr.items]
                return self.operators.logic(expr, items)
            case ast.Negated():
                item = self.condition(expr.item)
                return None if item is None else negation(item)
            case ast.Minus():
                item = self.check(expr.item)
                return None if item is None else self.operators.minus(expr, item)
            case ast.In():
                needle, options = self.check(expr.item), self.check(expr.options)
                if needle is None or options is None:
                    return None
                return self.operators.membership(expr, needle, options)
            case ast.NullTest():
                item = self.check(expr.item)
                return None if item is None else ir.IsNull(item=item, negated=expr.negated)
            case _:
                assert_never(expr)

    def condition(self, expr: ast.Expr) -> ir.Expr | None:
        """An expression that must be true or false."""
        checked = self.check(expr)
        if checked is None:
            return None
        return self.operators.require_bool(expr, checked)

    def literal(self, lit: ast.Lit | ast.ListLit) -> ir.Literal | None:
        try:
            return literal(lit)
        except LiteralError as error:
            self.context.problems.report(lit.at, error.message, code=error.code, hint=error.hint)
            return None

    # --- names ---

    def variable(self, var: ast.Var) -> ir.Expr | None:
        """A bare `$x`: the id of a node, or a parameter."""
        problems = self.context.problems
        if var.name == WILDCARD:
            problems.report(var.at, "`$_` matches anything and cannot be referred to")
            return None
        bound = self.scope.get(var.name)
        if bound is not None:
            if bound.kind == "edge":
                message = (
                    f"edge binding `${var.name}` cannot be used bare; read one of its properties"
                )
                hint = f"`${var.name}.id`, `${var.name}.src` and `${var.name}.dst` are properties"
                problems.report(var.at, message, code="T23", hint=hint)
                return None
            return ir.IdRef(var=bound.plan_name, type=nullable(ir.ID) if bound.nullable else ir.ID)
        declared = self.context.params.get(var.name)
        if declared is None:
            unbound = f"variable `${var.name}` is not bound"
            problems.report(var.at, unbound, hint=self._unbound_hint(var.name))
            return None
        if declared.scalar is Scalar.BLOB:
            problems.report(var.at, _blob(f"parameter `${var.name}`"), code="T24")
            return None
        return ir.Param(name=var.name, type=declared)

    def _unbound_hint(self, name: str) -> str | None:
        if name in self.context.buried:
            return f"`${name}` is bound inside `not {{ }}` only and cannot leave it"
        known = [known for known in (*self.scope, *self.context.params) if known != WILDCARD]
        hint = self.context.problems.suggest(name, known)
        return hint.replace("`", "`$", 1) if hint and hint.startswith("did") else hint

    def access(self, access: ast.Access) -> ir.Expr | None:
        """`$x.prop`: a declared property, `id`, or `src`/`dst` of an edge."""
        problems = self.context.problems
        bound = self.scope.get(access.var)
        if bound is None:
            message = f"variable `${access.var}` is not bound"
            hint: str | None = f"`${access.var}` is a parameter and has no properties"
            if access.var not in self.context.params:
                hint = self._unbound_hint(access.var)
            problems.report(access.at, message, code="T6", hint=hint)
            return None
        return self.property_of(bound, access)

    def property_of(self, bound: Bound, access: ast.Access) -> ir.Expr | None:
        entity = self.context.entity(bound)
        declared = entity.by_name.get(access.prop)
        if declared is None:
            implicit = _implicit(bound, access.prop)
            if implicit is not None:
                return implicit
            choices = [*entity.by_name, "id"]
            if isinstance(entity, EdgeType):
                choices += ["src", "dst"]
            message = f"{bound.kind} type `{bound.type_name}` has no property `{access.prop}`"
            hint = self.context.problems.suggest(access.prop, choices)
            self.context.problems.report(access.at, message, code="T6", hint=hint)
            return None
        if declared.type.scalar is Scalar.BLOB:
            text = _blob(f"property `${access.var}.{access.prop}`")
            self.context.problems.report(access.at, text, code="T24")
            return None
        kind = nullable(declared.type) if bound.nullable else declared.type
        return ir.PropertyRef(var=bound.plan_name, prop=access.prop, type=kind)

    def _word(self, word: ast.Word) -> ir.Expr | None:
        if self.aliases is not None:
            return self.aliases(word)
        message = f"`{word.name}` is neither a value nor a variable"
        hint = f'text takes quotes: "{word.name}"; a variable takes a dollar sign: `${word.name}`'
        self.context.problems.report(word.at, message, hint=hint)
        return None

    # --- aggregates ---

    def _aggregate(self, call: ast.Aggregate) -> ir.Expr | None:
        problems = self.context.problems
        if not self.aggregates:
            message = (
                f"`{call.name}` cannot be used here; aggregates belong in `return` and `order`"
            )
            problems.report(call.at, message, code="T8")
            return None
        if call.arg is None:
            return ir.AggregateCall(fn=ir.AggregateFn.COUNT, arg=None, type=_COUNT)
        inner = ExprChecker(context=self.context, scope=self.scope)
        arg = inner.check(call.arg)
        if arg is None:
            return None
        if call.distinct and call.name != "count":
            problems.report(call.at, f"{call.name} takes no `distinct`; only count does", code="T8")
            return None
        kind = _aggregate_type(call.name, arg.type)
        if kind is None:
            wanted = "numeric" if call.name in {"sum", "avg"} else "numeric or String"
            message = f"{call.name} requires {wanted} type, got {core(arg.type)}"
            problems.report(call.at, message, code="T8")
            return None
        fn = ir.AggregateFn(call.name)
        return ir.AggregateCall(fn=fn, arg=arg, distinct=call.distinct, type=kind)


def _implicit(bound: Bound, prop: str) -> ir.Expr | None:
    """`id` of every entity, `src` and `dst` of edges."""
    kind = nullable(ir.ID) if bound.nullable else ir.ID
    if prop == "id":
        return ir.IdRef(var=bound.plan_name, type=kind)
    if bound.kind == "edge" and prop in {"src", "dst"}:
        side: Choice["src", "dst"] = "src" if prop == "src" else "dst"
        return ir.EndpointRef(var=bound.plan_name, side=side, type=kind)
    return None


def _aggregate_type(name: str, arg: PropertyType) -> PropertyType | None:
    """The result type, or None when the aggregate does not take such an argument."""
    if name == "count":
        return _COUNT
    if is_number(arg):
        if name == "avg":
            return _SUM_FLOAT
        if name == "sum":
            return _SUM_INTEGER if arg.scalar in INTEGERS else _SUM_FLOAT
        return nullable(arg)
    return nullable(arg) if name in {"min", "max"} and is_text(arg) else None


def _blob(what: str) -> str:
    return f"Blob {what} is not available as a .gq read value; Blob values require a dedicated API"
