"""Pictures as SVG text: a small graph, a history, a bar chart. Pure, and the same every time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from omnigraph.model.graph import Commit

NODES_DRAWN_MAX: Final = 60
EDGES_DRAWN_MAX: Final = 240
LABEL_CHARACTERS_MAX: Final = 24
LAYOUT_ROUNDS: Final = 120

_COLOURS: Final = (
    *("#3b6ea5", "#c8553d", "#5b8c5a", "#8e6c8a", "#d9a441"),
    *("#2a9d9d", "#7a7a7a", "#b5567d", "#6b5b2e", "#86a63c"),
)
_WIDTH, _HEIGHT, _MARGIN, _LEGEND = 760, 460, 40, 130

Pair = tuple[str, str]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallGraph:
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
    colour = {kind: _COLOURS[index % len(_COLOURS)] for index, kind in enumerate(kinds)}
    parts = [_arrow(places[a], places[b]) for a, b in graph.edges if a != b]
    for node in graph.nodes:
        x, y = places[node]
        fill = colour[graph.groups.get(node, "")]
        parts.append(
            f'<g><title>{_escaped(node)}</title><circle cx="{x:.1f}" cy="{y:.1f}" r="5" '
            f'fill="{fill}"/><text x="{x + 7:.1f}" y="{y + 4:.1f}">{_label(node)}</text></g>'
        )
    for index, kind in enumerate(kinds):
        if kind:
            y = 16 + 16 * index
            parts.append(
                f'<circle cx="12" cy="{y - 4}" r="5" fill="{colour[kind]}"/>'
                f'<text x="22" y="{y}">{_label(kind)}</text>'
            )
    return _svg(_WIDTH, _HEIGHT, parts, title="graph")


def _layout(graph: SmallGraph) -> dict[str, Point]:
    """A spring layout from a circle: no chance in it, so a picture can be compared."""
    count = len(graph.nodes)
    index = {node: number for number, node in enumerate(graph.nodes)}
    links = [(index[a], index[b]) for a, b in graph.edges if a != b]
    # The golden angle keeps neighbours in the list apart and breaks every symmetry.
    turns = [number * 2.399963 for number in range(count)]
    spread = [math.sqrt((number + 1) / count) for number in range(count)]
    xs = [math.cos(turn) * far for turn, far in zip(turns, spread, strict=True)]
    ys = [math.sin(turn) * far for turn, far in zip(turns, spread, strict=True)]
    ideal = 1.6 / math.sqrt(count)
    degree = [0] * count
    for a, b in links:
        degree[a] += 1
        degree[b] += 1
    # Well-connected parts would collapse under the sum of their pulls, so those share one.
    pulls = [(a, b, 2 / (degree[a] + degree[b])) for a, b in links]
    for round_number in range(LAYOUT_ROUNDS):
        step = 0.12 * (1 - round_number / LAYOUT_ROUNDS) + 0.002
        _relax(xs, ys, pulls, ideal=ideal, step=step)
    return _fitted(graph.nodes, xs, ys, left=_LEGEND if graph.groups else _MARGIN)


def _relax(
    xs: list[float],
    ys: list[float],
    pulls: Sequence[tuple[int, int, float]],
    *,
    ideal: float,
    step: float,
) -> None:
    """One round of Fruchterman and Reingold's forces, in place; no node moves more than `step`."""
    count = len(xs)
    push_x, push_y = [0.0] * count, [0.0] * count
    for a in range(count):
        for b in range(a + 1, count):
            dx, dy = xs[a] - xs[b], ys[a] - ys[b]
            force = ideal * ideal / max(dx * dx + dy * dy, 1e-6)
            push_x[a] += dx * force
            push_y[a] += dy * force
            push_x[b] -= dx * force
            push_y[b] -= dy * force
    for a, b, weight in pulls:
        dx, dy = xs[a] - xs[b], ys[a] - ys[b]
        pull = 4 * weight * math.hypot(dx, dy) / ideal
        push_x[a] -= dx * pull
        push_y[a] -= dy * pull
        push_x[b] += dx * pull
        push_y[b] += dy * pull
    for node in range(count):
        # A weak pull to the middle keeps parts that nothing connects in the picture.
        dx, dy = push_x[node] - 1.5 * xs[node], push_y[node] - 1.5 * ys[node]
        scale = min(step / max(math.hypot(dx, dy), 1e-9), 1.0)
        xs[node] += dx * scale
        ys[node] += dy * scale


def _fitted(
    nodes: Sequence[str], xs: list[float], ys: list[float], *, left: float
) -> dict[str, Point]:
    """The layout stretched over the picture, with room for names on the right."""

    def scaled(values: list[float], low: float, high: float) -> list[float]:
        first, last = min(values), max(values)
        if last - first < 1e-9:
            return [(low + high) / 2] * len(values)
        return [low + (value - first) / (last - first) * (high - low) for value in values]

    across = scaled(xs, left, _WIDTH - 4 * _MARGIN)
    down = scaled(ys, _MARGIN, _HEIGHT - _MARGIN)
    return dict(zip(nodes, zip(across, down, strict=True), strict=True))


def _arrow(start: Point, end: Point) -> str:
    dx, dy = end[0] - start[0], end[1] - start[1]
    far = max(math.hypot(dx, dy), 1e-6)
    x, y = end[0] - dx / far * 7, end[1] - dy / far * 7
    left = f"{x - (dx + dy * 0.5) / far * 6:.1f},{y - (dy - dx * 0.5) / far * 6:.1f}"
    right = f"{x - (dx - dy * 0.5) / far * 6:.1f},{y - (dy + dx * 0.5) / far * 6:.1f}"
    return (
        f'<line x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{x:.1f}" y2="{y:.1f}" '
        f'stroke="#aab"/><polygon points="{x:.1f},{y:.1f} {left} {right}" fill="#889"/>'
    )


# --- history ---------------------------------------------------------------------------------


def draw_history(commits: Sequence[Commit], labels: Mapping[str, str] | None = None) -> str:
    """Commits from left to right, a row a branch, lines to both parents; labels by commit id."""
    known = {commit.graph_commit_id: commit for commit in commits}
    ordered = sorted(known.values(), key=lambda one: (one.created_at, one.graph_commit_id))
    rows = {name: row for row, name in enumerate(dict.fromkeys(c.graph_branch for c in ordered))}
    step = 96
    place = {
        commit.graph_commit_id: (150.0 + step * column, 40.0 + 70 * rows[commit.graph_branch])
        for column, commit in enumerate(ordered)
    }
    parts = [
        f'<text x="10" y="{44 + 70 * row}" font-weight="bold">{_label(name)}</text>'
        for name, row in rows.items()
    ]
    parts += [
        _link(place[parent], place[commit.graph_commit_id])
        for commit in ordered
        for parent in (commit.parent_commit_id, commit.merged_parent_commit_id)
        if parent in place
    ]
    for commit in ordered:
        x, y = place[commit.graph_commit_id]
        fill = _COLOURS[rows[commit.graph_branch] % len(_COLOURS)]
        label = (labels or {}).get(commit.graph_commit_id, commit.graph_commit_id[-6:])
        parts.append(
            f"<g><title>{_escaped(commit.graph_commit_id)} by "
            f'{_escaped(commit.actor_id or "nobody")}</title><circle cx="{x}" cy="{y}" r="7" '
            f'fill="{fill}"/><text x="{x}" y="{y + 22}" text-anchor="middle">{_label(label)}</text>'
            "</g>"
        )
    return _svg(170 + step * len(ordered), 50 + 70 * len(rows), parts, title="history")


def _link(start: Point, end: Point) -> str:
    bend = (start[0] + end[0]) / 2
    return (
        f'<path d="M{start[0]},{start[1]} C{bend},{start[1]} {bend},{end[1]} {end[0]},{end[1]}" '
        'fill="none" stroke="#99a" stroke-width="2"/>'
    )


# --- bars ------------------------------------------------------------------------------------


def draw_bars(values: Sequence[tuple[str, float]], *, unit: str) -> str:
    """One bar a value, each with its name and number."""
    longest = max([value for _, value in values], default=0.0) or 1.0
    parts = []
    for row, (name, value) in enumerate(values):
        y = 8 + 24 * row
        width = max(value / longest * 360, 1)
        parts.append(
            f'<text x="274" y="{y + 13}" text-anchor="end">{_label(name, limit=44)}</text>'
            f'<rect x="282" y="{y}" width="{width:.1f}" height="17" fill="{_COLOURS[0]}"/>'
            f'<text x="{288 + width:.1f}" y="{y + 13}">{value:,.2f} {_escaped(unit)}</text>'
        )
    return _svg(_WIDTH, 16 + 24 * len(values), parts, title="times")


def _svg(width: float, height: float, parts: Sequence[str], *, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{_escaped(title)}" '
        'font-family="system-ui,sans-serif" font-size="11">'
        '<rect width="100%" height="100%" fill="#fff"/>' + "".join(parts) + "</svg>"
    )


def _label(name: str, *, limit: int = LABEL_CHARACTERS_MAX) -> str:
    return _escaped(name if len(name) <= limit else name[: limit - 1] + "…")


def _escaped(words: str) -> str:
    """Text that an SVG may hold: escaped, and without the characters that XML has no words for."""
    return escape("".join(char if char.isprintable() else "\ufffd" for char in words))
