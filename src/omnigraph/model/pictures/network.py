"""A small network: dots with names and arrows, laid out by springs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from omnigraph.model.pictures.svg import (
    COLOURS,
    LINE_HEIGHT,
    Box,
    cut,
    escaped,
    free_box,
    label,
    line,
    svg,
    text,
    text_width,
)

NODES_DRAWN_MAX: Final = 60
EDGES_DRAWN_MAX: Final = 240
LAYOUT_ROUNDS: Final = 120
WIDTH: Final = 760
_HEIGHT, _MARGIN, _LEGEND, _DOT = 460, 40, 130, 5

Pair = tuple[str, str]
Point = tuple[float, float]


class SmallGraph(msgspec.Struct, frozen=True, kw_only=True):
    """What is drawn: nodes by name, directed edges between them, and a group for each colour."""

    nodes: tuple[str, ...]
    edges: tuple[Pair, ...]
    groups: Mapping[str, str]

    @property
    def is_small(self) -> bool:
        """Whether a drawing of it would be readable."""
        return 0 < len(self.nodes) <= NODES_DRAWN_MAX and len(self.edges) <= EDGES_DRAWN_MAX


def small_graph(
    pairs: Iterable[tuple[str | None, str | None]], groups: Mapping[str, str] | None = None
) -> SmallGraph:
    """The graph of these pairs; a pair with one end missing is a node without that edge."""
    nodes: dict[str, None] = {}
    edges: dict[Pair, None] = {}
    for source, target in pairs:
        nodes.update((end, None) for end in (source, target) if end is not None)
        if source is not None and target is not None:
            edges[source, target] = None
    return SmallGraph(nodes=tuple(nodes), edges=tuple(edges), groups=groups or {})


def draw_graph(graph: SmallGraph) -> str:
    """Nodes as dots with names, edges as arrows; nodes pull along edges and push otherwise."""
    places = _layout(graph)
    kinds = sorted({graph.groups.get(node, "") for node in graph.nodes})
    colour = {kind: COLOURS[index % len(COLOURS)] for index, kind in enumerate(kinds)}
    parts = [arrow(places[a], places[b], gap=_DOT + 2) for a, b in graph.edges if a != b]
    names = label_boxes(graph, places)
    for node in graph.nodes:
        (x, y), name = places[node], names[node]
        fill = colour[graph.groups.get(node, "")]
        middle = name.y + name.height / 2
        far = abs(name.x - x) > 2 * _DOT or abs(middle - y) > LINE_HEIGHT
        near_x = min(max(x, name.x), name.x + name.width)
        lead = line(x, y, near_x, middle) if far else ""
        parts.append(
            f'<g><title>{escaped(node)}</title>{lead}<circle cx="{x:.1f}" cy="{y:.1f}" r="{_DOT}" '
            f'fill="{fill}"/>{text(name.x, name.y + name.height - 3, label(node))}</g>'
        )
    for index, kind in enumerate(kinds):
        if kind:
            y = 16 + 16 * index
            parts.append(
                f'<circle cx="12" cy="{y - 4}" r="{_DOT}" fill="{colour[kind]}"/>'
                + text(22, y, label(kind))
            )
    return svg(WIDTH, _HEIGHT, parts, title="graph")


def label_boxes(graph: SmallGraph, places: Mapping[str, Point]) -> dict[str, Box]:
    """Where the names stand: beside their dots, and none above another or above a dot."""
    taken = [Box(x - _DOT, y - _DOT, 2 * _DOT, 2 * _DOT) for x, y in places.values()]
    kinds = sorted({graph.groups.get(node, "") for node in graph.nodes} - {""})
    taken += [Box(0, 4 + 16 * at, _LEGEND, 16) for at in range(len(kinds))]
    found: dict[str, Box] = {}
    for node in graph.nodes:
        x, y = places[node]
        width = text_width(cut(node)) or 1.0
        wanted = Box(x + _DOT + 2, y - LINE_HEIGHT / 2, width, LINE_HEIGHT)
        found[node] = free_box(wanted, taken, WIDTH, _HEIGHT)
        taken.append(found[node])
    return found


def _layout(graph: SmallGraph) -> dict[str, Point]:
    """A spring layout from a circle: no chance in it, so a picture can be compared.

    Fruchterman and Reingold's forces; in a round no node moves more than `step`.
    """
    count = len(graph.nodes)
    index = {node: number for number, node in enumerate(graph.nodes)}
    links = np.zeros((count, count))
    for a, b in graph.edges:
        links[index[a], index[b]] += a != b
    links += links.T
    # Well-connected parts would collapse under the sum of their pulls, so those share one.
    degree = links.sum(axis=1)
    links *= 2 / np.maximum(degree[:, None] + degree, 1)
    # The golden angle keeps neighbours in the list apart and breaks every symmetry.
    turns, far = np.arange(count) * 2.399963, np.sqrt(np.arange(1, count + 1) / count)
    places = np.stack([np.cos(turns) * far, np.sin(turns) * far], axis=1)
    ideal = 1.6 / math.sqrt(count)
    for step in 0.12 * (1 - np.arange(LAYOUT_ROUNDS) / LAYOUT_ROUNDS) + 0.002:
        apart = places[:, None] - places
        square = (apart**2).sum(axis=2)
        force = ideal**2 / np.maximum(square, 1e-6) - 4 * links * np.sqrt(square) / ideal
        # A weak pull to the middle keeps parts that nothing connects in the picture.
        moves = (apart * force[:, :, None]).sum(axis=1) - 1.5 * places
        lengths = np.maximum(np.hypot(*moves.T), 1e-9)
        places = places + moves * np.minimum(step / lengths, 1.0)[:, None]
    left = _LEGEND if graph.groups else _MARGIN
    across = _stretched(places[:, 0], left, WIDTH - 4 * _MARGIN)  # room for names on the right
    down = _stretched(places[:, 1], _MARGIN, _HEIGHT - _MARGIN)
    return dict(zip(graph.nodes, zip(across, down, strict=True), strict=True))


def _stretched(values: npt.NDArray[np.float64], low: float, high: float) -> list[float]:
    first, extent = values.min(), values.max() - values.min()
    share = (values - first) / extent if extent >= 1e-9 else np.full(len(values), 0.5)
    found: list[float] = (low + share * (high - low)).tolist()
    return found


def arrow(start: Point, end: Point, *, gap: float) -> str:
    """A line with a tip that ends so far before the point."""
    dx, dy = end[0] - start[0], end[1] - start[1]
    far = max(math.hypot(dx, dy), 1e-6)
    x, y = end[0] - dx / far * gap, end[1] - dy / far * gap
    left = f"{x - (dx + dy * 0.5) / far * 6:.1f},{y - (dy - dx * 0.5) / far * 6:.1f}"
    right = f"{x - (dx - dy * 0.5) / far * 6:.1f},{y - (dy + dx * 0.5) / far * 6:.1f}"
    tip = f'<polygon class="og-tip" points="{x:.1f},{y:.1f} {left} {right}"/>'
    return line(*start, x, y) + tip
