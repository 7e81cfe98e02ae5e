"""Paths: what may be asked of one, and `shortest($a, $b, edges)`."""

from __future__ import annotations

from functools import partial
from typing import Literal as Choice

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.legs import Walking, named_edges
from omnigraph.compiler.query.scope import Context, Scope
from omnigraph.compiler.query.types import I64, core, is_number, nullable
from omnigraph.compiler.text import RefusedError
from omnigraph.model.schema import PropertyType, Scalar

_IDS = PropertyType(scalar=Scalar.STRING, is_list=True)
_HINT = "ask `length($path)`, `nodes($path)` or `edges($path)`"


class PathChecker(msgspec.Struct, frozen=True, kw_only=True):
    """Checks what is said of paths in the expressions of one block."""

    context: Context
    scope: Scope

    def is_path(self, expr: ast.Expr) -> bool:
        """Whether the expression is a path, which is no value by itself."""
        if isinstance(expr, ast.Call):
            return expr.name == "shortest"
        return isinstance(expr, ast.Var) and expr.name in self.scope.paths

    def part(self, part: Choice["length", "nodes", "edges"], path: ast.Expr) -> ir.PathPart:
        """What is asked of the path."""
        if not self.is_path(path):
            message = f"{part} asks about a path, which `$a $path:edge{{1,3}} $b` binds"
            hint = "`shortest($a, $b, edge)` is one too"
            raise self.context.problems.refused(path.at, message, code="T6", hint=hint)
        if isinstance(path, ast.Call):
            way = self._shortest(path)
        else:
            assert isinstance(path, ast.Var), "the path has a name"
            way = self.scope.paths[path.name]
        kind = I64 if part == "length" else _IDS
        return ir.PathPart(part=part, way=way, type=nullable(kind) if way.nullable else kind)

    def refusal(self, at: int, what: str) -> RefusedError:
        """A path stands where a value is expected."""
        message = f"{what} is a path and no value by itself"
        return self.context.problems.refused(at, message, code="T6", hint=_HINT)

    def _shortest(self, call: ast.Call) -> ir.Way:
        one, other, edge, *weight = call.args
        ends = [self._node(end) for end in (one, other)]
        assert isinstance(edge, ast.EdgeName), "the grammar takes nothing else"
        edges = named_edges(self.context, edge.names, edge.at)
        if edges is None:
            raise RefusedError
        walking = Walking(edges=edges, undirected=edge.undirected, low=0, high=ir.HOPS_OPEN)
        starts, targets = (frozenset(end.types) for end in ends)
        if not walking.targets(starts) & targets:
            message = f"no edge of `{edge.name}` leads from {ends[0].type_name} "
            message += f"to {ends[1].type_name}, however many are walked"
            hint = f"`<{edge.name}>` walks both ways" if not edge.undirected else None
            raise self.context.problems.refused(edge.at, message, code="T5", hint=hint)
        way = ir.Way(
            src=ends[0].name,
            dst=ends[1].name,
            legs=walking.legs(starts, targets),
            undirected=edge.undirected,
        )
        return way if not weight else replace(way, weight=self._weight(weight[0], way))

    def _node(self, end: ast.Expr) -> ir.Variable:
        assert isinstance(end, ast.Var), "the grammar takes nothing else"
        bound = self.scope.get(end.name)
        if bound is None or bound.kind != "node":
            what = "is not bound" if bound is None else "is an edge"
            message = f"variable `${end.name}` {what}; a path goes from node to node"
            raise self.context.problems.refused(end.at, message, code="T6")
        return bound

    def _weight(self, word: ast.Expr, way: ir.Way) -> str:
        assert isinstance(word, ast.Word), "the grammar takes nothing else"
        refused = partial(self.context.problems.refused, word.at, code="T6")
        for leg in way.legs:
            prop = self.context.catalog.edges[leg.edge_type].by_name.get(word.name)
            if prop is None:
                choices = self.context.catalog.edges[leg.edge_type].by_name
                hint = self.context.problems.suggest(word.name, choices)
                raise refused(
                    f"edge type `{leg.edge_type}` has no property `{word.name}`", hint=hint
                )
            if not is_number(prop.type):
                got = f"`{leg.edge_type}.{word.name}` is {core(prop.type)}"
                raise refused(f"a weight is a number; {got}")
        return word.name
