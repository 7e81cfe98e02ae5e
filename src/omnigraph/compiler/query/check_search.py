"""Calls of search functions: which property they look at and what they look for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.operators import truth
from omnigraph.compiler.query.scope import Context, Scope, property_ref
from omnigraph.compiler.query.types import (
    I64,
    core,
    is_integer,
    is_null,
    is_text,
    literal,
    vector_of,
)
from omnigraph.compiler.text import MisfitError, each_checked
from omnigraph.model.schema import Property, PropertyType, Scalar

_RRF_K_DEFAULT = 60
_TEXT_CODES = {"search": "T19", "fuzzy": "T19", "match_text": "T20", "bm25": "T20"}
_KINDS = {
    "search": ir.TextMatchKind.SEARCH,
    "fuzzy": ir.TextMatchKind.FUZZY,
    "match_text": ir.TextMatchKind.PHRASE,
}


class SearchChecker(msgspec.Struct, frozen=True, kw_only=True):
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
        if bound.is_open:
            types = " or ".join(bound.types)
            hint = f"bind it to one: `${access.var}: {bound.types[0]}`"
            message = f"{call.name} searches one type; `${access.var}` may be {types}"
            raise refused(message, code=code, hint=hint)
        return bound

    def _choices(self, bound: ir.Variable, scalar: Scalar) -> str | None:
        shown = ", ".join(
            f"`{prop.name}`"
            for prop in self.context.properties(bound).values()
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
        properties = self.context.properties(bound)
        prop = properties.get(target.prop)
        if prop is None:
            message = f"node type `{bound.type_name}` has no property `{target.prop}`"
            raise refused(message, hint=self.context.problems.suggest(target.prop, properties))
        if prop.type.scalar is not Scalar.VECTOR or prop.type.is_list:
            got = f"`{bound.type_name}.{prop.name}` is {core(prop.type)}"
            hint = self._choices(bound, Scalar.VECTOR)
            raise refused(f"nearest requires a Vector property; {got}", hint=hint)
        found = self._nearest_query(call.args[1], property_ref(bound, prop), prop)
        return replace(found, approximate=prop.indexing.ann and len(call.args) == 2)

    def _nearest_query(self, arg: ast.Expr, field: ir.PropertyRef, prop: Property) -> ir.Nearest:
        refused = partial(self.context.problems.refused, arg.at, code="T15")
        dimension = prop.type.dimension
        assert dimension is not None, "a Vector type has a dimension"
        if isinstance(arg, ast.ListLit):
            vector = self._vector_literal(arg, dimension)
            return ir.Nearest(field=field, query=vector, dimension=dimension)
        query = self.check(arg)
        constant = isinstance(query, ir.Literal | ir.Param)
        single = constant or isinstance(query, ir.PropertyRef)  # of another node: more like this
        if single and query.type.scalar is Scalar.VECTOR:
            if query.type.dimension != dimension:
                wanted = f"`{prop.name}` has type {core(prop.type)}"
                raise refused(f"nearest query has type {core(query.type)} but {wanted}")
            return ir.Nearest(field=field, query=query, dimension=dimension)
        if not constant or is_null(query) or not is_text(query.type):
            got = "null" if is_null(query) else core(query.type)
            hint = None
            if is_text(query.type) and not constant:
                got, hint = f"{got} of the match", "give the text as a parameter"
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
