"""The search functions: nearest, bm25, search, fuzzy, match_text and rrf."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.operators import truth
from omnigraph.compiler.query.scope import Bound, Context, Scope
from omnigraph.compiler.query.types import (
    I64,
    LiteralError,
    core,
    is_integer,
    is_text,
    literal,
    nullable,
    vector_of,
)
from omnigraph.model.schema import Property, PropertyType, Scalar

RRF_K_DEFAULT = 60
_TEXT_CODES = {"search": "T19", "fuzzy": "T19", "match_text": "T20", "bm25": "T20"}
_KINDS = {
    "search": ir.TextMatchKind.SEARCH,
    "fuzzy": ir.TextMatchKind.FUZZY,
    "match_text": ir.TextMatchKind.PHRASE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchChecker:
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
        k: ir.Expr | None = ir.Literal(value=RRF_K_DEFAULT, type=I64)
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
