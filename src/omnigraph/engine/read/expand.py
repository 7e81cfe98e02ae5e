"""One traversal applied to rows: from a bound end to the other, or between two bound ends."""

from __future__ import annotations

from typing import Final

import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.expr.order import row_keys
from omnigraph.engine.read.column import Mask, Positions
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.lookup import HOPS_MAX, IDS_MAX, Lookups, TooMany
from omnigraph.engine.read.relation import Relation
from omnigraph.engine.read.topology import Direction, Topology
from omnigraph.engine.read.walk import reach

_NOTHING: Final[Positions] = np.empty(0, dtype=np.int64)


def expand(run: Run, relation: Relation, step: ir.Traversal) -> Relation:
    """The rows extended along the edge; conditions on the far end are the caller's.

    When both ends are bound, rows without such an edge go away instead.
    """
    near, far, _ = ends(relation, step)
    relation = relation.where(_there(relation, near, far if far in relation else None))
    if step.min_hops > step.max_hops:
        return _attached(relation, _NOTHING, _NOTHING, far)
    if step.edge_var is not None:
        return _along_edges(run, relation, step, run.topology(step.edge_type))
    if step.max_hops <= HOPS_MAX and relation.count <= IDS_MAX:
        lookups = run.lookups(step.edge_type)
        if lookups is not None:
            try:
                return _walked(run, relation, step, lookups)
            except TooMany:
                pass
    return _walked(run, relation, step, run.topology(step.edge_type))


def _walked(
    run: Run, relation: Relation, step: ir.Traversal, adjacency: Topology | Lookups
) -> Relation:
    if step.max_hops > 1:
        return _several_hops(run, relation, step, adjacency)
    near, far, backwards = ends(relation, step)
    direction = _direction(step, backwards=backwards)
    run.budget.reserve(adjacency.degree_sum(relation[near], direction), len(relation.columns) + 1)
    hits = adjacency.neighbours(relation[near], direction)
    return _attached(relation, hits.rows, hits.targets, far)


def _direction(step: ir.Traversal, *, backwards: bool) -> Direction:
    if step.undirected:
        return "both"
    return "in" if backwards else "out"


def ends(relation: Relation, step: ir.Traversal) -> tuple[str, str, bool]:
    """(bound end, other end, whether that means walking backwards)."""
    if step.src in relation:
        return step.src, step.dst, False
    return step.dst, step.src, True


def _there(relation: Relation, near: str, far: str | None) -> Mask:
    """Rows whose bound ends are not null (they may be, behind an `optional`)."""
    there = relation[near] >= 0
    return there if far is None else there & (relation[far] >= 0)


def _attached(relation: Relation, rows: Positions, found: Positions, far: str) -> Relation:
    if far in relation:
        return relation.take(rows[relation[far][rows] == found])
    return relation.take(rows).with_column(far, found)


def _along_edges(run: Run, relation: Relation, step: ir.Traversal, topology: Topology) -> Relation:
    assert step.edge_var is not None, "the caller looked"
    near, far, backwards = ends(relation, step)
    direction = _direction(step, backwards=backwards)
    run.budget.reserve(topology.degree_sum(relation[near], direction), len(relation.columns) + 2)
    hits = topology.edges(relation[near], direction)
    if far in relation:
        hits = hits.where(relation[far][hits.rows] == hits.targets)
    found = relation.take(hits.rows).with_column(far, hits.targets)
    return found.with_column(step.edge_var, hits.edges)


def _several_hops(
    run: Run, relation: Relation, step: ir.Traversal, adjacency: Topology | Lookups
) -> Relation:
    near, far, backwards = ends(relation, step)
    starts, back = np.unique(relation[near], return_inverse=True)
    who, found = reach(
        adjacency,
        starts,
        direction="both" if step.undirected else "out",
        backwards=backwards,
        min_hops=step.min_hops,
        max_hops=step.max_hops,
        checkpoint=lambda pairs: run.budget.reserve(pairs, 3),
    )
    if far in relation:
        pairs = row_keys([np.concatenate([who, back]), np.concatenate([found, relation[far]])])
        wanted = np.isin(pairs[len(who) :], pairs[: len(who)])
        return relation.where(wanted)
    first = np.searchsorted(who, back, side="left")
    counts = np.searchsorted(who, back, side="right") - first
    run.budget.reserve(int(counts.sum()), len(relation.columns) + 1)
    rows = np.repeat(np.arange(len(back), dtype=np.int64), counts)
    ends_at = np.cumsum(counts)
    total = int(ends_at[-1]) if len(ends_at) else 0
    flat = np.arange(total, dtype=np.int64) + np.repeat(first - (ends_at - counts), counts)
    return relation.take(rows).with_column(far, found[flat])
