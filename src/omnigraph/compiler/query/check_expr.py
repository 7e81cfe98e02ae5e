"""What names mean at a place of a query, and its expressions: names resolved, types checked, turned
into the typed IR.

Every check returns None after it has reported a problem, so that the caller goes on with the rest
of the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal as Choice
from typing import assert_never

import msgspec

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.functions import FUNCTIONS, OperatorChecker, negation, truth
from omnigraph.compiler.query.types import (
    I64,
    LiteralError,
    core,
    is_integer,
    is_number,
    is_text,
    literal,
    nullable,
    vector_of,
)
from omnigraph.compiler.text import Problems
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

WILDCARD = "_"
_SUM_INTEGER = PropertyType(scalar=Scalar.I64, nullable=True)
_SUM_FLOAT = PropertyType(scalar=Scalar.F64, nullable=True)
_COUNT = PropertyType(scalar=Scalar.I64)
_RRF_K_DEFAULT = 60
_TEXT_CODES = {"search": "T19", "fuzzy": "T19", "match_text": "T20", "bm25": "T20"}
_KINDS = {
    "search": ir.TextMatchKind.SEARCH,
    "fuzzy": ir.TextMatchKind.FUZZY,
    "match_text": ir.TextMatchKind.PHRASE,
}

Aliases = Callable[[ast.Word], ir.Expr | None]


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A variable in scope: its name in the plan and what it stands for."""

    plan_name: str
    kind: EntityKind
    type_name: str
    nullable: bool = False
    hidden: bool = False


class Scope:
    """Variables by written name. An inner scope sees the outer ones and keeps its own to itself."""

    def __init__(self, outer: Mapping[str, Bound] | None = None) -> None:
        self._bound = dict(outer or {})
        self.own: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._bound

    def __iter__(self) -> Iterator[str]:
        return iter(self._bound)

    def __getitem__(self, name: str) -> Bound:
        return self._bound[name]

    def get(self, name: str) -> Bound | None:
        return self._bound.get(name)

    def add(self, name: str, bound: Bound) -> None:
        self._bound[name] = bound
        self.own.append(name)

    def inner(self) -> Scope:
        return Scope(self._bound)

    def own_plan_names(self) -> frozenset[str]:
        return frozenset(self._bound[name].plan_name for name in self.own)

    def plan_names(self) -> frozenset[str]:
        return frozenset(bound.plan_name for bound in self._bound.values())


class Context(msgspec.Struct, kw_only=True):
    """What is fixed while one query is checked, and what is collected on the way."""

    catalog: Catalog
    params: Mapping[str, PropertyType]
    problems: Problems
    names_taken: set[str] = msgspec.field(default_factory=set)
    variables: dict[str, Bound] = msgspec.field(default_factory=dict)
    buried: set[str] = msgspec.field(default_factory=set)  # written names bound only inside `not`

    def fresh(self, written: str) -> str:
        """A plan name that no other variable has; wildcards always get a hidden one."""
        name, number = written, 1
        if written == WILDCARD:
            name = f"{written}#{number}"
        while name in self.names_taken:
            number += 1
            name = f"{written}#{number}"
        self.names_taken.add(name)
        return name

    def entity(self, bound: Bound) -> NodeType | EdgeType:
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
                return self.word(expr)
            case ast.Call() if FUNCTIONS[expr.name].kind == "search":
                searches = _SearchChecker(context=self.context, scope=self.scope, check=self.check)
                return searches.call(expr)
            case ast.Call():
                return self.operators.call(expr, [self.check(arg) for arg in expr.args])
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

    def word(self, word: ast.Word) -> ir.Expr | None:
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


# --- searches ----------------------------------------------------------------------------------


class _SearchChecker(msgspec.Struct, frozen=True, kw_only=True):
    """Checks one call; `check` types an argument in the surrounding scope."""

    context: Context
    scope: Scope
    check: Callable[[ast.Expr], ir.Expr | None]

    def call(self, call: ast.Call) -> ir.Expr | None:
        if call.name == "nearest":
            return self._nearest(call)
        if call.name == "rrf":
            return self._rrf(call)
        code = _TEXT_CODES[call.name]
        field = self._text_field(call, code)
        query = self._text_query(call, code)
        edits = self._max_edits(call) if len(call.args) > 2 else None
        if field is None or query is None or (len(call.args) > 2 and edits is None):
            return None
        if call.name == "bm25":
            return ir.Bm25(field=field, query=query)
        return ir.TextMatch(
            kind=_KINDS[call.name],
            field=field,
            query=query,
            max_edits=edits,
            type=truth(field, query),
        )

    def _report(self, at: int, message: str, code: str, hint: str | None = None) -> None:
        self.context.problems.report(at, message, code=code, hint=hint)

    def _node_of(self, access: ast.Access, call: ast.Call, code: str) -> Bound | None:
        """The node variable that a search looks at; edges cannot be searched."""
        bound = self.scope.get(access.var)
        if bound is None:
            self._report(access.at, f"variable `${access.var}` is not bound", code)
            return None
        if bound.kind == "edge":
            message = (
                f"{call.name} works on node properties only; `${access.var}` is an edge binding"
            )
            self._report(access.at, message, "T23")
            return None
        return bound

    # --- full text ---

    def _text_field(self, call: ast.Call, code: str) -> ir.PropertyRef | None:
        target = call.args[0]
        if not isinstance(target, ast.Access):
            hint = f"write `{call.name}($d.title, $q)`"
            message = f"{call.name} field must be String property of a node variable"
            self._report(target.at, message, code, hint)
            return None
        bound = self._node_of(target, call, code if target.var in self.scope else "T6")
        if bound is None:
            return None
        field = self.check(target)
        if field is None:
            return None
        if not isinstance(field, ir.PropertyRef) or not is_text(field.type):
            got = core(field.type)
            message = f"{call.name} field must be String, got {got} (`${target.var}.{target.prop}`)"
            self._report(target.at, message, code, self._text_choices(bound))
            return None
        return field

    def _text_choices(self, bound: Bound) -> str | None:
        names = [prop.name for prop in self.context.entity(bound).properties if is_text(prop.type)]
        shown = ", ".join(f"`{name}`" for name in names)
        return f"String properties of {bound.type_name}: {shown}" if names else None

    def _text_query(self, call: ast.Call, code: str) -> ir.Expr | None:
        query = self.check(call.args[1])
        if query is None:
            return None
        null = isinstance(query, ir.Literal) and query.value is None
        if null or not is_text(query.type):
            got = "null" if null else core(query.type)
            message = f"{call.name} query must be String, got {got}"
            self._report(call.args[1].at, message, code)
            return None
        if not isinstance(query, ir.Literal | ir.Param):
            message = f"{call.name} query must be String that is a literal or a parameter"
            self._report(call.args[1].at, message, code)
            return None
        return query

    def _max_edits(self, call: ast.Call) -> ir.Expr | None:
        edits = self.check(call.args[2])
        if edits is None:
            return None
        sound = is_integer(edits.type) and isinstance(edits, ir.Literal | ir.Param)
        if not sound or (
            isinstance(edits, ir.Literal) and isinstance(edits.value, int) and edits.value < 0
        ):
            got = str(core(edits.type))
            if sound and isinstance(edits, ir.Literal):
                got = str(edits.value)
            elif is_integer(edits.type):
                got = "a value of the match"
            message = f"fuzzy max_edits must be an integer of at least 0, got {got}"
            hint = "a number or a parameter" if not sound else None
            self._report(call.args[2].at, message, "T19", hint)
            return None
        return edits

    # --- vectors ---

    def _nearest(self, call: ast.Call) -> ir.Nearest | None:
        target = call.args[0]
        assert isinstance(target, ast.Access), "the grammar takes nothing else"
        bound = self._node_of(target, call, "T15")
        if bound is None:
            return None
        prop = self.context.entity(bound).by_name.get(target.prop)
        if prop is None:
            message = f"node type `{bound.type_name}` has no property `{target.prop}`"
            hint = self.context.problems.suggest(target.prop, self.context.entity(bound).by_name)
            self._report(target.at, message, "T15", hint)
            return None
        if prop.type.scalar is not Scalar.VECTOR or prop.type.is_list:
            got = f"`{bound.type_name}.{prop.name}` is {core(prop.type)}"
            message = f"nearest requires a Vector property; {got}"
            self._report(target.at, message, "T15", self._vector_choices(bound))
            return None
        kind = nullable(prop.type) if bound.nullable else prop.type
        field = ir.PropertyRef(var=bound.plan_name, prop=prop.name, type=kind)
        return self._nearest_query(call.args[1], field, prop)

    def _vector_choices(self, bound: Bound) -> str | None:
        names = [
            prop.name
            for prop in self.context.entity(bound).properties
            if prop.type.scalar is Scalar.VECTOR
        ]
        shown = ", ".join(f"`{name}`" for name in names)
        return f"Vector properties of {bound.type_name}: {shown}" if names else None

    def _nearest_query(
        self, arg: ast.Expr, field: ir.PropertyRef, prop: Property
    ) -> ir.Nearest | None:
        dimension = prop.type.dimension
        assert dimension is not None, "a Vector type has a dimension"
        if isinstance(arg, ast.ListLit):
            vector = self._vector_literal(arg, dimension)
            if vector is None:
                return None
            return ir.Nearest(field=field, query=vector, dimension=dimension)
        query = self.check(arg)
        if query is None:
            return None
        constant = isinstance(query, ir.Literal | ir.Param)
        if constant and query.type.scalar is Scalar.VECTOR:
            if query.type.dimension != dimension:
                message = (
                    f"nearest query has type {core(query.type)} "
                    f"but `{prop.name}` has type {core(prop.type)}"
                )
                self._report(arg.at, message, "T15")
                return None
            return ir.Nearest(field=field, query=query, dimension=dimension)
        null = isinstance(query, ir.Literal) and query.value is None
        if not constant or null or not is_text(query.type):
            fits = query.type.scalar is Scalar.VECTOR or is_text(query.type)
            got = "null" if null else str(core(query.type))
            if fits and not constant:
                got += " of the match"
            message = f"nearest query must be Vector({dimension}) or String, got {got}"
            hint = "give the vector as a parameter" if fits and not constant else None
            self._report(arg.at, message, "T15", hint)
            return None
        model = prop.embed.model if prop.embed else None
        return ir.Nearest(
            field=field, query=query, dimension=dimension, embed_text=True, embed_model=model
        )

    def _vector_literal(self, arg: ast.ListLit, dimension: int) -> ir.Literal | None:
        try:
            given = literal(arg)
        except LiteralError as error:
            self._report(arg.at, error.message, "T15", error.hint)
            return None
        numbers = vector_of(given)
        if numbers is None and given.value:
            got = core(given.type)
            message = f"nearest query must be Vector({dimension}) or String, got {got}"
            self._report(arg.at, message, "T15")
            return None
        numbers = numbers or ()
        if len(numbers) != dimension:
            message = (
                f"nearest query literal has {len(numbers)} elements "
                f"but the property has {dimension} dimensions"
            )
            self._report(arg.at, message, "T15")
            return None
        kind = PropertyType(scalar=Scalar.VECTOR, dimension=dimension)
        return ir.Literal(value=numbers, type=kind)

    # --- fusion ---

    def _rrf(self, call: ast.Call) -> ir.Expr | None:
        first, second = self.check(call.args[0]), self.check(call.args[1])
        k: ir.Expr | None = ir.Literal(value=_RRF_K_DEFAULT, type=I64)
        if len(call.args) > 2:
            k = self._rrf_k(call.args[2])
        if k is None or first is None or second is None:
            return None
        assert isinstance(first, ir.Nearest | ir.Bm25), "the grammar takes nothing else"
        assert isinstance(second, ir.Nearest | ir.Bm25), "the grammar takes nothing else"
        return ir.Rrf(first=first, second=second, k=k)

    def _rrf_k(self, arg: ast.Expr) -> ir.Expr | None:
        k = self.check(arg)
        if k is None:
            return None
        if not is_integer(k.type) or not isinstance(k, ir.Literal | ir.Param):
            message = f"rrf k must be an integer scalar, got {core(k.type)}"
            self._report(arg.at, message, "T21")
            return None
        if isinstance(k, ir.Literal) and isinstance(k.value, int) and k.value <= 0:
            self._report(arg.at, "rrf k must be greater than 0", "T21")
            return None
        return k
