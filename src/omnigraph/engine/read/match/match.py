"""How a match runs: start at the most selective variable, walk, filter as early as possible."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import pa
from omnigraph.engine.expr.evaluate import can_fail, holding
from omnigraph.engine.expr.order import equal_codes
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.match.candidates import Candidates, only_binding
from omnigraph.engine.read.match.joint import course, is_simple
from omnigraph.engine.read.match.relation import MatchedRows, Relation, joined_rows
from omnigraph.engine.read.match.scan import selected_edges
from omnigraph.engine.read.match.unwind import unwound
from omnigraph.engine.read.match.walk import ends, expand
from omnigraph.engine.read.memory.arrays import NO_POSITIONS, Mask, Positions
from omnigraph.engine.read.memory.topology import Direction, Lookups

CROSS_CHUNK_ROWS: Final = 1 << 20
LOOKED_UP_SHARE: Final = 8  # for fewer than this part of a table, entities are found by their ids
HOPS_GUESSED_MAX: Final = 16  # more hops make no bigger guess
EDGE_SCAN_SHARE: Final = 4  # from this part of the nodes on, their edges are not walked but scanned


NO_VARIABLES: Final = Relation(1, {})  # crossed, one row changes nothing


def match(run: Run, block: ir.MatchBlock, outer: Relation = NO_VARIABLES) -> Relation:
    """All rows of a stage's match, each an extension of a row of the stage before."""
    return _Block(run, block, outer, depth=0).rows()


def count_inner(run: Run, relation: Relation, value: ir.BlockValue) -> Positions:
    """How often the block of `exists { }` or `count { }` matches for each row; of `exists` only
    whether it does."""
    if not relation.count:
        return NO_POSITIONS
    with run.trace.step(value.word, " ".join(sorted(value.outer))) as record:
        counts = _Block(run, value.block, relation, depth=0).counts(
            value.outer, exists=value.word == "exists"
        )
        record.rows = int(np.count_nonzero(counts))
    return counts


class _Block:
    """One level of a match, with the rows of the level above fixed."""

    def __init__(self, run: Run, block: ir.MatchBlock, outer: Relation, *, depth: int) -> None:
        self._run = run
        self._block = block
        self._outer = outer
        self._depth = depth
        self._todo = list(block.traversals)
        self._filters = [clause for clause in block.filters if not _fails_alone(clause)]
        self._fatal = [clause for clause in block.filters if _fails_alone(clause)]
        self._unwinds = list(block.unwinds)
        self._candidates = {binding.var: Candidates(run, binding) for binding in block.bindings}

    def rows(self, *, only_existence: bool = False) -> Relation:
        """The rows of the block, each an extension of an outer row."""
        if self._outer is NO_VARIABLES and only_binding(self._block) is not None:
            return self._start(self._candidates)
        pieces = [self._grow(self._filtered(self._outer))]
        lists = self._constant_lists()
        pieces += [self._unwound(self._elements(NO_VARIABLES, unwind)) for unwind in lists]
        for group in self._groups():
            if not self._looked_up(group, pieces):
                pieces.append(self._grow(self._start(group)))
        relation = self._combined(pieces, only_existence=only_existence)
        # Late filters look at what an optional block found; negations then have fewer rows to ask
        # about; a condition that can fail alone may only fail for a row that all others keep.
        for optional in self._block.optionals:
            relation = self._extended(relation, optional)
        for late in self._block.late_filters:
            relation = self._where(relation, late)
        for negation in self._block.negations:
            relation = self._without(relation, negation)
        for clause in self._fatal:
            relation = self._where(relation, clause)
        return relation

    # --- joining one group of connected variables ---

    def _groups(self) -> list[list[str]]:
        """The variables that no walk from the outer rows reaches, by connection."""
        if not self._block.traversals and not self._outer.columns:
            return [[var] for var in self._candidates]
        outer = {var for var in self._outer.columns if isinstance(var, str)}
        group_of = {var: {var} for var in (*outer, *self._candidates)}
        for step in self._block.traversals:
            merged = group_of.get(step.src, set()) | group_of.get(step.dst, set())
            group_of.update(dict.fromkeys(merged, merged))
        groups = dict.fromkeys(frozenset(group_of[var]) for var in self._candidates)
        return [sorted(group) for group in groups if group.isdisjoint(outer)]

    def _start(self, group: Iterable[str]) -> Relation:
        """Scan the variable of the group that has the fewest candidates, or a table of edges if
        that leaves most of its nodes."""
        estimates = {var: self._candidates[var].estimate() for var in group}
        var = min(estimates, key=estimates.__getitem__)
        estimate = estimates[var]
        if self._todo and estimate * EDGE_SCAN_SHARE >= self._run.row_count_of(var):
            for walk in self._todo:
                simple = _scannable(walk) and is_simple(self._run.variables, walk)
                if simple and var in (walk.src, walk.dst):
                    return self._edges(walk)
        found = self._candidates[var]
        if found.way == "by id":
            self._begin_walks(var)
        detail = f"${var}: {found.binding.type_name} ({found.way})"
        with self._run.trace.step("scan", detail, estimate) as step:
            relation = Relation.of(var, found.found())
            step.rows = relation.count
        self._run.budget.reserve(relation.count)
        return self._filtered(relation)

    def _begin_walks(self, var: str) -> None:
        """Let begin, beside the look for a few nodes, what a walk from them would wait for."""
        for walk in self._todo:
            if var in (walk.src, walk.dst) and len(walk.legs) == 1 and walk.edge_var is None:
                self._run.begin_lookups(walk.edge_type, "src" if var == walk.src else "dst")

    def _looked_up(self, group: Collection[str], pieces: list[Relation]) -> bool:
        """Reach the group by ids that a small piece has, if a condition says that they are equal;
        the piece is then the one with the group."""
        for at, piece in enumerate(pieces):
            for clause in self._filters:
                sides = _id_sides(self._run, clause, group, piece)
                if sides is None:
                    continue
                var, ids = sides
                if piece.count * LOOKED_UP_SHARE > self._run.entry_of(var).row_count:
                    continue
                self._filters.remove(clause)
                with self._run.trace.step("look up", f"${var} by id") as step:
                    values = MatchedRows(self._run, piece).values(ids)
                    found = self._candidates[var].frame.lookup_all(values)
                    grown = piece.with_column(var, found).where(found >= 0)
                    grown = grown.where(self._candidates[var].among(grown[var]))
                    grown = self._filtered(grown)
                    step.rows = grown.count
                pieces[at] = self._grow(grown)
                return True
        return False

    def _edges(self, step: ir.Traversal) -> Relation:
        """Start at the edges themselves: their ends are looked up if somebody asks for them."""
        self._todo.remove(step)
        with self._run.trace.step("scan", f"{_walk_text(step)} (edges)") as record:
            relation = selected_edges(self._run, step)
            self._run.budget.reserve(relation.count)
            for var in (step.src, step.dst):
                if var in self._candidates and self._candidates[var].binding.conditions:
                    relation = relation.where(self._candidates[var].among(relation[var]))
            record.rows = relation.count
        return self._filtered(relation)

    def _grow(self, relation: Relation) -> Relation:
        """Walk every traversal that can be reached, the cheapest first."""
        while self._todo:
            known = relation.columns
            reachable = [step for step in self._todo if step.src in known or step.dst in known]
            if not reachable:
                break
            step = reachable[0]
            if len(reachable) > 1:
                step = min(reachable, key=lambda step: self._cost(relation, step))
            self._todo.remove(step)
            relation = self._walked(relation, step)
        return self._unwound(relation)

    def _cost(self, relation: Relation, step: ir.Traversal) -> float:
        """Rows to expect; between two bound ends a walk only removes rows, so it goes first."""
        if step.src in relation and step.dst in relation:
            return 0.0
        near, far, _ = ends(relation, step)
        edges = sum(self._run.entry("edge", leg.edge_type).row_count for leg in step.legs)
        nodes = max(1, self._run.row_count_of(near))
        growth = min((edges / nodes) ** min(step.max_hops, HOPS_GUESSED_MAX), float(edges + nodes))
        share = 1.0
        if far in self._candidates and self._candidates[far].binding.conditions:
            total = max(1, self._run.row_count_of(far))
            share = self._candidates[far].estimate() / total
        return relation.count * growth * share

    def _walked(self, relation: Relation, step: ir.Traversal) -> Relation:
        estimate = None
        if self._run.trace.recording:
            bound = step.src in relation and step.dst in relation
            estimate = relation.count if bound else int(self._cost(relation, step))
        with self._run.trace.step("expand", _walk_text(step), estimate) as record:
            known = set(relation.columns)
            grown = expand(self._run, relation, step)
            for var in (step.src, step.dst):
                found = None if var in known else self._candidates.get(var)
                if found is not None and found.binding.conditions:
                    grown = grown.where(found.among(grown[var]))
            if step.edge_conditions:
                grown = grown.where(self._true_for(grown, *step.edge_conditions))
            grown = self._filtered(grown)
            record.rows = grown.count
        return grown

    # --- lists ---

    def _constant_lists(self) -> list[ir.Unwind]:
        """The lists that are the same for all rows: each is a piece of its own."""
        if not self._unwinds:
            return []
        found = [unwind for unwind in self._unwinds if not unwind.variables]
        self._unwinds = [unwind for unwind in self._unwinds if unwind.variables]
        return found

    def _unwound(self, relation: Relation) -> Relation:
        """Unwind every waiting list whose variables are all there."""
        while self._unwinds:
            ready = [one for one in self._unwinds if one.variables <= relation.columns.keys()]
            ready = [one for one in ready if one.variables]
            if not ready:
                break
            self._unwinds.remove(ready[0])
            relation = self._elements(relation, ready[0])
        return relation

    def _elements(self, relation: Relation, unwind: ir.Unwind) -> Relation:
        """The rows, each once for every element of its list."""
        with self._run.trace.step("unwind", f"${unwind.var}") as record:
            found = unwound(self._run, relation, unwind)
            record.rows = found.count
        return self._filtered(found)

    # --- conditions over several variables ---

    def _true_for(self, relation: Relation, *conditions: ir.Expr) -> Mask:
        return holding(conditions, MatchedRows(self._run, relation))

    def _filtered(self, relation: Relation) -> Relation:
        """Apply every waiting filter whose variables are all there."""
        for clause in list(self._filters) if self._filters else ():
            if clause.variables <= relation.columns.keys():
                self._filters.remove(clause)
                relation = self._where(relation, clause)
        return relation

    def _where(self, relation: Relation, clause: ir.Filter) -> Relation:
        if not relation.count:
            return relation
        with self._run.trace.step("filter", " ".join(sorted(clause.variables))) as record:
            relation = relation.where(self._true_for(relation, clause.expr))
            record.rows = relation.count
        return relation

    def _combined(self, pieces: Sequence[Relation], *, only_existence: bool) -> Relation:
        """The pieces joined: by an equality between them if there is one, crossed otherwise."""
        result, *rest = pieces
        # Without an outer variable the first piece is one empty row, which changes nothing.
        if not result.columns and result.count == 1 and rest:
            result, *rest = sorted(rest, key=lambda piece: piece.count)
        if not rest:
            return result
        if only_existence:
            # One row is enough, unless something still looks at the variables.
            clauses = (*self._filters, *self._block.late_filters)
            inner: tuple[ir.Optional | ir.Negation, ...]
            inner = (*self._block.optionals, *self._block.negations)
            used = {var for clause in clauses for var in clause.variables}
            used |= {var for block in inner for var in block.outer}
            used |= {var for unwind in self._unwinds for var in unwind.variables}
            rest = [
                piece if used & piece.columns.keys() else piece.slice(0, min(1, piece.count))
                for piece in rest
            ]
        rest = sorted(rest, key=lambda piece: piece.count)
        while rest:
            piece, equality = self._next_piece(result, rest)
            rest = [other for other in rest if other is not piece]
            with self._run.trace.step("join", "by value" if equality else "all pairs") as record:
                if equality is not None:
                    self._filters.remove(equality)
                    result = self._filtered(self._equal(result, piece, equality))
                else:
                    result = self._crossed(result, piece)
                result = self._unwound(result)
                record.rows = result.count
        return result

    def _next_piece(
        self, result: Relation, rest: Sequence[Relation]
    ) -> tuple[Relation, ir.Filter | None]:
        for piece in rest:
            for clause in self._filters:
                if _sides(clause, result, piece) is not None:
                    return piece, clause
        return rest[0], None

    def _equal(self, left: Relation, right: Relation, clause: ir.Filter) -> Relation:
        sides = _sides(clause, left, right)
        assert sides is not None, "the caller looked"
        a = MatchedRows(self._run, left).values(sides[0])
        b = MatchedRows(self._run, right).values(sides[1])
        both = pa.concat_arrays([a, b])
        keys = equal_codes(both)
        if pa.types.is_floating(both.type):
            keys[np.isnan(both.fill_null(0).to_numpy(zero_copy_only=False))] = -1  # NaN equals none
        known_a = np.flatnonzero(keys[: len(a)] >= 0)
        known_b = np.flatnonzero(keys[len(a) :] >= 0)
        rows_a, rows_b = joined_rows(keys[: len(a)][known_a], keys[len(a) :][known_b])
        self._run.budget.reserve(len(rows_a), len(left.columns) + len(right.columns))
        return left.take(known_a[rows_a]).beside(right.take(known_b[rows_b]))

    def _crossed(self, left: Relation, right: Relation) -> Relation:
        """All pairs; when filters wait for them, a chunk of pairs at a time."""
        width = len(left.columns) + len(right.columns)
        names = left.columns.keys() | right.columns.keys()
        waiting = [clause for clause in self._filters if clause.variables <= names]
        if not waiting or left.count * right.count <= CROSS_CHUNK_ROWS:
            self._run.budget.reserve(left.count * right.count, width)
            return self._filtered(left.crossed(right))
        step = max(1, CROSS_CHUNK_ROWS // max(1, right.count))
        parts: list[Relation] = []
        held = 0
        for first in range(0, left.count, step):
            rows = np.arange(first, min(first + step, left.count), dtype=np.int64)
            part = left.take(rows).crossed(right)
            for clause in waiting:
                part = part.where(self._true_for(part, clause.expr))
            held += part.count
            self._run.budget.reserve(held, width)
            parts.append(part)
        self._filters = [clause for clause in self._filters if clause not in waiting]
        columns = {var: np.concatenate([part[var] for part in parts]) for var in parts[0].columns}
        return Relation(held, columns)

    # --- inner blocks ---

    def _inner(
        self, relation: Relation, block: ir.MatchBlock, outer: Iterable[str], *, exists: bool
    ) -> tuple[Relation, Positions, Positions, Mask]:
        """Run a block once per different outer row.

        Returns its rows, the number of the outer row that each belongs to, the number of each row
        of the relation, and whether anything was found for it.
        """
        base, back = relation.only(sorted(outer)).distinct()
        inner = _Block(self._run, block, base.numbered(self._depth), depth=self._depth + 1)
        found = inner.rows(only_existence=exists)
        matched = np.zeros(base.count, dtype=np.bool_)
        matched[found[self._depth]] = True
        return found, found[self._depth], back, matched[back]

    def _without(self, relation: Relation, negation: ir.Negation) -> Relation:
        if not relation.count:
            return relation
        with self._run.trace.step("not", " ".join(sorted(negation.outer))) as record:
            counts = self._bare(relation, negation.block, exists=True)
            if counts is None:
                *_, has = self._inner(relation, negation.block, negation.outer, exists=True)
            else:
                has = counts > 0
            relation = relation.where(~has)
            record.rows = relation.count
        return relation

    def _bare(self, relation: Relation, block: ir.MatchBlock, *, exists: bool) -> Positions | None:
        """How many neighbours the block finds for each row, or just whether any, if it asks for
        nothing else: then nothing has to be listed."""
        bare = _bare_walk(block, relation)
        if bare is None or (
            bare.max_hops > 1 and not (exists and is_simple(self._run.variables, bare))
        ):
            return None
        near, far, direction = ends(relation, bare)
        if not self._all_fit(bare, near, far, direction):
            return None
        there = relation[near] >= 0
        along = course(self._run, bare)
        nodes = along.entered(self._run, near, np.where(there, relation[near], 0))
        assert not isinstance(along.adjacency, Lookups), "they were not asked for"
        if exists:
            found = along.adjacency.has_any(nodes, direction).astype(np.int64)
        else:
            per_edge = bare.edge_var is not None
            found = along.adjacency.counts(nodes, direction, per_edge=per_edge)
        return np.where(there, found, 0)

    def _all_fit(self, step: ir.Traversal, near: str, far: str, direction: Direction) -> bool:
        """Whether whatever one hop finds is of a type that the far end may be."""
        here, there = (self._run.variables[var].types for var in (near, far))
        ways = [(leg.from_type, leg.to_type) for leg in step.legs if direction != "in"]
        ways += [(leg.to_type, leg.from_type) for leg in step.legs if direction != "out"]
        return all(b in there for a, b in ways if a in here)

    def counts(self, outer: Iterable[str], *, exists: bool) -> Positions:
        """How often the block matches for each row around it; with `exists` 1 for any number."""
        found = self._bare(self._outer, self._block, exists=exists)
        if found is not None:
            return found
        _, number, back, has = self._inner(self._outer, self._block, outer, exists=exists)
        if exists:
            return has.astype(np.int64)
        return np.bincount(number, minlength=int(back.max(initial=-1)) + 1)[back]

    def _extended(self, relation: Relation, optional: ir.Optional) -> Relation:
        with self._run.trace.step("optional", " ".join(optional.introduces)) as record:
            found, number, back, has = self._inner(
                relation, optional.block, optional.outer, exists=False
            )
            rows, matches = joined_rows(back, number)
            self._run.budget.reserve(
                len(rows) + relation.count, len(relation.columns) + len(optional.introduces)
            )
            alone = np.flatnonzero(~has)
            grown = {
                var: np.concatenate([relation[var][rows], relation[var][alone]])
                for var in relation.columns
            }
            missing = np.full(len(alone), -1, dtype=np.int64)
            for var in optional.introduces:
                grown[var] = np.concatenate([found[var][matches], missing])
            record.rows = len(rows) + len(alone)
        return Relation(len(rows) + len(alone), grown)


def _fails_alone(clause: ir.Filter) -> bool:
    """A condition on constants that may end in an error, which needs a row that all others keep."""
    return not clause.variables and can_fail(clause.expr)


def _scannable(step: ir.Traversal) -> bool:
    """Whether each edge of the table gives at most one row of the step, by itself."""
    if step.edge_var is None or step.undirected or step.src == step.dst or len(step.legs) != 1:
        return False
    return all(ir.variables_of(condition) <= {step.edge_var} for condition in step.edge_conditions)


def _walk_text(step: ir.Traversal) -> str:
    name = f"<{step.edge_type}>" if step.undirected else step.edge_type
    high = "" if step.max_hops == ir.HOPS_OPEN else step.max_hops
    plain = (step.min_hops, step.max_hops) == (1, 1)
    hops = "" if plain else f"{{{step.min_hops},{high}}}"
    edge = f"${step.edge_var}:" if step.edge_var else ""
    return f"${step.src} {edge}{name}{hops} ${step.dst}"


def _sides(clause: ir.Filter, left: Relation, right: Relation) -> tuple[ir.Expr, ir.Expr] | None:
    """The two sides of an equality between the relations, the left one's first."""
    equality = clause.expr
    if not isinstance(equality, ir.Compare) or equality.op is not ir.CompareOp.EQ:
        return None
    for a, b in ((equality.left, equality.right), (equality.right, equality.left)):
        a_vars, b_vars = ir.variables_of(a), ir.variables_of(b)
        between = a_vars and b_vars and a.type.scalar is b.type.scalar
        if between and a_vars <= left.columns.keys() and b_vars <= right.columns.keys():
            return a, b
    return None


def _id_sides(
    run: Run, clause: ir.Filter, group: Collection[str], piece: Relation
) -> tuple[str, ir.Expr] | None:
    """The variable of the group whose id an equality names, and the ids in the piece."""
    equality = clause.expr
    if not isinstance(equality, ir.Compare) or equality.op is not ir.CompareOp.EQ:
        return None
    for side, other in ((equality.left, equality.right), (equality.right, equality.left)):
        named = isinstance(side, ir.IdRef | ir.PropertyRef) and side.var in group
        there = ir.variables_of(other)
        if named and there and there <= piece.columns.keys() and run.names_entity(side):
            return side.var, other
    return None


def _bare_walk(block: ir.MatchBlock, outer: Relation) -> ir.Traversal | None:
    """The traversal of a block that asks nothing but whether there is any neighbour."""
    if block.filters or block.optionals or block.late_filters or block.negations:
        return None
    if block.unwinds:
        return None
    if len(block.traversals) != 1 or any(binding.conditions for binding in block.bindings):
        return None
    step = block.traversals[0]
    inside = {binding.var for binding in block.bindings}
    far = {step.src, step.dst} - outer.columns.keys()
    if len(far) != 1 or not inside <= far or step.edge_conditions or step.min_hops != 1:
        return None
    return step
