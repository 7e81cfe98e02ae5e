"""Walking along edges: one hop, several hops, and neighbours that are only counted.

Walking several hops is breadth first, from many nodes at once. The relation is defined from the
source side: a target counts at its smallest depth, if that depth is within the bounds; the source
itself is not found again through a cycle; and a self loop on the target, met one hop after the
target was reached, gives it once more if it has not counted yet. Walking backwards gives exactly
the same pairs.

A variable that is only counted is not listed: `return { $p.name, count($f) }` over `$p knows $f`
needs how many friends each person has, not the friends. The walk to such a variable is left out of
the match and becomes a weight of its neighbour.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import msgspec
import numpy as np
from msgspec.structs import replace

from omnigraph.compiler.query import ir
from omnigraph.engine.arrow import booleans
from omnigraph.engine.expr.order import row_keys
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.match.joint import Course, Walkable, course, is_simple, lookups_for
from omnigraph.engine.read.match.paths import distances
from omnigraph.engine.read.match.relation import Relation
from omnigraph.engine.read.match.scan import in_parallel
from omnigraph.engine.read.memory.arrays import (
    NO_POSITIONS,
    Mask,
    Positions,
    distinct_sorted,
    equal_runs,
    spread,
)
from omnigraph.engine.read.memory.compressed import NO_HITS, Hits
from omnigraph.engine.read.memory.selection import Part, Selection
from omnigraph.engine.read.memory.topology import (
    LOOKUP_HOPS_MAX,
    LOOKUP_NODES_MAX,
    Direction,
    Lookups,
    TooMany,
)

_BITMAP_CELLS_MAX: Final = 1 << 26
BOTH_SIDES_SHARE: Final = 4  # so many pairs for each start are asked about one by one

Checkpoint = Callable[[int], None]  # called with the number of pairs about to be held


def expand(run: Run, relation: Relation, step: ir.Traversal) -> Relation:
    """The rows extended along the edge; conditions on the far end are the caller's.

    When both ends are bound, rows without such an edge go away instead.
    """
    # A bound end may be null, behind an `optional`.
    for end in (step.src, step.dst):
        if end in relation:
            relation = relation.where(relation[end] >= 0)
    if step.min_hops > step.max_hops:
        return _attached(relation, step, NO_HITS)
    few = step.max_hops <= LOOKUP_HOPS_MAX and relation.count <= LOOKUP_NODES_MAX
    lookups = lookups_for(run, step.legs) if few and step.edge_var is None else None
    if lookups:
        try:
            return _walked(run, relation, step, course(run, step, lookups))
        except TooMany:
            pass  # the frontier outgrew lookups: start again with the topology
    return _walked(run, relation, step, course(run, step))


def _walked(run: Run, relation: Relation, step: ir.Traversal, along: Course) -> Relation:
    if (step.min_hops, step.max_hops) != (1, 1) and step.edge_var is None:
        return _several_hops(run, relation, step, along)
    near, far, direction = ends(relation, step)
    width = len(relation.columns) + (1 if step.edge_var is None else 2)
    adjacency, nodes = along.adjacency, along.entered(run, near, relation[near])
    run.budget.reserve(adjacency.degree_sum(nodes, direction), width)
    if step.edge_var is None:
        hits = adjacency.neighbours(nodes, direction)
    else:
        assert not isinstance(adjacency, Lookups), "lookups know no edges"
        hits = adjacency.edges(nodes, direction)
    if along.nodes is not None:
        hits = Hits(hits.rows, along.left(run, far, hits.targets), hits.edges)
        hits = hits.where(hits.targets >= 0)
    return _attached(relation, step, hits)


def ends(relation: Relation, step: ir.Traversal) -> tuple[str, str, Direction]:
    """(bound end, other end, the direction from the one to the other)."""
    if step.src in relation:
        return step.src, step.dst, "both" if step.undirected else "out"
    return step.dst, step.src, "both" if step.undirected else "in"


def _attached(relation: Relation, step: ir.Traversal, hits: Hits) -> Relation:
    """The rows with what was found for them: another end, and the edge if it has a name."""
    _, far, _ = ends(relation, step)
    if far in relation:
        hits = hits.where(relation[far][hits.rows] == hits.targets)
    found = relation.take(hits.rows).with_column(far, hits.targets)
    if step.edge_var is None:
        return found
    assert hits.edges is not None, "a walk that names its edges asks for them"
    return found.with_column(step.edge_var, hits.edges)


def _several_hops(run: Run, relation: Relation, step: ir.Traversal, along: Course) -> Relation:
    near, far, direction = ends(relation, step)
    nodes = along.entered(run, near, relation[near])
    starts, back = np.unique(nodes, return_inverse=True)
    if far in relation and relation.count <= len(starts) * BOTH_SIDES_SHARE:
        targets = along.entered(run, far, relation[far])
        return relation.where(_is_reached(run, step, along, nodes, targets))
    who, found = reach(
        along.adjacency,
        starts,
        direction=direction,
        backwards=step.src not in relation,
        min_hops=step.min_hops,
        max_hops=step.max_hops,
        checkpoint=lambda pairs: run.budget.reserve(pairs, 3),
    )
    if along.nodes is not None:
        found = along.left(run, far, found)
        who, found = who[found >= 0], found[found >= 0]
    if far in relation:
        pairs = row_keys([np.concatenate([who, back]), np.concatenate([found, relation[far]])])
        wanted = np.isin(pairs[len(who) :], pairs[: len(who)])
        return relation.where(wanted)
    first, counts = equal_runs(who, back)
    run.budget.reserve(int(counts.sum()), len(relation.columns) + 1)
    rows, places = spread(first, counts)
    return relation.take(rows).with_column(far, found[places])


def _is_reached(
    run: Run, step: ir.Traversal, along: Course, sources: Positions, targets: Positions
) -> Mask:
    """Which pairs of nodes a walk of several hops joins, asked of each pair from both sides."""
    pairs = row_keys([sources, targets])
    _, first, back = np.unique(pairs, return_index=True, return_inverse=True)
    one, other = sources[first], targets[first]
    hops = distances(
        along.adjacency,
        one,
        other,
        direction="both" if step.undirected else "out",
        max_hops=step.max_hops,
        checkpoint=lambda held: run.budget.reserve(held, 3),
    )
    found = (hops >= step.min_hops) & (hops <= step.max_hops)
    again = np.flatnonzero((hops >= 0) & (hops + 1 == step.min_hops))
    found[again] |= along.adjacency.has_loop(other[again])
    return found[back]


# --- several hops ----------------------------------------------------------------------------


def reach(
    adjacency: Walkable,
    starts: Positions,
    *,
    direction: Direction,
    backwards: bool,
    min_hops: int,
    max_hops: int,
    checkpoint: Checkpoint,
) -> tuple[Positions, Positions]:
    """Pairs (index into `starts`, node at the other end), sorted, each once.

    `starts` are distinct. With `backwards` they are the far ends, and the nodes found are sources.
    """
    size = max(adjacency.node_bound, int(starts.max(initial=0)) + 1)
    seen = _Seen(len(starts), size)

    def looped(keys: Positions) -> Positions:
        """Of pairs one hop too near to count, those whose target has a self loop."""
        who, nodes = np.divmod(keys, size)
        return keys[adjacency.has_loop(starts[who] if backwards else nodes)]

    # A pair (index of a start, node) travels as one number, so that sets of pairs are arrays.
    keys = np.arange(len(starts), dtype=np.int64) * size + starts
    seen.add(keys)
    found = [keys] if min_hops == 0 else [looped(keys)] if min_hops == 1 else []
    for depth in range(1, max_hops + 1):
        who, nodes = np.divmod(keys, size)
        checkpoint(adjacency.degree_sum(nodes, direction))
        hits = adjacency.neighbours(nodes, direction)
        keys = distinct_sorted(who[hits.rows] * size + hits.targets)
        keys = keys[seen.lacks(keys)]
        if not len(keys):
            break
        seen.add(keys)
        if depth >= min_hops:
            found.append(keys)
        elif depth + 1 == min_hops:
            found.append(looped(keys))
    pairs = np.divmod(np.sort(np.concatenate([NO_POSITIONS, *found])), size)
    return pairs[0], pairs[1]


class _Seen:
    """A set of pair keys: a bitmap when that is small, sorted keys otherwise."""

    def __init__(self, starts: int, size: int) -> None:
        cells = starts * size
        self._bits = np.zeros(cells, dtype=np.bool_) if cells <= _BITMAP_CELLS_MAX else None
        self._keys: Positions = np.empty(0, dtype=np.int64)

    def add(self, keys: Positions) -> None:
        if self._bits is not None:
            self._bits[keys] = True
        else:
            self._keys = np.union1d(self._keys, keys)

    def lacks(self, keys: Positions) -> Mask:
        if self._bits is not None:
            return ~self._bits[keys]
        return np.isin(keys, self._keys, invert=True)


# --- only counted -----------------------------------------------------------------------------


class Counted(msgspec.Struct, frozen=True, kw_only=True):
    """A match without one walk, and how to count what the walk would have given."""

    block: ir.MatchBlock
    near: str
    edge_type: str
    direction: Direction
    per_edge: bool  # count edges, not neighbours

    def weigh(self, run: Run, relation: Relation) -> tuple[Relation, Positions]:
        """The rows that have any continuation, and how many each has."""
        counts = partial(
            run.topology(self.edge_type).counts, direction=self.direction, per_edge=self.per_edge
        )
        selection = relation.selected(self.near)
        if selection is None or len(relation.columns) > 1:
            weights = counts(relation[self.near])
            keep = weights > 0
            return relation.where(keep), weights[keep]

        def weighed(part: Part) -> tuple[Part | None, Positions]:
            weights = counts(part.positions_or_run())
            keep = weights > 0
            return part.narrowed(booleans(keep)), weights if keep.all() else weights[keep]

        found = in_parallel(run, weighed, selection.parts, selection.count)
        kept = [part for part, _ in found if part is not None]
        chosen = Relation.of(self.near, Selection.of(selection.length, kept))
        return chosen, np.concatenate([NO_POSITIONS, *(weights for _, weights in found)])


def only_counted(plan: ir.Stage, variables: Mapping[str, ir.Variable]) -> Counted | None:
    """The walk of a plan that can be counted instead, if there is one."""
    block, grouping = plan.match, plan.grouping
    if grouping is None or block.optionals or block.late_filters or block.negations:
        return None
    if block.unwinds:
        return None
    if any(call.fn is not ir.AggregateFn.COUNT or call.distinct for call in grouping.aggregates):
        return None
    if not all(call.arg is None or isinstance(call.arg, ir.IdRef) for call in grouping.aggregates):
        return None
    used = [var for key in grouping.keys for var in ir.variables_of(key)]
    used += [var for clause in block.filters for var in clause.variables]
    for step in block.traversals:
        if not is_simple(variables, step):
            continue  # what several tables hold is listed
        for far, near in ((step.dst, step.src), (step.src, step.dst)):
            if far != near and _is_free(far, near, step, block, used):
                return _without(block, step, far, near)
    return None


def last_hop(
    block: ir.MatchBlock, near: str, variables: Mapping[str, ir.Variable]
) -> Counted | None:
    """The only walk of a match, if it is one from `near` to whatever is there: which entities it
    keeps can be told without taking it."""
    others = block.optionals, block.late_filters, block.negations, block.unwinds
    if any(others) or len(block.traversals) != 1 or not is_simple(variables, block.traversals[0]):
        return None
    (step,) = block.traversals
    far = step.dst if step.src == near else step.src
    used = [var for clause in block.filters for var in clause.variables]
    if far == near or near not in (step.src, step.dst):
        return None
    if any(binding.var not in (near, far) for binding in block.bindings):
        return None
    return _without(block, step, far, near) if _is_free(far, near, step, block, used) else None


def _is_free(
    far: str, near: str, step: ir.Traversal, block: ir.MatchBlock, used: list[str]
) -> bool:
    """Whether nothing but counts looks at the far end (and at the edge)."""
    if step.max_hops != 1 or step.min_hops != 1 or step.edge_conditions:
        return False
    if far in used or (step.edge_var is not None and step.edge_var in used):
        return False
    if any(far in (other.src, other.dst) for other in block.traversals if other is not step):
        return False
    conditions = {binding.var: binding.conditions for binding in block.bindings}
    return near in conditions and not conditions.get(far)


def _without(block: ir.MatchBlock, step: ir.Traversal, far: str, near: str) -> Counted:
    direction: Direction = "both" if step.undirected else ("out" if far == step.dst else "in")
    return Counted(
        block=replace(
            block,
            bindings=tuple(binding for binding in block.bindings if binding.var != far),
            traversals=tuple(other for other in block.traversals if other is not step),
        ),
        near=near,
        edge_type=step.edge_type,
        direction=direction,
        per_edge=step.edge_var is not None,
    )
