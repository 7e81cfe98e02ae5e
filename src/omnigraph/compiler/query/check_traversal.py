"""Traversals: edge, direction, endpoint types, hop bounds, edge bindings, and reachability."""

from __future__ import annotations

from dataclasses import dataclass, field

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.scope import WILDCARD, Bound, Context, Scope
from omnigraph.model.schema import EdgeType


@dataclass(slots=True, kw_only=True)
class TraversalChecker:
    """Checks the traversals of one block, one after the other, and binds their variables."""

    context: Context
    scope: Scope
    _checked: list[tuple[ast.Traversal, ir.Traversal]] = field(default_factory=list)

    def check(self, clause: ast.Traversal) -> ir.Traversal | None:
        edge = self._edge(clause)
        bounds = self._bounds(clause)
        if edge is None:
            return None
        sound = bounds is not None
        if clause.undirected and edge.from_type != edge.to_type:
            message = (
                f"undirected traversal needs an edge between nodes of one type; "
                f"`{edge.name}` goes from {edge.from_type} to {edge.to_type}"
            )
            hint = f"write `$a {clause.edge} $b`; it is walked backwards when `$b` is bound"
            self.context.problems.report(clause.edge_at, message, code="T22", hint=hint)
            sound = False
        sound = self._edge_variable_is_free(clause) and sound
        src = self._end(clause.src, edge.from_type, edge, "source")
        dst = self._end(clause.dst, edge.to_type, edge, "destination")
        edge_var = self._bind_edge(clause, edge) if sound else None
        if not sound or src is None or dst is None or bounds is None:
            return None
        low, high = bounds
        if edge.from_type != edge.to_type:
            high = min(high, 1)
        walk = ir.Traversal(
            src=src,
            dst=dst,
            edge_type=edge.name,
            from_type=edge.from_type,
            to_type=edge.to_type,
            edge_var=edge_var,
            undirected=clause.undirected,
            min_hops=low,
            max_hops=high,
        )
        self._checked.append((clause, walk))
        return walk

    def _edge(self, clause: ast.Traversal) -> EdgeType | None:
        edge = self.context.catalog.edge_named(clause.edge)
        if edge is None:
            names = [name[0].lower() + name[1:] for name in self.context.catalog.edges]
            hint = self.context.problems.suggest(clause.edge, names)
            if clause.edge in {"contains", "starts_with", "in", "is"}:
                hint = f"to compare values write a property on the left: `$x.p {clause.edge} ...`"
            message = f"unknown edge `{clause.edge}`"
            self.context.problems.report(clause.edge_at, message, code="T4", hint=hint)
            return None
        return edge

    def _bounds(self, clause: ast.Traversal) -> tuple[int, int] | None:
        message: str | None = None
        low, high = clause.min_hops, clause.max_hops
        if high is None:
            message = "unbounded traversal is disabled; give a largest number of hops"
            hint = f"write `{{{low},{max(low, 5)}}}`"
        elif low < 1:
            message = f"the smallest number of hops is 1, not {low}"
            hint = f"write `{{1,{max(high, 1)}}}`"
        elif high < low:
            message = f"hop bounds go from small to large, not from {low} to {high}"
            hint = f"write `{{{high},{low}}}`"
        else:
            return low, high
        self.context.problems.report(clause.bounds_at, message, code="T15", hint=hint)
        return None

    # --- endpoints ---

    def _end(self, var: ast.Var, type_name: str, edge: EdgeType, side: str) -> str | None:
        """The plan name of an endpoint; an unknown variable takes its type from the edge."""
        problems = self.context.problems
        known = self.scope.get(var.name) if var.name != WILDCARD else None
        if known is None:
            hidden = var.name == WILDCARD
            name = self.context.fresh(var.name)
            bound = Bound(plan_name=name, kind="node", type_name=type_name, hidden=hidden)
            self.context.variables[name] = bound
            if not hidden:
                self.scope.add(var.name, bound)
            return name
        if known.kind == "edge":
            message = f"edge binding `${var.name}` cannot be an endpoint of a traversal"
            hint = "an edge has no edges; use the nodes at its ends"
            problems.report(var.at, message, code="T23", hint=hint)
            return None
        if known.type_name != type_name:
            message = (
                f"`${var.name}` has type `{known.type_name}` but the {side} of `{edge.name}` "
                f"is `{type_name}`"
            )
            problems.report(var.at, message, code="T5", hint=self._end_hint(known, edge))
            return None
        return known.plan_name

    def _end_hint(self, known: Bound, edge: EdgeType) -> str:
        shape = f"`{edge.name}` goes from {edge.from_type} to {edge.to_type}"
        if known.type_name in {edge.from_type, edge.to_type}:
            return f"{shape}; swap the two variables"
        touching = [other.name for other in self.context.catalog.edges_touching(known.type_name)]
        if not touching:
            return f"{shape}; no edge touches {known.type_name}"
        names = ", ".join(f"`{name[0].lower()}{name[1:]}`" for name in touching[:8])
        return f"{shape}; edges of {known.type_name}: {names}"

    # --- edge bindings ---

    def _edge_variable_is_free(self, clause: ast.Traversal) -> bool:
        var = clause.edge_var
        if var is None:
            return True
        report = self.context.problems.report
        if clause.bounded:
            message = f"edge binding `${var.name}` names one edge and takes no hop bounds"
            hint = "leave out the bounds, or the binding"
            report(clause.bounds_at, message, code="T23", hint=hint)
            return False
        if var.name == WILDCARD:
            return True
        if var.name in {clause.src.name, clause.dst.name}:
            message = (
                f"edge binding `${var.name}` must be distinct from the endpoint variables of its "
                "traversal"
            )
            report(var.at, message, code="T23", hint="choose another name")
            return False
        known = self.scope.get(var.name)
        if known is not None:
            kind = "an edge" if known.kind == "edge" else "a node"
            message = f"edge binding `${var.name}` is already bound as {kind}"
            report(var.at, message, code="T23", hint="choose another name")
            return False
        return True

    def _bind_edge(self, clause: ast.Traversal, edge: EdgeType) -> str | None:
        var = clause.edge_var
        if var is None:
            return None
        name = self.context.fresh(var.name)
        hidden = var.name == WILDCARD
        bound = Bound(plan_name=name, kind="edge", type_name=edge.name, hidden=hidden)
        self.context.variables[name] = bound
        if not hidden:
            self.scope.add(var.name, bound)
        return name

    # --- reachability ---

    def require_reachable(self, bound: frozenset[str]) -> None:
        """Report each traversal that no order of walking can start from a bound variable."""
        reached = set(bound)
        waiting = self._checked
        progress = True
        while progress:
            progress = False
            still: list[tuple[ast.Traversal, ir.Traversal]] = []
            for clause, walk in waiting:
                if walk.src in reached or walk.dst in reached:
                    reached |= {walk.src, walk.dst}
                    progress = True
                else:
                    still.append((clause, walk))
            waiting = still
        for clause, walk in waiting:
            ends = " or ".join(
                f"`${var.name}: {kind}`"
                for var, kind in ((clause.src, walk.from_type), (clause.dst, walk.to_type))
                if var.name != WILDCARD
            )
            message = f"traversal `{clause.edge}` starts nowhere: neither of its ends is bound"
            hint = f"bind one of them: {ends}" if ends else "bind one of its ends"
            self.context.problems.report_unplannable(clause.at, message, hint=hint)
