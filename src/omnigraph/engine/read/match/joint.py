"""Edges of several types as one adjacency, over the nodes of all their ends side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

import msgspec
import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.memory.arrays import Mask, Positions
from omnigraph.engine.read.memory.compressed import NO_HITS, Hits, by_row, folded, joined
from omnigraph.engine.read.memory.frames import Frames
from omnigraph.engine.read.memory.topology import Adjacency, Direction, Lookups, Side, Topology

_BOTH: tuple[Side, ...] = ("out", "in")


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """One edge type among others: where the positions of its ends and of itself begin."""

    leg: ir.Leg
    adjacency: Adjacency
    ends: dict[Side, tuple[int, int, int]]  # first and last position of the near end, the far one's
    first_edge: int

    @property
    def is_within(self) -> bool:
        return self.leg.from_type == self.leg.to_type


class Joint:
    """Several edge types as one. Answers as a topology does, of nodes in these frames."""

    def __init__(self, nodes: Frames, parts: list[Joined]) -> None:
        self.nodes = nodes
        self._parts = parts
        # One edge type between nodes of one type is asked itself.
        alone = len(parts) == 1 and len(nodes.tables) == 1
        self._only = parts[0].adjacency if alone else None

    @property
    def node_bound(self) -> int:
        return self.nodes.length

    def neighbours(self, nodes: Positions, direction: Direction) -> Hits:
        """Each neighbour once per asking row; which edge leads there is not told."""
        if self._only is not None:
            return self._only.neighbours(nodes, direction)
        found = self._gathered(nodes, direction, lambda a, n, d: a.neighbours(n, d))
        return folded(by_row(joined(NO_HITS, *(Hits(h.rows, h.targets) for h in found))))

    def edges(self, nodes: Positions, direction: Direction) -> Hits:
        """Every edge of every node; an undirected self loop counts once."""
        if self._only is not None:
            return _edges_of(self._only, nodes, direction)
        return joined(NO_HITS, *self._gathered(nodes, direction, _edges_of))

    def degree_sum(self, nodes: Positions, direction: Direction) -> int:
        """At least as many hits as a gather would give."""
        if self._only is not None:
            return self._only.degree_sum(nodes, direction)
        asked = self._asked(nodes, direction)
        return sum(part.adjacency.degree_sum(local, way) for part, way, _, local in asked)

    def has_any(self, nodes: Positions, direction: Direction) -> Mask:
        found = np.zeros(len(nodes), dtype=np.bool_)
        for part, way, at, local in self._asked(nodes, direction):
            found[at] |= _topology(part).has_any(local, way)
        return found

    def counts(self, nodes: Positions, direction: Direction, *, per_edge: bool) -> Positions:
        """How many neighbours each node has, or how many edges."""
        if not per_edge:
            return np.bincount(self.neighbours(nodes, direction).rows, minlength=len(nodes))
        found = np.zeros(len(nodes), dtype=np.int64)
        for part, way, at, local in self._asked(nodes, direction):
            found[at] += _topology(part).counts(local, way, per_edge=True)
        return found

    def has_loop(self, nodes: Positions) -> Mask:
        found = np.zeros(len(nodes), dtype=np.bool_)
        for part, _, at, local in self._asked(nodes, "out"):
            if part.is_within:
                found[at] |= part.adjacency.has_loop(local)
        return found

    def _asked(
        self, nodes: Positions, direction: Direction
    ) -> Iterator[tuple[Joined, Direction, Positions, Positions]]:
        """Each edge type that leads on from some of the nodes: which way, from which of them."""
        for part in self._parts:
            if direction == "both" and part.is_within:
                ways: tuple[tuple[Direction, Side], ...] = (("both", "out"),)
            else:
                sides = _BOTH if direction == "both" else (direction,)
                ways = tuple((side, side) for side in sides)
            for way, side in ways:
                first, last, _ = part.ends[side]
                at = np.flatnonzero((nodes >= first) & (nodes < last))
                if len(at):
                    yield part, way, at, nodes[at] - first

    def _gathered(
        self,
        nodes: Positions,
        direction: Direction,
        gather: Callable[[Adjacency, Positions, Direction], Hits],
    ) -> Iterator[Hits]:
        for part, way, at, local in self._asked(nodes, direction):
            hits = gather(part.adjacency, local, way)
            far = part.ends["in" if way == "in" else "out"][2]
            edges = None if hits.edges is None else hits.edges + part.first_edge
            yield Hits(at[hits.rows], hits.targets + far, edges)


def _topology(part: Joined) -> Topology:
    assert isinstance(part.adjacency, Topology), "lookups count nothing"
    return part.adjacency


def _edges_of(adjacency: Adjacency, nodes: Positions, direction: Direction) -> Hits:
    assert isinstance(adjacency, Topology), "lookups know no edges"
    return adjacency.edges(nodes, direction)


Walkable: TypeAlias = Adjacency | Joint


class Course(msgspec.Struct, frozen=True):
    """What a walk goes along, and the frames whose positions it walks over: None if they are simply
    those of its two variables."""

    adjacency: Walkable
    nodes: Frames | None = None

    def entered(self, run: Run, var: str, positions: Positions) -> Positions:
        """The nodes of a variable as the walk knows them."""
        if self.nodes is None:
            return positions
        return self.nodes.placed(positions, run.frames_of(var))

    def left(self, run: Run, var: str, nodes: Positions) -> Positions:
        """Nodes of the walk as the variable holds them; -1 for types that it cannot be."""
        return nodes if self.nodes is None else run.frames_of(var).placed(nodes, self.nodes)


def is_simple(variables: Mapping[str, ir.Variable], step: ir.Traversal | ir.Way) -> bool:
    """Whether the ends of its one edge type are the types of its variables, and positions of one
    end are never taken for those of the other: further hops, the start itself, and edges that are
    walked both ways would be."""
    if len(step.legs) != 1:
        return False
    leg = step.legs[0]
    one_way = not step.undirected and (step.min_hops, step.max_hops) == (1, 1)
    if leg.from_type != leg.to_type and not one_way:
        return False
    ends = (variables[step.src].types, variables[step.dst].types)
    return ends == ((leg.from_type,), (leg.to_type,))


def course(
    run: Run, step: ir.Traversal | ir.Way, lookups: dict[str, Lookups] | None = None
) -> Course:
    """What the step walks along; by lookups where there are some."""
    if is_simple(run.variables, step):
        edge_type = step.legs[0].edge_type
        return Course(lookups[edge_type] if lookups else run.topology(edge_type))
    types = {*run.variables[step.src].types, *run.variables[step.dst].types}
    made = joint(run, step.legs, frozenset(types), lookups)
    return Course(made, made.nodes)


def lookups_for(run: Run, legs: tuple[ir.Leg, ...]) -> dict[str, Lookups] | None:
    """Lookups in all edge tables, where they are better than building topologies now."""
    found: dict[str, Lookups] = {}
    for leg in legs:
        known = run.lookups(leg.edge_type)
        if known is None:
            return None
        found[leg.edge_type] = known
    return found


def joint(
    run: Run, legs: tuple[ir.Leg, ...], types: frozenset[str], lookups: dict[str, Lookups] | None
) -> Joint:
    """The legs as one adjacency, over nodes of their ends and of these types. Edges have the
    positions of `run.frames("edge", …)`."""
    ends = {end for leg in legs for end in (leg.from_type, leg.to_type)}
    nodes = run.frames("node", tuple(sorted(types | ends)))
    edge_frames = run.frames("edge", tuple(leg.edge_type for leg in legs)) if not lookups else None
    parts = []
    for leg in legs:
        first, far = nodes.start_of(leg.from_type), nodes.start_of(leg.to_type)
        assert first is not None, "its ends are among the nodes"
        assert far is not None, "its ends are among the nodes"
        size, far_size = (run.frame("node", t).length for t in (leg.from_type, leg.to_type))
        known = lookups.get(leg.edge_type) if lookups else None
        parts.append(
            Joined(
                leg=leg,
                adjacency=run.topology(leg.edge_type) if known is None else known,
                ends={"out": (first, first + size, far), "in": (far, far + far_size, first)},
                first_edge=(edge_frames and edge_frames.start_of(leg.edge_type)) or 0,
            )
        )
    return Joint(nodes, parts)
