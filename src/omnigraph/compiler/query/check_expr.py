"""The expressions of a query: names resolved, types checked, turned into the typed IR.

A check that reports a problem raises `RefusedError`, and the caller goes on with the rest of the
query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Literal as Choice
from typing import assert_never

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.check_path import PathChecker
from omnigraph.compiler.query.check_search import SearchChecker
from omnigraph.compiler.query.functions import FUNCTIONS, SHOWING, SHOWN_MARK, is_calendar
from omnigraph.compiler.query.operators import (
    Checked,
    Duration,
    OperatorChecker,
    negation,
    truth,
)
from omnigraph.compiler.query.scope import WILDCARD, Context, Scope, property_ref
from omnigraph.compiler.query.types import (
    I64,
    NULL,
    core,
    is_number,
    is_text,
    literal,
    nullable,
)
from omnigraph.compiler.text import MisfitError, each_checked
from omnigraph.model.schema import (
    INTEGERS,
    PLAIN_INDEX,
    EdgeType,
    NodeType,
    PropertyType,
    Scalar,
)
from omnigraph.model.values import INTEGER_BOUNDS

SIDES: Mapping[str, Choice["src", "dst"]] = {"src": "src", "dst": "dst"}
_SUM_INTEGER = PropertyType(scalar=Scalar.I64, nullable=True)
_SUM_FLOAT = PropertyType(scalar=Scalar.F64, nullable=True)
_FLOATS_OF = frozenset({"avg", "median", "stddev", "percentile"})
_TAKEN = {
    "min": "numeric, String, Date or DateTime",
    "max": "numeric, String, Date or DateTime",
    "collect": "a single value's",
}
_ZERO = ir.Literal(value=0, type=I64)
_NOTHING = ir.Literal(value=None, type=NULL)
_NO_END = ir.Literal(value=INTEGER_BOUNDS[Scalar.I64][1], type=I64)


def _text(value: str) -> ir.Literal:
    return ir.Literal(value=value, type=ir.ID)


Aliases = Callable[[ast.Word], ir.Expr]


# --- expressions -------------------------------------------------------------------------------


class ExprChecker(msgspec.Struct, kw_only=True):
    """Checks the expressions of one block of one read query.

    `aliases` resolves a bare word; without it (inside `match`) a word is an error. `aggregates`
    says whether aggregate calls may stand here, and `inside` what bare words in them mean that are
    no columns.
    """

    context: Context
    scope: Scope
    aliases: Aliases | None = None
    aggregates: bool = False
    inside: Callable[[ast.Word], ir.Expr | None] | None = None

    @property
    def operators(self) -> OperatorChecker:
        return OperatorChecker(problems=self.context.problems)

    @property
    def paths(self) -> PathChecker:
        return PathChecker(context=self.context, scope=self.scope)

    def check(self, expr: ast.Expr) -> ir.Expr:
        """The typed expression."""
        found = self._checked(expr)
        if not isinstance(found, Duration):
            return found
        hint = "write `$p.day + days(7)` or `now() - hours(2)`"
        message = "a duration is no value by itself; add it to a Date or DateTime"
        raise self.context.problems.refused(expr.at, message, code="T7", hint=hint)

    def _checked(self, expr: ast.Expr) -> Checked:
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
                return self.word(expr)
            case ast.Call():
                return self._call(expr)
            case ast.Aggregate():
                return self._aggregate(expr)
            case ast.Block():
                return self._block(expr)
            case ast.EdgeName() | ast.Star():
                raise AssertionError("an edge is named in `degree` only, a star in `return`")
            case _:
                return self._operation(expr)

    def _operation(
        self,
        expr: ast.Binary
        | ast.Logic
        | ast.Unary
        | ast.In
        | ast.Between
        | ast.NullTest
        | ast.Index
        | ast.Case,
    ) -> Checked:
        match expr:
            case ast.Binary() if expr.op in {"+", "-"}:
                one, other = each_checked(self._checked, (expr.left, expr.right))
                return self.operators.added(expr.op, expr.at, one, other)
            case ast.Binary():
                left, right = each_checked(self.check, (expr.left, expr.right))
                return self.operators.binary(expr, left, right)
            case ast.Logic():
                items = each_checked(self.condition, expr.items)
                made = ir.And if expr.op == "and" else ir.Or
                return made(items=items, type=truth(*items))
            case ast.Unary() if expr.op == "not":
                return negation(self.condition(expr.item))
            case ast.Unary():
                return self.operators.arithmetic("-", expr.at, _ZERO, self.check(expr.item))
            case ast.In():
                needle, options = each_checked(self.check, (expr.item, expr.options))
                return self.operators.membership(expr, needle, options)
            case ast.Between():
                item, low, high = each_checked(self.check, (expr.item, expr.low, expr.high))
                return self.operators.between(expr, item, low, high)
            case ast.NullTest():
                if self.paths.is_path(expr.item):  # there is one if it has a length
                    length = self.paths.part("length", expr.item)
                    return ir.IsNull(item=length, negated=expr.negated)
                return ir.IsNull(item=self.check(expr.item), negated=expr.negated)
            case ast.Index():
                return self._index(expr)
            case ast.Case():
                return self._case(expr)
            case _:
                assert_never(expr)

    def _call(self, expr: ast.Call) -> Checked:
        kind = FUNCTIONS[expr.name].kind
        if kind == "search":
            searches = SearchChecker(context=self.context, scope=self.scope, check=self.check)
            return searches.call(expr)
        if kind == "graph":
            return self._of_graph(expr)
        if expr.name == "length" and len(expr.args) == 1 and self.paths.is_path(expr.args[0]):
            return self.paths.part("length", expr.args[0])
        made = self.operators.call(expr, each_checked(self.check, expr.args))
        return self._shown(made) if isinstance(made, ir.FunctionCall) else made

    def _shown(self, call: ir.FunctionCall) -> ir.FunctionCall:
        """`highlight` and `snippet` with all they can be told, and how the text of the property is
        cut into words."""
        first_mark = SHOWING.get(call.name)
        if first_mark is None:
            return call
        marks = call.args[first_mark:] or (_text(SHOWN_MARK),)
        text, indexing = call.args[0], PLAIN_INDEX
        if isinstance(text, ir.PropertyRef):
            props = (one.by_name.get(text.prop) for one in self._types_of(text.var))
            indexing = next((one.indexing for one in props if one is not None), PLAIN_INDEX)
        how = (_text(indexing.language or ""), _text(indexing.tokenizer))
        args = (*call.args[:first_mark], marks[0], marks[-1], *how)
        return replace(call, args=args)

    def _types_of(self, var: str) -> Iterator[NodeType | EdgeType]:
        bound, catalog = self.scope.get(var), self.context.catalog
        if bound is not None:
            for name in bound.types:
                yield catalog.nodes[name] if bound.kind == "node" else catalog.edges[name]

    def _index(self, expr: ast.Index) -> ir.Expr:
        places: list[ast.Expr] = [place for place in (expr.low, expr.high) if place is not None]
        items, *found = each_checked(self.check, (expr.items, *places))
        if expr.sliced:
            low = _ZERO if expr.low is None else found[0]
            high = _NO_END if expr.high is None else found[-1]
            found = [low, high]
        return self.operators.element(expr, (items, *found))

    def _case(self, expr: ast.Case) -> ir.Expr:
        subject = None if expr.subject is None else self.check(expr.subject)

        def condition(when: ast.Expr) -> ir.Expr:
            if subject is None:
                return self.condition(when)
            return self.operators.equality(when.at, subject, self.check(when))

        conditions = each_checked(condition, [when for when, _ in expr.whens])
        values = each_checked(self.check, [value for _, value in expr.whens])
        otherwise = _NOTHING if expr.otherwise is None else self.check(expr.otherwise)
        return self.operators.case(expr, [*zip(conditions, values, strict=True)], otherwise)

    # --- the graph ---

    def _block(self, expr: ast.Block) -> ir.Expr:
        """`exists { … }` or `count { … }`."""
        block, outer = self.context.inner(self.context, self.scope, expr)
        assert expr.word in {"exists", "count"}, "the grammar takes nothing else"
        if expr.word == "exists":
            return ir.BlockValue(word="exists", block=block, outer=outer, type=ir.BOOL)
        return ir.BlockValue(word="count", block=block, outer=outer, type=I64)

    def _of_graph(self, call: ast.Call) -> ir.Expr:
        """`id($v)`, `type($v)`, `degree($v, edge)`, and what is asked of paths."""
        if call.name in {"nodes", "edges"}:
            return self.paths.part("nodes" if call.name == "nodes" else "edges", call.args[0])
        if call.name == "shortest":
            raise self.paths.refusal(call.at, "`shortest(...)`")
        var = call.args[0]
        assert isinstance(var, ast.Var), "the grammar takes nothing else"
        bound = self.scope.get(var.name)
        if bound is None:
            message = f"variable `${var.name}` is not bound"
            hint: str | None = f"{call.name} asks about a node or an edge of the match"
            if var.name not in self.context.params:
                hint = self._unbound_hint(var.name)
            raise self.context.problems.refused(var.at, message, code="T6", hint=hint)
        if call.name == "id":
            return bound.id
        if call.name == "degree":
            return self._degree(call, bound)
        if bound.is_open:
            return ir.TypeRef(var=bound.name, type=bound.id.type)
        name = ir.Literal(value=bound.type_name, type=ir.ID)
        if not bound.nullable:
            return name
        there = ir.IsNull(item=bound.id, negated=True)
        return ir.Case(whens=((there, name),), otherwise=_NOTHING, type=NULL)

    def _degree(self, call: ast.Call, bound: ir.Variable) -> ir.Expr:
        written = call.args[1]
        assert isinstance(written, ast.EdgeName), "the grammar takes nothing else"
        refused = partial(self.context.problems.refused, written.at)
        if bound.kind == "edge":
            raise refused("an edge has no edges; degree counts those of a node", code="T23")
        edge = self.context.catalog.edge_named(written.name)
        if edge is None:
            names = [name[0].lower() + name[1:] for name in self.context.catalog.edges]
            hint = self.context.problems.suggest(written.name, names)
            raise refused(f"unknown edge `{written.name}`", code="T4", hint=hint)
        ends = {"out": edge.from_type, "in": edge.to_type}
        sides = [side for side, end in ends.items() if end in bound.types]
        if not sides or (sides == ["in"] and not written.undirected):
            message = f"`{edge.name}` goes from {edge.from_type} to {edge.to_type}, not from "
            hint = f"`<{written.name}>` counts in both directions" if sides else None
            raise refused(message + bound.type_name, code="T5", hint=hint)
        direction: Choice["out", "in", "both"] = "out"
        if written.undirected:
            direction = "both" if len(sides) == 2 else "out" if sides == ["out"] else "in"
        if len(written.names) > 1:
            raise refused("degree counts the edges of one type", code="T4")
        kind = nullable(I64) if bound.nullable else I64
        return ir.Degree(var=bound.name, edge_type=edge.name, direction=direction, type=kind)

    def condition(self, expr: ast.Expr) -> ir.Expr:
        """An expression that must be true or false."""
        checked = self.check(expr)
        kind = checked.type
        if kind.scalar is Scalar.BOOL and not kind.is_list:
            return checked
        hint = "compare it with = != < <= > >=, contains, starts_with, in or is null"
        message = f"a condition must be true or false, got {core(kind)}"
        raise self.context.problems.refused(expr.at, message, code="T7", hint=hint)

    def literal(self, lit: ast.Lit | ast.ListLit) -> ir.Literal:
        try:
            return literal(lit)
        except MisfitError as error:
            raise error.at(lit.at, self.context.problems) from error

    # --- names ---

    def variable(self, var: ast.Var) -> ir.Expr:
        """A bare `$x`: the id of a node, or a parameter."""
        problems = self.context.problems
        if var.name == WILDCARD:
            raise problems.refused(var.at, "`$_` matches anything and cannot be referred to")
        if var.name in self.scope.paths:
            raise self.paths.refusal(var.at, f"`${var.name}`")
        bound = self.scope.get(var.name)
        if bound is not None:
            if bound.kind == "edge":
                name = f"`${var.name}`"
                message = f"edge binding {name} cannot be used bare; read one of its properties"
                hint = f"`${var.name}.id`, `${var.name}.src` and `${var.name}.dst` are properties"
                raise problems.refused(var.at, message, code="T23", hint=hint)
            return bound.id
        unwound = self.scope.unwound.get(var.name)
        if unwound is not None and unwound.element is not None:
            return unwound.element
        record = self._fields(var.name)
        if record:
            message = f"`${var.name}` is a record; read one of its fields"
            hint = f"`${var.name}.{next(iter(record))}`"
            raise problems.refused(var.at, message, code="T7", hint=hint)
        declared = self.context.params.get(var.name)
        if declared is None:
            message = f"variable `${var.name}` is not bound"
            raise problems.refused(var.at, message, hint=self._unbound_hint(var.name))
        if declared.scalar is Scalar.BLOB:
            raise problems.refused(var.at, _blob(f"parameter `${var.name}`"), code="T24")
        return ir.Param(name=var.name, type=declared)

    def _fields(self, name: str) -> Mapping[str, ir.Expr]:
        """The fields of an unwound record, or of a parameter that is one."""
        unwound, record = self.scope.unwound.get(name), self.context.records.get(name)
        if unwound is not None:
            return unwound.fields
        if record is None or name in self.scope:
            return {}
        return {
            field.name: ir.Param(
                name=f"{name}.{field.name}",
                type=nullable(field.type) if record.nullable else field.type,
            )
            for field in record.fields
        }

    def _field(self, access: ast.Access) -> ir.Expr | None:
        """`$row.name` of a record; None if it is none."""
        fields, problems = self._fields(access.var), self.context.problems
        if not fields:
            return None
        record = self.context.records.get(access.var)
        if access.var not in self.scope.unwound and record is not None and record.is_list:
            message = f"`${access.var}` is a list of records"
            hint = f"`unwind ${access.var} as $row` gives each of them"
            raise problems.refused(access.at, message, code="T6", hint=hint)
        found = fields.get(access.prop)
        if found is None:
            message = f"the record `${access.var}` has no field `{access.prop}`"
            near = problems.suggest(access.prop, list(fields))
            raise problems.refused(access.at, message, code="T6", hint=near)
        return found

    def _unbound_hint(self, name: str) -> str | None:
        if name in self.context.buried:
            return f"`${name}` is bound inside `not {{ }}` only and cannot leave it"
        if name in self.context.gone:
            return f"`with` left it out; name it there too: `with {{ ${name}, ... }}`"
        values = (*self.scope.unwound, *self.context.params, *self.context.records)
        known = [known for known in (*self.scope, *values) if known != WILDCARD]
        hint = self.context.problems.suggest(name, known)
        return hint.replace("`", "`$", 1) if hint and hint.startswith("did") else hint

    def access(self, access: ast.Access) -> ir.Expr:
        """`$x.prop`: a declared property, `id`, or `src`/`dst` of an edge."""
        problems = self.context.problems
        if access.var in self.scope.paths:
            raise self.paths.refusal(access.at, f"`${access.var}`")
        bound = self.scope.get(access.var)
        if bound is None:
            field = self._field(access)
            if field is not None:
                return field
            what = "an element of a list" if access.var in self.scope.unwound else "a parameter"
            hint: str | None = f"`${access.var}` is {what} and has no properties"
            if access.var not in {*self.context.params, *self.scope.unwound}:
                hint = self._unbound_hint(access.var)
            raise problems.refused(
                access.at, f"variable `${access.var}` is not bound", code="T6", hint=hint
            )
        properties = self.context.properties(bound)
        declared = properties.get(access.prop)
        if declared is None:
            clash = self.context.clash(bound, access.prop)
            if clash is not None:
                message = f"`${access.var}.{access.prop}` is not of one type: {clash}"
                hint = f"bind `${access.var}` to one type, or read it under another name"
                raise problems.refused(access.at, message, code="T6", hint=hint)
            if access.prop == "id":
                return bound.id
            if bound.kind == "edge" and access.prop in SIDES:
                side = SIDES[access.prop]
                return ir.EndpointRef(var=bound.name, side=side, type=bound.id.type)
            choices = [*properties, "id", *(SIDES if bound.kind == "edge" else ())]
            message = f"{bound.kind} type `{bound.type_name}` has no property `{access.prop}`"
            hint = problems.suggest(access.prop, choices)
            raise problems.refused(access.at, message, code="T6", hint=hint)
        if declared.type.scalar is Scalar.BLOB:
            raise problems.refused(
                access.at, _blob(f"property `${access.var}.{access.prop}`"), code="T24"
            )
        return property_ref(bound, declared)

    def word(self, word: ast.Word) -> ir.Expr:
        if self.aliases is not None:
            return self.aliases(word)
        found = self.scope.columns.get(word.name) or (self.inside and self.inside(word))
        if found is not None:
            return found
        problems = self.context.problems
        message = f"`{word.name}` is neither a value nor a variable"
        hint = f'text takes quotes: "{word.name}"; a variable takes a dollar sign: `${word.name}`'
        if self.scope.columns:
            message = f"`{word.name}` is no column of the stage before"
            hint = problems.suggest(word.name, self.scope.columns) or hint
        raise problems.refused(word.at, message, hint=hint)

    # --- aggregates ---

    def _aggregate(self, call: ast.Aggregate) -> ir.Expr:
        refused = partial(self.context.problems.refused, call.at, code="T8")
        if not self.aggregates:
            where = "aggregates belong in `return`, `with`, `having` and `order`"
            raise refused(f"`{call.name}` cannot be used here; {where}")
        if call.arg is None:
            return ir.AggregateCall(fn=ir.AggregateFn.COUNT, arg=None, type=I64)
        arg = ExprChecker(context=self.context, scope=self.scope, inside=self.inside).check(
            call.arg
        )
        if call.distinct and call.name not in {"count", "collect"}:
            raise refused(f"{call.name} takes no `distinct`; only count and collect do")
        kind = _aggregate_type(call.name, arg.type)
        if kind is None:
            wanted = _TAKEN.get(call.name, "numeric")
            raise refused(f"{call.name} requires {wanted} type, got {core(arg.type)}")
        if call.distinct and isinstance(call.arg, ast.Var) and isinstance(arg, ir.IdRef):
            arg = self._told_apart(arg)
        fn = ir.AggregateFn(call.name)
        share = None if call.share is None else self._share(call.share)
        return ir.AggregateCall(fn=fn, arg=arg, distinct=call.distinct, share=share, type=kind)

    def _told_apart(self, node: ir.IdRef) -> ir.Expr:
        """What is different for different nodes, also where two types share an id."""
        bound = self.context.variables[node.var]
        if not bound.is_open:
            return node
        kind = ir.TypeRef(var=bound.name, type=bound.id.type)
        parts = (kind, ir.Literal(value="\n", type=ir.ID), node)
        return ir.FunctionCall(name="concat", args=parts, type=bound.id.type)

    def _share(self, written: ast.Expr) -> ir.Literal | ir.Param:
        refused = partial(self.context.problems.refused, written.at, code="T8")
        share = self.check(written)
        if not isinstance(share, ir.Literal | ir.Param) or not is_number(share.type):
            raise refused("the share of a percentile is a number or a parameter", hint="0.95")
        if isinstance(share, ir.Literal) and not (
            isinstance(share.value, int | float) and 0 <= share.value <= 1
        ):
            raise refused(f"the share of a percentile goes from 0 to 1, got {share.value}")
        return share


def _aggregate_type(name: str, arg: PropertyType) -> PropertyType | None:
    """The result type, or None when the aggregate does not take such an argument."""
    if name == "count":
        return I64
    if name == "collect":
        plain = not arg.is_list and arg.scalar is not Scalar.VECTOR
        return replace(arg, is_list=True, nullable=False) if plain else None
    if is_number(arg):
        if name in _FLOATS_OF:
            return _SUM_FLOAT
        if name == "sum":
            return _SUM_INTEGER if arg.scalar in INTEGERS else _SUM_FLOAT
        return nullable(arg)
    ordered = is_text(arg) or is_calendar(arg)
    return nullable(arg) if name in {"min", "max"} and ordered else None


def _blob(what: str) -> str:
    return f"Blob {what} is not available as a .gq read value; Blob values require a dedicated API"
