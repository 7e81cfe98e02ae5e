"""What names mean at a place of a query, and its expressions: names resolved, types checked, turned
into the typed IR.

A check that reports a problem raises `RefusedError`, and the caller goes on with the rest of the
query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Literal as Choice
from typing import assert_never

import msgspec

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.functions import FUNCTIONS
from omnigraph.compiler.query.operators import (
    Checked,
    Duration,
    OperatorChecker,
    negation,
    truth,
)
from omnigraph.compiler.query.types import (
    I64,
    NULL,
    core,
    is_integer,
    is_null,
    is_number,
    is_text,
    literal,
    nullable,
    vector_of,
)
from omnigraph.compiler.text import MisfitError, Problems, each_checked
from omnigraph.model.schema import (
    INTEGERS,
    Catalog,
    EdgeType,
    EntityKind,
    NodeType,
    Property,
    PropertyType,
    Scalar,
)
from omnigraph.model.values import INTEGER_BOUNDS

WILDCARD = "_"
SIDES: Mapping[str, Choice["src", "dst"]] = {"src": "src", "dst": "dst"}
_SUM_INTEGER = PropertyType(scalar=Scalar.I64, nullable=True)
_SUM_FLOAT = PropertyType(scalar=Scalar.F64, nullable=True)
_ZERO = ir.Literal(value=0, type=I64)
_NOTHING = ir.Literal(value=None, type=NULL)
_NO_END = ir.Literal(value=INTEGER_BOUNDS[Scalar.I64][1], type=I64)
_RRF_K_DEFAULT = 60
_TEXT_CODES = {"search": "T19", "fuzzy": "T19", "match_text": "T20", "bm25": "T20"}
_KINDS = {
    "search": ir.TextMatchKind.SEARCH,
    "fuzzy": ir.TextMatchKind.FUZZY,
    "match_text": ir.TextMatchKind.PHRASE,
}

Aliases = Callable[[ast.Word], ir.Expr]


class Scope(dict[str, ir.Variable]):
    """Variables by written name. An inner scope sees the outer ones and keeps its own to itself."""

    def __init__(self, outer: Mapping[str, ir.Variable] = MappingProxyType({})) -> None:
        super().__init__(outer)
        self.own: list[str] = []

    def add(self, written: str, bound: ir.Variable) -> None:
        self[written] = bound
        self.own.append(written)

    def plan_names(self) -> frozenset[str]:
        return frozenset(bound.name for bound in self.values())


class Context(msgspec.Struct, kw_only=True):
    """What is fixed while one query is checked, and what is collected on the way."""

    catalog: Catalog
    params: Mapping[str, PropertyType]
    problems: Problems
    # A block inside an expression, with the scope around it: the block, and what it uses of that.
    inner: Callable[[Context, Scope, ast.Block], tuple[ir.MatchBlock, frozenset[str]]]
    variables: dict[str, ir.Variable] = msgspec.field(default_factory=dict)
    buried: set[str] = msgspec.field(default_factory=set)  # written names bound only inside `not`

    def bind(self, scope: Scope, written: str, kind: EntityKind, type_name: str) -> ir.Variable:
        """A new variable. Its plan name is one that no other has; wildcards always get a hidden
        one, and cannot be referred to."""
        hidden, number = written == WILDCARD, 1
        name = f"{written}#{number}" if hidden else written
        while name in self.variables:
            number += 1
            name = f"{written}#{number}"
        bound = ir.Variable(name=name, kind=kind, type_name=type_name, hidden=hidden)
        self.variables[name] = bound
        if not hidden:
            scope.add(written, bound)
        return bound

    def entity(self, bound: ir.Variable) -> NodeType | EdgeType:
        """The type behind a variable."""
        types = self.catalog.nodes if bound.kind == "node" else self.catalog.edges
        return types[bound.type_name]


# --- expressions -------------------------------------------------------------------------------


class ExprChecker(msgspec.Struct, kw_only=True):
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
            case ast.EdgeName():
                raise AssertionError("an edge is named in `degree` only")
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
            searches = _SearchChecker(context=self.context, scope=self.scope, check=self.check)
            return searches.call(expr)
        if kind == "graph":
            return self._of_graph(expr)
        return self.operators.call(expr, each_checked(self.check, expr.args))

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
        """`id($v)`, `type($v)` and `degree($v, edge)`."""
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
        sides = [side for side, end in ends.items() if end == bound.type_name]
        if not sides or (sides == ["in"] and not written.undirected):
            message = f"`{edge.name}` goes from {edge.from_type} to {edge.to_type}, not from "
            hint = f"`<{written.name}>` counts in both directions" if sides else None
            raise refused(message + bound.type_name, code="T5", hint=hint)
        direction: Choice["out", "in", "both"] = "out"
        if written.undirected:
            direction = "both" if len(sides) == 2 else "out" if sides == ["out"] else "in"
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
        bound = self.scope.get(var.name)
        if bound is not None:
            if bound.kind == "edge":
                name = f"`${var.name}`"
                message = f"edge binding {name} cannot be used bare; read one of its properties"
                hint = f"`${var.name}.id`, `${var.name}.src` and `${var.name}.dst` are properties"
                raise problems.refused(var.at, message, code="T23", hint=hint)
            return bound.id
        declared = self.context.params.get(var.name)
        if declared is None:
            message = f"variable `${var.name}` is not bound"
            raise problems.refused(var.at, message, hint=self._unbound_hint(var.name))
        if declared.scalar is Scalar.BLOB:
            raise problems.refused(var.at, _blob(f"parameter `${var.name}`"), code="T24")
        return ir.Param(name=var.name, type=declared)

    def _unbound_hint(self, name: str) -> str | None:
        if name in self.context.buried:
            return f"`${name}` is bound inside `not {{ }}` only and cannot leave it"
        known = [known for known in (*self.scope, *self.context.params) if known != WILDCARD]
        hint = self.context.problems.suggest(name, known)
        return hint.replace("`", "`$", 1) if hint and hint.startswith("did") else hint

    def access(self, access: ast.Access) -> ir.Expr:
        """`$x.prop`: a declared property, `id`, or `src`/`dst` of an edge."""
        problems = self.context.problems
        bound = self.scope.get(access.var)
        if bound is None:
            hint: str | None = f"`${access.var}` is a parameter and has no properties"
            if access.var not in self.context.params:
                hint = self._unbound_hint(access.var)
            raise problems.refused(
                access.at, f"variable `${access.var}` is not bound", code="T6", hint=hint
            )
        entity = self.context.entity(bound)
        declared = entity.by_name.get(access.prop)
        if declared is None:
            if access.prop == "id":
                return bound.id
            if bound.kind == "edge" and access.prop in SIDES:
                side = SIDES[access.prop]
                return ir.EndpointRef(var=bound.name, side=side, type=bound.id.type)
            choices = [*entity.by_name, "id", *(SIDES if bound.kind == "edge" else ())]
            message = f"{bound.kind} type `{bound.type_name}` has no property `{access.prop}`"
            hint = problems.suggest(access.prop, choices)
            raise problems.refused(access.at, message, code="T6", hint=hint)
        if declared.type.scalar is Scalar.BLOB:
            raise problems.refused(
                access.at, _blob(f"property `${access.var}.{access.prop}`"), code="T24"
            )
        return _property(bound, declared)

    def word(self, word: ast.Word) -> ir.Expr:
        if self.aliases is not None:
            return self.aliases(word)
        message = f"`{word.name}` is neither a value nor a variable"
        hint = f'text takes quotes: "{word.name}"; a variable takes a dollar sign: `${word.name}`'
        raise self.context.problems.refused(word.at, message, hint=hint)

    # --- aggregates ---

    def _aggregate(self, call: ast.Aggregate) -> ir.Expr:
        refused = partial(self.context.problems.refused, call.at, code="T8")
        if not self.aggregates:
            where = "aggregates belong in `return` and `order`"
            raise refused(f"`{call.name}` cannot be used here; {where}")
        if call.arg is None:
            return ir.AggregateCall(fn=ir.AggregateFn.COUNT, arg=None, type=I64)
        arg = ExprChecker(context=self.context, scope=self.scope).check(call.arg)
        if call.distinct and call.name != "count":
            raise refused(f"{call.name} takes no `distinct`; only count does")
        kind = _aggregate_type(call.name, arg.type)
        if kind is None:
            wanted = "numeric" if call.name in {"sum", "avg"} else "numeric or String"
            raise refused(f"{call.name} requires {wanted} type, got {core(arg.type)}")
        fn = ir.AggregateFn(call.name)
        return ir.AggregateCall(fn=fn, arg=arg, distinct=call.distinct, type=kind)


def _property(bound: ir.Variable, prop: Property) -> ir.PropertyRef:
    kind = nullable(prop.type) if bound.nullable else prop.type
    return ir.PropertyRef(var=bound.name, prop=prop.name, type=kind)


def _aggregate_type(name: str, arg: PropertyType) -> PropertyType | None:
    """The result type, or None when the aggregate does not take such an argument."""
    if name == "count":
        return I64
    if is_number(arg):
        if name == "avg":
            return _SUM_FLOAT
        if name == "sum":
            return _SUM_INTEGER if arg.scalar in INTEGERS else _SUM_FLOAT
        return nullable(arg)
    return nullable(arg) if name in {"min", "max"} and is_text(arg) else None


def _blob(what: str) -> str:
    return f"Blob {what} is not available as a .gq read value; Blob values require a dedicated API"


# --- searches ----------------------------------------------------------------------------------


class _SearchChecker(msgspec.Struct, frozen=True, kw_only=True):
    """Checks one call; `check` types an argument in the surrounding scope."""

    context: Context
    scope: Scope
    check: Callable[[ast.Expr], ir.Expr]

    def call(self, call: ast.Call) -> ir.Expr:
        if call.name == "nearest":
            return self._nearest(call)
        if call.name == "rrf":
            return self._rrf(call)
        code = _TEXT_CODES[call.name]
        checks = (self._text_field, self._text_query, self._max_edits)
        field, query, *edits = each_checked(
            lambda check: check(call, code), checks[: len(call.args)]
        )
        assert isinstance(field, ir.PropertyRef), "a field is nothing else"
        if call.name == "bm25":
            return ir.Bm25(field=field, query=query)
        return ir.TextMatch(
            kind=_KINDS[call.name],
            field=field,
            query=query,
            max_edits=edits[0] if edits else None,
            type=truth(field, query),
        )

    def _node_of(self, access: ast.Access, call: ast.Call, code: str) -> ir.Variable:
        """The node variable that a search looks at; edges cannot be searched."""
        refused = partial(self.context.problems.refused, access.at)
        bound = self.scope.get(access.var)
        if bound is None:
            raise refused(f"variable `${access.var}` is not bound", code=code)
        if bound.kind == "edge":
            what = f"`${access.var}` is an edge binding"
            raise refused(f"{call.name} works on node properties only; {what}", code="T23")
        return bound

    def _choices(self, bound: ir.Variable, scalar: Scalar) -> str | None:
        shown = ", ".join(
            f"`{prop.name}`"
            for prop in self.context.entity(bound).properties
            if prop.type.scalar is scalar and not prop.type.is_list
        )
        return f"{scalar.value} properties of {bound.type_name}: {shown}" if shown else None

    # --- full text ---

    def _text_field(self, call: ast.Call, code: str) -> ir.Expr:
        target = call.args[0]
        refused = partial(self.context.problems.refused, target.at, code=code)
        if not isinstance(target, ast.Access):
            message = f"{call.name} field must be String property of a node variable"
            raise refused(message, hint=f"write `{call.name}($d.title, $q)`")
        bound = self._node_of(target, call, "T6")
        field = self.check(target)
        if not isinstance(field, ir.PropertyRef) or not is_text(field.type):
            got = f"{core(field.type)} (`${target.var}.{target.prop}`)"
            hint = self._choices(bound, Scalar.STRING)
            raise refused(f"{call.name} field must be String, got {got}", hint=hint)
        return field

    def _text_query(self, call: ast.Call, code: str) -> ir.Expr:
        refused = partial(self.context.problems.refused, call.args[1].at, code=code)
        query = self.check(call.args[1])
        if is_null(query) or not is_text(query.type):
            got = "null" if is_null(query) else core(query.type)
            raise refused(f"{call.name} query must be String, got {got}")
        if not isinstance(query, ir.Literal | ir.Param):
            raise refused(f"{call.name} query must be String that is a literal or a parameter")
        return query

    def _max_edits(self, call: ast.Call, code: str) -> ir.Expr:
        edits = self.check(call.args[2])
        sound = is_integer(edits.type) and isinstance(edits, ir.Literal | ir.Param)
        if sound and not (
            isinstance(edits, ir.Literal) and isinstance(edits.value, int) and edits.value < 0
        ):
            return edits
        got = core(edits.type)
        if sound and isinstance(edits, ir.Literal):
            got = str(edits.value)
        elif is_integer(edits.type):
            got = "a value of the match"
        message = f"fuzzy max_edits must be an integer of at least 0, got {got}"
        hint = None if sound else "a number or a parameter"
        raise self.context.problems.refused(call.args[2].at, message, code=code, hint=hint)

    # --- vectors ---

    def _nearest(self, call: ast.Call) -> ir.Nearest:
        target = call.args[0]
        assert isinstance(target, ast.Access), "the grammar takes nothing else"
        refused = partial(self.context.problems.refused, target.at, code="T15")
        bound = self._node_of(target, call, "T15")
        properties = self.context.entity(bound).by_name
        prop = properties.get(target.prop)
        if prop is None:
            message = f"node type `{bound.type_name}` has no property `{target.prop}`"
            raise refused(message, hint=self.context.problems.suggest(target.prop, properties))
        if prop.type.scalar is not Scalar.VECTOR or prop.type.is_list:
            got = f"`{bound.type_name}.{prop.name}` is {core(prop.type)}"
            hint = self._choices(bound, Scalar.VECTOR)
            raise refused(f"nearest requires a Vector property; {got}", hint=hint)
        return self._nearest_query(call.args[1], _property(bound, prop), prop)

    def _nearest_query(self, arg: ast.Expr, field: ir.PropertyRef, prop: Property) -> ir.Nearest:
        refused = partial(self.context.problems.refused, arg.at, code="T15")
        dimension = prop.type.dimension
        assert dimension is not None, "a Vector type has a dimension"
        if isinstance(arg, ast.ListLit):
            vector = self._vector_literal(arg, dimension)
            return ir.Nearest(field=field, query=vector, dimension=dimension)
        query = self.check(arg)
        constant = isinstance(query, ir.Literal | ir.Param)
        if constant and query.type.scalar is Scalar.VECTOR:
            if query.type.dimension != dimension:
                wanted = f"`{prop.name}` has type {core(prop.type)}"
                raise refused(f"nearest query has type {core(query.type)} but {wanted}")
            return ir.Nearest(field=field, query=query, dimension=dimension)
        if not constant or is_null(query) or not is_text(query.type):
            fits = query.type.scalar is Scalar.VECTOR or is_text(query.type)
            got = "null" if is_null(query) else core(query.type)
            hint = None
            if fits and not constant:
                got, hint = f"{got} of the match", "give the vector as a parameter"
            message = f"nearest query must be Vector({dimension}) or String, got {got}"
            raise refused(message, hint=hint)
        model = prop.embed.model if prop.embed else None
        return ir.Nearest(
            field=field, query=query, dimension=dimension, embed_text=True, embed_model=model
        )

    def _vector_literal(self, arg: ast.ListLit, dimension: int) -> ir.Literal:
        refused = partial(self.context.problems.refused, arg.at, code="T15")
        try:
            given = literal(arg)
        except MisfitError as error:
            raise error.at(arg.at, self.context.problems, code="T15") from error
        numbers = vector_of(given)
        if numbers is None and given.value:
            got = core(given.type)
            raise refused(f"nearest query must be Vector({dimension}) or String, got {got}")
        numbers = numbers or ()
        if len(numbers) != dimension:
            got = f"nearest query literal has {len(numbers)} elements"
            raise refused(f"{got} but the property has {dimension} dimensions")
        kind = PropertyType(scalar=Scalar.VECTOR, dimension=dimension)
        return ir.Literal(value=numbers, type=kind)

    # --- fusion ---

    def _rrf(self, call: ast.Call) -> ir.Expr:
        checks = (self.check, self.check, self._rrf_k)
        first, second, *k = each_checked(
            lambda part: part[0](part[1]), zip(checks, call.args, strict=False)
        )
        assert isinstance(first, ir.Nearest | ir.Bm25), "the grammar takes nothing else"
        assert isinstance(second, ir.Nearest | ir.Bm25), "the grammar takes nothing else"
        default = ir.Literal(value=_RRF_K_DEFAULT, type=I64)
        return ir.Rrf(first=first, second=second, k=k[0] if k else default)

    def _rrf_k(self, arg: ast.Expr) -> ir.Expr:
        refused = partial(self.context.problems.refused, arg.at, code="T21")
        k = self.check(arg)
        if not is_integer(k.type) or not isinstance(k, ir.Literal | ir.Param):
            raise refused(f"rrf k must be an integer scalar, got {core(k.type)}")
        if isinstance(k, ir.Literal) and isinstance(k.value, int) and k.value <= 0:
            raise refused("rrf k must be greater than 0")
        return k
