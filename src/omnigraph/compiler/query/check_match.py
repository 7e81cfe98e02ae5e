"""The `match` block: bindings, traversals, filters, optional and negated blocks.

The textual order of clauses does not matter. Each block is read in the order bindings, traversals,
optional blocks, filters, negated blocks, so that every clause knows all variables of its block. A
traversal brings its edge, direction, types of its ends, hop bounds and edge variable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.query import ast, ir
from omnigraph.compiler.query.check_expr import ExprChecker
from omnigraph.compiler.query.check_unwind import UnwindChecker
from omnigraph.compiler.query.legs import Walking, directed, named_edges
from omnigraph.compiler.query.operators import truth
from omnigraph.compiler.query.parse_expr import WORD_OPERATORS
from omnigraph.compiler.query.scope import WILDCARD, Context, Scope
from omnigraph.compiler.query.types import (
    comparable,
    core,
    element,
    fitted,
    is_number,
    literal,
)
from omnigraph.compiler.text import MisfitError, RefusedError
from omnigraph.model.schema import EdgeType, Property, Scalar


class MatchChecker(msgspec.Struct, kw_only=True):
    """Checks one block and builds it. `block()` is the only door."""

    context: Context
    scope: Scope
    _declared: dict[str, ir.Variable] = msgspec.field(default_factory=dict)
    _conjuncts: list[ir.Expr] = msgspec.field(default_factory=list)
    _walks: list[tuple[ast.Traversal, ir.Traversal]] = msgspec.field(default_factory=list)
    _walking: list[Walking] = msgspec.field(default_factory=list)  # of each walk
    _paths: dict[str, int] = msgspec.field(default_factory=dict)  # where each is bound here
    _walked_to: set[str] = msgspec.field(default_factory=set)  # bound here, by walks alone
    _to_unwind: set[str] = msgspec.field(default_factory=set)

    def block(self, clauses: Sequence[ast.Clause]) -> ir.MatchBlock:
        """The block as far as it is sound; problems are in the context."""
        outer = self.scope.plan_names()
        clauses = self._told_apart(clauses)
        bound: list[tuple[ast.Binding, ir.Variable]] = []
        for clause in clauses:
            if isinstance(clause, ast.Binding):
                with suppress(RefusedError):
                    bound.append((clause, self._bind(clause)))
        for clause in clauses:
            if isinstance(clause, ast.Traversal):
                self._walk(clause)
        self._settle_types()
        self._require_reachable(outer | self._declared.keys())
        taken = {*self.scope, *self.scope.paths, *self._paths}
        unwinds = UnwindChecker(context=self.context, scope=self.scope, taken=taken).found(clauses)
        for binding, target in bound:
            self._inline(binding, target)
        own = self._own_nodes()
        optionals, nullable = self._optionals(clauses)
        checker = ExprChecker(context=self.context, scope=self.scope)
        for clause in clauses:
            if isinstance(clause, ast.FilterClause):
                with suppress(RefusedError):
                    self._conjuncts.extend(_conjuncts(checker.condition(clause.expr)))
        found = self._assembled(own, optionals, nullable, self._negations(clauses))
        return replace(found, unwinds=unwinds)

    def _told_apart(self, clauses: Sequence[ast.Clause]) -> list[ast.Clause]:
        """The clauses, with each `$a word $b` that compares two values made a filter.

        It walks an edge if the schema declares that edge and neither variable is a parameter.
        """
        walks = [clause for clause in clauses if isinstance(clause, ast.Traversal)]
        self._to_unwind = {one.var.name for one in clauses if isinstance(one, ast.Unwind)}
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
        values = {*self.context.params, *self.scope.unwound, *self._to_unwind} - set(nodes)
        if ends & values:
            return True
        # With an end that is not bound it is a misspelt edge rather than a comparison.
        return self.context.catalog.edge_named(clause.edge) is None and ends <= set(nodes)

    # --- bindings ---

    def _bind(self, clause: ast.Binding) -> ir.Variable:
        problems = self.context.problems
        if clause.type_name not in self.context.catalog.nodes:
            hint = problems.suggest(clause.type_name, self.context.catalog.nodes)
            if clause.type_name in self.context.catalog.edges:
                walk = clause.type_name[0].lower() + clause.type_name[1:]
                hint = f"`{clause.type_name}` is an edge type; walk it: `$a {walk} $b`"
            message = f"unknown node type `{clause.type_name}`"
            raise problems.refused(clause.type_at, message, code="T1", hint=hint)
        known = self.scope.get(clause.var) if clause.var != WILDCARD else None
        if known is None:
            bound = self.context.bind(self.scope, clause.var, "node", clause.type_name)
            self._declared[bound.name] = bound
            return bound
        if known.kind == "edge":
            message = f"`${clause.var}` is an edge binding and cannot be bound as a node"
            raise problems.refused(clause.at, message, code="T23", hint="choose another name")
        if known.types != (clause.type_name,):
            message = (
                f"variable `${clause.var}` already bound to type `{known.type_name}`, "
                f"cannot rebind to `{clause.type_name}`"
            )
            raise problems.refused(clause.at, message, hint="choose another name")
        return known

    def _inline(self, clause: ast.Binding, bound: ir.Variable) -> None:
        properties = self.context.properties(bound)
        for match in clause.matches:
            with suppress(RefusedError):
                prop = properties.get(match.name)
                left: ir.Expr
                if prop is not None:
                    left = ir.PropertyRef(var=bound.name, prop=prop.name, type=prop.type)
                elif match.name == "id":
                    prop, left = Property(name="id", type=ir.ID), ir.IdRef(var=bound.name)
                else:
                    message = f"node type `{bound.type_name}` has no property `{match.name}`"
                    hint = self.context.problems.suggest(match.name, [*properties, "id"])
                    raise self.context.problems.refused(match.at, message, code="T2", hint=hint)
                value = self._inline_value(match, prop)
                kind = truth(left, value)
                self._conjuncts.append(
                    ir.ListContains(items=left, needle=value, type=kind)
                    if prop.type.is_list
                    else ir.Compare(op=ir.CompareOp.EQ, left=left, right=value, type=kind)
                )

    def _inline_value(self, match: ast.Entry, prop: Property) -> ir.Expr:
        """The value to be equal to; for a list property, the element to be found in it."""
        refused = partial(self.context.problems.refused, match.at, code="T3")
        value = match.value
        if prop.type.scalar is Scalar.BLOB:
            raise refused(f"Blob property `{prop.name}` cannot be matched")
        target = element(prop.type) if prop.type.is_list else prop.type
        if target.scalar is Scalar.VECTOR:
            message = f"Vector property `{prop.name}` cannot be matched for equality"
            raise refused(message, hint="order by `nearest(...)` instead")
        if isinstance(value, ast.Lit | ast.ListLit):
            return self._inline_literal(value, prop, match)
        given: ir.Expr
        if isinstance(value, ast.NowCall):
            given = ir.Now()
        elif isinstance(value, ast.Var):
            given = self._parameter(value)
        else:
            given = ExprChecker(context=self.context, scope=self.scope).check(value)
        if given.type.is_list or not comparable(given.type, target):
            message = (
                f"property `{prop.name}` has type {core(prop.type)} but got {core(given.type)}"
            )
            if prop.type.is_list:
                message += "; a scalar means membership"
            raise refused(message)
        return given

    def _inline_literal(
        self, value: ast.Lit | ast.ListLit, prop: Property, match: ast.Entry
    ) -> ir.Expr:
        refused = partial(self.context.problems.refused, match.at, code="T3")
        target = element(prop.type) if prop.type.is_list else prop.type
        if isinstance(value, ast.Lit) and value.kind == "null":
            message = f"property `{prop.name}` cannot be matched with null"
            raise refused(message, hint=f"write the clause `$x.{prop.name} is null`")
        if isinstance(value, ast.ListLit) and prop.type.is_list:
            message = f"list property `{prop.name}` cannot be matched with a list"
            raise refused(f"{message}; a scalar means membership")
        try:
            if is_number(target) and isinstance(value, ast.Lit):
                plain = literal(value)
                # Numbers of all types compare by value, so `{ age: 25.5 }` is fine, if never true.
                if is_number(plain.type):
                    return plain
            return fitted(value, target, prop.name)
        except MisfitError as error:
            raise error.at(match.at, self.context.problems, code="T3") from error

    def _parameter(self, value: ast.Var) -> ir.Expr:
        """A parameter; inside `{…}` it wins over a variable of the same name."""
        refused = partial(self.context.problems.refused, value.at)
        declared = self.context.params.get(value.name)
        if declared is not None:
            return ir.Param(name=value.name, type=declared)
        if value.name in {*self.scope.unwound, *self.context.records}:
            return ExprChecker(context=self.context, scope=self.scope).variable(value)
        if value.name in self.scope:
            message = f"`${value.name}` is bound in the match and has no value to be equal to"
            hint = f"compare properties in a clause of their own: `$x.p = ${value.name}.q`"
            raise refused(message, code="T3", hint=hint)
        hint = f"declare it as a parameter: `query name(${value.name}: Type)`"
        raise refused(f"variable `${value.name}` is not bound", hint=hint)

    # --- traversals ---

    def _walk(self, clause: ast.Traversal) -> None:
        edges = named_edges(self.context, clause.names, clause.edge_at)
        bounds = self._bounds(clause)
        if edges is None:
            return
        sound, (low, high) = bounds is not None, bounds or (1, 1)
        edge = self.context.catalog.edge_named(clause.edge)
        within = edge is not None and edge.from_type == edge.to_type
        walking = Walking(
            edges=edges,
            undirected=clause.undirected,
            low=low,
            high=high,
            plain=edge is not None and low > 0,
        )
        if clause.undirected and edge is not None and not within:
            message = (
                f"undirected traversal needs an edge between nodes of one type; "
                f"`{edge.name}` goes from {edge.from_type} to {edge.to_type}"
            )
            hint = f"write `$a {clause.edge} $b`; it is walked backwards when `$b` is bound"
            self.context.problems.report(clause.edge_at, message, code="T22", hint=hint)
            return
        sound = self._edge_variable_is_free(clause) and sound
        if sound and clause.bounded and clause.edge_var is not None:
            self._paths[clause.edge_var.name] = clause.edge_var.at
        src = self._end(clause.src, walking, "source")
        dst = self._end(clause.dst, walking, "destination")
        edge_var = None
        if sound and clause.edge_var is not None and not clause.bounded:
            names = [edge.name for edge in edges]
            edge_var = self.context.bind(self.scope, clause.edge_var.name, "edge", *names).name
        if not sound or src is None or dst is None:
            return
        if walking.plain and not within:
            high = min(high, 1)
        walk = ir.Traversal(
            src=src,
            dst=dst,
            legs=(),
            edge_var=edge_var,
            undirected=clause.undirected,
            min_hops=low,
            max_hops=high,
        )
        self._walks.append((clause, walk))
        self._walking.append(walking)

    def _settle_types(self) -> None:
        """Give every variable that this block walks to the types that all its walks allow, and
        every walk the edges that can fit."""
        changed = True
        while changed:  # each round takes types away, so there is a last one
            changed = False
            for (clause, walk), walking in zip(self._walks, self._walking, strict=True):
                starts, ends = self._types(walk.src), self._types(walk.dst)
                for name, fitting in (
                    (walk.src, starts & walking.sources(ends)),
                    (walk.dst, ends & walking.targets(starts)),
                ):
                    if not fitting:
                        self._report_unfit(clause, walk)
                        return
                    if name in self._walked_to and fitting < self._types(name):
                        self._retype(name, fitting)
                        changed = True
        settled = []
        for (clause, walk), walking in zip(self._walks, self._walking, strict=True):
            starts, ends = self._types(walk.src), self._types(walk.dst)
            walk = replace(walk, legs=walking.legs(starts, ends))
            if walk.edge_var is not None:
                self._retype(walk.edge_var, frozenset(leg.edge_type for leg in walk.legs))
            if clause.bounded and clause.edge_var is not None:
                self._bind_path(clause.edge_var, walk)
            settled.append((clause, directed(walk, starts, ends)))
        self._walks = settled

    def _types(self, name: str) -> frozenset[str]:
        return frozenset(self.context.variables[name].types)

    def _retype(self, name: str, types: frozenset[str]) -> None:
        bound = replace(self.context.variables[name], types=tuple(sorted(types)))
        self.context.variables[name] = bound
        for written, known in self.scope.items():
            if known.name == name:
                self.scope[written] = bound

    def _report_unfit(self, clause: ast.Traversal, walk: ir.Traversal) -> None:
        one, other = (self.context.variables[end].type_name for end in (walk.src, walk.dst))
        message = f"no edge of `{clause.edge}` leads from {one} to {other}"
        hint = "swap the two variables, walk other edges, or another number of hops"
        self.context.problems.report(clause.edge_at, message, code="T5", hint=hint)

    def _bind_path(self, var: ast.Var, walk: ir.Traversal) -> None:
        if var.name == WILDCARD:
            return
        self.scope.path_places[var.name] = var.at
        self.scope.paths[var.name] = ir.Way(
            src=walk.src,
            dst=walk.dst,
            legs=walk.legs,
            undirected=walk.undirected,
            min_hops=walk.min_hops,
            max_hops=walk.max_hops,
            nullable=False,
        )

    def _bounds(self, clause: ast.Traversal) -> tuple[int, int] | None:
        low, high = clause.min_hops, clause.max_hops
        if high is None:
            return low, ir.HOPS_OPEN
        if high >= low and high > 0:
            return low, high
        message = f"hop bounds go from small to large, not from {low} to {high}"
        hint = f"write `{{{high},{low}}}`"
        if high == low:
            message, hint = "no hops at all lead nowhere else", f"write `{{{low},1}}`"
        self.context.problems.report(clause.bounds_at, message, code="T15", hint=hint)
        return None

    def _end(self, var: ast.Var, walking: Walking, side: str) -> str | None:
        """The plan name of an endpoint; an unknown variable takes its types from the edges."""
        problems = self.context.problems
        expected = walking.sources(None) if side == "source" else walking.targets(None)
        known = self.scope.get(var.name) if var.name != WILDCARD else None
        if var.name in self.scope.paths or var.name in self._paths:
            message = f"`${var.name}` is a path and cannot be an endpoint of a traversal"
            problems.report(var.at, message, code="T23", hint="choose another name")
            return None
        if known is None:
            if walking.low == 0:  # a walk of no hops ends where it begins, whatever is there
                expected = frozenset(self.context.catalog.nodes)
            elif not expected:  # no edge leads so far
                expected = walking.everything
            bound = self.context.bind(self.scope, var.name, "node", *sorted(expected))
            self._walked_to.add(bound.name)
            return bound.name
        if known.kind == "edge":
            message = f"edge binding `${var.name}` cannot be an endpoint of a traversal"
            hint = "an edge has no edges; use the nodes at its ends"
            problems.report(var.at, message, code="T23", hint=hint)
            return None
        stays = walking.low == 0 and known.is_open
        if not stays and not expected & set(known.types):
            name = "|".join(edge.name for edge in walking.edges)
            message = (
                f"`${var.name}` has type `{known.type_name}` but the {side} of `{name}` "
                f"is `{'|'.join(sorted(expected))}`"
            )
            hint = self._end_hint(known, walking.edges)
            problems.report(var.at, message, code="T5", hint=hint)
            return None
        return known.name

    def _end_hint(self, known: ir.Variable, edges: Sequence[EdgeType]) -> str:
        shape = ", ".join(
            f"`{edge.name}` goes from {edge.from_type} to {edge.to_type}" for edge in edges
        )
        if any(end in known.types for edge in edges for end in (edge.from_type, edge.to_type)):
            return f"{shape}; swap the two variables"
        touching = {
            other.name
            for name in known.types
            for other in self.context.catalog.edges_touching(name)
        }
        if not touching:
            return f"{shape}; no edge touches {known.type_name}"
        names = ", ".join(f"`{name[0].lower()}{name[1:]}`" for name in sorted(touching)[:8])
        return f"{shape}; edges of {known.type_name}: {names}"

    def _edge_variable_is_free(self, clause: ast.Traversal) -> bool:
        var = clause.edge_var
        if var is None or var.name == WILDCARD:
            return True
        known = self.scope.get(var.name)
        if var.name in {clause.src.name, clause.dst.name}:
            message = "must be distinct from the endpoint variables of its traversal"
        elif known is not None:
            message = f"is already bound as {'an edge' if known.kind == 'edge' else 'a node'}"
        elif var.name in self.scope.paths or var.name in self._paths:
            message = "is already bound as a path"
        else:
            return True
        message = f"{'path' if clause.bounded else 'edge'} binding `${var.name}` {message}"
        self.context.problems.report(var.at, message, code="T23", hint="choose another name")
        return False

    def _require_reachable(self, bound: frozenset[str]) -> None:
        """Report each traversal that no order of walking can start from a bound variable."""
        reached = set(bound)
        waiting = self._walks
        progress = True
        while progress:
            progress = False
            for _, walk in waiting:
                if walk.src in reached or walk.dst in reached:
                    reached |= {walk.src, walk.dst}
                    progress = True
            waiting = [pair for pair in waiting if not {pair[1].src, pair[1].dst} <= reached]
        for clause, walk in waiting:
            ends = " or ".join(
                f"`${var.name}: {self.context.variables[name].types[0]}`"
                for var, name in ((clause.src, walk.src), (clause.dst, walk.dst))
                if var.name != WILDCARD
            )
            message = f"traversal `{clause.edge}` starts nowhere: neither of its ends is bound"
            hint = f"bind one of them: {ends}" if ends else "bind one of its ends"
            self.context.problems.report_unplannable(clause.at, message, hint=hint)

    # --- inner blocks ---

    def _inner(
        self, clauses: Sequence[ast.Clause], word: str, called: str
    ) -> Iterator[tuple[Scope, ir.MatchBlock, frozenset[str]]]:
        """Every inner block of that word: its scope, the block, and what it uses of the outside."""
        for clause in clauses:
            if isinstance(clause, ast.BlockClause) and clause.word == word:
                visible = self.scope.plan_names()
                inner = MatchChecker(context=self.context, scope=Scope(self.scope))
                block = inner.block(clause.clauses)
                outer = used_variables(block) & visible
                if word == "not":
                    self.context.buried.update(inner.scope.own)
                if not outer:
                    self._report_unshared(clause, called)
                yield inner.scope, block, outer

    def _optionals(self, clauses: Sequence[ast.Clause]) -> tuple[list[ir.Optional], set[str]]:
        found: list[ir.Optional] = []
        nullable: set[str] = set()
        for scope, block, outer in self._inner(clauses, "optional", "optional"):
            introduced: list[str] = []
            for name in scope.own:
                loose = replace(scope[name], nullable=True, hidden=False)
                self.scope.add(name, loose)
                self.context.variables[loose.name] = loose
                introduced.append(loose.name)
            for name in scope.own_unwound:
                item = scope.unwound[name].loose()
                self.scope.unwind(name, item)
                introduced.append(item.name)
            introduced += self._take_paths(scope, introduced)
            nullable.update(introduced)
            found.append(ir.Optional(block=block, outer=outer, introduces=tuple(introduced)))
        return found, nullable

    def _take_paths(self, scope: Scope, introduced: Sequence[str]) -> list[str]:
        """Take over the paths of an optional block; returns those of their ends without a name."""
        unnamed: list[str] = []
        for name in sorted(scope.paths.keys() - self.scope.paths.keys()):
            way = self.scope.paths[name] = replace(scope.paths[name], nullable=True)
            ends = {way.src, way.dst}
            for end in sorted(ends - self.scope.plan_names() - {*introduced, *unnamed}):
                bound = self.context.variables[end]
                self.context.variables[end] = replace(bound, nullable=True)
                unnamed.append(end)
            # One of a block inside this one was judged, and told of, there.
            if name in scope.path_places and ends.isdisjoint({*introduced, *unnamed}):
                message = f"path binding `${name}` needs an end that its optional block binds"
                hint = "`shortest($a, $b, edge)` is a path between two bound nodes, or null"
                at = scope.path_places[name]
                self.context.problems.report(at, message, code="T23", hint=hint)
        return unnamed

    def _negations(self, clauses: Sequence[ast.Clause]) -> tuple[ir.Negation, ...]:
        return tuple(
            ir.Negation(block=block, outer=outer)
            for _, block, outer in self._inner(clauses, "not", "negation")
        )

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
            own[bound.name] = ir.NodeBinding(var=bound.name, types=bound.types)
        introduced = {self.scope[name].name for name in self.scope.own}
        for _, walk in self._walks:
            for var in (walk.src, walk.dst):
                bound = self.context.variables[var]
                if var not in own and (var in introduced or bound.hidden):
                    own[var] = ir.NodeBinding(var=var, types=bound.types, declared=False)
        return own

    def _assembled(
        self,
        own: dict[str, ir.NodeBinding],
        optionals: list[ir.Optional],
        nullable: set[str],
        negations: tuple[ir.Negation, ...],
    ) -> ir.MatchBlock:
        edges = {walk.edge_var for _, walk in self._walks if walk.edge_var}
        on_node: dict[str, list[ir.Expr]] = {}
        on_edge: dict[str, list[ir.Expr]] = {}
        filters: list[ir.Filter] = []
        late: list[ir.Filter] = []
        for expr in self._conjuncts:
            variables = ir.variables_of(expr)
            # What asks the graph is asked of rows, not of a table.
            alone = len(variables) == 1 and not ir.asks_graph(expr)
            only = next(iter(variables)) if alone else ""
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
            traversals=tuple(
                replace(walk, edge_conditions=tuple(on_edge.get(walk.edge_var or "", ())))
                for _, walk in self._walks
            ),
            filters=tuple(filters),
            optionals=tuple(optionals),
            late_filters=tuple(late),
            negations=negations,
        )


def inner_block(
    context: Context, scope: Scope, written: ast.Block
) -> tuple[ir.MatchBlock, frozenset[str]]:
    """The block of `exists { }` or `count { }`, and the variables that it uses of the outside."""
    visible = scope.plan_names()
    checker = MatchChecker(context=context, scope=Scope(scope))
    known = len(context.problems.found())
    block = checker.block(written.clauses)
    context.buried.update(checker.scope.own)
    if len(context.problems.found()) > known:
        raise RefusedError
    return block, used_variables(block) & visible


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
    used = {node.var for node in block.bindings}
    for walk in block.traversals:
        used |= walk.variables
    for item in (*block.filters, *block.late_filters):
        used |= item.variables
    for unwind in block.unwinds:
        used |= unwind.variables
    inner = [item.block for item in block.optionals] + [item.block for item in block.negations]
    used.update(*map(used_variables, inner))
    return frozenset(used)
