"""A schema as a picture: a box for each node type with its properties, an arrow for each edge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from omnigraph.model.pictures.network import Point, arrow
from omnigraph.model.pictures.svg import (
    LINE_HEIGHT,
    Box,
    cut,
    escaped,
    free_box,
    label,
    svg,
    text,
    text_width,
)
from omnigraph.model.schema import Catalog, EdgeType, NodeType

TYPES_DRAWN_MAX: Final = 80
PROPERTIES_SHOWN_MAX: Final = 14
_LINE_CHARACTERS_MAX: Final = 44
_GAP_X, _GAP_Y, _PAD, _MARGIN = 130.0, 90.0, 8.0, 30.0


def draw_schema(catalog: Catalog) -> str:
    """The node types in rows, those that edges connect near each other, and the edges between."""
    nodes = _by_nearness(catalog)[:TYPES_DRAWN_MAX]
    boxes = _boxes([(node.name, _lines(node)) for node in nodes])
    width = max((box.x + box.width for box in boxes.values()), default=0) + _GAP_X
    height = max((box.y + box.height for box in boxes.values()), default=0) + _GAP_Y
    edges = [
        edge
        for _, edge in sorted(catalog.edges.items())
        if edge.from_type in boxes and edge.to_type in boxes
    ]
    lines, names = _edges(edges, boxes, width, height)
    left_out = len(catalog.nodes) - len(nodes)
    note = [text(_MARGIN, height - 8, f"… and {left_out} more types", soft=True)] * (left_out > 0)
    parts = [*lines, *(_drawn(node, boxes[node.name]) for node in nodes), *names, *note]
    return svg(width, height, parts, title="schema")


def _by_nearness(catalog: Catalog) -> list[NodeType]:
    """The types with the most edges first, each followed by those it is connected with."""
    degree = {name: len(catalog.edges_touching(name)) for name in catalog.nodes}
    waiting = sorted(catalog.nodes, key=lambda name: (-degree[name], name))
    found: dict[str, None] = {}
    while waiting:
        queue = [waiting[0]]
        while queue:
            name = queue.pop(0)
            if name in found:
                continue
            found[name] = None
            for edge in catalog.edges_touching(name):
                queue += [end for end in (edge.from_type, edge.to_type) if end not in found]
        waiting = [name for name in waiting if name not in found]
    return [catalog.nodes[name] for name in found]


def _lines(node: NodeType) -> list[str]:
    indexed = {names[0] for names in node.index if len(names) == 1}
    unique = {names[0] for names in node.unique if len(names) == 1}
    lines = []
    for prop in node.properties[:PROPERTIES_SHOWN_MAX]:
        marks = [
            mark
            for mark, holds in (
                ("@key", prop.name in node.key),
                ("@unique", prop.name in unique and node.key != (prop.name,)),
                ("@index", prop.name in indexed and prop.name not in node.key),
                ("@embed", prop.embed is not None),
            )
            if holds
        ]
        lines.append(cut(" ".join([f"{prop.name}: {prop.type}", *marks]), _LINE_CHARACTERS_MAX))
    if len(node.properties) > PROPERTIES_SHOWN_MAX:
        lines.append(f"… and {len(node.properties) - PROPERTIES_SHOWN_MAX} more")
    return lines


def _boxes(types: list[tuple[str, list[str]]]) -> dict[str, Box]:
    """Boxes that fit their lines, in rows of about as many as there are rows."""
    columns = max(1, math.ceil(math.sqrt(len(types))))
    sizes = {
        name: (
            max(text_width(cut(one, _LINE_CHARACTERS_MAX)) for one in [name, *lines]) + 2 * _PAD,
            LINE_HEIGHT * (len(lines) + 1) + 2 * _PAD + 4,
        )
        for name, lines in types
    }
    names = list(sizes)
    widths = [max(sizes[one][0] for one in names[at::columns]) for at in range(columns) if names]
    boxes: dict[str, Box] = {}
    y = _MARGIN
    for first in range(0, len(names), columns):
        row, x = names[first : first + columns], _MARGIN
        for at, name in enumerate(row):
            boxes[name] = Box(x, y, *sizes[name])
            x += widths[at] + _GAP_X
        y += max(sizes[name][1] for name in row) + _GAP_Y
    return boxes


def _drawn(node: NodeType, box: Box) -> str:
    frame = (
        f'<rect class="og-box" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="5"/>'
    )
    parts = [
        frame,
        text(
            box.x + _PAD,
            box.y + _PAD + 9,
            label(node.name, limit=_LINE_CHARACTERS_MAX),
            more=' font-weight="bold"',
        ),
    ]
    parts += [
        text(box.x + _PAD, box.y + _PAD + 13 + LINE_HEIGHT * at, escaped(words), soft=True)
        for at, words in enumerate(_lines(node), start=1)
    ]
    title = f"<title>{escaped(node.description)}</title>" if node.description else ""
    return f"<g>{title}{''.join(parts)}</g>"


def _edges(
    edges: list[EdgeType], boxes: Mapping[str, Box], width: float, height: float
) -> tuple[list[str], list[str]]:
    """The arrows, which boxes cover, and their names, which cover nothing."""
    taken = [Box(b.x - 2, b.y - 2, b.width + 4, b.height + 4) for b in boxes.values()]
    lines: list[str] = []
    names: list[str] = []
    pairs: dict[tuple[str, str], int] = {}
    for edge in edges:
        ends = (min(edge.from_type, edge.to_type), max(edge.from_type, edge.to_type))
        turn = pairs[ends] = pairs.get(ends, -1) + 1
        drawn, middle = _way(boxes[edge.from_type], boxes[edge.to_type], turn)
        lines.append(drawn)
        shown = cut(edge.name)
        size = text_width(shown)
        wanted = Box(middle[0] - size / 2, middle[1] - LINE_HEIGHT / 2, size, LINE_HEIGHT)
        place = free_box(wanted, taken, width, height)
        taken.append(place)
        words = ", ".join(f"{one.name}: {one.type}" for one in edge.properties)
        title = f"{edge.name}: {edge.from_type} -> {edge.to_type}" + (
            f" {{ {words} }}" * bool(words)
        )
        ground = (
            f'<rect class="og-ground" x="{place.x:.1f}" y="{place.y:.1f}" '
            f'width="{place.width:.1f}" height="{place.height:.1f}" opacity=".8"/>'
        )
        names.append(
            f"<g><title>{escaped(title)}</title>{ground}"
            f"{text(place.x, place.y + LINE_HEIGHT - 3, label(edge.name))}</g>"
        )
    return lines, names


def _way(start: Box, end: Box, turn: int) -> tuple[str, Point]:
    """The arrow from a box to another and its middle; further ones of a pair stand beside it."""
    if start == end:
        x, y, out = start.x + 14, start.y + start.height, 22.0 + 16 * turn
        drawn = f'<path class="og-line" d="M{x:.1f},{y:.1f} v{out:.1f} h{out:.1f} v{1 - out:.1f}"/>'
        tip = arrow((x + out, y + 12), (x + out, y), gap=0)
        return drawn + tip, (x + out + 34, y + out)
    beside = (turn + 1) // 2 * 12.0 * (-1 if turn % 2 else 1)
    a, b = (
        (box.x + box.width / 2 + beside, box.y + box.height / 2 + beside) for box in (start, end)
    )
    a, b = _border(start, a, b), _border(end, b, a)
    return arrow(a, b, gap=1), ((a[0] + b[0]) / 2, (a[1] + b[1]) / 2)


def _border(box: Box, inner: Point, outer: Point) -> Point:
    """Where the way from a point inside the box to one outside leaves it."""
    dx, dy = outer[0] - inner[0], outer[1] - inner[1]
    shares = [1.0]
    if dx:
        shares.append(((box.x + box.width if dx > 0 else box.x) - inner[0]) / dx)
    if dy:
        shares.append(((box.y + box.height if dy > 0 else box.y) - inner[1]) / dy)
    share = min(one for one in shares if one >= 0)
    return inner[0] + dx * share, inner[1] + dy * share
