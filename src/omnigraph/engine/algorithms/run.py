"""`graph.algorithms`: whole-graph questions, answered as Arrow tables by id.

The edges come from the topologies that queries walk along, so a second question reads nothing. Each
call looks at one snapshot: the head of a branch, or the graph as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec
import numpy as np

from omnigraph.compiler.query import ir
from omnigraph.engine.algorithms import kernels
from omnigraph.engine.arguments import FLAG, TEXT, TEXT_OR_NONE, TEXTS, require
from omnigraph.engine.arrow import Array, ArrowTable, int64_array, pa
from omnigraph.engine.read.context import Run
from omnigraph.engine.read.match.joint import joint
from omnigraph.engine.read.match.paths import find_paths, hops_from
from omnigraph.engine.read.match.weighted import lengths_from, weights_of
from omnigraph.engine.read.memory.arrays import Mask, Positions
from omnigraph.engine.read.memory.frames import Frames
from omnigraph.engine.refs import At
from omnigraph.errors import InputError, NotFoundError
from omnigraph.model.graph import MAIN
from omnigraph.model.schema import FLOATS, INTEGERS

ROUNDS_MAX = 1000
# Reading on a branch, or on the graph as it was.
Open = Callable[[str, At | None], AbstractContextManager[Run]]


class _Edges(msgspec.Struct, frozen=True, kw_only=True):
    """The living nodes and edges of some types, as numbers from 0 on."""

    run: Run
    legs: tuple[ir.Leg, ...]
    nodes: Frames
    living: Positions  # positions in the frames, by number: by type and id
    src: Positions
    dst: Positions
    kept: list[Mask]  # of each leg: which edges these are

    def table(self, **columns: Any) -> ArrowTable:
        """A row for every node, by type and id."""
        return _of_nodes(self.nodes, self.living, columns)

    def checkpoint(self, held: int) -> None:
        self.run.budget.reserve(held, 4)

    def weights(self, name: str) -> kernels.Floats:
        _require_weight(self.run, self.legs, name)
        way = ir.Way(src="", dst="", legs=self.legs, weight=name)
        found = weights_of(self.run, way)[np.concatenate(self.kept)]
        return np.where(np.isfinite(found), found, 0.0)


class Algorithms(msgspec.Struct, frozen=True):
    """Whole-graph algorithms. `edges` are names of edge types (`"knows"`, `"knows|worksAt"`, a list
    of them, or `"any"`); the nodes are those of the types at their ends."""

    open: Open

    def pagerank(
        self,
        edges: str | Sequence[str] = "any",
        *,
        weight: str | None = None,
        damping: float = 0.85,
        tolerance: float = 1e-10,
        branch: str = MAIN,
        snapshot: At | None = None,
    ) -> ArrowTable:
        """How important each node is: columns `type`, `id`, `rank`; ranks sum to 1. With `weight`,
        a node passes its rank on by that property of its edges, which is 0 or more."""
        require(TEXT_OR_NONE, weight=weight)
        if not 0 <= damping < 1:
            raise InputError(f"damping goes from 0 to below 1, got {damping}")
        if not tolerance > 0:
            raise InputError(f"tolerance must be above 0, got {tolerance}")
        with self._edges(edges, branch, snapshot) as found:
            rank, settled = kernels.pagerank(
                len(found.living),
                found.src,
                found.dst,
                None if weight is None else found.weights(weight),
                damping=damping,
                tolerance=tolerance,
                rounds_max=ROUNDS_MAX,
                checkpoint=found.checkpoint,
            )
            if not settled:
                hint = "ask for a larger tolerance, or a smaller damping"
                raise InputError(f"pagerank did not settle in {ROUNDS_MAX} rounds", hint=hint)
            return found.table(rank=pa.array(rank))

    def components(
        self,
        edges: str | Sequence[str] = "any",
        *,
        branch: str = MAIN,
        snapshot: At | None = None,
    ) -> ArrowTable:
        """What hangs together, directions aside: columns `type`, `id`, `component`, a number from 0
        on, the largest component first."""
        with self._edges(edges, branch, snapshot) as found:
            count = len(found.living)
            least = kernels.components(count, found.src, found.dst, found.checkpoint)
            return found.table(component=int64_array(_by_size(least)))

    def communities(
        self,
        edges: str | Sequence[str] = "any",
        *,
        branch: str = MAIN,
        snapshot: At | None = None,
    ) -> ArrowTable:
        """Groups of nodes that have most of their edges among themselves, by label propagation,
        directions aside: columns `type`, `id`, `community`, numbered as components are."""
        with self._edges(edges, branch, snapshot) as found:
            label = kernels.communities(
                len(found.living),
                found.src,
                found.dst,
                rounds_max=ROUNDS_MAX,
                checkpoint=found.checkpoint,
            )
            return found.table(community=int64_array(_by_size(label)))

    def triangles(
        self,
        edges: str | Sequence[str] = "any",
        *,
        branch: str = MAIN,
        snapshot: At | None = None,
    ) -> ArrowTable:
        """How many triangles each node is a corner of, directions and parallel edges aside: columns
        `type`, `id`, `triangles`."""
        with self._edges(edges, branch, snapshot) as found:
            count = len(found.living)
            corners = kernels.triangles(count, found.src, found.dst, found.checkpoint)
            return found.table(triangles=int64_array(corners))

    def shortest_path(
        self,
        edges: str | Sequence[str] = "any",
        *,
        source: str | tuple[str, str],
        target: str | tuple[str, str] | None = None,
        weight: str | None = None,
        undirected: bool = False,
        branch: str = MAIN,
        snapshot: At | None = None,
    ) -> ArrowTable:
        """The shortest path between two nodes, or how far all others are.

        A node is given by its id, or as `(type, id)` where two types share it. With a target the
        rows are the nodes of the path, in order: `step`, `type`, `id`, and `edge`, the id of the
        edge that leads there; none if there is no path. Without one they are the nodes that can be
        reached: `type`, `id`, `distance`. With `weight` the sum of that property is least.
        """
        require(TEXT_OR_NONE, weight=weight)
        require(FLAG, undirected=undirected)
        with self.open(branch, snapshot) as run:
            legs = _legs(run, edges)
            _require_weight(run, legs, weight)
            start = _node(run, legs, source, "source")
            if target is None:
                return self._distances(run, legs, start, weight, undirected=undirected)
            end = _node(run, legs, target, "target")
            ends = {"source": start, "target": end}
            run.variables = {
                name: ir.Variable(name=name, kind="node", types=(kind,))
                for name, (kind, _) in ends.items()
            }
            way = ir.Way(
                src="source", dst="target", legs=legs, undirected=undirected, weight=weight
            )
            places = [np.asarray([at], dtype=np.int64) for _, at in ends.values()]
            path = find_paths(run, way, places[0], places[1])
            nodes = path.nodes()
            edges = [path.edge_frames.fetch("id", path.edges(nodes))] if len(nodes) else []
            return ArrowTable.from_pydict(
                {
                    "step": int64_array(np.arange(len(nodes), dtype=np.int64)),
                    "type": path.node_frames.type_names(nodes),
                    "id": path.node_frames.fetch("id", nodes),
                    "edge": pa.concat_arrays([pa.nulls(min(1, len(nodes)), pa.string()), *edges]),
                }
            )

    def _distances(
        self,
        run: Run,
        legs: tuple[ir.Leg, ...],
        start: tuple[str, int],
        weight: str | None,
        *,
        undirected: bool,
    ) -> ArrowTable:
        graph = joint(run, legs, frozenset({start[0]}), None)
        first = graph.nodes.start_of(start[0])
        assert first is not None, "the type of the source is among them"
        if weight is None:
            nodes, hops = hops_from(run, graph, first + start[1], undirected=undirected)
            return _by_id(graph.nodes, nodes, {"distance": int64_array(hops)})
        way = ir.Way(src="", dst="", legs=legs, undirected=undirected, weight=weight)
        nodes, far = lengths_from(run, graph, way, first + start[1])
        return _by_id(graph.nodes, nodes, {"distance": pa.array(far)})

    @contextmanager
    def _edges(
        self, edges: str | Sequence[str], branch: str, snapshot: At | None
    ) -> Iterator[_Edges]:
        with self.open(branch, snapshot) as run:
            yield _numbered_edges(run, _legs(run, edges))


def _numbered_edges(run: Run, legs: tuple[ir.Leg, ...]) -> _Edges:
    types = {end for leg in legs for end in (leg.from_type, leg.to_type)}
    nodes = run.frames("node", tuple(sorted(types)))
    living = _in_order(run, nodes)
    run.budget.reserve(len(living), 4)
    number = np.full(nodes.length + 1, -1, dtype=np.int64)  # the last cell stands for -1
    number[living] = np.arange(len(living), dtype=np.int64)
    ends: dict[str, list[Positions]] = {"src": [], "dst": []}
    kept = []
    for leg in legs:
        run.budget.reserve(run.entry("edge", leg.edge_type).row_count, 4)
        topology, frame = run.topology(leg.edge_type), run.frame("edge", leg.edge_type)
        there = np.zeros(frame.length, dtype=np.bool_)
        there[frame.living().positions()] = True
        src = _numbered(nodes, number, leg.from_type, topology.ends("src"))
        dst = _numbered(nodes, number, leg.to_type, topology.ends("dst"))
        there &= (src >= 0) & (dst >= 0)
        ends["src"].append(src[there])
        ends["dst"].append(dst[there])
        kept.append(there)
    return _Edges(
        run=run,
        legs=legs,
        nodes=nodes,
        living=living,
        src=np.concatenate([np.empty(0, np.int64), *ends["src"]]),
        dst=np.concatenate([np.empty(0, np.int64), *ends["dst"]]),
        kept=kept,
    )


def _numbered(nodes: Frames, number: Positions, kind: str, ends: Any) -> Positions:
    first = nodes.start_of(kind)
    assert first is not None, "the types of all ends are among them"
    wide = ends.astype(np.int64)
    return number[np.where(wide < 0, -1, wide + first)]


def _legs(run: Run, edges: str | Sequence[str]) -> tuple[ir.Leg, ...]:
    if not isinstance(edges, str):
        require(TEXTS, edges=edges)
    found = {}
    for name in edges.split("|") if isinstance(edges, str) else edges:
        edge = run.catalog.edge_named(name)
        if edge is not None:
            found[edge.name] = edge
        elif name.lower() == "any":
            found.update(run.catalog.edges)
        else:
            raise NotFoundError(f"unknown edge type '{name}'", kind="edge", name=name)
    if not found:
        raise InputError("algorithms need an edge type", hint='name one, or write "any"')
    return tuple(
        ir.Leg(edge_type=name, from_type=found[name].from_type, to_type=found[name].to_type)
        for name in sorted(found)
    )


def _require_weight(run: Run, legs: tuple[ir.Leg, ...], name: str | None) -> None:
    for leg in legs if name is not None else ():
        prop = run.catalog.edges[leg.edge_type].by_name.get(name or "")
        if prop is None or prop.type.is_list or prop.type.scalar not in (*INTEGERS, *FLOATS):
            what = "is no number" if prop else "is not there"
            raise InputError(f"weight: {leg.edge_type}.{name} {what}", argument="weight")


def _node(
    run: Run, legs: tuple[ir.Leg, ...], given: str | tuple[str, str], what: str
) -> tuple[str, int]:
    """The type and the position of a node among those that the edges touch."""
    types = sorted({end for leg in legs for end in (leg.from_type, leg.to_type)})
    kind, name = given if isinstance(given, tuple) and len(given) == 2 else (None, given)
    if kind is not None:
        if kind not in types:
            shown = ", ".join(types)
            raise InputError(f"{what}: the edges join nodes of {shown}, not '{kind}'")
        types = [kind]
    require(TEXT, **{what: name})
    found = [
        (kind, int(at)) for kind in types if (at := run.frame("node", kind).lookup([name])[0]) >= 0
    ]
    if not found:
        raise NotFoundError(
            f"{what}: no node '{name}' of {', '.join(types)}", kind="node", name=name
        )
    if len(found) > 1:
        shown = ", ".join(kind for kind, _ in found)
        hint = f"say which: {what}=({found[0][0]!r}, {name!r})"
        raise InputError(f"{what}: '{name}' is a node of {shown}", hint=hint)
    return found[0]


def _by_size(label: Positions) -> Positions:
    """Labels as numbers from 0 on: the most frequent first, then the one whose first node is."""
    values, first, back = np.unique(label, return_index=True, return_inverse=True)
    rank = np.empty(len(values), dtype=np.int64)
    rank[np.lexsort((first, -np.bincount(back, minlength=len(values))))] = np.arange(len(values))
    return rank[back]


def _of_nodes(nodes: Frames, positions: Positions, columns: dict[str, Array]) -> ArrowTable:
    return ArrowTable.from_pydict(
        {"type": nodes.type_names(positions), "id": nodes.fetch("id", positions), **columns}
    )


def _by_id(nodes: Frames, positions: Positions, columns: dict[str, Array]) -> ArrowTable:
    table = _of_nodes(nodes, positions, columns)
    return table.sort_by([("type", "ascending"), ("id", "ascending")])


def _in_order(run: Run, nodes: Frames) -> Positions:
    """Every living node, by type and id: so no answer depends on where they are stored."""
    found = [np.empty(0, np.int64)]
    for table, start in zip(nodes.tables, nodes.starts[:-1], strict=True):
        order = table.frame.id_order().astype(np.int64)
        alive = table.frame.alive
        found.append((order if alive is None else order[alive[order]]) + start)
        run.budget.check_time()
    return np.concatenate(found)
