"""Counting without listing: a variable that is only counted becomes a weight of its neighbour.

`return { $p.name, count($f) }` over `$p knows $f` needs how many friends each person has, not the
friends. The walk to such a variable is left out of the match; its rows are counted instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.read.column import Positions
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.relation import Relation
from omnigraph.engine.read.topology import Direction


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """A match without one walk, and how to count what the walk would have given."""

    block: ir.MatchBlock
    near: str
    edge_type: str
    direction: Direction
    per_edge: bool  # count edges, not neighbours

    def weigh(self, run: Run, relation: Relation) -> tuple[Relation, Positions]:
        """The rows that have any continuation, and how many each has."""
        topology = run.topology(self.edge_type)
        weights = topology.counts(relation[self.near], self.direction, per_edge=self.per_edge)
        keep = weights > 0
        return relation.where(keep), weights[keep]


def only_counted(plan: ir.ReadPlan) -> Counted | None:
    """The walk of a plan that can be counted instead, if there is one."""
    block, grouping = plan.match, plan.grouping
    if grouping is None or block.optionals or block.late_filters or block.negations:
        return None
    if any(call.fn is not ir.AggregateFn.COUNT or call.distinct for call in grouping.aggregates):
        return None
    if not all(call.arg is None or isinstance(call.arg, ir.IdRef) for call in grouping.aggregates):
        return None
    used = [var for key in grouping.keys for var in ir.variables_of(key)]
    used += [var for one in block.filters for var in one.variables]
    for step in block.traversals:
        for far, near in ((step.dst, step.src), (step.src, step.dst)):
            if far != near and _is_free(far, near, step, block, used):
                return _without(block, step, far, near)
    return None


def _is_free(
    far: str, near: str, step: ir.Traversal, block: ir.MatchBlock, used: list[str]
) -> bool:
    """Whether nothing but counts looks at the far end (and at the edge)."""
    if step.max_hops != 1 or step.min_hops != 1 or step.edge_conditions:
        return False
    if far in used or (step.edge_var is not None and step.edge_var in used):
        return False
    others = [one for one in block.traversals if one is not step]
    if any(far in (one.src, one.dst) for one in others):
        return False
    bindings = {one.var: one for one in block.bindings}
    if far in bindings and bindings[far].conditions:
        return False
    return near in bindings


def _without(block: ir.MatchBlock, step: ir.Traversal, far: str, near: str) -> Counted:
    direction: Direction = "both" if step.undirected else ("out" if far == step.dst else "in")
    rest = replace(
        block,
        bindings=tuple(one for one in block.bindings if one.var != far),
        traversals=tuple(one for one in block.traversals if one is not step),
    )
    return Counted(
        block=rest,
        near=near,
        edge_type=step.edge_type,
        direction=direction,
        per_edge=step.edge_var is not None,
    )


def weighted_counts(codes: Positions, weights: Positions, groups: int) -> Positions:
    """The sum of weights per group; exact, for weights are whole and few enough."""
    return np.bincount(codes, weights=weights, minlength=groups).astype(np.int64)
