"""The `match` block: bindings, traversals, filters, optional and negated blocks.

The textual order of clauses does not matter. Each block is read in the order bindings, traversals,
optional blocks, filters, negated blocks, so that every clause knows all variables of its block. A
traversal brings its edge, direction, types of its ends, hop bounds and edge variable.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.check_expr import WILDCARD, Bound, Context, ExprChecker, Scope
from omnigraph.compiler.query.functions import truth
from omnigraph.compiler.query.parse_expr import WORD_OPERATORS
from omnigraph.compiler.query.types import (
    LiteralError,
    comparable,
    core,
    element,
    fitted,
    is_number,
    literal,
)
from omnigraph.model.schema import EdgeType, Property, Scalar


class _TraversalChecker(msgspec.Struct, kw_only=True):
    """Checks the traversals of one block, one after the other, and binds their variables."""

    context: Context
    scope: Scope
    _checked: list[tuple[ast.Traversal, ir.Traversal]] = msgspec.field(default_factory=list)

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


class MatchChecker(msgspec.Struct, kw_only=True):
    """Checks one block and builds it. `block()` is the only door."""

    context: Context
    scope: Scope
    optional: bool = False  # variables that this block introduces may be null outside
    _declared: dict[str, Bound] = msgspec.field(default_factory=dict)
    _conjuncts: list[ir.Expr] = msgspec.field(default_factory=list)
    _walks: list[ir.Traversal] = msgspec.field(default_factory=list)

    def block(self, clauses: Sequence[ast.Clause]) -> ir.MatchBlock:
        """The block as far as it is sound; problems are in the context."""
        outer = self.scope.plan_names()
        clauses = self._told_apart(clauses)
        bindings = [clause for clause in clauses if isinstance(clause, ast.Binding)]
        bound = [(clause, self._bind(clause)) for clause in bindings]
        walker = _TraversalChecker(context=self.context, scope=self.scope)
        for clause in clauses:
            if isinstance(clause, ast.Traversal):
                walk = walker.check(clause)
                if walk is not None:
                    self._walks.append(walk)
        walker.require_reachable(outer | {item.plan_name for item in self._declared.values()})
        for clause, target in bound:
            if target is not None:
                self._inline(clause, target)
        own = self._own_nodes()
        optionals, nullable = self._optionals(clauses)
        checker = ExprChecker(context=self.context, scope=self.scope)
        for clause in clauses:
            if isinstance(clause, ast.FilterClause):
                condition = checker.condition(clause.expr)
                if condition is not None:
                    self._conjuncts.extend(_conjuncts(condition))
        return self._assembled(own, optionals, nullable, self._negations(clauses))

    def _told_apart(self, clauses: Sequence[ast.Clause]) -> list[ast.Clause]:
        """The clauses, with each `$a word $b` that compares two values made a filter.

        It walks an edge if the schema declares that edge and neither variable is a parameter.
        """
        walks = [clause for clause in clauses if isinstance(clause, ast.Traversal)]
        nodes = {*self.scope, *(one.var for one in clauses if isinstance(one, ast.Binding))}
        for walk in walks:
            if not _may_compare(walk):
                nodes |= {walk.src.name, walk.dst.name}
        return [
            _comparison(clause)
            if isinstance(clause, ast.Traversal) and self._compares(clause, nodes)
            else clause
            for clause in clauses
        ]

    def _compares(self, clause: ast.Traversal, nodes: Collection[str]) -> bool:
        if not _may_compare(clause):
            return False
        ends = {clause.src.name, clause.dst.name}
        values = {name for name in ends if name in self.context.params and name not in nodes}
        if values:
            return True
        # With an end that is not bound it is a misspelt edge rather than a comparison.
        return self.context.catalog.edge_named(clause.edge) is None and ends <= set(nodes)

    # --- bindings ---

    def _bind(self, clause: ast.Binding) -> Bound | None:
        problems = self.context.problems
        if clause.type_name not in self.context.catalog.nodes:
            message = f"unknown node type `{clause.type_name}`"
            hint = self.context.problems.suggest(clause.type_name, self.context.catalog.nodes)
            if clause.type_name in self.context.catalog.edges:
                walk = clause.type_name[0].lower() + clause.type_name[1:]
                hint = f"`{clause.type_name}` is an edge type; walk it: `$a {walk} $b`"
            problems.report(clause.type_at, message, code="T1", hint=hint)
            return None
        known = self.scope.get(clause.var) if clause.var != WILDCARD else None
        if known is not None:
            return known if self._may_rebind(clause, known) else None
        name = self.context.fresh(clause.var)
        hidden = clause.var == WILDCARD
        bound = Bound(plan_name=name, kind="node", type_name=clause.type_name, hidden=hidden)
        self._declared[name] = bound
        self.context.variables[name] = bound
        if not hidden:
            self.scope.add(clause.var, bound)
        return bound

    def _may_rebind(self, clause: ast.Binding, known: Bound) -> bool:
        problems = self.context.problems
        if known.kind == "edge":
            message = f"`${clause.var}` is an edge binding and cannot be bound as a node"
            problems.report(clause.at, message, code="T23", hint="choose another name")
            return False
        if known.type_name != clause.type_name:
            message = (
                f"variable `${clause.var}` already bound to type `{known.type_name}`, "
                f"cannot rebind to `{clause.type_name}`"
            )
            problems.report(clause.at, message, hint="choose another name")
            return False
        return True

    def _inline(self, clause: ast.Binding, bound: Bound) -> None:
        entity = self.context.entity(bound)
        for match in clause.matches:
            prop = entity.by_name.get(match.name)
            if prop is None and match.name == "id":
                prop = Property(name="id", type=ir.ID)
            if prop is None:
                message = f"node type `{bound.type_name}` has no property `{match.name}`"
                hint = self.context.problems.suggest(match.name, [*entity.by_name, "id"])
                self.context.problems.report(match.at, message, code="T2", hint=hint)
                continue
            condition = self._inline_condition(match, prop, bound)
            if condition is not None:
                self._conjuncts.append(condition)

    def _inline_condition(
        self, match: ast.PropMatch, prop: Property, bound: Bound
    ) -> ir.Expr | None:
        problems = self.context.problems
        if prop.type.scalar is Scalar.BLOB:
            message = f"Blob property `{prop.name}` cannot be matched"
            problems.report(match.at, message, code="T3")
            return None
        left: ir.Expr
        if prop.name == "id" and prop.name not in self.context.entity(bound).by_name:
            left = ir.IdRef(var=bound.plan_name)
        else:
            left = ir.PropertyRef(var=bound.plan_name, prop=prop.name, type=prop.type)
        value = self._inline_value(match, prop)
        if value is None:
            return None
        if prop.type.is_list:
            return ir.ListContains(items=left, needle=value, type=truth(left, value))
        return ir.Compare(op=ir.CompareOp.EQ, left=left, right=value, type=truth(left, value))

    def _inline_value(self, match: ast.PropMatch, prop: Property) -> ir.Expr | None:
        """The value to be equal to; for a list property, the element to be found in it."""
        problems = self.context.problems
        value = match.value
        target = element(prop.type) if prop.type.is_list else prop.type
        if target.scalar is Scalar.VECTOR:
            message = f"Vector property `{prop.name}` cannot be matched for equality"
            problems.report(match.at, message, code="T3", hint="order by `nearest(...)` instead")
            return None
        if isinstance(value, ast.Lit | ast.ListLit):
            return self._inline_literal(value, prop, match)
        given: ir.Expr | None
        if isinstance(value, ast.NowCall):
            given = ir.Now()
        else:
            assert isinstance(value, ast.Var), "the grammar takes nothing else"
            given = self._parameter(value)
        if given is None:
            return None
        if given.type.is_list or not comparable(given.type, target):
            message = (
                f"property `{prop.name}` has type {core(prop.type)} but got {core(given.type)}"
            )
            if prop.type.is_list:
                message += "; a scalar means membership"
            problems.report(match.at, message, code="T3")
            return None
        return given

    def _inline_literal(
        self, value: ast.Lit | ast.ListLit, prop: Property, match: ast.PropMatch
    ) -> ir.Expr | None:
        problems = self.context.problems
        target = element(prop.type) if prop.type.is_list else prop.type
        if isinstance(value, ast.Lit) and value.kind == "null":
            hint = f"write the clause `$x.{prop.name} is null`"
            message = f"property `{prop.name}` cannot be matched with null"
            problems.report(match.at, message, code="T3", hint=hint)
            return None
        if isinstance(value, ast.ListLit) and prop.type.is_list:
            message = (
                f"list property `{prop.name}` cannot be matched with a list; "
                "a scalar means membership"
            )
            problems.report(match.at, message, code="T3")
            return None
        try:
            if is_number(target) and isinstance(value, ast.Lit):
                plain = literal(value)
                # Numbers of all types compare by value, so `{ age: 25.5 }` is fine, if never true.
                if is_number(plain.type):
                    return plain
            return fitted(value, target, prop.name)
        except LiteralError as error:
            problems.report(match.at, error.message, code="T3", hint=error.hint)
            return None

    def _parameter(self, value: ast.Var) -> ir.Expr | None:
        """A parameter; inside `{…}` it wins over a variable of the same name."""
        declared = self.context.params.get(value.name)
        if declared is not None:
            return ir.Param(name=value.name, type=declared)
        if value.name in self.scope:
            message = f"`${value.name}` is bound in the match and has no value to be equal to"
            hint = f"compare properties in a clause of their own: `$x.p = ${value.name}.q`"
            self.context.problems.report(value.at, message, code="T3", hint=hint)
            return None
        hint = f"declare it as a parameter: `query name(${value.name}: Type)`"
        message = f"variable `${value.name}` is not bound"
        self.context.problems.report(value.at, message, hint=hint)
        return None

    # --- inner blocks ---

    def _optionals(self, clauses: Sequence[ast.Clause]) -> tuple[list[ir.Optional], set[str]]:
        found: list[ir.Optional] = []
        nullable: set[str] = set()
        for clause in clauses:
            if not isinstance(clause, ast.BlockClause) or clause.word != "optional":
                continue
            visible = self.scope.plan_names()
            inner = MatchChecker(context=self.context, scope=self.scope.inner(), optional=True)
            block = inner.block(clause.clauses)
            outer = used_variables(block) & visible
            if not outer:
                self._report_unshared(clause, "optional")
            introduced: list[str] = []
            for name in inner.scope.own:
                bound = inner.scope[name]
                loose = replace(bound, nullable=True, hidden=False)
                self.scope.add(name, loose)
                self.context.variables[bound.plan_name] = loose
                introduced.append(bound.plan_name)
            nullable.update(introduced)
            found.append(ir.Optional(block=block, outer=outer, introduces=tuple(introduced)))
        return found, nullable

    def _negations(self, clauses: Sequence[ast.Clause]) -> tuple[ir.Negation, ...]:
        found: list[ir.Negation] = []
        for clause in clauses:
            if not isinstance(clause, ast.BlockClause) or clause.word != "not":
                continue
            visible = self.scope.plan_names()
            inner = MatchChecker(context=self.context, scope=self.scope.inner())
            block = inner.block(clause.clauses)
            self.context.buried.update(inner.scope.own)
            outer = used_variables(block) & visible
            if not outer:
                self._report_unshared(clause, "negation")
            found.append(ir.Negation(block=block, outer=outer))
        return tuple(found)

    def _report_unshared(self, clause: ast.BlockClause, word: str) -> None:
        if self.context.problems:
            # Broken clauses may have been the shared ones: one mistake, one message.
            return
        message = f"{word} block must reference at least one outer-bound variable"
        shown = [f"`${name}`" for name in self.scope if name != WILDCARD]
        hint = f"the outside binds {', '.join(sorted(shown))}" if shown else None
        self.context.problems.report(clause.at, message, code="T9", hint=hint)

    # --- putting it together ---

    def _own_nodes(self) -> dict[str, ir.NodeBinding]:
        """A binding for every node that this block introduces, written or walked to."""
        own: dict[str, ir.NodeBinding] = {}
        for bound in self._declared.values():
            own[bound.plan_name] = ir.NodeBinding(var=bound.plan_name, type_name=bound.type_name)
        introduced = self.scope.own_plan_names()
        for walk in self._walks:
            for var in (walk.src, walk.dst):
                bound = self.context.variables[var]
                if var not in own and (var in introduced or bound.hidden):
                    own[var] = ir.NodeBinding(var=var, type_name=bound.type_name, declared=False)
        return own

    def _assembled(
        self,
        own: dict[str, ir.NodeBinding],
        optionals: list[ir.Optional],
        nullable: set[str],
        negations: tuple[ir.Negation, ...],
    ) -> ir.MatchBlock:
        edges = {walk.edge_var for walk in self._walks if walk.edge_var}
        on_node: dict[str, list[ir.Expr]] = {}
        on_edge: dict[str, list[ir.Expr]] = {}
        filters: list[ir.Filter] = []
        late: list[ir.Filter] = []
        for expr in self._conjuncts:
            variables = ir.variables_of(expr)
            only = next(iter(variables)) if len(variables) == 1 else ""
            if only in own:
                on_node.setdefault(only, []).append(expr)
            elif only in edges:
                on_edge.setdefault(only, []).append(expr)
            else:
                target = late if variables & nullable else filters
                target.append(ir.Filter(expr=expr, variables=variables))
        return ir.MatchBlock(
            bindings=tuple(
                replace(node, conditions=tuple(on_node.get(node.var, ()))) for node in own.values()
            ),
            traversals=tuple(_with_conditions(walk, on_edge) for walk in self._walks),
            filters=tuple(filters),
            optionals=tuple(optionals),
            late_filters=tuple(late),
            negations=negations,
        )


def _with_conditions(walk: ir.Traversal, on_edge: dict[str, list[ir.Expr]]) -> ir.Traversal:
    found = on_edge.get(walk.edge_var or "")
    return replace(walk, edge_conditions=tuple(found)) if found else walk


def _may_compare(clause: ast.Traversal) -> bool:
    """Whether the clause is `$a word $b` and nothing else, with a word that is an operator."""
    plain = clause.edge_var is None and not clause.undirected and not clause.bounded
    named = WILDCARD not in {clause.src.name, clause.dst.name}
    return plain and named and clause.edge in WORD_OPERATORS


def _comparison(clause: ast.Traversal) -> ast.FilterClause:
    if clause.edge == "in":
        test: ast.Expr = ast.In(clause.src, clause.dst, negated=False, at=clause.edge_at)
    else:
        test = ast.Binary(clause.edge, clause.src, clause.dst, clause.edge_at)
    return ast.FilterClause(test, clause.at)


def _conjuncts(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """The parts of a conjunction, so that each can be applied where it costs least."""
    if not isinstance(expr, ir.And):
        return (expr,)
    return tuple(part for item in expr.items for part in _conjuncts(item))


def used_variables(block: ir.MatchBlock) -> frozenset[str]:
    """Every variable that a block mentions, inner blocks included."""
    used: set[str] = set()
    for node in block.bindings:
        used.add(node.var)
    for walk in block.traversals:
        used |= walk.variables
    for item in (*block.filters, *block.late_filters):
        used |= item.variables
    for inner in (
        *(item.block for item in block.optionals),
        *(item.block for item in block.negations),
    ):
        used |= used_variables(inner)
    return frozenset(used)
