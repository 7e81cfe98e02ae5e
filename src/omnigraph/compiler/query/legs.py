"""Which edge types a walk can go along, and which node types it can lead from and to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec
from msgspec.structs import replace

from omnigraph.compiler.query import ir
from omnigraph.compiler.query.parse_graph import ANY
from omnigraph.compiler.query.scope import Context
from omnigraph.model.schema import EdgeType

Types = frozenset[str]


def named_edges(context: Context, names: Sequence[str], at: int) -> tuple[EdgeType, ...] | None:
    """The edge types of these names, by name, each once; None after a report of an unknown one.

    `any` stands for all of them, unless an edge of that name is declared.
    """
    found: dict[str, EdgeType] = {}
    for name in names:
        edge = context.catalog.edge_named(name)
        if edge is None and name.lower() == ANY:
            found.update(context.catalog.edges)
        elif edge is None:
            known = [one[0].lower() + one[1:] for one in context.catalog.edges]
            hint = context.problems.suggest(name, known)
            if name in {"contains", "starts_with", "in", "is"}:
                hint = f"to compare values write a property on the left: `$x.p {name} ...`"
            context.problems.report(at, f"unknown edge `{name}`", code="T4", hint=hint)
            return None
        else:
            found[edge.name] = edge
    return tuple(found[name] for name in sorted(found))


class Walking(msgspec.Struct, frozen=True, kw_only=True):
    """Some hops along some edges, as far as their types tell."""

    edges: tuple[EdgeType, ...]
    undirected: bool
    low: int
    high: int
    plain: bool = False  # there is one edge, and the types of the ends are simply those of it

    @property
    def everything(self) -> Types:
        """Every type that one of the edges touches."""
        return frozenset(end for edge in self.edges for end in (edge.from_type, edge.to_type))

    def targets(self, starts: Types | None) -> Types:
        """The types where a walk from these can end; None: from anywhere."""
        if self.plain:
            return frozenset({self.edges[0].to_type})
        return self._reached(self.everything if starts is None else starts, backwards=False)

    def sources(self, ends: Types | None) -> Types:
        """The types where a walk to these can begin."""
        if self.plain:
            return frozenset({self.edges[0].from_type})
        return self._reached(self.everything if ends is None else ends, backwards=True)

    def legs(self, starts: Types, ends: Types) -> tuple[ir.Leg, ...]:
        """The edge types that such a walk can go along."""
        near, far = starts, ends
        if self.high > 1:
            near = frozenset().union(*self._depths(starts, self.high - 1, backwards=False))
            far = frozenset().union(*self._depths(ends, self.high - 1, backwards=True))
        return tuple(
            ir.Leg(edge_type=edge.name, from_type=edge.from_type, to_type=edge.to_type)
            for edge in self.edges
            if self.plain or any(a in near and b in far for a, b in self._ways(edge))
        )

    def _ways(self, edge: EdgeType) -> Iterator[tuple[str, str]]:
        yield edge.from_type, edge.to_type
        if self.undirected:
            yield edge.to_type, edge.from_type

    def _reached(self, starts: Types, *, backwards: bool) -> Types:
        depths = self._depths(starts, self.high, backwards=backwards, low=self.low)
        return frozenset().union(*depths)

    def _depths(
        self, starts: Types, high: int, *, backwards: bool, low: int = 0
    ) -> Iterator[Types]:
        """The types at each depth from `low` on, until they would only repeat."""
        known = {starts: 0}
        states, again = [starts], 0
        while len(states) <= high:
            onward = self._onward(states[-1], backwards=backwards)
            again = known.setdefault(onward, len(states))
            if again < len(states):
                break
            states.append(onward)
        for depth in range(low, min(high, low + len(states)) + 1):
            if depth >= len(states):
                depth = again + (depth - again) % (len(states) - again)
            yield states[depth]

    def _onward(self, types: Collection[str], *, backwards: bool) -> Types:
        pairs = ((a, b) for edge in self.edges for a, b in self._ways(edge))
        if backwards:
            return frozenset(a for a, b in pairs if b in types)
        return frozenset(b for a, b in pairs if a in types)


def directed(walk: ir.Traversal, starts: Types, ends: Types) -> ir.Traversal:
    """One hop both ways along one edge between two types goes the only way that there is."""
    if not walk.undirected or (walk.min_hops, walk.max_hops) != (1, 1) or len(walk.legs) != 1:
        return walk
    along = frozenset({walk.legs[0].from_type}), frozenset({walk.legs[0].to_type})
    if (starts, ends) == along and starts != ends:
        return replace(walk, undirected=False)
    if (ends, starts) == along and starts != ends:
        return replace(walk, undirected=False, src=walk.dst, dst=walk.src)
    return walk
